"""Bringing a node's counters up to date for one sample that comes or goes."""

import numpy as np

from oubli.core.forest.blocks import (
    AT_HI,
    AT_LO,
    ATTRIBUTE,
    COPIES_HI,
    COPIES_LO,
    FIRST,
    HI,
    LO,
    MISSING,
    N_ATTRIBUTES,
    N_CELLS,
    PHASE,
    SCALE,
    TARGET_HI,
    TARGET_LO,
    attribute_at,
    attribute_key,
    categories_at,
    category_hash,
    category_rank,
    count_at,
    counters_at,
    in_subset,
    size_at,
    totals_at,
)
from oubli.core.forest.candidates import cell_number, fit_scale, is_usable
from oubli.core.forest.workspace import IS_REGRESSION, N_COUNTERS, N_THRESHOLDS, WIDTH
from oubli.core.jit.policy import inner, pasted
from oubli.core.rng import combine

ADD = 1
DELETE = -1


@inner
def _shift_counters(parameters, blocks, block, used, n_cells, shift):
    """Make room for `shift` cells below the first."""
    width = parameters.values[WIDTH]
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
    n_thresholds = parameters.values[N_THRESHOLDS]
    if scale == 0.0 or fit_scale(lo, hi, n_thresholds, scratch.number, scratch.number_bits) != scale:
        return False
    if not is_usable(lo, hi, scale, phase, parameters.values[N_COUNTERS] - 1):
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
    width = parameters.values[WIDTH]
    place = counters_at(parameters, used)
    if np.isnan(x):
        halves[block, 2 * at + MISSING] += sign
        place += (parameters.values[N_COUNTERS] - 1) * width
        count_at(blocks.counters, block, place, target, sign, is_regression)
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
    count_at(blocks.counters, block, place + cell * width, target, sign, is_regression)
    return True


@pasted
def _update_categorical(parameters, blocks, block, used, hashed, target, sign, key, n_samples, is_regression):
    """Bring a categorical attribute's counters up to date; False when its candidates change."""
    width = parameters.values[WIDTH]
    listed = categories_at(parameters, used)
    first_place = counters_at(parameters, used)
    n_thresholds = parameters.values[N_THRESHOLDS]
    # As many coins come up one way as the other: added up without asking, they cost no wrong guesses.
    for j in range(1, n_thresholds, 2):
        lands_left = np.int64(in_subset(combine(key, np.uint64(j)), hashed))
        count_at(blocks.counters, block, first_place + j * width, target, sign * lands_left, is_regression)
    stands = True
    for j in range(0, n_thresholds, 2):
        chosen = blocks.keys[block, listed + j // 2]
        if hashed == chosen:
            place = first_place + j * width
            count_at(blocks.counters, block, place, target, sign, is_regression)
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
    is_regression = parameters.values[IS_REGRESSION] != 0
    target = data.targets[slot]
    count_at(blocks.counters, block, totals_at(parameters), target, sign, is_regression)
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
