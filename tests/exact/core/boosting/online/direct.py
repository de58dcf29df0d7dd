"""Engines of online boosting without an estimator: random samples as kernels read them, and counts taken by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.engine import tree_digests
from oubli.core.boosting.online.engine import OnlineTrees
from oubli.core.boosting.online.parameters import OnlineSettings
from oubli.core.boosting.state import LEAF
from oubli.core.rng import MISSING_CATEGORY, mix
from oubli.core.samples.arrays import Data, Problem

Slots = npt.NDArray[np.int64]

DEFAULTS: dict[str, Any] = {
    "n_estimators": 6,
    "learning_rate": 0.3,
    "max_leaf_nodes": 7,
    "max_bins": 64,
    "split_sampling": 0.5,
    "robustness": 0.1,
    "l2_regularization": 0.1,
    "min_child_weight": 0.01,
    "seed": 5,
}


def make_problem(
    seed: int,
    n: int,
    *,
    n_classes: int = 2,
    n_numeric: int = 3,
    n_categories: int = 4,
    n_values: int | None = 20,
    missing: float = 0.1,
    cell_dtype: Any = np.float32,
) -> Problem:
    """Random samples that can be learned; the last column is categorical, another one is rarely not 0.

    n_classes : 0 for a regression.
    """
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, max(n_classes, 1), n)
    cells = np.zeros((n, n_numeric + 2), cell_dtype)
    numeric = rng.normal(size=(n, n_numeric)) + 0.8 * targets[:, np.newaxis] * rng.integers(0, 2, n_numeric)
    cells[:, :n_numeric] = numeric if n_values is None else np.round(numeric * n_values / 6)
    cells[:, n_numeric] = rng.random(n) < 0.1
    cells[:, -1] = np.where(rng.random(n) < 0.5, targets, rng.integers(0, n_categories, n)) % n_categories
    cells[rng.random(cells.shape) < missing] = np.nan
    cells += 0.0
    hashes = rng.integers(1, 2**63, n_categories).astype(np.uint64) * np.uint64(2)
    ids = np.array([mix(np.uint64(i + 1)) for i in range(n)], np.uint64)
    mask = np.arange(cells.shape[1]) == n_numeric + 1
    y = np.nan_to_num(cells[:, 0]) + rng.normal(size=n) if n_classes == 0 else np.zeros(0)
    data = Data(cells, targets.astype(np.int64), ids, hashes, mask)
    nothing = np.zeros(0, np.int64)
    problem = Problem(data, nothing.astype(np.int32), 0, y, np.ones(n, np.bool_), n, nothing)
    return with_classes(problem, np.arange(n), n_classes)


def with_classes(problem: Problem, slots: Slots, n_codes: int) -> Problem:
    """The same samples, those of some slots held, with their classes; n_codes: 0 for a regression."""
    held = np.unique(problem.data.targets[slots]) if n_codes else np.zeros(0, np.int64)
    ranks = np.full(n_codes, -1, np.int32)
    ranks[held] = np.arange(len(held))
    counts = np.bincount(problem.data.targets[slots], minlength=n_codes)
    is_held = np.isin(np.arange(len(problem.data.cells)), slots)
    return problem._replace(ranks=ranks, n_classes=len(held), held=is_held, n_samples=len(slots), class_counts=counts)


def make_engine(problem: Problem, **settings: Any) -> OnlineTrees:
    """An engine without samples."""
    data = problem.data
    chosen = OnlineSettings(**{**DEFAULTS, **settings})
    return OnlineTrees(chosen, data.cells.shape[1], data.cells.dtype, data.categorical, len(problem.y) == 0)


def grown(problem: Problem, slots: Slots | None = None, **settings: Any) -> OnlineTrees:
    """An engine grown on some slots, or on all."""
    engine = make_engine(problem, **settings)
    engine.fit(problem, np.arange(len(problem.data.cells)) if slots is None else slots)
    return engine


def digest(engine: OnlineTrees) -> list[str]:
    """What predictions read."""
    return tree_digests(engine.trees)


def sums_by_hand(engine: OnlineTrees, problem: Problem) -> None:
    """Assert that all sums are those of `gh` over the samples that the splits lead there, one sample at a time."""
    forest, data = engine.forest, problem.data
    shift = 32 if engine.is_classification else 24
    for tree in range(engine.n_trees):
        start = tree * forest.n_places
        places = engine.candidates.places[tree // engine.groups]
        sums = {0: 0}
        stats: dict[int, dict[int, int]] = {}
        for slot in np.flatnonzero(engine.held).tolist():
            stored = int(forest.gh[tree, slot])
            packed = ((stored >> 8) << shift) + (stored & 255) if engine.is_classification else (stored << shift) + 1
            codes = engine.bins.first[:-1].astype(int) + engine.codes[slot].astype(int)
            bins = engine.candidates.first[:-1].astype(int) + places[codes].astype(int)
            place = 0
            while True:
                sums[place] = sums.get(place, 0) + packed
                node = forest.nodes[start + place]
                if node["feature"] == LEAF:
                    break
                left = int(node["left"]) - start
                counts = stats.setdefault((left - 1) // 2, {})
                for b in bins.tolist():
                    counts[b] = counts.get(b, 0) + packed
                place = left + int(goes_right(node, data, slot))
            assert forest.leaf_of[tree, slot] == forest.states["leaf"][start + place]
        for place in range(forest.n_places):
            assert forest.states["sums"][start + place] == sums.get(place, 0)
        for pair, kept in enumerate(forest.stats[tree]):
            counted = np.zeros(len(kept), np.int64)
            for b, count in stats.get(pair, {}).items():
                counted[b] = count
            assert kept.tolist() == counted.tolist()


def goes_right(node: Any, data: Data, slot: int) -> bool:
    """Side of a sample at an inner node."""
    x = data.cells[slot, node["feature"]]
    if node["is_categorical"]:
        return bool((MISSING_CATEGORY if np.isnan(x) else data.category_hashes[int(x)]) != node["category"])
    return not node["missing_left"] if np.isnan(x) else bool(x > node["threshold"])
