"""Learning and unlearning on the trees (Algorithm 3, Appendix E), touching only the samples that come or go.

For every tree in turn, the samples of the batch walk from the root to their leaves; every node on their way takes
their derivatives into its sums, or gives them back. Then the nodes they met are asked, from the root down, whether
their split still has its place among the best. The first that has lost it is reported: its subtree is to be trained
anew (`retrain.py`), and the asking goes on behind it. A leaf that was met has a new value; it is not split further.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.online.derivatives import round_class, round_number, sigmoid, softmax_at
from oubli.core.boosting.online.split import keeps_its_place
from oubli.core.boosting.online.state import NIL, children_of, unpack, value_of
from oubli.core.jit.policy import inner, kernel, pasted

# What `run_updates` returns.
DONE = 0
STALE = 1  # a node has lost its place: retrain it, then call again

# Where it is.
ITERATION, GROUP, PHASE, HEAD, TAIL, NODE, N_CHECKED, CURSOR_SIZE = range(8)
_BEGIN_ITERATION, _BEGIN_TREE, _CHECK = range(3)


class Batch(NamedTuple):
    """The b samples that come or go."""

    slots: npt.NDArray[np.int64]  # int64[b]
    sign: int  # 1: they come; -1: they go
    bins: npt.NDArray[np.uint32]  # uint32[b, d]: their bins of an iteration, over all features; working space
    sums: npt.NDArray[np.float64]  # float64[K, b]: sums of leaf values before the iteration, of those that come
    probabilities: npt.NDArray[np.float64]  # float64[K]: working space
    reached: npt.NDArray[np.uint8]  # uint8[P]: places of the tree that they reach
    queue: npt.NDArray[np.int64]  # int64[P]: places to be asked
    cursor: npt.NDArray[np.int64]  # int64[CURSOR_SIZE]


def make_batch(slots: npt.NDArray[np.int64], sign: int, n_features: int, n_groups: int, n_places: int) -> Batch:
    """Begin with a batch."""
    return Batch(
        slots,
        sign,
        np.zeros((len(slots), n_features), np.uint32),
        np.zeros((n_groups, len(slots))),
        np.zeros(max(n_groups, 1)),
        np.zeros(n_places, np.uint8),
        np.zeros(n_places, np.int64),
        np.zeros(CURSOR_SIZE, np.int64),
    )


@pasted
def derive(labels, sums, column, slot, iteration, gh, tree, first, last, probabilities):
    """Write what a sample contributes to the trees of classes first to last - 1 of an iteration.

    sums  float64[K, n]: its sums of leaf values before the iteration are in a column
    tree  number of the iteration's first tree
    """
    id_hash = labels.id_hashes[slot]
    n_groups = labels.base.shape[0]
    if n_groups == 1:
        score = labels.base[0] + labels.unit * sums[0, column]
        if labels.scale != 0.0:
            gh[tree, slot] = round_number(score - labels.y[slot], labels.scale, labels.limit, id_hash, iteration)
            return
        p = sigmoid(score)
        own = np.float64(labels.ranks[labels.targets[slot]])
        gh[tree, slot] = round_class(p - own, p * (1.0 - p), id_hash, iteration)
        return
    softmax_at(sums, labels.base, labels.unit, column, probabilities)
    rank = np.int64(labels.ranks[labels.targets[slot]])
    for k in range(first, last):
        p = probabilities[k]
        gh[tree + k, slot] = round_class(p - np.float64(rank == k), p * (1.0 - p), id_hash, iteration)


@kernel
def derive_all(labels, sums, slots, n, iteration, tree, gh, first, last, probabilities):
    """The same for the samples slots[:n], sample i's sums being in column i."""
    for i in range(n):
        derive(labels, sums, i, slots[i], iteration, gh, tree, first, last, probabilities)


@inner
def _look_up_bins(codes, first_codes, first, places, batch):
    """Write the batch's bins of an iteration, over all features."""
    for i in range(batch.slots.shape[0]):
        slot = batch.slots[i]
        for feature in range(codes.shape[1]):
            code = np.int64(first_codes[feature]) + np.int64(codes[slot, feature])
            batch.bins[i, feature] = first[feature] + np.uint32(places[code])


@inner
def _side(forest, first, batch, i, row):
    """Side of a sample of the batch at an inner node: 0 left, 1 right."""
    feature = np.int64(forest.nodes[row]["feature"])
    start, end = np.int64(first[feature]), np.int64(first[feature + 1])
    b = np.int64(batch.bins[i, feature]) - start
    own = np.int64(forest.states[row]["bin"])
    if forest.nodes[row]["is_categorical"] != 0:
        return np.int64(b != own)
    if b == end - start - 1:
        return np.int64(forest.nodes[row]["missing_left"] == 0)
    return np.int64(b > own)


@inner
def _walk(forest, first, rules, batch, tree):
    """Take the batch into the sums along its paths, or out of them."""
    n_places = 2 * forest.stats.shape[1] + 1
    n_features = np.uint64(batch.bins.shape[1])
    one = np.uint64(1)
    for i in range(batch.slots.shape[0]):
        slot = batch.slots[i]
        change = unpack(forest.gh[tree, slot], rules.shift)
        if batch.sign < 0:
            change = -change
        place = np.int64(0)
        while True:
            row = tree * n_places + place
            batch.reached[place] = 1
            forest.states[row]["sums"] += change
            left = children_of(forest, tree, place)
            if left == NIL:
                break
            kept = forest.stats[tree, (left - 1) // 2]
            feature = np.uint64(0)
            while feature < n_features:
                kept[np.uint64(batch.bins[np.uint64(i), feature])] += change
                feature += one
            place = left + _side(forest, first, batch, i, row)
        if batch.sign > 0:
            forest.leaf_of[tree, slot] = forest.states[row]["leaf"]
        else:
            forest.leaf_of[tree, slot] = 0
            forest.gh[tree, slot] = 0


@inner
def _check(forest, bins, candidates, rules, space, batch, tree):
    """Ask the nodes that were met, by ascending depth; returns the place of the first that is stale, or NIL."""
    n_places = 2 * forest.stats.shape[1] + 1
    cursor = batch.cursor
    while cursor[HEAD] < cursor[TAIL]:
        place = batch.queue[cursor[HEAD]]
        cursor[HEAD] += 1
        row = tree * n_places + place
        left = children_of(forest, tree, place)
        if left == NIL:
            value = value_of(forest.states[row]["sums"], rules)
            forest.nodes[row]["value"] = value
            forest.values[tree, forest.states[row]["leaf"]] = value
            continue
        cursor[N_CHECKED] += 1
        current = np.int64(candidates.first[forest.nodes[row]["feature"]]) + np.int64(forest.states[row]["bin"])
        if not keeps_its_place(
            forest.stats[tree, (left - 1) // 2], candidates.first, bins.categorical, forest.states[row]["sums"],
            rules, space, current, forest.nodes[row]["missing_left"],
        ):  # fmt: skip
            return place
        for side in range(2):
            if batch.reached[left + side] != 0:
                batch.queue[cursor[TAIL]] = left + side
                cursor[TAIL] += 1
    return NIL


@inner
def _begin_iteration(forest, bins, candidates, labels, codes, batch, iteration):
    """Look up the bins of the batch, and derive what those that come contribute."""
    first = candidates.first
    _look_up_bins(codes, bins.first, first, candidates.places[iteration], batch)
    if batch.sign < 0:
        return
    n_groups = labels.base.shape[0]
    for i in range(batch.slots.shape[0]):
        derive(
            labels, batch.sums, i, batch.slots[i], iteration, forest.gh, iteration * n_groups, 0, n_groups,
            batch.probabilities,
        )  # fmt: skip


@inner
def _end_iteration(forest, batch, iteration):
    """Add the values of an iteration's trees to the sums of those that come."""
    if batch.sign < 0:
        return
    n_groups = batch.sums.shape[0]
    for k in range(n_groups):
        tree = iteration * n_groups + k
        for i in range(batch.slots.shape[0]):
            batch.sums[k, i] += forest.values[tree, forest.leaf_of[tree, batch.slots[i]]]


@kernel
def run_updates(forest, bins, candidates, rules, labels, space, codes, batch, is_new):
    """Update the trees, one after the other, from where `batch.cursor` says.

    is_new  bool[K]: classes whose trees have not been grown yet: they are trained from the root

    Returns DONE, or STALE: the subtree at the cursor's NODE, of the tree of its ITERATION and GROUP, is to be trained
    anew; afterwards a second call goes on.
    """
    cursor = batch.cursor
    n_groups = labels.base.shape[0]
    n_iterations = forest.stats.shape[0] // n_groups
    while cursor[ITERATION] < n_iterations:
        iteration = cursor[ITERATION]
        if cursor[PHASE] == _BEGIN_ITERATION:
            _begin_iteration(forest, bins, candidates, labels, codes, batch, iteration)
            cursor[GROUP] = 0
            cursor[PHASE] = _BEGIN_TREE
        while cursor[GROUP] < n_groups:
            tree = iteration * n_groups + cursor[GROUP]
            if cursor[PHASE] == _BEGIN_TREE:
                for place in range(batch.reached.shape[0]):
                    batch.reached[place] = 0
                _walk(forest, candidates.first, rules, batch, tree)
                batch.queue[0] = 0
                cursor[HEAD], cursor[TAIL] = 0, 1
                cursor[PHASE] = _CHECK
                if is_new[cursor[GROUP]]:
                    cursor[HEAD] = 1
                    cursor[NODE] = 0
                    return STALE
            cursor[NODE] = _check(forest, bins, candidates, rules, space, batch, tree)
            if cursor[NODE] != NIL:
                return STALE
            cursor[GROUP] += 1
            cursor[PHASE] = _BEGIN_TREE
        _end_iteration(forest, batch, iteration)
        cursor[ITERATION] += 1
        cursor[PHASE] = _BEGIN_ITERATION
    return DONE
