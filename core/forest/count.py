"""Counting a node's samples into a block: ranges, grids and candidate counters."""

import numpy as np

from oubli.core.forest.blocks import (
    AT_HI,
    AT_LO,
    ATTRIBUTE,
    COPIES_HI,
    COPIES_LO,
    FIRST,
    HI,
    IS_COUNTED,
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
    category_rank,
    clear_block,
    counters_at,
    in_subset,
    skip_attribute,
    totals_at,
)
from oubli.core.forest.candidates import cell_number, draw_phase, fit_scale, is_usable
from oubli.core.forest.leaves import count_in
from oubli.core.forest.state import NIL
from oubli.core.forest.workspace import (
    AT_HAND,
    IS_REGRESSION,
    MAX_FEATURES,
    N_COUNTERS,
    N_THRESHOLDS,
    PADDING,
    WIDTH,
)
from oubli.core.jit.policy import inner, pasted, spliced
from oubli.core.rng import ATTRIBUTE_ORDER, MISSING_CATEGORY, bounded, combine


@pasted
def _count_classes(parameters, scratch, blocks, block, n_samples):
    """Fill a block's totals; returns whether the samples are of one class."""
    place = np.uint64(totals_at(parameters))
    for i in range(n_samples):
        blocks.counters[block, place + np.uint64(scratch.node_targets[i])] += 1
    return np.int64(blocks.counters[block, place + np.uint64(scratch.node_targets[0])]) == n_samples


@pasted
def _count_values(parameters, scratch, blocks, block, n_samples):
    """Fill a block's totals and target range (regression); returns whether the targets are all equal."""
    lo = scratch.node_targets[0]
    hi = scratch.node_targets[0]
    total = np.int64(0)
    for i in range(n_samples):
        target = scratch.node_targets[i]
        total += target
        lo = min(lo, target)
        hi = max(hi, target)
    copies_lo = 0
    copies_hi = 0
    for i in range(n_samples):
        copies_lo += np.int64(scratch.node_targets[i] == lo)
        copies_hi += np.int64(scratch.node_targets[i] == hi)
    longs = blocks.longs
    longs[block, TARGET_LO] = lo
    longs[block, TARGET_HI] = hi
    longs[block, COPIES_LO] = copies_lo
    longs[block, COPIES_HI] = copies_hi
    place = totals_at(parameters)
    blocks.counters[block, place] = n_samples
    blocks.counters[block, place + 1] = total
    return lo == hi


@pasted
def count_targets(parameters, scratch, blocks, block, start, end):
    """Gather the node's targets and fill a block's totals; returns whether the samples are pure."""
    for i in range(start, end):
        scratch.node_targets[i - start] = scratch.targets[np.uint64(scratch.order[i])]
    if parameters.values[IS_REGRESSION] != 0:
        return _count_values(parameters, scratch, blocks, block, end - start)
    return _count_classes(parameters, scratch, blocks, block, end - start)


@pasted
def padded(n_samples):
    """Number of values that loops over a gathered column go through."""
    return (n_samples + (PADDING - 1)) // PADDING * PADDING


@pasted
def gather_column(data, scratch, attribute, start, end, is_copied):
    """Copy one column of the node's samples to scratch.values, padded with copies of the first.

    is_copied  whether scratch.columns holds the cells
    """
    values = scratch.values
    order = scratch.order
    column = np.uint64(attribute)
    if is_copied:
        for i in range(start, end):
            values[i - start] = scratch.columns[column, np.uint64(order[i])]
    else:
        for i in range(start, end):
            values[i - start] = data.cells[np.uint64(scratch.slots[np.uint64(order[i])]), column]
    first = values[0]
    for i in range(end - start, padded(end - start)):
        values[i] = first


@pasted
def _key_of(bits, sign_shift, magnitude):
    """Order of a float, by its bits: an integer that grows with it. NaN, of which there is one, is the largest."""
    return bits ^ ((bits >> sign_shift) & magnitude)


@pasted
def _value_of(scratch, key, sign_shift, magnitude):
    scratch.end_bits[0] = _key_of(key, sign_shift, magnitude)
    return np.float64(scratch.end[0])


@pasted
def find_range(scratch, n_samples):
    """Range of the gathered values and number of those that are missing.

    By integers, for LLVM vectorises no minimum of floats that may be NaN. With all values missing
    the range is that of a NaN.
    """
    bits = scratch.value_bits
    sign_shift, magnitude, largest = scratch.bit_constants
    first = _key_of(bits[0], sign_shift, magnitude)
    lo = first
    hi = -magnitude
    n_missing = 0
    for i in range(padded(n_samples)):
        key = _key_of(bits[i], sign_shift, magnitude)
        is_missing = key > largest
        lo = min(lo, key)
        hi = max(hi, -magnitude if is_missing else key)
        n_missing += is_missing
    if first > largest:
        n_missing -= padded(n_samples) - n_samples
    if n_missing == n_samples:
        return np.nan, np.nan, n_missing
    return (
        _value_of(scratch, lo, sign_shift, magnitude),
        _value_of(scratch, hi, sign_shift, magnitude),
        n_missing,
    )


@pasted
def _shuffle_next(scratch, order_key, drawn, n_features):
    """Draw the next attribute of the node's hash order."""
    permutation = scratch.permutation
    other = drawn + bounded(combine(order_key, np.uint64(drawn)), n_features - drawn)
    permutation[drawn], permutation[other] = permutation[other], permutation[drawn]
    scratch.swaps[drawn] = np.int32(other)
    return np.int64(permutation[drawn])


@pasted
def _restore_permutation(scratch, n_drawn):
    permutation = scratch.permutation
    for i in range(n_drawn - 1, -1, -1):
        other = scratch.swaps[i]
        permutation[i], permutation[other] = permutation[other], permutation[i]


@pasted
def _store_range(scratch, blocks, block, at, lo, hi, n_missing, n_samples):
    """Write the range of the gathered column to the attribute, and how many samples are at its ends.

    The latter is for mutations, which the working space never sees.
    """
    blocks.reals[block, at + LO] = lo
    blocks.reals[block, at + HI] = hi
    blocks.halves[block, 2 * at + MISSING] = np.int32(n_missing)
    if block == 0:
        return
    values = scratch.values
    at_lo = 0
    at_hi = 0
    for i in range(n_samples):
        x = np.float64(values[i])
        at_lo += np.int64(x == lo)
        at_hi += np.int64(x == hi)
    blocks.halves[block, 2 * at + AT_LO] = np.int32(at_lo)
    blocks.halves[block, 2 * at + AT_HI] = np.int32(at_hi)


@pasted
def lay_grid(parameters, scratch, blocks, block, at, key):
    """Fit the grid of a numeric attribute to its range; `key` is the attribute's."""
    reals = blocks.reals
    lo = reals[block, at + LO]
    hi = reals[block, at + HI]
    reals[block, at + SCALE] = 0.0
    reals[block, at + PHASE] = 0.0
    reals[block, at + FIRST] = 0.0
    n_cells = 2
    if lo < hi:
        scale = fit_scale(lo, hi, parameters.values[N_THRESHOLDS], scratch.number, scratch.number_bits)
        phase = draw_phase(key)
        if is_usable(lo, hi, scale, phase, parameters.values[N_COUNTERS] - 1):
            first = cell_number(lo, scale, phase)
            n_cells = np.int64(cell_number(hi, scale, phase) - first) + 1
            reals[block, at + SCALE] = scale
            reals[block, at + PHASE] = phase
            reals[block, at + FIRST] = first
    blocks.halves[block, 2 * at + N_CELLS] = np.int32(n_cells)


@pasted
def _find_places(parameters, scratch, blocks, block, at, width, n_samples):
    """Write each gathered value's row of counters, times the width, to scratch.places."""
    scale = blocks.reals[block, at + SCALE]
    phase = blocks.reals[block, at + PHASE]
    first = blocks.reals[block, at + FIRST]
    lo = blocks.reals[block, at + LO]
    values = scratch.values
    places = scratch.places
    missing = np.float64(parameters.values[N_COUNTERS] - 1)
    factor = np.float64(width)
    if scale == 0.0:
        for i in range(padded(n_samples)):
            x = np.float64(values[i])
            number = missing if x != x else np.float64(x > lo)
            places[i] = np.int32(number * factor)
        return
    for i in range(padded(n_samples)):
        x = np.float64(values[i])
        number = missing if x != x else cell_number(x, scale, phase) - first
        places[i] = np.int32(number * factor)


@pasted
def _count_places(parameters, scratch, blocks, block, used, n_samples):
    """Count the samples' targets in the rows of counters found for them."""
    counters = blocks.counters
    base = np.uint64(counters_at(parameters, used))
    targets = scratch.node_targets
    places = scratch.places
    if parameters.values[IS_REGRESSION] != 0:
        for i in range(n_samples):
            place = base + np.uint64(places[i])
            counters[block, place] += 1
            counters[block, place + np.uint64(1)] += targets[i]
        return
    for i in range(n_samples):
        counters[block, base + np.uint64(places[i]) + np.uint64(targets[i])] += 1


@pasted
def count_numeric(parameters, scratch, blocks, block, used, key, lo, hi, n_missing, n_samples):
    """Fit the grid of a gathered numeric column and count the samples of each cell."""
    at = attribute_at(parameters, used)
    _store_range(scratch, blocks, block, at, lo, hi, n_missing, n_samples)
    lay_grid(parameters, scratch, blocks, block, at, key)
    width = parameters.values[WIDTH]
    _find_places(parameters, scratch, blocks, block, at, width, n_samples)
    _count_places(parameters, scratch, blocks, block, used, n_samples)


@inner
def list_categories(data, parameters, scratch, n_samples):
    """Count the targets of each category in the gathered column into the working space.

    Returns the number of categories, missing values being one of them. O(n).
    """
    is_regression = parameters.values[IS_REGRESSION] != 0
    missing_code = data.category_hashes.shape[0]
    n_categories = 0
    for i in range(n_samples):
        x = scratch.values[i]
        code = missing_code if np.isnan(x) else np.int64(x)
        place = np.int64(scratch.category_places[code])
        if place == NIL:
            place = n_categories
            scratch.category_places[code] = np.int32(place)
            scratch.category_codes[place] = np.int32(code)
            for c in range(scratch.category_statistics.shape[1]):
                scratch.category_statistics[place, c] = 0
            n_categories += 1
        count_in(scratch.category_statistics, place, scratch.node_targets[i], 1, is_regression)
    for place in range(n_categories):
        code = np.int64(scratch.category_codes[place])
        scratch.category_places[code] = np.int32(NIL)
        scratch.category_keys[place] = MISSING_CATEGORY if code == missing_code else data.category_hashes[code]
    return n_categories


@inner
def _add_category(scratch, category, counters, block, place):
    for c in range(scratch.category_statistics.shape[1]):
        counters[block, place + c] += scratch.category_statistics[category, c]


@inner
def count_categorical(data, parameters, scratch, blocks, block, used, key, n_samples):
    """Choose the categories of the one-vs-rest candidates and count every candidate's left side.

    O(n + m s) for m categories at the node.
    """
    hashes = scratch.category_keys
    width = parameters.values[WIDTH]
    listed = categories_at(parameters, used)
    n_categories = list_categories(data, parameters, scratch, n_samples)
    for j in range(parameters.values[N_THRESHOLDS]):
        candidate_key = combine(key, np.uint64(j))
        place = counters_at(parameters, used) + j * width
        if j % 2 == 1:
            for category in range(n_categories):
                if in_subset(candidate_key, hashes[category]):
                    _add_category(scratch, category, blocks.counters, block, place)
            continue
        chosen = 0
        best = category_rank(candidate_key, hashes[0])
        for category in range(1, n_categories):
            rank = category_rank(candidate_key, hashes[category])
            if rank < best:
                best = rank
                chosen = category
        blocks.keys[block, listed + j // 2] = hashes[chosen]
        _add_category(scratch, chosen, blocks.counters, block, place)


@spliced
def count_candidates(data, parameters, scratch, blocks, block, key, start, end, is_copied):
    """Fill a block from the samples scratch.order[start:end] of the node with this key.

    Takes the first p columns in the node's hash order that are not constant.

    is_copied  whether scratch.columns holds the cells

    The columns known to be constant are in scratch.constants; what is found is added.

    Returns whether there is anything to choose from: the samples are impure and not all equal.
    O(n p) plus the block's size.
    """
    clear_block(blocks, block)
    if count_targets(parameters, scratch, blocks, block, start, end):
        return False
    n_features = data.cells.shape[1]
    order_key = combine(key, ATTRIBUTE_ORDER)
    wanted = min(parameters.values[MAX_FEATURES], n_features)
    used = 0
    drawn = 0
    while drawn < n_features and used < wanted:
        attribute = _shuffle_next(scratch, order_key, drawn, n_features)
        drawn += 1
        is_constant = scratch.constants[AT_HAND, attribute]
        if not is_constant:
            gather_column(data, scratch, attribute, start, end, is_copied)
            lo, hi, n_missing = find_range(scratch, end - start)
            is_constant = n_missing == end - start or (lo == hi and n_missing == 0)
        if is_constant:
            scratch.constants[AT_HAND, attribute] = True
            skip_attribute(parameters, blocks, block, attribute)
            continue
        blocks.halves[block, 2 * attribute_at(parameters, used) + ATTRIBUTE] = np.int32(attribute)
        candidates_key = attribute_key(key, attribute)
        if data.categorical[attribute]:
            count_categorical(data, parameters, scratch, blocks, block, used, candidates_key, end - start)
        else:
            count_numeric(parameters, scratch, blocks, block, used, candidates_key, lo, hi, n_missing, end - start)
        used += 1
    _restore_permutation(scratch, drawn)
    blocks.longs[block, N_ATTRIBUTES] = used
    blocks.longs[block, IS_COUNTED] = 1
    return used > 0
