"""Reading the forest: predictions that write nothing.

`sum_leaves` walks trees without tags. `sum_leaves_frozen` also answers through tags, by choosing
the splits below a tag in the working space for the one path it needs; so it may run while another
thread reads the same trees. The writers' counterpart is in `resolve.py`.

A prediction is the sum of the leaves' class shares (or means) over the non-empty trees in tree
order, divided by their number by the caller: the same for one row, a batch and any interleaving.
"""

import numpy as np

from core._jit import inner, kernel, spliced
from core.forest.blocks import count_in
from core.forest.build import gather, must_be_leaf
from core.forest.inputs import IS_REGRESSION
from core.forest.nodes import NIL, TAGGED, leaf_of
from core.forest.split import choose_split, count_candidates, goes_right, store_split
from core.rng import combine, tree_key


@inner
def add_leaf(statistics, leaf, n_samples, is_regression, sums, row):
    """Add a leaf's class shares, or its mean in units of the quantised target, to sums[row]."""
    if is_regression:
        sums[row, 0] += np.float64(statistics[leaf, 1]) / np.float64(statistics[leaf, 0])
        return
    for c in range(statistics.shape[1]):
        sums[row, c] += np.float64(statistics[leaf, c]) / np.float64(n_samples)


@kernel
def sum_leaves(nodes, statistics, n_trees, is_regression, cells, category_hashes, sums):
    """Sum the leaves that each row reaches; no tree may have a tag on the rows' paths.

    nodes, statistics  of `Trees`, read only
    cells              float32/64[n, d] queries; categorical columns index `category_hashes`
    sums               float64[n, width or 1], zero, written

    O(n T depth). Returns the number of non-empty trees.
    """
    n_planted = 0
    for tree in range(n_trees):
        n_planted += np.int64(nodes[tree]["n_samples"] > 0)
    for row in range(cells.shape[0]):
        for tree in range(n_trees):
            if nodes[tree]["n_samples"] == 0:
                continue
            node = np.int64(tree)
            child = np.int64(nodes[node]["child"])
            while child >= 0:
                node = child + goes_right(nodes, node, cells, row, category_hashes)
                child = np.int64(nodes[node]["child"])
            add_leaf(statistics, ~child, np.int64(nodes[node]["n_samples"]), is_regression, sums, row)
    return n_planted


@inner
def _keep_side(data, scratch, end, side):
    """Keep those of scratch.rows[:end] that the split in `scratch.node` sends to a side; how many."""
    kept = 0
    for i in range(end):
        row = scratch.rows[i]
        if goes_right(scratch.node, 0, data.cells, row, data.category_hashes) == side:
            scratch.rows[kept] = row
            kept += 1
    return kept


@spliced
def _add_leaf_below_tag(
    trees, data, parameters, scratch, blocks, node, key, depth, cells, row, category_hashes, sums
):
    """Follow a query from a tagged node down the splits that resolving would choose."""
    end = gather(trees, parameters, scratch, node)
    while not must_be_leaf(parameters, end, depth):
        if not count_candidates(data, parameters, scratch, blocks, 0, key, 0, end):
            break
        choose_split(data, parameters, scratch, blocks, 0, key, end)
        store_split(scratch.node, 0, scratch.choice)
        side = goes_right(scratch.node, 0, cells, row, category_hashes)
        end = _keep_side(data, scratch, end, side)
        key = combine(key, np.uint64(side))
        depth += 1
    is_regression = parameters.values[IS_REGRESSION] != 0
    for c in range(scratch.leaf.shape[1]):
        scratch.leaf[0, c] = 0
    for i in range(end):
        count_in(scratch.leaf, 0, data.targets[scratch.rows[i]], 1, is_regression)
    add_leaf(scratch.leaf, 0, end, is_regression, sums, row)


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
            while leaf_of(nodes, node) == NIL and not nodes[node]["flags"] & TAGGED:
                side = goes_right(nodes, node, cells, row, category_hashes)
                node = np.int64(nodes[node]["child"]) + side
                key = combine(key, np.uint64(side))
                depth += 1
            if nodes[node]["flags"] & TAGGED:
                _add_leaf_below_tag(
                    trees, data, parameters, scratch, blocks, node, key, depth,
                    cells, row, category_hashes, sums,
                )  # fmt: skip
            else:
                leaf = leaf_of(nodes, node)
                n_samples = np.int64(nodes[node]["n_samples"])
                add_leaf(trees.statistics, leaf, n_samples, is_regression, sums, row)
    return n_planted
