"""Samples in slots for the quantised engine: they come, go, and can be held in other slots."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.incremental.parameters import IncrementalSettings
from oubli.core.boosting.quantised.engine import QuantisedTrees
from oubli.core.rng import hash_text
from oubli.core.samples.arrays import Data, Problem

SETTINGS = IncrementalSettings(
    n_estimators=12,
    learning_rate=0.1,
    max_depth=4,
    l2_regularization=1.0,
    min_child_weight=1.0,
    split_sampling=1.0,
    max_bins=255,
    gradient_grid=0.25,
    leaf_grid=0.25,
    patience=0,
    validation_fraction=0.2,
    seed=3,
)


class World:
    """An engine and the samples it may hold; sample i is in slot i.

    Parameters
    ----------
    cells : float32[n, d], categorical columns as codes.
    labels : int64[n] classes, or float64[n] targets of a regression.
    """

    def __init__(
        self, cells: npt.NDArray[np.float32], labels: npt.NDArray, categorical: tuple[int, ...] = (), **settings: object
    ) -> None:
        self.cells, self.labels = cells + np.float32(0), labels  # no negative zeros: none passes the door
        self.categorical = np.isin(np.arange(cells.shape[1]), categorical)
        self.is_classification = labels.dtype.kind == "i"
        self.settings = replace(SETTINGS, **settings)  # type: ignore[arg-type]
        self.held: set[int] = set()
        self.engine = self.new_engine()

    def new_engine(self) -> QuantisedTrees:
        """An engine without samples."""
        return QuantisedTrees(self.settings, self.cells.shape[1], np.float32, self.categorical, self.is_classification)

    def problem(self, held: set[int], order: npt.NDArray[np.int64] | None = None) -> Problem:
        """The samples as an engine reads them; sample order[i] in slot i."""
        order = np.arange(len(self.cells)) if order is None else order
        labels = self.labels[order]
        hashes = np.array([hash_text(str(i)) for i in order.tolist()], np.uint64)
        categories = np.array([hash_text(f"value {i}") for i in range(64)], np.uint64)
        targets = labels.astype(np.int64) if self.is_classification else np.zeros(len(labels), np.int64)
        classes = np.unique(self.labels[sorted(held)]) if self.is_classification else np.zeros(0, np.int64)
        ranks = np.full(64, -1, np.int32)
        ranks[classes.astype(np.int64)] = np.arange(len(classes))
        data = Data(self.cells[order], targets, hashes, categories, self.categorical)
        y = np.zeros(0) if self.is_classification else labels.astype(np.float64)
        is_held = np.isin(order, sorted(held))
        counts = np.bincount(targets[is_held], minlength=64)
        return Problem(data, ranks, len(classes), y, is_held, len(held), counts)

    def classes_of(self, held: set[int]) -> set[float]:
        """The classes of some samples."""
        return set(self.labels[sorted(held)].tolist()) if self.is_classification else set()

    def grow(self, samples: list[int]) -> None:
        """Fit again."""
        self.held = set(samples)
        self.engine.fit(self.problem(self.held), np.array(samples, np.int64))

    def add(self, samples: list[int]) -> None:
        """Learn samples, as a model has its engine do it."""
        before, self.held = self.held, self.held | set(samples)
        if self.classes_of(before) != self.classes_of(self.held):
            self.grow(sorted(self.held))
        else:
            self.engine.add(self.problem(self.held), np.array(samples, np.int64))

    def delete(self, samples: list[int]) -> None:
        """Unlearn samples."""
        before, self.held = self.held, self.held - set(samples)
        if self.classes_of(before) != self.classes_of(self.held):
            self.grow(sorted(self.held))
        else:
            self.engine.delete(self.problem(before), np.array(samples, np.int64))

    def check(self, rng: np.random.Generator) -> None:
        """The engine must be what a fresh one is, on the same samples in other slots and another order."""
        slots = np.array(sorted(self.held), np.int64)
        self.engine.check_invariants(self.problem(self.held), slots)
        order = rng.permutation(len(self.cells))
        where = np.flatnonzero(np.isin(order, slots))
        fresh = self.new_engine()
        fresh.fit(self.problem(self.held, order), rng.permutation(where))
        assert_same_trees(self.engine, fresh)


def assert_same_trees(a: QuantisedTrees, b: QuantisedTrees) -> None:
    """Bit for bit."""
    x, y = a.trees, b.trees
    assert x.nodes.tobytes() == y.nodes.tobytes()
    assert x.roots.tobytes() == y.roots.tobytes()
    assert x.base.tobytes() == y.base.tobytes()
    assert x.unit == y.unit


def play(world: World, rng: np.random.Generator, n_steps: int, largest: int, first: int) -> int:
    """Add and delete at random, checking after each step; returns how many updates grew nothing again."""
    n = len(world.cells)
    world.grow(rng.permutation(n)[:first].tolist())
    n_local = 0
    for _ in range(n_steps):
        size = int(rng.integers(1, largest + 1))
        others = sorted(set(range(n)) - world.held)
        if others and (rng.random() < 0.5 or not world.held):
            world.add(rng.permutation(others)[:size].tolist())
        else:
            world.delete(rng.permutation(sorted(world.held))[:size].tolist())
        n_local += world.engine.last_update.grown_from != 0
        world.check(rng)
    return n_local
