"""Regions: with numbers, and with many classes, the samples are parted once, and trees grow within the parts.

With two classes updates stay small because few scores move. Residuals have no bounds, and many classes have many trees:
an update moves scores in the end, and through them every later tree. So there all trees begin with the same splits,
and a sample that comes or goes concerns its own region only: no sum of another region depends on it. Within a region
trees may have their full depth.

The splits are those with the greatest gain of the derivatives at F_0, parting the samples about evenly, and steadied
as in `split.py`: the gain of every candidate,

    sum over the groups of L^2 / n_L + R^2 / n_R - (L + R)^2 / n,    L, R the sums of gradients of both sides

is multiplied by e^8, e = 4 n_L n_R / n^2, and by a drawn weight U^-0.3; missing values go right. The first of the best
wins. Where the first split explains less than 1 / 256 of the greatest possible variance, regions hardly help the trees,
and there is one level fewer, so that each region has more samples.

Counts of all bins are kept for each of the nodes, and an update searches again those on its samples' ways. All trees
are grown again when another split is best, or when the first one becomes weak or stops being so. So the first node is
counted even where a weak split leaves one region only.
"""

from typing import NamedTuple

import numpy as np

from oubli.core.array_types import Bools, Ints, Reals, Slots
from oubli.core.boosting.histogram import gradient_of
from oubli.core.boosting.quantised.bins import Features, live_bins
from oubli.core.boosting.quantised.derivatives import HESSIAN_STEPS
from oubli.core.boosting.quantised.split import N_WEIGHTS, fill_weights
from oubli.core.boosting.quantised.state import TRAINS, Bins, Samples
from oubli.core.boosting.weights import units_at
from oubli.core.jit.policy import kernel
from oubli.core.jit.targets import GRID
from oubli.core.rng import combine, mix

REGIONS = np.uint64(11)
_SCALE = 0.3
_WEAK = 256.0
_BYTE = np.uint64(56)


class Regions(NamedTuple):
    """The uppermost splits of all trees, in a heap, and what they were chosen by."""

    levels: int
    cuts: Ints  # int64[nodes, 3]: feature, code and whether missing values go left, as in `state.NODE`
    counts: Ints  # int64[nodes, bins]: units of training samples
    sums: Ints  # int64[nodes, groups, bins]: their gradients at F_0
    weights: Reals  # float64[256]
    is_weak: bool  # whether the first split explains little


def no_regions() -> Regions:
    """One region, which is everything."""
    zeros = np.zeros((0, 3), np.int64), np.zeros((0, 0), np.int64), np.zeros((0, 0, 0), np.int64)
    return Regions(0, *zeros, np.ones(N_WEIGHTS), is_weak=False)


@kernel
def count_bins(bins, samples, slots, sign, counts, sums):
    """Count units of samples that train by bin, and gradients at F_0; sign: 1, or -1 to count them no more."""
    for column in range(bins.codes.shape[0]):
        start = np.int64(bins.first_bin[column])
        codes = bins.codes[column]
        for i in range(slots.shape[0]):
            slot = np.uint64(slots[i])
            if samples.roles[slot] & TRAINS != 0:
                place = start + np.int64(codes[slot])
                counts[place] += sign * units_at(samples.units, slot)
                for k in range(sums.shape[0]):
                    sums[k, place] += sign * gradient_of(samples.first[k, slot])


@kernel
def choose_cut(features, first_bin, live, counts, sums, seed, node, weights, lefts, found):
    """Write the best (feature, code) of a node to `found` and return its gain by units; -1 if there is no candidate.

    live    bool[bins]: codes that are candidates, `x <= edge` or a category
    lefts   int64[2, groups], working space
    """
    key = combine(combine(mix(seed), REGIONS), np.uint64(node))
    n_groups = sums.shape[0]
    n_features = features.categorical.shape[0]
    n = np.int64(0)
    for k in range(n_groups):
        lefts[1, k] = 0
    for place in range(first_bin[1]):
        n += counts[place]
        for k in range(n_groups):
            lefts[1, k] += sums[k, place]
    best, best_gain = 0.0, 0.0
    found[0], found[1] = -1, 0
    for feature in range(n_features):
        own = combine(key, np.uint64(feature))
        n_left = np.int64(0)
        for k in range(n_groups):
            lefts[0, k] = 0
        first, last = np.int64(first_bin[feature]), np.int64(first_bin[feature + 1])
        for place in range(first, last):
            if features.categorical[feature]:
                n_left = np.int64(0)
            n_left += counts[place]
            for k in range(n_groups):
                lefts[0, k] = sums[k, place] + (0 if features.categorical[feature] else lefts[0, k])
            n_right = n - n_left
            if not live[place] or n_left == 0 or n_right == 0:
                continue
            gain = 0.0
            for k in range(n_groups):
                left, total = np.float64(lefts[0, k]), np.float64(lefts[1, k])
                right = np.float64(lefts[1, k] - lefts[0, k])
                gain += left * left / n_left + right * right / n_right - total * total / n
            evenness = 4.0 * n_left * n_right / (np.float64(n) * n)
            code = place - first
            if features.categorical[feature]:
                bits = features.categories[features.first_category[feature] + code]
            else:
                bits = features.edges.view(np.uint64)[features.first_edge[feature] + code]
            square = evenness * evenness
            value = gain * (square * square) * (square * square) * weights[combine(own, bits) >> _BYTE]
            if value > best:
                best, best_gain = value, gain
                found[0], found[1] = feature, code
    return best_gain


class Chooser(NamedTuple):
    """What regions are chosen from, but for the samples."""

    features: Features
    bins: Bins
    live_edges: Bools
    live_categories: Bools
    seed: int
    directions: Ints  # as in `state.Rules`: a column with a constraint parts no regions, as each knows its leaves alone

    def choose(self, regions: Regions, node: int) -> tuple[tuple[int, int, int], float]:
        """The split of a node by its counts: feature, code, whether missing values go left; and its gain."""
        found, lefts = np.zeros(2, np.int64), np.zeros((2, regions.sums.shape[1]), np.int64)
        first_bin = self.bins.first_bin
        candidates = live_bins(self.features, self.live_edges, self.live_categories, others=False)
        for column in np.flatnonzero(self.directions).tolist():
            candidates[first_bin[column] : first_bin[column + 1]] = False
        gain = choose_cut(
            self.features, first_bin, candidates, regions.counts[node], regions.sums[node], np.uint64(self.seed),
            node, regions.weights, lefts, found,
        )  # fmt: skip
        if found[0] >= 0:
            return (int(found[0]), int(found[1]), 0), float(gain)
        # Samples that are all alike: they go left, or by the first category.
        numeric = np.flatnonzero(~self.features.categorical)
        if not len(numeric):
            return (0, int(np.flatnonzero(self.live_categories)[0]), 0), 0.0
        column = int(numeric[0])
        return (column, int(first_bin[column + 1] - first_bin[column]) - 2, 1), 0.0

    def goes_left(self, cut: tuple[int, int, int], slots: Slots) -> Bools:
        """Which samples a split sends left."""
        feature, code, missing_left = cut
        codes = self.bins.codes[feature, slots]
        if self.features.categorical[feature]:
            return np.asarray(codes == code)
        return np.asarray((codes <= code) | (missing_left == 1) & (codes == self.bins.missing_code[feature]))

    def find(self, levels: int, samples: Samples, slots: Slots) -> Regions:
        """Part samples; into fewer regions if the first split is weak."""
        n_nodes, n_bins, weights = 2**levels - 1, int(self.bins.first_bin[-1]), np.ones(N_WEIGHTS)
        fill_weights(_SCALE, weights)
        counts, sums = np.zeros((n_nodes, n_bins), np.int64), np.zeros((n_nodes, len(samples.first), n_bins), np.int64)
        regions = Regions(levels, np.zeros((n_nodes, 3), np.int64), counts, sums, weights, is_weak=False)
        if not levels:
            return regions
        count_bins(self.bins, samples, slots, 1, counts[0], sums[0])
        if self._is_weak(regions):
            n_nodes = 2 ** (levels - 1) - 1
            n_counted = max(n_nodes, 1)  # the node that would be split is counted even where none is
            cuts, counts, sums = regions.cuts[:n_nodes], counts[:n_counted], sums[:n_counted]
            regions = Regions(levels - 1, cuts, counts, sums, weights, is_weak=True)
        below = {0: slots}
        for node in range(n_nodes):
            own = below.pop(node)
            if node:
                count_bins(self.bins, samples, own, 1, counts[node], sums[node])
            cut, _ = self.choose(regions, node)
            regions.cuts[node] = cut
            is_left = self.goes_left(cut, own)
            below[2 * node + 1], below[2 * node + 2] = own[is_left], own[~is_left]
        return regions

    def _is_weak(self, regions: Regions) -> bool:
        """Whether the first split explains little; gradients at F_0 are in steps of 1 / HESSIAN_STEPS."""
        n = int(regions.counts[0, : self.bins.first_bin[1]].sum()) / GRID
        return self.choose(regions, 0)[1] * GRID * _WEAK < n * HESSIAN_STEPS**2

    def move(self, regions: Regions, samples: Samples, slots: Slots, sign: int) -> bool:
        """Count samples that come (1) or go (-1); whether the splits are still the best."""
        if not len(regions.counts):
            return True
        below = {0: slots}
        for node in range(len(regions.counts)):
            own = below.pop(node)
            if len(own):
                count_bins(self.bins, samples, own, sign, regions.counts[node], regions.sums[node])
            if node == len(regions.cuts):  # the only one counted
                break
            cut: tuple[int, int, int] = tuple(regions.cuts[node].tolist())
            if len(own) and self.choose(regions, node)[0] != cut:
                return False
            is_left = self.goes_left(cut, own)
            below[2 * node + 1], below[2 * node + 2] = own[is_left], own[~is_left]
        return self._is_weak(regions) == regions.is_weak

    def sort(self, regions: Regions, slots: Slots) -> tuple[Slots, Ints]:
        """Sort slots by their regions; returns them, and where each region begins, int64[regions + 1]."""
        below = {0: slots}
        for node, cut in enumerate(regions.cuts.tolist()):
            own = below.pop(node)
            is_left = self.goes_left(tuple(cut), own)
            below[2 * node + 1], below[2 * node + 2] = own[is_left], own[~is_left]
        parts = [below[node] for node in sorted(below)]
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(part) for part in parts])])
        return np.concatenate(parts), bounds.astype(np.int64)
