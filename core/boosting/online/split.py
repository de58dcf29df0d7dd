"""The candidate splits of online boosting: which there are, their scores, and the rank of a split among them.

With sums G and H of the two sides of a candidate, its score is

    G_left^2 / (H_left + l2) + G_right^2 / (H_right + l2)

one float64 expression of integers; the gain (Equation 5) is the score less that of the node unsplit. A candidate whose
side has a hessian below `least` scores NONE. Of equal scores the lower candidate wins: by feature, then by threshold
(missing values right before left; "missing against the rest" last) or category (missing first, then by hash).

Candidates are sampled (Section 3.3): the trees of an iteration may split at few edges only. Of the E inner edges of a
numeric feature, ceil(alpha E) are candidates, or FEW of them if that is more: the edges, in order, are cut into so many
stretches, equally long, and of each the one with the smallest hash of (seed, iteration, feature, edge) is taken. All
edges beyond the ends are candidates. A tree has no use for the bins between candidates, so it joins them:

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
       pixels of a digit, all its edges are too many: trees that draw three of them are more accurate, and change less
       when a sample comes or goes.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.histogram import is_against, unsplit_score
from oubli.core.boosting.online.bins import Bins
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.rng import CANDIDATES, combine

NONE = -1.0
NO_BIN = -1

# What float64 cannot tell apart: the scores of two candidates that divide the samples in the same way are the same
# number, whatever the order of their sides; beyond that, a score is right to a few parts in 2**52.
_HAIR = 1.0 + 2.0**-40
FEW = 3
MANY_CATEGORIES = 64


@inner
def sums_to_the_left(histogram, first, categorical, left, left_with_missing):
    """Write the packed sums that each bin's candidate sends left; returns whether any value is missing.

    left               int64[n_bins]: missing values go right; zero where there is no candidate
    left_with_missing  int64[n_bins]: they go left; zero where that is no other candidate
    """
    has_missing = False
    for feature in range(categorical.shape[0]):
        start, end = np.int64(first[feature]), np.int64(first[feature + 1]) - 1
        left[end] = 0
        left_with_missing[end] = 0
        if categorical[feature]:
            for i in range(start, end):
                left[i] = histogram[i]
                left_with_missing[i] = 0
            continue
        total = np.int64(0)
        for i in range(start, end):
            total += histogram[i]
            left[i] = total
        missing = histogram[end]
        if missing == 0:
            left[end - 1] = 0
            for i in range(start, end):
                left_with_missing[i] = 0
            continue
        has_missing = True
        for i in range(start, end - 1):
            left_with_missing[i] = left[i] + missing
        left_with_missing[end - 1] = 0
    return has_missing


@pasted
def score_of(left, total, rules):
    """Score of a candidate from the packed sums of its left side and of the node."""
    shift = np.int64(rules.shift)
    mask = (np.int64(1) << shift) - np.int64(1)
    right = total - left
    h_left, h_right = left & mask, right & mask
    a, b = np.float64(left >> shift), np.float64(right >> shift)
    c, d = np.float64(h_left) + rules.l2, np.float64(h_right) + rules.l2
    score = (a * a * d + b * b * c) / (c * d)
    return score if h_left >= rules.least and h_right >= rules.least else NONE


@inner
def drop_against(first, total, rules, left, left_with_missing):
    """Take out the candidates whose sides have values that are against a monotone constraint."""
    for feature in range(rules.directions.shape[0]):
        direction = rules.directions[feature]
        for i in range(first[feature], first[feature + 1]):
            for sides in (left, left_with_missing):
                if direction != 0 and is_against(sides[i], total, np.int64(rules.shift), rules.l2, direction):
                    sides[i] = 0


@pasted
def _score_all(left, total, rules, scores):
    for i in range(left.shape[0]):
        scores[i] = score_of(left[i], total, rules)


@inner
def best_split(histogram, first, categorical, total, rules, space):
    """Find the best candidate of a node.

    Returns its gain, its bin (NO_BIN when no candidate has a gain) and whether missing values go left.
    """
    has_missing = sums_to_the_left(histogram, first, categorical, space.left, space.left_with_missing)
    drop_against(first, total, rules, space.left, space.left_with_missing)
    _score_all(space.left, total, rules, space.scores)
    unsplit = unsplit_score(total, np.int64(rules.shift), rules.l2)
    best, best_bin, missing_left = unsplit * _HAIR, NO_BIN, 0
    if not has_missing:
        for i in range(histogram.shape[0]):
            if space.scores[i] > best:
                best, best_bin = space.scores[i], i
    else:
        _score_all(space.left_with_missing, total, rules, space.more_scores)
        for i in range(histogram.shape[0]):
            if space.scores[i] > best:
                best, best_bin, missing_left = space.scores[i], i, 0
            if space.more_scores[i] > best:
                best, best_bin, missing_left = space.more_scores[i], i, 1
    return best - unsplit, best_bin, missing_left


@inner
def keeps_its_place(histogram, first, categorical, total, rules, space, current, missing_left):
    """Whether a node's split still ranks among the best (Section 3.4).

    That is: fewer than max(1, ceil(robustness * n)) of the node's n candidates are better than it, by more than a
    hair. Candidates are those with a score, and the split itself: without a score all others are better.

    current  the bin of the node's split
    """
    has_missing = sums_to_the_left(histogram, first, categorical, space.left, space.left_with_missing)
    drop_against(first, total, rules, space.left, space.left_with_missing)
    if missing_left != 0 and space.left_with_missing[current] != 0:
        own = score_of(space.left_with_missing[current], total, rules)
    else:
        own = score_of(space.left[current], total, rules)
    limit = own * _HAIR if own >= 0.0 else NONE
    n_candidates, n_better = np.int64(own == NONE), np.int64(0)
    for i in range(histogram.shape[0]):
        score = score_of(space.left[i], total, rules)
        n_candidates += score >= 0.0
        n_better += score > limit
    if has_missing:
        for i in range(histogram.shape[0]):
            score = score_of(space.left_with_missing[i], total, rules)
            n_candidates += score >= 0.0
            n_better += score > limit
    return n_better < max(1.0, np.ceil(rules.robustness * n_candidates - 1e-9))


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
