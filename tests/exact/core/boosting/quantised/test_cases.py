"""Awkward cases of the quantised engine, each by name; after every step it equals a fresh one in all that it keeps."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from oubli.core import IncrementalBoostingClassifier
from oubli.core.boosting.quantised import split
from oubli.core.boosting.quantised.engine import LastUpdate, QuantisedTrees
from oubli.core.boosting.quantised.split import size_step
from oubli.core.boosting.quantised.state import NO_BLOCK
from tests.exact.core.boosting.quantised.worlds import World, assert_same_trees
from tests.exact.core.boosting.reading import taken_over


def coarse_world(n: int = 300, seed: int = 0, **settings: object) -> World:
    """Two classes, three columns of few values that many samples have."""
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 5, (n, 3)).astype(np.float32)
    labels = (cells[:, 0] + cells[:, 1] + rng.integers(0, 4, n) > 5).astype(np.int64)
    return World(cells, labels, **settings)


def step_and_check(world: World, steps: list[tuple[str, list[int]]]) -> None:
    """Make the updates one after the other, checking after each."""
    rng = np.random.default_rng(0)
    for what, samples in steps:
        (world.add if what == "add" else world.delete)(samples)
        world.check(rng)


def test_nothing_changes_but_sums_when_a_sample_hardly_matters() -> None:
    world = coarse_world(6000)
    world.grow(list(range(6000)))
    before = world.engine.trees.nodes.tobytes()
    n_unchanged = 0
    for i in range(10):
        world.delete([i])
        n_unchanged += world.engine.last_update.nothing_changed
        world.add([i])
    assert n_unchanged > 0
    assert world.engine.trees.nodes.tobytes() == before
    world.check(np.random.default_rng(0))


def test_a_column_of_missing_values_only() -> None:
    world = coarse_world()
    world.cells[:, 2] = np.nan
    world.cells[0, 2] = 1.0
    world.grow(list(range(1, 300)))
    step_and_check(world, [("add", [0]), ("delete", [5]), ("delete", [0])])


def test_missing_values_go_where_they_gain() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal(400).astype(np.float32)
    x[:150] = np.nan
    world = World(x[:, np.newaxis], np.where(np.isnan(x), 1, (x > 0.5)).astype(np.int64))
    world.grow(list(range(390)))
    nodes = world.engine.trees.nodes
    assert np.isinf(nodes["threshold"]).any() or (nodes["missing_left"] == 0).any()
    step_and_check(world, [("delete", [0]), ("delete", [300]), ("add", [0, 395])])


def test_edges_come_and_go() -> None:
    world = coarse_world()
    world.cells[:3, 0] = [1.5, 2.5, 99.0]
    world.grow(list(range(3, 300)))
    step_and_check(world, [("add", [0]), ("add", [1, 2]), ("delete", [2]), ("delete", [0, 1])])


def test_neighbouring_edges_find_their_places_again() -> None:
    world = coarse_world()
    world.cells[:3, 0] = [1.25, 1.5, 1.75]
    world.grow(list(range(300)))
    for step in [("delete", [0, 1, 2]), ("add", [0, 1, 2]), ("delete", [0, 1]), ("delete", [2]), ("add", [0, 1, 2])]:
        step_and_check(world, [step])
        assert world.engine.last_update != LastUpdate(), "it was grown again"


def test_edges_without_a_place_have_all_grown_anew() -> None:
    world = coarse_world()
    world.cells[:3, 0] = [1.25, 1.5, 99.0]
    world.grow(list(range(1, 300)))
    codes = len(world.engine.features.edges)
    step_and_check(world, [("add", [0])])  # a third value where there are only two codes
    assert world.engine.last_update == LastUpdate()
    assert len(world.engine.features.edges) == codes + 1


def test_the_level_of_the_edges_changes() -> None:
    rng = np.random.default_rng(2)
    cells = rng.standard_normal((60, 2)).astype(np.float32)
    world = World(cells, (cells[:, 0] > 0).astype(np.int64), max_bins=16)
    world.grow(list(range(20)))
    levels = {world.engine.edges.columns[0].level}  # type: ignore[union-attr]
    for i in range(20, 60):
        world.add([i])
        levels.add(world.engine.edges.columns[0].level)  # type: ignore[union-attr]
    world.check(rng)
    for i in range(50):
        world.delete([i])
        if i % 5 == 0:
            world.check(rng)
    world.check(rng)
    assert len(levels) >= 3


def test_rows_grow_longer_than_any_before() -> None:
    rng = np.random.default_rng(8)
    cells = (rng.random((300, 30)) < 0.05).astype(np.float32)
    cells[:2] = 1.0
    cells[2:32] = np.eye(30, dtype=np.float32)
    world = World(cells, (cells[:, :15].sum(axis=1) + rng.random(300) > 1).astype(np.int64))
    world.grow(list(range(2, 300)))
    width = world.engine.bins.rows.shape[1]
    assert width < 30
    step_and_check(world, [("add", [0]), ("delete", [17]), ("add", [1]), ("delete", [0])])
    assert world.engine.bins.rows.shape[1] == 30


def test_many_categories_and_wide_codes() -> None:
    rng = np.random.default_rng(9)
    cells = np.column_stack([rng.integers(0, 60, 400), rng.integers(0, 5, 400)]).astype(np.float32)
    world = World(cells, (cells[:, 0] % 3 == 0).astype(np.int64), (0,), split_sampling=0.3)
    world.grow(list(range(380)))
    step_and_check(world, [("delete", [1]), ("add", [390, 391]), ("delete", list(range(2, 50)))])


def test_large_batches_grow_the_rest_anew() -> None:
    world = coarse_world(4000, n_estimators=30, max_depth=5)
    world.grow(list(range(1000)))
    rng = np.random.default_rng(0)
    world.add(list(range(1000, 4000)))
    assert world.engine.last_update.grown_from > 0
    world.check(rng)
    world.delete(list(range(400, 3700)))
    assert world.engine.last_update.grown_from > 0
    world.check(rng)


def test_samples_that_validate_take_no_part() -> None:
    world = coarse_world(300, patience=5, n_estimators=30)
    world.grow(list(range(300)))
    roles = world.engine.roles
    assert 20 < (roles == 2).sum() < 120
    assert world.engine.forest.nodes["total"][0, 0] != 0
    validating = np.flatnonzero(roles == 2)[:3].tolist()
    step_and_check(world, [("delete", validating), ("add", validating[1:])])


def test_wiped_working_space_is_blank_and_not_missed() -> None:
    world = coarse_world(300)
    world.grow(list(range(290)))
    world.delete([3])
    world.engine.wipe()
    engine = world.engine
    assert not any(array.any() for array in engine.space)
    assert not engine.scores.new.any()
    step_and_check(world, [("delete", list(range(10, 40))), ("add", [3, 12])])


def test_arrays_are_taken_back_and_others_refused() -> None:
    world = coarse_world(120)
    world.grow(list(range(120)))
    engine = world.engine
    problem, slots = world.problem(world.held), np.arange(120)
    arguments = (world.settings, 3, np.dtype(np.float32), world.categorical, True)
    arrays = engine.arrays()
    assert_same_trees(taken_over(QuantisedTrees(*arguments), arrays, problem, slots), engine)
    for name, array in arrays.items():
        changed = array.copy()
        changed.reshape(-1)[0] += 1
        with pytest.raises(ValueError, match=name):
            taken_over(QuantisedTrees(*arguments), {**arrays, name: changed}, problem, slots)
        with pytest.raises(ValueError, match=name):
            taken_over(QuantisedTrees(*arguments), {**arrays, name: array[:-1]}, problem, slots)
    with pytest.raises(ValueError, match="missing"):
        taken_over(QuantisedTrees(*arguments), {"roots": arrays["roots"]}, problem, slots)


def test_what_is_broken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counter, its place, and the numbers kept and recounted; of single samples how many are wrong."""
    monkeypatch.setattr(split, "LEAST_SIZE", 6)
    world = coarse_world(200)
    world.labels = world.cells[:, 0].astype(np.int64) // 2  # of two classes there are no regions
    world.grow(list(range(200)))
    problem, slots, engine = world.problem(world.held), np.arange(200), world.engine

    def named(damage: Callable[[QuantisedTrees], object]) -> list[str]:
        broken = engine.copy()
        damage(broken)
        return broken.find_differences(problem, slots)

    def add(array: npt.NDArray[Any], *place: int) -> None:
        array[place] += 1

    n, first = engine.class_counts[1], int(engine.bins.first_bin[1])
    assert named(lambda e: add(e.class_counts, 1)) == [
        f"the classes, rank 1: {n + 1} kept, {n} recounted; wrong places: 1"
    ]
    n = engine.forest.nodes["total"][3, 1]
    assert named(lambda e: add(e.forest.nodes["total"], 3, 1)) == [
        f"the nodes: total, tree 3, node 1: {n + 1} kept, {n} recounted; wrong places: 1"
    ]
    n = engine.regions.counts[0, first + 2]
    assert named(lambda e: add(e.regions.counts, 0, first + 2)) == [
        f"the regions: the samples of feature 1, node 0, bin 2: {n + 1} kept, {n} recounted; wrong places: 1"
    ]
    n = engine.regions.sums[0, 2, first]
    assert named(lambda e: add(e.regions.sums, 0, 2, first)) == [
        f"the regions: the gradients of feature 1, node 0, group 2, bin 0: {n + 1} kept, {n} recounted; wrong places: 1"
    ]
    assert named(lambda e: add(e.first, 2, 77)) == ["the derivatives at F_0, group 2: wrong places: 1"]
    assert named(lambda e: add(e.labels, 5)) == ["the labels of samples: wrong places: 1"]
    edges = engine.edges.columns[0]
    assert edges is not None
    value = next(iter(edges.held))
    (text,) = named(lambda e: e.edges.columns[0].held.update({value: 10**6}))
    assert text == f"the edges of column 0: level {edges.level} kept, {edges.level} recounted; values counted wrong: 1"
    blocks = engine.forest.nodes["block"][2]
    node = int(np.flatnonzero(blocks != NO_BLOCK)[0])
    (text,) = named(lambda e: add(e.forest.pool, blocks[node], 0))
    assert text.startswith(f"the histograms, tree 2, node {node}, bin 0: ")


def test_importances_follow_the_splits() -> None:
    rng = np.random.default_rng(0)
    cells = rng.standard_normal((500, 3)).astype(np.float32)
    world = World(cells, (cells[:, 1] > 0).astype(np.int64))
    assert world.engine.gains().tolist() == [0, 0, 0]
    world.grow(list(range(500)))
    gains = world.engine.gains()
    assert gains[1] > 10 * (gains[0] + gains[2])


def test_the_size_step_is_about_log2() -> None:
    steps = [size_step(float(2**17), np.uint64(seed)) for seed in range(50)]
    assert set(steps) <= {16, 17}
    assert {size_step(3.0 * 2**15, np.uint64(seed)) for seed in range(50)} == {16, 17}


def test_the_first_column_is_as_important_as_it_is() -> None:
    X = np.column_stack([np.arange(200) % 40, np.arange(200) % 3]).astype(np.float64)
    model = IncrementalBoostingClassifier(5, max_depth=2, random_state=0).fit(X, X[:, 0] > 19)
    assert model.feature_importances_.tolist() == pytest.approx([1, 0], abs=0.05)
