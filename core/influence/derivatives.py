"""First, second and third derivatives of the losses, block by block: what all passes over the trees are made of.

With F the raw score of a sample, p = sigmoid(F) or softmax(F)_k, and r 1 or 0 for its being of the class:

    squared error   g = F - y    h = 1            k = 0
    log-loss        g = p - r    h = p (1 - p)    k = p (1 - p) (1 - 2 p)

The K trees of an iteration of softmax share one F, so each has derivatives by all K scores:

    dg_k / dF_j = p_k (1[k = j] - p_j)        dh_k / dF_j = (1 - 2 p_k) p_k (1[k = j] - p_j)

Everything above is a function of the *level*: F itself, or p. Loops here run over the samples of a block, so that LLVM
vectorises them; exp is written out for the same reason (libraries' are called sample by sample).
"""

import numpy as np

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
