"""Predictions of a forest without one sample, found by reading: nothing is deleted.

A sample is in k of the T trees, and there in the nodes on its own path. Only those that a row passes too can matter to
the row. At each of them

    * the counters, copied and with the sample taken out of the copy, say whether the split stands (`split.py`);
    * where there are none, or they do not tell, the node's other samples are counted again.

As long as splits stand, paths are as they were, and the row's leaf has one sample less if the sample is in it. Where
one does not, the row continues below by splits chosen again in the working space, as for a query through a tag
(`forest/predict.py`). Only the working space of the question is written to. The sums equal, bit by bit, those of a
forest that has unlearned the sample.

Where all splits are kept, nothing is counted: leaves alone are refitted, and where a leaf is left empty, the other
samples of the node above answer. That takes a small part of the time.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.forest.grow import count_and_choose
from oubli.core.forest.layout.blocks import DELETE, is_counted, update_block
from oubli.core.forest.layout.cells import gather
from oubli.core.forest.predict import add_counts, add_leaf, add_ordered, keep_side
from oubli.core.forest.split import choose_split, is_block_pure, is_same_split, store_split
from oubli.core.forest.state import Leaves, count_in, leaf_of, must_be_leaf, read_leaf
from oubli.core.jit.nodes import NIL, goes_right
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.rng import combine, draw_trees, restore_order, tree_key


class Rows(NamedTuple):
    """The rows asked about, and where they are in the forest as it is."""

    cells: npt.NDArray[Any]  # [m, d]
    category_hashes: npt.NDArray[np.uint64]
    below: npt.NDArray[np.int32]  # int32[nodes]: how many of the rows pass a node
    ends: npt.NDArray[np.int32]  # int32[m, T]: the leaf's node that a row reaches
    shares: npt.NDArray[np.float64]  # float64[m T, width]: what that leaf says; row i T + tree for the i-th row
    kept: npt.NDArray[np.float64]  # float64[m T, width]: shares as they were, of those changed for a sample
    changed: npt.NDArray[np.int32]  # int32[m T]: which these are


@kernel
def place_rows(trees, parameters, rows):
    """Fill `below`, `ends` and `shares`, all zero before; no tree may have a tag."""
    is_regression = parameters[0]["is_regression"] != 0
    n_trees = parameters[0]["n_trees"]
    for row in range(rows.cells.shape[0]):
        for tree in range(n_trees):
            node = np.int64(tree)
            rows.below[node] += 1
            while leaf_of(trees.nodes, node) == NIL:
                side = goes_right(trees.nodes, node, rows.cells, row, rows.category_hashes)
                node = np.int64(trees.nodes[node]["child"]) + side
                rows.below[node] += 1
            rows.ends[row, tree] = np.int32(node)
            n_samples = np.int64(trees.nodes[node]["n_samples"])
            if n_samples > 0:
                leaf, place = leaf_of(trees.nodes, node), row * n_trees + tree
                leaves = Leaves(trees.statistics, trees.starts, trees.tallies)
                add_leaf(leaves, leaf, n_samples, is_regression, rows.shares, place)


@inner
def _gather_others(trees, data, parameters, scratch, node, slot):
    """Collect the samples below a node but one; returns their number."""
    n = gather(trees, data, parameters, scratch, node)
    place = 0
    while scratch.slots[scratch.order[place]] != slot:
        place += 1
    scratch.order[place] = scratch.order[n - 1]
    return n - 1


@inner
def _stands(trees, data, parameters, scratch, blocks, work, node, key, depth, slot):
    """Whether an inner node keeps its split without a sample."""
    n_others = np.int64(trees.nodes[node]["n_samples"]) - 1
    if must_be_leaf(parameters, n_others, depth):
        return False
    if is_counted(trees, blocks, node):
        block = np.int64(trees.nodes[node]["block"])
        for i in range(work.longs.shape[1]):
            work.longs[0, i] = blocks.longs[block, i]
        # Without the sample the counters may tell nothing.
        if update_block(data, parameters, scratch, work, 0, slot, DELETE, key, n_others):
            if is_block_pure(parameters, work, 0, n_others):
                return False
            choose_split(data, parameters, scratch, work, 0, key)
            return is_same_split(trees.nodes, node, scratch.choice)
    _gather_others(trees, data, parameters, scratch, node, slot)
    found = count_and_choose(data, parameters, scratch, work, 0, key, 0, n_others, NIL, False)
    return found and is_same_split(trees.nodes, node, scratch.choice)


@inner
def _say_anew(trees, data, parameters, scratch, work, node, key, depth, slot, rows, row, place):
    """Follow a row from a node whose split does not stand, down the splits that would be there; write its share."""
    end = _gather_others(trees, data, parameters, scratch, node, slot)
    while not must_be_leaf(parameters, end, depth):
        if not count_and_choose(data, parameters, scratch, work, 0, key, 0, end, NIL, False):
            break
        store_split(scratch.node, 0, scratch.choice)
        side = goes_right(scratch.node, 0, rows.cells, row, rows.category_hashes)
        end = keep_side(data, scratch, end, side)
        key = combine(key, np.uint64(side))
        depth += 1
    add_ordered(parameters, scratch, end, rows.shares, place)


@inner
def _say_less(trees, data, parameters, scratch, node, slot, rows, place):
    """Write the share of a row whose leaf loses a sample."""
    is_regression = parameters[0]["is_regression"] != 0
    leaf = leaf_of(trees.nodes, node)
    n_others = np.int64(trees.nodes[node]["n_samples"]) - 1
    read_leaf(trees, leaf, n_others + 1, scratch.leaf, 0)
    count_in(scratch.leaf, 0, 0, data.targets[slot], DELETE, is_regression)
    add_counts(scratch.leaf, 0, is_regression, rows.shares, place)


@inner
def _passes(trees, rows, row, tree, node):
    """Whether a row passes a node of a tree."""
    if leaf_of(trees.nodes, node) != NIL:
        return rows.ends[row, tree] == node
    at = np.int64(tree)
    while at != node and leaf_of(trees.nodes, at) == NIL:
        side = goes_right(trees.nodes, at, rows.cells, row, rows.category_hashes)
        at = np.int64(trees.nodes[at]["child"]) + side
    return at == node


@pasted
def _keep_share(rows, place, n_changed):
    """Keep what a leaf says to a row, to be put back, and make room for something else."""
    rows.changed[n_changed] = np.int32(place)
    for c in range(rows.kept.shape[1]):
        rows.kept[n_changed, c] = rows.shares[place, c]
        rows.shares[place, c] = 0.0


@inner
def _take_out_of_tree(trees, data, parameters, scratch, blocks, work, rows, tree, slot, n_changed, keeps_splits):
    """Change the shares of one tree to those without a sample; returns how many have been changed so far."""
    nodes = trees.nodes
    node = np.int64(tree)
    key = tree_key(parameters[0]["seed_key"], tree)
    depth = 0
    parent = node
    stands = nodes[node]["n_samples"] > 1
    while stands and leaf_of(nodes, node) == NIL and rows.below[node] > 0:
        stands = keeps_splits or _stands(trees, data, parameters, scratch, blocks, work, node, key, depth, slot)
        if stands:
            side = goes_right(nodes, node, data.cells, slot, data.category_hashes)
            key = combine(key, np.uint64(side))
            parent = node
            node = np.int64(nodes[node]["child"]) + side
            depth += 1
    if rows.below[node] == 0:
        return n_changed
    for row in range(rows.cells.shape[0]):
        if not _passes(trees, rows, row, tree, node):
            continue
        place = row * parameters[0]["n_trees"] + tree
        _keep_share(rows, place, n_changed)
        n_changed += 1
        if stands and nodes[node]["n_samples"] == 1:
            end = _gather_others(trees, data, parameters, scratch, parent, slot)
            add_ordered(parameters, scratch, end, rows.shares, place)
        elif stands:
            _say_less(trees, data, parameters, scratch, node, slot, rows, place)
        elif nodes[tree]["n_samples"] > 1:
            _say_anew(trees, data, parameters, scratch, work, node, key, depth, slot, rows, row, place)
    return n_changed


@pasted
def _sum_shares(rows, n_trees, sums, s):
    """Sum what all trees say to each row, in their order."""
    for row in range(rows.cells.shape[0]):
        for c in range(rows.shares.shape[1]):
            sums[s, row, c] = 0.0
        for place in range(row * n_trees, (row + 1) * n_trees):
            for c in range(rows.shares.shape[1]):
                sums[s, row, c] += rows.shares[place, c]


@pasted
def _find_trees(data, parameters, scratch, slot):
    """Write the trees that a sample draws to scratch.path_nodes."""
    n_trees = parameters[0]["n_trees"]
    occurrences = parameters[0]["occurrences"]
    draw_trees(parameters[0]["seed_key"], data.id_hashes[slot], n_trees, occurrences, scratch.permutation)
    for draw in range(occurrences):
        scratch.path_nodes[draw] = scratch.permutation[draw]
    restore_order(parameters[0]["seed_key"], data.id_hashes[slot], n_trees, occurrences, scratch.permutation)


@kernel
def sums_without(trees, data, parameters, scratch, blocks, work, rows, slots, sums, n_planted, keeps_splits):
    """Sum what the leaves would say to each row without each of some samples, one at a time.

    work       blocks of one row, for this question alone, as is `scratch`
    slots      int64[s] of the samples
    keeps_splits  whether splits stay as they are, and leaves alone are refitted
    sums       float64[s, m, width] written
    n_planted  int64[s] written: trees that would not be empty
    """
    n_trees = parameters[0]["n_trees"]
    n_filled = 0
    for tree in range(n_trees):
        n_filled += np.int64(trees.nodes[tree]["n_samples"] > 0)
    for s in range(slots.shape[0]):
        slot = slots[s]
        n_planted[s] = n_filled
        n_changed = 0
        _find_trees(data, parameters, scratch, slot)
        for draw in range(parameters[0]["occurrences"]):
            tree = np.int64(scratch.path_nodes[draw])
            n_planted[s] -= np.int64(trees.nodes[tree]["n_samples"] == 1)
            n_changed = _take_out_of_tree(
                trees, data, parameters, scratch, blocks, work, rows, tree, slot, n_changed, keeps_splits
            )
        _sum_shares(rows, n_trees, sums, s)
        for i in range(n_changed):
            for c in range(rows.kept.shape[1]):
                rows.shares[rows.changed[i], c] = rows.kept[i, c]
