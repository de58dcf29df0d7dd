from __future__ import annotations

import csv
import io
import json

import pyarrow as pa

from benchmarks.bench_bulk import TYPES, WRITTEN
from benchmarks.serving.samples import ADULT
from oubli.app.datasets.loading import load_table
from oubli.app.settings import Settings


def test_all_bodies_hold_the_same_rows() -> None:
    data = load_table(Settings(data=ADULT, target="income", ephemeral=True))
    found = {}
    for name in TYPES:
        begin, pieces, end = WRITTEN[name](data)
        assert len(pieces) == len(data) // 5000
        found[name] = begin + b"".join(pieces) + end
    table = pa.ipc.open_stream(found["Arrow"]).read_all()
    rows = [[None if cell != cell else cell for cell in row.values()] for row in table.slice(0, 200).to_pylist()]
    assert rows == [json.loads(line) for line in found["NDJSON"].splitlines()[:200]]
    header, *lines = csv.reader(io.StringIO(found["CSV"].decode()))
    assert header == table.column_names
    assert lines[:200] == [
        ["" if c is None else str(int(c) if isinstance(c, float) else c) for c in row] for row in rows
    ]
    assert len(lines) == table.num_rows == 30_000
