"""F_0 and the units of scores: functions of the set of samples that hardly ever move.

Classes: the log-odds of the second of two classes, or the logarithm of the number of samples of each, on a grid of
BASE_GRID with an offset drawn from the seed. Counts are one higher than they are, so that no class has none.

Numbers: let s be the standard deviation of the targets. The spread is 2^floor(log2(s) + u1), F_0 the mean rounded to
a grid of half a spread, floor(mean / (spread / 2) + u2) * (spread / 2). Sums of targets and of their squares are
integers: targets are in fixed point, on a scale that covers the largest. Targets that are all the same have a spread
of 1, and are F_0. A spread is 2^1020 at most, which is less than the standard deviation
only of targets next to the largest numbers there are.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.loss import log
from oubli.core.forest.quantisation import BITS, TargetScale, quantise
from oubli.core.jit.policy import kernel
from oubli.core.rng import combine, mix, unit

START = np.uint64(7)
BASE_GRID = 0.5
_LARGEST = float(np.finfo(np.float64).max)
_LOG2_E = 1.4426950408889634
# Of a spread: multiples of it, and those of its inverse, are finite numbers, and so is F_0.
_LOWEST_EXPONENT, _HIGHEST_EXPONENT = -1000, 1020


class Start(NamedTuple):
    """Where boosting starts."""

    scores: npt.NDArray[np.int32]  # int32[groups]: F_0 in units, of classes
    base: float  # F_0 of a regression; 0.0 otherwise
    spread: float  # of a regression's targets; 1.0 otherwise


@kernel
def _round_log(count, other, seed, draw):
    """log(count / other) on the grid, in its steps."""
    u = unit(combine(combine(mix(seed), START), np.uint64(draw)))
    return np.int64(np.floor(log(count / other) / BASE_GRID + u))


@kernel
def _round_half_log2(value, seed):
    """log2 of the square root of a positive number, rounded up or down."""
    return np.int64(np.floor(0.5 * log(value) * _LOG2_E + unit(combine(combine(mix(seed), START), np.uint64(0)))))


@kernel
def _round(value, seed):
    return np.floor(value + unit(combine(combine(mix(seed), START), np.uint64(1))))


def class_start(counts: npt.NDArray[np.int64], n_groups: int, step: float, seed: int) -> Start:
    """Start from the numbers of training samples by rank of their class; `step` is the unit of scores."""
    key = np.uint64(seed)
    if n_groups == 1:
        rounded = [_round_log(float(counts[1] + 1), float(counts[0] + 1), key, 2)]
    else:
        rounded = [_round_log(float(count + 1), 1.0, key, 2 + k) for k, count in enumerate(counts.tolist())]
    return Start(np.rint(np.array(rounded) * BASE_GRID / step).astype(np.int32), 0.0, 1.0)


class TargetSums:
    """Number, sum and sum of squares of a regression's targets, exact."""

    def __init__(self) -> None:
        self._scale = TargetScale()
        self.exponent = 0
        self.n = 0
        self.first = 0
        self.second = 0

    def count(self, y: npt.NDArray[np.float64], sign: int) -> bool:
        """Take in (sign 1) or let go of (-1) targets; False when the scale moves, and all are to be counted anew."""
        self._scale.count(y, sign)
        if self._scale.exponent != self.exponent:
            return False
        fixed = quantise(y, self.exponent)
        # Of 2**38 at most, in two halves: no sum of 2**24 products passes 2**62.
        high, low = fixed >> 19, fixed & (2**19 - 1)
        squares = (int((high * high).sum()) << 38) + (int((high * low).sum()) << 20) + int((low * low).sum())
        self.n += sign * len(y)
        self.first += sign * int(fixed.sum())
        self.second += sign * squares
        return True

    def recount(self, y: npt.NDArray[np.float64]) -> None:
        """Forget all and take in targets."""
        self.__init__()  # type: ignore[misc]
        self._scale.count(y, 1)
        self.exponent = self._scale.exponent
        self._scale.count(y, -1)
        self.count(y, 1)

    def start(self, seed: int) -> Start:
        """Where a regression on these targets starts."""
        zero = np.zeros(1, np.int32)
        if self.n == 0:
            return Start(zero, 0.0, 1.0)
        with np.errstate(over="ignore"):  # rounded up to a power of two, the largest number is none
            mean = float(np.ldexp(self.first / self.n, self.exponent - BITS))
        mean = min(max(mean, -_LARGEST), _LARGEST)
        variance = self.n * self.second - self.first**2  # times n^2, in steps; exact
        if variance == 0:
            return Start(zero, mean, 1.0)
        exponent = _round_half_log2(variance / self.n**2, np.uint64(seed)) + self.exponent - BITS
        spread = float(np.ldexp(1.0, min(max(exponent, _LOWEST_EXPONENT), _HIGHEST_EXPONENT)))
        half = 0.5 * spread
        base = float(_round(mean / half, np.uint64(seed))) * half
        return Start(zero, min(max(base, -_LARGEST), _LARGEST), spread)

    def copy(self) -> "TargetSums":
        """An independent copy."""
        other = TargetSums()
        other.__dict__.update(self.__dict__, _scale=self._scale.copy())
        return other
