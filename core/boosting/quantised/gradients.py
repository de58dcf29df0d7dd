"""Derivatives on a coarse grid, rounded up or down by a hash of the sample's id.

Let N be the number of steps of the grid, p the probability of a class by the scores so far, r 1 or 0 for the
sample's being of it, and u in [0, 1) the sample's offset. Then

    q = floor(N p + u)      is N p on average over u
    g = q - N r             the gradient, in steps of 1 / N
    h = H[q]                the hessian, in steps of 1 / 64: 64 (q / N) (1 - q / N), rounded

so a sample's derivatives change when one integer, q, does. u = (hash(seed, id) + iteration * 0x9E3779B9 + class *
0x85EBCA6B) mod 2^32 / 2^32 is a Weyl sequence: over the iterations the errors of a sample average out. Scores are
sums of integer leaf values, p is read from tables of integers: all here is integers, but

    regression      g = floor((F - y) / (grid * spread) + u), clipped, and h = 1, F and y as float64

whose few float64 operations are the same everywhere.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.histogram import HESSIAN_BITS, pack
from oubli.core.boosting.loss import exp, sigmoid
from oubli.core.boosting.quantised.state import TRAINS
from oubli.core.jit.policy import inner, kernel

BINARY = 0
MULTICLASS = 1
REGRESSION = 2

HESSIAN_STEPS = 64
GRADIENT_LIMIT = 2**11  # of a regression's gradient: sums of 2**24 stay below 2**35

_ITERATION_STEP = np.uint32(0x9E3779B9)
_CLASS_STEP = np.uint32(0x85EBCA6B)
_SHIFT_32 = np.uint64(32)

_REACH = 16.0  # scores beyond +-16 are taken for +-16: p is 1e-7 from 0 or 1 there


class Loss(NamedTuple):
    """What derivatives are made of; a function of the parameters, and of the spread in a regression."""

    kind: int
    steps: int  # N
    table: npt.NDArray[np.int64]  # N p in steps of 2**-32 by score + zero; of several classes, e^-(score / unit)
    zero: int
    weights: npt.NDArray[np.int64]  # int64[N + 1]: H[q]
    base: float  # regression: F_0
    unit: float  # what scores are multiples of
    inverse_grid: float  # regression: 1 / (grid * spread)
    inverse_spread: float  # regression: 1 / spread


@kernel
def _fill_sigmoids(table, zero, unit):
    for i in range(table.shape[0]):
        table[i] = np.int64(np.floor(sigmoid(unit * (i - zero)) * 4294967296.0))


@kernel
def _fill_powers(table, unit):
    for i in range(table.shape[0]):
        table[i] = np.int64(np.floor(exp(-unit * i) * 1073741824.0))


def make_loss(kind: int, gradient_grid: float, unit: float, base: float = 0.0, spread: float = 1.0) -> Loss:
    """Make the tables.

    Parameters
    ----------
    gradient_grid : 1 / N, rounded to such a number.
    unit : what raw scores are multiples of; in a regression in the targets' own units.
    """
    steps = max(round(1.0 / gradient_grid), 1)
    q = np.arange(steps + 1, dtype=np.int64)
    # 64 q (N - q) / N^2 to the nearest integer.
    weights = (2 * HESSIAN_STEPS * q * (steps - q) + steps * steps) // (2 * steps * steps)
    zero = int(np.ceil(_REACH / unit)) if kind == BINARY else 0
    table = np.zeros(1, np.int64)
    if kind == BINARY:
        table = np.zeros(2 * zero + 1, np.int64)
        _fill_sigmoids(table, zero, unit)
        table *= steps
    elif kind == MULTICLASS:
        table = np.zeros(int(np.ceil(_REACH / unit)) + 1, np.int64)
        _fill_powers(table, unit)
        table[-1] = 0
    return Loss(kind, steps, table, zero, weights, base, unit, 1.0 / (gradient_grid * spread), 1.0 / spread)


@inner
def offset_of(rounding, iteration, group):
    """A sample's offset u in steps of 2**-32, as int64."""
    shifted = np.uint32(rounding) + np.uint32(iteration) * _ITERATION_STEP + np.uint32(group) * _CLASS_STEP
    return np.int64(np.uint32(shifted))


@inner
def binary_level(loss, score, offset):
    """Q of the second of two classes."""
    place = min(max(score + loss.zero, 0), loss.table.shape[0] - 1)
    return (loss.table[np.uint64(place)] + offset) >> 32


@inner
def pack_level(loss, q, is_class):
    """A packed derivative by q and r."""
    return pack(q - (loss.steps if is_class else 0), loss.weights[np.uint64(q)])


@inner
def regression_step(loss, score, y, offset):
    """G of a regression."""
    step = np.floor((loss.base + loss.unit * score - y) * loss.inverse_grid + offset * (1.0 / 4294967296.0))
    return np.int64(min(max(step, -GRADIENT_LIMIT), GRADIENT_LIMIT))


@inner
def derive_one(loss, scores, samples, iteration, slot, packed):
    """Write the packed derivatives of a sample for all groups to packed[:, slot]; of one that validates, 0."""
    place = np.uint64(slot)
    if samples.roles[place] & TRAINS == 0:
        for k in range(scores.shape[0]):
            packed[k, place] = 0
        return
    rounding = samples.rounding[place]
    if loss.kind == BINARY:
        q = binary_level(loss, np.int64(scores[0, place]), offset_of(rounding, iteration, 0))
        packed[0, place] = pack_level(loss, q, samples.labels[place] == 1)
        return
    if loss.kind == REGRESSION:
        step = regression_step(loss, np.int64(scores[0, place]), samples.y[place], offset_of(rounding, iteration, 0))
        packed[0, place] = pack(step, 1)
        return
    derive_classes(loss, scores, samples, iteration, place, packed)


@inner
def derive_classes(loss, scores, samples, iteration, place, packed):
    """Write the packed derivatives of a sample that trains, for each of several classes."""
    rounding = samples.rounding[place]
    n_groups = scores.shape[0]
    largest = np.int64(scores[0, place])
    for k in range(1, n_groups):
        largest = max(largest, np.int64(scores[k, place]))
    total = np.int64(0)
    end = loss.table.shape[0] - 1
    for k in range(n_groups):
        power = loss.table[np.uint64(min(largest - scores[k, place], end))]
        packed[k, place] = power
        total += power
    for k in range(n_groups):
        # At most 2**30 is shifted by 32; the quotient is at most 2**32.
        share = np.int64((np.uint64(packed[k, place]) << _SHIFT_32) // np.uint64(total))
        q = (share * loss.steps + offset_of(rounding, iteration, k)) >> 32
        packed[k, place] = pack_level(loss, q, samples.labels[place] == k)


@inner
def derive_some(loss, scores, samples, iteration, slots, n, packed):
    """Write the packed derivatives of the first n samples of `slots`, as `derive_one` does."""
    if loss.kind == BINARY:
        own, to = scores[0], packed[0]
        for i in range(n):
            slot = np.uint64(slots[i])
            q = binary_level(loss, np.int64(own[slot]), offset_of(samples.rounding[slot], iteration, 0))
            to[slot] = pack_level(loss, q, samples.labels[slot] == 1) * (samples.roles[slot] & TRAINS)
        return
    for i in range(n):
        derive_one(loss, scores, samples, iteration, slots[i], packed)


@inner
def derive_binary(loss, scores, samples, iteration, packed):
    """Write the packed derivatives of all slots to int64[slots], 0 where no sample trains; without branches."""
    last = loss.table.shape[0] - 1
    shift = np.uint32(iteration) * _ITERATION_STEP
    for slot in range(scores.shape[0]):
        place = min(max(np.int64(scores[slot]) + loss.zero, 0), last)
        offset = np.int64(np.uint32(samples.rounding[slot] + shift))
        q = (loss.table[np.uint64(place)] + offset) >> 32
        g = q - loss.steps * samples.labels[slot]
        packed[slot] = ((g << HESSIAN_BITS) + loss.weights[np.uint64(q)]) * (samples.roles[slot] & TRAINS)


@inner
def list_other(new, old, listed):
    """List the slots whose score is another; returns how many.

    Without branches: whoever does not belong in the list is overwritten by the next one.
    """
    n = np.uint64(0)
    for slot in range(new.shape[0]):
        listed[n] = slot
        n += np.uint64(new[slot] != old[slot])
    return np.int64(n)


@inner
def list_other_binary(loss, new, old, samples, iteration, slots, n, listed):
    """List those of the first n slots whose samples train and have another derivative by the new scores.

    `listed` may be `slots`. Returns how many are in it.
    """
    last = loss.table.shape[0] - 1
    shift = np.uint32(iteration) * _ITERATION_STEP
    n_listed = np.uint64(0)
    for i in range(n):
        slot = np.uint64(slots[np.uint64(i)])
        place = min(max(np.int64(new[slot]) + loss.zero, 0), last)
        other = min(max(np.int64(old[slot]) + loss.zero, 0), last)
        offset = np.int64(np.uint32(samples.rounding[slot] + shift))
        q = (loss.table[np.uint64(place)] + offset) >> 32
        p = (loss.table[np.uint64(other)] + offset) >> 32
        listed[n_listed] = np.int32(slot)
        n_listed += np.uint64((p != q) & (samples.roles[slot] == TRAINS))
    return np.int64(n_listed)


@inner
def mark_regression(loss, new, old, samples, iteration, marks):
    """Mark the slots whose derivative, if the sample trains, is another by the new scores than by the old ones."""
    shift = np.uint32(iteration) * _ITERATION_STEP
    for slot in range(new.shape[0]):
        offset = np.int64(np.uint32(samples.rounding[slot] + shift))
        q = regression_step(loss, np.int64(new[slot]), samples.y[slot], offset)
        p = regression_step(loss, np.int64(old[slot]), samples.y[slot], offset)
        marks[slot] = p != q


@inner
def mark_drifted(new, old, marks):
    """Mark the slots whose scores of any group are others."""
    for slot in range(new.shape[1]):
        marks[slot] = 0
    for k in range(new.shape[0]):
        for slot in range(new.shape[1]):
            marks[slot] |= new[k, slot] != old[k, slot]


@inner
def derive_all(loss, scores, samples, iteration, slots, packed):
    """Write the packed derivatives of all samples to int64[groups, slots]; slots: where they are."""
    if loss.kind == BINARY:
        derive_binary(loss, scores[0], samples, iteration, packed[0])
        return
    derive_some(loss, scores, samples, iteration, slots, slots.shape[0], packed)
