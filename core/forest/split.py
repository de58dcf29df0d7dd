"""The choice of a node's split: scoring a block's candidates, a pure function of its counters."""

import numpy as np

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
from oubli.core.forest.candidates import missing_goes_left, threshold_of
from oubli.core.forest.scores import GINI, split_score, two_class_gini
from oubli.core.forest.state import MISSING_LEFT, MISSING_RIGHT, NIL, ONE_VS_REST, SUBSET
from oubli.core.forest.workspace import CRITERION, IS_REGRESSION, N_COUNTERS, N_THRESHOLDS, WIDTH
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.rng import combine


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


_ONE = np.uint64(1)


@inner
def _score_categorical(parameters, scratch, blocks, block, used, attribute, n_samples):
    is_regression = parameters.values[IS_REGRESSION] != 0
    width = parameters.values[WIDTH]
    for j in range(parameters.values[N_THRESHOLDS]):
        place = counters_at(parameters, used) + j * width
        n_left = size_at(blocks.counters, block, place, width, is_regression)
        if n_left == 0 or n_left == n_samples:
            continue
        _load(blocks.counters, block, place, scratch.left)
        score = split_score(parameters.values[CRITERION], scratch.left, scratch.totals, n_left, n_samples)
        _consider(scratch.choice, score, attribute, j, used)


@pasted
def _score_two_classes(parameters, scratch, blocks, block, used, attribute, n_cells, n_samples):
    """Score a numeric attribute's candidates by Gini's criterion for two classes, nothing missing.

    The usual case at big nodes. Three plain loops, of which LLVM vectorises the one with the division;
    the scores are those of `split_score` to the bit. A candidate with an empty cell repeats the
    partition of the one before it, which wins the tie.
    """
    place = np.uint64(counters_at(parameters, used))
    counters = blocks.counters
    n_candidates = n_cells - 1
    last = place + np.uint64(2 * n_candidates)
    in_ends = np.int64(counters[block, place]) + np.int64(counters[block, place + _ONE])
    in_ends += np.int64(counters[block, last]) + np.int64(counters[block, last + _ONE])
    if in_ends == n_samples:
        n_candidates = 1  # two values, or nothing in between: all partitions are the same
    lefts = scratch.lefts
    first = np.int32(0)
    size = np.int32(0)
    for j in range(n_candidates):
        in_first = counters[block, place]
        first += in_first
        size += in_first + counters[block, place + _ONE]
        lefts[0, j] = first
        lefts[1, j] = size
        place += np.uint64(2)
    total = np.float64(scratch.totals[0])
    n = np.float64(n_samples)
    scores = scratch.scores
    for j in range(n_candidates):
        scores[j] = two_class_gini(np.float64(lefts[0, j]), np.float64(lefts[1, j]), total, n)
    # Scores are positive: their bits are in their order, and a maximum of integers is vectorised.
    bits = scratch.score_bits
    highest = np.int64(0)
    for j in range(n_candidates):
        highest = max(highest, bits[j])
    best = 0
    while bits[best] != highest:
        best += 1
    _consider(scratch.choice, scores[best], attribute, best, used)


@pasted
def _score_numeric(parameters, scratch, blocks, block, used, key, n_samples):
    at = attribute_at(parameters, used)
    attribute = np.int64(blocks.halves[block, 2 * at + ATTRIBUTE])
    n_missing = np.int64(blocks.halves[block, 2 * at + MISSING])
    n_cells = np.int64(blocks.halves[block, 2 * at + N_CELLS])
    width = parameters.values[WIDTH]
    if width == 2 and parameters.values[CRITERION] == GINI and n_missing == 0:
        _score_two_classes(parameters, scratch, blocks, block, used, attribute, n_cells, n_samples)
        return
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
        score = split_score(parameters.values[CRITERION], left, scratch.totals, n_left, n_samples)
        if goes_left:
            for c in range(left.shape[0]):
                left[c] -= np.int64(blocks.counters[block, missing + c])
        _consider(scratch.choice, score, attribute, j, used)


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
        best["threshold"] = threshold_of(number, lo, hi, scale, blocks.reals[block, at + PHASE], data.cells)


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


@inner
def choose_split(data, parameters, scratch, blocks, block, key, n_samples):
    """Score a counted block's candidates and write the best to `scratch.choice`.

    O(p s width). The first candidate of every attribute has samples on both sides, so there is
    always a best one when the block has an attribute.
    """
    scratch.choice[0]["attribute"] = np.int32(NIL)
    _load(blocks.counters, block, totals_at(parameters), scratch.totals)
    for used in range(blocks.longs[block, N_ATTRIBUTES]):
        attribute = np.int64(blocks.halves[block, 2 * attribute_at(parameters, used) + ATTRIBUTE])
        if data.categorical[attribute]:
            _score_categorical(parameters, scratch, blocks, block, used, attribute, n_samples)
        else:
            _score_numeric(parameters, scratch, blocks, block, used, key, n_samples)
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
