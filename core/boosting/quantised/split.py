"""The best split of a node, from the histogram of its derivatives, and the weights that make splits steady.

A candidate's score is one float64 expression of integers, so IEEE 754 fixes its bits, and it is the same after any
history. Its gain is multiplied by a weight drawn from a hash. The first of the best wins: candidates are numbered by
feature, then threshold rising and missing values right before left, then categories by rank.

With gains compared as they are, the best of many candidates is ahead of the next one by so little that a few samples
turn it, and a split that turns near a root moves all scores. So the gain of every candidate is multiplied by a weight
U^-s, U in (0, 1) drawn from a hash of (seed, iteration, candidate, node). The logarithms of weights are exponentially
distributed with mean s: the gap between the logarithms of the two best is s on average, however many candidates there
are. It is the choice of "permute and flip" (McKenna and Sheldon, 2020), known for the least loss of quality at a given
steadiness, with its randomness held fixed.

The uppermost nodes, which cost the most to rebuild, are steadier still: their gains are those of the derivatives at
F_0, which no tree can change, with larger weights, so that trees differ.

The right weights depend on the number n of training samples, as the influence of a sample is about 1 / n. It enters as
floor(log2(n) + u), which hardly ever moves. In a regression steadiness costs much and gains little, because residuals,
which have no bounds, move the leaves anyway: the splits are nearly the best ones, and regions keep updates small
(`regions.py`).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Ints
from oubli.core.boosting.histogram import HESSIAN_BITS, gradient_of, hessian_of, is_against
from oubli.core.boosting.incremental.parameters import IncrementalSettings
from oubli.core.boosting.loss import POISSON, POISSON_STEP, exp, log
from oubli.core.boosting.quantised import derivatives
from oubli.core.boosting.quantised.state import LEAF, Loss, Rules
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.rng import combine, mix, unit

FEATURE, CUT, MISSING_LEFT, LEFT_TOTAL = range(4)  # slots of `found`

_MISSING_LEFT_DRAW = np.uint64(85)  # tells the draws of the two directions of a candidate apart
_BYTE = np.uint64(56)
_SHIFT = np.int64(HESSIAN_BITS)
SIZE = np.uint64(10)
N_WEIGHTS = 256
_LOG2_E = 1.4426950408889634

_LARGE_SIZE = 17  # log2 of n from which on a set counts as large
# Levels that are split by the derivatives at F_0, s of these, and s of the others.
_LARGE = 1, 2.0, 0.5
_SMALL = 2, 2.0, 0.35
_REGRESSION_SCALE = 0.05
_LEAF_LIMIT = 8.0  # greatest size of a leaf's value, before the learning rate; of a regression in spreads
_LEAST_GAIN = 2.0**-40
_FINEST = 2.0**-8  # grid that is made by dividing
LEAST_SIZE = 11  # log2 of the samples of a region
MOST_LEVELS = 3  # of regions
_MOST_LEAST = MOST_LEVELS + 1  # level of edges, which changes with every level of regions

_here = threading.local()


@inner
def _score_sides(left, total, least_weight, regularisation):
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
def _threshold_to_beat(total, rules):
    """Score that a split has to pass: a little above that of the node unsplit, so that rounding never makes a gain."""
    g = np.float64(gradient_of(total))
    return g * g / (np.float64(hessian_of(total)) + rules.regularisation) * (1.0 + rules.least_gain)


@inner
def is_heavy(total, rules):
    """Whether a node may be split, its weight being enough for two sides."""
    return np.float64(hessian_of(total)) >= 2.0 * rules.least_weight


@pasted
def _note(found, feature, cut, missing_left, left):
    """Write a split down as the best so far."""
    found[FEATURE], found[CUT] = feature, cut
    found[MISSING_LEFT], found[LEFT_TOTAL] = missing_left, left


@inner
def _list_sides(histogram, total, bins, plans, iteration, lefts):
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
def _weigh_gains(lefts, total, cuts, draws, base, node, gains):
    """Write the weighted gain of each place, negative where there is no candidate.

    Where no sample is left of a threshold, or of a category, nothing is gained; a dead category is no candidate. The
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
def _first_of_best(gains, start, end, best):
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
    base = _threshold_to_beat(total, rules)
    found, lefts, gains = space.found, space.lefts, space.gains
    found[FEATURE] = LEAF
    weights, first_draw = rules.weights[depth], np.uint64(node_key >> _BYTE)
    least_weight, regularisation = rules.least_weight, rules.regularisation
    cuts, draws = plans.cuts[iteration], plans.draws[iteration]
    n_features = bins.missing_code.shape[0]
    n_places = np.int64(plans.first_place[iteration, n_features])
    _list_sides(histogram, total, bins, plans, iteration, lefts)
    node = weights, first_draw, least_weight, regularisation
    _weigh_gains(lefts[:n_places], total, cuts, draws, base, node, gains)
    for feature in range(n_features):
        start = np.int64(plans.first_place[iteration, feature])
        end = np.int64(plans.first_place[iteration, feature + 1])
        missing, direction = np.int64(0), np.int64(0)
        if rules.directions.shape[0] > 0:
            direction = rules.directions[feature]
        if bins.missing_code[feature] >= 0:
            end -= 1
            missing = lefts[end]
        if direction != 0:
            for place in range(start, end):
                if is_against(lefts[place], total, _SHIFT, regularisation, direction):
                    gains[place] = -1.0
        if missing == 0:
            place = _first_of_best(gains, start, end, best)
            if place >= 0:
                best = gains[place]
                _note(found, feature, cuts[place], 0, lefts[place])
            continue
        for place in range(start, end):
            if gains[place] > best:
                best = gains[place]
                _note(found, feature, cuts[place], 0, lefts[place])
            if cuts[place] >= 0:
                left = lefts[place] + missing
                score = _score_sides(left, total, least_weight, regularisation)
                gain = (score - base) * weights[np.uint64(draws[place]) ^ first_draw ^ _MISSING_LEFT_DRAW]
                if gain > best and not (direction != 0 and is_against(left, total, _SHIFT, regularisation, direction)):
                    best = gain
                    _note(found, feature, cuts[place], 1, left)


def grids_of_numbers(settings: IncrementalSettings, levels: int) -> tuple[float, float]:
    """The grids of gradients and leaf values of a regression: a fourth within regions, which have few samples."""
    if not levels:
        return settings.gradient_grid, settings.leaf_grid
    return max(0.25 * settings.gradient_grid, _FINEST), max(0.25 * settings.leaf_grid, _FINEST)


class Steadiness(NamedTuple):
    """How steady splits are made."""

    levels: int  # of regions, see `regions.py`
    depth: int  # of trees, levels of regions included
    top: int  # nodes above this depth, and below the regions' levels, are split by the derivatives at F_0
    weights: npt.NDArray[np.float64]  # float64[depth + 1, 256]
    coarsening: int  # how many times the grid of gradients is doubled


@kernel
def size_step(n, seed):
    """floor(log2(n) + u)."""
    return np.int64(np.floor(log(n) * _LOG2_E + unit(combine(mix(seed), SIZE))))


@kernel
def fill_weights(scale, weights):
    """Write U^-scale for U in the middle of each 256th."""
    for i in range(weights.shape[0]):
        weights[i] = exp(-scale * log((i + 0.5) / weights.shape[0]))


def steadiness(n: int, depth: int, seed: int) -> Steadiness:
    """How steady to make splits of trees of some depth, for classes of n samples."""
    is_large = size_step(float(n), np.uint64(seed)) >= _LARGE_SIZE
    top, top_scale, scale = _LARGE if is_large else _SMALL
    top = min(top, depth - 1)
    return Steadiness(0, depth, top, _weigh((top_scale,) * top + (scale,) * (depth - top)), int(is_large))


def regression_steadiness(depth: int) -> Steadiness:
    """How steady to make splits of trees of some depth, for numbers."""
    return Steadiness(0, depth, 0, _weigh((_REGRESSION_SCALE,) * depth), 0)


def below_regions(steady: Steadiness, levels: int) -> Steadiness:
    """The same below so many levels of regions."""
    weights = np.concatenate([np.ones((levels, N_WEIGHTS)), steady.weights])
    return Steadiness(levels, levels + steady.depth, levels + steady.top, weights, steady.coarsening)


def most_levels(n: int, n_groups: int, seed: int, *, is_classification: bool) -> int:
    """Levels of regions that n samples may have: each holds some thousand of them, if all are about equal."""
    if is_classification and n_groups == 1:
        return 0
    return min(max(int(size_step(float(n), np.uint64(seed))) - _least_size(), 0), MOST_LEVELS)


def least_level(n: int, seed: int) -> int:
    """The least level of edges with n samples, see `bins.py`: a sixteenth of all is of it, or a thousand or two."""
    return min(max(int(size_step(float(n), np.uint64(seed))) - _least_size() + 1, 0), _MOST_LEAST)


def make_rules(
    settings: IncrementalSettings, loss: Loss, n_groups: int, steadiness: Steadiness, cuts: Ints, directions: Ints
) -> Rules:
    """The numbers that decide splits and leaves."""
    leaf_grid = settings.leaf_grid
    limit = _LEAF_LIMIT / leaf_grid
    steps = derivatives.hessian_steps(loss.kind, loss.level)
    share = (n_groups - 1) / n_groups if n_groups > 1 else 1.0
    if loss.kind < derivatives.REGRESSION:
        leaf_scale = share * (1.0 / loss.steps) * steps / leaf_grid
    else:
        _, leaf_grid = grids_of_numbers(settings, steadiness.levels)
        limit = _LEAF_LIMIT / leaf_grid
        # From gradients and hessians as integers to a raw score in leaf_grid.
        leaf_scale = loss.curvature * settings.learning_rate / (loss.inverse_grid * loss.unit)
        if loss.kind == derivatives.REGRESSION:
            leaf_scale = 1.0 / (loss.inverse_grid / loss.inverse_spread) * steps / leaf_grid
        if loss.kind == POISSON:
            limit = POISSON_STEP * settings.learning_rate / loss.unit
    return Rules(
        depth=steadiness.depth,
        levels=steadiness.levels,
        top=steadiness.top,
        least_weight=settings.min_child_weight * steps,
        regularisation=settings.l2_regularization * steps,
        leaf_scale=leaf_scale,
        leaf_limit=float(np.floor(limit)),
        least_gain=_LEAST_GAIN,
        cuts=cuts,
        directions=directions,
        weights=steadiness.weights,
    )


@contextmanager
def parting_few() -> Iterator[None]:
    """Part few samples, too, in this thread: for the warm-up, beside which a model may learn."""
    _here.least_size = 0
    try:
        yield
    finally:
        del _here.least_size


def _least_size() -> int:
    return int(getattr(_here, "least_size", LEAST_SIZE))


@lru_cache(maxsize=16)
def _weigh(scales: tuple[float, ...]) -> npt.NDArray[np.float64]:
    """The weights of all levels that are split, and of the leaves below, which are not used.

    Every update asks for them again, because the number of samples is another; they are never changed.
    """
    weights = np.ones((len(scales) + 1, N_WEIGHTS))
    for level, scale in enumerate(scales):
        fill_weights(scale, weights[level])
    weights.flags.writeable = False
    return weights
