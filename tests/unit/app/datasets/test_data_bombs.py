"""Data files that unpack to far more than they are: refused with limit and remedy, before the memory is full."""

import bz2
import gzip
import lzma
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oubli.app.datasets.loading import load_queries
from oubli.app.datasets.readers import LoadError
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from tests.tiers import covering
from tests.unit.app.datasets.support import load
from tests.unit.app.datasets.writing import arrow, zstd

LIMIT = 2**20
ROW = b"1.5,yes\n"
REMEDY = r"unpacks to more than 1,048,576 bytes, the memory of this machine: .* use a machine with more memory"


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oubli.app.datasets.readers.MAX_DATA_BYTES", LIMIT)


def content(n_bytes: int) -> bytes:
    return b"x,y\n" + ROW * (n_bytes // len(ROW))


COMPRESSIONS = (zstd, gzip.compress, partial(bz2.compress, compresslevel=1), partial(lzma.compress, preset=0), bytes)


@pytest.mark.parametrize(("what", "compress"), covering(["rows", "one line", "one field", "zeros"], COMPRESSIONS))
def test_a_csv_file_that_unpacks_to_too_much(compress: Any, what: str) -> None:
    size = 32 * LIMIT
    raw = {
        "rows": content(size), "one line": b"a" * size, "one field": b"x,y\n" + b"1" * size + b",yes\n",
        "zeros": bytes(size),
    }[what]  # fmt: skip
    packed = compress(raw)
    assert compress is bytes or len(packed) < LIMIT / 5
    before = pa.total_allocated_bytes()
    del raw
    tracemalloc.start()
    try:
        with pytest.raises(LoadError) as caught:
            load(packed)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * LIMIT
    assert pa.total_allocated_bytes() - before < 8 * LIMIT
    if what in {"rows", "one field"}:
        assert caught.match(REMEDY)
    else:
        assert caught.match("has no line break in its first|is not CSV|holds a character that is no text")


def test_rows_to_predict_are_limited_too_and_what_is_below_the_limit_is_read(tmp_path: Path) -> None:
    assert len(load(gzip.compress(content(LIMIT - 100)))) == (LIMIT - 100) // len(ROW)
    path = tmp_path / "data.csv.gz"
    path.write_bytes(gzip.compress(content(2 * LIMIT)))
    schema = Schema((Column("x", ColumnType.NUMERIC),), Task.CLASSIFICATION, LabelType.STRING, "y", named=True)
    with pytest.raises(LoadError, match=REMEDY):
        load_queries(path, schema)


def one_text() -> Any:
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), pa.array(["t" * 100_000]))
    return column.cast(pa.dictionary(pa.int32(), pa.string()))


DELTA = {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY", "y": "PLAIN"}}
BOMBS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "one text": (one_text, {}),
    "numbers": (lambda: pa.array([1.5] * 1_000_000), {}),
    "nothing": (lambda: pa.nulls(2_000_000, pa.string()), {}),
    "delta": (lambda: pa.array([("t" * 40_000) + str(i) for i in range(300)]), DELTA),
    "long text": (lambda: pa.array(["t" * 500_000] * 20), {}),
}


@pytest.mark.parametrize(("make", "encoding"), BOMBS.values(), ids=BOMBS)
def test_a_parquet_file_that_unpacks_to_too_much(make: Any, encoding: dict[str, Any]) -> None:
    column = make()
    write = partial(pq.write_table, compression="zstd", store_schema=False, **encoding)
    file = arrow({"x": column, "y": pa.array(["yes"] * len(column))}, write)
    del column
    assert len(file) < LIMIT / 2
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    with pytest.raises(LoadError, match=REMEDY):
        load(file)
    assert pool.bytes_allocated() - before < 64 * LIMIT
