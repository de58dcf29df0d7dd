"""The quantised engine after random histories: all that it keeps equals what growing anew gives."""

import numpy as np
import pytest

from tests.exact.core.boosting.quantised.worlds import World, mixed_cells, mixed_labels, play


@pytest.mark.parametrize("n_steps", [10, pytest.param(80, marks=pytest.mark.long)])
@pytest.mark.parametrize("n_classes", [0, 2, 4])
@pytest.mark.parametrize("largest", [1, 12])
def test_any_history_equals_a_fresh_fit(n_classes: int, largest: int, n_steps: int) -> None:
    rng = np.random.default_rng(n_classes + largest)
    cells = mixed_cells(500, rng)
    world = World(cells, mixed_labels(cells, n_classes, rng), (1, 4))
    play(world, rng, n_steps, largest, 450)


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
    for _ in range(25):
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


@pytest.mark.parametrize("settings", [
    {"max_depth": 1},
    {"max_depth": 8, "min_child_weight": 0.0},
    {"l2_regularization": 0.0, "min_child_weight": 0.0},
    {"gradient_grid": 1.0, "leaf_grid": 1.0},
    {"gradient_grid": 2.0**-8, "leaf_grid": 2.0**-8},
    {"split_sampling": 0.1},
    {"max_bins": 2},
    {"learning_rate": 1.0},
    {"n_estimators": 1},
])  # fmt: skip
@pytest.mark.parametrize("n_classes", [0, 2, 3])
@pytest.mark.parametrize("n_steps", [3, pytest.param(40, marks=pytest.mark.long)])
def test_any_setting_is_exact(settings: dict[str, float], n_classes: int, n_steps: int) -> None:
    rng = np.random.default_rng(11)
    cells = mixed_cells(200, rng)
    world = World(cells, mixed_labels(cells, n_classes, rng), (1, 4), **settings)
    play(world, rng, n_steps, 4, 180)
