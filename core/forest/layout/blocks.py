"""Candidate counters: what a big node keeps so that a mutation need not count its samples again.

A block holds, for the node's p attributes (the first p in the node's hash order that are not
constant there), everything that the choice of the split depends on. It is one stretch of memory, a
row that several arrays of different types look at, so that a mutation touches few cache lines:

    head | totals | skipped | p attributes, 64 bytes each | p counters | p category lists

    numeric attribute    lo .. | .. | .. | .. hi             the cells of its grid, see below
                        counter 0  1    2    3   ... [MISSING last]
    categorical          counter j = the left side of candidate j, j < s

Counters are statistics (class counts, or count and sum of targets), and not prefix sums: a mutation
touches one a numeric attribute. Of the attributes skipped on the way a bit is kept each: an added
sample that differs there from those held makes one usable.

Only nodes with at least BLOCK_MINIMUM samples keep a block, since below that counting again is
cheaper than keeping; whether a node keeps one never shows in the model. Row 0 is the working space
of the split search for nodes without a block of their own.

The candidates of a numeric attribute with values from lo to hi are the points of a regular grid between
them. The width of a cell is the largest g = 2^e or 1.5 * 2^e with (hi - lo) / g >= max(1, 0.8 s), so
that there are about s of them, and the phase is drawn for the node and the attribute:

    cell of x = floor(x / g + phase)                  candidate m, first <= m < last:  cell of x <= m

This differs from the paper's ERT nodes, which draw each threshold from [lo, hi): here the candidates stay
where they are while samples come and go, until hi - lo passes one of the widths' steps. A threshold
drawn from [lo, hi) moves whenever an end of the range does, at every node that a sample with an
extreme value has passed. And a sample finds its cell by one multiplication.

The cell is computed in float64 by one fixed expression, which never decreases in x; the threshold of a
split is the largest value of the cells' type that the expression sends left. So both ends of the
range are on different sides of every candidate. Where float64 cannot tell the cells apart (float64
columns with a range of a few units in the last place, or too wide for it), there is one candidate:
lo against the rest.

Two more rules that the paper leaves open:

    a) missing values: a coin of the candidate sends them left or right, whether or not there are any;
       an attribute that is constant but for missing values has one candidate, missing on the right;
    b) categories: even candidates isolate the category with the smallest hash among those present,
       odd ones send each category left by a coin of its hash.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array
from oubli.core.forest.parameters import ForestSettings
from oubli.core.forest.state import BLOCKS, Trees, count_in
from oubli.core.forest.workspace import PARAMETERS
from oubli.core.jit import aligned
from oubli.core.jit.nodes import NIL, category_hash, give_row, in_subset, take_row
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.rng import CANDIDATES, coin, combine, mix, unit

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

ADD = 1
DELETE = -1

_PHASE = np.uint64(0)
_MISSING_COINS = np.uint64(1)
_THIRD = 0x5555555555555  # fraction bits of 4/3
_EXACT = 9007199254740992.0  # 2**53: cells beyond have no exact number


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


class Forest(NamedTuple):
    """All that a forest keeps of its samples, and how it is laid out."""

    trees: Trees
    blocks: Blocks
    parameters: Array
    settings: ForestSettings
    layout: Layout
    width: int  # columns of statistics: room for class codes, 2 for a regression
    n_features: int


def most_cells(n_thresholds: int) -> int:
    """Upper bound of the cells between two ends, both counted."""
    return int(1.5 * max(1.0, 0.8 * n_thresholds)) + 2


def layout_of(settings: ForestSettings, n_features: int, width: int, *, has_categories: bool) -> Layout:
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


def parameters_of(settings: ForestSettings, layout: Layout, width: int, block_minimum: int) -> Array:
    """The parameters as the kernels read them, PARAMETERS[1]."""
    values = {
        **vars(settings),
        **layout._asdict(),
        "width": width,
        "block_minimum": block_minimum,
        "seed_key": mix(np.uint64(settings.seed)),
    }
    parameters = np.zeros(1, PARAMETERS)
    for name in PARAMETERS.names or ():
        parameters[name] = values[name]
    return parameters


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
    longs: npt.NDArray[np.int64], settings: ForestSettings, layout: Layout, width: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The totals [n, width] and the counters [n, p, n_counters, width] of some blocks, as views."""
    counters = longs if settings.is_regression else longs.view(np.int32)
    p, stride = settings.max_features, layout.counters_stride
    rows = counters[:, layout.counters_at : layout.counters_at + p * stride].reshape(len(longs), p, stride)
    tables = rows[:, :, : layout.n_counters * width].reshape(len(longs), p, layout.n_counters, width)
    return counters[:, layout.totals_at : layout.totals_at + width], tables


def relaid(
    longs: npt.NDArray[np.int64], settings: ForestSettings, old: Layout, new: Layout, old_width: int, width: int
) -> npt.NDArray[np.int64]:
    """Copy blocks of class counters into a layout for more classes."""
    result = aligned.zeros((len(longs), new.size), np.int64)
    result[:, :_HEAD_SIZE] = longs[:, :_HEAD_SIZE]
    n_skipped = min(old.attributes_at - old.skipped_at, new.attributes_at - new.skipped_at)
    result[:, new.skipped_at : new.skipped_at + n_skipped] = longs[:, old.skipped_at : old.skipped_at + n_skipped]
    for at, stride in (("attributes_at", ATTRIBUTE_SIZE), ("categories_at", old.categories_stride)):
        size = settings.max_features * stride
        target, source = getattr(new, at), getattr(old, at)
        result[:, target : target + size] = longs[:, source : source + size]
    wider, narrower = counters_of(result, settings, new, width), counters_of(longs, settings, old, old_width)
    for ours, theirs in zip(wider, narrower, strict=True):
        ours[..., :old_width] = theirs
    return result


@pasted
def attribute_at(parameters, used):
    """Place of an attribute in `longs` and `reals`; twice that in `halves`."""
    return parameters[0]["attributes_at"] + used * ATTRIBUTE_SIZE


@pasted
def counters_at(parameters, used):
    """Place of an attribute's first counter."""
    return parameters[0]["counters_at"] + used * parameters[0]["counters_stride"]


@pasted
def categories_at(parameters, used):
    """Place of an attribute's first category hash."""
    return parameters[0]["categories_at"] + used * parameters[0]["categories_stride"]


@pasted
def totals_at(parameters):
    """Place of the node's own statistics in `counters`."""
    return parameters[0]["totals_at"]


@pasted
def skip_attribute(parameters, blocks, block, attribute):
    """Note that a column is constant and was passed over."""
    place = parameters[0]["skipped_at"] + attribute // 64
    blocks.keys[block, place] |= np.uint64(1) << np.uint64(attribute % 64)


@pasted
def clear_block(blocks, block):
    """Zero a block; O(its size)."""
    for i in range(blocks.longs.shape[1]):
        blocks.longs[block, i] = 0


@inner
def allocate_block(trees, blocks):
    """Take a block, zeroed; the caller has made sure that there is one."""
    block = take_row(trees.meta, BLOCKS, blocks.longs[:, NEXT_FREE], 1)
    blocks.longs[block, NEXT_FREE] = 0
    return block


@inner
def free_block(trees, blocks, block):
    """Zero a block and put it on the free list."""
    clear_block(blocks, block)
    give_row(trees.meta, BLOCKS, blocks.longs[:, NEXT_FREE], block)


@inner
def is_counted(trees, blocks, node):
    """Whether a node has counters that are up to date."""
    block = np.int64(trees.nodes[node]["block"])
    return block != NIL and blocks.longs[block, IS_COUNTED] != 0


@pasted
def attribute_key(node_key, attribute):
    """Key of a node's candidates on one attribute."""
    return combine(combine(node_key, CANDIDATES), np.uint64(attribute))


@inner
def category_rank(candidate_key, hashed):
    """Order in which a one-vs-rest candidate prefers categories: the smallest is isolated."""
    return mix(candidate_key ^ hashed)


@pasted
def size_at(counters, block, place, width, is_regression):
    """Number of samples in the statistics at a place of a block."""
    if is_regression:
        return np.int64(counters[block, place])
    total = np.int64(0)
    for c in range(width):
        total += np.int64(counters[block, place + c])
    return total


# -- thresholds -------------------------------------------------------------------------------------


@pasted
def missing_goes_left(key, cell):
    """The coin of a candidate for missing values; `key` is the attribute's, `cell` the candidate m."""
    return coin(combine(combine(key, _MISSING_COINS), np.uint64(np.int64(cell))))


@pasted
def draw_phase(key):
    """Phase of an attribute's grid, in [0, 1); `key` is the attribute's."""
    return unit(combine(key, _PHASE))


@pasted
def fit_scale(lo, hi, n_thresholds, number, bits):
    """1 / g for the cell width g of a range lo < hi, in float64; 0 where g is next to float64's limits.

    number, bits  float64[1] and int64[1], the same memory: working space

    Half the range is taken, because the whole may overflow. Powers of two are read and made by their
    bits, several times faster than by `frexp` and `ldexp`.
    """
    n_wanted = max(np.float64(4 * n_thresholds) / 5.0, 1.0)
    number[0] = (hi * 0.5 - lo * 0.5) / n_wanted
    exponent = (bits[0] >> 52) - 1022  # of the whole range, g being 2^exponent or half as much again
    is_three_halves = (bits[0] >> 51) & 1
    if exponent < -1000 or exponent > 1000:
        return 0.0
    # 1 / g is 2^-exponent, or 4/3 * 2^-(exponent + 1).
    bits[0] = ((1023 - exponent - is_three_halves) << 52) | (is_three_halves * _THIRD)
    return number[0]


@pasted
def cell_number(x, scale, phase):
    """The cell of x, as a float64."""
    return np.floor(x * scale + phase)


@pasted
def is_usable(lo, hi, scale, phase, n_cells):
    """Whether float64 tells the cells of a range apart; false as well when a number is infinite or NaN."""
    first = cell_number(lo, scale, phase)
    last = cell_number(hi, scale, phase)
    return first > -_EXACT and last < _EXACT and last - first >= 1.0 and last - first < np.float64(n_cells)


@kernel
def above(value, cells):
    """Smallest value of the cells' type above `value`, as float64."""
    if cells.itemsize == 4:
        return np.float64(np.nextafter(np.float32(value), np.float32(np.inf)))
    return np.nextafter(value, np.inf)


@kernel
def below(value, cells):
    """Largest value of the cells' type below `value`, as float64."""
    if cells.itemsize == 4:
        return np.float64(np.nextafter(np.float32(value), np.float32(-np.inf)))
    return np.nextafter(value, -np.inf)


@pasted
def as_cell(value, cells):
    """Round a float64 to the cells' type."""
    if cells.itemsize == 4:
        return np.float64(np.float32(value))
    return value


@kernel
def threshold_of(number, lo, hi, scale, phase, cells):
    """Largest value of the cells' type whose cell is at most `number`.

    lo, hi  cell of lo <= number < cell of hi: they bound the search, and do not decide the result
    cells   any array of the cells' type
    """
    threshold = as_cell((number + 1.0 - phase) / scale, cells)
    threshold = min(max(threshold, lo), hi)
    while cell_number(threshold, scale, phase) > number:
        threshold = below(threshold, cells)
    following = above(threshold, cells)
    while cell_number(following, scale, phase) <= number:
        threshold = following
        following = above(threshold, cells)
    return threshold + 0.0  # stepping up to zero gives a negative one


# -- the update for one sample ----------------------------------------------------------------------


@inner
def _shift_counters(parameters, blocks, block, used, n_cells, shift):
    """Make room for `shift` cells below the first."""
    width = parameters[0]["width"]
    place = counters_at(parameters, used)
    for i in range(n_cells * width - 1, -1, -1):
        blocks.counters[block, place + shift * width + i] = blocks.counters[block, place + i]
    for i in range(shift * width):
        blocks.counters[block, place + i] = 0


@inner
def _extend_range(parameters, scratch, blocks, block, used, x):
    """Extend a numeric attribute's range to a new value outside; False when its grid changes."""
    at = attribute_at(parameters, used)
    reals = blocks.reals
    scale = reals[block, at + SCALE]
    phase = reals[block, at + PHASE]
    old_first = reals[block, at + FIRST]
    lo = min(x, reals[block, at + LO])
    hi = max(x, reals[block, at + HI])
    n_thresholds = parameters[0]["n_thresholds"]
    if scale == 0.0 or fit_scale(lo, hi, n_thresholds, scratch.number, scratch.number_bits) != scale:
        return False
    if not is_usable(lo, hi, scale, phase, parameters[0]["n_counters"] - 1):
        return False
    first = cell_number(lo, scale, phase)
    if first < old_first:
        n_cells = np.int64(blocks.halves[block, 2 * at + N_CELLS])
        _shift_counters(parameters, blocks, block, used, n_cells, np.int64(old_first - first))
    if x == lo:
        blocks.halves[block, 2 * at + AT_LO] = 0
    else:
        blocks.halves[block, 2 * at + AT_HI] = 0
    reals[block, at + LO] = lo
    reals[block, at + HI] = hi
    reals[block, at + FIRST] = first
    blocks.halves[block, 2 * at + N_CELLS] = np.int32(cell_number(hi, scale, phase) - first) + 1
    return True


@pasted
def _update_numeric(parameters, scratch, blocks, block, used, x, target, sign, is_regression):
    """Bring a numeric attribute's counters up to date; False when its candidates change."""
    at = attribute_at(parameters, used)
    reals = blocks.reals
    halves = blocks.halves
    width = parameters[0]["width"]
    place = counters_at(parameters, used)
    if np.isnan(x):
        halves[block, 2 * at + MISSING] += sign
        place += (parameters[0]["n_counters"] - 1) * width
        count_in(blocks.counters, block, place, target, sign, is_regression)
        return reals[block, at + LO] < reals[block, at + HI] or halves[block, 2 * at + MISSING] > 0
    is_inside = reals[block, at + LO] <= x <= reals[block, at + HI]
    if not is_inside and not _extend_range(parameters, scratch, blocks, block, used, x):
        return False
    lo = reals[block, at + LO]
    if x == lo:
        halves[block, 2 * at + AT_LO] += sign
        if halves[block, 2 * at + AT_LO] == 0:
            return False
    if x == reals[block, at + HI]:
        halves[block, 2 * at + AT_HI] += sign
        if halves[block, 2 * at + AT_HI] == 0:
            return False
    scale = reals[block, at + SCALE]
    if scale == 0.0:
        cell = np.int64(x > lo)
    else:
        cell = np.int64(cell_number(x, scale, reals[block, at + PHASE]) - reals[block, at + FIRST])
    count_in(blocks.counters, block, place + cell * width, target, sign, is_regression)
    return True


@pasted
def _update_categorical(parameters, blocks, block, used, hashed, target, sign, key, n_samples, is_regression):
    """Bring a categorical attribute's counters up to date; False when its candidates change."""
    width = parameters[0]["width"]
    listed = categories_at(parameters, used)
    first_place = counters_at(parameters, used)
    n_thresholds = parameters[0]["n_thresholds"]
    # As many coins come up one way as the other: added up without asking, they cost no wrong guesses.
    for j in range(1, n_thresholds, 2):
        lands_left = np.int64(in_subset(combine(key, np.uint64(j)), hashed))
        count_in(blocks.counters, block, first_place + j * width, target, sign * lands_left, is_regression)
    stands = True
    for j in range(0, n_thresholds, 2):
        chosen = blocks.keys[block, listed + j // 2]
        if hashed == chosen:
            place = first_place + j * width
            count_in(blocks.counters, block, place, target, sign, is_regression)
            stands &= size_at(blocks.counters, block, place, width, is_regression) != 0
        elif sign == ADD:
            candidate_key = combine(key, np.uint64(j))
            stands &= category_rank(candidate_key, hashed) >= category_rank(candidate_key, chosen)
    if not stands:
        return False
    # When all samples are of the category that the first candidate isolates, the attribute is constant.
    return size_at(blocks.counters, block, counters_at(parameters, used), width, is_regression) < n_samples


@pasted
def _update_target_range(blocks, block, target, sign):
    """Keep the range of the targets; False when an end leaves and the node may have become pure."""
    longs = blocks.longs
    if target < longs[block, TARGET_LO]:
        longs[block, TARGET_LO] = target
        longs[block, COPIES_LO] = 0
    if target > longs[block, TARGET_HI]:
        longs[block, TARGET_HI] = target
        longs[block, COPIES_HI] = 0
    if target == longs[block, TARGET_LO]:
        longs[block, COPIES_LO] += sign
    if target == longs[block, TARGET_HI]:
        longs[block, COPIES_HI] += sign
    return longs[block, COPIES_LO] > 0 and longs[block, COPIES_HI] > 0


@pasted
def update_block(data, parameters, scratch, blocks, block, slot, sign, key, n_samples):
    """Bring a block up to date for one sample; False when its candidates change.

    After False the counters mean nothing. O(p), and O(p s) for categorical columns.
    """
    is_regression = parameters[0]["is_regression"] != 0
    target = data.targets[slot]
    count_in(blocks.counters, block, totals_at(parameters), target, sign, is_regression)
    if is_regression and not _update_target_range(blocks, block, target, sign):
        return False
    for used in range(blocks.longs[block, N_ATTRIBUTES]):
        attribute = np.int64(blocks.halves[block, 2 * attribute_at(parameters, used) + ATTRIBUTE])
        x = data.cells[slot, attribute]
        if data.categorical[attribute]:
            hashed = category_hash(data.category_hashes, x)
            attributes_key = attribute_key(key, attribute)
            stands = _update_categorical(
                parameters, blocks, block, used, hashed, target, sign, attributes_key, n_samples, is_regression
            )
        else:
            stands = _update_numeric(
                parameters, scratch, blocks, block, used, np.float64(x), target, sign, is_regression
            )
        if not stands:
            return False
    return True
