"""How splits are made steady: a hash decides among candidates that are about as good as the best.

With gains compared as they are, the best of many candidates is ahead of the next one by so little that a few samples
turn it, and a split that turns near a root moves the scores of everyone. So the gain of every candidate is multiplied
by a weight U^-s, U in (0, 1) drawn from a hash of (seed, iteration, candidate, node). The logarithms of weights are
exponentially distributed with mean s: the gap between the logarithms of the two best is s on average, however many
candidates there are. It is the choice of "permute and flip" (McKenna and Sheldon, 2020), known for the least loss of
quality at a given steadiness, with its randomness held fixed.

The uppermost nodes, by far the dearest to build anew, are steadier still: their gains are those of the derivatives at
F_0, which no tree can change, with larger weights, so that trees differ.

How much of this is right depends on the number n of training samples, a sample's influence being about 1 / n. It
enters as floor(log2(n) + u), which hardly ever moves. In a regression steadiness buys little, because residuals, which
have no bounds, move the leaves all the same, and costs much: the splits are nearly the best ones, and updates are kept
small by regions, see `regions.py`.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.loss import exp, log
from oubli.core.jit.policy import kernel
from oubli.core.rng import combine, mix, unit

SIZE = np.uint64(10)
N_WEIGHTS = 256
_LOG2_E = 1.4426950408889634

_LARGE_SIZE = 17  # log2 of n from which on a set counts as large
# Levels that are split by the derivatives at F_0, s of these, and s of the others.
_LARGE = 1, 2.0, 0.5
_SMALL = 2, 2.0, 0.35
_REGRESSION_SCALE = 0.05
LEAST_SIZE = 11  # log2 of the samples of a region
MOST_LEVELS = 3  # of regions


_here = threading.local()


class Steadiness(NamedTuple):
    """How steady splits are made."""

    levels: int  # of regions, see `regions.py`
    depth: int  # of trees, levels of regions included
    top: int  # nodes above this depth, and below the regions' levels, are split by the derivatives at F_0
    weights: npt.NDArray[np.float64]  # float64[depth + 1, 256]
    coarsening: int  # how many times the grid of gradients is doubled


@kernel
def size_step(n, seed):
    """floor(log2(n) + u)."""
    return np.int64(np.floor(log(n) * _LOG2_E + unit(combine(mix(seed), SIZE))))


@kernel
def fill_weights(scale, weights):
    """Write U^-scale for U in the middle of each 256th."""
    for i in range(weights.shape[0]):
        weights[i] = exp(-scale * log((i + 0.5) / weights.shape[0]))


def steadiness(n: int, depth: int, seed: int) -> Steadiness:
    """How steady to make splits of trees of some depth, for classes of n samples."""
    is_large = size_step(float(n), np.uint64(seed)) >= _LARGE_SIZE
    top, top_scale, scale = _LARGE if is_large else _SMALL
    top = min(top, depth - 1)
    return Steadiness(0, depth, top, _weigh((top_scale,) * top + (scale,) * (depth - top)), int(is_large))


def regression_steadiness(depth: int) -> Steadiness:
    """How steady to make splits of trees of some depth, for numbers."""
    return Steadiness(0, depth, 0, _weigh((_REGRESSION_SCALE,) * depth), 0)


def below_regions(steady: Steadiness, levels: int) -> Steadiness:
    """The same below so many levels of regions."""
    weights = np.concatenate([np.ones((levels, N_WEIGHTS)), steady.weights])
    return Steadiness(levels, levels + steady.depth, levels + steady.top, weights, steady.coarsening)


def most_levels(n: int, n_groups: int, seed: int, *, is_classification: bool) -> int:
    """Levels of regions that n samples may have: each holds some thousand of them, if all are about equal."""
    if is_classification and n_groups == 1:
        return 0
    return min(max(int(size_step(float(n), np.uint64(seed))) - _least_size(), 0), MOST_LEVELS)


@contextmanager
def parting_few() -> Iterator[None]:
    """Part few samples, too, in this thread: for the warm-up, beside which a model may learn."""
    _here.least_size = 0
    try:
        yield
    finally:
        del _here.least_size


def _least_size() -> int:
    return int(getattr(_here, "least_size", LEAST_SIZE))


@lru_cache(maxsize=16)
def _weigh(scales: tuple[float, ...]) -> npt.NDArray[np.float64]:
    """The weights of all levels that are split, and of the leaves below, which nobody asks for.

    Every update asks for them again, because the number of samples is another; nobody changes them.
    """
    weights = np.ones((len(scales) + 1, N_WEIGHTS))
    for level, scale in enumerate(scales):
        fill_weights(scale, weights[level])
    weights.flags.writeable = False
    return weights
