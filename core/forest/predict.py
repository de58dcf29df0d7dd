"""Reading the forest: predictions that write nothing.

`sum_leaves` walks trees without tags. `sum_leaves_frozen` also answers through tags, by choosing
the splits below a tag in the working space for the one path it needs; so it may run while another
thread reads the same trees. The writers' counterpart is in `resolve.py`.

A prediction is the sum of the leaves' class shares (or means) over the non-empty trees in tree
order, divided by their number by the caller: the same for one row, a batch and any interleaving.
"""

import numpy as np

from oubli.core.forest.blocks import is_counted
from oubli.core.forest.cells import gather
from oubli.core.forest.count import count_candidates
from oubli.core.forest.grow import rescore
from oubli.core.forest.leaves import count_in, must_be_leaf
from oubli.core.forest.split import (
    any_goes_right,
    choose_split,
    goes_right,
    is_same_split,
    number_goes_right,
    store_split,
)
from oubli.core.forest.state import NIL, TAGGED, leaf_of
from oubli.core.forest.walks import add_end, add_leaf, enter, pass_on
from oubli.core.forest.workspace import ENDS, IS_REGRESSION, N_LANES, NODES, OWNERS
from oubli.core.jit.policy import inner, kernel, pasted, spliced
from oubli.core.jit.prefetch import prefetch_to_read
from oubli.core.rng import MISSING_CATEGORY, combine, tree_key


@pasted
def _walk_by_numbers(nodes, cells, row, lanes, n_moving):
    """Take walks of a row down to their leaves in step, so that their waits for memory overlap; without categories.

    Writes the leaf nodes to lanes[ENDS]. Without branches but the loops', for the sides are as good as random: a leaf
    has a side too, which leads nowhere.
    """
    while n_moving > 0:
        n_kept = 0
        for i in range(n_moving):
            node = np.uint64(lanes[NODES, i])
            child = np.int64(nodes[node]["child"])
            following = child + number_goes_right(nodes, node, cells, row)
            n_kept = pass_on(nodes, lanes[OWNERS, i], node, child, following, lanes, n_kept)
        n_moving = n_kept


@inner
def _look_up_hashes(cells, category_hashes, row, hashes):
    """Write the hashes of the categories of a row; what numeric columns get is of no use."""
    for column in range(cells.shape[1]):
        x = cells[row, column]
        if x >= 0 and x < category_hashes.shape[0]:
            hashes[0, column] = category_hashes[np.uint64(x)]
        else:
            hashes[0, column] = MISSING_CATEGORY


@pasted
def _walk_by_all(nodes, cells, row, hashes, lanes, n_moving):
    """The same where there are categories, their hashes being in hashes[0].

    One loop for both would ask at each step which of them it is.
    """
    while n_moving > 0:
        n_kept = 0
        for i in range(n_moving):
            node = np.uint64(lanes[NODES, i])
            child = np.int64(nodes[node]["child"])
            following = child + any_goes_right(nodes, node, cells, row, hashes, 0)
            n_kept = pass_on(nodes, lanes[OWNERS, i], node, child, following, lanes, n_kept)
        n_moving = n_kept


@inner
def _sum_trees(nodes, statistics, n_trees, is_regression, cells, row, hashes, lanes, sums):
    """Add up all trees for one row, several trees in step."""
    for first in range(0, n_trees, N_LANES):
        n_lanes = min(N_LANES, n_trees - first)
        for lane in range(n_lanes):
            enter(first + lane, lane, lanes)
        if hashes.shape[0] > 0:
            _walk_by_all(nodes, cells, row, hashes, lanes, n_lanes)
        else:
            _walk_by_numbers(nodes, cells, row, lanes, n_lanes)
        for lane in range(n_lanes):
            prefetch_to_read(statistics, (leaf_of(nodes, lanes[ENDS, lane]), np.int64(0)))
        for lane in range(n_lanes):
            add_end(nodes, statistics, lanes[ENDS, lane], is_regression, sums, row)


@kernel
def sum_leaves(nodes, statistics, n_trees, is_regression, cells, category_hashes, hashes, lanes, sums):
    """Sum the leaves that each row reaches, row by row; no tree may have a tag on the rows' paths.

    nodes, statistics  of `Trees`, read only
    cells              float32/64[n, d] queries; categorical columns index `category_hashes`
    hashes             uint64[1, d] working space; no rows where there are no categories
    lanes              int32[3, N_LANES] working space
    sums               float64[n, width or 1], zero, written

    Walks go down different trees in step, so that their waits for memory overlap. A row's sum is in the order of the
    trees. O(n T depth). Returns the number of non-empty trees. For many rows see `batches.py`.
    """
    n_planted = 0
    for tree in range(n_trees):
        n_planted += np.int64(nodes[tree]["n_samples"] > 0)
    for row in range(cells.shape[0]):
        if hashes.shape[0] > 0:
            _look_up_hashes(cells, category_hashes, row, hashes)
        _sum_trees(nodes, statistics, n_trees, is_regression, cells, row, hashes, lanes, sums)
    return n_planted


@inner
def keep_side(data, scratch, end, side):
    """Keep those of scratch.order[:end] that the split in `scratch.node` sends to a side; how many."""
    kept = 0
    for i in range(end):
        position = scratch.order[i]
        slot = scratch.slots[position]
        if goes_right(scratch.node, 0, data.cells, slot, data.category_hashes) == side:
            scratch.order[kept] = position
            kept += 1
    return kept


@inner
def add_ordered(parameters, scratch, end, sums, row):
    """Add what a leaf with the samples of scratch.order[:end] would say to a row's sum."""
    is_regression = parameters.values[IS_REGRESSION] != 0
    for c in range(scratch.leaf.shape[1]):
        scratch.leaf[0, c] = 0
    for i in range(end):
        count_in(scratch.leaf, 0, scratch.targets[scratch.order[i]], 1, is_regression)
    add_leaf(scratch.leaf, 0, end, is_regression, sums, row)


@spliced
def _add_leaf_below_tag(trees, data, parameters, scratch, blocks, node, key, depth, cells, row, category_hashes, sums):
    """Follow a query from a tagged node down the splits that resolving would choose."""
    end = gather(trees, data, parameters, scratch, node)
    while not must_be_leaf(parameters, end, depth):
        if not count_candidates(data, parameters, scratch, blocks, 0, key, 0, end, NIL):
            break
        choose_split(data, parameters, scratch, blocks, 0, key, end)
        store_split(scratch.node, 0, scratch.choice)
        side = goes_right(scratch.node, 0, cells, row, category_hashes)
        end = keep_side(data, scratch, end, side)
        key = combine(key, np.uint64(side))
        depth += 1
    add_ordered(parameters, scratch, end, sums, row)


@inner
def _passes(trees, data, parameters, scratch, blocks, node, key, depth):
    """Whether a query may follow a node's split: there is no tag, or the counters confirm the split."""
    nodes = trees.nodes
    if not nodes[node]["flags"] & TAGGED:
        return True
    if not is_counted(trees, blocks, node):
        return False
    found = rescore(trees, data, parameters, scratch, blocks, node, key, depth)
    return found and is_same_split(nodes, node, scratch.choice)


@kernel
def sum_leaves_frozen(trees, data, parameters, scratch, blocks, cells, category_hashes, sums):
    """Sum the leaves that each row reaches, through tags, writing nothing but the working space.

    Same result as resolving and `sum_leaves`; a path through a tag costs O(n p) of its node.
    """
    nodes = trees.nodes
    n_planted = 0
    for tree in range(trees.tree_tags.shape[0]):
        n_planted += np.int64(nodes[tree]["n_samples"] > 0)
    is_regression = parameters.values[IS_REGRESSION] != 0
    for row in range(cells.shape[0]):
        for tree in range(trees.tree_tags.shape[0]):
            if nodes[tree]["n_samples"] == 0:
                continue
            node = np.int64(tree)
            key = tree_key(parameters.seed_key[0], tree)
            depth = 0
            while leaf_of(nodes, node) == NIL and _passes(trees, data, parameters, scratch, blocks, node, key, depth):
                side = goes_right(nodes, node, cells, row, category_hashes)
                node = np.int64(nodes[node]["child"]) + side
                key = combine(key, np.uint64(side))
                depth += 1
            if leaf_of(nodes, node) == NIL or nodes[node]["flags"] & TAGGED:
                _add_leaf_below_tag(
                    trees, data, parameters, scratch, blocks, node, key, depth,
                    cells, row, category_hashes, sums,
                )  # fmt: skip
            else:
                leaf = leaf_of(nodes, node)
                n_samples = np.int64(nodes[node]["n_samples"])
                add_leaf(trees.statistics, leaf, n_samples, is_regression, sums, row)
    return n_planted
