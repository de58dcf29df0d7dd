"""The leaves that samples reach in our trees, as numbers that begin with 0 in every tree.

A *table* of all nodes is made first, so that a step down takes no branch. All splits become one form,

    right = x > high or x < low or (x is missing and missing goes right)

numeric: low is minus infinity; categorical: both are the code that goes left, so that all other codes go right. At a
leaf the step leads to the leaf itself. Many samples go down a tree in step, as many levels as it has, so that their
waits overlap. Where all splits are numeric and nothing is missing, `x > high` does.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.state import LEAF, Trees
from oubli.core.jit.policy import kernel
from oubli.core.rng import MISSING_CATEGORY

_LANES = 256


class Table(NamedTuple):
    """All nodes, ready to be gone down."""

    high: npt.NDArray[np.float64]  # float64[n_nodes]
    low: npt.NDArray[np.float64]  # float64[n_nodes]
    missing_right: npt.NDArray[np.uint32]  # uint32[n_nodes]: 0 or 1
    feature: npt.NDArray[np.uint32]  # uint32[n_nodes]
    left: npt.NDArray[np.uint32]  # uint32[n_nodes]
    roots: npt.NDArray[np.int32]  # int32[T]
    depths: npt.NDArray[np.int64]  # int64[T]
    numbers: npt.NDArray[np.uint32]  # uint32[n_nodes]: number of a leaf in its tree
    offsets: npt.NDArray[np.int64]  # int64[T + 1]: where each tree's leaves begin among all
    values: npt.NDArray[np.float64]  # float64[offsets[-1]]: of the leaves, in units
    is_numeric: bool


@kernel
def _number_leaves(nodes, roots, stack, numbers, offsets, depths, values):
    """Number the leaves of each tree from left to right; returns how many there are in all."""
    total = 0
    for tree in range(roots.shape[0]):
        offsets[tree] = total
        stack[0, 0] = roots[tree]
        stack[0, 1] = 0
        size = 1
        while size > 0:
            size -= 1
            node = np.int64(stack[size, 0])
            depth = stack[size, 1]
            if nodes[node]["feature"] == LEAF:
                depths[tree] = max(depths[tree], np.int64(depth))
                numbers[node] = np.uint32(total - offsets[tree])
                values[total] = nodes[node]["value"]
                total += 1
                continue
            for side in range(2):
                stack[size + side, 0] = nodes[node]["left"] + 1 - side
                stack[size + side, 1] = depth + 1
            size += 2
    offsets[roots.shape[0]] = total
    return total


def make_table(trees: Trees, category_hashes: npt.NDArray[np.uint64], columns: npt.NDArray[np.int32]) -> Table:
    """Make the table.

    Parameters
    ----------
    trees
        As predictions read them.
    category_hashes
        Hashes by the codes that the samples to be routed have.
    columns
        Columns by code: the same value in two columns has one hash and two codes. -1: no sample has it.
    """
    nodes, n_trees = trees.nodes, len(trees.roots)
    n_nodes = len(nodes)
    numbers = np.zeros(n_nodes, np.uint32)
    offsets = np.zeros(n_trees + 1, np.int64)
    depths = np.zeros(n_trees, np.int64)
    values = np.zeros(n_nodes)
    stack = np.zeros((n_nodes + 2, 2), np.int32)
    n_leaves = _number_leaves(nodes, trees.roots, stack, numbers, offsets, depths, values)
    is_leaf = nodes["feature"] == LEAF
    is_categorical = (nodes["is_categorical"] != 0) & ~is_leaf
    high = np.where(is_leaf, np.inf, nodes["threshold"])
    low = np.full(n_nodes, -np.inf)
    missing_right = ((nodes["missing_left"] == 0) & ~is_leaf).astype(np.uint32)
    if is_categorical.any():
        wanted = nodes["category"][is_categorical]
        codes = _codes_of(wanted, nodes["feature"][is_categorical], category_hashes, columns)
        high[is_categorical] = low[is_categorical] = codes
        missing_right[is_categorical] = wanted != MISSING_CATEGORY
    return Table(
        high=high,
        low=low,
        missing_right=missing_right,
        feature=np.where(is_leaf, 0, nodes["feature"]).astype(np.uint32),
        left=np.where(is_leaf, np.arange(n_nodes), nodes["left"]).astype(np.uint32),
        roots=trees.roots,
        depths=depths,
        numbers=numbers,
        offsets=offsets,
        values=values[:n_leaves],
        is_numeric=not is_categorical.any(),
    )


def _codes_of(
    hashes: npt.NDArray[np.uint64],
    features: npt.NDArray[np.integer],
    category_hashes: npt.NDArray[np.uint64],
    columns: npt.NDArray[np.int32],
) -> npt.NDArray[np.float64]:
    """Codes with these hashes in these columns; -1, which no sample has, where there is none."""
    found = np.full(len(hashes), -1.0)
    for column in np.unique(features):
        codes = np.flatnonzero(columns == column)
        if len(codes) == 0:
            continue
        here = features == column
        codes = codes[np.argsort(category_hashes[codes], kind="stable")]
        places = np.minimum(np.searchsorted(category_hashes[codes], hashes[here]), len(codes) - 1)
        found[here] = np.where(category_hashes[codes[places]] == hashes[here], codes[places], -1)
    return found


@kernel
def _route_any(high, low, missing_right, feature, left, roots, depths, numbers, cells, slots, at, leaves):
    for first in range(0, slots.shape[0], _LANES):
        n_lanes = min(_LANES, slots.shape[0] - first)
        for tree in range(roots.shape[0]):
            for lane in range(n_lanes):
                at[lane] = roots[tree]
            for _ in range(depths[tree]):
                for lane in range(n_lanes):
                    node = np.uint64(at[lane])
                    x = np.float64(cells[np.uint64(slots[first + lane]), np.uint64(feature[node])])
                    right = np.uint32(x > high[node]) | np.uint32(x < low[node])
                    right |= np.uint32(x != x) & missing_right[node]
                    at[lane] = left[node] + right
            for lane in range(n_lanes):
                leaves[tree, first + lane] = numbers[np.uint64(at[lane])]


@kernel
def _route_present_numbers(high, feature, left, roots, depths, numbers, cells, slots, at, leaves):
    """The same where no split is categorical and no cell is missing; `high` is of the cells' type."""
    for first in range(0, slots.shape[0], _LANES):
        n_lanes = min(_LANES, slots.shape[0] - first)
        for tree in range(roots.shape[0]):
            for lane in range(n_lanes):
                at[lane] = roots[tree]
            for _ in range(depths[tree]):
                for lane in range(n_lanes):
                    node = np.uint64(at[lane])
                    x = cells[np.uint64(slots[first + lane]), np.uint64(feature[node])]
                    at[lane] = left[node] + np.uint32(x > high[node])
            for lane in range(n_lanes):
                leaves[tree, first + lane] = numbers[np.uint64(at[lane])]


@kernel
def _any_missing(cells, slots):
    for i in range(slots.shape[0]):
        slot = np.uint64(slots[i])
        n_missing = 0
        for feature in range(cells.shape[1]):
            n_missing += np.int64(np.isnan(cells[slot, feature]))
        if n_missing > 0:
            return True
    return False


def _rounded_down(thresholds: npt.NDArray[np.float64], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The largest numbers of a type that are not above the thresholds: the same cells are above them."""
    with np.errstate(over="ignore"):
        rounded = thresholds.astype(dtype)
    return np.where(rounded > thresholds, np.nextafter(rounded, dtype.type(-np.inf)), rounded)


def leaf_type(n_most: int) -> npt.DTypeLike:
    """The smallest type that numbers so many leaves."""
    if n_most <= 2**8:
        return np.uint8
    return np.uint16 if n_most <= 2**16 else np.uint32


def route(table: Table, cells: npt.NDArray[Any], slots: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the leaf of each row of `cells` named in `slots` in each tree, uint8/16/32[T, n]. O(n T depth)."""
    leaves = np.empty((len(table.roots), len(slots)), leaf_type(int(np.diff(table.offsets).max(initial=0))))
    at = np.zeros(_LANES, np.uint32)
    shared = (table.feature, table.left, table.roots, table.depths, table.numbers, cells, slots, at, leaves)
    if table.is_numeric and not _any_missing(cells, slots):
        _route_present_numbers(_rounded_down(table.high, cells.dtype), *shared)
    else:
        _route_any(table.high, table.low, table.missing_right, *shared)
    return leaves
