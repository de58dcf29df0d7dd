"""Growing some trees of a forest without the others.

No tree of a forest depends on another one: it is a function of its number, of the samples that draw it, and of the
forest's seed. So a few are grown in the time and memory of a few, one after the other, or one in each thread:

    all samples --find_members--> those of tree t --plant--> root t of an empty forest --resolve--> tree t --> digest

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
from oubli.core.forest.parameters import MAX_SAMPLES
from oubli.core.forest.room import with_entries
from oubli.core.forest.state import N_LEAVES, N_NODES, NIL
from oubli.core.forest.update import find_members, plant
from oubli.core.forest.workspace import N_TREES, shred_scratches
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

    def grow(tree: int, own: Slots) -> str:
        engine = _engine_beside(forest)
        if grown:  # the others are of about the same size: growing the pools bit by bit would copy them many times
            n_nodes, n_leaves = (size + size // 8 + _SPARE_ROWS for size in grown[-1])
            engine.reserve_rows(n_nodes, n_leaves, 0)
        try:
            _plant(engine, problem, tree, own)
            engine.resolve_whole_tree(engine.data(problem), tree)
            digest = tree_digest(engine.trees, tree, forest.settings.is_regression, class_order)
            grown.append((int(engine.trees.meta[N_NODES]), int(engine.trees.meta[N_LEAVES])))
        finally:
            aligned.shred((*engine.trees, engine.blocks.longs))
            shred_scratches([engine.scratch])
        if progress is not None and threading.get_ident() == caller:
            progress(len(grown), len(trees))
        return digest

    pieces = [partial(grow, tree, slots[own]) for tree, own in zip(trees, members, strict=True)]
    digests = run(pieces, forest.n_threads)
    if progress is not None:
        progress(len(trees), len(trees))
    return digests


def _members_of(forest: "ForestEngine", problem: Problem, slots: Slots, trees: Sequence[int]) -> Bools:
    """Which samples of some slots draw each of some trees, bool[trees, slots]."""
    rows = np.full(forest.settings.n_trees, NIL, np.int64)
    rows[list(trees)] = np.arange(len(trees))
    found = np.zeros((len(trees), len(slots)), np.bool_)
    find_members(forest.data(problem), forest.parameters, forest.scratch, slots, rows, found)
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


def _plant(engine: "ForestEngine", problem: Problem, tree: int, slots: Slots) -> None:
    """Put samples into the root of a tree, to be grown."""
    if not len(slots):
        return
    engine.trees = with_entries(engine.trees, int(slots.max()) + 1)
    engine.reserve_members(4 * len(slots) + _SPARE_ROWS)  # what the root takes, and what growing it does
    trees = engine.trees
    # A forest of one tree, which nobody has to draw: its root becomes that of the tree.
    values = engine.parameters.values.copy()
    values[N_TREES] = 1
    parameters = engine.parameters._replace(values=values)
    plant(trees, engine.data(problem), parameters, engine.scratch, slots, np.array([len(slots)], np.int64))
    for of_trees in (trees.nodes, trees.tree_tags):
        of_trees[[0, tree]] = of_trees[[tree, 0]]
