"""Arrays in the safetensors format, written and read piece by piece.

    8 bytes    length of the header, little endian
    header     JSON, padded with spaces to a multiple of 8 bytes
                 {"__metadata__": {text: text}, name: {"dtype", "shape", "data_offsets": [start, end]}}
    data       the arrays, without gaps, those of the widest numbers first: so all are aligned

The library writes what it has first made one string of, and reads an array in one go; other threads stand
still meanwhile, for a second where the arrays are large. It reads what is written here, and checks it.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from oubli.core.array_types import Array
from oubli.core.errors import FileError
from oubli.core.slices import cut

_PIECE = 2**20  # bytes
_ALIGNMENT = 8
_DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
}
_KNOWN = frozenset(_DTYPES.values())
_MOST_DIMENSIONS = 4


def write_tensors(handle: int, arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Write arrays, in C order and of the machine's byte order, to an empty file that is open for writing."""
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in names:
        array = arrays[name]
        start, end = end, end + array.nbytes
        header[name] = {"dtype": _DTYPES[array.dtype.name], "shape": array.shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % _ALIGNMENT)
    _write_all(handle, memoryview(len(text).to_bytes(8, "little") + text))
    for name in names:
        # Little endian is what the machines have that this runs on; elsewhere it swaps the bytes.
        array = arrays[name].astype(arrays[name].dtype.newbyteorder("<"), copy=False)
        _write_all(handle, array.reshape(-1).view(np.uint8).data)


def _write_all(handle: int, data: memoryview) -> None:
    # The system takes less at a time when there is much, or when a signal comes.
    while data:
        data = data[os.write(handle, data[: 16 * _PIECE]) :]


def check_tensors(file: Any, n_bytes: int) -> None:
    """Refuse tensors of types that are not written here, and shapes that are larger than a file of `n_bytes`.

    An empty array may have any length along its other dimensions; what goes through these would never end.

    Raises
    ------
    FileError
        When there are such.
    """
    for name in file.keys():  # noqa: SIM118
        source = file.get_slice(name)
        shape = source.get_shape()
        if source.get_dtype() not in _KNOWN or len(shape) > _MOST_DIMENSIONS or any(size > n_bytes for size in shape):
            raise FileError("a part of the file has a type or a shape that none can have: restore another file")


def read_tensor(file: Any, name: str) -> Array:
    """Read an array of a file that `safetensors.safe_open` has opened for NumPy."""
    source = file.get_slice(name)
    shape = source.get_shape()
    row_bytes = 8 * int(np.prod(shape[1:], dtype=np.int64))
    n_rows = max(1, _PIECE // max(1, row_bytes))
    if not shape or shape[0] <= n_rows:
        whole: Array = file.get_tensor(name)
        return whole
    result = np.empty(shape, source[:1].dtype)
    for rows in cut(shape[0], n_rows):
        result[rows] = source[rows]
    return result
