"""The losses of numbers beside squared error, and monotone constraints, in plain Python.

A loss is a function of a raw score; `slope` is its derivative, but for the kink of the pinball loss, which is rounded
off within a band, and `bend` is what stands for the second derivative.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import NamedTuple

from tests.oracles.boosting.loss import exp, log

BAND = 0.125  # of a spread
TINY = sys.float_info.min


class Curve(NamedTuple):
    """A loss of one sample by its raw score and its target."""

    slope: Callable[[float, float], float]
    bend: Callable[[float, float], float]
    value: Callable[[float, float], float]


def huber(delta: float) -> Curve:
    """Squared error up to a difference, linear beyond."""

    def value(score: float, y: float) -> float:
        size = abs(score - y)
        return 0.5 * size * size if size <= delta else delta * (size - 0.5 * delta)

    return Curve(lambda score, y: max(-delta, min(score - y, delta)), lambda score, y: 1.0, value)


def pinball(level: float, band: float) -> Curve:
    """What is minimal at a quantile."""

    def slope(score: float, y: float) -> float:
        return max(-level, min(0.5 * (score - y) / band + 0.5 - level, 1.0 - level))

    def bend(score: float, y: float) -> float:
        steepness = 1.0 - level if score > y else level
        return steepness / (band + abs(score - y))

    def value(score: float, y: float) -> float:
        return (1.0 - level) * (score - y) if score > y else level * (y - score)

    return Curve(slope, bend, value)


def poisson() -> Curve:
    """Half the deviance of a mean whose logarithm is the score."""

    def value(score: float, y: float) -> float:
        return max(exp(score) - y + (y * (log(y) - score) if y > 0.0 else 0.0), 0.0)

    return Curve(lambda score, y: exp(score) - y, lambda score, y: exp(score), value)


def is_against(left: tuple[int, int], right: tuple[int, int], l2: float, direction: int) -> bool:
    """Whether the values -G / (H + l2) of two sides are the wrong way round."""
    (a, c), (b, d) = left, right
    difference = (d + l2) * float(a) - (c + l2) * float(b)
    return difference < 0.0 if direction > 0 else difference > 0.0


class Bounds(NamedTuple):
    """What the values below a node may be."""

    low: float = -math.inf
    high: float = math.inf

    def clip(self, value: int) -> int:
        """The nearest value that may be."""
        return int(max(self.low, min(value, self.high)))

    def divide(self, left: int, right: int, direction: int) -> tuple[Bounds, Bounds]:
        """The bounds of the children of a node, whose own values are these."""
        if not direction:
            return self, self
        middle = self.clip((left + right) // 2)
        lower, upper = Bounds(self.low, middle), Bounds(middle, self.high)
        return (lower, upper) if direction > 0 else (upper, lower)


ANY = Bounds()
