"""Derivatives of `online-boosting` as integers, and the scale of a regression."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

from tests.oracles.boosting.loss import sigmoid
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


def scale_of(targets: Sequence[float], most_samples: int) -> Scale:
    """A function of the set of targets."""
    room = most_samples.bit_length()
    step = 52 - room - math.frexp(max(abs(y) for y in targets))[1]
    total = sum(round(math.ldexp(y, step)) for y in targets)
    base = math.ldexp(total / len(targets), -step)
    spread = min(max(abs(y - base) for y in targets), sys.float_info.max)
    if spread == 0.0:
        spread = max(abs(base), 1.0) * 2.0**-20
    size, exponent = min(39 - room, 30), math.frexp(spread)[1]
    return Scale(
        base=base,
        reach=min(2.0 * spread, sys.float_info.max),
        scale=math.ldexp(1.0, min(size - exponent - 2, 1000)),
        limit=2**size,
        unit=math.ldexp(1.0, max(exponent - 4, -1000)),
    )


def number_derivative(error: float, scale: Scale, id_hash: int, iteration: int) -> Sums:
    """F - y as an integer, of a regression; h is 1."""
    g = error * scale.scale + offset(id_hash >> 32, iteration)
    return Sums(math.floor(min(max(g, -scale.limit), scale.limit)), 1)
