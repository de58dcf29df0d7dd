"""Adding and deleting a sample: one walk a tree, root to leaf, counters brought up to date.

Differs from Algorithm 2 of the paper (LZY) in that the walk goes on below a tag (`nodes.py`), and
in that no candidate is scored: every inner node on the way is tagged, and whoever passes it next
chooses its split from the counters, once for all mutations since (`resolve.py`).
"""

import numpy as np

from oubli.core.forest.bits import keep_bits
from oubli.core.forest.blocks import ATTRIBUTE, FIRST, N_ATTRIBUTES, PHASE, SCALE, attribute_at, counters_at
from oubli.core.forest.candidates import cell_number
from oubli.core.forest.counters import ADD, DELETE
from oubli.core.forest.descent import update_leaf, update_tree
from oubli.core.forest.leaves import available_members, move_leaf, room_for
from oubli.core.forest.split import goes_right
from oubli.core.forest.state import NIL, leaf_of
from oubli.core.forest.workspace import MAX_FEATURES, N_COUNTERS, N_TREES, OCCURRENCES, WIDTH
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.jit.prefetch import prefetch_to_write
from oubli.core.rng import draw_trees, restore_order


@pasted
def _prefetch_block(parameters, blocks, block):
    """Ask for what a mutation reads of a block, but the counters."""
    prefetch_to_write(blocks.longs, (block, np.int64(0)))
    for used in range(parameters.values[MAX_FEATURES]):
        prefetch_to_write(blocks.longs, (block, attribute_at(parameters, used)))


@pasted
def _prefetch_counters(data, parameters, blocks, block, slot):
    """Ask for the counters of a block that a sample's mutation touches."""
    width = parameters.values[WIDTH]
    most = np.float64(parameters.values[N_COUNTERS])
    for used in range(blocks.longs[block, N_ATTRIBUTES]):
        at = attribute_at(parameters, used)
        x = np.float64(data.cells[slot, np.int64(blocks.halves[block, 2 * at + ATTRIBUTE])])
        cell = cell_number(x, blocks.reals[block, at + SCALE], blocks.reals[block, at + PHASE])
        cell -= blocks.reals[block, at + FIRST]
        place = counters_at(parameters, used)
        if cell > 0.0 and cell < most:
            place += np.int64(cell) * width
        prefetch_to_write(blocks.counters, (block, place))


@inner
def _prefetch_paths(trees, data, parameters, scratch, blocks, slot):
    """Ask for the memory that a mutation of a sample is about to touch in the trees it has drawn.

    All trees go down in step, so that their waits overlap: without this, nearly all of the time of a
    mutation in a big forest is waiting.
    """
    nodes = trees.nodes
    path_nodes = scratch.path_nodes
    waiting = scratch.path_blocks
    occurrences = parameters.values[OCCURRENCES]
    for draw in range(occurrences):
        path_nodes[draw] = scratch.permutation[draw]
        waiting[draw] = NIL
        prefetch_to_write(trees.places, (np.int64(slot * occurrences + draw),))
    n_active = occurrences
    while n_active > 0:
        n_active = 0
        for draw in range(occurrences):
            if waiting[draw] != NIL:
                _prefetch_counters(data, parameters, blocks, np.int64(waiting[draw]), slot)
                waiting[draw] = NIL
            node = np.int64(path_nodes[draw])
            if node == NIL:
                continue
            leaf = leaf_of(nodes, node)
            if leaf != NIL:
                prefetch_to_write(trees.statistics, (leaf, np.int64(0)))
                prefetch_to_write(trees.members, (np.int64(trees.starts[leaf]),))
                path_nodes[draw] = NIL
                continue
            block = nodes[node]["block"]
            if block != NIL:
                _prefetch_block(parameters, blocks, np.int64(block))
                waiting[draw] = block
            side = goes_right(nodes, node, data.cells, slot, data.category_hashes)
            node = np.int64(nodes[node]["child"]) + side
            prefetch_to_write(nodes, (node,))
            path_nodes[draw] = np.int32(node)
            n_active += 1


@kernel
def update_samples(trees, data, parameters, scratch, blocks, slots, sign, first):
    """Add (sign 1) or delete (-1) the samples in `slots`, one after the other.

    slots  int64[m]; the samples' cells, targets and id hashes are in place (a delete wipes them
           afterwards)
    first  which of the m k memberships to begin with

    Allocates nothing. Returns the membership to go on with when the pools have grown; m k when all
    is done. O(k depth p) a sample.
    """
    n_trees = parameters.values[N_TREES]
    occurrences = parameters.values[OCCURRENCES]
    seed_key = parameters.seed_key[0]
    order = scratch.permutation
    for i in range(first // occurrences, slots.shape[0]):
        slot = slots[i]
        id_hash = data.id_hashes[slot]
        draw_trees(seed_key, id_hash, n_trees, occurrences, order)
        _prefetch_paths(trees, data, parameters, scratch, blocks, slot)
        full = False
        draw = max(np.int64(0), first - i * occurrences)
        while draw < occurrences and not full:
            tree = np.int64(order[draw])
            # Any leaf of the tree may have to move to a room of twice its size.
            full = sign == ADD and available_members(trees) < 2 * np.int64(trees.nodes[tree]["n_samples"]) + 2
            if not full:
                entry = slot * occurrences + draw
                if draw == 0 and sign == ADD:
                    keep_bits(data, slot, sign)
                update_tree(trees, data, parameters, scratch, blocks, tree, slot, entry, sign)
                draw += 1
        restore_order(seed_key, id_hash, n_trees, occurrences, order)
        if full:
            return i * occurrences + draw
        if sign == DELETE:
            keep_bits(data, slot, sign)
    return slots.shape[0] * occurrences


@kernel
def plant(trees, data, parameters, slots, drawn, counts):
    """Put samples into root leaves, all to be grown: how a fit begins.

    drawn   int16[n, k] the trees of each sample
    counts  int64[T] how many samples each tree gets

    The trees are empty roots and there are places enough. Every leaf lists its samples in the order
    of `slots`, so that growing reads them in the order of memory.
    """
    occurrences = drawn.shape[1]
    for tree in range(counts.shape[0]):
        if counts[tree] > 1:
            leaf = leaf_of(trees.nodes, tree)
            move_leaf(trees, leaf, 0, room_for(counts[tree]))
    for i in range(slots.shape[0]):
        slot = slots[i]
        for draw in range(occurrences):
            tree = np.int64(drawn[i, draw])
            update_leaf(trees, data, parameters, tree, tree, 0, slot, slot * occurrences + draw, ADD)
