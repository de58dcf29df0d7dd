"""exp, log, sigmoid and softmax by + - * / alone, which IEEE 754 fixes: the same bits wherever it holds.

Libraries differ in the last bit, and NumPy's own kernels by the processor that it finds. Nothing that reaches a digest
may depend on that. The error is a few units in the last place.

Below are the losses of numbers beside squared error: derivatives by a raw score F, in float64, and what a sample costs.
With r = F - y, tau the level of the quantile, delta that of Huber's loss, and s a spread of the targets that hardly
ever moves:

    kind       loss                        gradient g                              curvature h
    HUBER      r^2 / 2, linear beyond delta r, cut off at +-delta                  1
    QUANTILE   (tau - 1[r > 0]) (-r)       r / (2 b) + 1/2 - tau, cut off at       |slope| / (b + |r|),  b = s / 8
                                           -tau and 1 - tau
    POISSON    e^F - y F                   e^F - y                                 e^F

The pinball loss has no curvature. That of the parabola through 0 which touches it at r, |slope| / |r|, is used in its
place: a step -G / H is then the mean of the residuals, weighted so that steps end where a share tau of the samples lies
below (iteratively reweighted least squares). So a leaf far from its quantile comes near it as fast as with squared
error, and no residuals have to be sorted. Within the band b the kink is rounded off.
"""

import numpy as np

from oubli.core.jit.policy import inner, kernel, pasted

_LOG2_E = 1.4426950408889634
# ln 2 in two parts; the first has so few bits that its product with an exponent is exact.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_SQRT_HALF = 0.7071067811865476
_LARGEST = 700.0  # of an argument: the result is a normal number either way

_POWERS = 2.0 ** np.arange(-1074, 1024, dtype=np.float64)
_POWER_OF_ONE = 1074

_LOG_TERMS = 12


@pasted
def exp(x):
    """Return e to the power of x, which is clipped to +-700.

    x = k ln 2 + r with |r| <= ln 2 / 2, and the series of e^r to r^13: its remainder is below 2^-57.
    """
    if x > _LARGEST:
        x = _LARGEST
    elif x < -_LARGEST:
        x = -_LARGEST
    k = np.floor(x * _LOG2_E + 0.5)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    total = 1.0 + r / 13.0
    for n in range(12, 0, -1):
        total = 1.0 + r * total / n
    return total * _POWERS[np.int64(k) + _POWER_OF_ONE]


@inner
def log(x):
    """Natural logarithm of a positive normal number.

    x = m 2^k with m in [sqrt(1/2), sqrt(2)); log m = 2 (z + z^3 / 3 + ...), z = (m - 1) / (m + 1), |z| < 0.172.
    """
    k = np.int64(0)
    m = x
    # Exact steps: the factors are powers of two.
    step = np.int64(512)
    while step > 0:
        if m >= _POWERS[step + _POWER_OF_ONE]:
            m *= _POWERS[_POWER_OF_ONE - step]
            k += step
        elif m * _POWERS[step + _POWER_OF_ONE] < 2.0:
            m *= _POWERS[step + _POWER_OF_ONE]
            k -= step
        step //= 2
    if m >= 2.0 * _SQRT_HALF:
        m *= 0.5
        k += 1
    z = (m - 1.0) / (m + 1.0)
    square = z * z
    total = 1.0 / (2 * _LOG_TERMS + 1)
    for n in range(_LOG_TERMS - 1, -1, -1):
        total = total * square + 1.0 / (2 * n + 1)
    return k * _LN2_HIGH + (k * _LN2_LOW + 2.0 * z * total)


@pasted
def sigmoid(x):
    """1 / (1 + e^-x)."""
    if x >= 0.0:
        return 1.0 / (1.0 + exp(-x))
    power = exp(x)
    return power / (1.0 + power)


@kernel
def sigmoids(scores, probabilities):
    """Write the probabilities of both classes to float64[n, 2] for raw scores float64[n, 1]."""
    for i in range(scores.shape[0]):
        p = sigmoid(scores[i, 0])
        probabilities[i, 0] = 1.0 - p
        probabilities[i, 1] = p


@pasted
def softmax(scores, probabilities):
    """Write the softmax of float64[K] raw scores to float64[K], or to the same array."""
    largest = scores[0]
    for k in range(1, scores.shape[0]):
        if scores[k] > largest:
            largest = scores[k]
    total = 0.0
    for k in range(scores.shape[0]):
        probabilities[k] = exp(scores[k] - largest)
        total += probabilities[k]
    for k in range(scores.shape[0]):
        probabilities[k] /= total


@kernel
def softmaxes(scores, probabilities):
    """Write the softmax of each row of float64[n, K] raw scores to float64[n, K]."""
    for i in range(scores.shape[0]):
        softmax(scores[i], probabilities[i])


# -- losses of numbers -------------------------------------------------------------------------------

# After the kinds of losses that each engine has of its own.
HUBER, QUANTILE, POISSON = range(3, 6)
KINDS = {"huber": HUBER, "quantile": QUANTILE, "poisson": POISSON}

BAND = 0.125  # b, in spreads
POISSON_STEP = 2.0  # a leaf's largest, of a logarithm, before shrinkage: so none leads far beyond its end
_MOST_MEANS = 8.0  # e^F beyond so many times the mean of all targets counts as that, in a curvature


def ordinary_curvature(kind: int, level: float) -> float:
    """The curvature of an ordinary sample, as a share of the largest: parameters count hessians in it.

    A quantile is as uncertain as the mean of fewer samples, an extreme one of far fewer: there it is that of several.
    """
    if kind == QUANTILE:
        return BAND / max(level, 1.0 - level) / (level * (1.0 - level))
    return 1.0 / _MOST_MEANS if kind == POISSON else 1.0


def curvature_scale(kind: int, level: float, base: float, spread: float) -> float:
    """What curvatures are multiplied by, so that the largest is 1: a quantile's at the kink; larger ones count as 1.

    base, spread : of the targets, see `targets.py`.
    """
    if kind == QUANTILE:
        return BAND * spread / max(level, 1.0 - level)
    return float(power(-base)) / _MOST_MEANS if kind == POISSON else 1.0


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
