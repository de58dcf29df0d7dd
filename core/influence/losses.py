"""The losses: what a row costs, how its raw scores change that, and the derivatives for the passes over trees.

The loss of a classifier is log-loss, with probabilities clipped to [1e-15, 1]; that of a regressor squared error.
Clipping keeps values finite. Derivatives are those of log-loss itself: otherwise a row whose prediction is very wrong
would seem to be influenced by nothing.

For the passes over trees, the first, second and third derivatives are computed block by block. With F the raw score of
a sample, p = sigmoid(F) or softmax(F)_k, and r 1 if the sample is of the class and 0 if not:

    squared error   g = F - y    h = 1            k = 0
    log-loss        g = p - r    h = p (1 - p)    k = p (1 - p) (1 - 2 p)

The K trees of an iteration of softmax share one F, so each has derivatives by all K scores:

    dg_k / dF_j = p_k (1[k = j] - p_j)        dh_k / dF_j = (1 - 2 p_k) p_k (1[k = j] - p_j)

Everything above is a function of the *level*: F itself, or p. Loops here run over the samples of a block, so that LLVM
vectorises them; exp is written out for the same reason (libraries' are called sample by sample).

F_0, the raw scores before the first tree, is a function of the samples' weights by a rule:

    CONSTANT      does not depend on the samples
    MEAN          of the targets
    LOG_ODDS      of the second of two classes
    LOG_SHARES    of each of several classes; a shift of all of them changes nothing
    NEWTON_STEP   of two classes: one Newton step from 0, 4 (mean - 1/2)

A rule says how F_0 moves. The numbers themselves come from the model, and may be rounded or shifted.
"""

from enum import Enum, IntEnum

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Reals
from oubli.core.jit.policy import pasted

# Losses, as the kernels know them.
SQUARED_ERROR = 0
BINARY_LOG_LOSS = 1
SOFTMAX_LOG_LOSS = 2

BLOCK = 512  # samples that go through a step together

_LOG2_E = 1.4426950408889634
_LN2_HIGH = 0.6931471803691238  # the upper bits of ln 2: products with integers below 2^20 are exact
_LN2_LOW = 1.9082149292705877e-10
_LARGEST = 700.0
_BIAS = 1023
_MANTISSA_BITS = 52

# 1 / n!
_C2, _C3, _C4, _C5, _C6, _C7 = 1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 720, 1 / 5040
_C8, _C9, _C10, _C11, _C12, _C13 = 1 / 40320, 1 / 362880, 1 / 3628800, 1 / 39916800, 1 / 479001600, 1 / 6227020800
LEAST_PROBABILITY = 1e-15  # of a class; also the share of a class whose last sample has gone


@pasted
def exponentiate(values, row, n, powers, power_bits):
    """Replace values[row, :n] by their exponentials, arguments clipped to +-700; to the last bit or two.

    x = k ln 2 + r with |r| <= ln 2 / 2, and the series of e^r to r^13.

    powers, power_bits  float64[BLOCK] and int64[BLOCK], the same memory
    """
    for j in range(n):
        x = values[row, j]
        x = x if x < _LARGEST else _LARGEST
        x = x if x > -_LARGEST else -_LARGEST
        k = np.floor(x * _LOG2_E + 0.5)
        r = (x - k * _LN2_HIGH) - k * _LN2_LOW
        high = _C8 + r * (_C9 + r * (_C10 + r * (_C11 + r * (_C12 + r * _C13))))
        low = _C2 + r * (_C3 + r * (_C4 + r * (_C5 + r * (_C6 + r * (_C7 + r * high)))))
        values[row, j] = 1.0 + r * (1.0 + r * low)
        power_bits[j] = (np.int64(k) + _BIAS) << _MANTISSA_BITS
    for j in range(n):
        values[row, j] *= powers[j]


@pasted
def fill_levels(loss, scores, start, n, levels, powers, power_bits):
    """Write the levels of samples start .. start + n to levels[:, :n].

    scores  float64[K, samples]
    levels  float64[K + 1, BLOCK]; the last row is working space
    """
    n_groups = scores.shape[0]
    if loss == SQUARED_ERROR:
        for j in range(n):
            levels[0, j] = scores[0, start + j]
        return
    if loss == BINARY_LOG_LOSS:
        for j in range(n):
            levels[0, j] = -scores[0, start + j]
        exponentiate(levels, 0, n, powers, power_bits)
        for j in range(n):
            levels[0, j] = 1.0 / (1.0 + levels[0, j])
        return
    for j in range(n):
        levels[n_groups, j] = scores[0, start + j]
    for k in range(1, n_groups):
        for j in range(n):
            x = scores[k, start + j]
            largest = levels[n_groups, j]
            levels[n_groups, j] = x if x > largest else largest
    for k in range(n_groups):
        for j in range(n):
            levels[k, j] = scores[k, start + j] - levels[n_groups, j]
        exponentiate(levels, k, n, powers, power_bits)
    for j in range(n):
        levels[n_groups, j] = 0.0
    for k in range(n_groups):
        for j in range(n):
            levels[n_groups, j] += levels[k, j]
    for k in range(n_groups):
        for j in range(n):
            levels[k, j] /= levels[n_groups, j]


@pasted
def gradient(loss, level, y, group):
    """First derivative, g, of a sample for a tree of a group."""
    if loss == SOFTMAX_LOG_LOSS:
        return level - (1.0 if y == group else 0.0)
    return level - y


@pasted
def hessian(loss, level):
    """Second derivative, h, of a sample."""
    if loss == SQUARED_ERROR:
        return 1.0
    return level * (1.0 - level)


class Loss(IntEnum):
    """What a boosted model was trained on."""

    SQUARED_ERROR = SQUARED_ERROR
    BINARY_LOG_LOSS = BINARY_LOG_LOSS
    SOFTMAX_LOG_LOSS = SOFTMAX_LOG_LOSS


def probabilities(loss: Loss, scores: Reals) -> Reals:
    """Probabilities of the classes by raw scores float64[n, K]; float64[n, classes]."""
    if loss is Loss.BINARY_LOG_LOSS:
        scores = np.column_stack([np.zeros(len(scores)), scores[:, 0]])
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Reals = powers / powers.sum(axis=1, keepdims=True)
    return shares


def class_losses(shares: Reals, y: npt.NDArray[np.integer]) -> Reals:
    """Log-loss of each row by float64[n, classes] probabilities and the numbers of the true classes; -1: not held."""
    picked = np.where(y >= 0, shares[np.arange(len(y)), y], 0.0)
    losses: Reals = -np.log(picked.clip(LEAST_PROBABILITY, 1.0))
    return losses


def row_losses(loss: Loss, scores: Reals, y: Reals) -> Reals:
    """Loss of each row by raw scores float64[n, K] and targets float64[n] (numbers of classes for log-loss)."""
    if loss is Loss.SQUARED_ERROR:
        squares: Reals = (scores[:, 0] - y) ** 2
        return squares
    return class_losses(probabilities(loss, scores), y.astype(np.int64))


def row_slopes(loss: Loss, scores: Reals, y: Reals) -> Reals:
    """Derivative of each row's loss by its raw scores, float64[n, K]."""
    if loss is Loss.SQUARED_ERROR:
        return 2.0 * (scores - y[:, np.newaxis])
    if loss is Loss.BINARY_LOG_LOSS:
        return probabilities(loss, scores)[:, 1:] - y[:, np.newaxis]
    slopes = probabilities(loss, scores)
    slopes[np.arange(len(y)), y.astype(np.int64)] -= 1.0
    return slopes


# -- F_0 ---------------------------------------------------------------------------------------------


class StartRule(Enum):
    """How F_0 follows the samples."""

    CONSTANT = "constant"
    MEAN = "mean"
    LOG_ODDS = "log-odds"
    LOG_SHARES = "log-shares"
    NEWTON_STEP = "newton-step"


USUAL_RULES = {
    Loss.SQUARED_ERROR: StartRule.MEAN,
    Loss.BINARY_LOG_LOSS: StartRule.LOG_ODDS,
    Loss.SOFTMAX_LOG_LOSS: StartRule.LOG_SHARES,
}


def start_scores(rule: StartRule, y: Reals, weights: Reals, n_groups: int) -> Reals:
    """F_0 by a rule, float64[K]."""
    total = weights.sum()
    if rule is StartRule.CONSTANT or total <= 0:
        return np.zeros(n_groups)
    if rule is StartRule.LOG_SHARES:
        shares = np.bincount(y.astype(np.int64), weights, n_groups) / total
        log_shares: Reals = np.log(shares.clip(LEAST_PROBABILITY, 1.0))
        return log_shares
    mean = float(np.dot(weights, y) / total)
    if rule is StartRule.MEAN:
        return np.array([mean])
    if rule is StartRule.NEWTON_STEP:
        return np.array([4.0 * (mean - 0.5)])
    mean = min(max(mean, LEAST_PROBABILITY), 1.0 - LEAST_PROBABILITY)
    return np.array([np.log(mean) - np.log1p(-mean)])


def start_slopes(rule: StartRule, y: Reals, weights: Reals, n_groups: int) -> Reals:
    """Derivative of F_0 by the weight of each sample, float64[K, n]."""
    total = weights.sum()
    if rule is StartRule.CONSTANT or total <= 0:
        return np.zeros((n_groups, len(y)))
    if rule is StartRule.LOG_SHARES:
        of_class = np.bincount(y.astype(np.int64), weights, n_groups)[y.astype(np.int64)]
        slopes = np.full((n_groups, len(y)), -1.0 / total)
        # A class whose samples all have a weight of 0 has no influence.
        slopes[y.astype(np.int64), np.arange(len(y))] += np.divide(1.0, of_class, where=of_class > 0, out=of_class * 0)
        return slopes
    mean = np.dot(weights, y) / total
    factor = {
        StartRule.MEAN: 1.0,
        StartRule.NEWTON_STEP: 4.0,
        StartRule.LOG_ODDS: 1.0 / (mean * (1.0 - mean)) if 0.0 < mean < 1.0 else 0.0,
    }[rule]
    residuals: Reals = factor / total * (y - mean)
    return residuals[np.newaxis]


def find_rule(candidates: tuple[StartRule, ...], start: Reals, y: Reals, weights: Reals) -> StartRule:
    """The first of some rules that gives these scores, up to float32's rounding and a shift of several; or CONSTANT."""
    for rule in candidates:
        expected = start_scores(rule, y, weights, len(start))
        if rule is StartRule.LOG_SHARES:
            expected = expected - expected.mean() + start.mean()
        if np.allclose(start, expected, rtol=1e-4, atol=1e-5):
            return rule
    return StartRule.CONSTANT
