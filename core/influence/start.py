"""F_0, the raw scores before the first tree, as a function of the samples' weights.

    CONSTANT      does not depend on the samples
    MEAN          of the targets
    LOG_ODDS      of the second of two classes
    LOG_SHARES    of each of several classes; a shift of all of them changes nothing
    NEWTON_STEP   of two classes: one Newton step from 0, 4 (mean - 1/2)

A rule says how F_0 moves, the numbers themselves come from the model: they may be rounded, or shifted.
"""

from enum import Enum

import numpy as np

from oubli.core.array_types import Reals
from oubli.core.influence.losses import Loss

_LEAST = 1e-15  # share of a class whose last sample has gone


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
        log_shares: Reals = np.log(shares.clip(_LEAST, 1.0))
        return log_shares
    mean = float(np.dot(weights, y) / total)
    if rule is StartRule.MEAN:
        return np.array([mean])
    if rule is StartRule.NEWTON_STEP:
        return np.array([4.0 * (mean - 0.5)])
    mean = min(max(mean, _LEAST), 1.0 - _LEAST)
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
