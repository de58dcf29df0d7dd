"""The growth of subtrees from samples, and the release of their nodes."""

import numpy as np

from oubli.core.forest.layout.blocks import allocate_block, free_block, is_counted
from oubli.core.forest.layout.cells import copy_columns, forget_constants, gather, is_bit_column, is_worth_copying
from oubli.core.forest.layout.count import count_candidates, gather_targets
from oubli.core.forest.split import choose_split, is_block_pure, is_same_split, store_split
from oubli.core.forest.state import (
    BLOCKS,
    DIRTY,
    LEAVES,
    PAIRS,
    allocate_leaf,
    allocate_pair,
    available_members,
    clear_dirty,
    clear_tag,
    count_in_leaf,
    free_leaf,
    free_pair,
    leaf_of,
    must_be_leaf,
    put_off_children,
    set_tag,
)
from oubli.core.forest.workspace import AT_HAND, COPIED, GATHERED, WORKED, WORKING_BLOCK
from oubli.core.jit.crew import is_set
from oubli.core.jit.nodes import MISSING_LEFT, MISSING_RIGHT, NIL, goes_right, n_available, put
from oubli.core.jit.policy import inner, pasted
from oubli.core.rng import combine

# Levels to grow before the rest becomes tagged leaves; or only the path that a query takes.
ALL_LEVELS = 2**31 - 1
ONE_LEVEL = 1
ONE_PATH = 0

OK = 0
FULL = 1  # a pool ran out; the trees are consistent, what was not grown is tagged
STOPPED = 5  # the same, because another thread wants the trees

# What `_examine` finds, besides FULL.
STANDS = 2
SPLIT = 3
LEAF = 4
UNKNOWN = 6


@inner
def _take_down(trees, blocks, tree, node, first):
    """Free what one node owns; put its children, if any, on the list that starts at `first`.

    The list runs through the field `n_samples` of the left children, which is not needed any more.
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


@pasted
def make_leaf(trees, parameters, scratch, node, start, end):
    """Give a node a leaf with the samples scratch.order[start:end]; returns whether they are pure."""
    leaf = allocate_leaf(trees, end - start)
    # What was a split here may lie in a range that only a deleted sample reached.
    trees.nodes[node]["category"] = np.uint64(0)
    trees.nodes[node]["attribute"] = np.int32(0)
    trees.nodes[node]["kind"] = np.uint8(0)
    trees.nodes[node]["child"] = np.int32(~leaf)
    trees.nodes[node]["n_samples"] = np.int32(end - start)
    is_regression = parameters[0]["is_regression"] != 0
    width = parameters[0]["width"]
    has_weights = parameters[0]["has_weights"] != 0
    is_pure = True
    first = np.int64(trees.starts[leaf]) - start
    first_target = scratch.targets[scratch.order[start]] if end > start else np.int64(0)
    total = np.int64(0)
    for i in range(start, end):
        position = np.uint64(scratch.order[i])
        entry = scratch.entries[position]
        target = scratch.targets[position]
        is_pure &= target == first_target  # those of other weights are looked at again
        trees.members[first + i] = entry
        trees.places[np.uint64(entry)] = np.int32(first + i)
        total += target
        if width > 2 or has_weights:
            count_in_leaf(trees, leaf, i - start, target, 1, is_regression)
    if width == 2 and not has_weights:
        # The code of the second class is 1: its sum is its count.
        trees.statistics[leaf, 0] = end - start if is_regression else end - start - total
        trees.statistics[leaf, 1] = total
    return is_pure


@pasted
def _side(x, threshold, missing_side):
    """Side of a number: without branches, for the sides are as good as random."""
    return missing_side if x != x else np.int64(x > threshold)


@pasted
def _partition_bits(trees, scratch, node, start, end):
    """Find the sides by a bit column; returns the middle, with the right side in scratch.right."""
    column = np.uint64(trees.nodes[node]["attribute"])
    word = column >> np.uint64(6)
    bit = column & np.uint64(63)
    order = scratch.order
    middle = start
    n_right = np.int64(0)
    for i in range(start, end):
        position = order[i]
        side = np.int64((scratch.words[np.uint64(position), word] >> bit) & np.uint64(1))
        middle, n_right = put(order, scratch.right, position, side, middle, n_right)
    return middle


@pasted
def _partition_numbers(trees, data, scratch, node, start, end, first_copied):
    """Find the sides by a number; returns the middle, with the right side in scratch.right."""
    threshold = trees.nodes[node]["threshold"]
    column = np.uint64(trees.nodes[node]["attribute"])
    missing_side = np.int64(trees.nodes[node]["kind"] == MISSING_RIGHT)
    order = scratch.order
    middle = start
    n_right = np.int64(0)
    if first_copied != NIL:
        for i in range(start, end):
            position = order[i]
            x = np.float64(scratch.columns[column, np.uint64(position - first_copied)])
            side = _side(x, threshold, missing_side)
            middle, n_right = put(order, scratch.right, position, side, middle, n_right)
        return middle
    for i in range(start, end):
        position = order[i]
        slot = np.uint64(scratch.slots[np.uint64(position)])
        side = _side(np.float64(data.cells[slot, column]), threshold, missing_side)
        middle, n_right = put(order, scratch.right, position, side, middle, n_right)
    return middle


@pasted
def partition(trees, data, scratch, node, start, end, first_copied):
    """Order scratch.order[start:end] by the side of the node's split, stably; returns the middle."""
    order = scratch.order
    if is_bit_column(data, np.int64(trees.nodes[node]["attribute"])):
        middle = _partition_bits(trees, scratch, node, start, end)
    elif trees.nodes[node]["kind"] <= MISSING_LEFT:
        middle = _partition_numbers(trees, data, scratch, node, start, end, first_copied)
    else:
        middle = start
        n_right = np.int64(0)
        for i in range(start, end):
            position = order[i]
            slot = scratch.slots[np.uint64(position)]
            side = goes_right(trees.nodes, node, data.cells, slot, data.category_hashes)
            middle, n_right = put(order, scratch.right, position, side, middle, n_right)
    for i in range(end - middle):
        order[middle + i] = scratch.right[i]
    return middle


@pasted
def rescore(trees, data, parameters, scratch, blocks, node, key, depth):
    """Choose the split of a node with a counted block into scratch.choice; False: the node is a leaf."""
    block = np.int64(trees.nodes[node]["block"])
    n_samples = np.int64(trees.nodes[node]["n_samples"])
    if must_be_leaf(parameters, n_samples, depth) or is_block_pure(parameters, blocks, block, n_samples):
        return False
    choose_split(data, parameters, scratch, blocks, block, key)
    return True


@pasted
def _give_back(trees, parameters, blocks, node, found, n_samples):
    """Free the block of a node that is a leaf, or has shrunk far below the minimum."""
    block = np.int64(trees.nodes[node]["block"])
    if block != NIL and (not found or 2 * n_samples < parameters[0]["block_minimum"]):
        free_block(trees, blocks, block)
        trees.nodes[node]["block"] = np.int32(NIL)


@pasted
def count_and_choose(data, parameters, scratch, blocks, block, key, start, end, first_copied, is_kept):
    """Choose the split of scratch.order[start:end] into scratch.choice; False: they are a leaf.

    is_kept       whether the block is the node's own, not working space
    first_copied  as in `gather_column`
    """
    own = parameters[gather_targets(parameters, scratch, start, end, is_kept) :]
    found = count_candidates(data, own, scratch, blocks, block, key, start, end, first_copied)
    if found:
        choose_split(data, own, scratch, blocks, block, key)
    return found


@pasted
def find_split(trees, data, parameters, scratch, blocks, node, key, depth, start, end, first_copied):
    """Choose the split of scratch.order[start:end] into scratch.choice; False: the node is a leaf.

    A node with samples enough is given a block if it has none (there must be one available); the
    node of a leaf loses its block.
    """
    block = np.int64(trees.nodes[node]["block"])
    if must_be_leaf(parameters, end - start, depth):
        found = False
    else:
        if block == NIL and end - start >= parameters[0]["block_minimum"]:
            block = allocate_block(trees, blocks)
            trees.nodes[node]["block"] = np.int32(block)
        work = block if block != NIL else scratch.work[WORKING_BLOCK]
        scratch.work[WORKED] += end - start
        found = count_and_choose(data, parameters, scratch, blocks, work, key, start, end, first_copied, block != NIL)
    _give_back(trees, parameters, blocks, node, found, end - start)
    return found


@pasted
def _has_room(trees, blocks, n_waiting):
    """Whether one more node can be split and all that wait can still become leaves."""
    return (
        n_available(trees.meta, PAIRS, trees.nodes, 2) >= 1
        and n_available(trees.meta, LEAVES, trees.starts, 1) >= n_waiting + 2
        and n_available(trees.meta, BLOCKS, blocks.longs, 1) >= 2
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
        size = put_off_children(nodes, stack, size, node)


@inner
def _release_but_block(trees, blocks, tree, node):
    """Free what is below a node but keep the block that has just been counted."""
    block = trees.nodes[node]["block"]
    trees.nodes[node]["block"] = np.int32(NIL)
    release_subtree(trees, blocks, tree, node)
    trees.nodes[node]["block"] = block


@pasted
def _copy_constants(scratch, source, target):
    for word in range(scratch.constants.shape[1]):
        scratch.constants[target, word] = scratch.constants[source, word]


@pasted
def _push_children(trees, scratch, size, node, key, start, middle, end, level):
    """Put both children on the stack, the one with fewer samples on top.

    What is constant at a node is constant below.
    """
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
        _copy_constants(scratch, AT_HAND, size + position)


@inner
def _stands(nodes, node, was_leaf, found, choice):
    """Whether the new choice is what the node is already."""
    return not found if was_leaf else found and is_same_split(nodes, node, choice)


@pasted
def _examine(trees, data, parameters, scratch, blocks, tree, node, key, depth, first, n_levels):
    """Choose the split of a tagged node again if its counters are up to date; else gather its samples for that.

        STANDS  it is what the node has: the tag is gone, everything below stays, tags included
        SPLIT   it is another, in scratch.choice: the samples have been gathered
        LEAF    the node is to be a leaf; otherwise the same
        UNKNOWN the samples have been gathered, and are to be counted
        FULL    a pool is; nothing has changed

    One of these is returned. O(p s) with counters, else O(n).

    first     position of the node's first sample if they are gathered, else NIL; scratch.work[GATHERED] is the same
              for what is below, afterwards
    n_levels  as in `regrow`; when all are grown from a leaf, its cells may be copied: scratch.work[COPIED] is the
              position of the first of these, or NIL
    """
    nodes = trees.nodes
    scratch.work[GATHERED] = NIL
    scratch.work[COPIED] = NIL
    was_leaf = leaf_of(nodes, node) != NIL
    n_samples = np.int64(nodes[node]["n_samples"])
    status = UNKNOWN
    if is_counted(trees, blocks, node):
        found = rescore(trees, data, parameters, scratch, blocks, node, key, depth)
        if _stands(nodes, node, was_leaf, found, scratch.choice):
            clear_tag(trees, tree, node)
            _give_back(trees, parameters, blocks, node, found, n_samples)
            scratch.work[GATHERED] = first
            return STANDS
        status = SPLIT if found else LEAF
    if not _has_room(trees, blocks, 1) or available_members(trees) < 2 * n_samples + 2:
        return FULL
    clear_tag(trees, tree, node)
    if first == NIL:
        gather(trees, data, parameters, scratch, node)
    else:
        forget_constants(scratch)
    if status != UNKNOWN:
        _give_back(trees, parameters, blocks, node, status == SPLIT, n_samples)
        return status
    is_grown = was_leaf and first == NIL and n_levels == ALL_LEVELS
    if is_grown and is_worth_copying(data, parameters, scratch, n_samples):
        copy_columns(data, scratch, 0, n_samples, 0)
        scratch.work[COPIED] = 0
    return status


@pasted
def split_node(trees, data, scratch, node, start, end, first_copied):
    """Give a node the split chosen last and a pair of children; returns where the right one's samples begin."""
    store_split(trees.nodes, node, scratch.choice)
    trees.nodes[node]["child"] = np.int32(allocate_pair(trees))
    trees.nodes[node]["n_samples"] = np.int32(end - start)
    return partition(trees, data, scratch, node, start, end, first_copied)


@inner
def make_unfinished_leaf(trees, parameters, scratch, tree, node, depth, start, end):
    """Make a leaf of samples that may have to be split, and tag it if so."""
    is_pure = make_leaf(trees, parameters, scratch, node, start, end)
    if not is_pure and not must_be_leaf(parameters, end - start, depth):
        set_tag(trees, tree, node)


@pasted
def regrow(
    trees, data, parameters, scratch, blocks, tree, node, key, depth, first, n_levels, stop, cells, row, category_hashes
):
    """Resolve the tag of a node: choose its split again, and keep the subtree or grow another one.

    first     as in `_examine`
    n_levels  ALL_LEVELS; ONE_LEVEL: new children become leaves, tagged where they may be split; ONE_PATH: only the
              path that the query takes is grown, and the children beside it become such leaves
    stop      when it is set no further node is split

    cells, row, category_hashes  the query, and the hash table its categorical cells index

    Returns OK; FULL: with the tag still there, or with tagged leaves below; STOPPED: with tagged leaves below. In all
    cases every sample is in a leaf. O(n p) a level grown; for a path O(n p), if the splits are balanced.
    """
    nodes = trees.nodes
    examined = _examine(trees, data, parameters, scratch, blocks, tree, node, key, depth, first, n_levels)
    if examined == STANDS:
        return OK
    if examined == FULL:
        return FULL
    status = OK
    top = node
    was_leaf = leaf_of(nodes, top) != NIL
    start = max(first, 0)
    end = start + np.int64(nodes[top]["n_samples"])
    n_gathered = end - start
    level = depth
    size = 0
    is_examined = False  # whether the top is known to need another split
    is_grown = True
    is_sought = examined == UNKNOWN
    found = examined == SPLIT
    following = np.int64(NIL)  # the child on the path
    first_copied = scratch.work[COPIED]
    copied_at = 0  # the size of the stack when the samples that are copied were taken from it
    while True:
        if is_sought:
            found = find_split(trees, data, parameters, scratch, blocks, node, key, level, start, end, first_copied)
        if not is_examined:
            is_examined = True
            if is_sought and _stands(nodes, node, was_leaf, found, scratch.choice):
                scratch.work[GATHERED] = start
                return OK
            if start > 0:
                gather(trees, data, parameters, scratch, node)
                start, end = np.int64(0), n_gathered
            _release_but_block(trees, blocks, tree, node)
            clear_dirty(nodes, node)
        if found:
            is_left = first_copied == NIL and n_levels == ALL_LEVELS
            if is_left and is_worth_copying(data, parameters, scratch, end - start):
                first_copied = np.int64(0) if end - start == n_gathered else n_gathered
                copied_at = size
                copy_columns(data, scratch, start, end, first_copied)
            middle = split_node(trees, data, scratch, node, start, end, first_copied)
            if n_levels == ONE_PATH:
                following = np.int64(trees.nodes[node]["child"])
                following += goes_right(trees.nodes, node, cells, row, category_hashes)
            _push_children(trees, scratch, size, node, key, start, middle, end, level)
            size += 2
        elif is_grown and status == OK:
            make_leaf(trees, parameters, scratch, node, start, end)
        else:
            make_unfinished_leaf(trees, parameters, scratch, tree, node, level, start, end)
        if size == 0:
            break
        size -= 1
        node = scratch.stack[size, 0]
        start = scratch.stack[size, 1]
        end = scratch.stack[size, 2]
        level = scratch.stack[size, 3]
        key = scratch.keys[size]
        if size < copied_at:
            first_copied = np.int64(NIL)
        _copy_constants(scratch, size, AT_HAND)
        found = False
        is_grown = level - depth < n_levels or node == following
        if is_grown:
            if not _has_room(trees, blocks, size + 1):
                status = FULL
            elif status == OK and is_set(stop):
                status = STOPPED
        is_sought = is_grown and status == OK
    if n_levels != ALL_LEVELS or status != OK:
        mark_dirty(trees, scratch, top)
    return status
