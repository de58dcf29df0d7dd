"""Targets with weights: how a class code or a number in fixed point carries the weight of its sample to kernels.

A *target* is a value of at most 2^39 in size, and a field above it:

    target = value + field * 2^40       field = 0: weight 1       field > 0: weight 1 + field       field < 0: -units

so the target of a sample of weight 1 is its value. What a sample counts for is its *amount*: the weight itself while
all weights of the model are whole, and units of 1 / 2^GRID_BITS as soon as one is not (see
`oubli.core.samples.weights`). Sums of numbers in fixed point are of weight times number either way, rounded.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Ints
from oubli.core.jit.policy import pasted

Units = npt.NDArray[np.int32]  # weights in units

GRID_BITS = 8
GRID = 1 << GRID_BITS
_FIELD_BITS = 40
_HALF = np.int64(1 << (_FIELD_BITS - 1))
_FIELD = np.int64(_FIELD_BITS)
_UNITS = np.int64(GRID_BITS)
_ROUNDED = np.int64(1 << (GRID_BITS - 1))


class Weights(NamedTuple):
    """The weights of samples, as targets say them."""

    units: Units  # int32[n_slots]; empty when all are 1
    is_whole: bool  # whether all are whole

    def targets(self, values: Ints) -> Ints:
        """The targets, int64[n_slots], of values; `values` itself when all weights are 1."""
        if not len(self.units):
            return values
        targets = np.empty_like(values)
        write_targets(values, self.units, targets, is_whole=self.is_whole)
        return targets

    def of(self, slots: Ints) -> "Weights":
        """Those of some slots."""
        return self if not len(self.units) else Weights(self.units[slots], self.is_whole)


WEIGHTLESS = Weights(np.zeros(0, np.int32), is_whole=True)


def values_of(targets: Ints) -> Ints:
    """What `value_of` is, of each of int64[n] targets."""
    values: Ints = targets - (((targets + _HALF) >> _FIELD) << _FIELD)
    return values


def write_targets(values: Ints, units: Units, targets: Ints, *, is_whole: bool) -> None:
    """Write the targets, int64[n], of values and int32[n] units; no units, as in free slots, give the value.

    Asks NumPy for no memory but its buffers.
    """
    if is_whole:
        np.right_shift(units, GRID_BITS, out=targets)
        np.subtract(targets, units > 0, out=targets)
    else:
        np.negative(units, out=targets, dtype=np.int64)
    np.left_shift(targets, _FIELD_BITS, out=targets)
    np.add(targets, values, out=targets)


def as_weights(amounts: Any, *, is_whole: bool) -> list[Any]:
    """Sums of amounts as weights: integers, if all are whole."""
    weights: list[Any] = (amounts if is_whole else amounts / GRID).tolist()
    return weights


@pasted
def field_of(target):
    """What a target says of the weight: 0 when that is 1."""
    return (target + _HALF) >> _FIELD


@pasted
def value_of(target):
    """The class code, or the number in fixed point, of a target."""
    return target - (field_of(target) << _FIELD)


@pasted
def amount_of(field):
    """What a sample counts for, by the field of its target."""
    return field + 1 if field >= 0 else -field


@pasted
def weighed(value, field):
    """What a number in fixed point adds to a sum, by the field of its target."""
    if field >= 0:
        return value * (field + 1)
    return (value * -field + _ROUNDED) >> _UNITS


@pasted
def total_of(counts, row):
    """What the samples of a row of class counts count for together, int64."""
    total = np.int64(0)
    for c in range(counts.shape[1]):
        total += np.int64(counts[row, c])
    return total
