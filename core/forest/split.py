"""The choice of a node's split: criteria, and the score of a block's candidates, a pure function of its counters.

Each criterion is one fixed float64 expression of integers, higher is better, comparable among the candidates
of one node only. The same integers give the bits that IEEE 754 fixes: no `fastmath`, no libm.

    GINI            (sum_c L_c^2 n_R + sum_c R_c^2 n_L) / (n_L n_R), by one division
    ENTROPY         (sum_c xlog2x(L_c) - xlog2x(n_L) + sum_c xlog2x(R_c) - xlog2x(n_R)), fixed point
    SQUARED_ERROR   d^2 / (n_L n_R) with d = S_L - S (n_L / n)

The first is n minus the weighted Gini impurity of the sides, the second minus their weighted
entropy in bits, the third the decrease of the squared error divided by n. L_c, R_c are class
counts, S_L the left sum of quantised targets, S the node's. Entropy's terms are rounded to
multiples of 2**-24 and summed as integers, for a float sum would depend on the order of the
classes' internal codes, and with it on the history.

Bounds: a forest holds at most 2**26 samples, so sums of squared counts stay below 2**53 and are exact
in float64, whatever the order of the classes; sums of targets stay
below 2**62 (`core/samples/fixed_point.py`); n log2 n below 2**36, its fixed-point value below 2**60.
"""

from typing import NamedTuple

import numpy as np

from oubli.core.array_types import Bools, Hashes
from oubli.core.forest.layout.blocks import (
    AT_HI,
    ATTRIBUTE,
    COPIES_HI,
    FIRST,
    HI,
    LO,
    MISSING,
    N_ATTRIBUTES,
    N_CELLS,
    PHASE,
    SCALE,
    attribute_at,
    attribute_key,
    categories_at,
    cell_number,
    counters_at,
    draw_phase,
    fit_scale,
    missing_goes_left,
    size_at,
    threshold_of,
    totals_at,
)
from oubli.core.forest.layout.cells import is_bit_column
from oubli.core.forest.workspace import AMOUNT, CANDIDATE, N_LISTED, SIZE, USED, Scoring
from oubli.core.jit.nodes import MISSING_LEFT, MISSING_RIGHT, NIL, ONE_VS_REST, SUBSET
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.rng import combine

GINI = 0
ENTROPY = 1
SQUARED_ERROR = 2

_SQRT_2 = 1.4142135623730951
_TWO_OVER_LN_2 = 2.8853900817779268
_FIXED_POINT = 16777216.0  # 2**24


@kernel
def xlog2x(count):
    """floor(count * log2(count) * 2**24 + 1/2) for an integer count >= 0, by + - * / only; 0 at 0.

    count = m * 2^e with m in (sqrt(1/2), sqrt(2)]; log2 m = 2/ln 2 * (z + z^3/3 + ... + z^21/21)
    with z = (m - 1)/(m + 1), |z| < 0.172, summed by Horner's rule from the highest term; the
    truncation is below 2**-53. In float64, in this order:

        series = 1/21; then for power = 19, 17, ..., 1: series = series * (z * z) + 1 / power
        floor(count * (e + 2/ln 2 * (z * series)) * 2**24 + 0.5)
    """
    if count < 2:
        return np.int64(0)
    exponent = 0
    while (count >> exponent) > 1:
        exponent += 1
    mantissa = np.float64(count) / np.float64(np.int64(1) << exponent)
    if mantissa > _SQRT_2:
        mantissa = mantissa / 2.0
        exponent += 1
    z = (mantissa - 1.0) / (mantissa + 1.0)
    square = z * z
    series = 1.0 / 21.0
    for power in range(19, 0, -2):
        series = series * square + 1.0 / np.float64(power)
    value = np.float64(count) * (np.float64(exponent) + _TWO_OVER_LN_2 * (z * series))
    return np.int64(np.floor(value * _FIXED_POINT + 0.5))


@pasted
def gini(left_squares, right_squares, n_left, n_right):
    """GINI of the sums of squared class counts and the sizes of both sides; all float64."""
    return (left_squares * n_right + right_squares * n_left) / (n_left * n_right)


@pasted
def two_class_gini(first, n_left, total, n_samples):
    """GINI for two classes; all float64.

    first, total  samples of the first class on the left, and at the node
    """
    second = n_left - first
    right_first = total - first
    n_right = n_samples - n_left
    right_second = n_right - right_first
    left_squares = first * first + second * second
    right_squares = right_first * right_first + right_second * right_second
    return gini(left_squares, right_squares, n_left, n_right)


@pasted
def squared_error(left_sum, n_left, total, n_samples):
    """SQUARED_ERROR; all float64.

    left_sum, total  sum of targets on the left, and at the node
    """
    d = left_sum - total * (n_left / n_samples)
    return d * d / (n_left * (n_samples - n_left))


@kernel
def split_score(criterion, left, totals, n_left, n_samples):
    """Score of a candidate whose left side has the statistics `left`.

    criterion  GINI, ENTROPY or SQUARED_ERROR
    left       int64[width], class counts or (count, sum of targets) of the left side
    totals     int[width], the same of the node
    n_left     samples on the left, 0 < n_left < n_samples
    """
    n_right = n_samples - n_left
    if criterion == SQUARED_ERROR:
        return squared_error(np.float64(left[1]), np.float64(n_left), np.float64(totals[1]), np.float64(n_samples))
    if criterion == GINI:
        left_squares = np.int64(0)
        right_squares = np.int64(0)
        for c in range(totals.shape[0]):
            in_left = np.int64(left[c])
            in_right = np.int64(totals[c]) - in_left
            left_squares += in_left * in_left
            right_squares += in_right * in_right
        return gini(np.float64(left_squares), np.float64(right_squares), np.float64(n_left), np.float64(n_right))
    entropy = -xlog2x(n_left) - xlog2x(n_right)
    for c in range(totals.shape[0]):
        in_left = np.int64(left[c])
        entropy += xlog2x(in_left) + xlog2x(np.int64(totals[c]) - in_left)
    return np.float64(entropy)


@kernel
def unsplit_score(criterion, totals, n_samples):
    """Score of a node left whole: a split's score less it is what the split gains.

    A gain is n times the decrease of the Gini impurity, 2**24 n times that of the entropy, or the
    decrease of the squared error divided by n.
    """
    if criterion == SQUARED_ERROR:
        return 0.0
    if criterion == GINI:
        squares = np.int64(0)
        for c in range(totals.shape[0]):
            squares += np.int64(totals[c]) * np.int64(totals[c])
        return np.float64(squares) / np.float64(n_samples)
    entropy = -xlog2x(n_samples)
    for c in range(totals.shape[0]):
        entropy += xlog2x(np.int64(totals[c]))
    return np.float64(entropy)


class _Columns(NamedTuple):
    """The part of the samples that scoring candidates reads."""

    categorical: Bools
    bit_columns: Hashes


@pasted
def _consider(choice, score, attribute, candidate, used):
    """Take a candidate that beats the best so far; equal scores: lower attribute, then candidate."""
    best = choice[0]
    if best["attribute"] != NIL:
        if score < best["score"]:
            return
        if score == best["score"]:
            if attribute > best["attribute"]:
                return
            if attribute == best["attribute"] and candidate >= best["candidate"]:
                return
    best["score"] = score
    best["attribute"] = np.int32(attribute)
    best["candidate"] = np.int32(candidate)
    best["used"] = np.int32(used)


@pasted
def _load(counters, block, place, left):
    for c in range(left.shape[0]):
        left[c] = np.int64(counters[block, place + c])


@pasted
def _is_scored_at_once(parameters):
    """Whether two numbers give a candidate's score, so that many are scored in vector registers."""
    if parameters[0]["is_regression"] != 0:
        return True
    return parameters[0]["width"] == 2 and parameters[0]["criterion"] == GINI


@pasted
def _list_candidate(parameters, scratch, n_listed, used, candidate, n_left, n_samples):
    """List the candidate whose left side is in scratch.left, with its score or the two numbers that give it."""
    listed = scratch.listed
    listed[USED, n_listed] = np.int32(used)
    listed[CANDIDATE, n_listed] = np.int32(candidate)
    if _is_scored_at_once(parameters):
        amount = scratch.left[1] if parameters[0]["is_regression"] != 0 else scratch.left[0]
        scratch.lefts[AMOUNT, n_listed] = np.float64(amount)
        scratch.lefts[SIZE, n_listed] = np.float64(n_left)
    else:
        scratch.scores[n_listed] = split_score(
            parameters[0]["criterion"], scratch.left, scratch.totals, n_left, n_samples
        )
    return n_listed + 1


@inner
def _list_categorical(parameters, scratch, blocks, block, used, n_listed, n_samples):
    """List a categorical attribute's candidates that have samples on both sides."""
    is_regression = parameters[0]["is_regression"] != 0
    width = parameters[0]["width"]
    for j in range(parameters[0]["n_thresholds"]):
        place = counters_at(parameters, used) + j * width
        n_left = size_at(blocks.counters, block, place, width, is_regression)
        if n_left == 0 or n_left == n_samples:
            continue
        _load(blocks.counters, block, place, scratch.left)
        n_listed = _list_candidate(parameters, scratch, n_listed, used, j, n_left, n_samples)
    return n_listed


@pasted
def _list_pairs(parameters, scratch, blocks, block, used, n_cells, n_listed):
    """List a numeric attribute's candidates, nothing missing, where they are scored at once: the usual case.

    A candidate with an empty cell repeats the partition of the one before it, which wins the tie: it is overwritten.
    """
    is_regression = parameters[0]["is_regression"] != 0
    place = np.uint64(counters_at(parameters, used))
    counters = blocks.counters
    listed = scratch.listed
    lefts = scratch.lefts
    amount = np.int64(0)
    size = np.int64(0)
    for j in range(n_cells - 1):
        first = np.int64(counters[block, place])
        second = np.int64(counters[block, place + np.uint64(1)])
        in_cell = first if is_regression else first + second
        amount += second if is_regression else first
        size += in_cell
        to = np.uint64(n_listed)
        lefts[AMOUNT, to] = np.float64(amount)
        lefts[SIZE, to] = np.float64(size)
        listed[USED, to] = np.int32(used)
        listed[CANDIDATE, to] = np.int32(j)
        n_listed += np.int64(in_cell > 0)
        place += np.uint64(2)
    return n_listed


@inner
def _list_one_by_one(parameters, scratch, blocks, block, used, key, n_cells, n_missing, n_listed, n_samples):
    """List a numeric attribute's candidates one by one: some values are missing, or there are many classes."""
    at = attribute_at(parameters, used)
    attribute = np.int64(blocks.halves[block, 2 * at + ATTRIBUTE])
    width = parameters[0]["width"]
    is_regression = parameters[0]["is_regression"] != 0
    # Constant but for missing values: one candidate, missing on the right.
    is_single = blocks.reals[block, at + LO] == blocks.reals[block, at + HI]
    if is_single:
        n_cells = 2
    first = blocks.reals[block, at + FIRST]
    key = attribute_key(key, attribute)
    place = counters_at(parameters, used)
    missing = place + (parameters[0]["n_counters"] - 1) * width
    left = scratch.left
    for c in range(left.shape[0]):
        left[c] = 0
    in_missing = size_at(blocks.counters, block, missing, width, is_regression)
    n_below = np.int64(0)
    for j in range(n_cells - 1):
        in_cell = size_at(blocks.counters, block, place + j * width, width, is_regression)
        # Without missing values an empty cell repeats the partition of the candidate before it,
        # which wins the tie.
        if in_cell == 0 and n_missing == 0:
            continue
        n_below += in_cell
        for c in range(left.shape[0]):
            left[c] += np.int64(blocks.counters[block, place + j * width + c])
        goes_left = n_missing > 0 and not is_single and missing_goes_left(key, first + j)
        n_left = n_below
        if goes_left:
            n_left += in_missing
            for c in range(left.shape[0]):
                left[c] += np.int64(blocks.counters[block, missing + c])
        n_listed = _list_candidate(parameters, scratch, n_listed, used, j, n_left, n_samples)
        if goes_left:
            for c in range(left.shape[0]):
                left[c] -= np.int64(blocks.counters[block, missing + c])
    return n_listed


@pasted
def _list_numeric(data, parameters, scratch, blocks, block, used, key, n_listed, n_samples):
    """List a numeric attribute's candidates. Of a bit column, all cells but the ends being empty, that is the first."""
    at = attribute_at(parameters, used)
    n_missing = np.int64(blocks.halves[block, 2 * at + MISSING])
    n_cells = np.int64(blocks.halves[block, 2 * at + N_CELLS])
    if is_bit_column(data, np.int64(blocks.halves[block, 2 * at + ATTRIBUTE])):
        n_cells = np.int64(2)
    if n_missing == 0 and _is_scored_at_once(parameters):
        return _list_pairs(parameters, scratch, blocks, block, used, n_cells, n_listed)
    return _list_one_by_one(parameters, scratch, blocks, block, used, key, n_cells, n_missing, n_listed, n_samples)


@pasted
def _score_listed(parameters, scratch, n_listed, n_samples):
    """Score the candidates listed at once, as `split_score` does to the bit; returns the bits of the highest score.

    Such scores are not negative: their bits are in their order, and a maximum of integers is vectorised.
    """
    lefts = scratch.lefts
    scores = scratch.scores
    n = np.float64(n_samples)
    if parameters[0]["is_regression"] != 0:
        total = np.float64(scratch.totals[1])
        for j in range(n_listed):
            scores[j] = squared_error(lefts[AMOUNT, j], lefts[SIZE, j], total, n)
    else:
        total = np.float64(scratch.totals[0])
        for j in range(n_listed):
            scores[j] = two_class_gini(lefts[AMOUNT, j], lefts[SIZE, j], total, n)
    bits = scratch.score_bits
    highest = np.int64(0)
    for j in range(n_listed):
        highest = max(highest, bits[j])
    return highest


@pasted
def _take_best(parameters, scratch, blocks, block, n_listed, n_samples):
    """Take the best of the candidates listed, if it beats the best so far."""
    bits = scratch.score_bits
    if _is_scored_at_once(parameters):
        highest = _score_listed(parameters, scratch, n_listed, n_samples)
    else:
        best = 0
        for j in range(1, n_listed):
            if scratch.scores[j] > scratch.scores[best]:
                best = j
        highest = bits[best]
    for j in range(n_listed):
        if bits[j] == highest:
            used = np.int64(scratch.listed[USED, j])
            attribute = np.int64(blocks.halves[block, 2 * attribute_at(parameters, used) + ATTRIBUTE])
            _consider(scratch.choice, scratch.scores[j], attribute, scratch.listed[CANDIDATE, j], used)


@pasted
def _lay_unit_grid(parameters, scratch, blocks, at, key):
    """Lay the grid of a bit column in the working space, which counting has left out; float64 tells its cells apart."""
    scale = fit_scale(0.0, 1.0, parameters[0]["n_thresholds"], scratch.number, scratch.number_bits)
    phase = draw_phase(key)
    blocks.reals[0, at + SCALE] = scale
    blocks.reals[0, at + PHASE] = phase
    blocks.reals[0, at + FIRST] = cell_number(0.0, scale, phase)


@pasted
def _describe_choice(data, parameters, scratch, blocks, block, key):
    """Complete `scratch.choice` with the kind and the threshold or category of the candidate chosen."""
    best = scratch.choice[0]
    used = np.int64(best["used"])
    candidate = np.int64(best["candidate"])
    at = attribute_at(parameters, used)
    key = attribute_key(key, np.int64(best["attribute"]))
    if data.categorical[best["attribute"]]:
        if candidate % 2 == 0:
            best["kind"] = np.uint8(ONE_VS_REST)
            best["category"] = blocks.keys[block, categories_at(parameters, used) + candidate // 2]
        else:
            best["kind"] = np.uint8(SUBSET)
            best["category"] = combine(key, np.uint64(candidate))
        return
    is_spread = blocks.halves[block, 2 * at + AT_HI] >= 0
    if block == 0 and is_spread and is_bit_column(data, np.int64(best["attribute"])):
        _lay_unit_grid(parameters, scratch, blocks, at, key)
    lo = blocks.reals[block, at + LO]
    hi = blocks.reals[block, at + HI]
    if lo == hi:
        best["kind"] = np.uint8(MISSING_RIGHT)
        best["threshold"] = np.inf
        return
    scale = blocks.reals[block, at + SCALE]
    number = blocks.reals[block, at + FIRST] + np.float64(candidate)
    best["kind"] = np.uint8(MISSING_LEFT) if missing_goes_left(key, number) else np.uint8(MISSING_RIGHT)
    if scale == 0.0:
        best["threshold"] = lo
    else:
        best["threshold"] = threshold_of(number, lo, hi, scale, blocks.reals[block, at + PHASE], scratch.end)


@pasted
def is_block_pure(parameters, blocks, block, n_samples):
    """Whether a counted block's samples all have one target."""
    if parameters[0]["is_regression"] != 0:
        return blocks.longs[block, COPIES_HI] == n_samples
    place = totals_at(parameters)
    largest = np.int64(0)
    total = np.int64(0)
    for c in range(parameters[0]["width"]):
        count = np.int64(blocks.counters[block, place + c])
        largest = max(largest, count)
        total += count
    return largest == total


@inner
def choose_split(data, parameters, scratch, blocks, block, key):
    """Score a counted block's candidates and write the best to `scratch.choice`; parameters as for counting.

    O(p s width). The first candidate of every attribute has samples on both sides, so there is
    always a best one when the block has an attribute.
    """
    columns = _Columns(data.categorical, data.bit_columns)
    width = parameters[0]["width"]
    scoring = Scoring(
        scratch.totals[:width], scratch.left[:width], scratch.listed, scratch.lefts, scratch.scores, scratch.score_bits,
        scratch.choice, scratch.number, scratch.number_bits, scratch.end,
    )  # fmt: skip
    _choose(columns, parameters, scoring, blocks, block, key)


@inner
def _choose(data, parameters, scratch, blocks, block, key):
    """The same with the parts of `data` and `scratch` that it takes."""
    scratch.choice[0]["attribute"] = np.int32(NIL)
    _load(blocks.counters, block, totals_at(parameters), scratch.totals)
    is_regression = parameters[0]["is_regression"] != 0
    n_samples = size_at(blocks.counters, block, totals_at(parameters), parameters[0]["width"], is_regression)
    n_listed = np.int64(0)
    n_attributes = blocks.longs[block, N_ATTRIBUTES]
    for used in range(n_attributes):
        attribute = np.int64(blocks.halves[block, 2 * attribute_at(parameters, used) + ATTRIBUTE])
        if data.categorical[attribute]:
            n_listed = _list_categorical(parameters, scratch, blocks, block, used, n_listed, n_samples)
        else:
            n_listed = _list_numeric(data, parameters, scratch, blocks, block, used, key, n_listed, n_samples)
        if n_listed >= N_LISTED or (used == n_attributes - 1 and n_listed > 0):
            _take_best(parameters, scratch, blocks, block, n_listed, n_samples)
            n_listed = np.int64(0)
    _describe_choice(data, parameters, scratch, blocks, block, key)


@inner
def is_same_split(nodes, node, choice):
    """Whether a node already has the split chosen last."""
    best = choice[0]
    return (
        nodes[node]["attribute"] == best["attribute"]
        and nodes[node]["kind"] == best["kind"]
        and nodes[node]["category"] == best["category"]
    )


@inner
def store_split(nodes, node, choice):
    """Write the split chosen last to a node."""
    best = choice[0]
    nodes[node]["attribute"] = best["attribute"]
    nodes[node]["kind"] = best["kind"]
    nodes[node]["category"] = best["category"]
