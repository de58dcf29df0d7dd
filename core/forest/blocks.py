"""Candidate counters: what a big node keeps so that a mutation can check its split.

A block holds, for the node's p attributes (the first p in the node's hash order that are not
constant there), everything that the choice of the split depends on; and, for the attributes skipped
on the way, the constant they were skipped for:

    attribute u     lo .. t_0 .. t_1 .. ... .. t_{s-1} .. hi        numeric: candidates t_j, sorted
                  [   bin 0 | bin 1 | ...            | bin s ] [bin s+1: missing values]
    categorical     bins[j] = the left side of candidate j, j < s

`bins` holds statistics (class counts, or count and sum of targets), not prefix sums: a mutation
touches one bin a numeric attribute. Only nodes with at least `minimum` samples keep a block, since
below that counting again is cheaper than keeping; whether a node keeps one never shows in the model.

Row 0 is the working space of the split search for nodes without a block of their own.

The candidates differ from the paper's in three ways:

    a) thresholds are stratified: one uniform draw in each of s equal parts of [lo, hi). Each is
       still drawn uniformly, no sorting is needed, and a sample finds its bin in O(1);
    b) missing values: a coin of the candidate sends them left or right, whether or not there are any;
       an attribute that is constant but for missing values has one candidate, missing on the right;
    c) categories: even candidates isolate the category with the smallest hash among those present,
       odd ones send each category left by a coin of its hash.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core._jit import inner
from core.forest.nodes import FREE_BLOCK, N_BLOCKS, N_FREE_BLOCKS, NIL
from core.rng import CANDIDATES, MISSING_CATEGORY, coin, combine, mix, unit

# Columns of `copies`.
AT_LO = 0  # samples at the low end; when the last one leaves, the range changes
AT_HI = 1
MISSING = 2

# Columns of `sizes`.
N_ATTRIBUTES = 0  # attributes in use, at most p
N_SKIPPED = 1

# Columns of `target_range` (regression): a node stays impure while both ends are held.
TARGET_LO = 0
TARGET_HI = 1
COPIES_LO = 2
COPIES_HI = 3


class Blocks(NamedTuple):
    """Candidate counters of all big nodes; row = block."""

    sizes: npt.NDArray[Any]  # int32[capacity, 2]
    attributes: npt.NDArray[Any]  # int32[capacity, p] columns, in the node's hash order
    ranges: npt.NDArray[Any]  # float64[capacity, p, 2] lo, hi of the non-missing cells
    copies: npt.NDArray[Any]  # int32[capacity, p, 3]
    thresholds: npt.NDArray[Any]  # float64[capacity, p, s], ascending
    categories: npt.NDArray[Any]  # uint64, the same memory: one-vs-rest's category hash
    bins: npt.NDArray[Any]  # int32/int64[capacity, p, s + 2, width]
    totals: npt.NDArray[Any]  # int32/int64[capacity, width] the node's statistics
    target_range: npt.NDArray[Any]  # int64[capacity, 4]
    skipped: npt.NDArray[Any]  # int32[capacity, d] constant columns that come before the last used
    constants: npt.NDArray[Any]  # float64[capacity, d] their cells; NaN: all missing


def empty_blocks(
    capacity: int, n_attributes: int, n_thresholds: int, n_features: int, width: int, dtype: npt.DTypeLike
) -> Blocks:
    """Make `capacity` zeroed blocks (p = `n_attributes`, s = `n_thresholds`)."""
    thresholds = np.zeros((capacity, n_attributes, n_thresholds), np.float64)
    return Blocks(
        sizes=np.zeros((capacity, 2), np.int32),
        attributes=np.zeros((capacity, n_attributes), np.int32),
        ranges=np.zeros((capacity, n_attributes, 2), np.float64),
        copies=np.zeros((capacity, n_attributes, 3), np.int32),
        thresholds=thresholds,
        categories=thresholds.view(np.uint64),
        bins=np.zeros((capacity, n_attributes, n_thresholds + 2, width), dtype),
        totals=np.zeros((capacity, width), dtype),
        target_range=np.zeros((capacity, 4), np.int64),
        skipped=np.zeros((capacity, n_features), np.int32),
        constants=np.zeros((capacity, n_features), np.float64),
    )


@inner
def _clear_attribute(blocks, block, used):
    blocks.attributes[block, used] = 0
    blocks.ranges[block, used, 0] = 0.0
    blocks.ranges[block, used, 1] = 0.0
    for i in range(3):
        blocks.copies[block, used, i] = 0
    for j in range(blocks.thresholds.shape[2]):
        blocks.thresholds[block, used, j] = 0.0
    for j in range(blocks.bins.shape[2]):
        for c in range(blocks.bins.shape[3]):
            blocks.bins[block, used, j, c] = 0


@inner
def clear_block(blocks, block):
    """Zero a block; O(its size)."""
    for i in range(2):
        blocks.sizes[block, i] = 0
    for i in range(4):
        blocks.target_range[block, i] = 0
    for c in range(blocks.totals.shape[1]):
        blocks.totals[block, c] = 0
    for i in range(blocks.skipped.shape[1]):
        blocks.skipped[block, i] = 0
        blocks.constants[block, i] = 0.0
    for u in range(blocks.attributes.shape[1]):
        _clear_attribute(blocks, block, u)


@inner
def allocate_block(trees, blocks):
    """Take a block; the caller has made sure that there is one."""
    meta = trees.meta
    block = meta[FREE_BLOCK]
    if block == NIL:
        block = meta[N_BLOCKS]
        meta[N_BLOCKS] += 1
    else:
        meta[FREE_BLOCK] = blocks.sizes[block, 0]
        meta[N_FREE_BLOCKS] -= 1
    return block


@inner
def free_block(trees, blocks, block):
    """Zero a block and put it on the free list."""
    clear_block(blocks, block)
    blocks.sizes[block, 0] = np.int32(trees.meta[FREE_BLOCK])
    trees.meta[FREE_BLOCK] = block
    trees.meta[N_FREE_BLOCKS] += 1


@inner
def available_blocks(trees, blocks):
    """Blocks that can be taken before the pool is full."""
    return trees.meta[N_FREE_BLOCKS] + blocks.sizes.shape[0] - trees.meta[N_BLOCKS]


@inner
def attribute_key(node_key, attribute):
    """Key of a node's candidates on one attribute."""
    return combine(combine(node_key, CANDIDATES), np.uint64(attribute))


@inner
def category_hash(category_hashes, cell):
    """Hash of the category in a cell of a categorical column."""
    if np.isnan(cell):
        return MISSING_CATEGORY
    return category_hashes[np.int64(cell)]


@inner
def category_rank(candidate_key, hashed):
    """Order in which a one-vs-rest candidate prefers categories: the smallest is isolated."""
    return mix(candidate_key ^ hashed)


@inner
def in_subset(candidate_key, hashed):
    """Whether a subset candidate sends a category left."""
    return coin(mix(candidate_key ^ hashed))


@inner
def missing_goes_left(key, candidate, n_thresholds):
    """The coin of a numeric candidate for missing values; `key` is the attribute's."""
    return coin(combine(key, np.uint64(n_thresholds + candidate)))


@inner
def below(value, cells):
    """Largest value of the cells' type below `value`, as float64."""
    if cells.itemsize == 4:
        return np.float64(np.nextafter(np.float32(value), np.float32(-np.inf)))
    return np.nextafter(value, -np.inf)


@inner
def as_cell(value, cells):
    """Round a float64 to the cells' type."""
    if cells.itemsize == 4:
        return np.float64(np.float32(value))
    return value


@inner
def draw_thresholds(thresholds, key, lo, hi, cells):
    """Draw the candidates of a numeric attribute with lo < hi.

    thresholds  float64[s], written: ascending, lo <= t < hi, so that neither side is ever empty
    key         the attribute's key
    cells       any array of the cells' type: thresholds are rounded to it

    lo * (1 - f) + hi * f cannot overflow where lo + f * (hi - lo) can; rounding can reach hi, hence
    the clamp.
    """
    n_thresholds = thresholds.shape[0]
    highest = below(hi, cells)
    previous = lo
    for j in range(n_thresholds):
        fraction = (np.float64(j) + unit(combine(key, np.uint64(j)))) / np.float64(n_thresholds)
        threshold = as_cell(lo * (1.0 - fraction) + hi * fraction, cells)
        if threshold >= hi:
            threshold = highest
        if threshold < previous:
            threshold = previous
        thresholds[j] = threshold
        previous = threshold


@inner
def bin_of(x, thresholds, lo, scale):
    """Number of thresholds below x: the bin of a non-missing cell; O(1) expected.

    scale  s / (hi - lo): the stratum of x is guessed, then corrected against the thresholds, so
           rounding (or an overflow of hi - lo) costs steps and never the right answer
    """
    n_thresholds = thresholds.shape[0]
    guess = (x - lo) * scale
    position = 0
    if guess >= np.float64(n_thresholds):
        position = n_thresholds - 1
    elif guess > 0.0:
        position = np.int64(guess)
    while position < n_thresholds and x > thresholds[position]:
        position += 1
    while position > 0 and x <= thresholds[position - 1]:
        position -= 1
    return position


@inner
def count_in(statistics, row, target, sign, is_regression):
    """Add (sign 1) or take away (-1) one sample's target from a row of statistics, int[any, width].

    Taking the row as a view would cost a reference count a sample, more than the counting.
    """
    if is_regression:
        statistics[row, 0] += sign
        statistics[row, 1] += sign * target
    else:
        statistics[row, target] += sign


@inner
def size_of(statistics, row, is_regression):
    """Number of samples in a row of statistics."""
    if is_regression:
        return np.int64(statistics[row, 0])
    total = np.int64(0)
    for c in range(statistics.shape[1]):
        total += np.int64(statistics[row, c])
    return total
