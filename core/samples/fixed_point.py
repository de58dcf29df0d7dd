"""Regression targets in fixed point, on a scale that is a function of the samples held.

A target y is held as the integer rint(y * 2**(BITS - e)), where e is the smallest multiple of
EXPONENT_STEP with 2**e >= |y| for all y held (0 when all are zero). A quantised target is thus at
most 2**38 in size, and the sum of 2**24 of them stays below 2**62, so sums never overflow and never
round. The error of a target is at most 2**(e - 39), below 2**-34 of the largest.

When a mutation moves e, every target is requantised and the forest is planted again; a step of four
binary orders keeps that rare.
"""

from typing import NamedTuple

import numpy as np

from oubli.core.array_types import Ints, Reals, Slots
from oubli.core.jit.targets import Weights

BITS = 38
EXPONENT_STEP = 4
MAX_SAMPLES = 2**24

# Exponents of float64 lie in [-1074, 1024].
_LOWEST_STEP = -270
_N_STEPS = 530
_LARGEST_EXPONENT = 1024  # of targets next to the largest number


class TargetScale:
    """Counts the targets held by their exponent, so that the scale follows them; O(1) a target."""

    def __init__(self) -> None:
        self._counts = np.zeros(_N_STEPS, np.int64)

    def count(self, y: Reals, sign: int) -> None:
        """Count (sign 1) or discount (-1) float64[n] targets."""
        np.add.at(self._counts, _steps(y[y != 0.0]) - _LOWEST_STEP, sign)

    @property
    def exponent(self) -> int:
        """e: the scale of the targets held."""
        present = np.flatnonzero(self._counts)
        if len(present) == 0:
            return 0
        return (int(present[-1]) + _LOWEST_STEP) * EXPONENT_STEP

    def copy(self) -> "TargetScale":
        """An independent copy."""
        other = TargetScale()
        other.__dict__.update(_counts=self._counts.copy())
        return other


def _steps(y: Reals) -> Ints:
    """Exponent of each non-zero target in steps: the smallest i with 2**(i * EXPONENT_STEP) >= |y|."""
    mantissa, exponent = np.frexp(np.abs(y))
    # |y| = mantissa * 2**exponent, mantissa in [1/2, 1): a power of two needs one less.
    needed = exponent.astype(np.int64) - (mantissa == 0.5)
    steps: Ints = -((-needed) // EXPONENT_STEP)
    return steps


def quantise(y: Reals, exponent: int) -> Ints:
    """Quantise float64[n] targets to int64[n] on a scale that covers them."""
    return np.rint(np.ldexp(y, BITS - exponent)).astype(np.int64)


def restore(means: Reals, exponent: int) -> Reals:
    """Turn means of quantised targets back into the targets' units; exact but for underflow."""
    if exponent < _LARGEST_EXPONENT:
        return np.asarray(np.ldexp(means, exponent - BITS), np.float64)
    with np.errstate(over="ignore"):  # rounded up to a power of two, the largest number is none
        values = np.ldexp(means, exponent - BITS)
    largest = np.finfo(np.float64).max
    return np.asarray(values, np.float64).clip(-largest, largest)


class Targets(NamedTuple):
    """The targets of a regression in fixed point."""

    scale: TargetScale
    exponent: int  # that of the scale
    numbers: Ints  # int64[n_slots], with weights (see `core/jit/targets.py`); 0 in slots that hold no sample

    @classmethod
    def on_scale(cls, scale: TargetScale, y: Reals, weights: Weights) -> "Targets":
        """Put float64[n_slots] targets on the scale that has counted those of the samples."""
        return cls(scale, scale.exponent, weights.targets(quantise(y, scale.exponent)))

    @classmethod
    def of(cls, y: Reals, slots: Slots, weights: Weights) -> "Targets":
        """Put the targets of the samples in some slots on their scale."""
        scale = TargetScale()
        scale.count(y[slots], 1)
        return cls.on_scale(scale, y, weights)

    def moves_without(self, y: Reals) -> bool:
        """Whether the scale of all targets moves when samples with these leave."""
        # A target far below the scale cannot move it.
        if float(np.abs(y).max()) * 2.0**EXPONENT_STEP < 2.0 ** min(self.exponent, 1023):
            return False
        scale = self.scale.copy()
        scale.count(y, -1)
        return scale.exponent != self.exponent
