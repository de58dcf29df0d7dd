"""Counting everything anew from what the samples contribute, tree by tree: for files, and to check what is kept."""

from typing import Any

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.online.state import NIL, Forest, children_of, unpack, value_of
from oubli.core.jit.policy import inner, kernel


@inner
def _leaf_place(forest, bins_of_row, first, tree):
    """Place of the leaf that a row of bins, over all features, leads to."""
    n_places = 2 * forest.stats.shape[1] + 1
    place = np.int64(0)
    left = children_of(forest, tree, place)
    while left != NIL:
        row = tree * n_places + place
        feature = np.int64(forest.nodes[row]["feature"])
        start, end = np.int64(first[feature]), np.int64(first[feature + 1])
        b, own = bins_of_row[feature] - start, np.int64(forest.states[row]["bin"])
        if forest.nodes[row]["is_categorical"] != 0:
            side = np.int64(b != own)
        elif b == end - start - 1:
            side = np.int64(forest.nodes[row]["missing_left"] == 0)
        else:
            side = np.int64(b > own)
        place = left + side
        left = children_of(forest, tree, place)
    return place


@inner
def _sum_up(forest, tree, histograms, stack, order):
    """Sum up the histograms of the leaves to all nodes above."""
    n_places = 2 * forest.stats.shape[1] + 1
    stack[0] = 0
    n_waiting, n_nodes = 1, 0
    while n_waiting > 0:
        n_waiting -= 1
        place = stack[n_waiting]
        order[n_nodes] = place
        n_nodes += 1
        left = children_of(forest, tree, place)
        if left != NIL:
            stack[n_waiting] = left
            stack[n_waiting + 1] = left + 1
            n_waiting += 2
    for i in range(n_nodes - 1, -1, -1):
        place = order[i]
        left = children_of(forest, tree, place)
        if left == NIL:
            continue
        total = forest.stats[tree, (left - 1) // 2]
        sums = np.int64(0)
        for side in range(2):
            child = left + side
            below = children_of(forest, tree, child)
            row = tree * n_places + child
            part = histograms[forest.states[row]["leaf"]] if below == NIL else forest.stats[tree, (below - 1) // 2]
            for b in range(total.shape[0]):
                total[b] += part[b]
            sums += forest.states[row]["sums"]
        forest.states[tree * n_places + place]["sums"] = sums


@kernel
def count_tree(forest, codes, first_codes, first, places, rules, tree, slots, bins_of_row, histograms, stack, order):
    """Count the samples in some slots, by their `gh`, in a tree of which nothing but the structure is known.

    bins_of_row  int64[d], histograms int64[J, R], stack and order int64[P]: working space

    Writes `leaf_of`, `sums`, `stats` and the values of the leaves.
    """
    n_places = 2 * forest.stats.shape[1] + 1
    for leaf in range(histograms.shape[0]):
        for b in range(histograms.shape[1]):
            histograms[leaf, b] = 0
    for i in range(slots.shape[0]):
        slot = slots[i]
        for feature in range(codes.shape[1]):
            place = places[np.int64(first_codes[feature]) + np.int64(codes[slot, feature])]
            bins_of_row[feature] = np.int64(first[feature]) + np.int64(place)
        row = tree * n_places + _leaf_place(forest, bins_of_row, first, tree)
        leaf = np.int64(forest.states[row]["leaf"])
        forest.leaf_of[tree, slot] = leaf
        packed = unpack(forest.gh[tree, slot], rules.shift)
        forest.states[row]["sums"] += packed
        for feature in range(codes.shape[1]):
            histograms[leaf, bins_of_row[feature]] += packed
    _sum_up(forest, tree, histograms, stack, order)
    for place in range(n_places):
        row = tree * n_places + place
        if forest.states[row]["in_use"] != 0 and children_of(forest, tree, place) == NIL:
            value = value_of(forest.states[row]["sums"], rules)
            forest.nodes[row]["value"] = value
            forest.values[tree, forest.states[row]["leaf"]] = value


def count_anew(
    forest: Forest,
    codes: npt.NDArray[Any],
    first_codes: npt.NDArray[np.uint32],
    candidates: Any,
    rules: Any,
    n_groups: int,
    slots: npt.NDArray[np.int64],
) -> Forest:
    """Return trees of the same structure in which everything else is counted from `gh` of the samples in some slots."""
    fresh = forest._replace(
        nodes=forest.nodes.copy(),
        states=forest.states.copy(),
        stats=np.zeros_like(forest.stats),
        values=np.zeros_like(forest.values),
        leaf_of=np.zeros_like(forest.leaf_of),
    )
    fresh.states["sums"] = 0
    fresh.nodes["value"] = 0.0
    bins_of_row = np.zeros(codes.shape[1], np.int64)
    histograms = np.zeros((forest.values.shape[1], candidates.n_bins), np.int64)
    stack, order = np.zeros(forest.n_places, np.int64), np.zeros(forest.n_places, np.int64)
    for tree in range(forest.n_trees):
        places = candidates.places[tree // n_groups]
        count_tree(
            fresh, codes, first_codes, candidates.first, places, rules, tree, slots, bins_of_row, histograms, stack,
            order,
        )  # fmt: skip
    return fresh
