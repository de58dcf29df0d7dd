"""`incremental-boosting` without quantization, slowly: every split of every node is tried, on sums of integers.

There are no updates and nothing is sorted beforehand: a delete is a fit without the sample. Derivatives, scores and
leaf values are integers in fixed point, on scales that are functions of the set of samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tests.oracles.boosting import numbers
from tests.oracles.boosting.loss import exp, log, sigmoid
from tests.oracles.boosting.quantised_parts import Parameters, number_start_of, validates
from tests.oracles.boosting.trees import Ensemble, Node, Sample, Sums
from tests.oracles.common import MISSING_CATEGORY, Column, quantised, scale_exponent, threshold_type
from tests.oracles.splits import Split, midpoint, sides

HALVES = 2.0**-30  # a score of classes is a multiple of it


class Rules(NamedTuple):
    """What decides a tree, in the units of its derivatives."""

    max_depth: int
    l2: float
    least: int  # hessian that each side has to have
    factor: float  # from -G / (H + l2) to units of scores
    limit: float | None  # largest value of a leaf
    directions: Mapping[int, int] = {}  # monotone constraints, by column


@dataclass
class Part:
    """Samples of a node: their cells and derivatives."""

    rows: list[Sequence[Any]]
    derivatives: np.ndarray[Any, Any]  # int64[n, 2]

    def chosen(self, mask: np.ndarray[Any, Any]) -> Part:
        """Some of them."""
        rows = [row for row, is_in in zip(self.rows, mask.tolist(), strict=True) if is_in]
        return Part(rows, self.derivatives[mask])

    @property
    def sums(self) -> Sums:
        """What they add up to."""
        return Sums(*self.derivatives.sum(axis=0).tolist())

    def missing(self, feature: int) -> Sums:
        """What those without a value add up to."""
        return self.chosen(np.array([row[feature] is None for row in self.rows], np.bool_)).sums


# --- one tree -------------------------------------------------------------------------------------


def splits_of(part: Part, columns: Sequence[Column]) -> list[Split]:
    """The candidates of a node, in the order in which they are preferred."""
    kind = threshold_type(columns)
    result = []
    for j, column in enumerate(columns):
        values = {row[j] for row in part.rows}
        if column.type == "categorical":
            categories = sorted(values, key=lambda value: (value != MISSING_CATEGORY, value))
            result += [Split(j, category=category) for category in categories]
            continue
        present = sorted(value for value in values if value is not None)
        sides_of_missing = (False, True) if part.missing(j) != (0, 0) else (False,)
        result += [
            Split(j, midpoint(low, high, kind), missing_left)
            for low, high in pairwise(present)
            for missing_left in sides_of_missing
        ]
        if present and part.missing(j) != (0, 0):
            result.append(Split(j, math.inf))
    return result


def worth(g: int, h: int, l2: float) -> float:
    """G^2 / (H + l2); 0 where that is nothing by nothing."""
    weight = float(h) + l2
    return float(g) * float(g) / weight if weight else 0.0


def best_split(part: Part, columns: Sequence[Column], rules: Rules) -> Split | None:
    """The first of the candidates worth most, if that is more than not to split, by more than a hair."""
    total = part.sums
    splits = splits_of(part, columns)
    lefts = (sides(splits, part.rows).astype(np.int64) @ part.derivatives).tolist()
    best, found = worth(*total, rules.l2) * (1.0 + 2.0**-40), None
    for split, (g, h) in zip(splits, lefts, strict=True):
        present = h - part.missing(split.feature).h if split.missing_left else h
        if h < rules.least or total.h - h < rules.least or present < 1:
            continue
        direction = rules.directions.get(split.feature, 0)
        if direction and numbers.is_against((g, h), (total.g - g, total.h - h), rules.l2, direction):
            continue
        value = worth(g, h, rules.l2) + worth(total.g - g, total.h - h, rules.l2)
        if value > best:
            best, found = value, split
    return found


def grow(
    part: Part, columns: Sequence[Column], rules: Rules, depth: int = 0, bounds: numbers.Bounds = numbers.ANY
) -> Node:
    """The subtree of some samples."""
    g, h = part.sums
    may_split = depth < rules.max_depth and len(part.rows) >= 2 and h >= 2 * rules.least
    split = best_split(part, columns, rules) if may_split else None
    if split is None:
        return Node(float(bounds.clip(leaf_value(g, h, rules))))
    left = sides([split], part.rows)[0]
    parts = part.chosen(left), part.chosen(~left)
    own = [leaf_value(*one.sums, rules) for one in parts]
    below = bounds.divide(own[0], own[1], rules.directions.get(split.feature, 0))
    children = (grow(one, columns, rules, depth + 1, within) for one, within in zip(parts, below, strict=True))
    return Node(0.0, split, *children)


def leaf_value(g: int, h: int, rules: Rules) -> int:
    """-G / (H + l2) in units, to the nearest."""
    weight = float(h) + rules.l2
    if g == 0 or weight == 0.0:
        return 0
    value = math.floor(-(float(g) * rules.factor) / weight + 0.5)
    return value if rules.limit is None else int(min(max(value, -rules.limit), rules.limit))


# --- losses ---------------------------------------------------------------------------------------


def room_for(samples: Sequence[Sample]) -> int:
    """Bits of both derivatives of a sample together, so that no sum passes 2^63."""
    return 63 - 2 * sum(math.ceil(sample.weight) for sample in samples).bit_length()


def weighed(samples: Sequence[Sample], derived: Iterable[Iterable[tuple[int, int]]]) -> np.ndarray[Any, Any]:
    """Derivatives times the weights, rounded to the nearest, halves up: int64[n, groups, 2]."""
    pairs = zip(samples, derived, strict=True)
    return np.array([[[one.weighed(x, 128) for x in pair] for pair in own] for one, own in pairs], np.int64)


class SquaredError:
    """A regression: targets, scores and values are multiples of 2^(e - 38), gradients are what room is left for."""

    n_groups = 1

    def __init__(self, samples: Sequence[Sample], parameters: Parameters) -> None:
        self.parameters = parameters
        self.exponent = scale_exponent([sample.label for sample in samples])
        self.h_bits = 0 if all(sample.weight.is_integer() for sample in samples) else 8
        self.room = room_for(samples) - self.h_bits
        units = [round(256 * sample.weight) for sample in samples]
        total = sum(quantised(sample.label, self.exponent) * u for sample, u in zip(samples, units, strict=True))
        self.start = [(2 * total + sum(units)) // (2 * sum(units))]
        self.unit = math.ldexp(1.0, self.exponent - 38)
        self.base = [math.ldexp(float(self.start[0]), self.exponent - 38)]

    def target(self, sample: Sample) -> int:
        """The target in units; of samples that validate, at most four times the largest that trains."""
        most = 4.0 * math.ldexp(1.0, self.exponent) if self.exponent < 1022 else math.inf
        return quantised(min(max(sample.label, -most), most), self.exponent)

    def derive(self, samples: Sequence[Sample], scores: Sequence[Sequence[int]]) -> tuple[np.ndarray[Any, Any], Rules]:
        """Gradients and hessians, int64[n, 1, 2], and what decides the trees."""
        p = self.parameters
        errors = [f - self.target(sample) for sample, (f,) in zip(samples, scores, strict=True)]
        shift = 0
        while max(map(abs, errors)) >> shift >= 2**self.room:
            shift += 1
        half = (1 << shift) >> 1
        l2, least = (math.ldexp(weight, self.h_bits) for weight in (p.l2_regularization, p.min_child_weight))
        rate = p.learning_rate * 2.0**shift * 2.0**self.h_bits
        rules = Rules(p.max_depth, l2, max(1, math.ceil(least)), rate, None, p.directions)
        return weighed(samples, ([((error + half) >> shift, 2**self.h_bits)] for error in errors)), rules

    def of(self, sample: Sample, scores: Sequence[int]) -> float:
        """The loss of a sample that validates."""
        x = float(scores[0] - self.target(sample)) / 2.0**38
        return x * x


class NumberLoss(SquaredError):  # noqa: N818 - a loss, no exception
    """Another loss of numbers: gradients are what room is left for, hessians as those of classes."""

    def __init__(self, samples: Sequence[Sample], parameters: Parameters) -> None:
        super().__init__(samples, parameters)
        units = [round(256 * sample.weight) for sample in samples]
        p, begin = parameters, number_start_of([sample.label for sample in samples], units, parameters)
        spread = begin.spread
        self.of_target, self.of_score, self.slopes, self.limit = 1.0, 1.0, 1.0, 2.0**50
        self.curve: numbers.Curve
        self.greatest, self.ordinary = 1.0, 1.0
        most = 2.0**41
        least = max(self.unit, 2.0**-1000)
        self.start = [round(min(max(begin.base / least, -most), most))]
        self.base = [math.ldexp(float(self.start[0]), self.exponent - 38)]
        if p.loss == "huber":
            self.curve = numbers.huber((p.huber_delta or spread) / least)
            return
        room = room_for(samples)
        self.h_bits = (room - 2) // 2
        self.room = room - self.h_bits
        if p.loss == "quantile":
            steep, band = max(p.quantile, 1.0 - p.quantile), numbers.BAND * spread / least
            self.curve, self.slopes, self.greatest = numbers.pinball(p.quantile, band), 2.0**30, band / steep
            self.ordinary = numbers.BAND / steep / (p.quantile * (1.0 - p.quantile))
            return
        self.curve, self.of_score, self.of_target, self.slopes = (numbers.poisson(), HALVES, self.unit, 1.0 / least)
        self.start = [round(begin.base * 2.0**30)]
        self.unit, self.base = HALVES, [self.start[0] * HALVES]
        self.greatest, self.ordinary = exp(-begin.base) / 8.0, 1.0 / 8.0
        self.limit = 2.0**31 * p.learning_rate

    def derive(self, samples: Sequence[Sample], scores: Sequence[Sequence[int]]) -> tuple[np.ndarray[Any, Any], Rules]:
        """Both derivatives of the loss, on the scales that there is room for."""
        p = self.parameters
        pairs = [
            (f * self.of_score, self.target(one) * self.of_target) for one, (f,) in zip(samples, scores, strict=True)
        ]
        slopes = [min(max(self.curve.slope(*pair) * self.slopes, -(2.0**41)), 2.0**41) for pair in pairs]
        errors = [math.floor(slope + 0.5) for slope in slopes]
        bends = [min(self.curve.bend(*pair) * self.greatest, 1.0) for pair in pairs]
        shift = 0
        while max(map(abs, errors)) >> shift >= 2**self.room:
            shift += 1
        half, most = (1 << shift) >> 1, 2.0**self.h_bits
        rules = Rules(
            max_depth=p.max_depth, l2=math.ldexp(p.l2_regularization * self.ordinary, self.h_bits),
            least=max(1, math.ceil(math.ldexp(p.min_child_weight * self.ordinary, self.h_bits))),
            factor=p.learning_rate * 2.0**shift * most * (self.greatest / (self.slopes * self.of_score)),
            limit=self.limit, directions=p.directions,
        )  # fmt: skip
        derived = ([((e + half) >> shift, math.floor(b * most + 0.5))] for e, b in zip(errors, bends, strict=True))
        return weighed(samples, derived), rules

    def of(self, sample: Sample, scores: Sequence[int]) -> float:
        """The loss of a sample that validates."""
        value = self.curve.value(scores[0] * self.of_score, self.target(sample) * self.of_target)
        value = value / max(self.of_target, 2.0**-1000) / 2.0**38
        return value / 2.0**38 if self.parameters.loss == "huber" else value


class LogLoss:
    """Classes: scores and values are multiples of 2^-30; gradients and hessians have what room there is."""

    unit = HALVES

    def __init__(self, classes: Sequence[Any], training: Sequence[Sample], parameters: Parameters) -> None:
        self.parameters = parameters
        self.classes = list(classes)
        self.n_groups = len(classes) if len(classes) > 2 else 1
        room = room_for(training)
        self.h_bits = (room - 2) // 2
        self.g_bits = room - self.h_bits
        self.start = [0] * self.n_groups
        if self.n_groups == 1:
            n1, n0 = (sum(sample.weight for sample in training if sample.label == classes[k]) for k in (1, 0))
            odds = (n1 or 1.0) / (n0 or 1.0)
            self.start = [math.floor(log(odds) * 2.0**30 + 0.5)]
        self.base = [float(start) * HALVES for start in self.start]

    def powers(self, scores: Sequence[int]) -> tuple[list[float], float]:
        """e^(F_k - max), and their sum from the first to the last."""
        powers = [exp((score - max(scores)) * HALVES) for score in scores]
        total = 0.0
        for power in powers:
            total += power
        return powers, total

    def shares(self, scores: Sequence[int]) -> list[float]:
        """Probabilities: of the second of two classes, or of each."""
        if self.n_groups == 1:
            return [sigmoid(scores[0] * HALVES)]
        powers, total = self.powers(scores)
        return [power / total for power in powers]

    def is_own(self, sample: Sample, k: int) -> bool:
        """Whether a sample is of the class that a group is for."""
        return bool(sample.label == self.classes[1 if self.n_groups == 1 else k])

    def derive(self, samples: Sequence[Sample], scores: Sequence[Sequence[int]]) -> tuple[np.ndarray[Any, Any], Rules]:
        """Gradients and hessians, int64[n, groups, 2], and what decides the trees."""
        p, h_steps = self.parameters, self.h_bits + 2
        derived = [
            [
                (
                    math.floor((share - float(self.is_own(sample, k))) * 2.0**self.g_bits + 0.5),
                    math.floor(share * (1.0 - share) * 2.0**h_steps + 0.5),
                )
                for k, share in enumerate(self.shares(own))
            ]
            for sample, own in zip(samples, scores, strict=True)
        ]
        factor = (self.n_groups - 1) / self.n_groups if self.n_groups > 1 else 1.0
        rules = Rules(
            max_depth=p.max_depth, l2=math.ldexp(p.l2_regularization, h_steps),
            least=max(1, math.ceil(math.ldexp(p.min_child_weight, h_steps))),
            factor=p.learning_rate * factor * 2.0 ** (30 + h_steps - self.g_bits), limit=2**35, directions=p.directions,
        )  # fmt: skip
        return weighed(samples, derived), rules

    def of(self, sample: Sample, scores: Sequence[int]) -> float:
        """The loss of a sample that validates."""
        if self.n_groups == 1:
            z = scores[0] * HALVES
            return log(1.0 + exp(-z if self.is_own(sample, 0) else z))
        _, total = self.powers(scores)
        return log(total) - float(scores[self.classes.index(sample.label)] - max(scores)) * HALVES


# --- the model ------------------------------------------------------------------------------------


def fit(samples: Mapping[str, Sample], parameters: Parameters, columns: Sequence[Column], task: str) -> Ensemble:
    """The trees of a set of samples that predictions read; their order does not matter."""
    p = parameters
    validation = [sample for sample in samples.values() if validates(sample, p)]
    training = [sample for sample in samples.values() if not validates(sample, p)]
    if not training:
        training, validation = validation, []
    classes = sorted({sample.label for sample in samples.values()}) if task == "classification" else []
    if len(classes) == 1:
        return Ensemble([], [])
    loss: SquaredError | LogLoss
    if task == "classification":
        loss = LogLoss(classes, training, p)
    else:
        kind = SquaredError if p.loss == "squared_error" else NumberLoss
        loss = kind(training, p)
    scores = {id(sample): list(loss.start) for sample in (*training, *validation)}
    iterations: list[list[Node]] = []
    losses: list[int] = []
    while len(iterations) < p.n_estimators:
        derivatives, rules = loss.derive(training, [scores[id(sample)] for sample in training])
        rows = [sample.cells for sample in training]
        roots = [grow(Part(list(rows), derivatives[:, k]), columns, rules) for k in range(loss.n_groups)]
        for sample in (*training, *validation):
            for k, root in enumerate(roots):
                scores[id(sample)][k] += int(root.leaf_of(sample.cells).value)
        iterations.append(roots)
        if validation:
            own = [min(loss.of(sample, scores[id(sample)]) * 2.0**32, 2.0**38) for sample in validation]
            losses.append(sum(one.weighed(math.floor(x)) for one, x in zip(validation, own, strict=True)))
            if len(losses) - 1 - losses.index(min(losses)) >= (p.early_stopping or 0):
                break
    if validation:
        iterations = iterations[: losses.index(min(losses)) + 1]
    return Ensemble(iterations, loss.base, loss.unit)
