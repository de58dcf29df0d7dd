"""Gradients and hessians of the loss, rounded to integers, from raw scores.

A raw score is base + unit * (sum of leaf values, in the order of the iterations). With u a number in [0, 1) that
belongs to the sample and the iteration, an integer derivative is floor(scale * g + u): right on average, so that the
errors of many samples, and of many trees, cancel (stochastic rounding). For one sample the u of successive iterations
are the multiples of the golden ratio modulo 1, from a start that is a hash of its id: evenly spread over any few
iterations. The same score always gives the same integers.

Eight bits each are as good as float64 here: the error in a leaf's sum is a hundredth of what the samples themselves
scatter.
"""

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.loss import sigmoids
from oubli.core.boosting.online.state import G_SCALE, H_SCALE
from oubli.core.jit.policy import inner, kernel, pasted

_GOLDEN = np.uint64(0x9E3779B9)
_LOW_WORD = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_TWO_TO_MINUS_32 = 2.0**-32
_BYTE = 256
_MOST = int(G_SCALE)

# Between the entries of the tables a few terms of the Taylor series do: the error is below 1e-6, and a derivative is
# rounded to 1 / 127.
_STEPS = 16
_END_OF_SIGMOID = 20
_END_OF_POWERS = 40


def _probabilities(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    both = np.empty((len(scores), 2))
    sigmoids(scores.reshape(-1, 1), both)
    return both


def _sigmoid_table() -> npt.NDArray[np.float64]:
    """p, p' and p'' / 2 at the multiples of 1 / _STEPS from -_END_OF_SIGMOID."""
    p = _probabilities(np.arange(2 * _END_OF_SIGMOID * _STEPS + 1) / _STEPS - _END_OF_SIGMOID)[:, 1]
    return np.stack([p, p * (1 - p), p * (1 - p) * (1 - 2 * p) / 2], axis=1)


def _power_table() -> npt.NDArray[np.float64]:
    """Powers of e: its exponents are the multiples of -1 / _STEPS."""
    both = _probabilities(np.arange(_END_OF_POWERS * _STEPS + 1) / -_STEPS)
    powers: npt.NDArray[np.float64] = both[:, 1] / both[:, 0]
    return powers


_SIGMOIDS = _sigmoid_table()
_POWERS = _power_table()


@pasted
def sigmoid(x):
    """1 / (1 + e^-x), nearly."""
    if x < -_END_OF_SIGMOID:
        x = -np.float64(_END_OF_SIGMOID)
    elif x > _END_OF_SIGMOID:
        x = np.float64(_END_OF_SIGMOID)
    i = np.int64((x + _END_OF_SIGMOID) * _STEPS + 0.5)
    d = x - (np.float64(i) * (1.0 / _STEPS) - _END_OF_SIGMOID)
    return _SIGMOIDS[i, 0] + d * (_SIGMOIDS[i, 1] + d * _SIGMOIDS[i, 2])


@pasted
def _power(x):
    """e^x for x <= 0, nearly; 0 far down."""
    if x < -_END_OF_POWERS:
        return 0.0
    i = np.int64(0.5 - x * _STEPS)
    d = x + np.float64(i) * (1.0 / _STEPS)
    return _POWERS[i] * (1.0 + d * (1.0 + d * (0.5 + d * (1.0 / 6.0))))


@pasted
def _gradient_offset(id_hash, iteration):
    return np.float64(((id_hash >> _HALF) + np.uint64(iteration) * _GOLDEN) & _LOW_WORD) * _TWO_TO_MINUS_32


@pasted
def _hessian_offset(id_hash, iteration):
    return np.float64((id_hash + np.uint64(iteration) * _GOLDEN) & _LOW_WORD) * _TWO_TO_MINUS_32


@pasted
def round_class(g, h, id_hash, iteration):
    """The integers of a sample in a classification, as `gh` holds them."""
    gradient = np.int64(np.floor(G_SCALE * g + _gradient_offset(id_hash, iteration)))
    hessian = np.int64(np.floor(H_SCALE * h + _hessian_offset(id_hash, iteration)))
    # A probability from the table can be beyond 0 or 1 by a hair.
    return min(max(gradient, -_MOST), _MOST) * _BYTE + max(hessian, 0)


@pasted
def round_number(g, scale, limit, id_hash, iteration):
    """The integer of a sample in a regression; a gradient beyond the scale counts as one at its end."""
    gradient = np.floor(g * scale + _gradient_offset(id_hash, iteration))
    return np.int64(min(max(gradient, -np.float64(limit)), np.float64(limit)))


@inner
def softmax_at(sums, base, unit, column, probabilities):
    """Write the probabilities of the classes at a column of float64[K, n] sums."""
    n_classes = base.shape[0]
    largest = -np.inf
    for k in range(n_classes):
        score = base[k] + unit * sums[k, column]
        probabilities[k] = score
        largest = max(largest, score)
    total = 0.0
    for k in range(n_classes):
        probabilities[k] = _power(probabilities[k] - largest)
        total += probabilities[k]
    for k in range(n_classes):
        probabilities[k] /= total


@kernel
def add_values(values, leaf_of, slots, n, sums):
    """Add the values of the leaves that the samples slots[:n] are in to float64[n]."""
    for i in range(n):
        sums[i] += values[leaf_of[slots[i]]]
