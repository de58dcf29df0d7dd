"""Split criteria: how good it is to send these samples left and those right.

Each is one fixed float64 expression of integers, higher is better, comparable among the candidates
of one node only. The same integers give the bits that IEEE 754 fixes: no `fastmath`, no libm.

    GINI            (sum_c L_c^2 n_R + sum_c R_c^2 n_L) / (n_L n_R), by one division
    ENTROPY         (sum_c xlog2x(L_c) - xlog2x(n_L) + sum_c xlog2x(R_c) - xlog2x(n_R)), fixed point
    SQUARED_ERROR   d^2 / (n_L n_R) with d = S_L - S (n_L / n)

The first is n minus the weighted Gini impurity of the sides, the second minus their weighted
entropy in bits, the third the decrease of the squared error divided by n. L_c, R_c are class
counts, S_L the left sum of quantised targets, S the node's. Entropy's terms are rounded to
multiples of 2**-24 and summed as integers, for a float sum would depend on the order of the
classes' internal codes, and with it on the history.

Bounds: a forest holds at most 2**26 samples, so sums of squared counts stay below 2**53 and are exact
in float64, whatever the order of the classes; sums of targets stay
below 2**62 (`quantisation.py`); n log2 n below 2**36, its fixed-point value below 2**60.
"""

import numpy as np

from oubli.core.jit.policy import kernel, pasted

GINI = 0
ENTROPY = 1
SQUARED_ERROR = 2

_SQRT_2 = 1.4142135623730951
_TWO_OVER_LN_2 = 2.8853900817779268
_FIXED_POINT = 16777216.0  # 2**24


@kernel
def xlog2x(count):
    """floor(count * log2(count) * 2**24 + 1/2) for an integer count >= 0, by + - * / only; 0 at 0.

    count = m * 2^e with m in (sqrt(1/2), sqrt(2)]; log2 m = 2/ln 2 * (z + z^3/3 + ... + z^21/21)
    with z = (m - 1)/(m + 1), |z| < 0.172, summed by Horner's rule from the highest term; the
    truncation is below 2**-53. In float64, in this order:

        series = 1/21; then for power = 19, 17, ..., 1: series = series * (z * z) + 1 / power
        floor(count * (e + 2/ln 2 * (z * series)) * 2**24 + 0.5)
    """
    if count < 2:
        return np.int64(0)
    exponent = 0
    while (count >> exponent) > 1:
        exponent += 1
    mantissa = np.float64(count) / np.float64(np.int64(1) << exponent)
    if mantissa > _SQRT_2:
        mantissa = mantissa / 2.0
        exponent += 1
    z = (mantissa - 1.0) / (mantissa + 1.0)
    square = z * z
    series = 1.0 / 21.0
    for power in range(19, 0, -2):
        series = series * square + 1.0 / np.float64(power)
    value = np.float64(count) * (np.float64(exponent) + _TWO_OVER_LN_2 * (z * series))
    return np.int64(np.floor(value * _FIXED_POINT + 0.5))


@pasted
def gini(left_squares, right_squares, n_left, n_right):
    """GINI of the sums of squared class counts and the sizes of both sides; all float64."""
    return (left_squares * n_right + right_squares * n_left) / (n_left * n_right)


@pasted
def two_class_gini(first, n_left, total, n_samples):
    """GINI for two classes; all float64.

    first, total  samples of the first class on the left, and at the node
    """
    second = n_left - first
    right_first = total - first
    n_right = n_samples - n_left
    right_second = n_right - right_first
    left_squares = first * first + second * second
    right_squares = right_first * right_first + right_second * right_second
    return gini(left_squares, right_squares, n_left, n_right)


@pasted
def squared_error(left_sum, n_left, total, n_samples):
    """SQUARED_ERROR; all float64.

    left_sum, total  sum of targets on the left, and at the node
    """
    d = left_sum - total * (n_left / n_samples)
    return d * d / (n_left * (n_samples - n_left))


@kernel
def split_score(criterion, left, totals, n_left, n_samples):
    """Score of a candidate whose left side has the statistics `left`.

    criterion  GINI, ENTROPY or SQUARED_ERROR
    left       int64[width], class counts or (count, sum of targets) of the left side
    totals     int[width], the same of the node
    n_left     samples on the left, 0 < n_left < n_samples
    """
    n_right = n_samples - n_left
    if criterion == SQUARED_ERROR:
        return squared_error(np.float64(left[1]), np.float64(n_left), np.float64(totals[1]), np.float64(n_samples))
    if criterion == GINI:
        left_squares = np.int64(0)
        right_squares = np.int64(0)
        for c in range(totals.shape[0]):
            in_left = np.int64(left[c])
            in_right = np.int64(totals[c]) - in_left
            left_squares += in_left * in_left
            right_squares += in_right * in_right
        return gini(np.float64(left_squares), np.float64(right_squares), np.float64(n_left), np.float64(n_right))
    entropy = -xlog2x(n_left) - xlog2x(n_right)
    for c in range(totals.shape[0]):
        in_left = np.int64(left[c])
        entropy += xlog2x(in_left) + xlog2x(np.int64(totals[c]) - in_left)
    return np.float64(entropy)


@kernel
def unsplit_score(criterion, totals, n_samples):
    """Score of a node left whole: a split's score less it is what the split gains.

    A gain is n times the decrease of the Gini impurity, 2**24 n times that of the entropy, or the
    decrease of the squared error divided by n.
    """
    if criterion == SQUARED_ERROR:
        return 0.0
    if criterion == GINI:
        squares = np.int64(0)
        for c in range(totals.shape[0]):
            squares += np.int64(totals[c]) * np.int64(totals[c])
        return np.float64(squares) / np.float64(n_samples)
    entropy = -xlog2x(n_samples)
    for c in range(totals.shape[0]):
        entropy += xlog2x(np.int64(totals[c]))
    return np.float64(entropy)
