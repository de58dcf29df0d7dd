from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench_threads
from benchmarks.bench_threads import Threads, Times, in_turn
from benchmarks.problems import Problem
from oubli.core import DynamicForestClassifier


def bench(rounds: int = 2) -> Threads:
    return Threads(Path("data"), Path("cache"), Path("figures"), rounds, 1)


def test_who_goes_first_changes_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Threads, "loop_ratio", 0.5)
    asked: list[int | None] = []

    def one_round(n_jobs: int | None) -> Times:
        asked.append(n_jobs)
        return Times(2.0 if n_jobs is None else 1.0, 3.0)

    pairs = in_turn(3, one_round)
    assert asked == [None, 2, 2, None, None, 2]
    row = bench().row("some", "fit", "fit", pairs)
    assert row.cells == ("some", "fit", "2", "1", "3", "3")
    assert row.figure == 0.5


def test_other_sides_go_in_turn_too() -> None:
    pairs = in_turn(2, lambda side: Times({"ours": 1.0, "theirs": 2.0}[side], 3.0), ("ours", "theirs"))
    assert [(one.wall, other.wall) for one, other in pairs] == [(1.0, 2.0)] * 2


def test_a_mark_is_no_less_than_what_two_processes_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    for loop, limit in ((0.5, 0.55), (0.7, 0.77)):
        monkeypatch.setattr(Threads, "loop_ratio", loop)
        assert bench().mark("fit").limit == pytest.approx(limit)
    assert bench().mark("short").limit == 1.1


def test_every_piece_of_work_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 4)).astype(np.float32), rng.integers(0, 2, 200)
    monkeypatch.setattr(Problem, "forest", lambda self, setting, seed=0: DynamicForestClassifier(4, random_state=seed))
    monkeypatch.setattr(bench_threads, "BATCH", 500)
    problem = Problem("adult-one-hot", X, y, X, y, X, X)
    for _, _, one_round in bench_threads._forest_works(problem):
        for n_jobs in (None, 2):
            assert one_round(n_jobs).wall > 0
    with pytest.raises(AssertionError, match="do not give what one gives"):
        bench_threads._require(False)
