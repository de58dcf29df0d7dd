"""Growing subtrees from samples, and taking them down."""

import numpy as np

from core._jit import inner, spliced
from core.forest.blocks import (
    allocate_block,
    available_blocks,
    count_in,
    free_block,
)
from core.forest.inputs import BLOCK_MINIMUM, IS_REGRESSION, MAX_DEPTH, MIN_SAMPLES_SPLIT, OCCURRENCES
from core.forest.nodes import (
    DIRTY,
    NIL,
    allocate_leaf,
    allocate_pair,
    available_leaves,
    available_pairs,
    clear_dirty,
    clear_tag,
    free_leaf,
    free_pair,
    leaf_of,
    link_entry,
    set_tag,
)
from core.forest.split import choose_split, count_candidates, goes_right, is_same_split, store_split
from core.rng import combine

# Levels to grow before what is left becomes tagged leaves.
ALL_LEVELS = 2**31 - 1
ONE_LEVEL = 1

OK = 0
FULL = 1  # a pool ran out; the trees are consistent, what was not grown is tagged


@inner
def gather(trees, parameters, scratch, node):
    """Collect the samples below a node into scratch.rows and scratch.entries; returns their number."""
    nodes = trees.nodes
    occurrences = np.int32(parameters.values[OCCURRENCES])
    stack = scratch.stack
    stack[0, 0] = node
    size = 1
    n = 0
    while size > 0:
        size -= 1
        node = stack[size, 0]
        if nodes[node]["n_samples"] == 0:
            continue
        leaf = leaf_of(nodes, node)
        if leaf == NIL:
            left = np.int64(nodes[node]["child"])
            smaller = np.int64(nodes[left + 1]["n_samples"] < nodes[left]["n_samples"])
            stack[size, 0] = left + 1 - smaller
            stack[size + 1, 0] = left + smaller
            size += 2
            continue
        entry = trees.heads[leaf]
        while entry != NIL:
            scratch.entries[n] = entry
            scratch.rows[n] = entry // occurrences
            n += 1
            entry = trees.links[entry, 0]
    return n


@inner
def _take_down(trees, blocks, tree, node, first):
    """Free what one node owns; put its children, if any, on the list that starts at `first`.

    The list runs through the field `n_samples` of the left children, which nobody needs any more.
    """
    nodes = trees.nodes
    clear_tag(trees, tree, node)
    if nodes[node]["block"] != NIL:
        free_block(trees, blocks, np.int64(nodes[node]["block"]))
        nodes[node]["block"] = np.int32(NIL)
    leaf = leaf_of(nodes, node)
    if leaf != NIL:
        free_leaf(trees, leaf)
        return first
    pair = np.int64(nodes[node]["child"])
    nodes[pair]["n_samples"] = np.int32(first)
    return pair


@inner
def release_subtree(trees, blocks, tree, node):
    """Free everything below a node, its leaf or its block; the node's record itself stays."""
    pair = _take_down(trees, blocks, tree, node, np.int64(NIL))
    while pair != NIL:
        following = np.int64(trees.nodes[pair]["n_samples"])
        following = _take_down(trees, blocks, tree, pair, following)
        following = _take_down(trees, blocks, tree, pair + 1, following)
        free_pair(trees, pair)
        pair = following


@inner
def make_leaf(trees, data, parameters, scratch, node, start, end):
    """Give a node a leaf with the samples scratch.rows[start:end]; returns whether they are pure."""
    leaf = allocate_leaf(trees)
    # What was a split here may lie in a range that only a deleted sample reached.
    trees.nodes[node]["category"] = np.uint64(0)
    trees.nodes[node]["attribute"] = np.int32(0)
    trees.nodes[node]["kind"] = np.uint8(0)
    trees.nodes[node]["child"] = np.int32(~leaf)
    trees.nodes[node]["n_samples"] = np.int32(end - start)
    is_regression = parameters.values[IS_REGRESSION] != 0
    is_pure = True
    # Backwards, so that the list runs in the order of the rows.
    for i in range(end - 1, start - 1, -1):
        target = data.targets[scratch.rows[i]]
        is_pure = is_pure and target == data.targets[scratch.rows[start]]
        link_entry(trees, leaf, scratch.entries[i])
        count_in(trees.statistics, leaf, target, 1, is_regression)
    return is_pure


@inner
def partition(trees, data, scratch, node, start, end):
    """Order scratch.rows[start:end] by the side of the node's split, stably; returns the middle."""
    middle = start
    n_right = 0
    for i in range(start, end):
        row = scratch.rows[i]
        entry = scratch.entries[i]
        if goes_right(trees.nodes, node, data.cells, row, data.category_hashes):
            scratch.right_rows[n_right] = row
            scratch.right_entries[n_right] = entry
            n_right += 1
        else:
            scratch.rows[middle] = row
            scratch.entries[middle] = entry
            middle += 1
    for i in range(n_right):
        scratch.rows[middle + i] = scratch.right_rows[i]
        scratch.entries[middle + i] = scratch.right_entries[i]
    return middle


@inner
def must_be_leaf(parameters, n_samples, depth):
    """Whether a node is a leaf whatever its samples are."""
    return n_samples < parameters.values[MIN_SAMPLES_SPLIT] or depth >= parameters.values[MAX_DEPTH]


@spliced
def find_split(trees, data, parameters, scratch, blocks, node, key, depth, start, end):
    """Choose the split of scratch.rows[start:end] into scratch.choice; False: the node is a leaf.

    A node with samples enough is given a block if it has none (there must be one available); the
    node of a leaf loses its block.
    """
    block = np.int64(trees.nodes[node]["block"])
    if must_be_leaf(parameters, end - start, depth):
        found = False
    else:
        if block == NIL and end - start >= parameters.values[BLOCK_MINIMUM]:
            block = allocate_block(trees, blocks)
            trees.nodes[node]["block"] = np.int32(block)
        work = block if block != NIL else np.int64(0)
        found = count_candidates(data, parameters, scratch, blocks, work, key, start, end)
        if found:
            choose_split(data, parameters, scratch, blocks, work, key, end - start)
    # A node that has shrunk far below the minimum gives its block back.
    if block != NIL and (not found or 2 * (end - start) < parameters.values[BLOCK_MINIMUM]):
        free_block(trees, blocks, block)
        trees.nodes[node]["block"] = np.int32(NIL)
    return found


@inner
def _has_room(trees, blocks, n_waiting):
    """Whether one more node can be split and all that wait can still become leaves."""
    return (
        available_pairs(trees) >= 1
        and available_leaves(trees) >= n_waiting + 2
        and available_blocks(trees, blocks) >= 2
    )


@inner
def mark_dirty(trees, scratch, node):
    """Mark all inner nodes of a subtree: there may be tags anywhere below."""
    nodes = trees.nodes
    stack = scratch.stack
    stack[0, 0] = node
    size = 1
    while size > 0:
        size -= 1
        node = stack[size, 0]
        if leaf_of(nodes, node) != NIL:
            continue
        nodes[node]["flags"] |= DIRTY
        left = np.int64(nodes[node]["child"])
        smaller = np.int64(nodes[left + 1]["n_samples"] < nodes[left]["n_samples"])
        stack[size, 0] = left + 1 - smaller
        stack[size + 1, 0] = left + smaller
        size += 2


@inner
def _release_but_block(trees, blocks, tree, node):
    """Free what is below a node but keep the block that has just been counted."""
    block = trees.nodes[node]["block"]
    trees.nodes[node]["block"] = np.int32(NIL)
    release_subtree(trees, blocks, tree, node)
    trees.nodes[node]["block"] = block


@inner
def _push_children(trees, scratch, size, node, key, start, middle, end, level):
    """Put both children on the stack, the one with fewer samples on top."""
    stack = scratch.stack
    pair = np.int64(trees.nodes[node]["child"])
    smaller = np.int64(end - middle < middle - start)
    for position in range(2):
        side = smaller if position == 1 else 1 - smaller
        stack[size + position, 0] = pair + side
        stack[size + position, 1] = middle if side == 1 else start
        stack[size + position, 2] = end if side == 1 else middle
        stack[size + position, 3] = level + 1
        scratch.keys[size + position] = combine(key, np.uint64(side))


@spliced
def regrow(trees, data, parameters, scratch, blocks, tree, node, key, depth, n_levels):
    """Resolve the tag of a node: choose its split anew, and keep or regrow the subtree.

    If the split that its samples call for is the one it has, everything below stays, tags
    included. Otherwise the subtree is grown again.

    n_levels   ALL_LEVELS, or ONE_LEVEL: new children become leaves, tagged where they may be split
    returns    OK, or FULL: with the tag still there, or with tagged leaves below

    In both cases every sample is in a leaf. O(n p) a level grown.
    """
    if not _has_room(trees, blocks, 1):
        return FULL
    top = node
    was_leaf = leaf_of(trees.nodes, top) != NIL
    clear_tag(trees, tree, top)
    end = gather(trees, parameters, scratch, top)
    start = np.int64(0)
    level = depth
    size = 0
    status = OK
    while True:
        is_grown = level - depth < n_levels
        if is_grown and node != top and not _has_room(trees, blocks, size + 1):
            status = FULL
        if is_grown and status == OK:
            found = find_split(trees, data, parameters, scratch, blocks, node, key, level, start, end)
        else:
            found = False
        if node == top:
            keeps = not found if was_leaf else found and is_same_split(trees.nodes, node, scratch.choice)
            if keeps:
                return OK
            _release_but_block(trees, blocks, tree, node)
            clear_dirty(trees.nodes, node)
        if found:
            store_split(trees.nodes, node, scratch.choice)
            trees.nodes[node]["child"] = np.int32(allocate_pair(trees))
            trees.nodes[node]["n_samples"] = np.int32(end - start)
            middle = partition(trees, data, scratch, node, start, end)
            _push_children(trees, scratch, size, node, key, start, middle, end, level)
            size += 2
        else:
            is_pure = make_leaf(trees, data, parameters, scratch, node, start, end)
            is_final = is_grown and status == OK
            if not is_final and not is_pure and not must_be_leaf(parameters, end - start, level):
                set_tag(trees, tree, node)
        if size == 0:
            break
        size -= 1
        node = scratch.stack[size, 0]
        start = scratch.stack[size, 1]
        end = scratch.stack[size, 2]
        level = scratch.stack[size, 3]
        key = scratch.keys[size]
    if n_levels == ONE_LEVEL:
        trees.nodes[top]["flags"] |= DIRTY
    elif status == FULL:
        mark_dirty(trees, scratch, top)
    return status
