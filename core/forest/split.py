"""The choice of a node's split: scoring a block's candidates, a pure function of its counters."""

from typing import NamedTuple

import numpy as np

from oubli.core.array_types import Bools, Hashes
from oubli.core.forest.bits import is_bit_column
from oubli.core.forest.blocks import (
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
    category_hash,
    counters_at,
    in_subset,
    size_at,
    totals_at,
)
from oubli.core.forest.candidates import cell_number, draw_phase, fit_scale, missing_goes_left, threshold_of
from oubli.core.forest.scores import GINI, split_score, squared_error, two_class_gini
from oubli.core.forest.state import MISSING_LEFT, MISSING_RIGHT, NIL, ONE_VS_REST, SUBSET
from oubli.core.forest.workspace import (
    AMOUNT,
    CANDIDATE,
    CRITERION,
    IS_REGRESSION,
    N_COUNTERS,
    N_LISTED,
    N_THRESHOLDS,
    SIZE,
    USED,
    WIDTH,
    Scoring,
)
from oubli.core.jit.policy import inner, kernel, pasted, spliced
from oubli.core.rng import combine


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
    """Whether a candidate's score is made of two numbers, so that many are scored in vector registers."""
    if parameters.values[IS_REGRESSION] != 0:
        return True
    return parameters.values[WIDTH] == 2 and parameters.values[CRITERION] == GINI


@pasted
def _list_candidate(parameters, scratch, n_listed, used, candidate, n_left, n_samples):
    """List the candidate whose left side is in scratch.left, with its score or with what that is made of."""
    listed = scratch.listed
    listed[USED, n_listed] = np.int32(used)
    listed[CANDIDATE, n_listed] = np.int32(candidate)
    if _is_scored_at_once(parameters):
        amount = scratch.left[1] if parameters.values[IS_REGRESSION] != 0 else scratch.left[0]
        scratch.lefts[AMOUNT, n_listed] = np.float64(amount)
        scratch.lefts[SIZE, n_listed] = np.float64(n_left)
    else:
        scratch.scores[n_listed] = split_score(
            parameters.values[CRITERION], scratch.left, scratch.totals, n_left, n_samples
        )
    return n_listed + 1


@inner
def _list_categorical(parameters, scratch, blocks, block, used, n_listed, n_samples):
    """List a categorical attribute's candidates that have samples on both sides."""
    is_regression = parameters.values[IS_REGRESSION] != 0
    width = parameters.values[WIDTH]
    for j in range(parameters.values[N_THRESHOLDS]):
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
    is_regression = parameters.values[IS_REGRESSION] != 0
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
    width = parameters.values[WIDTH]
    is_regression = parameters.values[IS_REGRESSION] != 0
    # Constant but for missing values: one candidate, missing on the right.
    is_single = blocks.reals[block, at + LO] == blocks.reals[block, at + HI]
    if is_single:
        n_cells = 2
    first = blocks.reals[block, at + FIRST]
    key = attribute_key(key, attribute)
    place = counters_at(parameters, used)
    missing = place + (parameters.values[N_COUNTERS] - 1) * width
    left = scratch.left
    for c in range(left.shape[0]):
        left[c] = 0
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
            n_left += n_missing
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
    if parameters.values[IS_REGRESSION] != 0:
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
    scale = fit_scale(0.0, 1.0, parameters.values[N_THRESHOLDS], scratch.number, scratch.number_bits)
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
    if block == 0 and is_bit_column(data, np.int64(best["attribute"])):
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
    if parameters.values[IS_REGRESSION] != 0:
        return blocks.longs[block, COPIES_HI] == n_samples
    place = totals_at(parameters)
    largest = np.int64(0)
    for c in range(parameters.values[WIDTH]):
        largest = max(largest, np.int64(blocks.counters[block, place + c]))
    return largest == n_samples


@spliced
def choose_split(data, parameters, scratch, blocks, block, key, n_samples):
    """Score a counted block's candidates and write the best to `scratch.choice`.

    O(p s width). The first candidate of every attribute has samples on both sides, so there is
    always a best one when the block has an attribute.
    """
    columns = _Columns(data.categorical, data.bit_columns)
    scoring = Scoring(
        scratch.totals, scratch.left, scratch.listed, scratch.lefts, scratch.scores, scratch.score_bits,
        scratch.choice, scratch.number, scratch.number_bits, scratch.end,
    )  # fmt: skip
    _choose(columns, parameters, scoring, blocks, block, key, n_samples)


@inner
def _choose(data, parameters, scratch, blocks, block, key, n_samples):
    """The same with the parts of `data` and `scratch` that it takes."""
    scratch.choice[0]["attribute"] = np.int32(NIL)
    _load(blocks.counters, block, totals_at(parameters), scratch.totals)
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


@pasted
def goes_right(nodes, node, cells, row, category_hashes):
    """Side of a row at an inner node: 0 left, 1 right."""
    kind = nodes[node]["kind"]
    x = cells[np.uint64(row), np.uint64(nodes[node]["attribute"])]
    if kind <= MISSING_LEFT:
        missing_goes_right = (x != x) & (kind == MISSING_RIGHT)
        return np.int64((x > nodes[node]["threshold"]) | missing_goes_right)
    hashed = category_hash(category_hashes, x)
    if kind == ONE_VS_REST:
        return np.int64(hashed != nodes[node]["category"])
    return np.int64(not in_subset(nodes[node]["category"], hashed))


@pasted
def number_goes_right(nodes, node, cells, row):
    """`goes_right` at a node of a forest without categorical columns; no branches."""
    x = cells[np.uint64(row), np.uint64(nodes[node]["attribute"])]
    missing_goes_right = (x != x) & (nodes[node]["kind"] == MISSING_RIGHT)
    return np.int64((x > nodes[node]["threshold"]) | missing_goes_right)


@pasted
def any_goes_right(nodes, node, cells, row, hashes, hashes_row):
    """`goes_right` without branches, for many walks in step: what kind of node comes next cannot be guessed.

    hashes  uint64[m, d]: in `hashes_row` those of the row's categories; numeric columns have anything
    """
    kind = nodes[node]["kind"]
    chosen = nodes[node]["category"]
    attribute = np.uint64(nodes[node]["attribute"])
    x = cells[np.uint64(row), attribute]
    hashed = hashes[np.uint64(hashes_row), attribute]
    by_number = (x > nodes[node]["threshold"]) | ((x != x) & (kind == MISSING_RIGHT))
    by_number &= kind <= MISSING_LEFT
    by_category = (kind == ONE_VS_REST) & (hashed != chosen)
    by_coin = np.int64(kind == SUBSET) & (1 - np.int64(in_subset(chosen, hashed)))
    return np.int64(by_number | by_category) | by_coin


@kernel
def side_of(nodes, node, cells, row, category_hashes):
    """`goes_right`, to be called from Python."""
    return goes_right(nodes, node, cells, row, category_hashes)
