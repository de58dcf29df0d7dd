"""Split candidates sampling (Section 3.3): the few edges at which the trees of an iteration may split.

Of the E inner edges of a numeric feature, ceil(alpha E) are candidates, or FEW of them if that is more: the edges, in
order, are cut into so many stretches, equally long, and of each the one with the smallest hash of (seed, iteration,
feature, edge) is taken. And all that lie beyond the ends. The bins between candidates are of no use to a tree, so it
joins them:

    codes       0 1 2 3 4 5 6 7 8 m          m: missing
    candidates      |     |                  after code 2 and code 5
    bins        0 0 0 1 1 1 2 2 2 3          3: missing, always the last one

    categorical    a bin for each category that may be split off, and a last one for all others

Differs from the paper:

    a) candidates are drawn for all trees of an iteration and not for every node, so that a sample's bins are looked up
       once, and that histograms, the subtraction trick included, have no other bins than these;
    b) they are drawn one from each stretch, so that none is long without a candidate (the errors on california_housing
       fall by 1 %), and exactly so many in all iterations;
    c) a feature keeps FEW edges at least, and a categorical one MANY_CATEGORIES. Where a column has 16 values, as the
       pixels of a digit, all its edges are too many: trees that draw three of them are more accurate, and stay where
       they are when a sample comes or goes.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.online.discretise import Bins
from oubli.core.jit.policy import kernel
from oubli.core.rng import CANDIDATES, combine

FEW = 3
MANY_CATEGORIES = 64


class Candidates(NamedTuple):
    """The candidates of every iteration; bins of feature f begin at first[f]."""

    first: npt.NDArray[np.uint32]  # uint32[d + 1]
    places: Any  # uint8/16[n_iterations, n_codes]: the bin within the feature of a code
    cuts: npt.NDArray[np.uint16]  # uint16[n_iterations, n_bins]: the last code of a bin, or the code of its category

    @property
    def n_bins(self) -> int:
        """Bins of a histogram."""
        return int(self.first[-1])


@kernel
def hash_edges(seed_key, purpose, feature, bits, keys):
    """Write the hash of (seed, iteration, feature, edge) to uint64[n_iterations, n_edges]."""
    key = combine(combine(seed_key, purpose), np.uint64(feature))
    for iteration in range(keys.shape[0]):
        here = combine(key, np.uint64(iteration))
        for i in range(bits.shape[0]):
            keys[iteration, i] = combine(here, bits[i])


def _choose(seed_key: np.uint64, feature: int, bits: npt.NDArray[np.uint64], n_chosen: int, n_iterations: int) -> Any:
    """Choose n_chosen of some edges in each iteration; bool[n_iterations, len(bits)]."""
    if n_chosen == len(bits):
        return np.ones((n_iterations, len(bits)), np.bool_)
    keys = np.empty((n_iterations, len(bits)), np.uint64)
    hash_edges(seed_key, CANDIDATES, feature, bits, keys)
    chosen = np.zeros(keys.shape, np.bool_)
    for stretch in range(n_chosen):
        start, end = stretch * len(bits) // n_chosen, (stretch + 1) * len(bits) // n_chosen
        chosen[np.arange(n_iterations), start + keys[:, start:end].argmin(axis=1)] = True
    return chosen


def n_chosen(n_edges: int, split_sampling: float, few: int) -> int:
    """How many of so many edges are candidates; the tiny part makes up for the rounding of the product."""
    return max(int(np.ceil(split_sampling * n_edges - 1e-9)), min(n_edges, few))


def no_candidates(n_features: int) -> Candidates:
    """Candidates of a model without samples."""
    return Candidates(np.zeros(n_features + 1, np.uint32), np.zeros((0, 0), np.uint8), np.zeros((0, 0), np.uint16))


def draw_candidates(bins: Bins, split_sampling: float, n_iterations: int, seed_key: np.uint64) -> Candidates:
    """Draw the candidates of all iterations."""
    all_places: list[npt.NDArray[np.int64]] = []
    all_cuts: list[npt.NDArray[np.int64]] = []
    for feature in range(len(bins.categorical)):
        start, end = int(bins.first[feature]), int(bins.first[feature + 1])
        n_inner, n_outer = int(bins.n_inner[feature]), int(bins.n_outer[feature])
        n_codes = end - start
        chosen = np.zeros((n_iterations, n_codes), np.bool_)
        if bins.categorical[feature]:
            inside = slice(1, 1 + n_inner)
            known = bins.hashes[start:end][inside]
            few, other = MANY_CATEGORIES, n_codes - 1
            chosen[:, [0, *range(1 + n_inner, n_codes - 1)]] = True
        else:
            inside = slice(n_outer, n_outer + n_inner)
            known = bins.edges[start:end][inside].view(np.uint64)
            few, other = FEW, n_codes - 2
            chosen[:, [*range(n_outer), *range(n_outer + n_inner, n_codes - 2)]] = True
        if n_inner:
            chosen[:, inside] = _choose(seed_key, feature, known, n_chosen(n_inner, split_sampling, few), n_iterations)
        # How many candidates come before a code: the bin that the code is in.
        places: npt.NDArray[np.int64] = np.cumsum(chosen, axis=1) - chosen
        n_candidates = int(chosen[0].sum())
        cuts = np.nonzero(chosen)[1].reshape(n_iterations, n_candidates)
        if bins.categorical[feature]:
            places[~chosen] = n_candidates
            extra = np.full((n_iterations, 1), other)
        else:
            places[:, -1] = n_candidates + 1
            extra = np.tile([other, other + 1], (n_iterations, 1))
        all_places.append(places)
        all_cuts.append(np.hstack([cuts, extra]))
    widths = [cuts.shape[1] for cuts in all_cuts]
    first = np.concatenate([[0], np.cumsum(widths)]).astype(np.uint32)
    place_type = np.uint8 if max(widths) <= 256 else np.uint16
    return Candidates(first, np.hstack(all_places).astype(place_type), np.hstack(all_cuts).astype(np.uint16))
