"""Adding and deleting a sample: one walk a tree, root to leaf, counters brought up to date.

Differs from Algorithm 2 of the paper (LZY) in that the walk goes on below a tag (`nodes.py`), and
in that the check of a node without counters is left to the next query.
"""

import numpy as np

from core._jit import inner, kernel, spliced
from core.forest.blocks import (
    AT_HI,
    AT_LO,
    COPIES_HI,
    COPIES_LO,
    MISSING,
    N_ATTRIBUTES,
    N_SKIPPED,
    TARGET_HI,
    TARGET_LO,
    attribute_key,
    bin_of,
    category_hash,
    category_rank,
    count_in,
    in_subset,
    size_of,
)
from core.forest.build import must_be_leaf
from core.forest.inputs import IS_REGRESSION, MIN_SAMPLES_SPLIT, N_TREES, OCCURRENCES
from core.forest.nodes import DIRTY, NIL, TAGGED, leaf_of, link_entry, set_tag, unlink_entry
from core.forest.split import choose_split, goes_right, is_same_split
from core.rng import combine, draw_trees, restore_order, tree_key

ADD = 1
DELETE = -1


@inner
def _update_numeric(blocks, block, used, x, target, sign, is_regression):
    """Bring a numeric attribute's counters up to date; False when its candidates change."""
    bins = blocks.bins[block, used]
    copies = blocks.copies[block, used]
    n_thresholds = blocks.thresholds.shape[2]
    lo = blocks.ranges[block, used, 0]
    hi = blocks.ranges[block, used, 1]
    if np.isnan(x):
        copies[MISSING] += sign
        count_in(bins, n_thresholds + 1, target, sign, is_regression)
        return lo < hi or copies[MISSING] > 0
    if x < lo or x > hi:
        return False
    if x == lo:
        copies[AT_LO] += sign
    if x == hi:
        copies[AT_HI] += sign
    if copies[AT_LO] == 0 or copies[AT_HI] == 0:
        return False
    position = 0
    if lo < hi:
        scale = np.float64(n_thresholds) / (hi - lo)
        position = bin_of(x, blocks.thresholds[block, used], lo, scale)
    count_in(bins, position, target, sign, is_regression)
    return True


@inner
def _update_categorical(blocks, block, used, hashed, target, sign, key, n_samples, is_regression):
    """Bring a categorical attribute's counters up to date; False when its candidates change."""
    bins = blocks.bins[block, used]
    for j in range(blocks.categories.shape[2]):
        candidate_key = combine(key, np.uint64(j))
        if j % 2 == 1:
            if in_subset(candidate_key, hashed):
                count_in(bins, j, target, sign, is_regression)
            continue
        chosen = blocks.categories[block, used, j]
        if hashed == chosen:
            count_in(bins, j, target, sign, is_regression)
            if size_of(bins, j, is_regression) == 0:
                return False
        elif sign == ADD and category_rank(candidate_key, hashed) < category_rank(candidate_key, chosen):
            return False
    # When all samples are of the category that the first candidate isolates, the attribute is constant.
    return size_of(bins, 0, is_regression) < n_samples


@spliced
def _update_attributes(data, blocks, block, slot, sign, key, n_samples, is_regression):
    """Bring the counters of all attributes up to date; False when the candidates change."""
    target = data.targets[slot]
    for u in range(blocks.sizes[block, N_ATTRIBUTES]):
        attribute = blocks.attributes[block, u]
        x = data.cells[slot, attribute]
        if data.categorical[attribute]:
            hashed = category_hash(data.category_hashes, x)
            attributes_key = attribute_key(key, attribute)
            stands = _update_categorical(
                blocks, block, u, hashed, target, sign, attributes_key, n_samples, is_regression
            )
        else:
            stands = _update_numeric(blocks, block, u, np.float64(x), target, sign, is_regression)
        if not stands:
            return False
    if sign == ADD:
        # A skipped column that is no longer constant would have been taken.
        for i in range(blocks.sizes[block, N_SKIPPED]):
            x = np.float64(data.cells[slot, blocks.skipped[block, i]])
            constant = blocks.constants[block, i]
            if x != constant and not (np.isnan(x) and np.isnan(constant)):
                return False
    return True


@inner
def _update_target_range(blocks, block, target, sign):
    """Keep the range of the targets; False when an end leaves and the node may have become pure."""
    target_range = blocks.target_range[block]
    if target < target_range[TARGET_LO]:
        target_range[TARGET_LO] = target
        target_range[COPIES_LO] = 0
    if target > target_range[TARGET_HI]:
        target_range[TARGET_HI] = target
        target_range[COPIES_HI] = 0
    if target == target_range[TARGET_LO]:
        target_range[COPIES_LO] += sign
    if target == target_range[TARGET_HI]:
        target_range[COPIES_HI] += sign
    return target_range[COPIES_LO] > 0 and target_range[COPIES_HI] > 0


@spliced
def _split_stands(trees, data, parameters, scratch, blocks, node, slot, sign, key):
    """Update an inner node's block for one sample; whether the split is certainly still the best.

    O(p s width). After False the block is out of date; the caller tags the node, and resolving
    counts it anew.
    """
    nodes = trees.nodes
    block = np.int64(nodes[node]["block"])
    n_samples = np.int64(nodes[node]["n_samples"])
    if n_samples < parameters.values[MIN_SAMPLES_SPLIT]:
        return False
    is_regression = parameters.values[IS_REGRESSION] != 0
    if not _update_attributes(data, blocks, block, slot, sign, key, n_samples, is_regression):
        return False
    target = data.targets[slot]
    if not _update_target_range(blocks, block, target, sign):
        return False
    count_in(blocks.totals, block, target, sign, is_regression)
    choose_split(data, parameters, scratch, blocks, block, key, n_samples)
    return is_same_split(nodes, node, scratch.choice)


@inner
def _update_leaf(trees, data, parameters, tree, node, depth, slot, entry, sign):
    """Put a sample into a leaf or take it out; tag the leaf if it may have to be split."""
    leaf = leaf_of(trees.nodes, node)
    is_regression = parameters.values[IS_REGRESSION] != 0
    target = data.targets[slot]
    count_in(trees.statistics, leaf, target, sign, is_regression)
    if sign == DELETE:
        # A leaf stays a leaf: fewer samples, still pure or still all equal.
        unlink_entry(trees, entry)
        return
    link_entry(trees, leaf, entry)
    n_samples = np.int64(trees.nodes[node]["n_samples"])
    if must_be_leaf(parameters, n_samples, depth):
        return
    is_pure = not is_regression and trees.statistics[leaf, target] == n_samples
    if not is_pure:
        set_tag(trees, tree, node)


@spliced
def _update_tree(trees, data, parameters, scratch, blocks, tree, slot, entry, sign):
    """Add a sample to one tree or delete it there; O(depth p s width)."""
    nodes = trees.nodes
    node = np.int64(tree)
    key = tree_key(parameters.seed_key[0], tree)
    depth = 0
    while True:
        nodes[node]["n_samples"] += np.int32(sign)
        if leaf_of(nodes, node) != NIL:
            break
        # Set whether or not a tag follows: it nearly always does, and it costs a query nothing.
        nodes[node]["flags"] |= DIRTY
        if not nodes[node]["flags"] & TAGGED:
            stands = nodes[node]["block"] != NIL and _split_stands(
                trees, data, parameters, scratch, blocks, node, slot, sign, key
            )
            if not stands:
                set_tag(trees, tree, node)
        side = goes_right(nodes, node, data.cells, slot, data.category_hashes)
        key = combine(key, np.uint64(side))
        node = np.int64(nodes[node]["child"]) + side
        depth += 1
    _update_leaf(trees, data, parameters, tree, node, depth, slot, entry, sign)


@kernel
def update_samples(trees, data, parameters, scratch, blocks, slots, sign):
    """Add (sign 1) or delete (-1) the samples in `slots`, one after the other.

    slots  int64[m]; the samples' cells, targets and id hashes are in place (a delete wipes them
           afterwards)

    Allocates nothing. O(k depth p s width) a sample.
    """
    n_trees = parameters.values[N_TREES]
    occurrences = parameters.values[OCCURRENCES]
    seed_key = parameters.seed_key[0]
    order = scratch.permutation
    for i in range(slots.shape[0]):
        slot = slots[i]
        id_hash = data.id_hashes[slot]
        draw_trees(seed_key, id_hash, n_trees, occurrences, order)
        for draw in range(occurrences):
            # `choose_split` does not touch the permutation, so the draw survives the walk.
            tree = np.int64(order[draw])
            entry = slot * occurrences + draw
            _update_tree(trees, data, parameters, scratch, blocks, tree, slot, entry, sign)
        restore_order(seed_key, id_hash, n_trees, occurrences, order)


@kernel
def plant(trees, data, parameters, scratch, slots):
    """Put samples into root leaves, all to be grown: how a fit begins.

    The trees are empty roots. Slots are taken from the last to the first, so that every leaf's
    list is in ascending order and growing reads the samples in the order of memory.
    """
    n_trees = parameters.values[N_TREES]
    occurrences = parameters.values[OCCURRENCES]
    seed_key = parameters.seed_key[0]
    order = scratch.permutation
    for i in range(slots.shape[0] - 1, -1, -1):
        slot = slots[i]
        id_hash = data.id_hashes[slot]
        draw_trees(seed_key, id_hash, n_trees, occurrences, order)
        for draw in range(occurrences):
            tree = np.int64(order[draw])
            trees.nodes[tree]["n_samples"] += np.int32(1)
            _update_leaf(trees, data, parameters, tree, tree, 0, slot, slot * occurrences + draw, ADD)
        restore_order(seed_key, id_hash, n_trees, occurrences, order)
