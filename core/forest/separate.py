"""Growing some trees of a forest without the others.

No tree of a forest depends on another one: it is a function of its number, of the samples that draw it, and of the
forest's seed. So a few are grown in the time and memory of a few, one after the other, or one in each thread:

    all samples --drawn_trees--> those of tree t --plant--> root t of an empty forest --resolve--> tree t --> digest

In that forest a sample is in one tree at most. The number of its entry is its slot, and it takes one place.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from oubli.core.array_types import Bools, Ints, Slots
from oubli.core.engine import Progress
from oubli.core.forest.digest import tree_digest
from oubli.core.forest.occurrences import drawn_trees
from oubli.core.forest.parameters import MAX_SAMPLES
from oubli.core.forest.state import N_LEAVES, N_NODES
from oubli.core.forest.workspace import shred_scratches
from oubli.core.jit import aligned
from oubli.core.samples.arrays import Problem
from oubli.core.threads import run

if TYPE_CHECKING:
    from oubli.core.forest.engine import ForestEngine

_SPARE_ROWS = 64


def digests_of_some(
    forest: "ForestEngine",
    problem: Problem,
    slots: Slots,
    trees: Sequence[int],
    class_order: Ints,
    progress: Progress | None,
) -> list[str]:
    """Grow some trees on the samples of slots, and return their digests; the forest stays empty.

    forest : knows the samples' targets and bit rows, and has room for their class codes.
    """
    members = _members_of(forest, problem, slots, trees)
    caller, grown = threading.get_ident(), list[tuple[int, int]]()

    def grow(row: int) -> str:
        engine, tree = _engine_beside(forest), trees[row]
        if grown:  # the others are of about the same size: growing the pools bit by bit would copy them many times
            n_nodes, n_leaves = (size + size // 8 + _SPARE_ROWS for size in grown[-1])
            engine.reserve_rows(n_nodes, n_leaves, 0)
        try:
            engine.plant_alone(problem, tree, slots[members[row]])
            engine.resolve_whole_tree(engine.data(problem), tree)
            digest = tree_digest(engine.trees, tree, forest.settings.is_regression, class_order)
            grown.append((int(engine.trees.meta[N_NODES]), int(engine.trees.meta[N_LEAVES])))
        finally:
            aligned.shred((*engine.trees, engine.blocks.longs[:1]))  # no other block is ever taken
            shred_scratches([engine.scratch])
        if progress is not None and threading.get_ident() == caller:
            progress(len(grown), len(trees))
        return digest

    digests = run([partial(grow, row) for row in range(len(trees))], forest.n_threads)
    if progress is not None:
        progress(len(trees), len(trees))
    return digests


def _members_of(forest: "ForestEngine", problem: Problem, slots: Slots, trees: Sequence[int]) -> Bools:
    """Which samples of some slots draw each of some trees, bool[trees, slots]."""
    drawn = drawn_trees(forest.data(problem), forest.parameters, slots, forest.n_threads)
    found: Bools = np.array([(drawn == tree).any(axis=1) for tree in trees])
    return found


def _engine_beside(forest: "ForestEngine") -> "ForestEngine":
    """An empty forest in which a sample is in one tree, over the same targets and bit rows.

    No node keeps counters: nothing is going to change.
    """
    settings = replace(forest.settings, occurrences=1)
    columns = forest.n_features, forest.cell_dtype, forest.categorical, forest.is_classification
    other = type(forest)(settings, *columns)
    other.smallest_block = MAX_SAMPLES + 1
    other.clear(forest.width)
    other.targets, other.bits = forest.targets, forest.bits
    return other
