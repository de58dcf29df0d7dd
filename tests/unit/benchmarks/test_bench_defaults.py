"""The benchmark of the defaults runs from end to end, on very little, and its table says what it measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from numba import config

from benchmarks import bench_defaults
from benchmarks.bench_defaults import WAS, Outcome, gaps, summary_rows
from tests.unit.benchmarks.conftest import Pages

FOUND = {
    "adult": {
        "RandomForest": [Outcome(0.90), Outcome(0.92)],
        "ExtraTrees": [Outcome(0.89), Outcome(0.89)],
        WAS: [Outcome(0.92, 2.0, 4.0, 8.0, 100.0), Outcome(0.92, 2.0, 4.0, 8.0, 100.0)],
        "q=0.1": [Outcome(0.90, 1.0, 1.0, 1.0, 50.0), Outcome(0.90, 1.0, 1.0, 1.0, 50.0)],
    },
    "letter": {
        "RandomForest": [Outcome(0.95)],
        "ExtraTrees": [Outcome(0.97)],
        WAS: [Outcome(0.965, 1.0, 1.0, 1.0, 10.0)],
        "q=0.1": [Outcome(0.94, 1.0, 0.25, 0.5, 2.5)],
    },
}


def test_gaps_and_costs_are_beside_the_better_peer_and_the_first_setting() -> None:
    assert gaps(FOUND["adult"]) == pytest.approx({WAS: 1.0, "q=0.1": -1.0})
    before, cheap = summary_rows(FOUND, [WAS, "q=0.1"])
    assert before.cells == (WAS, "+0.25", "letter", "1.00", "1.00", "1.00", "1.00")
    assert before.figure == pytest.approx(-0.5)
    assert before.verdict == "yes"
    assert cheap.cells == ("q=0.1", "-2.00", "letter", "0.71", "0.25", "0.25", "0.35")
    assert cheap.figure == pytest.approx(-3.0)
    assert cheap.verdict == "**no**"


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="whole benchmarks take minutes when interpreted")
def test_it_runs(few_adults: Path, pages: Pages) -> None:
    options = ["--data", str(few_adults), "--sets", "adult", "--seeds", "1", "--rows", "150", "--settings", "q=0.1"]
    bench_defaults.main([*options, "--json", str(few_adults / "found.json"), "--write-results"])
    page = (pages.folder / "defaults.md").read_text()
    assert "| q=0.1 |" in page
    assert "| adult | AUC |" in page
    assert (few_adults / "found.json").stat().st_size > 100
