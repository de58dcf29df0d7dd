"""What stands behind the oracles: fits computed by hand, and scikit-learn's boosting."""

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from oubli.core import IncrementalBoostingClassifier, IncrementalBoostingRegressor, OnlineBoostingClassifier
from oubli.core.boosting.quantised import split
from tests.exact.core.boosting.reading import read
from tests.oracles.boosting import quantised_parts
from tests.oracles.boosting.trees import Node

EXACTLY: dict[str, Any] = {"min_child_weight": 0.0, "quantization": None, "random_state": 0}


def shape(node: Node, unit: float) -> Any:
    """(feature, threshold, left, right) of an inner node, the value of a leaf."""
    if node.split is None:
        return unit * node.value
    assert node.left is not None
    assert node.right is not None
    return (node.split.feature, node.split.threshold, shape(node.left, unit), shape(node.right, unit))


def test_the_toy_example_of_the_paper() -> None:
    """Section 3.2 and Table 4 of the iGBDT paper; all numbers are exact in fixed point.

    F_0 is the mean age, 38. "online time <= 1.5" sets the oldest apart, as do "play time <= 0.5" and "income <= 2500":
    the first column wins. The three others have the mean 29, and squared errors
        at online time 2.5: 0 + 60.5, at 4: 8 + 0; at play time 2: 8 + 0; at income 3500: 0 + 8, at 4500: 60.5 + 0.
    The paper takes "play time", which parts them as "online time <= 4" does. Its residuals are then -2, 0, 0 and 2.
    The second tree: of these, with squared errors of 8 in all, those at
        online time 1.5: 8, 2.5: 4, 4: 8; play time 0.5: 8, 2: 8; income 2500: 8, 3500: 8, 4500: 8 / 3 + 0;
    then, of 0, 0 and 2, online time 2 and 4, play time 0.5 and 2: at best 2; income 2500: 2, 3500: 0.
    """
    rows = [[2.0, 1.0, 5000.0], [5.0, 3.0, 3000.0], [1.0, 0.0, 2000.0], [3.0, 1.0, 4000.0]]
    ages = [30.0, 23.0, 65.0, 34.0]
    model = IncrementalBoostingRegressor(2, learning_rate=1.0, max_depth=2, l2_regularization=0.0, **EXACTLY)
    found = read(model.fit(rows, ages).engine_.trees)
    assert found.base == [38.0]
    assert [shape(tree, found.unit) for tree in found.trees()] == [
        (0, 1.5, 27.0, (0, 4.0, -6.0, -15.0)),
        (2, 4500.0, (2, 3500.0, 0.0, 2.0), -2.0),
    ]
    assert (model.predict([[2.0, 0.8, 3200.0]]).tolist(), model.predict(rows).tolist()) == ([32.0], ages)


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_it_is_scikit_learns_boosting_where_there_are_no_ties(n_classes: int) -> None:
    """Robust LogitBoost has a factor of (K - 1) / K, and starts at 0 where scikit-learn starts at the same for all."""
    rng = np.random.default_rng(n_classes)
    X = rng.permuted(np.tile(np.arange(120.0), (3, 1)), axis=1).T
    y = X[:, 0] + 9 * np.sqrt(X[:, 1]) + rng.normal(0, 4, 120)
    X[rng.random(X.shape) < [0.1, 0.1, 0.0]] = np.nan
    common = {"max_iter": 8, "max_depth": 3, "max_leaf_nodes": None, "min_samples_leaf": 1, "early_stopping": False}
    common |= {"learning_rate": 0.3, "l2_regularization": 0.5}
    factor = n_classes / (n_classes - 1) if n_classes > 2 else 1.0
    ours: dict[str, Any] = {**EXACTLY, "learning_rate": 0.3 * factor, "max_depth": 3, "l2_regularization": 0.5}
    if n_classes == 0:
        expected = HistGradientBoostingRegressor(**common).fit(X, y).predict(X)
        assert IncrementalBoostingRegressor(8, **ours).fit(X, y).predict(X) == pytest.approx(expected, abs=1e-3)
        return
    labels = np.argsort(np.argsort(y)) * n_classes // 120  # classes of the same size
    theirs = HistGradientBoostingClassifier(**common).fit(X, labels).predict_proba(X)
    assert IncrementalBoostingClassifier(8, **ours).fit(X, labels).predict_proba(X) == pytest.approx(theirs, abs=1e-5)


def test_a_fit_of_online_boosting_by_hand() -> None:
    """One tree of two leaves; the derivatives of F = 0 are known: g = +-127 / 2 and h = 254, rounded up or down."""
    X, y = [[float(i)] for i in range(8)], [0, 0, 0, 0, 1, 1, 1, 1]
    model = OnlineBoostingClassifier(1, max_leaf_nodes=2, l2_regularization=0.0, random_state=0).fit(X, y)
    (tree,) = read(model.engine_.trees).trees()
    gh = model.engine_.forest.gh[0, model.samples_.find([str(i) for i in range(8)])].astype(int)
    g, h = gh >> 8, gh & 255
    assert set(abs(g).tolist()) <= {63, 64}
    assert set(h.tolist()) <= {254}
    # -G / H of four samples each: 63 or 64 in 127 each, over 254 in 1016 each
    left, right = (-8 * g[half].sum() / h[half].sum() for half in (slice(4), slice(4, 8)))
    assert shape(tree, 1.0) == (0, 3.5, pytest.approx(left), pytest.approx(right))
    assert -2.02 < left < -1.98
    assert 1.98 < right < 2.02


def test_the_size_of_a_set_hardly_matters() -> None:
    """Between 2^16 and 2^18 the seed decides where a set begins to be large."""
    large = []
    for seed in range(40):
        parameters = quantised_parts.Parameters(1, 0.1, 4, 1.0, 1.0, 1.0, 255, 0.25, 0.25, 0, 0.1, seed)
        for n in (1, 1000, 2**16 - 1, 2**16, 100_000, 2**17, 2**18, 10**7):
            found, expected = split.steadiness(n, 4, seed), quantised_parts.steadiness(n, parameters)
            assert (found.top, found.coarsening) == (expected.top, expected.grid == 0.5)
            for depth, scale in enumerate(expected.scales):
                assert found.weights[depth].tolist() == [quantised_parts.weight_of(scale, i) for i in range(256)]
            large.append((n, expected.grid == 0.5))
    assert {n for n, is_large in large if is_large} == {100_000, 2**17, 2**18, 10**7}
    assert {n for n, is_large in large if not is_large} == {1, 1000, 2**16 - 1, 2**16, 100_000}
