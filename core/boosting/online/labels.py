"""Loss and scales of a problem, as numbers for the kernels."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Reals
from oubli.core.boosting.online.parameters import OnlineSettings
from oubli.core.boosting.online.state import G_BITS, G_SCALE, H_SCALE, SHIFT_OF_CLASSES, SHIFT_OF_NUMBERS, Labels, Rules
from oubli.core.samples.arrays import Problem

# All trees are grown anew when there are so many times the samples that they were grown on: bins and the scale of a
# regression are made for those.
MOST_GROWTH = 2

# A gradient of a regression is held in 31 bits at most.
_MOST_BITS = 30
MOST_GRADIENT = 2**_MOST_BITS
_BITS_OF_SUM = 52
_LARGEST = float(np.finfo(np.float64).max)


class Scale(NamedTuple):
    """The scale of a regression, made when all trees are grown; 0 in a classification, but for the unit.

    Attributes
    ----------
    base : F_0, about the mean of the targets.
    reach : how far targets may be from the base; one farther off makes all trees grow anew.
    scale : integers a unit of gradient, a power of two.
    limit : the largest gradient as an integer.
    unit : what leaf values are multiples of, a power of two: sums of them must not run over, even with targets that
        hardly fit into float64.
    """

    base: float
    reach: float
    scale: float
    limit: int
    unit: float


NO_SCALE = Scale(0.0, 0.0, 0.0, 0, 1.0)


def scale_of(y: Reals, most_samples: int) -> Scale:
    """Make the scale for targets float64[n], n > 0, with room for sums of `most_samples`.

    A function of the set of targets: the mean is one of integers, whose sum does not depend on the order.
    """
    largest = float(np.abs(y).max())
    _, exponent = np.frexp(largest)
    step = _BITS_OF_SUM - int(most_samples).bit_length() - int(exponent)
    total = int(np.rint(np.ldexp(y, step)).astype(np.int64).sum())
    with np.errstate(over="ignore"):  # rounded up to a power of two, the largest number is none
        base = min(max(float(np.ldexp(total / len(y), -step)), -_LARGEST), _LARGEST)
        spread = min(float(np.abs(y - base).max()), _LARGEST)
        if spread == 0.0:
            # Any will do: the trees have nothing to learn before another target comes.
            spread = max(abs(base), 1.0) * 2.0**-20
        reach = min(2.0 * spread, _LARGEST)
    bits = min(G_BITS - int(most_samples).bit_length(), _MOST_BITS)
    # |F - y| <= 4 spread: a leaf's value is a mean of residuals.
    exponent = int(np.frexp(spread)[1]) + 2
    scale, unit = np.ldexp(1.0, [min(bits - exponent, 1000), max(exponent - 6, -1000)])
    return Scale(base, reach, float(scale), 2**bits, float(unit))


def unit_of(settings: OnlineSettings, scale: Scale) -> float:
    """What the sum of leaf values is multiplied by."""
    return settings.learning_rate * scale.unit


def make_labels(
    problem: Problem, settings: OnlineSettings, ranks: npt.NDArray[np.int32], groups: int, scale: Scale
) -> Labels:
    """What derivatives are made of."""
    base = np.full(groups, scale.base)
    data = problem.data
    return Labels(
        data.id_hashes, data.targets, ranks, problem.y, base, unit_of(settings, scale), scale.scale, scale.limit
    )


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
    if scale.scale != 0.0:
        return Rules(SHIFT_OF_NUMBERS, l2, max(1, int(np.ceil(weight))), 1.0 / (scale.scale * scale.unit), robustness)
    share = (groups - 1) / groups if groups > 1 else 1.0
    least = max(1, int(np.ceil(weight * H_SCALE)))
    return Rules(SHIFT_OF_CLASSES, l2 * H_SCALE, least, share * (H_SCALE / G_SCALE), robustness)
