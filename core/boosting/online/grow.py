"""The best-first growth of a subtree (Algorithm 1, line 6) from samples at hand.

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

from oubli.core.boosting.histogram import subtract
from oubli.core.boosting.online.split import NO_BIN, best_split
from oubli.core.boosting.online.state import contribution_of, row_of, write_value
from oubli.core.boosting.online.workspace import count_rows, divide, place_rows
from oubli.core.boosting.state import make_split
from oubli.core.jit.policy import inner, kernel

START, END, PLACE, BIN, MISSING_LEFT = range(5)
NONE = -1  # no leaf


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
def find_best(model, space, tree, leaf):
    """Find the best candidate of an open leaf."""
    total = model.forest.states[row_of(model.forest, tree, space.open[leaf, PLACE])]["sums"]
    gain, best, missing_left = best_split(
        space.histograms[leaf], model.candidates.first, model.bins.categorical, total, model.rules, space
    )
    space.gains[leaf] = gain if best != NO_BIN else 0.0
    space.open[leaf, BIN] = best
    space.open[leaf, MISSING_LEFT] = missing_left


@inner
def best_leaf(space, n_open):
    """The open leaf whose best candidate has the largest gain, of equals the first; NONE when none has a gain."""
    best = np.int64(0)
    for leaf in range(1, n_open):
        if space.gains[leaf] > space.gains[best]:
            best = np.int64(leaf)
    return best if space.gains[best] > 0.0 else np.int64(NONE)


@inner
def _feature_of(first, bin_number):
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
def _sums_of_left(histogram, start, own, is_categorical, missing, missing_left):
    """Packed sums that a split sends left."""
    if is_categorical:
        return histogram[start + own]
    total = np.int64(0)
    for i in range(start, start + own + 1):
        total += histogram[i]
    return total + histogram[start + missing] if missing_left != 0 else total


@inner
def write_split(model, space, iteration, tree, leaf, new):
    """Write the best split of an open leaf to the tree: the leaf becomes its left child, number `new` the right one.

    The children, two leaves, are the lowest pair that is not in use. Returns the feature, the last code that goes left
    (or the code of the category that does), and whether missing values go left.
    """
    forest, bins, first = model.forest, model.bins, model.candidates.first
    nodes, states = forest.nodes, forest.states
    place, bin_number, missing_left = space.open[leaf, PLACE], space.open[leaf, BIN], space.open[leaf, MISSING_LEFT]
    pair = 0
    while states[row_of(forest, tree, 1 + 2 * pair)]["in_use"] != 0:
        pair += 1
    row, left = row_of(forest, tree, place), row_of(forest, tree, 1 + 2 * pair)
    feature = _feature_of(first, bin_number)
    is_categorical = bins.categorical[feature]
    first_bin = np.int64(first[feature])
    own, cut = bin_number - first_bin, np.int64(model.candidates.cuts[iteration, bin_number])
    code = np.int64(bins.first[feature]) + cut
    make_split(nodes, row, feature, left, missing_left, is_categorical)
    if is_categorical:
        nodes[row]["category"] = bins.hashes[code]
    else:
        nodes[row]["threshold"] = bins.edges[code]
    states[row]["bin"] = np.int32(own)
    for side in range(2):
        states[left + side]["in_use"] = 1
        states[left + side]["parent"] = np.int32(place)
    states[left]["leaf"] = states[row]["leaf"]
    states[left + 1]["leaf"] = np.int32(pair + 1)
    kept, histogram = forest.stats[tree, pair], space.histograms[leaf]
    for i in range(kept.shape[0]):
        kept[i] = histogram[i]
    missing = np.int64(first[feature + 1]) - first_bin - 1
    sums = _sums_of_left(kept, first_bin, own, is_categorical, missing, missing_left)
    states[left]["sums"] = sums
    states[left + 1]["sums"] = states[row]["sums"] - sums
    space.open[leaf, PLACE], space.open[new, PLACE] = 1 + 2 * pair, 2 + 2 * pair
    return feature, cut, missing_left


@inner
def _split_leaf(model, rows, space, iteration, tree, leaf, new, is_last):
    """Split an open leaf: it becomes its left child, and the right one opens as number `new`."""
    histogram, other = space.histograms[leaf], space.histograms[new]
    feature, cut, missing_left = write_split(model, space, iteration, tree, leaf, new)
    start, end = space.open[leaf, START], space.open[leaf, END]
    middle = divide(rows, model.bins, space.order, space.other, start, end, feature, cut, missing_left)
    space.open[leaf, END], space.open[new, START], space.open[new, END] = middle, middle, end
    if is_last:
        return
    kept = model.forest.stats[tree, space.open[leaf, PLACE] // 2]
    if middle - start <= end - middle:
        count_rows(histogram, rows, model, iteration, space.order, start, middle)
        subtract(kept, histogram, other)
    else:
        count_rows(other, rows, model, iteration, space.order, middle, end)
        subtract(kept, other, histogram)
    find_best(model, space, tree, leaf)
    find_best(model, space, tree, new)


@inner
def label_rows(model, rows, space, tree, number, start, end):
    """Write the number of a leaf of a tree for the samples in positions order[start:end]."""
    leaf_of = model.forest.leaf_of[tree]
    for i in range(start, end):
        leaf_of[np.uint64(rows.slots[np.uint64(space.order[np.uint64(i)])])] = number


@inner
def grow_subtree(model, rows, space, iteration, tree, place, budget):
    """Grow a subtree of at most `budget` leaves at a leaf, on the samples at hand.

    The first histogram of `space` is theirs, and so are the leaf's `sums`.
    """
    n = rows.slots.shape[0]
    for i in range(n):
        space.order[i] = i
    space.open[0, START], space.open[0, END], space.open[0, PLACE] = 0, n, place
    space.gains[0] = 0.0
    if budget > 1:
        find_best(model, space, tree, 0)
    n_open = 1
    while n_open < budget:
        best = best_leaf(space, n_open)
        if best == NONE:
            break
        _split_leaf(model, rows, space, iteration, tree, best, n_open, n_open + 1 == budget)
        n_open += 1
    for leaf in range(n_open):
        place = space.open[leaf, PLACE]
        write_value(model.forest, model.rules, tree, place)
        number = model.forest.states[row_of(model.forest, tree, place)]["leaf"]
        label_rows(model, rows, space, tree, number, space.open[leaf, START], space.open[leaf, END])


@inner
def count_root(model, rows, space, iteration, tree, begin, end, histogram, are_placed):
    """Begin with some of the samples at hand at the root of a tree; returns the sum of their derivatives.

    are_placed  whether their bins are those of the iteration already
    """
    total = np.int64(0)
    for i in range(begin, end):
        value = contribution_of(model, tree, np.uint64(rows.slots[np.uint64(i)]))
        rows.packed[i] = value
        total += value
        space.order[i] = i
    if are_placed:
        count_rows(histogram, rows, model, iteration, space.order, begin, end)
    else:
        place_rows(histogram, rows, model, iteration, begin, end)
    return total


@kernel
def grow_tree(model, rows, space, iteration, tree, are_placed):
    """Grow a tree, so far a leaf without samples, on the samples at hand; `are_placed` as in `count_root`."""
    n = rows.slots.shape[0]
    total = count_root(model, rows, space, iteration, tree, 0, n, space.histograms[0], are_placed)
    model.forest.states[row_of(model.forest, tree, 0)]["sums"] = total
    grow_subtree(model, rows, space, iteration, tree, 0, model.forest.stats.shape[1] + 1)
