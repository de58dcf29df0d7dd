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

The candidates of a node depend on a few of its samples, which a hash *chooses*, so that no single row, whatever its
values, changes those of many nodes:

    n <= N:  the node is of size N, the smallest base * 2^e >= n, with base in [1, 2) drawn for the node
    chosen:  the samples with mix(node key ^ hash of id) <= 2^64 * min(1, CHOSEN / N); all samples, if there are none

An attribute is *spread* when its cells are not all equal in the chosen samples. The node's attributes are the first p
spread ones; when there are fewer, the first of the others that are not constant fill the places that are left.

The candidates of a numeric attribute whose chosen values go from lo to hi are the points of a regular grid between
them. The width of a cell is the largest g = 2^e or 1.5 * 2^e with (hi - lo) / g >= max(1, 0.8 s), so
that there are about s of them, and the phase is drawn for the node and the attribute:

    cell of x = floor(x / g + phase)                  candidate m, first <= m < last:  cell of x <= m

This differs from the paper's ERT nodes, which draw each threshold from [lo, hi) of all samples. There any sample at an
end of the range moves all candidates of every node that it has passed: each of these nodes is built again. Here a
sample is among the chosen with a probability of about CHOSEN / n, and the candidates stay where they are until hi - lo
passes one of the widths' steps. And a sample finds its cell by one multiplication; beyond the ends it is in the first
cell or the last.

The cell is computed in float64 by one fixed expression, which never decreases in x; the threshold of a
split is the largest value of the cells' type that the expression sends left. So both ends of the
range are on different sides of every candidate. Where float64 cannot tell the cells apart (float64
columns with a range of a few units in the last place, or too wide for it), there is one candidate:
lo against the rest.

A numeric attribute that is not spread has one candidate. If all chosen samples have the value c: x <= c, or x < c when
no sample is above; missing against the rest when these are all that differ, or when no chosen sample has a value.

Two more rules that the paper leaves open:

    a) missing values: a coin of the candidate sends them left or right, whether or not there are any;
       an attribute whose chosen samples are equal but for missing values has one candidate, missing on the right;
    b) categories: even candidates isolate the category with the smallest hash among those of the chosen samples,
       odd ones send each category left by a coin of its hash. Candidates that divide the categories which the first
       N_COMPARED of them isolate in the same way count as one: the first of them stays, and the others *repeat* it.

Without this rule several candidates of a column with few categories have one score. The first of them is taken, until
a sample of another category comes, which each of them sends another way: then another one is the best, and the node is
built again, at the root as well as below.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array
from oubli.core.forest.layout.cells import note_differences
from oubli.core.forest.parameters import ForestSettings
from oubli.core.forest.state import BLOCKS, Trees, count_in
from oubli.core.forest.workspace import PARAMETERS
from oubli.core.jit import aligned
from oubli.core.jit.nodes import NIL, category_hash, give_row, in_subset, take_row
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.jit.targets import value_of
from oubli.core.rng import CANDIDATES, CHOICE_SIZES, coin, combine, mix, unit

# The head, in `longs` ...
N_ATTRIBUTES = 0  # attributes in use, at most p
IS_COUNTED = 1  # 0: the samples must be counted again before the counters mean anything
CHOICE_LIMIT = 2  # uint64: the hashes of the chosen samples are at most this
NEXT_FREE = 5
REPRESENTATIVE = 6  # slot of one of the chosen samples
TARGET_LO = 7  # regression: a node stays impure while both ends are held
TARGET_HI = 8
COPIES_LO = 9
COPIES_HI = 10
# ... and in `halves`.
N_LEAST = 6  # with fewer samples than this, or more than that, others would be chosen
N_MOST = 7
N_CHOSEN = 8
IS_FILLED = 9  # whether the spread attributes leave places: then all columns have been looked at
_HEAD_SIZES = 7, 11  # for classes, the totals of two of them being in the head's cache line; for numbers

# An attribute, in `reals` ...
ATTRIBUTE_SIZE = 8
SCALE = 0  # 1 / g of the grid; 0: one candidate, lo against the rest
PHASE = 1
FIRST = 2  # cell of lo
LO = 3  # ends of the chosen values; the same: one candidate, missing against the rest
HI = 4
# ... and in `halves`.
AT_LO = 10  # chosen samples at the low end; when the last one leaves, the range changes
AT_HI = 11  # the same of the high end; or NOT_SPREAD, NO_VALUE
MISSING = 12  # samples without a value
ATTRIBUTE = 13  # the column
N_CELLS = 14  # cells of the grid from lo to hi, both counted; 0: categorical

NOT_SPREAD = -1  # all chosen samples have one value: LO, or HI if that is a number and not LO
NO_VALUE = -2  # no chosen sample has a value

CHOSEN = 32  # samples that are chosen, or down to half as many
_LINE = 8  # longs in a cache line
_FEW_CLASSES = 2  # the fewest that working space is laid out for; then four times as many, and so on

ADD = 1
DELETE = -1

_PHASE = np.uint64(0)
_MISSING_COINS = np.uint64(1)
_THIRD = 0x5555555555555  # fraction bits of 4/3
_EXACT = 9007199254740992.0  # 2**53: cells beyond have no exact number
_TWO_TO_63 = 9223372036854775808.0
_ALL = np.uint64(2**64 - 1)


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
    categories_stride: int  # keys an attribute, 0 without categorical columns; see `chosen_at` and `repeats_at`
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
    head_size = _HEAD_SIZES[settings.is_regression]
    skipped_at = head_size + -(-width // per_long)
    attributes_at = _lines(skipped_at + -(-n_features // 64))
    counters_at = attributes_at + n_attributes * ATTRIBUTE_SIZE
    stride = _lines(-(-n_counters * width // per_long))
    categories_at = counters_at + n_attributes * stride
    n_isolated = -(-n_thresholds // 2)
    categories_stride = n_isolated + -(-n_isolated // 2) + -(-n_thresholds // 64) if has_categories else 0
    return Layout(
        totals_at=head_size * per_long,
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


def parameters_of(
    settings: ForestSettings, layout: Layout, n_features: int, width: int, block_minimum: int, n_chosen: int, *,
    has_weights: bool,
) -> Array:  # fmt: skip
    """The parameters as the kernels read them, PARAMETERS[1 + m].

    Those behind the first are of nodes with fewer classes, which working space is laid out for; see `gather_targets`.
    """
    layouts = {width: layout}
    while not settings.is_regression and (narrow := _FEW_CLASSES * 4 ** (len(layouts) - 1)) < width:
        layouts[narrow] = layout_of(settings, n_features, narrow, has_categories=layout.categories_stride > 0)
    parameters = np.zeros(len(layouts), PARAMETERS)
    for row, (n_columns, laid_out) in zip(parameters, layouts.items(), strict=True):
        values = {
            **vars(settings),
            **laid_out._asdict(),
            "width": n_columns,
            "block_minimum": block_minimum,
            "n_chosen": n_chosen,
            "has_weights": has_weights,
            "seed_key": mix(np.uint64(settings.seed)),
        }
        for name in PARAMETERS.names or ():
            row[name] = values[name]
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
    result[:, : _HEAD_SIZES[0]] = longs[:, : _HEAD_SIZES[0]]
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
def chosen_at(parameters, used):
    """Place, in `halves`, of the number of chosen samples in an attribute's first isolated category."""
    return 2 * (categories_at(parameters, used) + (parameters[0]["n_thresholds"] + 1) // 2)


@pasted
def repeats_at(parameters, used):
    """Place of the bits of an attribute's candidates: 1 where one repeats another."""
    n_isolated = (parameters[0]["n_thresholds"] + 1) // 2
    return categories_at(parameters, used) + n_isolated + (n_isolated + 1) // 2


@pasted
def note_repeat(parameters, blocks, block, used, candidate):
    """Note that a candidate of a categorical attribute repeats one before it."""
    blocks.keys[block, repeats_at(parameters, used) + candidate // 64] |= np.uint64(1) << np.uint64(candidate % 64)


@pasted
def is_repeat(parameters, blocks, block, used, candidate):
    """Whether a candidate of a categorical attribute repeats one before it, and has no counts."""
    bits = blocks.keys[block, repeats_at(parameters, used) + candidate // 64]
    return (bits >> np.uint64(candidate % 64)) & np.uint64(1) != 0


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
def take_attribute(parameters, blocks, block, attribute):
    """Note that a column that was passed over is used all the same, or is not constant."""
    place = parameters[0]["skipped_at"] + attribute // 64
    blocks.keys[block, place] &= ~(np.uint64(1) << np.uint64(attribute % 64))


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
    """What the samples in the statistics at a place of a block count for: their number, if none has a weight."""
    if is_regression:
        return np.int64(counters[block, place])
    total = np.int64(0)
    for c in range(width):
        total += np.int64(counters[block, place + c])
    return total


# -- chosen samples ---------------------------------------------------------------------------------


@pasted
def choice_hash(node_key, id_hash):
    """What decides whether a sample is chosen at a node."""
    return mix(node_key ^ id_hash)


@pasted
def choice_limit(parameters, blocks, block, node_key, n_samples):
    """Write the limit of the hashes of chosen samples to a block's head; returns whether all samples are chosen."""
    size = 1.0 + unit(combine(node_key, CHOICE_SIZES))
    while size < n_samples:
        size *= 2.0
    wanted = np.float64(parameters[0]["n_chosen"])
    is_all = size <= wanted
    limit = _ALL if is_all else np.uint64(wanted / size * _TWO_TO_63) << np.uint64(1)
    blocks.keys[block, CHOICE_LIMIT] = limit
    blocks.halves[block, N_LEAST] = np.int32(size / 2.0) + np.int32(1)
    blocks.halves[block, N_MOST] = np.int32(size)
    return is_all


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


@pasted
def cell_of(reals, halves, block, at, x):
    """The cell of a number, counted from the first one."""
    lo = reals[block, at + LO]
    scale = reals[block, at + SCALE]
    if lo == reals[block, at + HI]:
        return np.int64(0)
    if scale == 0.0:
        return np.int64(x > lo)
    number = cell_number(x, scale, reals[block, at + PHASE]) - reals[block, at + FIRST]
    return np.int64(min(max(number, 0.0), np.float64(halves[block, 2 * at + N_CELLS] - 1)))


@pasted
def _keeps_range(reals, halves, block, at, x, sign, is_chosen):
    """Whether the candidates of a numeric attribute are the same after a sample with a value has come or left."""
    lo, hi = reals[block, at + LO], reals[block, at + HI]
    spread = halves[block, 2 * at + AT_HI]
    if spread >= 0:
        if not is_chosen:
            return True
        if x < lo or x > hi:
            return False
        halves[block, 2 * at + AT_LO] += np.int32(sign) * np.int32(x == lo)
        halves[block, 2 * at + AT_HI] += np.int32(sign) * np.int32(x == hi)
        return halves[block, 2 * at + AT_LO] > 0 and halves[block, 2 * at + AT_HI] > 0
    if spread == NO_VALUE:
        return not is_chosen
    # All chosen samples have one value.
    value = lo if hi == np.inf else hi
    return x == value or not (is_chosen or lo == hi or (x > value and hi != np.inf))


@pasted
def _update_numeric(parameters, blocks, block, used, x, target, sign, is_chosen, is_regression):
    """Bring a numeric attribute's counters up to date; False when its candidates change."""
    at = attribute_at(parameters, used)
    reals = blocks.reals
    halves = blocks.halves
    width = parameters[0]["width"]
    place = counters_at(parameters, used)
    is_single = reals[block, at + LO] == reals[block, at + HI]
    spread = halves[block, 2 * at + AT_HI]
    if np.isnan(x):
        halves[block, 2 * at + MISSING] += sign
        place += (parameters[0]["n_counters"] - 1) * width
        count_in(blocks.counters, block, place, target, sign, is_regression)
        if is_chosen and (is_single or spread < 0):
            return False
        return not is_single or halves[block, 2 * at + MISSING] > 0
    if not _keeps_range(reals, halves, block, at, x, sign, is_chosen):
        return False
    place += cell_of(reals, halves, block, at, x) * width
    count_in(blocks.counters, block, place, target, sign, is_regression)
    # Of an attribute that is spread the chosen samples are on both sides of each candidate.
    return spread >= 0 or size_at(blocks.counters, block, place, width, is_regression) > 0


@pasted
def _update_categorical(parameters, blocks, block, used, hashed, target, sign, key, is_chosen, is_regression):
    """Bring a categorical attribute's counters up to date; False when its candidates change."""
    width = parameters[0]["width"]
    listed = categories_at(parameters, used)
    chosen = chosen_at(parameters, used)
    first_place = counters_at(parameters, used)
    n_thresholds = parameters[0]["n_thresholds"]
    # As many coins come up one way as the other: added up without asking, they cost no wrong guesses.
    for j in range(1, n_thresholds, 2):
        if is_repeat(parameters, blocks, block, used, j):
            continue
        lands_left = np.int64(in_subset(combine(key, np.uint64(j)), hashed))
        count_in(blocks.counters, block, first_place + j * width, target, sign * lands_left, is_regression)
    stands = True
    for j in range(0, n_thresholds, 2):
        isolated = blocks.keys[block, listed + j // 2]
        if hashed == isolated:
            if not is_repeat(parameters, blocks, block, used, j):
                count_in(blocks.counters, block, first_place + j * width, target, sign, is_regression)
            if is_chosen:
                blocks.halves[block, chosen + j // 2] += np.int32(sign)
                stands &= blocks.halves[block, chosen + j // 2] != 0
        elif is_chosen and sign == ADD:
            candidate_key = combine(key, np.uint64(j))
            stands &= category_rank(candidate_key, hashed) >= category_rank(candidate_key, isolated)
    if not stands:
        return False
    # All chosen samples, or all samples, are of one category when they are of that which the first candidate isolates.
    was_spread = blocks.halves[block, 2 * attribute_at(parameters, used) + AT_HI] >= 0
    if was_spread != (blocks.halves[block, chosen] < blocks.halves[block, N_CHOSEN]):
        return False
    n_all = size_at(blocks.counters, block, totals_at(parameters), width, is_regression)
    return size_at(blocks.counters, block, first_place, width, is_regression) < n_all


@pasted
def _makes_spread(data, parameters, scratch, blocks, block, slot, is_chosen):
    """Whether an added sample changes which attributes a node uses: it differs in a column that was passed over."""
    filled = blocks.halves[block, IS_FILLED] != 0
    if not (is_chosen or filled):
        return False
    place = parameters[0]["skipped_at"]
    if not (is_chosen and filled):
        passed = np.uint64(0)
        for i in range(scratch.differing.shape[0]):
            passed |= blocks.keys[block, place + i]
        if passed == np.uint64(0):
            return False
    differing = scratch.differing
    note_differences(data, differing, slot, blocks.longs[block, REPRESENTATIVE])
    if is_chosen and filled:
        # All columns have been looked at: whichever is not spread would be now.
        for used in range(blocks.longs[block, N_ATTRIBUTES]):
            at = 2 * attribute_at(parameters, used)
            if blocks.halves[block, at + AT_HI] >= 0:
                column = np.uint64(blocks.halves[block, at + ATTRIBUTE])
                differing[column >> np.uint64(6)] &= ~(np.uint64(1) << (column & np.uint64(63)))
        found = np.uint64(0)
        for i in range(differing.shape[0]):
            found |= differing[i]
        return found != np.uint64(0)
    found = np.uint64(0)
    for i in range(differing.shape[0]):
        found |= differing[i] & blocks.keys[block, place + i]
    return found != np.uint64(0)


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

    n_samples  of the node, afterwards

    After False the counters mean nothing. O(p), and O(p s) for categorical columns.
    """
    halves = blocks.halves
    if n_samples < halves[block, N_LEAST] or n_samples > halves[block, N_MOST]:
        return False
    is_chosen = choice_hash(key, data.id_hashes[slot]) <= blocks.keys[block, CHOICE_LIMIT]
    if is_chosen:
        halves[block, N_CHOSEN] += np.int32(sign)
        if halves[block, N_CHOSEN] == 0 or (sign == DELETE and slot == blocks.longs[block, REPRESENTATIVE]):
            return False
    if sign == ADD and _makes_spread(data, parameters, scratch, blocks, block, slot, is_chosen):
        return False
    is_regression = parameters[0]["is_regression"] != 0
    target = data.targets[slot]
    count_in(blocks.counters, block, totals_at(parameters), target, sign, is_regression)
    if is_regression and not _update_target_range(blocks, block, value_of(target), sign):
        return False
    for used in range(blocks.longs[block, N_ATTRIBUTES]):
        attribute = np.int64(halves[block, 2 * attribute_at(parameters, used) + ATTRIBUTE])
        x = data.cells[slot, attribute]
        if data.categorical[attribute]:
            hashed = category_hash(data.category_hashes, x)
            attributes_key = attribute_key(key, attribute)
            stands = _update_categorical(
                parameters, blocks, block, used, hashed, target, sign, attributes_key, is_chosen, is_regression
            )
        else:
            stands = _update_numeric(
                parameters, blocks, block, used, np.float64(x), target, sign, is_chosen, is_regression
            )
        if not stands:
            return False
    return True
