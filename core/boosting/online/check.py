"""The recount of all trees from what the samples contribute: for files, and to check what is kept."""

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Slots
from oubli.core.boosting.histogram import clear
from oubli.core.boosting.online import state as s
from oubli.core.boosting.online.update import look_up_bins, side_of
from oubli.core.jit.policy import inner, kernel


@inner
def _sum_up(forest, tree, histograms, found):
    """Sum up the histograms of the leaves to all nodes above."""
    for i in range(s.list_below(forest, tree, 0, found) - 1, -1, -1):
        left = s.children_of(forest, tree, found[i])
        if left == s.NIL:
            continue
        total = forest.stats[tree, left // 2]
        for child in range(left, left + 2):
            row, below = s.row_of(forest, tree, child), s.children_of(forest, tree, child)
            part = histograms[forest.states[row]["leaf"]] if below == s.NIL else forest.stats[tree, below // 2]
            for b in range(total.shape[0]):
                total[b] += part[b]
            forest.states[s.row_of(forest, tree, found[i])]["sums"] += forest.states[row]["sums"]


@kernel
def count_tree(model, codes, iteration, tree, slots, bins, histograms, found):
    """Count the samples in some slots, by their `gh`, in a tree of which nothing but the structure is known.

    bins uint32[d], histograms int64[J, R], found int64[P]: working space

    Writes `leaf_of`, `sums`, `stats` and the values of the leaves.
    """
    forest = model.forest
    for leaf in range(histograms.shape[0]):
        clear(histograms[leaf])
    for i in range(slots.shape[0]):
        slot = slots[i]
        look_up_bins(codes, slot, model, iteration, bins)
        place = np.int64(0)
        left = s.children_of(forest, tree, place)
        while left != s.NIL:
            place = left + side_of(model, bins, s.row_of(forest, tree, place))
            left = s.children_of(forest, tree, place)
        row = s.row_of(forest, tree, place)
        leaf = np.int64(forest.states[row]["leaf"])
        forest.leaf_of[tree, slot] = leaf
        packed = s.contribution_of(model, tree, slot)
        forest.states[row]["sums"] += packed
        for feature in range(bins.shape[0]):
            histograms[leaf, bins[feature]] += packed
    _sum_up(forest, tree, histograms, found)
    for i in range(s.list_below(forest, tree, 0, found)):
        if s.children_of(forest, tree, found[i]) == s.NIL:
            s.write_value(forest, model.rules, tree, found[i])


def recount(model: s.Model, codes: npt.NDArray[np.uint16], n_groups: int, slots: Slots) -> s.Forest:
    """Return trees of the same structure in which everything else is counted from `gh` of the samples in some slots."""
    forest = model.forest
    fresh = forest._replace(
        nodes=forest.nodes.copy(),
        states=forest.states.copy(),
        stats=np.zeros_like(forest.stats),
        values=np.zeros_like(forest.values),
        leaf_of=np.zeros_like(forest.leaf_of),
    )
    fresh.states["sums"] = 0
    fresh.nodes["value"] = 0.0
    model = model._replace(forest=fresh)
    bins, found = np.zeros(codes.shape[1], np.uint32), np.zeros(forest.n_places, np.int64)
    histograms = np.zeros((forest.values.shape[1], model.candidates.n_bins), np.int64)
    for tree in range(forest.n_trees):
        count_tree(model, codes, tree // n_groups, tree, slots, bins, histograms, found)
    return fresh
