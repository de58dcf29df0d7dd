"""Adding and deleting a sample: one walk a tree, root to leaf, counters brought up to date.

Differs from Algorithm 2 of the paper (LZY) in that the walk goes on below a tag (`nodes.py`), and
in that no candidate is scored: every inner node on the way is tagged, and whoever passes it next
chooses its split from the counters, once for all mutations since (`resolve.py`).
"""

import numpy as np

from oubli.core.forest.bits import keep_bits
from oubli.core.forest.blocks import (
    AT_HI,
    AT_LO,
    ATTRIBUTE,
    COPIES_HI,
    COPIES_LO,
    FIRST,
    HI,
    IS_COUNTED,
    LO,
    MISSING,
    N_ATTRIBUTES,
    N_CELLS,
    PHASE,
    SCALE,
    TARGET_HI,
    TARGET_LO,
    attribute_at,
    attribute_key,
    categories_at,
    category_hash,
    category_rank,
    count_at,
    counters_at,
    in_subset,
    size_at,
    totals_at,
)
from oubli.core.forest.candidates import cell_number, fit_scale, is_usable
from oubli.core.forest.grow import is_counted, must_be_leaf
from oubli.core.forest.leaves import (
    available_members,
    count_in,
    is_full,
    list_entry,
    move_leaf,
    room_for,
    unlist_entry,
)
from oubli.core.forest.split import goes_right
from oubli.core.forest.state import DIRTY, NIL, leaf_of, set_tag
from oubli.core.forest.workspace import (
    IS_REGRESSION,
    MAX_FEATURES,
    N_COUNTERS,
    N_THRESHOLDS,
    N_TREES,
    OCCURRENCES,
    SKIPPED_AT,
    WIDTH,
)
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.jit.prefetch import prefetch_to_write
from oubli.core.rng import combine, draw_trees, restore_order, tree_key

ADD = 1
DELETE = -1


@inner
def _shift_counters(parameters, blocks, block, used, n_cells, shift):
    """Make room for `shift` cells below the first."""
    width = parameters.values[WIDTH]
    place = counters_at(parameters, used)
    for i in range(n_cells * width - 1, -1, -1):
        blocks.counters[block, place + shift * width + i] = blocks.counters[block, place + i]
    for i in range(shift * width):
        blocks.counters[block, place + i] = 0


@inner
def _extend_range(parameters, scratch, blocks, block, used, x):
    """Extend a numeric attribute's range to a new value outside; False when its grid changes."""
    at = attribute_at(parameters, used)
    reals = blocks.reals
    scale = reals[block, at + SCALE]
    phase = reals[block, at + PHASE]
    old_first = reals[block, at + FIRST]
    lo = min(x, reals[block, at + LO])
    hi = max(x, reals[block, at + HI])
    n_thresholds = parameters.values[N_THRESHOLDS]
    if scale == 0.0 or fit_scale(lo, hi, n_thresholds, scratch.number, scratch.number_bits) != scale:
        return False
    if not is_usable(lo, hi, scale, phase, parameters.values[N_COUNTERS] - 1):
        return False
    first = cell_number(lo, scale, phase)
    if first < old_first:
        n_cells = np.int64(blocks.halves[block, 2 * at + N_CELLS])
        _shift_counters(parameters, blocks, block, used, n_cells, np.int64(old_first - first))
    if x == lo:
        blocks.halves[block, 2 * at + AT_LO] = 0
    else:
        blocks.halves[block, 2 * at + AT_HI] = 0
    reals[block, at + LO] = lo
    reals[block, at + HI] = hi
    reals[block, at + FIRST] = first
    blocks.halves[block, 2 * at + N_CELLS] = np.int32(cell_number(hi, scale, phase) - first) + 1
    return True


@pasted
def _update_numeric(parameters, scratch, blocks, block, used, x, target, sign, is_regression):
    """Bring a numeric attribute's counters up to date; False when its candidates change."""
    at = attribute_at(parameters, used)
    reals = blocks.reals
    halves = blocks.halves
    width = parameters.values[WIDTH]
    place = counters_at(parameters, used)
    if np.isnan(x):
        halves[block, 2 * at + MISSING] += sign
        place += (parameters.values[N_COUNTERS] - 1) * width
        count_at(blocks.counters, block, place, target, sign, is_regression)
        return reals[block, at + LO] < reals[block, at + HI] or halves[block, 2 * at + MISSING] > 0
    is_inside = reals[block, at + LO] <= x <= reals[block, at + HI]
    if not is_inside and not _extend_range(parameters, scratch, blocks, block, used, x):
        return False
    lo = reals[block, at + LO]
    if x == lo:
        halves[block, 2 * at + AT_LO] += sign
        if halves[block, 2 * at + AT_LO] == 0:
            return False
    if x == reals[block, at + HI]:
        halves[block, 2 * at + AT_HI] += sign
        if halves[block, 2 * at + AT_HI] == 0:
            return False
    scale = reals[block, at + SCALE]
    if scale == 0.0:
        cell = np.int64(x > lo)
    else:
        cell = np.int64(cell_number(x, scale, reals[block, at + PHASE]) - reals[block, at + FIRST])
    count_at(blocks.counters, block, place + cell * width, target, sign, is_regression)
    return True


@pasted
def _update_categorical(parameters, blocks, block, used, hashed, target, sign, key, n_samples, is_regression):
    """Bring a categorical attribute's counters up to date; False when its candidates change."""
    width = parameters.values[WIDTH]
    listed = categories_at(parameters, used)
    first_place = counters_at(parameters, used)
    n_thresholds = parameters.values[N_THRESHOLDS]
    # As many coins come up one way as the other: added up without asking, they cost no wrong guesses.
    for j in range(1, n_thresholds, 2):
        lands_left = np.int64(in_subset(combine(key, np.uint64(j)), hashed))
        count_at(blocks.counters, block, first_place + j * width, target, sign * lands_left, is_regression)
    stands = True
    for j in range(0, n_thresholds, 2):
        chosen = blocks.keys[block, listed + j // 2]
        if hashed == chosen:
            place = first_place + j * width
            count_at(blocks.counters, block, place, target, sign, is_regression)
            stands &= size_at(blocks.counters, block, place, width, is_regression) != 0
        elif sign == ADD:
            candidate_key = combine(key, np.uint64(j))
            stands &= category_rank(candidate_key, hashed) >= category_rank(candidate_key, chosen)
    if not stands:
        return False
    # When all samples are of the category that the first candidate isolates, the attribute is constant.
    return size_at(blocks.counters, block, counters_at(parameters, used), width, is_regression) < n_samples


@pasted
def _update_target_range(blocks, block, target, sign):
    """Keep the range of the targets; False when an end leaves and the node may have become pure."""
    longs = blocks.longs
    if target < longs[block, TARGET_LO]:
        longs[block, TARGET_LO] = target
        longs[block, COPIES_LO] = 0
    if target > longs[block, TARGET_HI]:
        longs[block, TARGET_HI] = target
        longs[block, COPIES_HI] = 0
    if target == longs[block, TARGET_LO]:
        longs[block, COPIES_LO] += sign
    if target == longs[block, TARGET_HI]:
        longs[block, COPIES_HI] += sign
    return longs[block, COPIES_LO] > 0 and longs[block, COPIES_HI] > 0


@pasted
def _update_block(data, parameters, scratch, blocks, block, slot, sign, key, n_samples):
    """Bring a block up to date for one sample; False when its candidates change.

    After False the counters mean nothing. O(p), and O(p s) for categorical columns.
    """
    is_regression = parameters.values[IS_REGRESSION] != 0
    target = data.targets[slot]
    count_at(blocks.counters, block, totals_at(parameters), target, sign, is_regression)
    if is_regression and not _update_target_range(blocks, block, target, sign):
        return False
    for used in range(blocks.longs[block, N_ATTRIBUTES]):
        attribute = np.int64(blocks.halves[block, 2 * attribute_at(parameters, used) + ATTRIBUTE])
        x = data.cells[slot, attribute]
        if data.categorical[attribute]:
            hashed = category_hash(data.category_hashes, x)
            attributes_key = attribute_key(key, attribute)
            stands = _update_categorical(
                parameters, blocks, block, used, hashed, target, sign, attributes_key, n_samples, is_regression
            )
        else:
            stands = _update_numeric(
                parameters, scratch, blocks, block, used, np.float64(x), target, sign, is_regression
            )
        if not stands:
            return False
    return True


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
    for i in range(scratch.differing.shape[0]):
        scratch.differing[i] = np.uint64(0)
    for attribute in range(data.cells.shape[1]):
        x = data.cells[slot, attribute]
        y = data.cells[other, attribute]
        if x != y and not (np.isnan(x) and np.isnan(y)):
            scratch.differing[attribute // 64] |= np.uint64(1) << np.uint64(attribute % 64)
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
def _update_leaf(trees, data, parameters, tree, node, depth, slot, entry, sign):
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
def _update_tree(trees, data, parameters, scratch, blocks, tree, slot, entry, sign):
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
            if not stands or not _update_block(data, parameters, scratch, blocks, block, slot, sign, key, n_samples):
                blocks.longs[block, IS_COUNTED] = 0
        side = goes_right(nodes, node, data.cells, slot, data.category_hashes)
        key = combine(key, np.uint64(side))
        node = np.int64(nodes[node]["child"]) + side
        depth += 1
    _update_leaf(trees, data, parameters, tree, node, depth, slot, entry, sign)


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
                _update_tree(trees, data, parameters, scratch, blocks, tree, slot, entry, sign)
                draw += 1
        restore_order(seed_key, id_hash, n_trees, occurrences, order)
        if full:
            return i * occurrences + draw
        keep_bits(data, slot, sign)
    return slots.shape[0] * occurrences


@kernel
def count_members(data, parameters, scratch, slots, counts):
    """Count the samples of `slots` that draw each tree into int64[T] `counts`, zero before."""
    n_trees = parameters.values[N_TREES]
    occurrences = parameters.values[OCCURRENCES]
    seed_key = parameters.seed_key[0]
    order = scratch.permutation
    for i in range(slots.shape[0]):
        id_hash = data.id_hashes[slots[i]]
        draw_trees(seed_key, id_hash, n_trees, occurrences, order)
        for draw in range(occurrences):
            counts[order[draw]] += 1
        restore_order(seed_key, id_hash, n_trees, occurrences, order)


@kernel
def plant(trees, data, parameters, scratch, slots, counts):
    """Put samples into root leaves, all to be grown: how a fit begins.

    counts  int64[T] what `count_members` found

    The trees are empty roots and there are places enough. Every leaf lists its samples in the order
    of `slots`, so that growing reads them in the order of memory.
    """
    n_trees = parameters.values[N_TREES]
    occurrences = parameters.values[OCCURRENCES]
    seed_key = parameters.seed_key[0]
    order = scratch.permutation
    for tree in range(n_trees):
        if counts[tree] > 1:
            leaf = leaf_of(trees.nodes, tree)
            move_leaf(trees, leaf, 0, room_for(counts[tree]))
    for i in range(slots.shape[0]):
        slot = slots[i]
        id_hash = data.id_hashes[slot]
        draw_trees(seed_key, id_hash, n_trees, occurrences, order)
        for draw in range(occurrences):
            tree = np.int64(order[draw])
            _update_leaf(trees, data, parameters, tree, tree, 0, slot, slot * occurrences + draw, ADD)
        restore_order(seed_key, id_hash, n_trees, occurrences, order)
