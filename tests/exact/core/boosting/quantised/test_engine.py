"""The quantised engine after random histories: all that it keeps equals what growing anew gives."""

import numpy as np
import pytest

from tests.exact.core.boosting.quantised.worlds import World, play


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_updates_are_local_where_no_value_is_alone(n_classes: int) -> None:
    rng = np.random.default_rng(n_classes)
    cells = np.round(rng.standard_normal((1200, 4)) * 2).clip(-3, 3).astype(np.float32)
    score = cells[:, 0] + cells[:, 1] * cells[:, 2] + rng.standard_normal(1200)
    labels = np.digitize(score, [0.0] if n_classes == 2 else [-1.0, 1.0]) if n_classes else score
    world = World(cells, labels if n_classes == 0 else labels.astype(np.int64), n_estimators=20)
    assert play(world, rng, 15, 2, 1150) >= 14


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_early_stopping_is_exact(n_classes: int) -> None:
    rng = np.random.default_rng(7 + n_classes)
    cells = np.round(rng.standard_normal((400, 3)) * 3).clip(-4, 4).astype(np.float32)
    score = cells[:, 0] + 3 * rng.standard_normal(400)
    labels = np.digitize(score, [0.0] if n_classes == 2 else [-1.0, 1.0]).astype(np.int64) if n_classes else score
    world = World(cells, labels, n_estimators=100, patience=3)
    lengths = set()
    world.grow(list(range(360)))
    for _ in range(12):
        others = sorted(set(range(400)) - world.held)
        if rng.random() < 0.5:
            world.add(rng.permutation(others)[:3].tolist())
        else:
            world.delete(rng.permutation(sorted(world.held))[:3].tolist())
        world.check(rng)
        lengths.add(world.engine.n_trees)
    assert len(lengths) > 1
    assert max(lengths) < 100 * max(world.engine.trees.n_groups, 1)
    assert len(world.engine.trees.roots) < world.engine.n_trees
