"""The peer of the benchmarks, which sorts every column at every node, grows the trees that ours grows."""

from __future__ import annotations

import numpy as np
import pytest
from numba import config

from benchmarks.boosting.straightforward import StraightforwardTrees
from oubli.core.boosting.engine import tree_digests
from tests.exact.core.boosting.presorted.problems import random_pool, settings_of

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(config.DISABLE_JIT), reason="a peer is compiled; ours is what is tested"),
]


@pytest.mark.parametrize("seed", range(24))
def test_trees_are_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pool = random_pool(rng, int(rng.choice([2, 50, 600])), [0, 0, 2, 4][seed % 4])
    settings = settings_of(
        max_depth=int(rng.integers(1, 6)),
        l2_regularization=float(rng.choice([0.0, 1.0])),
        min_child_weight=float(rng.choice([0.0, 1.0, 3.0])),
    )
    slots = rng.permutation(len(pool.y))[: max(2, len(pool.y) * 2 // 3)]
    ours, theirs = pool.grown(settings, slots), StraightforwardTrees(settings)
    theirs.fit(pool.problem(slots), rng.permutation(slots))
    assert tree_digests(ours.trees) == tree_digests(theirs.trees)
    assert ours.trees.base.tobytes() == theirs.trees.base.tobytes()
    assert ours.trees.unit == theirs.trees.unit
