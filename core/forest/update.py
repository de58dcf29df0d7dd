"""The changes of the trees: adding and deleting samples, which leaves tags, and resolving tags.

A sample walks down each of its trees from the root to a leaf, and the counters on its way are brought up to date. No
candidate is scored: every inner node on the way is tagged, and the next visitor chooses its split from the counters,
once for all mutations since. This differs from Algorithm 2 of the paper (LZY), whose walk ends at a tag; see
`state.py`.

Resolving chooses the split of a tagged node again, and keeps or replaces its subtree. A query resolves the tags on its
own paths and grows nothing beside them, as in the paper's LZY. (`predict.py` only reads.)

A change of many samples is made in slices, and predictions between two slices are as they were. A change leaves every
split as it is. Of what a prediction without tags reads it changes the leaves alone: how many samples they have, and of
what targets. So when a slice is made, the leaves that it has reached say again what they said before the change. A
slice that reaches one of them again begins with what the slices before have made of it:

    reach, change, hide | predictions | reach, change, hide | predictions | show
"""

from typing import NamedTuple

import numpy as np

from oubli.core.array_types import Array
from oubli.core.forest.grow import ALL_LEVELS, FULL, OK, ONE_LEVEL, ONE_PATH, STOPPED, regrow
from oubli.core.forest.layout.blocks import (
    ADD,
    ATTRIBUTE,
    DELETE,
    FIRST,
    IS_COUNTED,
    N_ATTRIBUTES,
    N_CELLS,
    PHASE,
    SCALE,
    attribute_at,
    cell_number,
    counters_at,
    is_counted,
    update_block,
)
from oubli.core.forest.layout.cells import first_below, keep_bits
from oubli.core.forest.layout.draws import draw_hash
from oubli.core.forest.state import (
    DIRTY,
    TAGGED,
    Trees,
    available_members,
    clear_dirty,
    count_in_leaf,
    is_full,
    is_of_one_class,
    leaf_of,
    list_entry,
    move_leaf,
    must_be_leaf,
    put_off_children,
    room_for,
    set_tag,
    unlist_entry,
)
from oubli.core.forest.workspace import GATHERED, N_GATHERS, WORKED
from oubli.core.jit.aligned import prefetch_to_read, prefetch_to_write
from oubli.core.jit.crew import is_set
from oubli.core.jit.nodes import NIL, goes_right
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.rng import combine, draw_trees, restore_order, tree_key


@pasted
def update_leaf(trees, data, parameters, tree, node, depth, slot, entry, sign):
    """Put a sample into a leaf or take it out; tag the leaf if it may have to be split."""
    leaf = leaf_of(trees.nodes, node)
    is_regression = parameters[0]["is_regression"] != 0
    target = data.targets[slot]
    n_samples = np.int64(trees.nodes[node]["n_samples"])
    trees.nodes[node]["n_samples"] = np.int32(n_samples + sign)
    if sign == ADD and is_full(trees, leaf, n_samples):
        move_leaf(trees, leaf, n_samples, np.int64(trees.rooms[leaf]) + 1)
    count_in_leaf(trees, leaf, n_samples, target, sign, is_regression)
    if sign == DELETE:
        # A leaf stays a leaf: fewer samples, still pure or still all equal.
        unlist_entry(trees, leaf, n_samples, entry)
        return
    list_entry(trees, leaf, n_samples, entry)
    if must_be_leaf(parameters, n_samples + 1, depth):
        return
    if is_regression or not is_of_one_class(trees, leaf, n_samples + 1, target):
        set_tag(trees, tree, node)


@pasted
def update_tree(trees, data, parameters, scratch, blocks, tree, slot, entry, sign):
    """Add a sample to one tree or delete it there; O(depth p)."""
    nodes = trees.nodes
    node = np.int64(tree)
    key = tree_key(parameters[0]["seed_key"], tree)
    depth = 0
    while leaf_of(nodes, node) == NIL:
        n_samples = np.int64(nodes[node]["n_samples"]) + sign
        nodes[node]["n_samples"] = np.int32(n_samples)
        nodes[node]["flags"] |= DIRTY
        set_tag(trees, tree, node)
        if is_counted(trees, blocks, node):
            block = np.int64(nodes[node]["block"])
            if not update_block(data, parameters, scratch, blocks, block, slot, sign, key, n_samples):
                blocks.longs[block, IS_COUNTED] = 0
        side = goes_right(nodes, node, data.cells, slot, data.category_hashes)
        key = combine(key, np.uint64(side))
        node = np.int64(nodes[node]["child"]) + side
        depth += 1
    update_leaf(trees, data, parameters, tree, node, depth, slot, entry, sign)


@pasted
def _prefetch_block(parameters, blocks, block):
    """Prefetch what a mutation reads of a block, but the counters."""
    prefetch_to_write(blocks.longs, (block, np.int64(0)))
    for used in range(parameters[0]["max_features"]):
        prefetch_to_write(blocks.longs, (block, attribute_at(parameters, used)))


@pasted
def _prefetch_counters(data, parameters, blocks, block, slot):
    """Prefetch the counters of a block that a sample's mutation touches."""
    width = parameters[0]["width"]
    for used in range(blocks.longs[block, N_ATTRIBUTES]):
        at = attribute_at(parameters, used)
        x = np.float64(data.cells[slot, np.int64(blocks.halves[block, 2 * at + ATTRIBUTE])])
        cell = cell_number(x, blocks.reals[block, at + SCALE], blocks.reals[block, at + PHASE])
        cell -= blocks.reals[block, at + FIRST]
        place = counters_at(parameters, used)
        if cell > 0.0:
            place += np.int64(min(cell, np.float64(blocks.halves[block, 2 * at + N_CELLS] - 1))) * width
        prefetch_to_write(blocks.counters, (block, place))


@inner
def _prefetch_paths(trees, data, parameters, scratch, blocks, slot):
    """Prefetch the memory that a mutation of a sample will touch in the trees it has drawn.

    All trees go down in step, so that their waits overlap: without this, nearly all of the time of a
    mutation in a big forest is waiting.
    """
    nodes = trees.nodes
    path_nodes = scratch.path_nodes
    waiting = scratch.path_blocks
    occurrences = parameters[0]["occurrences"]
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

    Allocates nothing. Returns the membership to continue with when the pools have grown; m k when all
    is done. O(k depth p) a sample.
    """
    n_trees = parameters[0]["n_trees"]
    occurrences = parameters[0]["occurrences"]
    seed_key = parameters[0]["seed_key"]
    order = scratch.permutation
    for i in range(first // occurrences, slots.shape[0]):
        slot = slots[i]
        hashed = draw_hash(data, parameters, slot)
        draw_trees(seed_key, hashed, n_trees, occurrences, order)
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
        restore_order(seed_key, hashed, n_trees, occurrences, order)
        if full:
            return i * occurrences + draw
        if sign == DELETE:
            keep_bits(data, slot, sign)
    return slots.shape[0] * occurrences


@kernel
def find_ends(trees, data, parameters, scratch, slots, ends):
    """Write the rows of the leaves' nodes that samples are in, or would be in, to ends int32[m, k]; O(k depth) each."""
    nodes = trees.nodes
    n_trees = parameters[0]["n_trees"]
    occurrences = parameters[0]["occurrences"]
    seed_key = parameters[0]["seed_key"]
    for i in range(slots.shape[0]):
        slot = slots[i]
        hashed = draw_hash(data, parameters, slot)
        draw_trees(seed_key, hashed, n_trees, occurrences, scratch.permutation)
        for draw in range(occurrences):
            ends[i, draw] = scratch.permutation[draw]
        restore_order(seed_key, hashed, n_trees, occurrences, scratch.permutation)
        n_moving = occurrences
        while n_moving > 0:  # all trees in step, so that their waits for memory overlap
            n_moving = 0
            for draw in range(occurrences):
                node = np.int64(ends[i, draw])
                if leaf_of(nodes, node) == NIL:
                    side = goes_right(nodes, node, data.cells, slot, data.category_hashes)
                    node = np.int64(nodes[node]["child"]) + side
                    prefetch_to_write(nodes, (node,))
                    ends[i, draw] = np.int32(node)
                    n_moving += 1


class _Said(NamedTuple):
    """What leaves say."""

    n_samples: Array
    statistics: Array


class ReachedLeaves:
    """The leaves that a change has reached so far, and the roots, whose counts say which trees are empty.

    Parameters
    ----------
    trees : whose nodes and statistics stay where they are during the change.
    n_most : leaves that may be reached.
    """

    def __init__(self, trees: Trees, n_most: int) -> None:
        self._nodes, self._statistics = trees.nodes, trees.statistics
        self._place = np.zeros(len(trees.nodes), np.int32)  # by the row of a leaf's node: one more than its place here
        self._rows, self._leaves = np.empty(n_most, np.int32), np.empty(n_most, np.int32)
        self._before, self._after = self._empty(n_most), self._empty(n_most)
        self._now: Array = self._rows[:0]  # the places of the leaves that this slice has reached
        self._n = 0
        self._roots: Array = trees.nodes["n_samples"][: len(trees.tree_tags)]
        self._roots_before, self._roots_after = self._roots.copy(), self._roots.copy()

    def _empty(self, n_most: int) -> _Said:
        statistics = self._statistics
        return _Said(np.empty(n_most, np.int32), np.empty((n_most, statistics.shape[1]), statistics.dtype))

    def reach(self, ends: Array) -> None:
        """Begin a slice that changes leaves, given by the rows of their nodes."""
        self._roots[:] = self._roots_after
        rows = np.unique(ends)
        places = self._place[rows] - 1
        is_new = places < 0
        self._say(self._after, places[~is_new])
        fresh = rows[is_new]
        new = np.arange(self._n, self._n + len(fresh), dtype=np.int32)
        self._n += len(fresh)
        self._rows[new], self._leaves[new] = fresh, ~self._nodes["child"][fresh]
        self._place[fresh], places[is_new] = new + 1, new
        self._keep(self._before, new)
        self._now = places

    def hide(self) -> None:
        """End a slice: what it has changed says what it said before the first one."""
        self._roots_after[:] = self._roots
        self._keep(self._after, self._now)
        self._say(self._before, self._now)
        self._roots[:] = self._roots_before

    def show(self) -> None:
        """Have all leaves say what the slices have made of them, and overwrite what is kept: it counts samples."""
        self._roots[:] = self._roots_after
        self._say(self._after, np.arange(self._n))
        for array in (*self._before, *self._after):
            array[: self._n] = 0

    def _keep(self, said: _Said, places: Array) -> None:
        said.n_samples[places] = self._nodes["n_samples"][self._rows[places]]
        said.statistics[places] = self._statistics[self._leaves[places]]

    def _say(self, said: _Said, places: Array) -> None:
        self._nodes["n_samples"][self._rows[places]] = said.n_samples[places]
        self._statistics[self._leaves[places]] = said.statistics[places]


@kernel
def count_draws(drawn, counts):
    """Count how often each tree is drawn, int16[n, k] `drawn`, into `counts`, which are zero."""
    for i in range(drawn.shape[0]):
        for draw in range(drawn.shape[1]):
            counts[drawn[i, draw]] += 1


@kernel
def open_roots(trees, counts):
    """Give the leaves of empty roots room for int64[T] `counts` samples; there are places enough."""
    for tree in range(counts.shape[0]):
        if counts[tree] > 1:
            leaf = leaf_of(trees.nodes, tree)
            move_leaf(trees, leaf, 0, room_for(counts[tree]))


@kernel
def plant(trees, data, parameters, slots, drawn, first, end):
    """Put samples into the root leaves of the trees first .. end, which have room: how a fit begins.

    drawn  int16[n, k] the trees of each sample

    Every leaf lists its samples in the order of `slots`, so that growing reads them in the order of memory. What is
    written belongs to these trees alone. Tags are left to `tag_roots`.
    """
    occurrences = drawn.shape[1]
    is_regression = parameters[0]["is_regression"] != 0
    for i in range(slots.shape[0]):
        slot = slots[i]
        target = data.targets[slot]
        for draw in range(occurrences):
            tree = np.int64(drawn[i, draw])
            if first <= tree and tree < end:
                leaf, n_samples = leaf_of(trees.nodes, tree), np.int64(trees.nodes[tree]["n_samples"])
                count_in_leaf(trees, leaf, n_samples, target, ADD, is_regression)
                list_entry(trees, leaf, n_samples, slot * occurrences + draw)
                trees.nodes[tree]["n_samples"] = np.int32(n_samples + 1)


@kernel
def tag_roots(trees, data, parameters):
    """Tag those of planted roots that may have to be split."""
    occurrences = parameters[0]["occurrences"]
    for tree in range(trees.tree_tags.shape[0]):
        n_samples = np.int64(trees.nodes[tree]["n_samples"])
        if not must_be_leaf(parameters, n_samples, 0):
            leaf = leaf_of(trees.nodes, tree)
            target = data.targets[np.int64(trees.members[trees.starts[leaf]]) // occurrences]
            if parameters[0]["is_regression"] != 0 or not is_of_one_class(trees, leaf, n_samples, target):
                set_tag(trees, tree, tree)


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
        size = put_off_children(nodes, pending, size, node)


@inner
def _resolve_tree(
    trees, data, parameters, scratch, blocks, tree, cells, row, category_hashes, max_tags, max_work, whole_below, stop
):
    """Resolve tags of one tree, the uppermost first, as `resolve` does; returns OK or FULL, and how many."""
    nodes = trees.nodes
    pending = scratch.pending
    keys = scratch.pending_keys
    is_path = cells.shape[0] > 0
    pending[0, 0] = tree
    pending[0, 1] = 0
    pending[0, 2] = NIL
    keys[0] = tree_key(parameters[0]["seed_key"], tree)
    size = 1
    n_resolved = 0
    if nodes[tree]["n_samples"] > scratch.order.shape[0]:
        return FULL, n_resolved
    while size > 0 and trees.tree_tags[tree] > 0:
        size -= 1
        node = pending[size, 0]
        depth = pending[size, 1]
        key = keys[size]
        # Others may have been gathered since.
        first = pending[size, 2] if pending[size, 3] == scratch.work[N_GATHERS] else np.int64(NIL)
        if nodes[node]["flags"] & TAGGED:
            if n_resolved == max_tags or scratch.work[WORKED] >= max_work or is_set(stop):
                return OK, n_resolved
            n_levels = ALL_LEVELS if nodes[node]["n_samples"] <= whole_below else ONE_LEVEL
            if is_path:
                n_levels = ONE_PATH
            status = regrow(
                trees, data, parameters, scratch, blocks, tree, node, key, depth, first, n_levels, stop,
                cells, row, category_hashes,
            )  # fmt: skip
            first = scratch.work[GATHERED]
            if status == FULL:
                return FULL, n_resolved
            n_resolved += 1
            if status == STOPPED:
                return OK, n_resolved
        if leaf_of(nodes, node) != NIL or not nodes[node]["flags"] & DIRTY:
            continue
        left = np.int64(nodes[node]["child"])
        n_before = size
        if is_path:
            pending[size, 0] = left + goes_right(nodes, node, cells, row, category_hashes)
            size += 1
        else:
            size = put_off_children(nodes, pending, size, node)
        for position in range(n_before, size):
            side = pending[position, 0] - left
            pending[position, 1] = depth + 1
            pending[position, 2] = first_below(nodes, left, side, first)
            pending[position, 3] = scratch.work[N_GATHERS]
            keys[position] = combine(key, np.uint64(side))
    if trees.tree_tags[tree] == 0:
        _sweep_dirty(trees, scratch, tree)
    return OK, n_resolved


@inner
def _list_tagged(trees, scratch, first, end):
    """List those of the trees first .. end that have tags in scratch.path_blocks; returns how many there are."""
    n_listed = 0
    for tree in range(first, end):
        scratch.path_blocks[n_listed] = np.int32(tree)
        n_listed += np.int64(trees.tree_tags[tree] > 0)
    return n_listed


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
def resolve(
    trees, data, parameters, scratch, blocks, cells, category_hashes, first, end, max_tags, max_work, whole_below, stop
):
    """Resolve tags: those that queries meet, or those of the trees first .. end, or fewer when that takes long.

    cells, category_hashes  the queries, and the hash table that categorical cells index; no rows: all tags of trees
    max_tags                tags worked on at most
    max_work                no further tag is begun when scratch.work has come to it
    whole_below             a node with more samples than this is grown by one level only, so that no single step takes
                            long
    stop                    int64[1]; when another thread sets it no further node is split

    Returns OK, or FULL when a pool or the working space is: the caller enlarges it and calls again; and the number of
    tags that were worked on. One kernel for both, because the search of splits in it takes long to compile.
    """
    total = 0
    is_path = cells.shape[0] > 0
    for row in range(max(cells.shape[0], 1)):
        if is_path:
            n_listed = _find_tagged(trees, scratch, cells, row, category_hashes)
        else:
            n_listed = _list_tagged(trees, scratch, first, end)
        for i in range(n_listed):
            tree = np.int64(scratch.path_blocks[i])
            status, n_resolved = _resolve_tree(
                trees, data, parameters, scratch, blocks, tree, cells, row, category_hashes,
                max_tags - total, max_work, whole_below, stop,
            )  # fmt: skip
            total += n_resolved
            if status == FULL or (not is_path and trees.tree_tags[tree] > 0):
                return status, total
    return OK, total
