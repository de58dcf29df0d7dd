"""What the scripts calculate from their measurements, with figures that can be checked by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import bench_defaults, bench_limits, higgs_like
from benchmarks.bench_soak import Minute, summary
from benchmarks.bench_threads import Threads, Times, in_turn
from benchmarks.boosting import exactness, training, updating
from benchmarks.boosting.datasets import Split
from benchmarks.boosting.kinds import ONLINE
from benchmarks.durability import probe
from benchmarks.failover.clients import Change, Notes, wrong_answers, wrong_versions
from benchmarks.influence.proxies import _parts_alike, ndcg
from benchmarks.influence.removal import discounted
from benchmarks.operations import mutations, stream
from benchmarks.operations.mutations import Mutations, Round
from benchmarks.paper import scaling
from benchmarks.results import at_most
from benchmarks.serving.paced import Pace
from benchmarks.streams import building, cost
from benchmarks.streams.prequential import Run
from benchmarks.streams.sets import Stream
from oubli.core import DynamicTreeClassifier

GIB = 2**30


def made_split(task: str, y_test: list[Any], n: int = 0) -> Split:
    return Split("made", task, np.zeros((n, 1)), np.zeros(n), np.zeros((0, 1)), np.array(y_test))


# --- boosting


def test_errors_and_points() -> None:
    classes = made_split("multiclass", [0, 1, 2, -1])
    assert classes.error(np.array([0, 1, 1, 0])) == 0.5
    assert classes.points(0.01) == pytest.approx(1.0)
    numbers = made_split("regression", [0.0, 4.0])
    assert numbers.error(np.array([1.0, 4.0])) == 0.5
    assert numbers.points(0.4) == pytest.approx(10.0)  # of R2, the variance being 4


def test_what_differs_between_updated_and_retrained() -> None:
    """Of five test rows one is right after retraining only, one after the update only, one wrong in two ways."""
    split, outcome = made_split("multiclass", [0, 0, 0, 0, 0]), updating.Outcome()
    outcome.compare(split, updated=np.array([0, 1, 0, 1, 1]), retrained=np.array([0, 0, 1, 2, 1]))
    assert outcome.differing == [pytest.approx((0.2, 0.2, 0.2))]
    assert outcome.errors == [pytest.approx((0.6, 0.6))]


def test_digests_that_differ_are_counted_and_shown() -> None:
    found = exactness.Found(made_split("binary", [], 100), 10)
    model: Any = SimpleNamespace(engine_=SimpleNamespace(), n_estimators=5, n_trees_=10, n_samples_=99)

    def update(**last: Any) -> None:
        model.engine_.last_update = SimpleNamespace(**last)

    outcome = found.outcomes["delete", 0.0]
    outcome.update(model, lambda: update(nothing_changed=True, first_tree=-1, n_touched=0, grown_from=-1))
    outcome.update(model, lambda: update(nothing_changed=False, first_tree=4, n_touched=2, grown_from=4))
    outcome.compare("a", "a")
    outcome.compare("a", "b")
    assert (outcome.unchanged, outcome.first_trees, outcome.touched) == (1, [4], [0, 2 + 2 * 99])
    (row,) = exactness.touched_rows([found])
    assert row.cells == ("made", "delete", "1", "2", "50", "4", "10", "10.00", "2")
    assert (row.figure, row.mark, row.verdict) == (1, at_most(0), "**no**")


def test_the_gap_is_to_the_best_peer() -> None:
    found = training.Found(made_split("binary", [0]), ONLINE)
    found.errors |= {"oubli": [0.10, 0.20], "LightGBM": [0.14, 0.14], "CatBoost": [0.2, 0.2]}
    found.seconds |= {"oubli": [1.0, 2.0, 9.0], "LightGBM": [2.0, 2.0, 2.0]}
    assert found.gap() == pytest.approx(1.0)
    assert found.ratio() == 1.0


# --- influence, the defaults and the paper


def test_ndcg_by_hand() -> None:
    truth = np.array([3.0, 2.0, 1.0])
    assert ndcg(truth, truth) == pytest.approx(1.0)
    gains, discounts = np.array([1 / 3, 1 / 2, 1.0]), 1 / np.log2([2, 3, 4])
    assert ndcg(truth, -truth) == pytest.approx((gains * discounts).sum() / (gains[::-1] * discounts).sum())


def test_gains_are_discounted_and_parts_alike_whatever_their_names_are() -> None:
    assert discounted(np.array([0.5, 0.5, 0.5])) == pytest.approx(0.5)
    assert discounted(np.array([1.0, 0.0])) > 0.5
    parts = np.array([0, 0, 1, 2], np.uint8)
    for others, alike in (([5, 5, 0, 1], True), ([5, 0, 0, 1], False), ([5, 5, 0, 0], False)):
        assert _parts_alike(parts, np.array(others, np.uint8)) is alike


def test_gaps_are_to_the_better_peer() -> None:
    was, of = bench_defaults.WAS, bench_defaults.Outcome
    peers = {"RandomForest": [of(0.90), of(0.92)], "ExtraTrees": [of(0.89), of(0.89)]}
    ours = {was: [of(0.92, 2.0, 4.0, 10.0, 100.0)] * 2, "q=0.1": [of(0.90, 1.0, 1.0, 1.0, 50.0)] * 2}
    assert bench_defaults.gaps({**peers, **ours}) == pytest.approx({was: 1.0, "q=0.1": -1.0})
    _, cheap = bench_defaults.summary_rows({"adult": {**peers, **ours}}, [was, "q=0.1"])
    assert cheap.cells == ("q=0.1", "-1.00", "adult", "0.50", "0.25", "0.10", "0.50")


def test_the_exponent_is_the_slope_of_the_logarithms() -> None:
    found = scaling.Found()
    found.seconds["fit"] = {n: 1e-6 * n**1.5 for n in (1_000, 10_000, 100_000)}
    assert found.exponent("fit") == pytest.approx(1.5)


# --- operations


def test_shares_and_rates_come_from_the_rounds() -> None:
    one = Round(
        lazy_delete=1.0, owed_by_delete=3.0, lazy_add=2.0, owed_by_add=4.0, eager_delete=20.0, eager_add=24.0, n_eager=7
    )
    found = Mutations((one, one), 1000)
    assert (found.delete_share, found.add_share, found.eager_rate_share) == (0.2, 0.25, 0.05)
    problem: Any = SimpleNamespace(name="higgs-like")
    rows = {row.cells[2]: row for row in mutations.rows(problem, "fast", found, peer_fit=100_000.0)}
    assert rows["delete, lazily"].figure == 100_000
    assert {name: row.verdict for name, row in rows.items() if row.mark} == {
        **dict.fromkeys(("delete, lazily", "delete, eagerly"), "yes"),
        **dict.fromkeys(("add, lazily", "add, eagerly"), "**no**"),
    }


def test_waits_are_multiples_of_the_untagged_query() -> None:
    wall = np.array([2.0] * 98 + [40.0, 60.0])
    waits = stream.Waits(untagged=np.array([2.0, 1.0]), queries=np.column_stack([wall, wall / 4]))
    assert waits.times("mean") == pytest.approx((98 * 2 + 100) / 100 / 2)
    assert waits.times("mean", stream.CPU) == pytest.approx(waits.times("mean") / 2)
    assert waits.times("p99") > 19


def test_a_step_tells_its_own_peak_and_the_largest_model_leaves_room_for_others() -> None:
    peak = bench_limits.step("large", lambda: bytearray(200 * 2**20))
    assert peak.peak - peak.after > 150 * 2**20
    assert bench_limits.step("small", lambda: None).peak < peak.peak
    n, base = 300_000, bench_limits.resident()
    steps = [
        bench_limits.Step("fit", 1.0, 1.0, base, base + 1000 * n),
        bench_limits.Step("saved", 1.0, 1.0, base, base + 500 * n),
    ]
    rows = bench_limits.most_rows(steps, n, 20 * GIB)
    assert rows % 100_000 == 0
    assert 0.8 * (16 * GIB - base) < 1000 * rows < 16 * GIB - base
    assert bench_limits.most_rows(steps, n, bench_limits.RESERVE) == n


def test_sides_take_turns_and_a_mark_is_no_less_than_what_two_processes_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []

    def one_round(n_jobs: int | None) -> Times:
        asked.append(n_jobs)
        return Times(2.0 if n_jobs is None else 1.0, 3.0)

    pairs = in_turn(3, one_round)
    assert asked == [None, 2, 2, None, None, 2]
    bench = Threads(Path("data"), Path("cache"), Path("figures"), 2, 1)
    for loop, limit in ((0.7, 0.77), (0.5, 0.55)):
        monkeypatch.setattr(Threads, "loop_ratio", loop)
        assert bench.mark("fit").limit == pytest.approx(limit)
    assert bench.mark("short").limit == 1.1
    row = bench.row("some", "fit", "fit", pairs)
    assert (row.cells, row.figure) == (("some", "fit", "2", "1", "3", "3"), 0.5)


# --- trees and streams


def test_scores_of_streams() -> None:
    """Of five samples the first is learned only; the answers are one hit, one miss, one false alarm, one right no."""
    samples = Stream("s", ["x"], [[0.0]] * 5, [True, True, True, False, False], [])
    found = Run(samples, [True, False, True, False], 4e-6)
    assert found.f1() == pytest.approx(100 * 2 / (2 + 1 + 1))
    assert found.f1(3) == pytest.approx(100 * 2 / (2 + 1))
    assert (found.accuracy(), found.microseconds, found.is_whole) == (50.0, pytest.approx(1.0), True)
    assert not Run(samples, [True], 1.0).is_whole


def test_trees_are_compared_node_by_node() -> None:
    from sklearn.tree import DecisionTreeClassifier

    held = higgs_like.generate(3_000, 10)
    ours = DynamicTreeClassifier(max_depth=4).fit(held.X, held.y)
    same, worse = (
        building.compare(
            ours, DecisionTreeClassifier(max_depth=4, splitter=splitter, random_state=0).fit(held.X, held.y), held
        )
        for splitter in ("best", "random")
    )
    assert (same.others, same.same >= 20) == (0, True)
    assert worse.others > 0


def test_exponents_and_bounds() -> None:
    curve = cost.Curve("n", cost.KINDS[0])
    for n in (1_000, 10_000, 100_000):
        curve.points[n], curve.walks[n] = 5.0 + 1e-3 * n**0.5, 5.0
    assert curve.exponent_of_rebuilding == pytest.approx(0.5)
    assert curve.bounds()[0] == pytest.approx(1e-3 * 1_000**0.5)
    assert curve.bounds()[2] == pytest.approx(curve.bounds()[0] * (5 / 3) ** 2)  # log^2 n
    assert 0.2 < curve.bound < 0.25
    curve.varied, curve.points, curve.walks = "epsilon", {0.1: 9.0, 0.2: 7.0}, {0.1: 5.0, 0.2: 5.0}
    assert curve.bounds() == pytest.approx([4.0, 2.0])
    assert curve.exponent_of_rebuilding == pytest.approx(-1.0)


# --- servers


def test_gaps_and_minutes_of_a_server() -> None:
    assert probe.longest_gap([1.0, 1.5, 4.0, 4.25]) == 2.5
    memory, p99 = summary([Minute(100.0 + number, Pace(1, 1, 1 + number / 10, 1)) for number in range(30)])
    assert memory.figure == pytest.approx((100 + 27) / (100 + 7))  # the last sixth beside the second
    assert p99.figure == pytest.approx((1 + 2.7) / (1 + 0.7))


def notes_of(*changes: Change) -> Notes:
    notes = Notes()
    notes.changes.extend(changes)
    return notes


def test_what_two_leaders_at_once_would_do_is_counted() -> None:
    changes = [
        Change("add", name, 0.0, status=status, version=version, answered_at=1.0)
        for name, status, version in (("a", 201, 5), ("b", 200, 6), ("c", 404, 6), ("d", 200, 0), ("e", 200, 0))
    ]
    assert wrong_versions(notes_of(*changes)) == 0
    again = Change("delete", "f", 0.0, status=200, version=5, answered_at=2.0)
    assert wrong_versions(notes_of(*changes, again)) == 1
    impossible = (("add", 201), ("add", 409), ("delete", 200), ("delete", 404), ("add", 0))
    assert wrong_answers(notes_of(*(Change(kind, f"{kind}-{s}", 0.0, status=s) for kind, s in impossible))) == 2


def test_answers_are_counted_by_when_and_by_whom_they_come() -> None:
    times = ((0.5, 1.5, 201), (1.1, 1.9, 201), (1.2, 1.3, 404), (1.2, None, 0), (1.8, 2.1, 201))
    made = notes_of(*(Change("add", f"{at}", at, answered_at=answered, status=s) for at, answered, s in times))
    assert made.n_made_between(1.0, 2.0) == 1
    answers = (("a", 0.9, 1.0), ("a", 1.9, 2.5), ("a", 2.9, 3.0), ("b", 3.9, 4.0), ("c", 2.1, 3.5))
    notes = notes_of(
        *(Change("add", by, 0.0, asked_at=asked, status=201, by=by, answered_at=at) for by, asked, at in answers)
    )
    found = [notes.first_after(2.0), notes.first_after(2.0, "a"), notes.first_after(5.0)]
    assert [one and one.answered_at for one in found] == [3.0, 3.5, None]


# --- data that are made up


def test_the_same_sizes_give_the_same_data_once_and_more_rows_begin_with_the_same(tmp_path: Path) -> None:
    path = higgs_like.cached(tmp_path, 300, 100)
    written = path.stat().st_mtime_ns
    loaded, made = higgs_like.load(tmp_path, 300, 100), higgs_like.generate(300, 100)
    for a, b in zip(loaded, made, strict=True):
        np.testing.assert_array_equal(a, b)
    assert path.stat().st_mtime_ns == written
    assert (made.X.shape, made.X.dtype, made.X_test.shape) == ((300, 28), np.float32, (100, 28))
    np.testing.assert_array_equal(higgs_like.generate(100, 0).X, made.X[:100])


def test_the_best_classifier_errs_on_a_quarter_of_the_rows() -> None:
    # Knowing the features that count and how, no one does better than this: the sign of the log-odds.
    held = higgs_like.generate(20_000, 0)
    score = higgs_like._score(held.X)
    errors = ((score > np.median(score)) != held.y).mean()
    assert abs(errors - higgs_like.BAYES_ERROR) < 0.015
