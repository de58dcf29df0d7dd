"""Larger forests, with counters where they are by default."""

import random
from typing import Any

import numpy as np
import pytest
from numba import config

from oubli.core import DynamicForestClassifier, DynamicForestRegressor


def test_large_trees_keep_counters_at_their_largest_nodes_only() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3))
    y = (X[:, 0] + rng.normal(size=20_000) > 0).astype(int)
    forest = DynamicForestClassifier(
        n_estimators=2, occurrence=0.5, n_thresholds=5, max_depth=12, min_samples_split=50, random_state=0
    ).fit(X, y)

    def fewest_counted(model: DynamicForestClassifier) -> tuple[int, int]:
        trees = model.engine_.trees
        records = trees.nodes[(trees.nodes["child"] >= 0) & (trees.nodes["n_samples"] > 0)]
        has_block = records["block"] >= 0
        return int(records["n_samples"][has_block].min()), int(records["n_samples"][~has_block].max())

    largest = int(forest.engine_.trees.nodes["n_samples"][:2].max())
    least, most = fewest_counted(forest)
    assert most < largest // 50 <= least
    other = forest.copy()
    other.delete(list(map(str, range(1000))))  # too few to plant again; the minimum stays with the copy
    other.resolve()
    assert fewest_counted(other)[1] < largest // 50
    assert other.verify().ok


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_larger_forest_at_the_default_settings(task: str) -> None:
    """Thousands of samples, counters where they are by default; compared with fresh fits."""
    rng = random.Random(7)

    def row() -> list[Any]:
        x = rng.gauss(0, 1)
        return [x, rng.choice([None, 1, 2, 3]), rng.choice("abcdefgh"), x * x + rng.random(), rng.random() < 0.2]

    def label(features: list[Any]) -> Any:
        return (
            int(features[0] > 0) + (features[2] in "ab") if task == "classification" else features[3] * 2 - features[0]
        )

    estimator = DynamicForestClassifier if task == "classification" else DynamicForestRegressor
    model = estimator(n_estimators=6, occurrence=0.5, random_state=3)
    n_samples = 300 if config.DISABLE_JIT else 3000
    X = [row() for _ in range(n_samples)]
    model.fit(X, [label(x) for x in X], categorical_features=[2])
    for step in range(12):
        model.delete(rng.sample(model.samples_.ids(), rng.choice([1, 7, 60])))
        new = [row() for _ in range(rng.choice([1, 5, 90]))]
        model.add(new, [label(x) for x in new])
        model.predict([row() for _ in range(3)])
        if step % 4 == 3:
            report = model.verify()
            assert report.ok, report
    model.delete(rng.sample(model.samples_.ids(), n_samples - 100))
    assert model.verify().ok
    model.check_invariants()


def test_a_sample_of_a_new_category_breaks_no_ties() -> None:
    # With two categories all candidates divide the samples alike. A third category would be on another side of each.
    n_samples, n_trees = 400, 12
    labels = np.arange(n_samples) // 3 % 2
    rows = [["right" if label == (i % 10 != 0) else "left"] for i, label in enumerate(labels)]
    model = DynamicForestClassifier(n_trees, occurrence=1.0, max_depth=1, random_state=0).fit(rows, labels)
    fields = ["attribute", "kind", "category"]
    before = model.engine_.trees.nodes[fields][:n_trees].tolist()
    model.add([["new"]], labels[:1])
    model.resolve()
    after = model.engine_.trees.nodes[fields][:n_trees].tolist()
    # The new sample is among the chosen, some 16 to 32 of 400, in few trees.
    assert sum(one != other for one, other in zip(before, after, strict=True)) <= 2
