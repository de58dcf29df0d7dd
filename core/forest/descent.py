"""A sample's way down a tree to which it is added, or from which it is deleted: root to leaf, counters up to date.

No candidate is scored: every inner node on the way is tagged, and whoever passes it next chooses its split from the
counters, once for all mutations since (`resolve.py`).
"""

import numpy as np

from oubli.core.forest.bits import note_differences
from oubli.core.forest.blocks import IS_COUNTED, is_counted
from oubli.core.forest.counters import ADD, DELETE, update_block
from oubli.core.forest.leaves import count_in, is_full, list_entry, move_leaf, must_be_leaf, unlist_entry
from oubli.core.forest.split import goes_right
from oubli.core.forest.state import DIRTY, NIL, leaf_of, set_tag
from oubli.core.forest.workspace import IS_REGRESSION, OCCURRENCES, SKIPPED_AT
from oubli.core.jit.policy import inner, pasted
from oubli.core.rng import combine, tree_key


@inner
def _find_differences(trees, data, parameters, scratch, node, slot):
    """Write to scratch.differing a bit for each column in which a sample differs from the others in its leaf.

    A column that is constant at a node on the way is so in the leaf. False when the leaf is empty.
    """
    nodes = trees.nodes
    while leaf_of(nodes, node) == NIL:
        node = np.int64(nodes[node]["child"]) + goes_right(nodes, node, data.cells, slot, data.category_hashes)
    if nodes[node]["n_samples"] == 0:
        return False
    start = np.int64(trees.starts[leaf_of(nodes, node)])
    other = np.int64(trees.members[start]) // parameters.values[OCCURRENCES]
    note_differences(data, scratch.differing, slot, other)
    return True


@pasted
def _skips_any(parameters, scratch, blocks, block):
    """Whether a block has passed over any column."""
    place = parameters.values[SKIPPED_AT]
    skipped = np.uint64(0)
    for i in range(scratch.differing.shape[0]):
        skipped |= blocks.keys[block, place + i]
    return skipped != np.uint64(0)


@pasted
def _skips_differing(parameters, scratch, blocks, block):
    """Whether a block has passed over a column that the added sample makes usable."""
    place = parameters.values[SKIPPED_AT]
    usable = np.uint64(0)
    for i in range(scratch.differing.shape[0]):
        usable |= blocks.keys[block, place + i] & scratch.differing[i]
    return usable != np.uint64(0)


@pasted
def update_leaf(trees, data, parameters, tree, node, depth, slot, entry, sign):
    """Put a sample into a leaf or take it out; tag the leaf if it may have to be split."""
    leaf = leaf_of(trees.nodes, node)
    is_regression = parameters.values[IS_REGRESSION] != 0
    target = data.targets[slot]
    n_samples = np.int64(trees.nodes[node]["n_samples"])
    count_in(trees.statistics, leaf, target, sign, is_regression)
    trees.nodes[node]["n_samples"] = np.int32(n_samples + sign)
    if sign == DELETE:
        # A leaf stays a leaf: fewer samples, still pure or still all equal.
        unlist_entry(trees, leaf, n_samples, entry)
        return
    if is_full(trees, leaf, n_samples):
        move_leaf(trees, leaf, n_samples, np.int64(trees.rooms[leaf]) + 1)
    list_entry(trees, leaf, n_samples, entry)
    if must_be_leaf(parameters, n_samples + 1, depth):
        return
    is_pure = not is_regression and trees.statistics[leaf, target] == n_samples + 1
    if not is_pure:
        set_tag(trees, tree, node)


@pasted
def update_tree(trees, data, parameters, scratch, blocks, tree, slot, entry, sign):
    """Add a sample to one tree or delete it there; O(depth p)."""
    nodes = trees.nodes
    node = np.int64(tree)
    key = tree_key(parameters.seed_key[0], tree)
    depth = 0
    knows_differences = sign == DELETE
    while leaf_of(nodes, node) == NIL:
        n_samples = np.int64(nodes[node]["n_samples"]) + sign
        nodes[node]["n_samples"] = np.int32(n_samples)
        nodes[node]["flags"] |= DIRTY
        set_tag(trees, tree, node)
        if is_counted(trees, blocks, node):
            block = np.int64(nodes[node]["block"])
            stands = True
            if sign == ADD and _skips_any(parameters, scratch, blocks, block):
                if not knows_differences:
                    knows_differences = _find_differences(trees, data, parameters, scratch, node, slot)
                stands = knows_differences and not _skips_differing(parameters, scratch, blocks, block)
            if not stands or not update_block(data, parameters, scratch, blocks, block, slot, sign, key, n_samples):
                blocks.longs[block, IS_COUNTED] = 0
        side = goes_right(nodes, node, data.cells, slot, data.category_hashes)
        key = combine(key, np.uint64(side))
        node = np.int64(nodes[node]["child"]) + side
        depth += 1
    update_leaf(trees, data, parameters, tree, node, depth, slot, entry, sign)
