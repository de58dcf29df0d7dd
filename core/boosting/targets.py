"""Where the boosting of numbers starts: F_0 and the spread, functions of the set of targets that hardly ever move.

Let s be the standard deviation of the targets. The spread is 2^floor(log2(s) + u1), and F_0 by the loss

    squared error   the mean rounded to a grid of half a spread, floor(mean / (spread / 2) + u2) * (spread / 2)
    quantile        the middle of the cell of such a grid in which the quantile of the targets is; Huber's loss: their
                    median
    Poisson         the logarithm of the mean, rounded in the same way to a grid of 1 / 2, and again to one of half the
                    spread over this mean, if that is less

with u1, u2 and where the grid lies drawn from the seed. Sums of targets and of their squares are integers: targets are
in fixed point, on a scale that covers the largest. Targets that are all the same have a spread of 1, and are F_0. A
spread is at most 2^1020, which is less than the standard deviation only for targets next to the largest numbers there
are.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Reals
from oubli.core.boosting.loss import HUBER, POISSON, QUANTILE, log, power
from oubli.core.jit.policy import kernel
from oubli.core.jit.targets import GRID
from oubli.core.rng import combine, mix, unit
from oubli.core.samples.fixed_point import BITS, TargetScale, quantise

START = np.uint64(7)
BASE_GRID = 0.5
_LARGEST_FLOAT = float(np.finfo(np.float64).max)
_LEAST_FLOAT = float(np.finfo(np.float64).tiny)
_LOG2_E = 1.4426950408889634
# Of a spread: multiples of it, and those of its inverse, are finite numbers, and so is F_0.
_LOWEST_EXPONENT, _HIGHEST_EXPONENT = -1000, 1020


class Start(NamedTuple):
    """Where boosting starts."""

    scores: npt.NDArray[np.int32]  # int32[groups]: F_0 in units, of classes
    base: float  # F_0 of a regression; 0.0 otherwise
    spread: float  # of a regression's targets; 1.0 otherwise


def log_scale(start: Start) -> float:
    """What the logarithms of targets are multiples of: about the spread over the mean, 1 at most."""
    return min(1.0, start.spread * float(power(-start.base)))


@kernel
def _round_half_log2(value, seed):
    """log2 of the square root of a positive number, rounded up or down."""
    return np.int64(np.floor(0.5 * log(value) * _LOG2_E + unit(combine(combine(mix(seed), START), np.uint64(0)))))


@kernel
def _round(value, seed):
    return np.floor(value + unit(combine(combine(mix(seed), START), np.uint64(1))))


@kernel
def _round_log(value, grid, seed):
    """The logarithm of a positive number on a grid."""
    return np.floor(log(value) / grid + unit(combine(combine(mix(seed), START), np.uint64(1)))) * grid


@kernel
def _place(seed):
    """Where the grid of a quantile lies."""
    return unit(combine(combine(mix(seed), START), np.uint64(2)))


def _total(values: npt.NDArray[np.int64], units: npt.NDArray[np.int32]) -> int:
    """The exact sum of values, each times its units, which are empty if all weights are 1.

    Values are below 2**39 in size: no sum over a size of 2**24 passes 2**63, and those of the halves 2**52.
    """
    if not len(units):
        return GRID * int(values.sum())
    high, low = values >> 19, values & (2**19 - 1)
    return (int((high * units).sum()) << 19) + int((low * units).sum())


class _TargetCells:
    """Units of targets by cells of a width, so that a quantile of theirs is a function of counts.

    The cells are so wide, and lie so, that it hardly ever moves.
    """

    def __init__(self, width: float, offset: float) -> None:
        self.width, self.offset = width, offset
        self._counts: dict[float, int] = {}

    def count(self, y: Reals, units: npt.NDArray[np.int32], sign: int) -> None:
        """Take in (sign 1) or let go of (-1) targets; units: of each, or empty if all weights are 1."""
        with np.errstate(over="ignore"):  # of targets that are all the same, and so have no cells of their own
            cells, places = np.unique(np.floor(y / self.width + self.offset), return_inverse=True)
        found = np.zeros(len(cells), np.int64)
        np.add.at(found, places, units if len(units) else GRID)
        for cell, n in zip(cells.tolist(), found.tolist(), strict=True):
            self._counts[cell] = self._counts.get(cell, 0) + sign * n
            if not self._counts[cell]:
                del self._counts[cell]

    def quantile(self, level: float) -> float:
        """Middle of the first cell up to which a share of the units lies."""
        wanted, n_below = level * sum(self._counts.values()), 0
        for cell in sorted(self._counts):
            n_below += self._counts[cell]
            if n_below >= wanted:
                return (cell + 0.5 - self.offset) * self.width
        return 0.0

    def copy(self) -> "_TargetCells":
        """An independent copy."""
        other = _TargetCells(self.width, self.offset)
        other.__dict__.update(_counts=self._counts.copy())
        return other


class TargetSums:
    """Units, sum and sum of squares of a regression's targets, exact; a target counts as often as it has units.

    Parameters
    ----------
    kind, level : of the loss, as in `loss.py`; squared error when left out.
    """

    def __init__(self, kind: int | None = None, level: float = 0.0) -> None:
        self._kind, self._level = kind, level if kind == QUANTILE else 0.5
        self._cells: _TargetCells | None = None  # where F_0 is a quantile
        self._scale = TargetScale()
        self.exponent = 0
        self.n = 0
        self.first = 0
        self.second = 0

    def count(self, y: npt.NDArray[np.float64], units: npt.NDArray[np.int32], sign: int) -> bool:
        """Take in (sign 1) or let go of (-1) targets; False when the scale moves, and all are to be counted again.

        units : of each; empty if all weights are 1.
        """
        self._scale.count(y, sign)
        if self._scale.exponent != self.exponent:
            return False
        fixed = quantise(y, self.exponent)
        # Of 2**38 at most, in two halves: so are the products.
        high, low = fixed >> 19, fixed & (2**19 - 1)
        squares = (_total(high * high, units) << 38) + (_total(high * low, units) << 20) + _total(low * low, units)
        self.n += sign * _total(np.ones_like(fixed), units)
        self.first += sign * _total(fixed, units)
        self.second += sign * squares
        if self._cells is not None:
            self._cells.count(y, units, sign)
        return True

    def recount(self, y: npt.NDArray[np.float64], units: npt.NDArray[np.int32], seed: int) -> None:
        """Forget all and take in targets."""
        self.__init__(self._kind, self._level)  # type: ignore[misc]
        self._scale.count(y, 1)
        self.exponent = self._scale.exponent
        self._scale.count(y, -1)
        self.count(y, units, 1)
        if self._kind in (HUBER, QUANTILE):
            self._cells = _TargetCells(0.5 * self._start(seed).spread, float(_place(np.uint64(seed))))
            self._cells.count(y, units, 1)

    def start(self, seed: int) -> Start:
        """Where a regression on these targets starts."""
        start = self._start(seed)
        if self._kind == POISSON:
            # Where all are 0, less than any of them but for their number.
            mean = max(self._mean(), _LEAST_FLOAT) if self.first > 0 else 1.0 / (1.0 + self.n / GRID)
            coarse = start._replace(base=float(_round_log(mean, BASE_GRID, np.uint64(seed))))
            return start._replace(base=float(_round_log(mean, BASE_GRID * log_scale(coarse), np.uint64(seed))))
        if self._cells is not None and self.n * self.second > self.first**2:
            base = self._cells.quantile(self._level)
            return start._replace(base=min(max(base, -_LARGEST_FLOAT), _LARGEST_FLOAT))
        return start

    def _mean(self) -> float:
        with np.errstate(over="ignore"):  # rounded up to a power of two, the largest number is none
            mean = float(np.ldexp(self.first / self.n, self.exponent - BITS))
        return min(max(mean, -_LARGEST_FLOAT), _LARGEST_FLOAT)

    def _start(self, seed: int) -> Start:
        """The same for squared error."""
        zero = np.zeros(1, np.int32)
        if self.n == 0:
            return Start(zero, 0.0, 1.0)
        mean = self._mean()
        variance = self.n * self.second - self.first**2  # times n^2, in steps; exact
        if variance == 0:
            return Start(zero, mean, 1.0)
        exponent = _round_half_log2(variance / self.n**2, np.uint64(seed)) + self.exponent - BITS
        spread = float(np.ldexp(1.0, min(max(exponent, _LOWEST_EXPONENT), _HIGHEST_EXPONENT)))
        half = 0.5 * spread
        base = float(_round(mean / half, np.uint64(seed))) * half
        return Start(zero, min(max(base, -_LARGEST_FLOAT), _LARGEST_FLOAT), spread)

    def copy(self) -> "TargetSums":
        """An independent copy."""
        other = TargetSums()
        cells = self._cells and self._cells.copy()
        other.__dict__.update(self.__dict__, _scale=self._scale.copy(), _cells=cells)
        return other
