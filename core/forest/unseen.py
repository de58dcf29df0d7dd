"""Predictions of samples held, each by the trees that have not learned it."""

import numpy as np

from oubli.core.forest.split import goes_right
from oubli.core.forest.state import NIL, leaf_of
from oubli.core.forest.walks import add_leaf
from oubli.core.jit.policy import kernel
from oubli.core.rng import draw_trees, restore_order


@kernel
def sum_unseen_leaves(
    nodes, statistics, n_trees, n_draws, is_regression, seed_key, cells, id_hashes, category_hashes, slots, order,
    sums, n_summed,
):  # fmt: skip
    """Sum for each sample the leaves of the trees that it is not in; there are no tags.

    n_draws    trees that each sample is in, below n_trees
    seed_key   uint64, of the forest
    slots      int64[n]
    order      int32[n_trees], the identity permutation, and so again at the end
    sums       float64[n, width or 1], zero, written
    n_summed   int64[n], written: trees that have samples, and not this one
    """
    for i in range(slots.shape[0]):
        slot = slots[i]
        draw_trees(seed_key, id_hashes[slot], n_trees, n_draws, order)
        n_summed[i] = 0
        for place in range(n_draws, n_trees):
            node = np.int64(order[place])
            if nodes[node]["n_samples"] == 0:
                continue
            n_summed[i] += 1
            while leaf_of(nodes, node) == NIL:
                node = np.int64(nodes[node]["child"]) + goes_right(nodes, node, cells, slot, category_hashes)
            n_samples = np.int64(nodes[node]["n_samples"])
            if n_samples > 0:
                add_leaf(statistics, leaf_of(nodes, node), n_samples, is_regression, sums, i)
        restore_order(seed_key, id_hashes[slot], n_trees, n_draws, order)
