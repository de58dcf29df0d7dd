"""The losses of a regression beside squared error: derivatives by a raw score F, in float64, and what a sample costs.

With r = F - y, level tau of the quantile, delta of Huber's loss, and a spread s of the targets that hardly ever moves:

    kind       loss                        gradient g                              curvature h
    HUBER      r^2 / 2, linear beyond delta r, cut off at +-delta                  1
    QUANTILE   (tau - 1[r > 0]) (-r)       r / (2 b) + 1/2 - tau, cut off at       |slope| / (b + |r|),  b = s / 8
                                           -tau and 1 - tau
    POISSON    e^F - y F                   e^F - y                                 e^F

The pinball loss has no curvature. That of the parabola through 0 which touches it at r, |slope| / |r|, is used in its
place: a step -G / H is then the mean of the residuals, weighted so that steps end where a share tau of the samples lies
below (iteratively reweighted least squares). So a leaf far from its quantile comes near it as fast as with squared
error, and no residuals have to be sorted. Within the band b the kink is rounded off.

All of it is + - * / and the project's own `exp`: the same bits everywhere.
"""

from oubli.core.boosting.loss import exp, log
from oubli.core.jit.policy import inner, kernel

# After the kinds of losses that each engine has of its own.
HUBER, QUANTILE, POISSON = range(3, 6)
KINDS = {"huber": HUBER, "quantile": QUANTILE, "poisson": POISSON}

BAND = 0.125  # b, in spreads


@inner
def gradient_at(kind, level, band, score, y):
    """First derivative by the raw score; level: tau, or delta."""
    if kind == HUBER:
        return min(max(score - y, -level), level)
    if kind == QUANTILE:
        return min(max(0.5 * (score - y) / band + 0.5 - level, -level), 1.0 - level)
    return exp(score) - y


@inner
def curvature_at(kind, level, band, score, y):
    """What stands for the second derivative."""
    if kind == HUBER:
        return 1.0
    if kind == QUANTILE:
        return (1.0 - level if score > y else level) / (band + abs(score - y))
    return exp(score)


@inner
def loss_at(kind, level, score, y):
    """Loss of a sample; of Poisson's half the deviance, which is never negative."""
    if kind == HUBER:
        size = abs(score - y)
        return 0.5 * size * size if size <= level else level * (size - 0.5 * level)
    if kind == QUANTILE:
        return (1.0 - level) * (score - y) if score > y else level * (y - score)
    mean = exp(score)
    return max(mean - y + (y * (log(y) - score) if y > 0.0 else 0.0), 0.0)


@kernel
def power(x):
    """e^x."""
    return exp(x)


@kernel
def losses_at(kind, level, scores, y, losses):
    """Write the losses of samples by raw scores float64[n] to float64[n]."""
    for i in range(y.shape[0]):
        losses[i] = loss_at(kind, level, scores[i], y[i])


@kernel
def means_of(scores, means):
    """Write e^F of raw scores float64[n, 1] to float64[n, 1]."""
    for i in range(scores.shape[0]):
        means[i, 0] = exp(scores[i, 0])


@kernel
def log_of(value):
    """Natural logarithm of a positive number."""
    return log(value)
