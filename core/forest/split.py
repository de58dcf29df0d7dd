"""The choice of a node's split, a pure function of the samples at the node.

`count_candidates` goes through the samples and fills a block; `choose_split` scores a block's
candidates. Building does both, a mutation only the second, on counters it has kept up to date.
"""

import numpy as np

from core._jit import inner, kernel, spliced
from core.forest.blocks import (
    AT_HI,
    AT_LO,
    COPIES_HI,
    COPIES_LO,
    MISSING,
    N_ATTRIBUTES,
    N_SKIPPED,
    TARGET_HI,
    TARGET_LO,
    attribute_key,
    bin_of,
    category_hash,
    category_rank,
    clear_block,
    count_in,
    draw_thresholds,
    in_subset,
    missing_goes_left,
    size_of,
)
from core.forest.inputs import CRITERION, IS_REGRESSION, MAX_FEATURES
from core.forest.nodes import MISSING_LEFT, MISSING_RIGHT, NIL, ONE_VS_REST, SUBSET
from core.forest.scores import GINI, split_score, two_class_gini
from core.rng import ATTRIBUTE_ORDER, MISSING_CATEGORY, bounded, combine


@inner
def count_targets(data, parameters, scratch, blocks, block, start, end):
    """Fill a block's totals and target range; returns whether the samples are pure."""
    is_regression = parameters.values[IS_REGRESSION] != 0
    target_range = blocks.target_range[block]
    first = data.targets[scratch.rows[start]]
    target_range[TARGET_LO] = first
    target_range[TARGET_HI] = first
    target_range[COPIES_LO] = 0
    target_range[COPIES_HI] = 0
    for i in range(start, end):
        target = data.targets[scratch.rows[i]]
        count_in(blocks.totals, block, target, 1, is_regression)
        if target < target_range[TARGET_LO]:
            target_range[TARGET_LO] = target
            target_range[COPIES_LO] = 0
        if target > target_range[TARGET_HI]:
            target_range[TARGET_HI] = target
            target_range[COPIES_HI] = 0
        if target == target_range[TARGET_LO]:
            target_range[COPIES_LO] += 1
        if target == target_range[TARGET_HI]:
            target_range[COPIES_HI] += 1
    return target_range[TARGET_LO] == target_range[TARGET_HI]


@inner
def gather_column(data, scratch, blocks, block, used, attribute, start, end):
    """Copy one column of the samples to the working space and take its range.

    Returns whether the column is not constant (a missing value differs from any other).
    """
    values = scratch.values[used]
    rows = scratch.rows
    lo = np.inf
    hi = -np.inf
    # Without branches: a NaN compares false with everything and leaves both ends alone.
    for i in range(start, end):
        cell = data.cells[rows[i], attribute]
        values[i - start] = cell
        x = np.float64(cell)
        lo = x if x < lo else lo
        hi = x if x > hi else hi
    at_lo = 0
    at_hi = 0
    n_missing = 0
    for i in range(end - start):
        x = np.float64(values[i])
        at_lo += np.int64(x == lo)
        at_hi += np.int64(x == hi)
        n_missing += np.int64(x != x)
    n_values = end - start - n_missing
    if n_values == 0 or (lo == hi and n_missing == 0):
        return False
    blocks.attributes[block, used] = np.int32(attribute)
    blocks.ranges[block, used, 0] = lo
    blocks.ranges[block, used, 1] = hi
    blocks.copies[block, used, AT_LO] = np.int32(at_lo)
    blocks.copies[block, used, AT_HI] = np.int32(at_hi)
    blocks.copies[block, used, MISSING] = np.int32(n_missing)
    return True


@spliced
def choose_attributes(data, parameters, scratch, blocks, block, key, start, end):
    """Take the first p columns in the node's hash order that are not constant; note the others."""
    n_features = data.cells.shape[1]
    order_key = combine(key, ATTRIBUTE_ORDER)
    permutation = scratch.permutation
    wanted = min(parameters.values[MAX_FEATURES], n_features)
    used = 0
    skipped = 0
    drawn = 0
    while drawn < n_features and used < wanted:
        other = drawn + bounded(combine(order_key, np.uint64(drawn)), n_features - drawn)
        permutation[drawn], permutation[other] = permutation[other], permutation[drawn]
        scratch.swaps[drawn] = np.int32(other)
        attribute = permutation[drawn]
        drawn += 1
        if gather_column(data, scratch, blocks, block, used, attribute, start, end):
            used += 1
        else:
            blocks.skipped[block, skipped] = attribute
            blocks.constants[block, skipped] = np.float64(data.cells[scratch.rows[start], attribute])
            skipped += 1
    for i in range(drawn - 1, -1, -1):
        other = scratch.swaps[i]
        permutation[i], permutation[other] = permutation[other], permutation[i]
    blocks.sizes[block, N_ATTRIBUTES] = np.int32(used)
    blocks.sizes[block, N_SKIPPED] = np.int32(skipped)
    return used


@inner
def count_numeric(data, parameters, scratch, blocks, block, used, key, start, end):
    """Draw the thresholds of a numeric attribute and count the samples of each bin."""
    is_regression = parameters.values[IS_REGRESSION] != 0
    thresholds = blocks.thresholds[block, used]
    bins = blocks.bins[block, used]
    missing_bin = thresholds.shape[0] + 1
    lo = blocks.ranges[block, used, 0]
    hi = blocks.ranges[block, used, 1]
    if lo == hi:
        thresholds[0] = np.inf
        for i in range(start, end):
            target = data.targets[scratch.rows[i]]
            position = missing_bin if np.isnan(scratch.values[used, i - start]) else 0
            count_in(bins, position, target, 1, is_regression)
        return
    draw_thresholds(thresholds, attribute_key(key, blocks.attributes[block, used]), lo, hi, data.cells)
    scale = np.float64(thresholds.shape[0]) / (hi - lo)
    values = scratch.values[used]
    rows = scratch.rows
    for i in range(start, end):
        x = np.float64(values[i - start])
        position = missing_bin if np.isnan(x) else bin_of(x, thresholds, lo, scale)
        count_in(bins, position, data.targets[rows[i]], 1, is_regression)


@inner
def list_categories(data, parameters, scratch, used, start, end):
    """Count the targets of each category at the node into the working space.

    Returns the number of categories, missing values being one of them. O(n).
    """
    is_regression = parameters.values[IS_REGRESSION] != 0
    missing_code = data.category_hashes.shape[0]
    n_categories = 0
    for i in range(start, end):
        x = scratch.values[used, i - start]
        code = missing_code if np.isnan(x) else np.int64(x)
        place = np.int64(scratch.category_places[code])
        if place == NIL:
            place = n_categories
            scratch.category_places[code] = np.int32(place)
            scratch.category_codes[place] = np.int32(code)
            for c in range(scratch.category_statistics.shape[1]):
                scratch.category_statistics[place, c] = 0
            n_categories += 1
        count_in(scratch.category_statistics, place, data.targets[scratch.rows[i]], 1, is_regression)
    for place in range(n_categories):
        code = np.int64(scratch.category_codes[place])
        scratch.category_places[code] = np.int32(NIL)
        scratch.category_keys[place] = (
            MISSING_CATEGORY if code == missing_code else data.category_hashes[code]
        )
    return n_categories


@inner
def _add_category(scratch, place, bins, j):
    for c in range(scratch.category_statistics.shape[1]):
        bins[j, c] += scratch.category_statistics[place, c]


@inner
def count_categorical(data, parameters, scratch, blocks, block, used, key, start, end):
    """Choose the categories of the one-vs-rest candidates and count every candidate's left side.

    O(n + m s) for m categories at the node.
    """
    categories = blocks.categories[block, used]
    bins = blocks.bins[block, used]
    hashes = scratch.category_keys
    key = attribute_key(key, blocks.attributes[block, used])
    # A range of codes says nothing of categories, and codes differ from history to history.
    for i in range(2):
        blocks.ranges[block, used, i] = 0.0
    for i in range(3):
        blocks.copies[block, used, i] = 0
    n_categories = list_categories(data, parameters, scratch, used, start, end)
    for j in range(categories.shape[0]):
        candidate_key = combine(key, np.uint64(j))
        if j % 2 == 1:
            for place in range(n_categories):
                if in_subset(candidate_key, hashes[place]):
                    _add_category(scratch, place, bins, j)
            continue
        chosen = 0
        for place in range(1, n_categories):
            rank = category_rank(candidate_key, hashes[place])
            if rank < category_rank(candidate_key, hashes[chosen]):
                chosen = place
        categories[j] = hashes[chosen]
        _add_category(scratch, chosen, bins, j)


@spliced
def count_candidates(data, parameters, scratch, blocks, block, key, start, end):
    """Fill a block from the samples scratch.rows[start:end] of the node with this key.

    Returns whether there is anything to choose from: the samples are impure and not all equal.
    O(n p) plus the block's size.
    """
    clear_block(blocks, block)
    if count_targets(data, parameters, scratch, blocks, block, start, end):
        return False
    used = choose_attributes(data, parameters, scratch, blocks, block, key, start, end)
    for u in range(used):
        if data.categorical[blocks.attributes[block, u]]:
            count_categorical(data, parameters, scratch, blocks, block, u, key, start, end)
        else:
            count_numeric(data, parameters, scratch, blocks, block, u, key, start, end)
    return used > 0


@inner
def _consider(choice, score, attribute, candidate):
    """Whether a candidate beats the best so far; equal scores: lower attribute, then candidate."""
    best = choice[0]
    if best["attribute"] == NIL or score > best["score"]:
        return True
    if score < best["score"]:
        return False
    if attribute != best["attribute"]:
        return attribute < best["attribute"]
    return candidate < best["candidate"]


@inner
def _score_categorical(data, parameters, scratch, blocks, block, used, key, n_samples):
    is_regression = parameters.values[IS_REGRESSION] != 0
    attribute = blocks.attributes[block, used]
    totals = blocks.totals[block]
    bins = blocks.bins[block, used]
    left = scratch.left
    for j in range(blocks.categories.shape[2]):
        n_left = size_of(bins, j, is_regression)
        for c in range(left.shape[0]):
            left[c] = np.int64(bins[j, c])
        if n_left == 0 or n_left == n_samples:
            continue
        score = split_score(parameters.values[CRITERION], left, totals, n_left, n_samples)
        if _consider(scratch.choice, score, attribute, j):
            best = scratch.choice[0]
            best["score"] = score
            best["attribute"] = attribute
            best["candidate"] = np.int32(j)
            if j % 2 == 0:
                best["kind"] = np.uint8(ONE_VS_REST)
                best["category"] = blocks.categories[block, used, j]
            else:
                best["kind"] = np.uint8(SUBSET)
                best["category"] = combine(attribute_key(key, attribute), np.uint64(j))


@inner
def _score_two_classes(parameters, scratch, blocks, block, used, key, n_samples):
    """Score a numeric attribute's candidates by Gini's criterion for two classes, nothing missing.

    The usual case at big nodes. Three plain loops, of which LLVM vectorises the one with the
    divisions; the scores are those of `split_score` to the bit. A candidate with an empty bin repeats
    the partition of the one before it, which wins the tie.
    """
    bins = blocks.bins[block, used]
    n_thresholds = blocks.thresholds.shape[2]
    firsts, sizes, scores = scratch.lefts[0], scratch.lefts[1], scratch.scores
    first = np.int64(0)
    size = np.int64(0)
    for j in range(n_thresholds):
        first += np.int64(bins[j, 0])
        size += np.int64(bins[j, 0]) + np.int64(bins[j, 1])
        firsts[j] = first
        sizes[j] = size
    total = np.int64(blocks.totals[block, 0])
    for j in range(n_thresholds):
        scores[j] = two_class_gini(firsts[j], sizes[j], total, n_samples)
    best = 0
    for j in range(1, n_thresholds):
        if scores[j] > scores[best]:
            best = j
    attribute = blocks.attributes[block, used]
    if _consider(scratch.choice, scores[best], attribute, best):
        _choose_numeric(scratch.choice, blocks, block, used, key, best, scores[best])


@inner
def _choose_numeric(choice, blocks, block, used, key, candidate, score):
    """Write a numeric candidate with lo < hi to `choice`; `key` is the attribute's."""
    best = choice[0]
    best["score"] = score
    best["attribute"] = blocks.attributes[block, used]
    best["candidate"] = np.int32(candidate)
    best["threshold"] = blocks.thresholds[block, used, candidate]
    best["kind"] = np.uint8(MISSING_RIGHT)
    if missing_goes_left(key, candidate, blocks.thresholds.shape[2]):
        best["kind"] = np.uint8(MISSING_LEFT)


@inner
def _score_numeric(data, parameters, scratch, blocks, block, used, key, n_samples):
    is_regression = parameters.values[IS_REGRESSION] != 0
    attribute = blocks.attributes[block, used]
    totals = blocks.totals[block]
    bins = blocks.bins[block, used]
    left = scratch.left
    n_thresholds = blocks.thresholds.shape[2]
    n_missing = blocks.copies[block, used, MISSING]
    is_single = blocks.ranges[block, used, 0] == blocks.ranges[block, used, 1]
    n_candidates = 1 if is_single else n_thresholds
    missing_bin = n_thresholds + 1
    key = attribute_key(key, attribute)
    if totals.shape[0] == 2 and parameters.values[CRITERION] == GINI and n_missing == 0:
        _score_two_classes(parameters, scratch, blocks, block, used, key, n_samples)
        return
    n_below = np.int64(0)
    for c in range(left.shape[0]):
        left[c] = 0
    for j in range(n_candidates):
        in_bin = size_of(bins, j, is_regression)
        # Without missing values an empty bin repeats the partition of the candidate before it,
        # which wins the tie.
        if in_bin == 0 and n_missing == 0:
            continue
        n_below += in_bin
        for c in range(left.shape[0]):
            left[c] += np.int64(bins[j, c])
        goes_left = n_missing > 0 and not is_single and missing_goes_left(key, j, n_thresholds)
        n_left = n_below
        if goes_left:
            n_left += n_missing
            for c in range(left.shape[0]):
                left[c] += np.int64(bins[missing_bin, c])
        score = split_score(parameters.values[CRITERION], left, totals, n_left, n_samples)
        if goes_left:
            for c in range(left.shape[0]):
                left[c] -= np.int64(bins[missing_bin, c])
        if _consider(scratch.choice, score, attribute, j):
            _choose_numeric(scratch.choice, blocks, block, used, key, j, score)
            if is_single:
                scratch.choice[0]["kind"] = np.uint8(MISSING_RIGHT)


@inner
def choose_split(data, parameters, scratch, blocks, block, key, n_samples):
    """Score a block's candidates and write the best to `scratch.choice`.

    O(p s width). The first candidate of every attribute has samples on both sides, so there is
    always a best one when the block has an attribute.
    """
    scratch.choice[0]["attribute"] = np.int32(NIL)
    for u in range(blocks.sizes[block, N_ATTRIBUTES]):
        if data.categorical[blocks.attributes[block, u]]:
            _score_categorical(data, parameters, scratch, blocks, block, u, key, n_samples)
        else:
            _score_numeric(data, parameters, scratch, blocks, block, u, key, n_samples)


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


@kernel
def goes_right(nodes, node, cells, row, category_hashes):
    """Side of a row at an inner node: 0 left, 1 right."""
    kind = nodes[node]["kind"]
    x = cells[row, nodes[node]["attribute"]]
    if kind <= MISSING_LEFT:
        if np.isnan(x):
            return np.int64(kind == MISSING_RIGHT)
        return np.int64(x > nodes[node]["threshold"])
    hashed = category_hash(category_hashes, x)
    if kind == ONE_VS_REST:
        return np.int64(hashed != nodes[node]["category"])
    return np.int64(not in_subset(nodes[node]["category"], hashed))
