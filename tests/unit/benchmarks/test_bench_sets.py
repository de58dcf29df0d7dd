from __future__ import annotations

import pytest

from benchmarks.bench_sets import HEAD, QUESTIONS, log, measure, nonces, signed
from benchmarks.results import table


def test_a_small_set_is_measured():
    rows = measure(300)
    assert {row.cells[0] for row in rows} == {"300"}
    assert len({row.cells[1] for row in rows}) == len(rows)
    assert all(row.figure > 0 for row in rows)
    assert "a proof of absence" in table(HEAD, rows)


@pytest.mark.parametrize("ask", [log, signed, nonces])
def test_the_other_questions_are_asked(ask):
    title, text, rows = ask(300)
    assert title
    assert text
    assert len(rows.splitlines()) > 3
    assert len(QUESTIONS) == 4
