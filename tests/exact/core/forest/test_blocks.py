"""Which nodes keep counters."""

import numpy as np

from oubli.core import DynamicForestClassifier


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
    other.delete(list(map(str, range(1000))))  # too few to plant anew; the minimum stays with the copy
    other.resolve()
    assert fewest_counted(other)[1] < largest // 50
    assert other.verify().ok
