"""Gradients and hessians of the loss, rounded to integers, and the loss and scales of a problem for the kernels.

A raw score is base + unit * (sum of leaf values, in the order of the iterations). With u a number in [0, 1) that
belongs to the sample and the iteration, an integer derivative is floor(scale * g + u): right on average, so that the
errors of many samples, and of many trees, cancel (stochastic rounding). For one sample the u of successive iterations
are the multiples of the golden ratio modulo 1, from a start that is a hash of its id: evenly spread over any few
iterations. The same score always gives the same integers.

Eight bits each are as good as float64 here: the error in a leaf's sum is a hundredth of the scatter of the samples.

The losses of `core/boosting/loss.py` start as exact boosting does (`targets.py`), from the samples that all trees are
grown on. Until they are grown again, F_0, Huber's delta and the band of a quantile stay as they are.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Ints, Reals
from oubli.core.boosting import loss as losses
from oubli.core.boosting.loss import BAND, HUBER, KINDS, POISSON, POISSON_STEP, QUANTILE, sigmoids
from oubli.core.boosting.online.parameters import OnlineSettings
from oubli.core.boosting.online.state import (
    G_BITS,
    G_SCALE,
    H_MOST,
    H_SCALE,
    SHIFT_OF_CLASSES,
    SHIFT_OF_NUMBERS,
    Labels,
    Rules,
)
from oubli.core.boosting.targets import TargetSums
from oubli.core.jit.policy import inner, pasted
from oubli.core.jit.targets import GRID
from oubli.core.samples.arrays import Problem

_GOLDEN = np.uint64(0x9E3779B9)
_LOW_WORD = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_TWO_TO_MINUS_32 = 2.0**-32
_BYTE = 256
_MOST = int(G_SCALE)

# Between the entries of the tables a few terms of the Taylor series do: the error is below 1e-6, and a derivative is
# rounded to 1 / 127.
_STEPS = 16
_END_OF_SIGMOID = 20
_END_OF_POWERS = 40
# All trees are grown again when the size of the samples is so many times that of those that they were grown on: bins
# and the scale of a regression are made for those.
MOST_GROWTH = 2

# A gradient of a regression is held in 31 bits at most.
_MOST_BITS = 30
MOST_GRADIENT = 2**_MOST_BITS
_BITS_BESIDE_CURVATURE = 31  # of a sum of gradients: 32 are for hessians
_MOST_CURVATURE = 2.0**1015  # what a curvature is multiplied by: H_MOST of it is a number
_BITS_OF_SUM = 52
_LARGEST = float(np.finfo(np.float64).max)


def _probabilities(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    both = np.empty((len(scores), 2))
    sigmoids(scores.reshape(-1, 1), both)
    return both


def _sigmoid_table() -> npt.NDArray[np.float64]:
    """p, p' and p'' / 2 at the multiples of 1 / _STEPS from -_END_OF_SIGMOID."""
    p = _probabilities(np.arange(2 * _END_OF_SIGMOID * _STEPS + 1) / _STEPS - _END_OF_SIGMOID)[:, 1]
    return np.stack([p, p * (1 - p), p * (1 - p) * (1 - 2 * p) / 2], axis=1)


def _power_table() -> npt.NDArray[np.float64]:
    """Powers of e: its exponents are the multiples of -1 / _STEPS."""
    both = _probabilities(np.arange(_END_OF_POWERS * _STEPS + 1) / -_STEPS)
    powers: npt.NDArray[np.float64] = both[:, 1] / both[:, 0]
    return powers


_SIGMOIDS = _sigmoid_table()
_POWERS = _power_table()


@pasted
def sigmoid(x):
    """1 / (1 + e^-x), nearly."""
    if x < -_END_OF_SIGMOID:
        x = -np.float64(_END_OF_SIGMOID)
    elif x > _END_OF_SIGMOID:
        x = np.float64(_END_OF_SIGMOID)
    i = np.int64((x + _END_OF_SIGMOID) * _STEPS + 0.5)
    d = x - (np.float64(i) * (1.0 / _STEPS) - _END_OF_SIGMOID)
    return _SIGMOIDS[i, 0] + d * (_SIGMOIDS[i, 1] + d * _SIGMOIDS[i, 2])


@pasted
def _power(x):
    """e^x for x <= 0, nearly; 0 far down."""
    if x < -_END_OF_POWERS:
        return 0.0
    i = np.int64(0.5 - x * _STEPS)
    d = x + np.float64(i) * (1.0 / _STEPS)
    return _POWERS[i] * (1.0 + d * (1.0 + d * (0.5 + d * (1.0 / 6.0))))


@pasted
def _gradient_offset(id_hash, iteration):
    return np.float64(((id_hash >> _HALF) + np.uint64(iteration) * _GOLDEN) & _LOW_WORD) * _TWO_TO_MINUS_32


@pasted
def _hessian_offset(id_hash, iteration):
    return np.float64((id_hash + np.uint64(iteration) * _GOLDEN) & _LOW_WORD) * _TWO_TO_MINUS_32


@pasted
def round_class(g, h, id_hash, iteration):
    """The integers of a sample in a classification, as `gh` holds them."""
    gradient = np.int64(np.floor(G_SCALE * g + _gradient_offset(id_hash, iteration)))
    hessian = np.int64(np.floor(H_SCALE * h + _hessian_offset(id_hash, iteration)))
    # A probability from the table can be beyond 0 or 1 by a hair.
    return min(max(gradient, -_MOST), _MOST) * _BYTE + max(hessian, 0)


@pasted
def round_number(g, scale, limit, id_hash, iteration):
    """The integer of a sample in a regression; a gradient beyond the scale counts as one at its end."""
    gradient = np.floor(g * scale + _gradient_offset(id_hash, iteration))
    return np.int64(min(max(gradient, -np.float64(limit)), np.float64(limit)))


@inner
def round_loss(labels, score, y, id_hash, iteration):
    """The integers of a sample in a regression, as `gh` holds them."""
    kind, level, band = labels.kind, labels.level, labels.band
    g = score - y if kind == 0 else losses.gradient_at(kind, level, band, score, y)
    gradient = round_number(g, labels.scale, labels.limit, id_hash, iteration)
    if kind == 0 or kind == HUBER:
        return gradient
    h = min(losses.curvature_at(kind, level, band, score, y) * labels.curvature, H_MOST)
    return gradient * _BYTE + np.int64(np.floor(h + _hessian_offset(id_hash, iteration)))


@inner
def softmax_at(sums, base, unit, column, probabilities):
    """Write the probabilities of the classes at a column of float64[K, n] sums."""
    n_classes = base.shape[0]
    largest = -np.inf
    for k in range(n_classes):
        score = base[k] + unit * sums[k, column]
        probabilities[k] = score
        largest = max(largest, score)
    total = 0.0
    for k in range(n_classes):
        probabilities[k] = _power(probabilities[k] - largest)
        total += probabilities[k]
    for k in range(n_classes):
        probabilities[k] /= total


class Scale(NamedTuple):
    """The scale of a regression, made when all trees are grown; 0 in a classification, but for the unit.

    Attributes
    ----------
    base : F_0, about the mean of the targets.
    reach : how far targets may be from the base; one farther off has all trees grown again.
    scale : integers a unit of gradient, a power of two.
    limit : the largest gradient as an integer.
    unit : what leaf values are multiples of, a power of two: sums of them must not run over, even with targets that
        hardly fit into float64.
    level, band, curvature : of a loss of `core/boosting/loss.py`: the quantile or Huber's delta, within what the kink
        of a quantile is rounded off, and what curvatures are multiplied by.
    """

    base: float
    reach: float
    scale: float
    limit: int
    unit: float
    level: float = 0.0
    band: float = 0.0
    curvature: float = 0.0


NO_SCALE = Scale(0.0, 0.0, 0.0, 0, 1.0)


def scale_of(y: Reals, most_samples: int, units: Ints | int = GRID) -> Scale:
    """Make the scale for targets float64[n], n > 0, with room for sums over a size of `most_samples`.

    A function of the set of targets and their units, int64[n] or all the same: the mean is one of integers, whose sum
    does not depend on the order. Those are of at most 52 bits over that size, so that units leave them below 2**60.
    """
    largest = float(np.abs(y).max())
    _, exponent = np.frexp(largest)
    step = _BITS_OF_SUM - int(most_samples).bit_length() - int(exponent)
    weights = np.broadcast_to(units, y.shape)
    total = int((np.rint(np.ldexp(y, step)).astype(np.int64) * weights).sum())
    with np.errstate(over="ignore"):  # rounded up to a power of two, the largest number is none
        base = min(max(float(np.ldexp(total / int(weights.sum()), -step)), -_LARGEST), _LARGEST)
    reach, exponent = _reach(y, base)
    bits = min(G_BITS - int(most_samples).bit_length(), _MOST_BITS)
    scale, unit = np.ldexp(1.0, [min(bits - exponent, 1000), max(exponent - 6, -1000)])
    return Scale(base, reach, float(scale), 2**bits, float(unit))


def _reach(y: Reals, center: float, least: float = 0.0) -> tuple[float, int]:
    """How far targets may be from a center, and e: gradients F - y are at most 2**e."""
    with np.errstate(over="ignore"):
        spread = min(max(float(np.abs(y - center).max()), least), _LARGEST)
        if spread == 0.0:
            # Any will do: the trees have nothing to learn before another target comes.
            spread = max(abs(center), 1.0) * 2.0**-20
        # |F - y| <= 4 spread: a leaf's value is a mean of residuals.
        return min(2.0 * spread, _LARGEST), int(np.frexp(spread)[1]) + 2


def scale_of_loss(
    settings: OnlineSettings, kind: int, y: Reals, most_samples: int, units: npt.NDArray[np.int32]
) -> Scale:
    """The same for a loss of `core/boosting/loss.py`; units: int32[n], empty when all weights are 1."""
    sums = TargetSums(kind, settings.level)
    sums.recount(y, units, settings.seed)
    start = sums.start(settings.seed)
    base, spread, is_log = start.base, start.spread, kind == POISSON
    level = settings.level or spread if kind == HUBER else settings.level
    reach, exponent = _reach(y, 0.0, losses.power(base)) if is_log else _reach(y, base)
    steepest = {QUANTILE: 0, HUBER: min(int(np.frexp(level)[1]), exponent)}.get(kind, exponent)
    room, most = (G_BITS, _MOST_BITS) if kind == HUBER else (_BITS_BESIDE_CURVATURE, _MOST_BITS - 8)
    bits = min(room - int(most_samples).bit_length(), most)
    scale, unit = np.ldexp(1.0, [min(bits - steepest, 1000), 0 if is_log else max(exponent - 6, -1000)])
    curvature = min(losses.curvature_scale(kind, level, base, spread), _MOST_CURVATURE)
    return Scale(base, reach, float(scale), 2**bits, float(unit), level, BAND * spread, curvature)


def unit_of(settings: OnlineSettings, scale: Scale) -> float:
    """What the sum of leaf values is multiplied by."""
    return settings.learning_rate * scale.unit


def make_labels(
    problem: Problem, settings: OnlineSettings, ranks: npt.NDArray[np.int32], groups: int, scale: Scale
) -> Labels:
    """What derivatives are computed from."""
    base, data, kind = np.full(groups, scale.base), problem.data, KINDS.get(settings.loss, 0)
    return Labels(
        data.id_hashes, problem.class_codes, ranks, problem.y, base, unit_of(settings, scale), scale.scale, scale.limit,
        kind, scale.level, scale.band, scale.curvature * H_MOST,
    )  # fmt: skip


def tolerance_of(robustness: float, n_moved: int, n_held: int) -> float:
    """Share of a node's candidates among which its split may rank when `n_moved` samples come or go.

    Sigma (Section 3.4) bounds what an update costs, of which a small batch has little. What a split that stays says of
    those that have left is most of what an attacker finds (membership inference in `benchmarks/RESULTS.md`). So all of
    it is for 2 % of the samples and more, and for fewer it is in proportion, a tenth at least.
    """
    return robustness * min(1.0, max(0.1, 50.0 * n_moved / max(1, n_held)))


def make_rules(settings: OnlineSettings, groups: int, scale: Scale) -> Rules:
    """What decides splits and values. Robust LogitBoost's (K - 1) / K is part of the factor."""
    l2, weight, robustness = settings.l2_regularization, settings.min_child_weight, settings.robustness
    directions, kind, limit = np.array(settings.monotone, np.int64), KINDS.get(settings.loss, 0), np.inf
    if scale.band and kind != HUBER:
        h = H_MOST * losses.ordinary_curvature(kind, scale.level)
        limit = POISSON_STEP if kind == POISSON else limit
        # Most samples are farther from a quantile than ordinary ones: the side of a split would have to have thousands.
        needed = weight * h * (scale.level * (1.0 - scale.level) if kind == QUANTILE else 1.0)
        factor, least = scale.curvature / scale.unit * H_MOST / scale.scale, max(1, int(np.ceil(needed)))
        return Rules(SHIFT_OF_CLASSES, 0, l2 * h, least, factor, limit, robustness, directions)
    if scale.scale != 0.0:
        # A size has at most 39 bits less those of `limit`, so a hessian may have as many as are left of 24.
        bits = min(max(scale.limit.bit_length() - 1 + SHIFT_OF_NUMBERS - G_BITS, 0), GRID.bit_length() - 1)
        least, factor = max(1, int(np.ceil(weight))) << bits, 2.0**bits / scale.scale / scale.unit
        return Rules(SHIFT_OF_NUMBERS, bits, l2 * 2.0**bits, least, factor, limit, robustness, directions)
    share = (groups - 1) / groups if groups > 1 else 1.0
    least = max(1, int(np.ceil(weight * H_SCALE)))
    factor = share * (H_SCALE / G_SCALE)
    return Rules(SHIFT_OF_CLASSES, 0, l2 * H_SCALE, least, factor, limit, robustness, directions)
