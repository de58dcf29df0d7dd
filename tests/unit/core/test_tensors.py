import os
from unittest.mock import patch

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from oubli.core import persistence
from oubli.core.persistence import read_tensor, write_tensors

ARRAYS = {
    "a.bytes": np.arange(13, dtype=np.uint8), "b.wide": np.linspace(-1, 1, 7), "d.nothing": np.zeros(0, np.int64),
    "c.table": np.arange(12, dtype=np.float32).reshape(4, 3), "e.no rows": np.zeros((0, 5), np.float32),
    "f.empty rows": np.zeros((3, 0), np.float32), "g.one": np.array([2**63], np.uint64),
    "h.half": np.array([0.5, -2], np.float16), "i.flags": np.array([True, False, True]),
    "j.short": np.array([[-3, 4]], np.int16), "k.cube": np.arange(24, dtype=np.int32).reshape(2, 3, 4),
}  # fmt: skip
METADATA = {"format": "test", "text": 'Chartreuse-\u00c9clair "quoted"'}


def written(path, arrays=ARRAYS):
    with path.open("wb") as file:
        write_tensors(file.fileno(), arrays, METADATA)
    return path


def assert_equal(arrays, others):
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        assert (others[name].dtype, others[name].shape) == (array.dtype, array.shape), name
        assert others[name].tobytes() == array.tobytes(), name


def test_arrays_of_another_byte_order_are_turned_round_and_others_refused(tmp_path):
    arrays = {"a": np.arange(5, dtype=">f8"), "b": np.arange(5, dtype=">i4")}
    native = {name: array.astype(array.dtype.newbyteorder("=")) for name, array in arrays.items()}
    assert_equal(native, load_file(written(tmp_path / "file", arrays)))
    with pytest.raises(KeyError):
        written(tmp_path / "file", {"a": np.zeros(2, complex)})


@pytest.mark.parametrize("most", [7, 2**20])
def test_the_library_reads_what_is_written_however_few_bytes_are_taken_at_a_time(tmp_path, most):
    write = os.write
    with patch("os.write", lambda handle, data: write(handle, data[:most])):
        path = written(tmp_path / "file")
    assert_equal(ARRAYS, load_file(path))
    with safe_open(path, framework="numpy") as file:
        assert file.metadata() == METADATA


@pytest.mark.parametrize("piece", [1, 24, 100, 2**20])
def test_large_arrays_are_read_piece_by_piece(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(persistence, "_PIECE", piece)
    with safe_open(written(tmp_path / "file"), framework="numpy") as file:
        assert_equal(ARRAYS, {name: read_tensor(file, name) for name in file.keys()})  # noqa: SIM118
