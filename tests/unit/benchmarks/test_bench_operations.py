"""The benchmark of operations runs from end to end, on very little, and says what it should; never how fast."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numba import config

from benchmarks import bench_operations
from benchmarks.operations import dare_rf, memory, mutations, stream
from benchmarks.operations.mutations import Mutations, Round
from benchmarks.operations.stream import Waits
from benchmarks.problems import load_problem
from tests.unit.benchmarks.conftest import Pages

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="whole benchmarks take minutes when interpreted")

TINY = bench_operations.Sizes(n_rows=400, rounds=1, n_mutations=15, n_queries=20, n_cycles=8, n_dare=2, budget=100.0)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_operations, "FULL", TINY)


def cells(text: str, section: str) -> list[list[str]]:
    """The rows of the table in a section."""
    body = text.partition(f"<!-- operations-{section}: begin -->")[2].partition("<!--")[0]
    lines = [line for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.long
@pytest.mark.usefixtures("tiny")
def test_every_question_about_models_gets_its_table(tmp_path: Path, few_adults: Path, pages: Pages) -> None:
    questions = ["training", "mutations", "dare", "prediction", "stream", "batches"]
    folders = ["--data", str(few_adults), "--cache", str(tmp_path / "cache")]
    bench_operations.main([*folders, "--write-results", "--only", *questions])
    text = pages.read()
    pairs = {(p, s) for p in ("higgs-like", "adult-one-hot", "adult-native") for s in ("fast", "defaults")}
    for section in ("training", "mutations", "shares", "prediction", "batch-prediction", "stream"):
        assert {(row[0], row[1]) for row in cells(text, section)} == pairs, section
    assert {row[0] for row in cells(text, "batches")} == {"adult-one-hot", "adult-native"}
    assert dare_rf.MISSING in text
    marked = [row for row in cells(text, "training") if row[-1]]
    assert [(row[0], row[1], row[-2]) for row in marked] == [
        ("higgs-like", "fast", "at most 0.9"),
        ("adult-one-hot", "fast", "at most 0.15"),
    ]
    assert {row[-1] for row in marked} <= {"yes", "**no**"}


def test_a_quick_run_never_writes_results(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_operations.main(["--quick", "--write-results"])
    assert "--quick" in capsys.readouterr().err


@pytest.mark.long
def test_measuring_mutations_leaves_the_samples_as_they_were(tmp_path: Path) -> None:
    problem = load_problem("higgs-like", tmp_path, tmp_path, 300)
    forest = problem.fit(problem.forest("fast"))
    digest = forest.digest()
    found = mutations.measure(problem, forest, n=40, rounds=2, budget=100.0)
    assert forest.n_samples_ == 300
    assert forest.digest() == digest
    assert len(found.rounds) == 2
    assert mutations.FEWEST_EAGER <= found.n_eager <= 40


def test_a_stream_is_measured_on_copies(tmp_path: Path) -> None:
    problem = load_problem("higgs-like", tmp_path, tmp_path, 300)
    forest = problem.fit(problem.forest("fast"))
    digest = forest.digest()
    for idle in (False, True):
        waits = stream.measure(problem, forest, 10, 2, 100.0, idle=idle)
        assert [len(one.queries) for one in waits] == [20, 20]
    assert forest.digest() == digest


def test_shares_and_rates_come_from_the_rounds() -> None:
    one = Round(
        lazy_delete=1.0, owed_by_delete=3.0, lazy_add=2.0, owed_by_add=4.0, eager_delete=20.0, eager_add=24.0, n_eager=7
    )
    found = Mutations((one, one), 1000)
    assert found.delete_share == 0.2
    assert found.add_share == 0.25
    assert found.eager_rate_share == 0.05
    problem: Any = SimpleNamespace(name="higgs-like")
    rows = {row.cells[2]: row for row in mutations.rows(problem, "fast", found, peer_fit=100_000.0)}
    assert rows["delete, lazily"].figure == 100_000
    assert rows["delete, lazily"].verdict == "yes"
    assert rows["add, lazily"].verdict == "**no**"
    assert rows["delete, eagerly"].verdict == "yes"
    assert rows["add, eagerly"].verdict == "**no**"


def test_waits_are_multiples_of_the_untagged_query() -> None:
    wall = np.array([2.0] * 98 + [40.0, 60.0])
    waits = Waits(untagged=np.array([2.0, 1.0]), queries=np.column_stack([wall, wall / 4]))
    assert waits.times("mean") == pytest.approx((98 * 2 + 100) / 100 / 2)
    assert waits.times("mean", stream.CPU) == pytest.approx(waits.times("mean") / 2)
    assert waits.times("p99") > 19


@pytest.mark.long
def test_memory_is_that_of_a_fresh_process(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    npz = tmp_path / "rows.npz"
    np.savez(npz, X=random.random((200, 3), dtype=np.float32), y=random.integers(0, 2, 200))
    ballast = np.ones(100_000_000)  # 800 MB here are none of the other process's
    peak = memory.measure(npz, {"n_estimators": 2})
    assert 10e6 < peak.before <= peak.after < ballast.nbytes


def test_dare_is_asked_in_its_own_interpreter(tmp_path: Path) -> None:
    package = tmp_path / "dare.py"
    package.write_text(
        "class Forest:\n"
        "    def __init__(self, **parameters): assert parameters == {'random_state': 1, 'k': 5}\n"
        "    def fit(self, X, y): assert X.shape == (50, 2)\n"
        "    def delete(self, index): assert 0 <= index < 50\n"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nshift\nPYTHONPATH={tmp_path} PYTHONSAFEPATH=1 exec {sys.executable} "$@"\n')
    python.chmod(0o700)
    npz = tmp_path / "rows.npz"
    np.savez(npz, X=np.zeros((50, 2), np.float32), y=np.zeros(50, np.int32))
    measured = dare_rf.measure(python, npz, {"k": 5}, 3)
    assert measured.n == 3
    assert measured.delete >= 0
    one = Round(0.001, 0.001, 0.0, 0.0, 0.004, 0.0, 1)
    rows = dare_rf.rows({"as ours": dare_rf.Dare(1.0, 0.2, 3)}, Mutations((one,), 1))
    assert [row.figure for row in rows] == pytest.approx([200.0, 100.0, 50.0])
    assert [row.mark is not None for row in rows] == [True, False, False]
