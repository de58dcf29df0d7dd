"""Online boosting: a fit computed by hand, and sums that come back; for its oracle see `tests/histories`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oubli.core.boosting.online.estimator import OnlineBoostingClassifier, OnlineBoostingRegressor
from tests.exact.core.boosting.reading import read


def test_a_fit_by_hand() -> None:
    """One tree of two leaves; the derivatives of F = 0 are known: g = +-127 / 2 and h = 254, rounded up or down."""
    X, y = [[float(i)] for i in range(8)], [0, 0, 0, 0, 1, 1, 1, 1]
    model = OnlineBoostingClassifier(1, max_leaf_nodes=2, l2_regularization=0.0, random_state=0).fit(X, y)
    (tree,) = read(model.engine_.trees).trees()
    assert tree.split is not None
    assert tree.split.threshold == 3.5
    # -G / H of four samples each: 63 or 64 in 127 each, over 254 in 1016 each
    assert [leaf.value for leaf in tree.leaves()] == [
        pytest.approx(-8 * g / h) for g, h in _sums_of_halves(model, tree)
    ]
    assert all(1.98 < abs(leaf.value) < 2.02 for leaf in tree.leaves())
    assert np.sign([leaf.value for leaf in tree.leaves()]).tolist() == [-1.0, 1.0]


def _sums_of_halves(model: Any, tree: Any) -> list[tuple[int, int]]:
    gh = model.engine_.forest.gh[0, model.samples_.find([str(i) for i in range(8)])].astype(int)
    g, h = gh >> 8, gh & 255
    assert set(abs(g).tolist()) <= {63, 64}
    assert set(h.tolist()) <= {254}
    return [(int(g[:4].sum()), int(h[:4].sum())), (int(g[4:].sum()), int(h[4:].sum()))]


def everything(engine: Any) -> list[bytes]:
    """All sums and values of the trees."""
    forest = engine.forest
    return [array.tobytes() for array in (forest.states, forest.stats, forest.values)]


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_sample_that_comes_and_goes_leaves_all_sums_as_they_were(task: str) -> None:
    """As long as no split lost its place on the way: what is taken out is exactly what was put in."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 30, (240, 2)).astype(float), rng.normal(size=240)])
    X[rng.random(X.shape) < 0.05] = np.nan
    y = np.nan_to_num(X[:, 0]) > 12 if task == "classification" else np.nan_to_num(X[:, 0]) + rng.normal(size=240)
    estimator = OnlineBoostingClassifier if task == "classification" else OnlineBoostingRegressor
    model: Any = estimator(4, max_leaf_nodes=6, robustness=0.3, random_state=1).fit(X[:200], y[:200])
    n_restored = 0
    for row, label in zip(X[200:], y[200:], strict=True):
        before, digest = everything(model.engine_), model.digest()
        other = model.copy()
        names = other.add([row.tolist()], [label])
        changed = other.digest() != digest
        updates = [other.engine_.last_update]
        other.delete(names)
        updates.append(other.engine_.last_update)
        if not any(update.nodes_retrained or update.grown for update in updates):
            assert changed
            assert everything(other.engine_) == before
            assert other.digest() == digest
            n_restored += 1
    assert n_restored > 20
