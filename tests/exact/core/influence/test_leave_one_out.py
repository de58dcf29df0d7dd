"""True leave-one-out is what deleting, predicting and adding back in the public way gives; the model stays as it is."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oubli.core import DynamicForestClassifier, DynamicForestRegressor
from oubli.core.boosting.incremental.estimator import IncrementalBoostingClassifier, IncrementalBoostingRegressor
from oubli.core.errors import EmptyModelError
from oubli.core.influence import influence
from oubli.core.model import Model
from tests.oracles import forest as oracle
from tests.oracles.common import Column, cell, hash_bytes, quantised


def loss_of(model: Any, X: Any, y: Any) -> np.ndarray:
    """The loss of each row."""
    found = model.query(X)
    if found.probabilities is None:
        return (found.labels - np.asarray(y, np.float64)) ** 2
    classes = found.classes.tolist()
    shares = [
        row[classes.index(label)] if label in classes else 0.0
        for row, label in zip(found.probabilities, y, strict=True)
    ]
    return -np.log(np.clip(shares, 1e-15, 1.0))


def in_the_public_way(model: Model, X: Any, y: Any, ids: list[str]) -> np.ndarray:
    other = model.copy()
    before, result = loss_of(other, X, y), []
    for name in ids:
        sample = other.samples_.get(name)
        other.delete([name])
        result.append(loss_of(other, X, y) - before)
        other.add([sample.features], [sample.label], ids=[name])
    return np.array(result)


def problem(task: str, n: int, seed: int = 0, categories: bool = False, missing: bool = False) -> tuple[Any, list[Any]]:
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 4)), 1)
    signal = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=n)
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    y = {
        "regression": signal,
        "binary": np.where(signal > 0.2, "yes", "no"),
        "multiclass": np.array(["a", "b", "c"])[np.digitize(signal, [-0.5, 0.7])],
    }[task].tolist()
    if not categories:
        return X, y
    frame = pd.DataFrame(X, columns=["p", "q", "r", "s"])
    frame["colour"] = np.array(["red", "green", "blue", None], dtype=object)[rng.integers(0, 4, n)]
    return frame, y


CASES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "forest of two classes": (DynamicForestClassifier, "binary", {}),
    "few trees a sample": (DynamicForestClassifier, "binary", {"occurrence": 0.2}),
    "low disclosure": (DynamicForestClassifier, "binary", {"disclosure": "low"}),
    "low disclosure, numbers": (DynamicForestRegressor, "regression", {"disclosure": "low"}),
    "forest of many classes": (DynamicForestClassifier, "multiclass", {"max_depth": 4, "criterion": "entropy"}),
    "forest of numbers": (DynamicForestRegressor, "regression", {}),
    "two classes": (IncrementalBoostingClassifier, "binary", {"max_depth": 3}),
    "many classes": (IncrementalBoostingClassifier, "multiclass", {"max_depth": 3}),
    "numbers": (IncrementalBoostingRegressor, "regression", {"max_depth": 3}),
    "presorted": (IncrementalBoostingClassifier, "binary", {"max_depth": 3, "quantization": None}),
    "presorted numbers": (IncrementalBoostingRegressor, "regression", {"max_depth": 3, "quantization": None}),
}


def require_the_public_way(model: Any, rows: Any, labels: list[Any], ids: list[str]) -> np.ndarray:
    """Bit by bit; the model is as before. Returns the scores."""
    digest, n_tags = model.copy().digest(), model.n_lazy_tags_
    found = influence(model, rows, labels, method="leave-one-out", reduce=None, ids=ids)
    assert model.n_lazy_tags_ == n_tags
    np.testing.assert_array_equal(found.scores, in_the_public_way(model, rows, labels, ids))
    assert found.ids == ids
    assert model.digest() == digest
    scores: np.ndarray = found.scores
    return scores


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_public_way_bit_by_bit(case: str) -> None:
    estimator, task, parameters = CASES[case]
    # Big enough for nodes of a forest that keep counters.
    X, y = problem(task, 230, categories=True, missing=True)
    model = estimator(n_estimators=8, random_state=0, **parameters).fit(X.head(200), y[:200])
    ids = [str(i) for i in range(0, 200, 20)]
    for n_rows in (1, 20):
        rows, labels = X.tail(30).head(n_rows), y[200 : 200 + n_rows]
        scores = require_the_public_way(model, rows, labels, ids)
        assert n_rows < 20 or np.count_nonzero(scores) > 0
        mean = influence(model, rows, labels, method="leave-one-out", ids=ids)
        np.testing.assert_allclose(mean.scores, scores.mean(axis=1), rtol=1e-12, atol=1e-18)


def test_a_forest_with_tags_keeps_them() -> None:
    X, y = problem("binary", 150)
    model = DynamicForestClassifier(n_estimators=6, random_state=1).fit(X, y)
    model.delete(["3", "100"])
    assert model.n_lazy_tags_ > 0
    require_the_public_way(model, X[:2], y[:2], ["7", "8", "9"])


@pytest.mark.parametrize("n_rows", [2, 20])
def test_a_sample_that_much_hangs_on(n_rows: int) -> None:
    """The scale of the targets, or a class."""
    X, y = problem("regression", 120)
    y[17] = 3000.0
    model = DynamicForestRegressor(n_estimators=8, random_state=0).fit(X, y)
    require_the_public_way(model, X[:n_rows], y[:n_rows], ["16", "17", "18"])
    X, y = problem("binary", 50)
    y[4] = "rare"
    for estimator in (DynamicForestClassifier, IncrementalBoostingClassifier):
        model = estimator(n_estimators=5, random_state=0).fit(X, y)
        scores = require_the_public_way(model, X[3 : 3 + n_rows], y[3 : 3 + n_rows], ["4", "5"])
        assert scores[0, 1] > 20  # without it, its own class has no probability at all


@settings(max_examples=15)
@given(
    task=st.sampled_from(["binary", "multiclass", "regression"]), n=st.integers(2, 40), n_trees=st.integers(1, 6),
    occurrence=st.sampled_from([0.3, 1.0]), seed=st.integers(0, 100),
)  # fmt: skip
def test_small_forests(task, n, n_trees, occurrence, seed):
    X, y = problem(task, n, seed, categories=seed % 2 == 0, missing=seed % 3 == 0)
    estimator = DynamicForestRegressor if task == "regression" else DynamicForestClassifier
    model = estimator(n_estimators=n_trees, occurrence=occurrence, random_state=seed).fit(X, y)
    # A forest whose every tree has lost its only sample has nothing to say.
    roots = model.engine_.trees.nodes["n_samples"][:n_trees]
    if (roots <= 1).all():
        return
    rows = X.head(2) if isinstance(X, pd.DataFrame) else X[:2]
    require_the_public_way(model, rows, y[:2], model.samples_.ids())


def test_one_sample_cannot_be_left_out():
    model = DynamicForestClassifier(n_estimators=3).fit([[0.0]], ["a"])
    with pytest.raises(EmptyModelError, match="at least two samples"):
        influence(model, [[0.0]], ["a"], method="leave-one-out")


def test_it_is_what_a_forest_answers_when_no_method_is_named() -> None:
    X, y = [[float(i)] for i in range(20)], [i > 9 for i in range(20)]
    forest = DynamicForestClassifier(4, random_state=0).fit(X, y)
    found, named = influence(forest, X[:2], y[:2]), influence(forest, X[:2], y[:2], method="leaf-refit")
    assert (found.method, found.scores.tolist()) == ("leaf-refit", named.scores.tolist())
    low = DynamicForestClassifier(4, random_state=0, disclosure="low").fit(X, y)
    assert influence(low, X[:2], y[:2]).method == "leave-one-out"
    boosted = IncrementalBoostingClassifier(3, random_state=0).fit(X, y)
    assert influence(boosted, X[:2], y[:2]).method == "leaf-influence"


# -- forests whose leaves alone are refitted -----------------------------------------------------------


def says_without(tree: Any, cells: tuple[Any, ...], sample: tuple[Any, ...], own: list[float]) -> list[float]:
    """What a tree says of a row when a sample, with statistics of its own, has left the leaf that it is in."""
    node, above = tree, None
    while node["split"] is not None:
        rule, attribute = node["rule"], node["split"][0]
        side = "left" if oracle.goes_left(cells[attribute], rule) else "right"
        if oracle.goes_left(sample[attribute], rule) != (side == "left"):
            return oracle.leaf_value(oracle.leaf_of(node[side], cells))
        node, above = node[side], node
    kept = node if node["n"] > 1 else above
    return [(a - b) / (kept["n"] - 1) for a, b in zip(kept["statistics"], own, strict=True)]


@pytest.mark.parametrize("task", ["binary", "regression"])
def test_leaves_are_refitted_and_splits_stay(task: str) -> None:
    X, y = problem(task, 60)
    rows, labels, held = X[50:], y[50:], 50
    make = DynamicForestRegressor if task == "regression" else DynamicForestClassifier
    model = make(6, random_state=0, n_thresholds=5, max_features=2, min_samples_split=2, occurrence=0.7)
    model.fit(X[:held], y[:held], dtype="float32")
    columns = [Column()] * 4
    criterion = "squared_error" if task == "regression" else "gini"
    parameters = oracle.Parameters(0, 6, 0.7, None, 2, 5, 2, criterion)
    samples = [oracle.Row(str(i), tuple(X[i].tolist()), y[i]) for i in range(held)]
    forest = oracle.fit(samples, parameters, columns, "regression" if task == "regression" else "classification")
    asked = [tuple(cell(v, Column()) for v in row) for row in rows.tolist()]

    def losses(answers: list[list[float]]) -> np.ndarray:
        if task == "regression":
            values = np.ldexp([one[0] for one in answers], forest.exponent - 38)
            return (values - np.array(labels, np.float64)) ** 2
        right = [one[forest.classes.index(label)] for one, label in zip(answers, labels, strict=True)]
        return -np.log(np.clip(right, 1e-15, 1.0))

    expected = []
    for row in samples:
        own_cells = tuple(cell(v, Column()) for v in row.features)
        drawn, _ = oracle.drawn_of(hash_bytes(row.id.encode()), parameters)
        own = [row.label == one for one in forest.classes] or [quantised(row.label, forest.exponent)]
        answers = []
        for cells in asked:
            told = [
                says_without(tree, cells, own_cells, own)
                if t in drawn
                else oracle.leaf_value(oracle.leaf_of(tree, cells))
                for t, tree in enumerate(forest.trees)
            ]
            answers.append(np.mean(told, axis=0).tolist())
        expected.append(losses(answers) - losses([oracle.average(forest, r) for r in rows.tolist()]))
    found = influence(model, rows, labels, reduce=None)
    assert found.method == "leaf-refit"
    np.testing.assert_allclose(found.scores, expected, rtol=1e-9, atol=1e-12)
