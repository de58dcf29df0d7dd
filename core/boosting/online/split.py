"""Scores of all candidates of a node, and the place of a split among them.

With sums G and H of the two sides of a candidate, its score is

    G_left^2 / (H_left + l2) + G_right^2 / (H_right + l2)

one float64 expression of integers; the gain (Equation 5) is the score less that of the node unsplit. A candidate whose
side has a hessian below `least` scores NONE. Of equal scores the lower candidate wins: by feature, then by threshold
(missing values right before left; "missing against the rest" last) or category (missing first, then by hash).
"""

import numpy as np

from oubli.core.jit.policy import inner, pasted

NONE = -1.0
NO_BIN = -1

# What float64 cannot tell apart: the scores of two candidates that divide the samples in the same way are the same
# number, whatever the order of their sides; beyond that, a score is right to a few parts in 2**52.
_HAIR = 1.0 + 2.0**-40


@inner
def sums_to_the_left(histogram, first, categorical, left, left_with_missing):
    """Write the packed sums that each bin's candidate sends left; returns whether any value is missing.

    left               int64[n_bins]: missing values go right; zero where there is no candidate
    left_with_missing  int64[n_bins]: they go left; zero where that is no other candidate
    """
    has_missing = False
    for feature in range(categorical.shape[0]):
        start, end = np.int64(first[feature]), np.int64(first[feature + 1]) - 1
        left[end] = 0
        left_with_missing[end] = 0
        if categorical[feature]:
            for i in range(start, end):
                left[i] = histogram[i]
                left_with_missing[i] = 0
            continue
        total = np.int64(0)
        for i in range(start, end):
            total += histogram[i]
            left[i] = total
        missing = histogram[end]
        if missing == 0:
            left[end - 1] = 0
            for i in range(start, end):
                left_with_missing[i] = 0
            continue
        has_missing = True
        for i in range(start, end - 1):
            left_with_missing[i] = left[i] + missing
        left_with_missing[end - 1] = 0
    return has_missing


@pasted
def score_of(left, total, rules):
    """Score of a candidate from the packed sums of its left side and of the node."""
    shift = np.int64(rules.shift)
    mask = (np.int64(1) << shift) - np.int64(1)
    right = total - left
    h_left, h_right = left & mask, right & mask
    a, b = np.float64(left >> shift), np.float64(right >> shift)
    c, d = np.float64(h_left) + rules.l2, np.float64(h_right) + rules.l2
    score = (a * a * d + b * b * c) / (c * d)
    return score if h_left >= rules.least and h_right >= rules.least else NONE


@pasted
def score_unsplit(total, rules):
    """Score of a node that is not split, from its packed sums."""
    shift = np.int64(rules.shift)
    gradient = np.float64(total >> shift)
    hessian = np.float64(total & ((np.int64(1) << shift) - np.int64(1))) + rules.l2
    return gradient * gradient / hessian if hessian > 0.0 else 0.0


@pasted
def _score_all(left, total, rules, scores):
    for i in range(left.shape[0]):
        scores[i] = score_of(left[i], total, rules)


@inner
def best_split(histogram, first, categorical, total, rules, space):
    """Find the best candidate of a node.

    Returns its gain, its bin (NO_BIN when no candidate has a gain) and whether missing values go left.
    """
    has_missing = sums_to_the_left(histogram, first, categorical, space.left, space.left_with_missing)
    _score_all(space.left, total, rules, space.scores)
    unsplit = score_unsplit(total, rules)
    best, best_bin, missing_left = unsplit * _HAIR, NO_BIN, 0
    if not has_missing:
        for i in range(histogram.shape[0]):
            if space.scores[i] > best:
                best, best_bin = space.scores[i], i
    else:
        _score_all(space.left_with_missing, total, rules, space.more_scores)
        for i in range(histogram.shape[0]):
            if space.scores[i] > best:
                best, best_bin, missing_left = space.scores[i], i, 0
            if space.more_scores[i] > best:
                best, best_bin, missing_left = space.more_scores[i], i, 1
    return best - unsplit, best_bin, missing_left


@inner
def keeps_its_place(histogram, first, categorical, total, rules, space, current, missing_left):
    """Whether a node's split still ranks among the best (Section 3.4).

    That is: fewer than max(1, ceil(robustness * n)) of the node's n candidates are better than it, by more than a
    hair. Candidates are those with a score, and the split itself: without a score all others are better.

    current  the bin of the node's split
    """
    has_missing = sums_to_the_left(histogram, first, categorical, space.left, space.left_with_missing)
    if missing_left != 0 and space.left_with_missing[current] != 0:
        own = score_of(space.left_with_missing[current], total, rules)
    else:
        own = score_of(space.left[current], total, rules)
    limit = own * _HAIR if own >= 0.0 else NONE
    n_candidates, n_better = np.int64(own == NONE), np.int64(0)
    for i in range(histogram.shape[0]):
        score = score_of(space.left[i], total, rules)
        n_candidates += score >= 0.0
        n_better += score > limit
    if has_missing:
        for i in range(histogram.shape[0]):
            score = score_of(space.left_with_missing[i], total, rules)
            n_candidates += score >= 0.0
            n_better += score > limit
    return n_better < max(1.0, np.ceil(rules.robustness * n_candidates - 1e-9))
