"""Candidate counters: what a big node keeps so that a mutation need not count its samples again.

A block holds, for the node's p attributes (the first p in the node's hash order that are not
constant there), everything that the choice of the split depends on. It is one stretch of memory, a
row that several arrays of different types look at, so that a mutation touches few cache lines:

    head | totals | skipped | p attributes, 64 bytes each | p counters | p category lists

    numeric attribute    lo .. | .. | .. | .. hi             the cells of its grid (`grid.py`)
                        counter 0  1    2    3   ... [MISSING last]
    categorical          counter j = the left side of candidate j, j < s

Counters are statistics (class counts, or count and sum of targets), and not prefix sums: a mutation
touches one a numeric attribute. Of the attributes skipped on the way a bit is kept each: an added
sample that differs there from those held makes one usable.

Only nodes with at least BLOCK_MINIMUM samples keep a block, since below that counting again is
cheaper than keeping; whether a node keeps one never shows in the model. Row 0 is the working space
of the split search for nodes without a block of their own.

Two more rules that the paper leaves open:

    a) missing values: a coin of the candidate sends them left or right, whether or not there are any;
       an attribute that is constant but for missing values has one candidate, missing on the right;
    b) categories: even candidates isolate the category with the smallest hash among those present,
       odd ones send each category left by a coin of its hash.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.forest.state import FREE_BLOCK, N_BLOCKS, N_FREE_BLOCKS, NIL
from oubli.core.forest.workspace import (
    ATTRIBUTES_AT,
    CATEGORIES_AT,
    CATEGORIES_STRIDE,
    COUNTERS_AT,
    COUNTERS_STRIDE,
    SKIPPED_AT,
    TOTALS_AT,
    Parameters,
)
from oubli.core.jit import aligned
from oubli.core.jit.policy import inner, pasted
from oubli.core.rng import CANDIDATES, MISSING_CATEGORY, coin, combine, mix

if TYPE_CHECKING:
    from oubli.core.forest.parameters import ForestSettings

# The head, in `longs`.
N_ATTRIBUTES = 0  # attributes in use, at most p
IS_COUNTED = 1  # 0: the samples must be counted again before the counters mean anything
TARGET_LO = 2  # regression: a node stays impure while both ends are held
TARGET_HI = 3
COPIES_LO = 4
COPIES_HI = 5
NEXT_FREE = 6
_HEAD_SIZE = 7  # the totals of two classes are in the head's cache line

# An attribute, in `reals` ...
ATTRIBUTE_SIZE = 8
SCALE = 0  # 1 / g of the grid; 0: one candidate, lo against the rest
PHASE = 1
FIRST = 2  # cell of lo
LO = 3  # ends of the non-missing cells; the same: constant but for missing values
HI = 4
# ... and in `halves`.
AT_LO = 10  # samples at the low end; when the last one leaves, the range changes
AT_HI = 11
MISSING = 12  # samples without a value
ATTRIBUTE = 13  # the column
N_CELLS = 14  # cells of the grid from lo to hi, both counted; 0: categorical

_LINE = 8  # longs in a cache line


class Blocks(NamedTuple):
    """Candidate counters of all big nodes; row = block. All arrays are views of the first."""

    longs: npt.NDArray[np.int64]  # int64[capacity, n]
    reals: npt.NDArray[np.float64]  # float64[capacity, n]
    keys: npt.NDArray[np.uint64]  # uint64[capacity, n] hashes of categories
    halves: npt.NDArray[np.int32]  # int32[capacity, 2 n]
    counters: npt.NDArray[Any]  # `halves` for classes, `longs` for regression


class Layout(NamedTuple):
    """Where things are in a block: offsets and strides in the units of the array they are read from."""

    totals_at: int  # counters
    skipped_at: int  # keys: a bit a column
    attributes_at: int  # longs
    counters_at: int  # counters
    counters_stride: int  # counters an attribute
    n_counters: int  # rows of `width` counters an attribute; the last counts missing values
    categories_at: int  # keys
    categories_stride: int  # keys an attribute, 0 without categorical columns
    size: int  # longs


def most_cells(n_thresholds: int) -> int:
    """Upper bound of the cells between two ends, both counted."""
    return int(1.5 * max(1.0, 0.8 * n_thresholds)) + 2


def layout_of(settings: "ForestSettings", n_features: int, width: int, *, has_categories: bool) -> Layout:
    """Lay out a block."""
    n_attributes, n_thresholds = settings.max_features, settings.n_thresholds  # p, s
    per_long = 1 if settings.is_regression else 2
    n_counters = most_cells(n_thresholds) + 1
    skipped_at = _HEAD_SIZE + -(-width // per_long)
    attributes_at = _lines(skipped_at + -(-n_features // 64))
    counters_at = attributes_at + n_attributes * ATTRIBUTE_SIZE
    stride = _lines(-(-n_counters * width // per_long))
    categories_at = counters_at + n_attributes * stride
    categories_stride = -(-n_thresholds // 2) if has_categories else 0
    return Layout(
        totals_at=_HEAD_SIZE * per_long,
        skipped_at=skipped_at,
        attributes_at=attributes_at,
        counters_at=counters_at * per_long,
        counters_stride=stride * per_long,
        n_counters=n_counters,
        categories_at=categories_at,
        categories_stride=categories_stride,
        size=_lines(categories_at + n_attributes * categories_stride),
    )


def _lines(n_longs: int) -> int:
    return -(-n_longs // _LINE) * _LINE


def parameters_of(settings: "ForestSettings", layout: Layout, width: int, block_minimum: int) -> Parameters:
    """The parameters as the kernels read them, in the order of the slots that `workspace.py` names."""
    values = [
        settings.n_trees, settings.occurrences, settings.max_depth, settings.min_samples_split, settings.max_features,
        settings.criterion, settings.is_regression, block_minimum, width, settings.n_thresholds, layout.n_counters,
        layout.totals_at, layout.skipped_at, layout.attributes_at, layout.counters_at, layout.counters_stride,
        layout.categories_at, layout.categories_stride,
    ]  # fmt: skip
    return Parameters(np.array(values, np.int64), np.array([mix(np.uint64(settings.seed))], np.uint64))


def blocks_over(longs: npt.NDArray[np.int64], *, is_regression: bool) -> Blocks:
    """Look at the memory of blocks, int64[capacity, n], as kernels do."""
    halves = longs.view(np.int32)
    return Blocks(
        longs=longs,
        reals=longs.view(np.float64),
        keys=longs.view(np.uint64),
        halves=halves,
        counters=longs if is_regression else halves,
    )


def counters_of(
    longs: npt.NDArray[np.int64], settings: "ForestSettings", layout: Layout, width: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The totals [n, width] and the counters [n, p, n_counters, width] of some blocks."""
    counters = longs if settings.is_regression else longs.view(np.int32)
    p, stride = settings.max_features, layout.counters_stride
    rows = counters[:, layout.counters_at : layout.counters_at + p * stride].reshape(len(longs), p, stride)
    tables = rows[:, :, : layout.n_counters * width].reshape(len(longs), p, layout.n_counters, width)
    return counters[:, layout.totals_at : layout.totals_at + width], tables


def relaid(
    longs: npt.NDArray[np.int64], old: Layout, new: Layout, n_attributes: int, old_width: int, width: int
) -> npt.NDArray[np.int64]:
    """Copy blocks of class counters into a layout for more classes."""
    result = aligned.zeros((len(longs), new.size), np.int64)
    result[:, :_HEAD_SIZE] = longs[:, :_HEAD_SIZE]
    n_skipped = min(old.attributes_at - old.skipped_at, new.attributes_at - new.skipped_at)
    result[:, new.skipped_at : new.skipped_at + n_skipped] = longs[:, old.skipped_at : old.skipped_at + n_skipped]
    for at, stride in (("attributes_at", ATTRIBUTE_SIZE), ("categories_at", old.categories_stride)):
        size = n_attributes * stride
        target, source = getattr(new, at), getattr(old, at)
        result[:, target : target + size] = longs[:, source : source + size]
    ours, theirs = result.view(np.int32), longs.view(np.int32)
    ours[:, new.totals_at : new.totals_at + old_width] = theirs[:, old.totals_at : old.totals_at + old_width]
    for u in range(n_attributes):
        target, source = new.counters_at + u * new.counters_stride, old.counters_at + u * old.counters_stride
        table = theirs[:, source : source + old.n_counters * old_width].reshape(len(longs), old.n_counters, old_width)
        wider = np.zeros((len(longs), new.n_counters, width), np.int32)
        wider[:, :, :old_width] = table
        ours[:, target : target + new.n_counters * width] = wider.reshape(len(longs), -1)
    return result


@pasted
def attribute_at(parameters, used):
    """Place of an attribute in `longs` and `reals`; twice that in `halves`."""
    return parameters.values[ATTRIBUTES_AT] + used * ATTRIBUTE_SIZE


@pasted
def counters_at(parameters, used):
    """Place of an attribute's first counter."""
    return parameters.values[COUNTERS_AT] + used * parameters.values[COUNTERS_STRIDE]


@pasted
def categories_at(parameters, used):
    """Place of an attribute's first category hash."""
    return parameters.values[CATEGORIES_AT] + used * parameters.values[CATEGORIES_STRIDE]


@pasted
def totals_at(parameters):
    """Place of the node's own statistics in `counters`."""
    return parameters.values[TOTALS_AT]


@pasted
def skip_attribute(parameters, blocks, block, attribute):
    """Note that a column is constant and was passed over."""
    place = parameters.values[SKIPPED_AT] + attribute // 64
    blocks.keys[block, place] |= np.uint64(1) << np.uint64(attribute % 64)


@pasted
def clear_block(blocks, block):
    """Zero a block; O(its size)."""
    for i in range(blocks.longs.shape[1]):
        blocks.longs[block, i] = 0


@pasted
def allocate_block(trees, blocks):
    """Take a block; the caller has made sure that there is one."""
    meta = trees.meta
    block = meta[FREE_BLOCK]
    if block == NIL:
        block = meta[N_BLOCKS]
        meta[N_BLOCKS] += 1
    else:
        meta[FREE_BLOCK] = blocks.longs[block, NEXT_FREE]
        blocks.longs[block, NEXT_FREE] = 0
        meta[N_FREE_BLOCKS] -= 1
    return block


@inner
def free_block(trees, blocks, block):
    """Zero a block and put it on the free list."""
    clear_block(blocks, block)
    blocks.longs[block, NEXT_FREE] = trees.meta[FREE_BLOCK]
    trees.meta[FREE_BLOCK] = block
    trees.meta[N_FREE_BLOCKS] += 1


@inner
def is_counted(trees, blocks, node):
    """Whether a node has counters that are up to date."""
    block = np.int64(trees.nodes[node]["block"])
    return block != NIL and blocks.longs[block, IS_COUNTED] != 0


@inner
def available_blocks(trees, blocks):
    """Blocks that can be taken before the pool is full."""
    return trees.meta[N_FREE_BLOCKS] + blocks.longs.shape[0] - trees.meta[N_BLOCKS]


@pasted
def attribute_key(node_key, attribute):
    """Key of a node's candidates on one attribute."""
    return combine(combine(node_key, CANDIDATES), np.uint64(attribute))


@inner
def category_hash(category_hashes, cell):
    """Hash of the category in a cell of a categorical column."""
    if np.isnan(cell):
        return MISSING_CATEGORY
    return category_hashes[np.uint64(cell)]


@inner
def category_rank(candidate_key, hashed):
    """Order in which a one-vs-rest candidate prefers categories: the smallest is isolated."""
    return mix(candidate_key ^ hashed)


@inner
def in_subset(candidate_key, hashed):
    """Whether a subset candidate sends a category left."""
    return coin(mix(candidate_key ^ hashed))


@pasted
def count_at(counters, block, place, target, sign, is_regression):
    """Add (sign 1) or take away (-1) one sample's target from the statistics at a place of a block."""
    if is_regression:
        counters[block, place] += sign
        counters[block, place + 1] += sign * target
    else:
        counters[block, place + target] += sign


@pasted
def size_at(counters, block, place, width, is_regression):
    """Number of samples in the statistics at a place of a block."""
    if is_regression:
        return np.int64(counters[block, place])
    total = np.int64(0)
    for c in range(width):
        total += np.int64(counters[block, place + c])
    return total
