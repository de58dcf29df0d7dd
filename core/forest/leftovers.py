"""Whether a forest from a file keeps anything where nothing should be: freed rows are zeroed, and so they are in files.

Kernels rely on it where they take rows from the free lists, and so does the promise that a file holds nothing of
deleted samples.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from oubli.core.array_types import Bools, Ints
from oubli.core.bounds import require_sound
from oubli.core.forest.blocks import ATTRIBUTE, ATTRIBUTE_SIZE, IS_COUNTED, N_ATTRIBUTES, NEXT_FREE
from oubli.core.forest.state import FREE_ROOMS, NIL

if TYPE_CHECKING:
    from oubli.core.forest.kept import KeptForest

_SPLIT = ("category", "attribute", "kind")


def check_leftovers(forest: "KeptForest", nodes: Ints, slots: Ints) -> None:
    """Check that what is free is zero; `check_forest` has been there before.

    nodes : those in use, as that has listed them.

    Raises
    ------
    FileError
        Saying what is wrong. O(rows).
    """
    trees = forest.trees
    used = np.zeros(len(trees.nodes), np.bool_)
    used[nodes] = True
    child = trees.nodes["child"].astype(np.int64)
    is_leaf = used & (child < 0)
    require_sound(not _any(trees.nodes, _SPLIT, is_leaf), "a leaf keeps a split")
    require_sound(not _any(trees.nodes, (*_SPLIT, "n_samples"), ~used), "a free node is not zeroed")
    is_free = np.ones(len(trees.starts), np.bool_)
    is_free[~child[is_leaf]] = False
    require_sound(not trees.statistics[is_free].any(), "a free leaf is not zeroed")
    _check_members(forest, slots)
    _check_blocks(forest, np.flatnonzero(used & (trees.nodes["block"] != NIL)))


def _any(nodes: Any, fields: tuple[str, ...], rows: Bools) -> bool:
    return any(bool((nodes[field].astype(np.bool_) & rows).any()) for field in fields)


def _check_members(forest: "KeptForest", slots: Ints) -> None:
    """Check that a place without an entry is zero, unless it is the first of a free room and names the next one."""
    trees, k = forest.trees, forest.settings.occurrences
    entries = (slots[:, np.newaxis] * k + np.arange(k)).ravel()
    is_taken = np.zeros(len(trees.members), np.bool_)
    is_taken[trees.places[entries]] = True
    linking = np.flatnonzero((trees.members != 0) & ~is_taken)
    named = trees.members[linking].astype(np.int64) - 1
    first = trees.meta[FREE_ROOMS:]
    named = np.concatenate([named, first[first != NIL]])
    require_sound(len(np.unique(named)) == len(named), "a free room is named twice")
    require_sound(np.isin(linking, named).all(), "an unused place is not zeroed")


def _check_blocks(forest: "KeptForest", nodes: Ints) -> None:
    trees, layout, longs = forest.trees, forest.layout, forest.blocks.longs
    rows = trees.nodes["block"][nodes].astype(np.int64)
    is_free = np.ones(len(longs), np.bool_)
    is_free[rows] = False
    free = longs[is_free]
    require_sound(not np.delete(free, NEXT_FREE, axis=1).any(), "free counters are not zeroed")
    require_sound((longs[rows, IS_COUNTED] == 1).all(), "counters are not those of their samples")
    p = forest.settings.max_features
    attributes = forest.blocks.halves[rows][:, 2 * (layout.attributes_at + ATTRIBUTE_SIZE * np.arange(p)) + ATTRIBUTE]
    is_used = np.arange(p) < longs[rows, N_ATTRIBUTES][:, np.newaxis]
    chosen = trees.nodes["attribute"][nodes][:, np.newaxis]
    require_sound(((attributes == chosen) & is_used).any(axis=1).all(), "counters lack the column of the split")
