"""Growing a tree, or what is below one of its nodes, from the samples there."""

import numpy as np

from oubli.core.boosting.histogram import clear, gradient_of, hessian_of, reduce_bins, subtract
from oubli.core.boosting.quantised.split import CUT, FEATURE, LEFT_TOTAL, MISSING_LEFT, is_heavy, search
from oubli.core.boosting.quantised.state import ABSENT, LEAF, N_FREE, NO_BLOCK
from oubli.core.jit.policy import inner
from oubli.core.jit.prefetch import prefetch_to_read
from oubli.core.rng import combine, tree_key, unit

_AHEAD = 16  # samples that the memory is asked for before their turn
LEAVES = np.uint64(4)  # what a tree's key is combined with for the rounding of its leaves


@inner
def take_block(forest):
    """Take a free block, with whatever it holds; the caller has made sure that there is one."""
    forest.meta[N_FREE] -= 1
    return np.int64(forest.free[forest.meta[N_FREE]])


@inner
def free_block(forest, tree, node):
    """Zero a node's histogram, if it has one, and give its block back."""
    block = np.int64(forest.nodes[tree, node]["block"])
    if block != NO_BLOCK:
        clear(forest.pool[block])
        forest.free[forest.meta[N_FREE]] = np.int32(block)
        forest.meta[N_FREE] += 1
        forest.nodes[tree, node]["block"] = np.int32(NO_BLOCK)


@inner
def depth_of(node):
    """Depth of a heap index."""
    depth = np.int64(0)
    while node > 0:
        node = (node - 1) >> 1
        depth += 1
    return depth


@inner
def label_of(node, depth, max_depth):
    """Label of the leftmost place below a node of some depth."""
    return (node - ((np.int64(1) << depth) - 1)) << (max_depth - depth)


@inner
def leaf_value(total, key, node, rules):
    """A leaf's value: -G / (H + l) rounded to a unit, up or down by a hash of (seed, tree, path) that is fair."""
    weight = np.float64(hessian_of(total)) + rules.regularisation
    if weight <= 0.0:
        return np.int64(0)
    value = np.floor(-np.float64(gradient_of(total)) * rules.leaf_scale / weight + unit(combine(key, np.uint64(node))))
    return np.int64(min(max(value, -rules.leaf_limit), rules.leaf_limit))


@inner
def leaf_key(seed_key, tree):
    """What the rounding of a tree's leaves is drawn from."""
    return combine(tree_key(seed_key, tree), LEAVES)


@inner
def _are_bins(places):
    """Whether an iteration has a place for each bin, in the order of the bins."""
    n_others = np.int64(0)
    for i in range(places.shape[0]):
        n_others += np.int64(places[i]) != i
    return n_others == 0


@inner
def _fill_places(histogram, rows, places, slots, first, last, packed):
    width = np.uint64(rows.shape[1])
    one = np.uint64(1)
    for i in range(first, last):
        slot = np.uint64(slots[i])
        value = packed[slot]
        if value == 0:
            continue
        column = np.uint64(0)
        while column < width:
            histogram[np.uint64(places[np.uint64(rows[slot, column])])] += value
            column += one


@inner
def _fill_bins(histogram, rows, slots, first, last, packed):
    """The same where places are bins."""
    width = np.uint64(rows.shape[1])
    n_even = width & ~np.uint64(1)
    one = np.uint64(1)
    for i in range(first, last):
        if i + _AHEAD < last:
            ahead = np.int64(slots[np.uint64(i + _AHEAD)])
            prefetch_to_read(rows, (ahead, 0))
            prefetch_to_read(rows, (ahead, rows.shape[1] - 1))
            prefetch_to_read(packed, (ahead,))
        slot = np.uint64(slots[np.uint64(i)])
        value = packed[slot]
        if value == 0:
            continue
        column = np.uint64(0)
        while column < n_even:
            histogram[np.uint64(rows[slot, column])] += value
            histogram[np.uint64(rows[slot, column + one])] += value
            column += np.uint64(2)
        if column < width:
            histogram[np.uint64(rows[slot, column])] += value


@inner
def fill_rows(histogram, rows, places, slots, first, last, packed):
    """Add the samples slots[first:last] to a histogram.

    A sample that is predicted well has no derivatives on the grid: of many classes that is nearly everybody.
    """
    if (last - first) * rows.shape[1] > places.shape[0] and _are_bins(places):
        _fill_bins(histogram, rows, slots, first, last, packed)
    else:
        _fill_places(histogram, rows, places, slots, first, last, packed)


@inner
def split_members(members, spare, first, last, codes, low, width, extra):
    """Divide members[first:last], keeping their order: left those with codes in [low, low + width], or of `extra`.

    Returns where the right ones begin.
    """
    n_left = np.uint64(first)
    n_right = np.uint64(0)
    for i in range(first, last):
        slot = members[i]
        code = np.int64(codes[np.uint64(slot)])
        left = np.uint64((np.uint64(code - low) <= np.uint64(width)) | (code == extra))
        members[n_left] = slot
        spare[n_right] = slot
        n_left += left
        n_right += np.uint64(1) - left
    middle = np.int64(n_left)
    for i in range(np.int64(n_right)):
        members[middle + i] = spare[i]
    return middle


@inner
def split_range(nodes, tree, node, bins):
    """The codes that go left: (low, width, extra), see `split_members`."""
    feature = np.int64(nodes[tree, node]["feature"])
    cut = np.int64(nodes[tree, node]["cut"])
    missing = np.int64(bins.missing_code[feature])
    if missing < 0:
        return cut, np.int64(0), cut
    return np.int64(0), cut, (missing if nodes[tree, node]["missing_left"] else cut)


@inner
def make_leaf(forest, tree, node, key, rules):
    """Make a node a leaf: no split, and the value that its total asks for."""
    forest.nodes[tree, node]["feature"] = np.int32(LEAF)
    forest.nodes[tree, node]["cut"] = np.int32(0)
    forest.nodes[tree, node]["missing_left"] = np.uint8(0)
    forest.nodes[tree, node]["value"] = np.int32(leaf_value(forest.nodes[tree, node]["total"], key, node, rules))


@inner
def remove_below(forest, tree, node):
    """Take away what is below a node, histograms included."""
    n_heap = forest.nodes.shape[1]
    start, end = 2 * node + 1, 2 * node + 3
    while start < n_heap:
        for child in range(start, end):
            free_block(forest, tree, child)
            forest.nodes[tree, child]["feature"] = np.int32(ABSENT)
            forest.nodes[tree, child]["cut"] = np.int32(0)
            forest.nodes[tree, child]["value"] = np.int32(0)
            forest.nodes[tree, child]["total"] = np.int64(0)
            forest.nodes[tree, child]["first_total"] = np.int64(0)
            forest.nodes[tree, child]["count"] = np.int32(0)
            forest.nodes[tree, child]["missing_left"] = np.uint8(0)
        start, end = 2 * start + 1, 2 * end + 1


@inner
def may_split(forest, tree, node, depth, rules):
    """Whether a node may be split: it is not too deep, and has weight enough for two sides."""
    if depth >= rules.depth:
        return False
    if depth < rules.top:
        return is_heavy(forest.nodes[tree, node]["first_total"], rules)
    return is_heavy(forest.nodes[tree, node]["total"], rules)


@inner
def give_histogram(forest, tree, node, bins, places, space, packed):
    """Give a node a histogram, filled from its samples."""
    block = take_block(forest)
    forest.nodes[tree, node]["block"] = np.int32(block)
    sums = forest.pool[block]
    clear(sums)
    fill_rows(sums, bins.rows, places, space.members, space.first[node], space.last[node], packed)


@inner
def fill_pair(forest, tree, node, needs_left, needs_right, bins, places, space, packed):
    """Give the children of a node their histograms: the smaller one's from its samples, the other's by difference."""
    small, large = 2 * node + 1, 2 * node + 2
    needs_small, needs_large = needs_left, needs_right
    if space.last[large] - space.first[large] < space.last[small] - space.first[small]:
        small, large, needs_small, needs_large = large, small, needs_right, needs_left
    if needs_small:
        block = take_block(forest)
        forest.nodes[tree, small]["block"] = np.int32(block)
        sums = forest.pool[block]
    else:
        sums = space.sums
    clear(sums)
    fill_rows(sums, bins.rows, places, space.members, space.first[small], space.last[small], packed)
    if needs_large:
        block = take_block(forest)
        forest.nodes[tree, large]["block"] = np.int32(block)
        subtract(forest.pool[np.int64(forest.nodes[tree, node]["block"])], sums, forest.pool[block])


@inner
def fill_children(forest, tree, node, depth, bins, places, rules, space, packed, first):
    """Give the children of a node their histograms, as far as they may be split."""
    left, right = 2 * node + 1, 2 * node + 2
    needs_left = may_split(forest, tree, left, depth + 1, rules)
    needs_right = may_split(forest, tree, right, depth + 1, rules)
    if not needs_left and not needs_right:
        return
    if depth + 1 == rules.top:
        # The parent's is one of other derivatives.
        if needs_left:
            give_histogram(forest, tree, left, bins, places, space, packed)
        if needs_right:
            give_histogram(forest, tree, right, bins, places, space, packed)
    elif depth + 1 < rules.top:
        fill_pair(forest, tree, node, needs_left, needs_right, bins, places, space, first)
    else:
        fill_pair(forest, tree, node, needs_left, needs_right, bins, places, space, packed)


@inner
def split_node(forest, tree, node, depth, bins, places, rules, space, packed, first):
    """Split a node as `space.found` says: its children get their samples, totals and histograms."""
    found, nodes = space.found, forest.nodes
    nodes[tree, node]["feature"] = np.int32(found[FEATURE])
    nodes[tree, node]["cut"] = np.int32(found[CUT])
    nodes[tree, node]["missing_left"] = np.uint8(found[MISSING_LEFT])
    nodes[tree, node]["value"] = np.int32(0)
    low, width, extra = split_range(nodes, tree, node, bins)
    start, end = space.first[node], space.last[node]
    middle = split_members(space.members, space.spare, start, end, bins.codes[found[FEATURE]], low, width, extra)
    left, right = 2 * node + 1, 2 * node + 2
    space.first[left], space.last[left] = start, middle
    space.first[right], space.last[right] = middle, end
    nodes[tree, left]["count"] = np.int32(middle - start)
    nodes[tree, right]["count"] = np.int32(end - middle)
    total = found[LEFT_TOTAL]
    if depth < rules.top:
        nodes[tree, left]["first_total"] = total
        nodes[tree, right]["first_total"] = nodes[tree, node]["first_total"] - total
        total = np.int64(0)
        for i in range(start, middle):
            total += packed[np.uint64(space.members[i])]
    nodes[tree, left]["total"] = total
    nodes[tree, right]["total"] = nodes[tree, node]["total"] - total
    fill_children(forest, tree, node, depth, bins, places, rules, space, packed, first)


@inner
def grow_below(forest, tree, top, bins, plans, iteration, rules, space, packed, first, key):
    """Grow what is below a node, whose total and histogram stand and whose samples are listed; nothing is below yet."""
    n_heap = forest.nodes.shape[1]
    places = plans.places[iteration]
    depth = depth_of(top)
    start, end = top, top + 1
    forest.nodes[tree, top]["feature"] = np.int32(LEAF)
    while start < n_heap:
        for node in range(start, end):
            if node != top and forest.nodes[tree, (node - 1) >> 1]["feature"] < 0:
                continue
            space.found[FEATURE] = LEAF
            block = np.int64(forest.nodes[tree, node]["block"])
            if block != NO_BLOCK:
                total = forest.nodes[tree, node]["total"]
                if depth < rules.top:
                    total = forest.nodes[tree, node]["first_total"]
                search(
                    forest.pool[block],
                    total,
                    bins,
                    plans,
                    iteration,
                    rules,
                    depth,
                    combine(key, np.uint64(node)),
                    space,
                )
            if space.found[FEATURE] != LEAF:
                split_node(forest, tree, node, depth, bins, places, rules, space, packed, first)
                continue
            make_leaf(forest, tree, node, key, rules)
            label = label_of(node, depth, rules.depth)
            leaf_of = forest.leaf_of[tree]
            for i in range(space.first[node], space.last[node]):
                leaf_of[np.uint64(space.members[i])] = label
        start, end = 2 * start + 1, 2 * end + 1
        depth += 1


@inner
def grow_regions(forest, tree, bins, plans, iteration, rules, samples, space, group, slots, seed_key):
    """Grow a tree on the samples of `slots` in the regions that are to grow.

    space.packed[group] holds their derivatives, space.root[group * regions + region] the sums of those at F_0,
    by bin. Takes up to 2**depth - 1 free blocks.
    """
    packed, first = space.packed[group], samples.first[group]
    places = plans.places[iteration]
    key = leaf_key(seed_key, tree)
    n_regions = 1 << rules.levels
    for region in range(n_regions):
        if space.grows[region] == 0:
            continue
        node = n_regions - 1 + region
        free_block(forest, tree, node)
        remove_below(forest, tree, node)
        begin, end = space.bounds[region], space.bounds[region + 1]
        total, first_total = np.int64(0), np.int64(0)
        for i in range(begin, end):
            space.members[i] = slots[i]
            slot = np.uint64(slots[i])
            total += packed[slot]
            first_total += first[slot]
        forest.nodes[tree, node]["total"] = total
        forest.nodes[tree, node]["first_total"] = first_total
        forest.nodes[tree, node]["count"] = np.int32(end - begin)
        space.first[node], space.last[node] = begin, end
        if may_split(forest, tree, node, rules.levels, rules):
            if rules.levels < rules.top:
                block = take_block(forest)
                forest.nodes[tree, node]["block"] = np.int32(block)
                reduce_bins(space.root[group * n_regions + region], places, forest.pool[block])
            else:
                give_histogram(forest, tree, node, bins, places, space, packed)
        grow_below(forest, tree, node, bins, plans, iteration, rules, space, packed, first, key)


@inner
def set_cuts(forest, tree, rules):
    """Join the regions of a tree by the splits that all trees have."""
    n_regions = 1 << rules.levels
    for above in range(n_regions - 1):
        set_cut(forest, tree, n_regions - 2 - above, rules)


@inner
def set_cut(forest, tree, node, rules):
    """Make a node one of those that all trees have; its children stand."""
    nodes = forest.nodes
    left, right = 2 * node + 1, 2 * node + 2
    nodes[tree, node]["feature"] = np.int32(rules.cuts[node, 0])
    nodes[tree, node]["cut"] = np.int32(rules.cuts[node, 1])
    nodes[tree, node]["missing_left"] = np.uint8(rules.cuts[node, 2])
    nodes[tree, node]["value"] = np.int32(0)
    nodes[tree, node]["total"] = nodes[tree, left]["total"] + nodes[tree, right]["total"]
    nodes[tree, node]["first_total"] = nodes[tree, left]["first_total"] + nodes[tree, right]["first_total"]
    nodes[tree, node]["count"] = nodes[tree, left]["count"] + nodes[tree, right]["count"]
