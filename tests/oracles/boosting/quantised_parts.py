"""What a fit of `incremental-boosting` on grids starts from: bins, candidates, F_0, and derivatives.

All of it is a function of the set of samples and the seed. `draw(seed, purpose)` names what a number is drawn for.
"""

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from tests.oracles.boosting.loss import exp, log, sigmoid
from tests.oracles.boosting.numbers import BAND, TINY, Curve, huber, pinball, poisson
from tests.oracles.boosting.trees import Sample, bits
from tests.oracles.common import MISSING_CATEGORY, Column, combine, mix, quantised, scale_exponent, unit
from tests.oracles.splits import Split, sides

EDGES, CANDIDATES, START, ROUNDING, VALIDATION, SIZE, REGIONS = 5, 6, 7, 8, 9, 10, 11
LOG2_E = 1.4426950408889634
FEW = 16
LEAST = 11  # log2 of the training samples of a region
WEAK = 256.0  # where the first split explains less than 1 / WEAK of the greatest variance there are fewer regions
LARGE = 17  # log2 of the training samples from which on a set is large


@dataclass(frozen=True)
class Parameters:
    """The estimator's, with the seed and the grids resolved."""

    n_estimators: int
    learning_rate: float
    max_depth: int
    l2_regularization: float
    min_child_weight: float
    split_sampling: float
    max_bins: int
    gradient_grid: float
    leaf_grid: float
    early_stopping: int | None
    validation_fraction: float
    random_state: int
    category_statistics: int | None = 48
    loss: str = "squared_error"
    quantile: float = 0.5
    huber_delta: float | None = None
    monotone_constraints: Mapping[int, int] | None = None  # by position

    @property
    def directions(self) -> Mapping[int, int]:
        """Of the columns with a monotone constraint."""
        return self.monotone_constraints or {}


def below(word: int, share: float) -> bool:
    """Whether a word is among so large a share of all words."""
    return word < min(int(share * 2.0**64), 2**64 - 1)


def draw(seed: int, purpose: int) -> int:
    """The key of all that is drawn for a purpose."""
    return combine(mix(seed), purpose)


def validates(sample: Sample, parameters: Parameters) -> bool:
    """Whether a sample is kept for validation."""
    if not parameters.early_stopping:
        return False
    return below(combine(draw(parameters.random_state, VALIDATION), sample.id_hash), parameters.validation_fraction)


# --- bins and candidates --------------------------------------------------------------------------


def level_of(sample: Sample, seed: int) -> int:
    """How many zeros the hash of a sample begins with."""
    return 64 - max(combine(draw(seed, EDGES), sample.id_hash).bit_length(), 1)


def edges_of(values: Sequence[tuple[float, int]], max_edges: int, least: int) -> list[float]:
    """The distinct values of samples of the least level but the largest, or, when too many, those of a higher level.

    values: with the levels of the samples that have them.
    """
    for lowest in range(least, 65):
        chosen = sorted({value for value, level in values if level >= lowest})
        if len(chosen) <= max_edges:
            return chosen[:-1] if lowest == least else chosen
    raise AssertionError("hashes differ")


def bins_of(
    samples: Sequence[Sample], columns: Sequence[Column], max_bins: int, least: int, seed: int
) -> list[list[Any]]:
    """Of a numeric column its edges, of a categorical one its categories: missing first, then by hash."""
    result: list[list[Any]] = []
    for j, column in enumerate(columns):
        if column.type == "categorical":
            values = {sample.cells[j] for sample in samples}
            result.append(sorted(values, key=lambda value: (value != MISSING_CATEGORY, value)))
        else:
            leveled = [(sample.cells[j], level_of(sample, seed)) for sample in samples if sample.cells[j] is not None]
            result.append(edges_of(leveled, max_bins - 1, least))
    return result


class Candidate(NamedTuple):
    """A split that trees look at, and what is drawn for it, 8 bits."""

    split: Split
    draw: int


def candidates(
    bins: Sequence[Sequence[Any]], columns: Sequence[Column], share: float, iteration: int, seed: int
) -> list[Candidate]:
    """The splits that all trees of an iteration look at, in the order in which they are preferred.

    A threshold comes twice, the one that sends missing values right first. Of a feature with few edges, or few
    categories, all are candidates.
    """
    result = []
    for feature, (column, values) in enumerate(zip(columns, bins, strict=True)):
        key = combine(combine(draw(seed, CANDIDATES), iteration), feature)
        limit = min(int(share * 2.0**64), 2**64 - 1)
        for value in values:
            word = value if column.type == "categorical" else bits(value)
            if len(values) > FEW and combine(key, word) > limit:
                continue
            drawn = combine(key, 2**64 - 1 - word) >> 56
            if column.type == "categorical":
                result.append(Candidate(Split(feature, category=value), drawn))
            else:
                result += [Candidate(Split(feature, value), drawn), Candidate(Split(feature, value, True), drawn ^ 85)]
        if column.type != "categorical":
            result.append(Candidate(Split(feature, math.inf), key >> 56))
    return result


class Steadiness(NamedTuple):
    """How steady splits are made, by the number of training samples."""

    top: int  # nodes above this depth are split by the derivatives at F_0
    scales: list[float]  # by depth
    grid: float  # of gradients


def size_of(n: int, seed: int) -> int:
    """log2 of the number of training samples, rounded up or down."""
    return math.floor(log(float(n)) * LOG2_E + unit(draw(seed, SIZE)))


def steadiness(n: int, parameters: Parameters) -> Steadiness:
    """Steadier at the top of the trees of small sets; on large sets the grid of gradients is coarser."""
    size = size_of(n, parameters.random_state)
    top, scale, grid = (1, 0.5, 2.0) if size >= LARGE else (2, 0.35, 1.0)
    top = min(top, parameters.max_depth - 1)
    scales = [2.0 if depth < top else scale for depth in range(parameters.max_depth)]
    own = parameters.gradient_grid
    return Steadiness(top, scales, min(own * grid, max(own, 0.5)))


def regression_steadiness(parameters: Parameters) -> Steadiness:
    """Splits are nearly the best ones."""
    return Steadiness(0, [0.05] * parameters.max_depth, parameters.gradient_grid)


def weight_of(scale: float, drawn: int) -> float:
    """What a candidate's gain is multiplied by: U^-scale, U being in the middle of a 256th."""
    return exp(-scale * log((drawn + 0.5) / 256))


# --- regions --------------------------------------------------------------------------------------


def most_levels(n: int, groups: int, seed: int, *, is_classification: bool) -> int:
    """Levels of regions; none for two classes."""
    if is_classification and groups == 1:
        return 0
    return min(max(size_of(n, seed) - LEAST, 0), 3)


def least_level(n: int, seed: int) -> int:
    """Of edges for n training samples: four at most."""
    return min(max(size_of(n, seed) - LEAST + 1, 0), 4)


class Parted(NamedTuple):
    """A split of the samples into regions, and what it gains."""

    split: Split
    gain: float


def best_part(
    rows: Sequence[Sequence[Any]],
    weights: Any,
    gradients: Any,
    bins: Sequence[Sequence[Any]],
    columns: Sequence[Column],
    key: int,
    barred: Collection[int] = (),
) -> Parted:
    """The split with the greatest gain, by evenness and by what is drawn for it; gradients: int64[n, groups].

    barred: columns that part no regions, because of a monotone constraint.
    """
    best, found = 0.0, None
    n, totals = float(weights.sum()), gradients.sum(axis=0).tolist()
    for feature, (column, values) in enumerate(zip(columns, bins, strict=True)):
        is_categorical = column.type == "categorical"
        for value in values if feature not in barred else ():
            split = Split(feature, category=value) if is_categorical else Split(feature, value)
            mask = sides([split], rows)[0]
            a = float(weights[mask].sum())
            b = n - a
            if a == 0 or b == 0:
                continue
            gain = 0.0
            for left, total in zip(gradients[mask].sum(axis=0).tolist(), totals, strict=True):
                x, y, z = float(left), float(total - left), float(total)
                gain += x * x / a + y * y / b - z * z / n
            evenness = 4.0 * a * b / (n * n)
            fourth = (evenness * evenness) * (evenness * evenness)
            word = value if is_categorical else bits(value)
            weighted = gain * ((evenness * evenness) * (evenness * evenness)) * fourth
            weighted *= weight_of(0.3, combine(combine(key, feature), word) >> 56)
            if weighted > best:
                best, found = weighted, Parted(split, gain)
    if found is not None:
        return found
    for feature, column in enumerate(columns):
        if column.type != "categorical":
            return Parted(Split(feature, math.inf, True), 0.0)
    return Parted(Split(0, category=bins[0][0]), 0.0)


def regions_of(
    rows: Sequence[Sequence[Any]],
    weights: Any,
    gradients: Any,
    bins: Sequence[Sequence[Any]],
    columns: Sequence[Column],
    levels: int,
    seed: int,
    barred: Collection[int] = (),
) -> list[Split]:
    """The splits that all trees begin with, in a heap: a level less where the first one explains little."""
    key = draw(seed, REGIONS)
    first = best_part(rows, weights, gradients, bins, columns, combine(key, 0), barred) if levels else None
    if first is not None and first.gain * WEAK < float(weights.sum()) * 64**2:
        levels -= 1
    below, splits = {0: np.arange(len(rows))}, []
    for node in range(2**levels - 1):
        own = below[node]
        own_rows = [rows[i] for i in own.tolist()]
        split = best_part(own_rows, weights[own], gradients[own], bins, columns, combine(key, node), barred).split
        mask = sides([split], own_rows)[0] if len(own) else np.zeros(0, np.bool_)
        below[2 * node + 1], below[2 * node + 2] = own[mask], own[~mask]
        splits.append(split)
    return splits


# --- F_0 ------------------------------------------------------------------------------------------


class Start(NamedTuple):
    """Where boosting starts."""

    scores: list[int]  # F_0 of the classes, in units
    base: float  # F_0 of a regression
    spread: float  # what a regression's grids are multiples of


def class_start(weights: Sequence[float], groups: int, unit_of_scores: float, seed: int) -> Start:
    """Log-odds of the second of two classes, or logarithms of the weights, on a grid of 1/2 with a drawn offset."""
    ratios = [(weights[1] + 1) / (weights[0] + 1)] if groups == 1 else [weight + 1.0 for weight in weights]
    key = draw(seed, START)
    steps = [math.floor(log(ratio) / 0.5 + unit(combine(key, 2 + k))) for k, ratio in enumerate(ratios)]
    return Start([round(step * 0.5 / unit_of_scores) for step in steps], 0.0, 1.0)


def scaled(value: float, exponent: int) -> float:
    """As `math.ldexp`, but infinite where that would raise."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)


def number_start(targets: Sequence[float], units: Sequence[int], seed: int) -> Start:
    """The mean on a grid of half a spread; the spread is a power of two near the standard deviation."""
    exponent = scale_exponent(targets)
    fixed = [(quantised(y, exponent), u) for y, u in zip(targets, units, strict=True)]
    n, first, second = sum(units), sum(y * u for y, u in fixed), sum(y * y * u for y, u in fixed)
    mean = min(max(scaled(first / n, exponent - 38), -sys.float_info.max), sys.float_info.max)
    variance = n * second - first * first
    if variance == 0:
        return Start([0], mean, 1.0)
    key = draw(seed, START)
    half_log = math.floor(0.5 * log(variance / n**2) * LOG2_E + unit(combine(key, 0)))
    spread = math.ldexp(1.0, min(max(half_log + exponent - 38, -1000), 1020))
    base = math.floor(mean / (0.5 * spread) + unit(combine(key, 1))) * (0.5 * spread)
    return Start([0], min(max(base, -sys.float_info.max), sys.float_info.max), spread)


def number_start_of(targets: Sequence[float], units: Sequence[int], p: Parameters) -> Start:
    """The same by the loss: a quantile on the grid, or the logarithm of the mean on one of its own."""
    start, key = number_start(targets, units, p.random_state), draw(p.random_state, START)
    if p.loss in ("quantile", "huber") and _varies(targets):
        half, offset = 0.5 * start.spread, unit(combine(key, 2))
        cells = sorted((math.floor(y / half + offset), u) for y, u in zip(targets, units, strict=True))
        level = p.quantile if p.loss == "quantile" else 0.5
        below = accumulate(u for _, u in cells)
        cell = next(cell for (cell, _), n in zip(cells, below, strict=True) if n >= level * sum(units))
        base = (cell + 0.5 - offset) * half
        return start._replace(base=min(max(base, -sys.float_info.max), sys.float_info.max))
    if p.loss == "poisson":
        exponent = scale_exponent(targets)
        total = sum(quantised(y, exponent) * u for y, u in zip(targets, units, strict=True))
        mean = 1.0 / (1.0 + sum(units) / 256)
        if total > 0:
            mean = max(min(scaled(total / sum(units), exponent - 38), sys.float_info.max), TINY)
        drawn = unit(combine(key, 1))
        coarse = math.floor(log(mean) / 0.5 + drawn) * 0.5
        width = 0.5 * log_scale(start._replace(base=coarse))
        return start._replace(base=math.floor(log(mean) / width + drawn) * width)
    return start


def _varies(targets: Sequence[float]) -> bool:
    exponent = scale_exponent(targets)
    return len({quantised(y, exponent) for y in targets}) > 1


def log_scale(start: Start) -> float:
    """What logarithms of targets are multiples of."""
    return min(1.0, start.spread * exp(-start.base))


# --- derivatives ----------------------------------------------------------------------------------


class Loss:
    """Derivatives of the loss as integers, from scores that are integers."""

    def __init__(
        self, parameters: Parameters, start: Start, grid: float, *, n_groups: int, is_classification: bool
    ) -> None:
        self.is_classification = is_classification
        self.n_groups = n_groups
        self.start = start
        self.seed = parameters.random_state
        self.steps = max(round(1.0 / grid), 1)
        self.unit = parameters.learning_rate * parameters.leaf_grid * (1.0 if is_classification else start.spread)
        self.inverse_grid = 1.0 / (grid * start.spread)
        self.reach = math.ceil(16.0 / self.unit) if is_classification else 0

    def offset(self, sample: Sample, iteration: int, k: int) -> int:
        """What is added before rounding down, in steps of 2^-32: over the iterations it covers [0, 1) evenly."""
        own = combine(draw(self.seed, ROUNDING), sample.id_hash) >> 32
        return (own + iteration * 0x9E3779B9 + k * 0x85EBCA6B) % 2**32

    def shares(self, scores: Sequence[int]) -> list[int]:
        """Probabilities in steps of 2^-32: of the second of two classes, or of each."""
        if self.n_groups == 1:
            score = min(max(scores[0], -self.reach), self.reach)
            return [math.floor(sigmoid(self.unit * score) * 2.0**32)]
        behind = [max(scores) - score for score in scores]
        powers = [math.floor(exp(-self.unit * steps) * 2.0**30) if steps < self.reach else 0 for steps in behind]
        return [(power << 32) // sum(powers) for power in powers]

    def derive(self, sample: Sample, rank: int, scores: Sequence[int], iteration: int) -> list[tuple[int, int]]:
        """(gradient, hessian) of a sample for each group."""
        if not self.is_classification:
            error = self.start.base + self.unit * scores[0] - sample.label
            return [self.number(sample, error * self.inverse_grid, self.offset(sample, iteration, 0) * 2.0**-32)]
        result = []
        for k, share in enumerate(self.shares(scores)):
            offset = self.offset(sample, iteration, k)
            q = (share * self.steps + offset) >> 32
            is_own = rank == (1 if self.n_groups == 1 else k)
            hessian = (128 * q * (self.steps - q) + self.steps**2) // (2 * self.steps**2)
            g = (sample.weighed((share - 2**32 * is_own) * self.steps) + offset) >> 32
            result.append((g, sample.weighed(hessian, self.byte(sample))))
        return result

    def byte(self, sample: Sample) -> int:
        """The 256ths that are added to a hessian times a weight before rounding down."""
        return self.offset(sample, 0, 0) % 256

    def number(self, sample: Sample, g: float, offset: float) -> tuple[int, int]:
        """A derivative of a number, in steps, and the hessian of squared error, both times the weight."""
        limit = 2.0**11 * sample.weight
        step = min(max(_floor(g * sample.weight + offset), -limit), limit)
        return math.floor(step), sample.weighed(16, self.byte(sample))

    def derive_at_start(self, sample: Sample, rank: int) -> list[tuple[int, int]]:
        """The same at F_0, on a grid of 1/64."""
        if not self.is_classification:
            return [self.number(sample, (self.start.base - sample.label) * (1.0 / self.start.spread) * 64, 0.5)]
        result = []
        for k, share in enumerate(self.shares(self.start.scores)):
            offset = self.offset(sample, 0, k)
            is_own = rank == (1 if self.n_groups == 1 else k)
            g, h = (share - 2**32 * is_own) * 64, (share >> 16) * ((2**32 - share) >> 16) * 64
            result.append(((sample.weighed(g) + offset) >> 32, (sample.weighed(h) + offset) >> 32))
        return result

    def of(self, sample: Sample, rank: int, scores: Sequence[int]) -> int:
        """The loss of a sample that validates, in steps of 2^-20."""
        if not self.is_classification:
            error = (self.start.base + self.unit * scores[0] - sample.label) * (1.0 / self.start.spread)
            value = error * error
        elif self.n_groups == 1:
            margin = self.unit * scores[0]
            value = log(1.0 + exp(-margin if rank == 1 else margin))
        else:
            total = 0.0
            for score in scores:
                total += exp(self.unit * (score - max(scores)))
            value = log(total) - self.unit * (scores[rank] - max(scores))
        return sample.weighed(math.floor(min(value * 2.0**20, 2.0**30)))


class NumberLoss(Loss):
    """The same of a loss of numbers beside squared error: both derivatives are rounded by offsets."""

    def __init__(self, parameters: Parameters, start: Start, grid: float) -> None:
        super().__init__(parameters, start, grid, n_groups=1, is_classification=False)
        spread, level = start.spread, parameters.quantile
        self.curve: Curve
        self.first_scale = 1.0 / spread
        self.is_square = parameters.loss == "huber"
        if parameters.loss == "huber":
            self.curve, self.leaf_unit = huber(parameters.huber_delta or spread), spread
            self.greatest = self.ordinary = 16.0
        elif parameters.loss == "quantile":
            steep = max(level, 1.0 - level)
            self.curve, self.leaf_unit = pinball(level, BAND * spread), spread
            self.greatest = 16.0 * BAND * spread / steep
            self.ordinary = 16.0 * BAND / steep / (level * (1.0 - level))
            self.inverse_grid, self.first_scale = 1.0 / grid, 1.0 / math.sqrt(level * (1.0 - level))
        else:
            self.curve, self.ordinary, self.leaf_unit = poisson(), 2.0, log_scale(start)
            self.greatest = 2.0 * exp(-start.base)
        self.unit = parameters.learning_rate * parameters.leaf_grid * self.leaf_unit
        self.leaf_scale = self.greatest * parameters.learning_rate / (self.inverse_grid * self.unit)
        self.leaf_limit = (
            2.0 * parameters.learning_rate / self.unit if parameters.loss == "poisson" else 8.0 / parameters.leaf_grid
        )

    def derive(self, sample: Sample, rank: int, scores: Sequence[int], iteration: int) -> list[tuple[int, int]]:
        score = self.start.base + self.unit * scores[0]
        g = self.curve.slope(score, sample.label) * self.inverse_grid
        h = min(self.curve.bend(score, sample.label) * self.greatest, 16.0)
        step, _ = self.number(sample, g, self.offset(sample, iteration, 0) * 2.0**-32)
        return [(step, math.floor(h * sample.weight + self.offset(sample, iteration, 1) * 2.0**-32))]

    def derive_at_start(self, sample: Sample, rank: int) -> list[tuple[int, int]]:
        return [self.number(sample, self.curve.slope(self.start.base, sample.label) * self.first_scale * 64, 0.5)]

    def of(self, sample: Sample, rank: int, scores: Sequence[int]) -> int:
        value = self.curve.value(self.start.base + self.unit * scores[0], sample.label) * (1.0 / self.start.spread)
        if self.is_square:
            value *= 1.0 / self.start.spread
        return sample.weighed(math.floor(min(value * 2.0**20, 2.0**30)))


def _floor(value: float) -> float:
    return value if math.isinf(value) else float(math.floor(value))
