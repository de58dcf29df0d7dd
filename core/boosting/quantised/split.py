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
def list_sides(histogram, total, bins, plans, iteration, lefts):
    """Write the sum of what each candidate sends left; where a numeric column's missing values are counted, theirs."""
    for feature in range(bins.missing_code.shape[0]):
        start = np.int64(plans.first_place[iteration, feature])
        end = np.int64(plans.first_place[iteration, feature + 1])
        common = np.int64(plans.common_place[iteration, feature])
        is_numeric = bins.missing_code[feature] >= 0
        left = np.int64(0)
        if is_numeric:
            for place in range(start, end - 1):
                left += histogram[np.uint64(place)]
                lefts[np.uint64(place)] = left
            lefts[end - 1] = histogram[end - 1]
            left += histogram[end - 1]
        else:
            for place in range(start, end):
                left += histogram[np.uint64(place)]
                lefts[np.uint64(place)] = histogram[np.uint64(place)]
        if common >= 0:
            # Rows leave it out: it has what is missing from the total, and so has every threshold from there on.
            last = end - 1 if is_numeric and common < end - 1 else common + 1
            for place in range(common, last):
                lefts[np.uint64(place)] += total - left


@inner
def weigh_gains(lefts, total, cuts, draws, base, node, gains):
    """Write the weighted gain of each place, negative where there is no candidate.

    Where nobody is left of a threshold, or of a category, nothing is gained; a dead category is no candidate. The
    weights are looked up in a loop of their own, so that the other one is compiled to instructions on vectors.
    """
    weights, first_draw, least_weight, regularisation = node
    for place in range(lefts.shape[0]):
        gains[place] = weights[np.uint64(draws[place]) ^ first_draw]
    for place in range(lefts.shape[0]):
        left = lefts[place]
        right = total - left
        left_weight, right_weight = np.float64(hessian_of(left)), np.float64(hessian_of(right))
        is_none = (left == 0) | (left_weight < least_weight) | (right_weight < least_weight) | (cuts[place] < 0)
        g, k = np.float64(gradient_of(left)), np.float64(gradient_of(right))
        left_weight += regularisation
        right_weight += regularisation
        score = (g * g * right_weight + k * k * left_weight) / (left_weight * right_weight)
        gain = (score - base) * gains[place]
        gains[place] = -1.0 if is_none else gain


@inner
def first_of_best(gains, start, end, best):
    """The first of the places with the greatest gain, if that is above `best`; else -1."""
    found = np.int64(-1)
    for place in range(start, end):
        gain = gains[np.uint64(place)]
        if gain > best:
            best, found = gain, place
    return found


@inner
def search(histogram, total, bins, plans, iteration, rules, depth, node_key, space):
    """Find the best split of a node and write it to `space.found`; its FEATURE is LEAF when none gains anything."""
    best = 0.0
    base = threshold_to_beat(total, rules)
    found, lefts, gains = space.found, space.lefts, space.gains
    found[FEATURE] = LEAF
    weights, first_draw = rules.weights[depth], np.uint64(node_key >> _BYTE)
    least_weight, regularisation = rules.least_weight, rules.regularisation
    cuts, draws = plans.cuts[iteration], plans.draws[iteration]
    n_features = bins.missing_code.shape[0]
    n_places = np.int64(plans.first_place[iteration, n_features])
    list_sides(histogram, total, bins, plans, iteration, lefts)
    node = weights, first_draw, least_weight, regularisation
    weigh_gains(lefts[:n_places], total, cuts, draws, base, node, gains)
    for feature in range(n_features):
        start = np.int64(plans.first_place[iteration, feature])
        end = np.int64(plans.first_place[iteration, feature + 1])
        missing = np.int64(0)
        if bins.missing_code[feature] >= 0:
            end -= 1
            missing = lefts[end]
        if missing == 0:
            place = first_of_best(gains, start, end, best)
            if place >= 0:
                best = gains[place]
                note(found, feature, cuts[place], 0, lefts[place])
            continue
        for place in range(start, end):
            if gains[place] > best:
                best = gains[place]
                note(found, feature, cuts[place], 0, lefts[place])
            if cuts[place] >= 0:
                left = lefts[place] + missing
                score = score_sides(left, total, least_weight, regularisation)
                gain = (score - base) * weights[np.uint64(draws[place]) ^ first_draw ^ _MISSING_LEFT_DRAW]
                if gain > best:
                    best = gain
                    note(found, feature, cuts[place], 1, left)
