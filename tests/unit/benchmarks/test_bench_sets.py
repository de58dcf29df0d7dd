from __future__ import annotations

from benchmarks.bench_sets import HEAD, measure
from benchmarks.results import table


def test_a_small_set_is_measured():
    rows = measure(300)
    assert {row.cells[0] for row in rows} == {"300"}
    assert len({row.cells[1] for row in rows}) == len(rows)
    assert all(row.figure > 0 for row in rows)
    assert "a proof of absence" in table(HEAD, rows)
