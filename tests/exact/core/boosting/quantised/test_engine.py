"""The quantised engine after random histories: all that it keeps equals what growing again gives."""

import numpy as np
import pytest

from oubli.core.boosting.quantised import split
from tests.exact.core.boosting.quantised.worlds import World, play
from tests.tiers import covering


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_updates_are_local_where_no_value_is_alone(n_classes: int) -> None:
    rng = np.random.default_rng(n_classes)
    cells = np.round(rng.standard_normal((1200, 4)) * 2).clip(-3, 3).astype(np.float32)
    score = cells[:, 0] + cells[:, 1] * cells[:, 2] + rng.standard_normal(1200)
    labels = np.digitize(score, [0.0] if n_classes == 2 else [-1.0, 1.0]) if n_classes else score
    world = World(cells, labels if n_classes == 0 else labels.astype(np.int64), n_estimators=20)
    assert play(world, rng, 15, 2, 1150) >= 14


def regional_world(n_classes: int, rng: np.random.Generator, **settings: object) -> World:
    """Samples of few values, of which regions of some hundred are made where `LEAST_SIZE` is low."""
    cells = np.round(rng.standard_normal((1500, 5)) * 2).clip(-3, 3).astype(np.float32)
    cells[rng.random((1500, 5)) < 0.05] = np.nan
    cells[:, 4] = rng.integers(0, 6, 1500)
    score = np.nan_to_num(cells[:, 0]) + np.nan_to_num(cells[:, 1] * cells[:, 2]) + rng.standard_normal(1500)
    labels = np.digitize(score, [-1.0, 1.0]).astype(np.int64) if n_classes else score
    return World(cells, labels, (4,), **settings)


@pytest.mark.parametrize(("patience", "n_classes"), covering([0, 4], [0, 3]))
def test_updates_within_regions(n_classes: int, patience: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "LEAST_SIZE", 7)
    rng = np.random.default_rng(n_classes)
    world = regional_world(n_classes, rng, n_estimators=20, patience=patience)
    assert play(world, rng, 8, 3, 1450) >= 5
    assert world.engine.regions.levels == 3


@pytest.mark.parametrize("n_classes", [0, 3])
def test_other_regions_stay_as_they_are(n_classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "LEAST_SIZE", 7)
    world = regional_world(n_classes, np.random.default_rng(1), n_estimators=20)
    world.grow(list(range(1500)))
    n_partly = 0
    for sample in range(5):
        before = world.engine.forest.nodes["total"].copy()
        world.delete([sample])
        engine = world.engine
        changed = np.flatnonzero((engine.forest.nodes["total"][:, 7:15] != before[:, 7:15]).any(axis=0))
        n_partly += engine.last_update.grown_from > 0
        assert len(changed) <= 1 or engine.last_update.grown_from == 0
        world.check(np.random.default_rng(sample))
    assert n_partly > 0


@pytest.mark.parametrize(("least", "levels"), [(7, 2), (10, 0)])
def test_labels_that_say_nothing_have_fewer_regions(least: int, levels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "LEAST_SIZE", least)
    rng = np.random.default_rng(3)
    cells = rng.integers(0, 5, (1500, 3)).astype(np.float32)
    world = World(cells, rng.integers(0, 3, 1500), n_estimators=5)
    assert play(world, rng, 6, 3, 1450) >= 3
    assert world.engine.regions.is_weak
    assert world.engine.regions.levels == levels


@pytest.mark.parametrize("n_classes", [0, 3])
def test_labels_that_begin_to_say_something_have_regions(n_classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And have none again when they say nothing any more: no update may miss either."""
    monkeypatch.setattr(split, "LEAST_SIZE", 6)
    cells = np.repeat(np.arange(12) % 6, 12)[:, np.newaxis].astype(np.float32)
    labels = np.tile(np.arange(3), 48)
    labels[90:] = cells[90:, 0] // 2  # the first ones are of all classes wherever they are
    world = World(cells, labels if n_classes else labels.astype(np.float64), n_estimators=3)
    world.grow(list(range(90)))
    rng, seen = np.random.default_rng(0), []
    for change, samples in ((world.add, range(90, 120)), (world.delete, range(119, 89, -1))):
        for sample in samples:
            seen.append(world.engine.regions.levels)
            change([sample])
            world.check(rng)
    assert seen[0] == world.engine.regions.levels == 0
    assert max(seen) == 1


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
