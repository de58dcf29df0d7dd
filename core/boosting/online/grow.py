"""Best-first growth of a subtree (Algorithm 1, line 6) from samples at hand.

    order    [ samples of leaf 0 | of leaf 1 | ... ]      positions of the samples; divided in place, in order
    open     [ leaf 0 | leaf 1 | ... ]                    with histogram and best candidate
                 split: leaf 0 becomes its left child, the right one comes last

The open leaf whose best candidate has the largest gain is split next, of equal ones the first in the list. Only the
smaller of two children is counted sample by sample: the other's histogram is the parent's less that ("subtraction
trick"). The parent's own histogram is what the tree keeps of it.

Nothing depends on the order of the samples.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.online.split import NO_BIN, best_split
from oubli.core.boosting.online.state import unpack, value_of
from oubli.core.boosting.online.workspace import count_rows, divide, place_rows
from oubli.core.jit.policy import inner, kernel

START, END, PLACE, BIN, MISSING_LEFT = range(5)


class Space(NamedTuple):
    """Working space: for n samples at hand, R bins, J leaves."""

    order: npt.NDArray[np.int32]  # int32[n]: positions, leaf by leaf
    other: npt.NDArray[np.int32]  # int32[n]: those that go right, while a leaf is divided
    histograms: npt.NDArray[np.int64]  # int64[J, R]: of the open leaves
    open: npt.NDArray[np.int64]  # int64[J, 5]: START, END in `order`, PLACE, BIN, MISSING_LEFT
    gains: npt.NDArray[np.float64]  # float64[J]
    left: npt.NDArray[np.int64]  # int64[R]
    left_with_missing: npt.NDArray[np.int64]  # int64[R]
    scores: npt.NDArray[np.float64]  # float64[R]
    more_scores: npt.NDArray[np.float64]  # float64[R]


def make_space(n: int, n_bins: int, n_leaves: int) -> Space:
    """Make room for n samples at hand."""
    return Space(
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.zeros((n_leaves, n_bins), np.int64),
        np.zeros((n_leaves, 5), np.int64),
        np.zeros(n_leaves),
        np.zeros(n_bins, np.int64),
        np.zeros(n_bins, np.int64),
        np.zeros(n_bins),
        np.zeros(n_bins),
    )


@inner
def free_pair(forest, tree):
    """The lowest pair of a tree that is not in use."""
    n_places = 2 * forest.stats.shape[1] + 1
    pair = 0
    while forest.states[tree * n_places + 1 + 2 * pair]["in_use"] != 0:
        pair += 1
    return pair


@inner
def find_best(forest, first, categorical, rules, space, tree, leaf):
    """Find the best candidate of an open leaf."""
    n_places = 2 * forest.stats.shape[1] + 1
    total = forest.states[tree * n_places + space.open[leaf, PLACE]]["sums"]
    gain, best, missing_left = best_split(space.histograms[leaf], first, categorical, total, rules, space)
    space.gains[leaf] = gain if best != NO_BIN else 0.0
    space.open[leaf, BIN] = best
    space.open[leaf, MISSING_LEFT] = missing_left


@inner
def feature_of(first, bin_number):
    """The feature that a bin belongs to."""
    low, high = 0, first.shape[0] - 1
    while high - low > 1:
        middle = (low + high) // 2
        if np.int64(first[middle]) <= bin_number:
            low = middle
        else:
            high = middle
    return low


@inner
def write_split(forest, bins, candidates, iteration, tree, place, pair, bin_number, missing_left):
    """Turn a leaf into an inner node whose children, two leaves, are a pair; returns feature, bin and code."""
    n_places = 2 * forest.stats.shape[1] + 1
    row, left = tree * n_places + place, tree * n_places + 1 + 2 * pair
    feature = feature_of(candidates.first, bin_number)
    cut = np.int64(candidates.cuts[iteration, bin_number])
    code = np.int64(bins.first[feature]) + cut
    own = bin_number - np.int64(candidates.first[feature])
    nodes, states = forest.nodes, forest.states
    nodes[row]["feature"] = np.int32(feature)
    nodes[row]["left"] = np.int32(left)
    nodes[row]["value"] = 0.0
    nodes[row]["missing_left"] = np.uint8(missing_left)
    nodes[row]["is_categorical"] = np.uint8(bins.categorical[feature])
    if bins.categorical[feature]:
        nodes[row]["category"] = bins.hashes[code]
    else:
        nodes[row]["threshold"] = bins.edges[code]
    states[row]["bin"] = np.int32(own)
    for side in range(2):
        states[left + side]["in_use"] = 1
        states[left + side]["parent"] = np.int32(place)
    states[left]["leaf"] = states[row]["leaf"]
    states[left + 1]["leaf"] = np.int32(pair + 1)
    return feature, own, cut


@inner
def sums_of_left(histogram, start, own, is_categorical, missing, missing_left):
    """Packed sums that a split sends left."""
    if is_categorical:
        return histogram[start + own]
    total = np.int64(0)
    for i in range(start, start + own + 1):
        total += histogram[i]
    return total + histogram[start + missing] if missing_left != 0 else total


@inner
def _split_leaf(
    forest, bins, candidates, layout, rules, rows, codes, slots, space, iteration, tree, leaf, new, is_last
):
    """Split an open leaf: it becomes its left child, and the right one opens as number `new`."""
    n_places = 2 * forest.stats.shape[1] + 1
    place, missing_left = space.open[leaf, PLACE], space.open[leaf, MISSING_LEFT]
    pair = free_pair(forest, tree)
    feature, own, cut = write_split(
        forest, bins, candidates, iteration, tree, place, pair, space.open[leaf, BIN], missing_left
    )
    kept = forest.stats[tree, pair]
    histogram = space.histograms[leaf]
    for i in range(kept.shape[0]):
        kept[i] = histogram[i]
    first, categorical = candidates.first, bins.categorical
    first_bin = np.int64(first[feature])
    missing = np.int64(first[feature + 1]) - first_bin - 1
    left = sums_of_left(kept, first_bin, own, categorical[feature], missing, missing_left)
    left_row = tree * n_places + 1 + 2 * pair
    forest.states[left_row]["sums"] = left
    forest.states[left_row + 1]["sums"] = forest.states[tree * n_places + place]["sums"] - left
    start, end = space.open[leaf, START], space.open[leaf, END]
    missing_code = np.int64(bins.first[feature + 1]) - np.int64(bins.first[feature]) - 1
    middle = divide(
        rows, codes, slots, space.order, space.other, start, end, feature, cut, categorical[feature], missing_code,
        missing_left,
    )  # fmt: skip
    space.open[leaf, PLACE], space.open[new, PLACE] = 1 + 2 * pair, 2 + 2 * pair
    space.open[leaf, END], space.open[new, START], space.open[new, END] = middle, middle, end
    if is_last:
        return
    other = space.histograms[new]
    places = candidates.places[iteration]
    if middle - start <= end - middle:
        count_rows(histogram, rows, bins.first, first, places, layout, space.order, start, middle)
        for i in range(kept.shape[0]):
            other[i] = kept[i] - histogram[i]
    else:
        count_rows(other, rows, bins.first, first, places, layout, space.order, middle, end)
        for i in range(kept.shape[0]):
            histogram[i] = kept[i] - other[i]
    find_best(forest, first, categorical, rules, space, tree, leaf)
    find_best(forest, first, categorical, rules, space, tree, new)


@inner
def _close(forest, rules, space, tree, n_open, slots):
    """Write values and members of the open leaves."""
    n_places = 2 * forest.stats.shape[1] + 1
    for leaf in range(n_open):
        row = tree * n_places + space.open[leaf, PLACE]
        number = forest.states[row]["leaf"]
        value = value_of(forest.states[row]["sums"], rules)
        forest.nodes[row]["value"] = value
        forest.values[tree, number] = value
        leaf_of = forest.leaf_of[tree]
        for i in range(space.open[leaf, START], space.open[leaf, END]):
            leaf_of[np.uint64(slots[np.uint64(space.order[np.uint64(i)])])] = number


@inner
def grow_subtree(forest, bins, candidates, layout, rules, rows, codes, slots, space, iteration, tree, place, budget):
    """Grow a subtree of at most `budget` leaves at a leaf, on the samples at hand.

    slots       their slots, by position
    histograms  of `space`: the first one is theirs; the leaf's `sums` are, too
    """
    for i in range(slots.shape[0]):
        space.order[i] = i
    space.open[0, START], space.open[0, END], space.open[0, PLACE] = 0, slots.shape[0], place
    space.gains[0] = 0.0
    if budget > 1:
        find_best(forest, candidates.first, bins.categorical, rules, space, tree, 0)
    n_open = 1
    while n_open < budget:
        best = 0
        for leaf in range(1, n_open):
            if space.gains[leaf] > space.gains[best]:
                best = leaf
        if space.gains[best] <= 0.0:
            break
        _split_leaf(
            forest, bins, candidates, layout, rules, rows, codes, slots, space, iteration, tree, best, n_open,
            n_open + 1 == budget,
        )  # fmt: skip
        n_open += 1
    _close(forest, rules, space, tree, n_open, slots)


@kernel
def grow_tree(forest, bins, candidates, layout, rules, rows, codes, slots, space, iteration, tree, are_placed):
    """Grow a tree, so far a leaf without samples, on the samples at hand.

    are_placed  whether their bins are those of the iteration already
    """
    n_places = 2 * forest.stats.shape[1] + 1
    total = np.int64(0)
    gh = forest.gh[tree]
    for i in range(slots.shape[0]):
        value = unpack(gh[np.uint64(slots[np.uint64(i)])], rules.shift)
        rows.packed[i] = value
        total += value
        space.order[i] = i
    forest.states[tree * n_places]["sums"] = total
    first, places = candidates.first, candidates.places[iteration]
    if are_placed:
        count_rows(space.histograms[0], rows, bins.first, first, places, layout, space.order, 0, slots.shape[0])
    else:
        place_rows(rows, codes, bins.first, first, places, layout, slots, 0, slots.shape[0], space.histograms[0])
    n_leaves = forest.stats.shape[1] + 1
    grow_subtree(forest, bins, candidates, layout, rules, rows, codes, slots, space, iteration, tree, 0, n_leaves)
