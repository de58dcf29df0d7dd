"""The boosted kinds' benchmarks run from end to end, on very little."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numba import config

from benchmarks import bench_boosting, sections
from benchmarks.boosting import backdoor, exactness, kinds, membership, presorting, training, updating
from benchmarks.boosting.datasets import Split, load_split
from benchmarks.boosting.kinds import INCREMENTAL, KINDS, ONLINE, Shape
from benchmarks.boosting.peers import CATBOOST, LIGHTGBM, PEERS, Peer, coded
from benchmarks.results import at_most
from tests.unit.benchmarks.conftest import Pages

compiles = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="whole benchmarks take minutes when interpreted")

TINY = bench_boosting.Sizes(
    n_rows=200,
    rounds=1,
    n_singles=3,
    n_back_and_forth=4,
    n_parts=3,
    n_partitions=1,
    n_queries=3,
    n_presorted_trees=5,
    budget=100.0,
)
SETS = ["adult", "pendigits", "abalone"]
TOGETHER = [  # what shares a run
    ("error", "training"),
    ("quantisation",),
    ("update", "update-error", "similarity"),
    ("leaf-scores",),
    ("deletion",),
    ("exact", "exact-touched"),
    ("presorted",),
    ("stream",),
    ("backdoor", "membership"),
    ("prediction", "batch-prediction"),
]
WITH_PLOT = {"update", "stream"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, few_adults: Path) -> Path:
    """A directory with short stand-ins for Pendigits and Abalone beside Adult."""
    folder, rng = tmp_path_factory.mktemp("boosting"), np.random.default_rng(0)
    for file in few_adults.iterdir():
        (folder / file.name).symlink_to(file)
    for part in ("train", "test"):
        X = pd.DataFrame(rng.integers(0, 100, (200, 6))).add_prefix("x")
        X.assign(label=(X["x0"] + X["x1"]) // 67).to_csv(folder / f"pendigits_{part}.csv.gz", index=False)
    X = pd.DataFrame(rng.random((300, 3))).add_prefix("x").assign(sex=rng.choice(["F", "I", "M"], 300))
    X.assign(label=10 * X["x0"] + (X["sex"] == "I")).to_csv(folder / "abalone.csv.gz", index=False)
    return folder


@pytest.fixture(scope="module")
def load(data: Path) -> Callable[[str], Split]:
    """What reads a set."""
    return lambda name: load_split(name, data, data)


@compiles
@pytest.mark.parametrize(
    "asked",
    [pytest.param(asked, id=asked[0], marks=[pytest.mark.long] * (asked[0] == "presorted")) for asked in TOGETHER],
)
def test_every_question_has_a_table_and_some_a_plot(
    tmp_path: Path, data: Path, pages: Pages, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...]
) -> None:
    figures = tmp_path / "figures"
    monkeypatch.setattr(bench_boosting, "FULL", TINY)
    monkeypatch.setattr(sections, "FIGURES", figures)
    monkeypatch.setattr(presorting, "BATCHES", (10, 40))
    monkeypatch.setattr(kinds, "WARM_UP_ROWS", 60)
    bench_boosting.main(
        ["--data", str(data), "--cache", str(tmp_path / "cache"), "--only", *asked, "--sets", *SETS, "--write-results"]
    )
    text = pages.read()
    for name in asked:
        body = text.partition(f"<!-- boosting-{name}: begin -->")[2].partition("<!--")[0]
        assert body.count("\n|") >= 4, name
        assert "Machine: " in body
        assert (f"../figures/boosting-{name}.png" in body) is (name in WITH_PLOT)
    for name in WITH_PLOT.intersection(asked):
        assert (figures / f"boosting-{name}.png").read_bytes().startswith(b"\x89PNG")
    for line in text.splitlines():
        assert "digests different" not in line or line.endswith("| 0 | at most 0 | yes |"), line


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("shape", [Shape(max_leaves=4, n_estimators=20), Shape(max_depth=2, n_estimators=20)], ids=str)
def test_peers_learn_trees_of_the_size_that_is_asked_for(
    load: Callable[[str], Split], name: str, peer: Peer, shape: Shape
) -> None:
    pytest.importorskip(peer.module)
    split = load(name)
    trained = peer.train(split, peer.view(split), shape)
    trained.fit()
    constant = split.y.mean() if split.task == "regression" else np.bincount(split.y).argmax()
    assert split.error(trained.predict()) < split.error(np.full(len(split.y_test), constant))
    if peer is LIGHTGBM:
        trees = trained.estimator.booster_.trees_to_dataframe()
        n_leaves = trees[trees["split_feature"].isna()].groupby("tree_index").size()
        assert n_leaves.max() == 4


def test_a_peer_is_trained_on_the_rows_asked_for(load: Callable[[str], Split]) -> None:
    split = load("pendigits")
    rows = np.flatnonzero(split.y != 1)
    trained = LIGHTGBM.train(split, LIGHTGBM.view(split), Shape(max_leaves=4, n_estimators=2), rows)
    trained.fit()
    assert set(trained.estimator.classes_) == {0, 2}


def test_categories_are_coded_by_the_training_part(load: Callable[[str], Split]) -> None:
    frame = pd.DataFrame({"a": pd.Series(["y", None, "x"], dtype=object), "b": [1.0, np.nan, 3.0]})
    asked = pd.DataFrame({"a": pd.Series(["z", "y"], dtype=object), "b": [0.0, 0.0]})
    split = Split("made", "binary", frame, np.array([0, 1, 0]), asked, np.array([0, 1]), ["a"])
    view = coded(split)
    np.testing.assert_array_equal(view.X, np.float32([[1, 1], [np.nan, np.nan], [0, 3]]))
    np.testing.assert_array_equal(view.X_test, np.float32([[np.nan, 0], [1, 0]]))
    words = CATBOOST.view(split)
    assert words.X["a"].tolist() == ["y", "", "x"]


def test_sets_have_codes_for_classes_and_a_test_part_of_their_own(load: Callable[[str], Split]) -> None:
    adult, digits, abalone = (load(name) for name in SETS)
    assert (adult.task, digits.task, abalone.task) == ("binary", "multiclass", "regression")
    assert set(digits.y) == {0, 1, 2}
    assert len(adult) == 600
    assert len(abalone) == 240
    assert len(abalone.y_test) == 60
    assert abalone.categorical == ["sex"]
    some = digits.first(50)
    assert len(some) == len(some.y_test) == 50
    encoded = load("adult-one-hot")
    assert encoded.categorical == []
    assert encoded.X.dtype == np.float32
    assert encoded.X.shape[1] > 50


def made_split(task: str, y_test: list[Any]) -> Split:
    empty = np.zeros((0, 1), np.float32)
    return Split("made", task, empty, np.array([]), empty, np.array(y_test))


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
    found = exactness.Found(
        Split("made", "binary", np.zeros((100, 1)), np.zeros(100), np.zeros((0, 1)), np.zeros(0)), 10
    )
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
    assert (row.figure, row.mark) == (1, at_most(0))
    assert row.verdict == "**no**"


def test_the_gap_is_to_the_best_peer() -> None:
    found = training.Found(made_split("binary", [0]), ONLINE)
    found.errors |= {"oubli": [0.10, 0.20], "LightGBM": [0.14, 0.14], "CatBoost": [0.2, 0.2]}
    found.seconds |= {"oubli": [1.0, 2.0, 9.0], "LightGBM": [2.0, 2.0, 2.0]}
    assert found.gap() == pytest.approx(1.0)
    assert found.ratio() == 1.0


def test_the_trigger_is_in_the_first_features_alone() -> None:
    X = np.arange(12, dtype=np.float32).reshape(2, 6)
    split = Split("made", "multiclass", X, np.zeros(2), X, np.zeros(2))
    triggered = backdoor.with_trigger(split, X[:1])
    assert triggered.tolist() == [[6, 7, 8, 9, 4, 5]]
    assert X[0, 0] == 0


def test_the_attacker_sees_the_probability_of_the_own_class() -> None:
    chances = np.array([[0.25, 0.75], [0.5, 0.5]])
    model = SimpleNamespace(predict_proba=lambda X: chances, classes_=np.array([0, 2]))
    X = np.zeros((2, 1), np.float32)
    split = Split("made", "multiclass", X, np.array([2, 1]), X, np.zeros(2))
    seen = membership._seen(model, split, np.arange(2))
    assert seen.tolist() == [[0.25, 0.75, 0.75], [0.5, 0.5, 0.0]]


@compiles
def test_a_refit_is_of_the_samples_held(load: Callable[[str], Split]) -> None:
    split = load("adult")
    model = INCREMENTAL.fit(split, np.arange(100), n_estimators=3)
    model.delete(["7", "8"])
    fresh = kinds.refit(model)
    assert fresh.n_samples_ == 98
    assert fresh.digest() == model.digest()


def test_all_questions_are_tried() -> None:
    assert [name for asked in TOGETHER for name in asked] == list(bench_boosting.QUESTIONS)


def test_the_kinds_are_told_apart_by_their_guarantee() -> None:
    assert {name: kind.is_exact for name, kind in KINDS.items()} == {
        kind.estimator("binary").kind: kind.estimator("binary").guarantee == "exact" for kind in KINDS.values()
    }
