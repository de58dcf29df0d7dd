"""Derivatives in fixed point: what the exact engine adds up.

A sample's gradient and hessian travel as one int64 *word*, g * 2**shift + h, so that one addition adds both, and sums
are decoded as G = word >> shift, H = word & (2**shift - 1). How many bits each has depends on the number n of
samples held alone; of samples with weights n is their size (`weights.py`). With b the bits of n (n < 2**b), before a
word is multiplied by a weight:

    regression        h = 2**h_bits, h_bits = 0, or 8 if a weight is not whole
    classification    h <= 2**h_bits, h_bits = (61 - 2 b) // 2, rounded down
    both              shift = b + h_bits; |g| <= 2**g_bits, g_bits = min(63 - 2 b - h_bits, 52 - b)

so that the sum of the h of any samples is below 2**shift, that of the |g| below 2**(b + g_bits) <= 2**(63 - shift), and
no sum of words leaves int64; besides, no sum of g or h passes 2**53, so that float64 holds them. For n = 32,767 a
gradient has 33 bits in a regression and 18 in a classification, whose hessian has 15; for 2**20 it is 21, 12 and 9.
A product with a weight is of at most 60 bits, and rounded to the nearest integer. Whole weights round nothing, so a
sample of weight 2 is two equal samples: to the bit, if all samples train.

Scores F are int64, too: multiples of `unit`. A regression's unit is that of its targets, 2**(e - 38) with 2**e, e a
multiple of 4, covering all targets that train (`oubli.core.samples.fixed_point`); a classification's is 2**-30. Every
leaf step lowers the squared error, so |F - y| stays below sqrt(n) * 2**39 <= 2**51; times 2**4 beside a weight of 1 /
256. Leaf values of a classification are at most LARGEST_STEP units, so that 2**17 of them add up to at most 2**52: as
exact in the float64 of a prediction as here.

The losses of `core/boosting/loss.py` have g in steps that follow the largest, as squared error has, and h as a
classification. F of a Poisson loss is a logarithm, in units of 2**-30.

The loss of the samples that validate is computed in integers too: its sum does not depend on their order.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Slots
from oubli.core.boosting import loss as losses
from oubli.core.boosting.loss import BAND, HUBER, QUANTILE, exp, log, sigmoid
from oubli.core.boosting.parameters import VALIDATION
from oubli.core.boosting.state import LEAF, goes_right
from oubli.core.boosting.targets import Start as Beginning
from oubli.core.boosting.targets import TargetSums
from oubli.core.boosting.weights import size_of, units_of, weighed
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.jit.targets import GRID
from oubli.core.rng import MISSING_CATEGORY, combine, mix
from oubli.core.samples.arrays import Problem
from oubli.core.samples.fixed_point import BITS, TargetScale, quantise

SCORE_BITS = 30  # of a classification: unit = 2**-30
LARGEST_STEP = 2.0 ** (SCORE_BITS + 5)  # of a leaf of a classification, in units

_LARGEST = float(np.finfo(np.float64).max)

# The loss of one sample that validates; the sum over a size of 2**24 is below 2**63.
_STEPS = 2.0**32  # a loss of 1
_LARGEST_LOSS = 2.0**38

SQUARED, BINARY, MULTI_CLASS = range(3)  # losses; and HUBER, QUANTILE, POISSON
_LARGEST_NUMBER = 2.0**50  # of a leaf of a regression: a spread may be far above targets that hardly exist
_LARGEST_GRADIENT = 2.0**41
_SLOPE_STEPS = 2.0**30
_LEAST_UNIT = 2.0**-1000  # what is divided by is not less


class Loss(NamedTuple):
    """A loss, and the fixed point it is computed in; a function of the samples held."""

    kind: int  # SQUARED, BINARY, MULTI_CLASS
    g_bits: int
    h_bits: int
    shift: int
    l2: float  # l2_regularization in units of h
    least: int  # least H of a side of a split
    rate: float  # learning rate, for three and more classes times (K - 1) / K
    targets: npt.NDArray[np.int64]  # int64[n] by row: targets in units, or places of classes
    units: npt.NDArray[np.int32]  # int32[n] by row: weights; empty when all are 1
    limit: float  # greatest step of a leaf
    # Of a loss of `core/boosting/loss.py`, which reads scores and targets times these units:
    score_unit: float = 1.0
    target_unit: float = 1.0
    level: float = 0.0
    band: float = 1.0
    gradient_scale: float = 1.0  # from its gradient to an integer
    curvature: float = 1.0  # from its second derivative to a share of the greatest h


class Start(NamedTuple):
    """What boosting begins with."""

    loss: Loss
    first: npt.NDArray[np.int64]  # int64[groups]: F_0 in units
    base: npt.NDArray[np.float64]  # float64[groups]: F_0
    unit: float


@kernel
def _log_odds(n_first, n_second):
    """Logarithm of the odds of the second class, in units."""
    return np.floor(log(np.float64(n_second) / np.float64(n_first)) * 2.0**SCORE_BITS + 0.5)


def begin(
    problem: Problem, slots: Slots, learning_rate: float, l2: float, min_child_weight: float,
    kind: int = SQUARED, level: float = 0.0, seed: int = 0,
) -> Start:  # fmt: skip
    """Say how to boost on the samples of `slots`, of at least one.

    kind, level : of a regression's loss; a level of 0 of Huber's is the spread, which the seed rounds.
    """
    weights = units_of(problem.units, slots)
    n = int(weights.sum())  # in units, as all that is counted here
    b = size_of(problem.units, slots).bit_length()
    room = 63 - 2 * b
    units = problem.units[slots] if len(problem.units) else problem.units
    if problem.n_classes == 0:
        exponent = _exponent(problem, slots)
        targets = quantise(problem.y[slots], exponent)
        h_bits = 8 if (weights % GRID).any() else 0
        loss = Loss(
            kind, min(room - h_bits, 52 - b), h_bits, b + h_bits, float(np.ldexp(l2, h_bits)),
            _least(min_child_weight, h_bits), learning_rate, targets, units, _LARGEST_NUMBER,
        )  # fmt: skip
        if kind == SQUARED:
            mean = (2 * sum((targets * weights).tolist()) + n) // (2 * n)
            return _start(loss, [mean], exponent - BITS)
        sums = TargetSums(kind, level)
        sums.recount(problem.y[slots], units, seed)
        return _begin_numbers(loss, (b, room, l2, min_child_weight), sums.start(seed), level, exponent)
    h_bits = (room - 2) // 2
    n_classes = problem.n_classes
    rate = learning_rate if n_classes == 2 else learning_rate * ((n_classes - 1) / n_classes)
    targets = class_places(problem, slots)
    kind = BINARY if n_classes == 2 else MULTI_CLASS
    weight_bits = h_bits + 2  # h is at most 1/4
    loss = Loss(
        kind, min(room - h_bits, 52 - b), h_bits, b + h_bits, float(np.ldexp(l2, weight_bits)),
        _least(min_child_weight, weight_bits), rate, targets, units, LARGEST_STEP,
    )  # fmt: skip
    if kind == MULTI_CLASS:
        return _start(loss, [0] * n_classes, -SCORE_BITS)
    n_second = int((targets * weights).sum())
    # A class may have no sample that trains.
    return _start(loss, [int(_log_odds(n - n_second or GRID, n_second or GRID))], -SCORE_BITS)


def _begin_numbers(
    loss: Loss, sizes: tuple[int, int, float, float], begin: Beginning, level: float, exponent: int
) -> Start:
    """The same by another loss of numbers, from where boosting on grids begins."""
    (b, room, l2, min_child_weight), target_unit = sizes, float(np.ldexp(1.0, exponent - BITS))
    unit = max(target_unit, _LEAST_UNIT)  # that of targets that hardly exist may be 0
    h_bits = (room - 2) // 2
    if loss.kind == HUBER:
        loss = loss._replace(level=(level or begin.spread) / unit)
        return _start(loss, [_nearest(begin.base / unit)], exponent - BITS)
    ordinary = losses.ordinary_curvature(loss.kind, level)
    curvature = losses.curvature_scale(loss.kind, level, begin.base, begin.spread)
    if loss.kind == QUANTILE:
        first, band = begin.base / unit, BAND * begin.spread / unit
        loss = loss._replace(level=level, band=band, gradient_scale=_SLOPE_STEPS, curvature=curvature / unit)
    else:
        first, limit = begin.base * 2.0**SCORE_BITS, losses.POISSON_STEP * 2.0**SCORE_BITS * loss.rate
        loss = loss._replace(score_unit=2.0**-SCORE_BITS, target_unit=target_unit, gradient_scale=1.0 / unit)
        loss, exponent = loss._replace(curvature=curvature, limit=limit), BITS - SCORE_BITS
    weights = float(np.ldexp(l2 * ordinary, h_bits)), _least(min_child_weight * ordinary, h_bits)
    loss = loss._replace(
        g_bits=min(room - h_bits, 52 - b), h_bits=h_bits, shift=b + h_bits, l2=weights[0], least=weights[1]
    )
    return _start(loss, [_nearest(first)], exponent - BITS)


def _nearest(value: float) -> int:
    """The nearest integer of so many bits as scores may have: a spread may be far above targets that hardly exist."""
    return int(np.rint(min(max(value, -_LARGEST_GRADIENT), _LARGEST_GRADIENT)))


def _exponent(problem: Problem, slots: Slots) -> int:
    """e: 2**e covers the targets."""
    scale = TargetScale()
    scale.count(problem.y[slots], 1)
    return scale.exponent


def class_places(problem: Problem, slots: Slots) -> npt.NDArray[np.int64]:
    """Place of the class of each sample in the order of the classes."""
    return problem.ranks[problem.class_codes[slots]].astype(np.int64)


def targets_of_others(problem: Problem, training: Slots, slots: Slots) -> npt.NDArray[np.int64]:
    """Targets of samples that do not train, as those of `Loss`; a number beyond those that train is cut off."""
    if problem.n_classes > 0:
        return class_places(problem, slots)
    exponent = _exponent(problem, training)
    with np.errstate(over="ignore"):
        largest = float(np.ldexp(4.0, exponent))
    return quantise(np.clip(problem.y[slots], -largest, largest), exponent)


def _least(min_child_weight: float, weight_bits: int) -> int:
    return max(1, int(np.ceil(np.ldexp(min_child_weight, weight_bits))))


def _start(loss: Loss, first: list[int], exponent: int) -> Start:
    integers = np.array(first, np.int64)
    with np.errstate(over="ignore"):  # rounded up to a power of two, the largest number is none
        base = np.ldexp(integers.astype(np.float64), exponent).clip(-_LARGEST, _LARGEST)
    return Start(loss, integers, base, float(np.ldexp(1.0, exponent)))


# -- words ----------------------------------------------------------------------------------------


@inner
def write_residuals(loss, scores, words):
    """Write the words of F - y, rounded to g_bits on the scale of the largest; returns the bits rounded off."""
    largest = np.int64(0)
    for row in range(scores.shape[0]):
        largest = max(largest, abs(scores[row] - loss.targets[row]))
    n_off = np.int64(0)
    while largest >> n_off >= np.int64(1) << loss.g_bits:
        n_off += 1
    half = (np.int64(1) << n_off) >> 1
    one, h = np.int64(1) << loss.shift, np.int64(1) << loss.h_bits
    for row in range(scores.shape[0]):
        words[row] = ((scores[row] - loss.targets[row] + half) >> n_off) * one + h
    return n_off


@inner
def write_numbers(loss, scores, words):
    """The same by a loss of `core/boosting/loss.py`."""
    largest = np.int64(0)
    for row in range(scores.shape[0]):
        score, y = np.float64(scores[row]) * loss.score_unit, np.float64(loss.targets[row]) * loss.target_unit
        g = losses.gradient_at(loss.kind, loss.level, loss.band, score, y) * loss.gradient_scale
        words[row] = np.int64(np.floor(min(max(g, -_LARGEST_GRADIENT), _LARGEST_GRADIENT) + 0.5))
        largest = max(largest, abs(words[row]))
    n_off = np.int64(0)
    while largest >> n_off >= np.int64(1) << loss.g_bits:
        n_off += 1
    half = (np.int64(1) << n_off) >> 1
    one, most = np.int64(1) << loss.shift, np.float64(np.int64(1) << loss.h_bits)
    for row in range(scores.shape[0]):
        score, y = np.float64(scores[row]) * loss.score_unit, np.float64(loss.targets[row]) * loss.target_unit
        h = min(losses.curvature_at(loss.kind, loss.level, loss.band, score, y) * loss.curvature, 1.0)
        words[row] = ((words[row] + half) >> n_off) * one + np.int64(np.floor(h * most + 0.5))
    return n_off


@pasted
def _word(loss, p, is_class):
    """Word of a probability: g = p - y, h = p (1 - p), each rounded to the nearest, halves up."""
    g = np.floor((p - is_class) * np.float64(np.int64(1) << loss.g_bits) + 0.5)
    h = np.floor(p * (1.0 - p) * np.float64(np.int64(4) << loss.h_bits) + 0.5)
    return np.int64(g) * (np.int64(1) << loss.shift) + np.int64(h)


@inner
def write_binary(loss, scores, words):
    """Write the words of the log-loss of two classes."""
    for row in range(scores.shape[0]):
        words[row] = _word(loss, sigmoid(np.float64(scores[row]) * 2.0**-SCORE_BITS), np.float64(loss.targets[row]))


@inner
def write_multi_class(loss, scores, words, powers, largest, totals):
    """Write the words of the log-loss of K classes; scores and words are int64[K, n].

    powers, largest, totals  float64[K, n], int64[n] and float64[n], working space

    Rows are the inner loops, which go through vector registers.
    """
    n_classes, n = scores.shape
    for row in range(n):
        largest[row] = scores[0, row]
        totals[row] = 0.0
    for k in range(1, n_classes):
        for row in range(n):
            largest[row] = max(largest[row], scores[k, row])
    for k in range(n_classes):
        for row in range(n):
            power = exp(np.float64(scores[k, row] - largest[row]) * 2.0**-SCORE_BITS)
            powers[k, row] = power
            totals[row] += power
    for k in range(n_classes):
        for row in range(n):
            words[k, row] = _word(loss, powers[k, row] / totals[row], np.float64(loss.targets[row] == k))


@inner
def weigh_words(loss, words):
    """Multiply the words of all samples by their weights."""
    one = np.int64(1) << loss.shift
    for k in range(words.shape[0]):
        for row in range(words.shape[1]):
            word, units = words[k, row], np.int64(loss.units[row])
            g, h = weighed(word >> loss.shift, units, GRID // 2), weighed(word & (one - 1), units, GRID // 2)
            words[k, row] = g * one + h


@kernel
def write_words(loss, derivatives):
    """Write the words of all groups; returns what `leaf_value` multiplies by, and the unit of a gain.

    Gains of a regression are in squares of 2**e (see the top of the file): finite whatever the targets.
    """
    scores, words = derivatives.scores, derivatives.words
    n_off = np.int64(0)
    if loss.kind == SQUARED:
        n_off = write_residuals(loss, scores[0], words[0])
    elif loss.kind == BINARY:
        write_binary(loss, scores[0], words[0])
    elif loss.kind > MULTI_CLASS:
        n_off = write_numbers(loss, scores[0], words[0])
    else:
        write_multi_class(loss, scores, words, derivatives.powers, derivatives.largest, derivatives.totals)
    if loss.units.shape[0] > 0:
        weigh_words(loss, words)
    if loss.kind == SQUARED or loss.kind > MULTI_CLASS:
        coarse, h = np.float64(np.int64(1) << n_off), np.float64(np.int64(1) << loss.h_bits)
        gain_root = coarse / np.float64(np.int64(1) << BITS)
        step = loss.curvature / (loss.gradient_scale * loss.score_unit)
        return loss.rate * coarse * h * step, gain_root * gain_root * h
    weight_bits = loss.h_bits + 2
    g_scale = np.float64(np.int64(1) << loss.g_bits)
    factor = loss.rate * np.float64(np.int64(1) << (SCORE_BITS + weight_bits - loss.g_bits))
    return factor, np.float64(np.int64(1) << weight_bits) / (g_scale * g_scale)


@pasted
def leaf_value(loss, word, factor):
    """Step of a leaf, in units, an integer: -rate G / (H + l2)."""
    g = np.float64(word >> loss.shift)
    h = np.float64(word & ((np.int64(1) << loss.shift) - 1)) + loss.l2
    if g == 0.0 or h == 0.0:
        return np.int64(0)
    value = np.floor(-(g * factor) / h + 0.5)
    return np.int64(min(max(value, -loss.limit), loss.limit))


# -- early stopping ---------------------------------------------------------------------------------


class Watch(NamedTuple):
    """The samples that validate; `patience` is 0 when there are none."""

    patience: int
    slots: npt.NDArray[np.int64]  # int64[m]
    targets: npt.NDArray[np.int64]  # int64[m]: as those of `Loss`
    units: npt.NDArray[np.int64]  # int64[m]: weights
    scores: npt.NDArray[np.int64]  # int64[groups, m]: F in units
    losses: npt.NDArray[np.int64]  # int64[iterations]


@kernel
def mark_validating(id_hashes, slots, seed, limit, validates):
    """Write whether each sample validates: whether the hash of the seed and its id is below the limit."""
    key = combine(mix(seed), VALIDATION)
    for i in range(slots.shape[0]):
        validates[i] = combine(key, id_hashes[slots[i]]) < limit


@inner
def follow(watch, table, nodes, root, scores):
    """Take a tree's values to the scores of the samples that validate."""
    for i in range(watch.slots.shape[0]):
        node = root
        while nodes[node]["feature"] != LEAF:
            side = goes_right(nodes, node, table.cells, watch.slots[i], table.category_hashes, MISSING_CATEGORY)
            node = np.int64(nodes[node]["left"]) + side
        scores[i] += np.int64(nodes[node]["value"])


@inner
def _loss_of(loss, scores, target, i):
    """Squared error in squares of 2**e (see the top of the file), or another loss."""
    kind = loss.kind
    if kind > MULTI_CLASS:
        y = np.float64(target) * loss.target_unit
        value = losses.loss_at(kind, loss.level, np.float64(scores[0, i]) * loss.score_unit, y)
        # One after the other: 2**e itself may be no number, as the loss may not be.
        value = value / max(loss.target_unit, _LEAST_UNIT) / np.float64(np.int64(1) << BITS)
        return value / np.float64(np.int64(1) << BITS) if kind == HUBER else value
    if kind == SQUARED:
        error = np.float64(scores[0, i] - target) / np.float64(np.int64(1) << BITS)
        return error * error
    if kind == BINARY:
        margin = np.float64(scores[0, i]) * 2.0**-SCORE_BITS
        return log(1.0 + exp(-margin if target == 1 else margin))
    largest = scores[0, i]
    for k in range(1, scores.shape[0]):
        largest = max(largest, scores[k, i])
    total = 0.0
    for k in range(scores.shape[0]):
        total += exp(np.float64(scores[k, i] - largest) * 2.0**-SCORE_BITS)
    return log(total) - np.float64(scores[target, i] - largest) * 2.0**-SCORE_BITS


@kernel
def total_loss(watch, loss):
    """Sum of the losses of all samples that validate, each rounded down to a step of 2**-32 before it is weighed."""
    total = np.int64(0)
    for i in range(watch.slots.shape[0]):
        steps = min(np.floor(_loss_of(loss, watch.scores, watch.targets[i], i) * _STEPS), _LARGEST_LOSS)
        total += weighed(np.int64(steps), watch.units[i], 0)
    return total
