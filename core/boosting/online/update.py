"""The update of all trees for samples that come or go (Algorithm 3, Appendix E); it touches only these samples.

In every tree, the samples of the batch walk from the root to their leaves, and every node on their way adds their
derivatives to its sums or subtracts them. Then these nodes are checked from the root down: is their split still among
the best? The first that is not is reported: its subtree is retrained (`retrain.py`), and the checks continue behind it.
A leaf on the way gets a new value; it is not split further.

Trees are added and dropped with their class (Appendix M).
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.online import state as s
from oubli.core.boosting.online.derivatives import round_class, round_loss, sigmoid, softmax_at
from oubli.core.boosting.online.split import keeps_its_place
from oubli.core.boosting.state import LEAF
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
            gh[tree, slot] = round_loss(labels, score, labels.y[slot], id_hash, iteration)
            return
        p = sigmoid(score)
        own = np.float64(labels.ranks[labels.class_codes[slot]])
        gh[tree, slot] = round_class(p - own, p * (1.0 - p), id_hash, iteration)
        return
    softmax_at(sums, labels.base, labels.unit, column, probabilities)
    rank = np.int64(labels.ranks[labels.class_codes[slot]])
    for k in range(first, last):
        p = probabilities[k]
        gh[tree + k, slot] = round_class(p - np.float64(rank == k), p * (1.0 - p), id_hash, iteration)


@kernel
def derive_all(labels, sums, slots, begin, end, iteration, tree, gh, first, last, probabilities):
    """The same for the samples slots[begin:end], the sums of slots[i] being in column i."""
    for i in range(begin, end):
        derive(labels, sums, i, slots[i], iteration, gh, tree, first, last, probabilities)


@kernel
def add_values(forest, slots, begin, end, first, last, sums):
    """Add the values of the iterations `first` to `last` - 1 to the sums of the samples slots[begin:end].

    sums  float64[K, n]; those of slots[i] are in column i. They are added up in the order of the iterations.
    """
    n_groups = sums.shape[0]
    for tree in range(first * n_groups, last * n_groups):
        row = sums[tree % n_groups]
        values, leaf_of = forest.values[tree], forest.leaf_of[tree]
        for i in range(begin, end):
            row[i] += values[leaf_of[slots[i]]]


@pasted
def look_up_bins(codes, slot, model, iteration, bins):
    """Write a sample's bins of an iteration, over all features, to uint32[d]."""
    first, places = model.candidates.first, model.candidates.places[iteration]
    for feature in range(codes.shape[1]):
        code = np.int64(model.bins.first[feature]) + np.int64(codes[slot, feature])
        bins[feature] = first[feature] + np.uint32(places[code])


@pasted
def side_of(model, bins, row):
    """Side of a sample at an inner node, by its bins: 0 left, 1 right."""
    forest, first = model.forest, model.candidates.first
    feature = np.int64(forest.nodes[row]["feature"])
    start, end = np.int64(first[feature]), np.int64(first[feature + 1])
    b = np.int64(bins[feature]) - start
    own = np.int64(forest.states[row]["bin"])
    if forest.nodes[row]["is_categorical"] != 0:
        return np.int64(b != own)
    if b == end - start - 1:
        return np.int64(forest.nodes[row]["missing_left"] == 0)
    return np.int64(b > own)


@inner
def _walk(model, batch, tree):
    """Take the batch into the sums along its paths, or out of them."""
    forest = model.forest
    n_features = np.uint64(batch.bins.shape[1])
    one = np.uint64(1)
    for i in range(batch.slots.shape[0]):
        slot = batch.slots[i]
        change = s.contribution_of(model, tree, slot)
        if batch.sign < 0:
            change = -change
        place = np.int64(0)
        while True:
            row = s.row_of(forest, tree, place)
            batch.reached[place] = 1
            forest.states[row]["sums"] += change
            left = s.children_of(forest, tree, place)
            if left == s.NIL:
                break
            kept = forest.stats[tree, left // 2]
            feature = np.uint64(0)
            while feature < n_features:
                kept[np.uint64(batch.bins[np.uint64(i), feature])] += change
                feature += one
            place = left + side_of(model, batch.bins[i], row)
        if batch.sign > 0:
            forest.leaf_of[tree, slot] = forest.states[row]["leaf"]
        else:
            forest.leaf_of[tree, slot] = 0
            forest.gh[tree, slot] = 0


@inner
def _check(model, space, batch, tree):
    """Check the nodes that were met, by ascending depth; returns the place of the first that is stale, or NIL."""
    forest, first, cursor = model.forest, model.candidates.first, batch.cursor
    while cursor[HEAD] < cursor[TAIL]:
        place = batch.queue[cursor[HEAD]]
        cursor[HEAD] += 1
        left = s.children_of(forest, tree, place)
        if left == s.NIL:
            s.write_value(forest, model.rules, tree, place)
            continue
        cursor[N_CHECKED] += 1
        row = s.row_of(forest, tree, place)
        current = np.int64(first[forest.nodes[row]["feature"]]) + np.int64(forest.states[row]["bin"])
        if not keeps_its_place(
            forest.stats[tree, left // 2], first, model.bins.categorical, forest.states[row]["sums"], model.rules,
            space, current, forest.nodes[row]["missing_left"],
        ):  # fmt: skip
            return place
        for side in range(2):
            if batch.reached[left + side] != 0:
                batch.queue[cursor[TAIL]] = left + side
                cursor[TAIL] += 1
    return s.NIL


@kernel
def run_updates(model, labels, space, codes, batch, is_new):
    """Update the trees, one after the other, from where `batch.cursor` says.

    is_new  bool[K]: classes whose trees have not been grown yet: they are trained from the root

    Returns DONE, or STALE: the subtree at the cursor's NODE, of the tree of its ITERATION and GROUP, is to be
    retrained; afterwards a second call continues.
    """
    forest, cursor, n_groups, n = model.forest, batch.cursor, labels.base.shape[0], batch.slots.shape[0]
    while cursor[ITERATION] < forest.stats.shape[0] // n_groups:
        iteration = cursor[ITERATION]
        first_tree = iteration * n_groups
        if cursor[PHASE] == _BEGIN_ITERATION:
            for i in range(n):
                look_up_bins(codes, batch.slots[i], model, iteration, batch.bins[i])
            if batch.sign > 0:
                derive_all(
                    labels, batch.sums, batch.slots, 0, n, iteration, first_tree, forest.gh, 0, n_groups,
                    batch.probabilities,
                )  # fmt: skip
            cursor[GROUP] = 0
            cursor[PHASE] = _BEGIN_TREE
        while cursor[GROUP] < n_groups:
            tree = first_tree + cursor[GROUP]
            if cursor[PHASE] == _BEGIN_TREE:
                for place in range(batch.reached.shape[0]):
                    batch.reached[place] = 0
                _walk(model, batch, tree)
                batch.queue[0] = 0
                cursor[HEAD], cursor[TAIL] = 0, 1
                cursor[PHASE] = _CHECK
                if is_new[cursor[GROUP]]:
                    cursor[HEAD] = 1
                    cursor[NODE] = 0
                    return STALE
            cursor[NODE] = _check(model, space, batch, tree)
            if cursor[NODE] != s.NIL:
                return STALE
            if model.rules.directions.shape[0] > 0:  # one sum more or less may move the bounds of any leaf
                s.write_values_of(forest, model.rules, tree)
            cursor[GROUP] += 1
            cursor[PHASE] = _BEGIN_TREE
        if batch.sign > 0:
            add_values(forest, batch.slots, 0, n, iteration, iteration + 1, batch.sums)
        cursor[ITERATION] += 1
        cursor[PHASE] = _BEGIN_ITERATION
    return DONE


def choose_classes(forest: s.Forest, n_groups: int, places: npt.NDArray[np.int64]) -> s.Forest:
    """Rearrange the trees of every iteration: tree k becomes the one that was number places[k].

    places  int64[K]; -1: a new tree, a leaf to which samples contribute nothing so far
    """
    n_iterations = forest.n_trees // n_groups
    n_places = forest.n_places
    rows = np.arange(n_iterations)[:, None] * n_groups + np.maximum(places, 0)
    is_new = np.tile(places < 0, n_iterations)
    rows = rows.ravel()
    n_trees = len(rows)
    nodes = forest.nodes.reshape(-1, n_places)[rows]
    states = forest.states.reshape(-1, n_places)[rows]
    # Children move with their tree.
    moves = ((np.arange(n_trees) - rows) * n_places).astype(np.int32)
    nodes["left"] += np.where(nodes["feature"] != LEAF, moves[:, None], 0).astype(np.int32)
    nodes[is_new] = s.blank_nodes(1, n_places)
    states[is_new] = s.blank_states(1, n_places)
    stats, values, gh, leaf_of = forest.stats[rows], forest.values[rows], forest.gh[rows], forest.leaf_of[rows]
    stats[is_new], values[is_new], gh[is_new], leaf_of[is_new] = 0, 0.0, 0, 0
    return s.Forest(nodes.ravel(), states.ravel(), stats, values, gh, leaf_of)


@kernel
def write_values(forest, rules):
    """Write the values of all leaves from their sums."""
    for tree in range(forest.stats.shape[0]):
        s.write_values_of(forest, rules, tree)
