"""Derivatives in fixed point: what the exact engine adds up.

A sample's gradient and hessian travel as one int64 *word*, g * 2**shift + h, so that one addition adds both, and sums
are decoded as G = word >> shift, H = word & (2**shift - 1). How many bits each has depends on the number n of
samples held alone. With b the bits of n (n < 2**b):

    regression        h = 1, shift = b;                   |g| <= 2**g_bits, g_bits = min(63 - 2 b, 52 - b)
    classification    h <= 2**h_bits, shift = b + h_bits; |g| <= 2**g_bits, g_bits = min(63 - 2 b - h_bits, 52 - b)
                      with h_bits = (61 - 2 b) // 2, rounded down

so that the sum of the h of any samples is below 2**shift, that of the |g| below 2**(b + g_bits) <= 2**(63 - shift), and
no sum of words leaves int64; besides, no sum of g or h passes 2**53, so that float64 holds them. For n = 32,767 a
gradient has 33 bits in a regression and 18 in a classification, whose hessian has 15; for 2**20 it is 21, 12 and 9.

Scores F are int64, too: multiples of `unit`. A regression's unit is that of its targets, 2**(e - 38) with 2**e, e a
multiple of 4, covering all targets that train (`oubli.core.forest.quantisation`); a classification's is
2**-30. Every leaf step lowers the squared error, so |F - y| stays below sqrt(n) * 2**39 <= 2**51. Leaf values of a
classification are at most LARGEST_STEP units, so that 2**17 of them add up to at most 2**52: as exact in the float64 of
a prediction as here.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.loss import exp, log, sigmoid
from oubli.core.forest.quantisation import BITS, TargetScale, quantise
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.samples.arrays import Problem

SCORE_BITS = 30  # of a classification: unit = 2**-30
LARGEST_STEP = 2.0 ** (SCORE_BITS + 5)  # of a leaf of a classification, in units

Slots = npt.NDArray[np.int64]

_LARGEST = float(np.finfo(np.float64).max)

# Losses.
SQUARED = 0
BINARY = 1
MULTI_CLASS = 2


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


def begin(problem: Problem, slots: Slots, learning_rate: float, l2: float, min_child_weight: float) -> Start:
    """Say how to boost on the samples of `slots`, of at least one."""
    n = len(slots)
    b = n.bit_length()
    room = 63 - 2 * b
    if problem.n_classes == 0:
        exponent = _exponent(problem, slots)
        targets = quantise(problem.y[slots], exponent)
        mean = (2 * sum(targets.tolist()) + n) // (2 * n)
        loss = Loss(SQUARED, min(room, 52 - b), 0, b, l2, _least(min_child_weight, 0), learning_rate, targets)
        return _start(loss, [mean], exponent - BITS)
    h_bits = (room - 2) // 2
    n_classes = problem.n_classes
    rate = learning_rate if n_classes == 2 else learning_rate * ((n_classes - 1) / n_classes)
    targets = class_places(problem, slots)
    kind = BINARY if n_classes == 2 else MULTI_CLASS
    weight_bits = h_bits + 2  # h is at most 1/4
    loss = Loss(
        kind, min(room - h_bits, 52 - b), h_bits, b + h_bits, float(np.ldexp(l2, weight_bits)),
        _least(min_child_weight, weight_bits), rate, targets,
    )  # fmt: skip
    if kind == MULTI_CLASS:
        return _start(loss, [0] * n_classes, -SCORE_BITS)
    n_second = int(targets.sum())
    # A class may have no sample that trains.
    return _start(loss, [int(_log_odds(max(1, n - n_second), max(1, n_second)))], -SCORE_BITS)


def _exponent(problem: Problem, slots: Slots) -> int:
    """e: 2**e covers the targets."""
    scale = TargetScale()
    scale.count(problem.y[slots], 1)
    return scale.exponent


def class_places(problem: Problem, slots: Slots) -> npt.NDArray[np.int64]:
    """Place of the class of each sample in the order of the classes."""
    return problem.ranks[problem.data.targets[slots]].astype(np.int64)


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
    one = np.int64(1) << loss.shift
    for row in range(scores.shape[0]):
        words[row] = ((scores[row] - loss.targets[row] + half) >> n_off) * one + 1
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


@pasted
def leaf_value(loss, word, factor):
    """Step of a leaf, in units, an integer: -rate G / (H + l2)."""
    g = np.float64(word >> loss.shift)
    h = np.float64(word & ((np.int64(1) << loss.shift) - 1)) + loss.l2
    if g == 0.0 or h == 0.0:
        return np.int64(0)
    value = np.floor(-(g * factor) / h + 0.5)
    if loss.kind != SQUARED:
        value = min(max(value, -LARGEST_STEP), LARGEST_STEP)
    return np.int64(value)
