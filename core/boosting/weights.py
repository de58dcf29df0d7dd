"""Weights of samples in boosting: derivatives are multiplied by them, in integers.

A weight is a number of units of 1 / 256 (`oubli.core.samples.weights`); where all are 1 there are no units. A product
is rounded up or down, and is at most what the weight rounded up gives. So every bound of a sum counts a sample as
its weight rounded up: the *size* of samples, which is their number where all weights are 1, and below 2**24 in any
case, since weights other than 1 are at most 2**23 in total, of at most 2**23 samples.
"""

from typing import Any

import numpy as np

from oubli.core.array_types import Ints, Slots
from oubli.core.jit.policy import pasted
from oubli.core.jit.targets import GRID, GRID_BITS

_BITS = np.int64(GRID_BITS)


def units_of(units: Any, slots: Slots) -> Ints:
    """The units of the samples in some slots, int64[n]; `units` by slot, empty when all weights are 1."""
    return units[slots].astype(np.int64) if len(units) else np.full(len(slots), GRID)


def size_of(units: Any, slots: Slots) -> int:
    """How many samples those in some slots count as in bounds of sums."""
    return int((units_of(units, slots) + (GRID - 1) >> _BITS).sum()) if len(units) else len(slots)


@pasted
def units_at(units, slot):
    """The units of the sample in a slot; `units` as in `units_of`."""
    return np.int64(units[slot]) if units.shape[0] > 0 else np.int64(GRID)


@pasted
def weighed(value, units, offset):
    """An integer times a weight, rounded down with an offset of 0 to 255 units added; `value` itself by weight 1."""
    return (value * units + offset) >> _BITS
