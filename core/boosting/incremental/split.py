"""The best split of a node, from the histogram of its derivatives.

A candidate's score is one float64 expression of integers, so it is the same on every machine and after any
history. The first of the best wins: candidates are numbered by feature, then threshold rising and missing values
right before left, then categories by rank.
"""

import numpy as np

from core._jit import inner
from core.boosting.histogram import gradient_of, hessian_of
from core.boosting.incremental.state import LEAF

# Slots of `found`.
FEATURE = 0
CUT = 1
MISSING_LEFT = 2
LEFT_TOTAL = 3
FOUND_SIZE = 4


@inner
def score_sides(left, total, least_weight, regularisation):
    """G^2 / (H + l) of both sides, added; -1 when a side is too light. One division for the two.

    G and H are below 2**35: their float64 values are exact.
    """
    right = total - left
    left_weight = np.float64(hessian_of(left))
    right_weight = np.float64(hessian_of(right))
    if left_weight < least_weight or right_weight < least_weight:
        return -1.0
    g = np.float64(gradient_of(left))
    k = np.float64(gradient_of(right))
    left_weight += regularisation
    right_weight += regularisation
    return (g * g * right_weight + k * k * left_weight) / (left_weight * right_weight)


@inner
def threshold_to_beat(total, rules):
    """Score that a split has to pass: a little above that of the node unsplit, so that rounding never makes a gain."""
    g = np.float64(gradient_of(total))
    return g * g / (np.float64(hessian_of(total)) + rules.regularisation) * (1.0 + rules.least_gain)


@inner
def is_heavy(total, rules):
    """Whether a node may be split, its weight being enough for two sides."""
    return np.float64(hessian_of(total)) >= 2.0 * rules.least_weight


@inner
def search(histogram, total, bins, plans, iteration, rules, depth, node_key, found):
    """Find the best split of a node and write it to `found`; its FEATURE is LEAF when none gains anything."""
    best = 0.0
    base = threshold_to_beat(total, rules)
    found[FEATURE] = LEAF
    least, regularisation = rules.least_weight, rules.regularisation
    weights = rules.weights[depth]
    first_draw = np.uint64(node_key >> np.uint64(56))
    n_features = bins.missing_code.shape[0]
    draws = plans.draws[iteration]
    for feature in range(n_features):
        start = np.int64(plans.first_place[iteration, feature])
        end = np.int64(plans.first_place[iteration, feature + 1])
        common = np.int64(plans.common_place[iteration, feature])
        rest = np.int64(0)
        if common >= 0:
            rest = total
            for place in range(start, end):
                rest -= histogram[place]
        if bins.missing_code[feature] < 0:
            for place in range(start, end):
                if plans.cuts[iteration, place] < 0:
                    continue
                left = histogram[place] + (rest if place == common else np.int64(0))
                gain = (score_sides(left, total, least, regularisation) - base) * weights[
                    np.uint64(draws[place]) ^ first_draw
                ]
                if gain > best:
                    best = gain
                    found[FEATURE], found[CUT] = feature, plans.cuts[iteration, place]
                    found[MISSING_LEFT], found[LEFT_TOTAL] = 0, left
            continue
        missing = histogram[end - 1] + (rest if end - 1 == common else np.int64(0))
        left = np.int64(0)
        for place in range(start, end - 1):
            left += histogram[place] + (rest if place == common else np.int64(0))
            weight = weights[np.uint64(draws[place]) ^ first_draw]
            gain = (score_sides(left, total, least, regularisation) - base) * weight
            if gain > best:
                best = gain
                found[FEATURE], found[CUT] = feature, plans.cuts[iteration, place]
                found[MISSING_LEFT], found[LEFT_TOTAL] = 0, left
            if missing != 0:
                gain = (score_sides(left + missing, total, least, regularisation) - base) * weights[
                    np.uint64(draws[place]) ^ first_draw ^ np.uint64(85)
                ]
                if gain > best:
                    best = gain
                    found[FEATURE], found[CUT] = feature, plans.cuts[iteration, place]
                    found[MISSING_LEFT], found[LEFT_TOTAL] = 1, left + missing
