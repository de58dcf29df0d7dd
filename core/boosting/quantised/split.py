"""The best split of a node, from the histogram of its derivatives.

A candidate's score is one float64 expression of integers, so IEEE 754 fixes its bits, and it is the same after any
history. Its gain is multiplied by a weight drawn from a hash, see `steadiness.py`. The first of the best wins:
candidates are numbered by feature, then threshold rising and missing values right before left, then categories by
rank.
"""

import numpy as np

from oubli.core.boosting.histogram import gradient_of, hessian_of
from oubli.core.boosting.quantised.state import LEAF
from oubli.core.jit.policy import inner

# Slots of `found`.
FEATURE = 0
CUT = 1
MISSING_LEFT = 2
LEFT_TOTAL = 3
FOUND_SIZE = 4

_MISSING_LEFT_DRAW = np.uint64(85)  # tells the draws of the two directions of a candidate apart
_BYTE = np.uint64(56)


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
def note(found, feature, cut, missing_left, left):
    """Write a split down as the best so far."""
    found[FEATURE], found[CUT] = feature, cut
    found[MISSING_LEFT], found[LEFT_TOTAL] = missing_left, left


@inner
def search_categories(histogram, total, cuts, draws, start, end, common, rest, base, best, feature, node, found):
    """Find a category of a column that is better than `best`; returns the best gain."""
    weights, first_draw, least, regularisation = node
    for place in range(start, end):
        left = histogram[place] + (rest if place == common else np.int64(0))
        # A dead category is no candidate, and nobody would be on its side.
        if cuts[place] >= 0 and left != 0:
            score = score_sides(left, total, least, regularisation)
            gain = (score - base) * weights[np.uint64(draws[place]) ^ first_draw]
            if gain > best:
                best = gain
                note(found, feature, cuts[place], 0, left)
    return best


@inner
def search_thresholds(histogram, total, cuts, draws, start, end, common, rest, base, best, feature, node, found):
    """Find a threshold of a column that is better than `best`; returns the best gain."""
    weights, first_draw, least, regularisation = node
    missing = histogram[end - 1] + (rest if end - 1 == common else np.int64(0))
    left = np.int64(0)
    score = -1.0
    other_score = score_sides(missing, total, least, regularisation)
    for place in range(start, end - 1):
        more = histogram[place] + (rest if place == common else np.int64(0))
        if more != 0:  # otherwise the sides are those of the candidate before
            left += more
            score = score_sides(left, total, least, regularisation)
            if missing != 0:
                other_score = score_sides(left + missing, total, least, regularisation)
        if cuts[place] < 0:
            continue
        draw = np.uint64(draws[place]) ^ first_draw
        gain = (score - base) * weights[draw]
        if gain > best:
            best = gain
            note(found, feature, cuts[place], 0, left)
        if missing != 0:
            gain = (other_score - base) * weights[draw ^ _MISSING_LEFT_DRAW]
            if gain > best:
                best = gain
                note(found, feature, cuts[place], 1, left + missing)
    return best


@inner
def search(histogram, total, bins, plans, iteration, rules, depth, node_key, found):
    """Find the best split of a node and write it to `found`; its FEATURE is LEAF when none gains anything."""
    best = 0.0
    base = threshold_to_beat(total, rules)
    found[FEATURE] = LEAF
    node = rules.weights[depth], np.uint64(node_key >> _BYTE), rules.least_weight, rules.regularisation
    cuts, draws = plans.cuts[iteration], plans.draws[iteration]
    for feature in range(bins.missing_code.shape[0]):
        start = np.int64(plans.first_place[iteration, feature])
        end = np.int64(plans.first_place[iteration, feature + 1])
        common = np.int64(plans.common_place[iteration, feature])
        rest = np.int64(0)
        if common >= 0:
            rest = total
            for place in range(start, end):
                rest -= histogram[place]
        if bins.missing_code[feature] < 0:
            best = search_categories(
                histogram, total, cuts, draws, start, end, common, rest, base, best, feature, node, found
            )
        else:
            best = search_thresholds(
                histogram, total, cuts, draws, start, end, common, rest, base, best, feature, node, found
            )
