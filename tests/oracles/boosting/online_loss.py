"""Derivatives of `online-boosting` as integers, and the scale of a regression."""

import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.oracles.boosting.loss import exp, sigmoid
from tests.oracles.boosting.numbers import BAND, Curve, huber, pinball, poisson
from tests.oracles.boosting.quantised_parts import number_start_of
from tests.oracles.boosting.trees import Sums

G_STEPS, H_STEPS = 127.0, 1016.0


SIGMOID_TABLE = [sigmoid(i / 16 - 20) for i in range(641)]
POWER_TABLE = [sigmoid(-i / 16) / (1.0 - sigmoid(-i / 16)) for i in range(641)]


def near_sigmoid(x: float) -> float:
    """The sigmoid from a table with steps of 1/16 and two terms of the Taylor series."""
    x = min(max(x, -20.0), 20.0)
    i = int((x + 20) * 16 + 0.5)
    p, d = SIGMOID_TABLE[i], x - (i * (1.0 / 16) - 20)
    return p + d * (p * (1 - p) + d * (p * (1 - p) * (1 - 2 * p) / 2))


def near_exp(x: float) -> float:
    """e^x of x <= 0 from a table with steps of 1/16 and three terms of the Taylor series; 0 below -40."""
    if x < -40:
        return 0.0
    i = int(0.5 - x * 16)
    d = x + i * (1.0 / 16)
    return POWER_TABLE[i] * (1.0 + d * (1.0 + d * (0.5 + d * (1.0 / 6.0))))


def near_softmax(scores: Sequence[float]) -> list[float]:
    """Of several classes."""
    powers = [near_exp(score - max(scores)) for score in scores]
    total = 0.0
    for power in powers:
        total += power
    return [power / total for power in powers]


def offset(word: int, iteration: int) -> float:
    """What is added before rounding down: multiples of the golden ratio modulo 1, from the sample's own start."""
    return ((word + iteration * 0x9E3779B9) % 2**32) * 2.0**-32


def class_derivatives(p: float, r: int, id_hash: int, iteration: int) -> Sums:
    """p - r and p (1 - p) as integers."""
    g = math.floor(G_STEPS * (p - float(r)) + offset(id_hash >> 32, iteration))
    h = math.floor(H_STEPS * (p * (1.0 - p)) + offset(id_hash, iteration))
    return Sums(min(max(g, -127), 127), max(h, 0))


class Scale(NamedTuple):
    """Of a regression: F_0, how far targets may be from it, steps of gradients, their most, the unit of leaf values."""

    base: float
    reach: float
    scale: float
    limit: int
    unit: float


def scale_of(targets: Sequence[float], units: Sequence[int], most_samples: int) -> Scale:
    """A function of the set of targets and their weights."""
    room = most_samples.bit_length()
    step = 52 - room - math.frexp(max(abs(y) for y in targets))[1]
    total = sum(round(math.ldexp(y, step)) * u for y, u in zip(targets, units, strict=True))
    base = math.ldexp(total / sum(units), -step)
    spread = min(max(abs(y - base) for y in targets), sys.float_info.max)
    if spread == 0.0:
        spread = max(abs(base), 1.0) * 2.0**-20
    size, exponent = min(39 - room, 30), math.frexp(spread)[1]
    return Scale(
        base=base, reach=min(2.0 * spread, sys.float_info.max), scale=math.ldexp(1.0, min(size - exponent - 2, 1000)),
        limit=2**size, unit=math.ldexp(1.0, max(exponent - 4, -1000)),
    )  # fmt: skip


class NumberLoss(NamedTuple):
    """A loss of numbers, as it is from one growing of all trees to the next.

    `steps` are those of a hessian of 1, 0 where it is 1 for every sample; `ordinary` is that of an ordinary sample, and
    each side of a split has to have `least` times the parameter.
    """

    scale: Scale
    curve: Curve | None = None  # squared error
    center: float = 0.0  # of the targets in reach
    steps: float = 0.0
    ordinary: float = 1.0
    least: float = 1.0
    limit: float = math.inf  # of a leaf's value

    def derive(self, score: float, y: float, id_hash: int, iteration: int) -> Sums:
        """What a sample contributes."""
        slope = score - y if self.curve is None else self.curve.slope(score, y)
        sums = number_derivative(slope, self.scale, id_hash, iteration)
        if self.curve is None or not self.steps:
            return sums
        h = min(self.curve.bend(score, y) * self.steps, 255.0)
        return Sums(sums.g, math.floor(h + offset(id_hash, iteration)))


def loss_of(targets: Sequence[float], units: Sequence[int], most_samples: int, p: Any) -> NumberLoss:
    """By the parameters `loss`, `quantile`, `huber_delta` and `random_state`; it starts where exact boosting does."""
    if p.loss == "squared_error":
        scale = scale_of(targets, units, most_samples)
        return NumberLoss(scale, center=scale.base)
    start = number_start_of(targets, units, p)
    base, spread, room = start.base, start.spread, most_samples.bit_length()
    center = 0.0 if p.loss == "poisson" else base
    furthest = min(max(abs(y - center) for y in targets), sys.float_info.max)
    if p.loss == "poisson":
        furthest = max(furthest, exp(base))
    if furthest == 0.0:
        furthest = max(abs(base), 1.0) * 2.0**-20
    reach, exponent = min(2.0 * furthest, sys.float_info.max), math.frexp(furthest)[1] + 2
    unit = math.ldexp(1.0, max(exponent - 6, -1000))
    if p.loss == "huber":
        delta, size = p.huber_delta or spread, min(39 - room, 30)
        steps = math.ldexp(1.0, min(size - min(exponent, math.frexp(delta)[1]), 1000))
        return NumberLoss(Scale(base, reach, steps, 2**size, unit), huber(delta), center)
    size = min(31 - room, 22)
    if p.loss == "quantile":
        level, steep = p.quantile, max(p.quantile, 1.0 - p.quantile)
        scale = Scale(base, reach, 2.0**size, 2**size, unit)
        ordinary = 255.0 * (BAND / steep / (level * (1.0 - level)))
        steps, least = 255.0 * min(BAND * spread / steep, 2.0**1015), level * (1.0 - level)
        return NumberLoss(scale, pinball(level, BAND * spread), center, steps, ordinary, least)
    scale = Scale(base, reach, math.ldexp(1.0, min(size - exponent, 1000)), 2**size, 1.0)
    return NumberLoss(scale, poisson(), center, 255.0 * (exp(-base) / 8.0), 255.0 / 8.0, limit=2.0)


def number_derivative(error: float, scale: Scale, id_hash: int, iteration: int) -> Sums:
    """F - y as an integer, of a regression; h is 1."""
    g = error * scale.scale + offset(id_hash >> 32, iteration)
    return Sums(math.floor(min(max(g, -scale.limit), scale.limit)), 1)
