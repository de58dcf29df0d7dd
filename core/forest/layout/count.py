"""The count of a node's samples into a block: grids and candidate counters."""

import numpy as np

from oubli.core.forest.layout.blocks import (
    AT_HI,
    ATTRIBUTE,
    COPIES_HI,
    COPIES_LO,
    FIRST,
    HI,
    IS_COUNTED,
    IS_FILLED,
    LO,
    MISSING,
    N_ATTRIBUTES,
    N_CELLS,
    NOT_SPREAD,
    PHASE,
    SCALE,
    TARGET_HI,
    TARGET_LO,
    attribute_at,
    attribute_key,
    below,
    categories_at,
    category_rank,
    cell_number,
    chosen_at,
    counters_at,
    draw_phase,
    fit_scale,
    is_usable,
    note_repeat,
    skip_attribute,
    take_attribute,
    totals_at,
)
from oubli.core.forest.layout.cells import (
    count_ones_of,
    find_constants,
    find_range,
    gather_column,
    is_bit_column,
    padded,
)
from oubli.core.forest.layout.chosen import (
    choose_samples,
    chosen_bit,
    chosen_numbers,
    count_chosen_ones,
    find_spread_bits,
    is_spread,
    store_ends,
    store_range,
    store_value,
)
from oubli.core.forest.state import count_in
from oubli.core.forest.workspace import AT_HAND, N_COMPARED
from oubli.core.jit.aligned import count_ones, trailing_zeros
from oubli.core.jit.nodes import NIL, in_subset
from oubli.core.jit.policy import inner, pasted
from oubli.core.jit.targets import value_of
from oubli.core.rng import ATTRIBUTE_ORDER, MISSING_CATEGORY, bounded, combine

_DRAWN_AT_ONCE = 8


@pasted
def _count_classes(parameters, scratch, blocks, block, n_samples):
    """Fill a block's totals; returns whether the samples are of one class."""
    place = np.uint64(totals_at(parameters))
    if parameters[0]["width"] == 2:
        # The usual case. The code of the second class is 1: its sum is its count.
        n_second = np.int64(0)
        for i in range(n_samples):
            n_second += scratch.node_targets[i]
        blocks.counters[block, place] = n_samples - n_second
        blocks.counters[block, place + np.uint64(1)] = n_second
        return n_second == 0 or n_second == n_samples
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
def _count_weighed(parameters, scratch, blocks, block, n_samples):
    """Fill a block's totals, and the target range of a regression, from targets with weights; whether all are equal."""
    is_regression = parameters[0]["is_regression"] != 0
    place = totals_at(parameters)
    lo = value_of(scratch.node_targets[0])
    hi = lo
    for i in range(n_samples):
        target = scratch.node_targets[i]
        count_in(blocks.counters, block, place, target, 1, is_regression)
        lo = min(lo, value_of(target))
        hi = max(hi, value_of(target))
    if is_regression:
        copies_lo = 0
        copies_hi = 0
        for i in range(n_samples):
            value = value_of(scratch.node_targets[i])
            copies_lo += np.int64(value == lo)
            copies_hi += np.int64(value == hi)
        blocks.longs[block, TARGET_LO] = lo
        blocks.longs[block, TARGET_HI] = hi
        blocks.longs[block, COPIES_LO] = copies_lo
        blocks.longs[block, COPIES_HI] = copies_hi
    return lo == hi


@inner
def _number_classes(parameters, scratch, n_samples):
    """Number the classes of the node at hand from 0 on; returns the place of the parameters for so few classes.

    It is 0, and nothing has changed, where that would save nothing.
    """
    most = parameters[parameters.shape[0] - 1]["width"]
    places = scratch.class_places
    targets = scratch.node_targets
    n_classes = np.int64(0)
    i = np.int64(0)
    while i < n_samples and n_classes <= most:
        code = value_of(targets[i])
        if places[code] == NIL:
            places[code] = np.int32(n_classes)
            scratch.class_codes[n_classes] = np.int32(code)
            n_classes += 1
        i += 1
    row = np.int64(0)
    if n_classes <= most:
        row = np.int64(1)
        while parameters[row]["width"] < n_classes:
            row += 1
        for i in range(n_samples):
            code = value_of(targets[i])
            targets[i] += np.int64(places[code]) - code
    for i in range(n_classes):
        places[scratch.class_codes[i]] = np.int32(NIL)
    return row


@pasted
def gather_targets(parameters, scratch, start, end, is_kept):
    """Gather a node's targets; returns the place of the parameters to count and score them with.

    A node of few samples has few of many classes, and counters of the others would take most of the time. Only a block
    that is kept has them.
    """
    for i in range(start, end):
        scratch.node_targets[np.uint64(i - start)] = scratch.targets[np.uint64(scratch.order[np.uint64(i)])]
    row = np.int64(0)
    if not is_kept and parameters.shape[0] > 1:
        row = _number_classes(parameters, scratch, end - start)
    return row


@pasted
def _count_targets(parameters, scratch, blocks, block, n_samples):
    """Fill a block's totals; returns whether the samples are pure."""
    if parameters[0]["has_weights"] != 0:
        return _count_weighed(parameters, scratch, blocks, block, n_samples)
    if parameters[0]["is_regression"] != 0:
        return _count_values(parameters, scratch, blocks, block, n_samples)
    return _count_classes(parameters, scratch, blocks, block, n_samples)


@pasted
def _is_constant(scratch, attribute):
    """Whether a column is known to be constant."""
    return (scratch.constants[AT_HAND, attribute >> 6] >> np.uint64(attribute & 63)) & np.uint64(1) != 0


@pasted
def _draw_some(scratch, order_key, drawn, end, n_features, n_found, takes_all):
    """Draw the attributes number drawn .. end of the node's hash order.

    Writes those that are not known to be constant, or all of them, to scratch.found; returns how many there are.
    """
    permutation = scratch.permutation
    swaps = scratch.swaps
    for i in range(drawn, end):
        swaps[i] = np.int32(i + bounded(combine(order_key, np.uint64(i)), n_features - i))
    for i in range(drawn, end):
        other = np.uint64(swaps[i])
        attribute = permutation[other]
        permutation[other] = permutation[i]  # place i is not drawn from any more
        scratch.found[n_found] = attribute
        # As good as random: without a branch.
        n_found += 1 - np.int64(not takes_all and _is_constant(scratch, np.int64(attribute)))
    return n_found


@pasted
def _restore_permutation(scratch, n_drawn):
    for i in range(n_drawn):
        other = scratch.swaps[i]
        scratch.permutation[np.uint64(other)] = other


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
    if lo < hi and blocks.halves[block, 2 * at + AT_HI] >= 0:
        scale = fit_scale(lo, hi, parameters[0]["n_thresholds"], scratch.number, scratch.number_bits)
        phase = draw_phase(key)
        if is_usable(lo, hi, scale, phase, parameters[0]["n_counters"] - 1):
            first = cell_number(lo, scale, phase)
            n_cells = np.int64(cell_number(hi, scale, phase) - first) + 1
            reals[block, at + SCALE] = scale
            reals[block, at + PHASE] = phase
            reals[block, at + FIRST] = first
    blocks.halves[block, 2 * at + N_CELLS] = np.int32(n_cells)


@pasted
def _find_places(parameters, scratch, blocks, block, at, width, n_missing, n_samples):
    """Write each gathered value's row of counters, times the width, to scratch.places."""
    scale = blocks.reals[block, at + SCALE]
    phase = blocks.reals[block, at + PHASE]
    first = blocks.reals[block, at + FIRST]
    # With one candidate, missing against the rest, all values are in the first cell.
    lo = blocks.reals[block, at + LO]
    lo = np.inf if lo == blocks.reals[block, at + HI] else lo
    last = np.float64(blocks.halves[block, 2 * at + N_CELLS] - 1)
    values = scratch.values
    places = scratch.places
    missing = np.float64(parameters[0]["n_counters"] - 1)
    factor = np.float64(width)
    if scale == 0.0:
        for i in range(padded(n_samples)):
            x = np.float64(values[i])
            number = missing if x != x else np.float64(x > lo)
            places[i] = np.int32(number * factor)
        return
    if n_missing == 0:
        for i in range(padded(n_samples)):
            number = cell_number(np.float64(values[i]), scale, phase) - first
            places[i] = np.int32(min(max(number, 0.0), last) * factor)
        return
    for i in range(padded(n_samples)):
        x = np.float64(values[i])
        number = min(max(cell_number(x, scale, phase) - first, 0.0), last)
        number = missing if x != x else number
        places[i] = np.int32(number * factor)


@pasted
def _count_places(parameters, scratch, blocks, block, used, n_samples):
    """Count the samples' targets in the rows of counters found for them."""
    counters = blocks.counters
    base = np.uint64(counters_at(parameters, used))
    targets = scratch.node_targets
    places = scratch.places
    if parameters[0]["has_weights"] != 0:
        is_regression = parameters[0]["is_regression"] != 0
        for i in range(n_samples):
            count_in(counters, block, np.int64(base) + np.int64(places[i]), targets[i], 1, is_regression)
        return
    if parameters[0]["is_regression"] != 0:
        for i in range(n_samples):
            place = base + np.uint64(places[i])
            counters[block, place] += 1
            counters[block, place + np.uint64(1)] += targets[i]
        return
    for i in range(n_samples):
        counters[block, base + np.uint64(places[i]) + np.uint64(targets[i])] += 1


@pasted
def count_numeric(data, parameters, scratch, blocks, block, used, key, chosen, n_samples):
    """Fit the grid of a gathered numeric column and count the samples of each cell."""
    at = attribute_at(parameters, used)
    n_missing = chosen.n_missing
    if chosen.n < n_samples:
        n_missing = np.int64(0)
        for i in range(n_samples):
            n_missing += np.int64(scratch.values[i] != scratch.values[i])
    if is_spread(chosen):
        store_range(scratch, blocks, block, at, chosen, n_samples)
    else:
        store_value(data, scratch, blocks, block, at, chosen, n_samples)
    blocks.halves[block, 2 * at + MISSING] = np.int32(n_missing)
    lay_grid(parameters, scratch, blocks, block, at, key)
    if block == 0:
        _clear_counters(parameters, blocks, used, np.int64(blocks.halves[block, 2 * at + N_CELLS]))
    width = parameters[0]["width"]
    _find_places(parameters, scratch, blocks, block, at, width, n_missing, n_samples)
    _count_places(parameters, scratch, blocks, block, used, n_samples)


@inner
def list_categories(data, parameters, scratch, n_chosen, n_samples):
    """Count the targets of each category in the gathered column into the working space, and its chosen samples.

    Returns the number of categories, and that of those of chosen samples, which come first; missing values are one of
    them. O(n).
    """
    is_regression = parameters[0]["is_regression"] != 0
    missing_code = data.category_hashes.shape[0]
    n_categories = 0
    n_of_chosen = 0
    first = -n_chosen if n_chosen < n_samples else 0
    for i in range(first, n_samples):
        # The chosen samples come first, and once more with all others.
        x = scratch.values[scratch.chosen[i - first] if i < 0 else i]
        code = missing_code if np.isnan(x) else np.int64(x)
        place = np.int64(scratch.category_places[code])
        if place == NIL:
            place = n_categories
            scratch.category_places[code] = np.int32(place)
            scratch.category_codes[place] = np.int32(code)
            scratch.category_chosen[place] = 0
            for c in range(parameters[0]["width"]):
                scratch.category_statistics[place, c] = 0
            n_categories += 1
        if i < 0 or first == 0:
            scratch.category_chosen[place] += 1
            n_of_chosen = n_categories
        if i >= 0:
            count_in(scratch.category_statistics, place, 0, scratch.node_targets[i], 1, is_regression)
    for place in range(n_categories):
        code = np.int64(scratch.category_codes[place])
        scratch.category_places[code] = np.int32(NIL)
        scratch.category_keys[place] = MISSING_CATEGORY if code == missing_code else data.category_hashes[code]
    return n_categories, n_of_chosen


@pasted
def _add_subset(parameters, scratch, counters, block, place, candidate_key, n_categories):
    """Count the left side of a candidate that sends categories left by their coins.

    As many coins come up one way as the other: added up without asking, they cost no wrong guesses.
    """
    hashes = scratch.category_keys
    statistics = scratch.category_statistics
    if parameters[0]["width"] == 2:
        first = np.int64(0)
        second = np.int64(0)
        for category in range(n_categories):
            mask = -np.int64(in_subset(candidate_key, hashes[category]))
            first += mask & statistics[category, 0]
            second += mask & statistics[category, 1]
        counters[block, place] = first
        counters[block, place + 1] = second
        return
    for category in range(n_categories):
        lands_left = np.int64(in_subset(candidate_key, hashes[category]))
        for c in range(parameters[0]["width"]):
            counters[block, place + c] += lands_left * statistics[category, c]


@pasted
def _isolate(parameters, scratch, blocks, block, used, key, n_of_chosen):
    """Choose the category that each one-vs-rest candidate isolates.

    Lists the different ones of the first candidates in scratch.isolated; returns how many there are.
    """
    hashes = scratch.category_keys
    listed = categories_at(parameters, used)
    counted = chosen_at(parameters, used)
    n_isolated = 0
    for j in range(0, parameters[0]["n_thresholds"], 2):
        candidate_key = combine(key, np.uint64(j))
        chosen = 0
        best = category_rank(candidate_key, hashes[0])
        for category in range(1, n_of_chosen):
            rank = category_rank(candidate_key, hashes[category])
            if rank < best:
                best = rank
                chosen = category
        blocks.keys[block, listed + j // 2] = hashes[chosen]
        blocks.halves[block, counted + j // 2] = scratch.category_chosen[chosen]
        scratch.isolated_places[j // 2] = np.int32(chosen)
        if j < N_COMPARED:
            i = 0
            while i < n_isolated and scratch.isolated[i] != hashes[chosen]:
                i += 1
            scratch.isolated[i] = hashes[chosen]
            n_isolated = max(n_isolated, i + 1)
    return n_isolated


@pasted
def _division_of(scratch, candidate_key, n_isolated):
    """A name of how a subset candidate divides the isolated categories: the same whichever side is called left."""
    left = np.uint64(0)
    right = np.uint64(0)
    for i in range(n_isolated):
        hashed = scratch.isolated[i]
        mask = np.uint64(0) - np.uint64(in_subset(candidate_key, hashed))
        left ^= hashed & mask
        right ^= hashed & ~mask
    return min(left, right)


@pasted
def _repeats(scratch, j, division):
    """Whether one of the first candidates before candidate j has the same division; notes that of candidate j."""
    if j < N_COMPARED:
        scratch.divisions[j] = division
    found = False
    for i in range(min(j, N_COMPARED)):
        found |= scratch.divisions[i] == division
    return found


@inner
def count_categorical(data, parameters, scratch, blocks, block, used, key, n_chosen, n_samples):
    """Choose the categories of the one-vs-rest candidates and count every candidate's left side.

    O(n + m s) for m categories at the node.
    """
    width = parameters[0]["width"]
    n_thresholds = parameters[0]["n_thresholds"]
    listed = categories_at(parameters, used)
    n_categories, n_of_chosen = list_categories(data, parameters, scratch, n_chosen, n_samples)
    at = attribute_at(parameters, used)
    store_ends(blocks, block, at, 0.0, 0.0, 0, 0 if n_of_chosen > 1 else NOT_SPREAD)
    if block == 0:
        _clear_counters(parameters, blocks, used, n_thresholds)
        blocks.halves[block, 2 * at + N_CELLS] = np.int32(0)
    n_isolated = _isolate(parameters, scratch, blocks, block, used, key, n_of_chosen)
    others = np.uint64(0)
    for i in range(n_isolated):
        others ^= scratch.isolated[i]
    for j in range(n_thresholds):
        candidate_key = combine(key, np.uint64(j))
        if j % 2 == 1:
            division = _division_of(scratch, candidate_key, n_isolated)
        else:
            isolated = blocks.keys[block, listed + j // 2]
            division = min(isolated, isolated ^ others)
        if _repeats(scratch, j, division):
            note_repeat(parameters, blocks, block, used, j)
            continue
        place = counters_at(parameters, used) + j * width
        if j % 2 == 1:
            _add_subset(parameters, scratch, blocks.counters, block, place, candidate_key, n_categories)
            continue
        category = scratch.isolated_places[j // 2]
        for c in range(width):
            blocks.counters[block, place + c] = scratch.category_statistics[category, c]


@pasted
def _count_bits(data, parameters, scratch, blocks, block, used, attribute, key, chosen, n_samples):
    """Count a bit column that is not constant: its samples are in the first cell of the grid and in the last."""
    at = attribute_at(parameters, used)
    width = parameters[0]["width"]
    zeros = counters_at(parameters, used)
    if is_spread(chosen):
        # How many are at the ends is for mutations, which the working space never sees.
        n_ones = count_chosen_ones(scratch, attribute, chosen.n, n_samples) if block != 0 else np.int64(0)
        store_ends(blocks, block, at, 0.0, 1.0, chosen.n - n_ones, n_ones)
    elif chosen.lo == 0.0:
        store_ends(blocks, block, at, 0.0, np.inf, 0, NOT_SPREAD)
    else:
        store_ends(blocks, block, at, below(1.0, data.cells), 1.0, 0, NOT_SPREAD)
    blocks.halves[block, 2 * at + MISSING] = np.int32(0)
    if block == 0:
        # The cells in between are left out, and the grid is laid when its split is chosen.
        blocks.halves[block, 2 * at + N_CELLS] = np.int32(2)
        blocks.reals[block, at + SCALE] = 0.0
        blocks.reals[block, at + FIRST] = 0.0
        ones = zeros + width
        for c in range(width):
            blocks.counters[block, ones + c] = 0
    else:
        lay_grid(parameters, scratch, blocks, block, at, key)
        ones = zeros + (np.int64(blocks.halves[block, 2 * at + N_CELLS]) - 1) * width
    count_ones_of(parameters, scratch, blocks.counters, block, ones, attribute, n_samples)
    totals = totals_at(parameters)
    for c in range(width):
        blocks.counters[block, zeros + c] = blocks.counters[block, totals + c] - blocks.counters[block, ones + c]


@pasted
def _clear_counters(parameters, blocks, used, n_rows):
    """Zero the first rows of an attribute's counters in the working space, and the last."""
    width = parameters[0]["width"]
    place = counters_at(parameters, used)
    for i in range(n_rows * width):
        blocks.counters[0, place + i] = 0
    place += (parameters[0]["n_counters"] - 1) * width
    for i in range(width):
        blocks.counters[0, place + i] = 0


@pasted
def _n_usable(scratch, n_features):
    """Number of columns that are not known to be constant."""
    n_constant = np.int64(0)
    for word in range(scratch.constants.shape[1]):
        n_constant += count_ones(scratch.constants[AT_HAND, word])
    return n_features - n_constant


@pasted
def _next_usable(scratch, attribute, n_features):
    """The first column from `attribute` on that is not known to be constant; n_features when there is none."""
    while attribute < n_features:
        rest = ~scratch.constants[AT_HAND, attribute >> 6] >> np.uint64(attribute & 63)
        if rest != 0:
            return min(attribute + trailing_zeros(rest), n_features)
        attribute = ((attribute >> 6) + 1) << 6
    return n_features


@pasted
def _count_attribute(
    data, parameters, scratch, blocks, block, used, attribute, key, start, end, first_copied, n_chosen, must_be_spread
):
    """Count an attribute of a node; False, and nothing is counted, when it is constant, or has to be spread and is not.

    A column that is constant is added to those known to be.
    """
    n_samples = end - start
    attributes_key = attribute_key(key, attribute)
    is_bit = is_bit_column(data, attribute)
    if is_bit:
        chosen = chosen_bit(scratch, attribute, n_chosen)
    else:
        chosen = chosen_numbers(data, scratch, attribute, start, end, first_copied, n_chosen)
    spread = is_spread(chosen)
    if not spread and (must_be_spread or n_chosen == n_samples):
        if n_chosen == n_samples:
            scratch.constants[AT_HAND, attribute >> 6] |= np.uint64(1) << np.uint64(attribute & 63)
        return False
    if is_bit:
        _count_bits(data, parameters, scratch, blocks, block, used, attribute, attributes_key, chosen, n_samples)
    else:
        if n_chosen < n_samples:
            gather_column(data, scratch, attribute, start, end, first_copied)
        if not spread:
            lo, hi, n_missing = find_range(scratch, n_samples)
            if n_missing == n_samples or (lo == hi and n_missing == 0):
                scratch.constants[AT_HAND, attribute >> 6] |= np.uint64(1) << np.uint64(attribute & 63)
                return False
        if data.categorical[attribute]:
            count_categorical(data, parameters, scratch, blocks, block, used, attributes_key, n_chosen, n_samples)
        else:
            count_numeric(data, parameters, scratch, blocks, block, used, attributes_key, chosen, n_samples)
    blocks.halves[block, 2 * attribute_at(parameters, used) + ATTRIBUTE] = np.int32(attribute)
    return True


@inner
def count_candidates(data, parameters, scratch, blocks, block, key, start, end, first_copied):
    """Fill a block from the samples scratch.order[start:end] of the node with this key, whose targets are gathered.

    Takes the first p columns in the node's hash order that are spread, then the first of the others that are not
    constant.

    parameters    from the place on that `gather_targets` returned
    first_copied  as in `gather_column`

    The columns known to be constant are in scratch.constants; what is found is added.

    Returns whether there is anything to choose from: the samples are impure and not all equal.
    O(n p) plus the block's size.
    """
    # Counters of the working space are zeroed when they are used.
    for i in range(parameters[0]["attributes_at"] if block == 0 else parameters[0]["size"]):
        blocks.longs[block, i] = 0
    if _count_targets(parameters, scratch, blocks, block, end - start):
        return False
    n_chosen = choose_samples(parameters, scratch, blocks, block, key, start, end)
    find_constants(data, scratch, start, end)
    find_spread_bits(data, scratch, n_chosen, end - start)
    n_features = data.cells.shape[1]
    order_key = combine(key, ATTRIBUTE_ORDER)
    wanted = min(parameters[0]["max_features"], n_features)
    # Where all that can be used are wanted, their order shows in the places of a kept block only.
    is_drawn = block != 0 or _n_usable(scratch, n_features) > wanted
    # What has been passed over shows in a kept block, too: there no attribute is drawn before it is needed.
    step = _DRAWN_AT_ONCE if block == 0 else 1
    used = 0
    drawn = 0
    n_found = np.int64(0)
    taken = 0
    attribute = np.int64(NIL)
    n_passed = 0  # those found that are not spread: they take the first places of scratch.found
    n_again = np.int64(NIL)  # of these, those that are asked again, since there are too few others
    while True:
        if n_again != NIL:
            if n_again == (n_passed if n_chosen < end - start else 0):
                break
            attribute = np.int64(scratch.found[n_again])
            n_again += 1
        elif used == wanted:
            break
        elif not is_drawn:
            attribute = _next_usable(scratch, attribute + 1, n_features)
        elif taken < n_found:
            attribute = np.int64(scratch.found[taken])
            taken += 1
        elif drawn < n_features:
            end_drawn = min(drawn + step, n_features)
            n_found = _draw_some(scratch, order_key, drawn, end_drawn, n_features, n_found, block != 0)
            drawn = end_drawn
            continue
        else:
            attribute = n_features
        if attribute == n_features:
            blocks.halves[block, IS_FILLED] = np.int32(1)
            n_again = np.int64(0)
            continue
        # Behind the last place it does not matter whether a column is constant.
        is_taken = used == wanted
        if not is_taken and not _is_constant(scratch, attribute):
            is_taken = _count_attribute(
                data, parameters, scratch, blocks, block, used, attribute, key, start, end, first_copied, n_chosen,
                n_again == NIL,
            )  # fmt: skip
            used += np.int64(is_taken)
        if n_again != NIL:
            if is_taken and block != 0:
                take_attribute(parameters, blocks, block, attribute)
        elif not is_taken:
            scratch.found[n_passed] = np.int32(attribute)
            n_passed += 1
            if block != 0:
                skip_attribute(parameters, blocks, block, attribute)
    _restore_permutation(scratch, drawn)
    blocks.longs[block, N_ATTRIBUTES] = used
    blocks.longs[block, IS_COUNTED] = 1
    return used > 0
