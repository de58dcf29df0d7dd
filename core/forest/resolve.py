"""Resolving lazy tags: a tagged node's split is chosen anew, and its subtree kept or replaced.

The writers' side of prediction (`predict.py` only reads). A query resolves the tags on its own
paths, and grows nothing beside them, as in the paper's LZY; `resolve_trees` resolves all there are.
"""

import numpy as np

from oubli.core.forest.cells import first_below
from oubli.core.forest.grow import ALL_LEVELS, FULL, OK, ONE_LEVEL, STOPPED, regrow, regrow_path
from oubli.core.forest.split import goes_right
from oubli.core.forest.state import DIRTY, NIL, TAGGED, clear_dirty, leaf_of
from oubli.core.forest.workspace import GATHERED, N_GATHERS
from oubli.core.jit.policy import inner, kernel, spliced
from oubli.core.jit.prefetch import prefetch_to_read
from oubli.core.jit.signals import is_set
from oubli.core.rng import combine, tree_key


@inner
def _sweep_dirty(trees, scratch, root):
    """Take the DIRTY flags off a tree that has no tags left."""
    nodes = trees.nodes
    pending = scratch.pending
    pending[0, 0] = root
    size = 1
    while size > 0:
        size -= 1
        node = pending[size, 0]
        if leaf_of(nodes, node) != NIL or not nodes[node]["flags"] & DIRTY:
            continue
        clear_dirty(nodes, node)
        size = _put_off_children(trees, pending, size, node)


@inner
def _put_off_children(trees, pending, size, node):
    """Push both children, the one with fewer samples on top; returns the new size."""
    left = np.int64(trees.nodes[node]["child"])
    smaller = np.int64(trees.nodes[left + 1]["n_samples"] < trees.nodes[left]["n_samples"])
    pending[size, 0] = left + 1 - smaller
    pending[size + 1, 0] = left + smaller
    return size + 2


@spliced
def _resolve_tree(trees, data, parameters, scratch, blocks, tree, max_tags, max_work, whole_below, stop):
    """Resolve up to `max_tags` tags of one tree, the uppermost first; as `resolve_trees`."""
    nodes = trees.nodes
    pending = scratch.pending
    keys = scratch.pending_keys
    pending[0, 0] = tree
    pending[0, 1] = 0
    pending[0, 2] = NIL
    keys[0] = tree_key(parameters.seed_key[0], tree)
    size = 1
    n_resolved = 0
    while size > 0 and trees.tree_tags[tree] > 0:
        size -= 1
        node = pending[size, 0]
        depth = pending[size, 1]
        key = keys[size]
        # Others may have been gathered since.
        first = pending[size, 2] if pending[size, 3] == scratch.work[N_GATHERS] else np.int64(NIL)
        if nodes[node]["flags"] & TAGGED:
            if n_resolved == max_tags or scratch.work[0] >= max_work or is_set(stop):
                return OK, n_resolved
            n_levels = ALL_LEVELS if nodes[node]["n_samples"] <= whole_below else ONE_LEVEL
            status = regrow(trees, data, parameters, scratch, blocks, tree, node, key, depth, first, n_levels, stop)
            first = scratch.work[GATHERED]
            if status == FULL:
                return FULL, n_resolved
            n_resolved += 1
            if status == STOPPED:
                return OK, n_resolved
        if leaf_of(nodes, node) != NIL or not nodes[node]["flags"] & DIRTY:
            continue
        left = np.int64(nodes[node]["child"])
        size = _put_off_children(trees, pending, size, node)
        for position in range(size - 2, size):
            side = pending[position, 0] - left
            pending[position, 1] = depth + 1
            pending[position, 2] = first_below(nodes, left, side, first)
            pending[position, 3] = scratch.work[N_GATHERS]
            keys[position] = combine(key, np.uint64(side))
    if trees.tree_tags[tree] == 0:
        _sweep_dirty(trees, scratch, tree)
    return OK, n_resolved


@kernel
def resolve_trees(trees, data, parameters, scratch, blocks, first, end, max_tags, max_work, whole_below, stop):
    """Resolve up to `max_tags` tags of the trees first .. end, or fewer when that takes long.

    max_work     no further tag is begun when scratch.work has come to it

    whole_below  a node with more samples than this is grown by one level only, so that no single
                 step takes long

    stop         int64[1]; when another thread sets it no further node is split

    Returns OK, or FULL when a pool is: the caller enlarges it and calls again; and the number of tags that were
    worked on.
    """
    total = 0
    for tree in range(first, end):
        if trees.tree_tags[tree] == 0:
            continue
        status, n_resolved = _resolve_tree(
            trees, data, parameters, scratch, blocks, tree, max_tags - total, max_work, whole_below, stop
        )
        total += n_resolved
        if status == FULL:
            return FULL, total
        if trees.tree_tags[tree] > 0:
            break
    return OK, total


@spliced
def resolve_path(trees, data, parameters, scratch, blocks, tree, cells, row, category_hashes):
    """Resolve the tags that a query meets in one tree; returns OK or FULL.

    cells, row, category_hashes  the query, and the hash table its categorical cells index
    """
    nodes = trees.nodes
    node = np.int64(tree)
    depth = 0
    first = np.int64(NIL)
    key = tree_key(parameters.seed_key[0], tree)
    while True:
        if nodes[node]["flags"] & TAGGED:
            status = regrow_path(
                trees, data, parameters, scratch, blocks, tree, node, key, depth, first, cells, row, category_hashes
            )
            if status == FULL:
                return FULL
            first = scratch.work[GATHERED]
        if leaf_of(nodes, node) != NIL:
            return OK
        side = goes_right(nodes, node, cells, row, category_hashes)
        pair = np.int64(nodes[node]["child"])
        first = first_below(nodes, pair, side, first)
        node = pair + side
        key = combine(key, np.uint64(side))
        depth += 1


@inner
def _find_tagged(trees, scratch, cells, row, category_hashes):
    """List the trees in which a query meets a tag in scratch.path_blocks; returns how many there are.

    All trees go down in step, so that their waits for memory overlap. No tag is below a node that is not DIRTY.
    """
    nodes = trees.nodes
    places = scratch.path_nodes
    owners = scratch.path_blocks
    n_moving = 0
    for tree in range(trees.tree_tags.shape[0]):
        places[n_moving] = np.int32(tree)
        owners[n_moving] = np.int32(tree)
        n_moving += np.int64(trees.tree_tags[tree] > 0)
    # Those that have met a tag go to the front, those on the move come after them.
    n_met = 0
    while n_moving > n_met:
        n_kept = n_met
        for i in range(n_met, n_moving):
            node = np.int64(places[i])
            tree = owners[i]
            flags = nodes[node]["flags"]
            if flags & TAGGED:
                # The first on the move, if it has been kept already, takes the place after those kept.
                places[n_kept] = places[n_met]
                owners[n_kept] = owners[n_met]
                owners[n_met] = tree
                n_met += 1
                n_kept += 1
            elif flags & DIRTY and leaf_of(nodes, node) == NIL:
                following = np.int64(nodes[node]["child"]) + goes_right(nodes, node, cells, row, category_hashes)
                prefetch_to_read(nodes, (following,))
                places[n_kept] = np.int32(following)
                owners[n_kept] = tree
                n_kept += 1
        n_moving = n_kept
    return n_met


@kernel
def resolve_paths(trees, data, parameters, scratch, blocks, cells, category_hashes, first_row):
    """Resolve the tags that the queries cells[first_row:] meet.

    Returns the row to go on with when the pools have grown; len(cells) when all is done.
    """
    for row in range(first_row, cells.shape[0]):
        for i in range(_find_tagged(trees, scratch, cells, row, category_hashes)):
            tree = np.int64(scratch.path_blocks[i])
            status = resolve_path(trees, data, parameters, scratch, blocks, tree, cells, row, category_hashes)
            if status == FULL:
                return row
    return cells.shape[0]
