"""Online boosting: what makes it grow again, what it takes in without, its bins, candidates and derivatives by hand."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.core import OnlineBoostingClassifier, OnlineBoostingRegressor
from oubli.core.boosting.online import workspace
from oubli.core.boosting.online.bins import inner_edges, numeric_edges
from oubli.core.boosting.online.derivatives import scale_of
from tests.oracles.boosting import online_bins
from tests.oracles.boosting import online_loss as oracle

N = 120
PARAMETERS: dict[str, Any] = {
    "n_estimators": 6, "learning_rate": 0.3, "max_leaf_nodes": 7, "max_bins": 64, "split_sampling": 0.5,
    "robustness": 0.1, "l2_regularization": 0.1, "min_child_weight": 0.01, "random_state": 5,
}  # fmt: skip


def table(seed: int, n: int = N, n_classes: int = 2, *, n_values: int | None = 20, n_categories: int = 4) -> Any:
    """Samples that can be learned, of no classes for a regression: numbers, one column that is rarely not 0, texts."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, max(n_classes, 1), n)
    X = np.zeros((n, 5))
    numbers = rng.normal(size=(n, 3)) + 0.8 * y[:, np.newaxis] * rng.integers(0, 2, 3)
    X[:, :3] = numbers if n_values is None else np.round(numbers * n_values / 6)
    X[:, 3] = rng.random(n) < 0.1
    X[:, 4] = np.where(rng.random(n) < 0.5, y, rng.integers(0, n_categories, n)) % n_categories
    if n_values is not None:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X, (np.nan_to_num(X[:, 0]) + rng.normal(size=n) if n_classes == 0 else y)


def fitted(X: Any, y: Any, n: int, **parameters: Any) -> Any:
    """A model of the first n samples."""
    kind = OnlineBoostingRegressor if y.dtype.kind == "f" else OnlineBoostingClassifier
    return kind(**{**PARAMETERS, **parameters}).fit(X[:n], y[:n], categorical_features=[4])


def learn(model: Any, X: Any, y: Any, numbers: Any) -> Any:
    """Add samples in one call; returns what the update came to."""
    model.add(X[numbers], y[numbers], ids=[str(i) for i in numbers])
    return model.engine_.last_update


# -- what an update comes to -------------------------------------------------------------------------


@pytest.mark.parametrize(("n_classes", "n", "sizes"), [
    (2, 30, [*[1] * 30, -1, 2]),  # by more than twice as many
    *((n_classes, 48, [12, 12, -12, -12, 13]) for n_classes in (2, 4, 0)),  # by more than a fifth in one call
    (2, 600, [-100, 100, -101]),  # by many, and more than a sixtieth
])  # fmt: skip
def test_when_all_trees_are_grown_again(n_classes: int, n: int, sizes: list[int]) -> None:
    X, y = table(8, 620, n_classes)
    model, n_held = fitted(X, y, n), n
    for number, size in enumerate(sizes):
        after = n_held + size
        if size > 0:
            learn(model, X, y, range(n_held, after))
        else:
            model.delete([str(i) for i in range(after, n_held)])
        is_last = number == len(sizes) - 1
        assert model.engine_.last_update.grown == is_last or (n == 48 and number == 3)
        n_held = after
    assert model.digest() == fitted(X, y, n_held).digest()


def test_a_new_class_is_learned_without_growing_the_others_anew() -> None:
    X, y = table(12, n_classes=4)
    order = np.concatenate([np.flatnonzero(y != 1), np.flatnonzero(y == 1)])
    X, y, n = X[order], y[order], int((y != 1).sum())
    model = fitted(X, y, n, robustness=1.0, n_estimators=20)
    splits = model.engine_.forest.nodes["threshold"].reshape(20, 3, -1).copy()
    new = range(n, n + N // 8)
    assert not learn(model, X, y, new).grown
    assert np.array_equal(model.engine_.forest.nodes["threshold"].reshape(20, 4, -1)[:, [0, 2, 3]], splits)
    assert (model.predict(X[new]) == 1).mean() > 0.5


def test_new_categories_take_spare_bins_and_can_be_split_off() -> None:
    X, y = table(13)
    X[60:, 4] = 4 + np.arange(60) % 4
    X[:60, 4] = np.nan_to_num(X[:60, 4])
    model = fitted(X, y, 60, robustness=0.0, split_sampling=1.0)
    for i in range(60, 120):
        assert not learn(model, X, y, [i]).grown
    # Two spare bins for four new categories: the others are held together.
    bins = model.engine_.bins
    assert bins.n_taken[4] == bins.n_outer[4] == 2
    width = int(bins.first[5] - bins.first[4])
    late = model.samples_.find([str(i) for i in range(60, 120)])
    assert set(model.engine_.codes[late, 4].tolist()) == {width - 3, width - 2, width - 1}
    model.check_invariants()


def test_missing_categories_can_be_split_off() -> None:
    X = np.zeros((N, 5))
    X[:, 4] = np.arange(N) % 3
    X[X[:, 4] == 2, 4] = np.nan
    model = fitted(X, np.isnan(X[:, 4]).astype(np.int64), N, n_estimators=1, max_leaf_nodes=2)
    first, second, missing = model.predict_proba(X[:3])[:, 1]
    assert first == second < 0.5 < missing


def test_values_beyond_the_range_get_bins_of_their_own() -> None:
    X, y = table(14, n_values=None)
    highest = X[:60, 0].max()
    X[60:] = np.column_stack([np.where(y[60:] == 0, highest + 0.1, 1000.0), np.zeros((60, 4))])
    model = fitted(X, y, 60, robustness=0.0)
    for i in range(60, 120):
        assert not learn(model, X, y, [i]).grown
    nodes = model.engine_.forest.nodes
    assert (nodes["threshold"][nodes["feature"] == 0] > highest + 0.1).any()
    model.check_invariants()


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_what_is_sparse_changes_no_tree(n_classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table(1, n_classes=n_classes)
    digests = set()
    for share, n_sparse in ((0.0, 5), (0.5, None), (2.0, 0)):
        monkeypatch.setattr(workspace, "_SPARSE_FROM", share)
        model = fitted(X, y, 98, robustness=0.0)
        assert learn(model, X, y, range(98, 120)).nodes_retrained > 0
        model.check_invariants()
        digests.add(model.digest())
        assert n_sparse in (None, len(model.engine_.layout.sparse))
    assert len(digests) == 1


# -- bins (Algorithm 4), and what lies beyond them; histories compare the candidates drawn from them ------

LARGEST = np.finfo(np.float64).max
AWKWARD = [0.0, 1.0, float(np.nextafter(1.0, 2.0)), 1e-300, 5e-324, 1e6, LARGEST, -LARGEST, -1.5]


def test_the_width_of_bins_by_hand() -> None:
    """With a width w, a bin holds floor(w) + 1 values; 1e-10 x 1023 x 2^24 is 1.716, 2^25 3.43."""
    values = np.arange(1024.0)
    assert len(inner_edges(values, 1024)) == 1023
    assert inner_edges(values, 1023)[:3].tolist() == [1.5, 3.5, 5.5]
    assert inner_edges(values, 511)[:3].tolist() == [3.5, 7.5, 11.5]
    assert inner_edges(np.array([*range(10), 1e6, 1e6 + 1]), 3).tolist() == [6.5, 500004.5]  # none where nothing is
    edges, n_outer = numeric_edges(np.arange(0.0, 80.5, 0.5), 1024)  # beyond both ends wider and wider
    below = np.nextafter(0.0, -1.0)
    assert n_outer == 3
    assert [*edges[:3], *edges[-4:]] == [below - 30, below - 10, below, 80, 90, 110, np.inf]


@given(st.lists(st.sampled_from(AWKWARD) | st.integers(-9, 99).map(float), max_size=60), st.integers(2, 70))
def test_edges_are_the_oracles(values: list[float], max_bins: int) -> None:
    bins = online_bins.numeric_bins(values, max_bins)
    found, n_outer = numeric_edges(np.array([*values, np.nan]), max_bins)
    assert found.tolist() == [*bins.below, *bins.inside, *bins.above, np.inf]
    assert n_outer == len(bins.above) == len(bins.below)


# -- integer derivatives -----------------------------------------------------------------------------------

IDS = [int(word) for word in np.random.default_rng(0).integers(0, 2**64, 4000, dtype=np.uint64)]


@pytest.mark.parametrize("score", [-30.0, -19.97, -4.321, -0.5, 0.0, 0.013, 2.718, 8.0, 700.0])
@pytest.mark.parametrize("target", [0, 1])
def test_the_oracles_derivatives_are_those_of_the_paper(score: float, target: int) -> None:
    """Each is rounded to one of its neighbours, and their mean is right; histories compare them with the kernels'."""
    p = 1 / (1 + math.exp(-min(score, 500.0)))
    sums = np.array([oracle.class_derivatives(oracle.near_sigmoid(score), target, name, 0) for name in IDS])
    g, h = sums[:, 0], sums[:, 1]
    assert set(g.tolist()) <= {math.floor(127 * (p - target) + 1e-4), math.floor(127 * (p - target) + 1 - 1e-4)}
    assert g.mean() / 127 == pytest.approx(p - target, abs=5e-4)
    assert h.mean() / 1016 == pytest.approx(p * (1 - p), abs=5e-5)
    over_iterations = np.array([[oracle.class_derivatives(p, target, name, i).g for i in range(10)] for name in IDS])
    assert np.abs(over_iterations.sum(axis=1) - 1270 * (p - target)).max() < 1.5  # the roundings cancel
    scores = [score, 0.0, -2.0]
    powers = np.exp(np.array(scores) - max(scores))
    assert oracle.near_softmax(scores) == pytest.approx(powers / powers.sum(), abs=2e-5)
    scale = oracle.Scale(0.0, 10.0, 2.0**20, 2**24, 1.0)
    numbers = [oracle.number_derivative(score, scale, name, 0).g for name in IDS]
    assert np.mean(numbers) / 2**20 == pytest.approx(min(max(score, -16), 16), abs=1e-7)


def test_the_scale_covers_all_targets() -> None:
    y = np.random.default_rng(1).normal(size=1000) * 1e5 + 3e5
    scale = scale_of(y, 2000)
    assert scale.base == pytest.approx(y.mean(), rel=1e-9)
    assert scale.reach == pytest.approx(2 * np.abs(y - y.mean()).max())
    assert scale == scale_of(y[::-1].copy(), 2000)
    # Sums of 2000 of the largest gradients, and of their number, fit in 64 bits.
    assert scale.limit * 2000 < 2**39
    assert 2 * scale.reach * scale.scale <= scale.limit
    assert np.log2([scale.scale, scale.unit]).tolist() == np.rint(np.log2([scale.scale, scale.unit])).tolist()
