"""The growth of trees: a whole iteration, a tree, or what is below one of its nodes, from the samples there.

At the end of the file are the raw scores between iterations: they are rolled past a tree by the values of the leaves
that samples reach, and kept before every EVERY-th iteration, so that the scores before any iteration are a few
additions away.
"""

import numpy as np

from oubli.core.boosting.histogram import clear, gradient_of, hessian_of, reduce_bins, subtract
from oubli.core.boosting.quantised import state as s
from oubli.core.boosting.quantised.derivatives import derive_all, should_stop, total_loss
from oubli.core.boosting.quantised.split import CUT, FEATURE, LEFT_TOTAL, MISSING_LEFT, is_heavy, search
from oubli.core.jit.aligned import prefetch_to_read
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.rng import combine, tree_key, unit

_AHEAD = 16  # samples that the memory is asked for before their turn
LEAVES = np.uint64(4)  # what a tree's key is combined with for the rounding of its leaves
# What `grow_iterations` and `update_iterations` return, together with the iteration to continue from.
DONE = 0
NO_BLOCKS = 1  # the pool is too small for the next iteration
TOO_MUCH = 2  # growing all other iterations from nothing is less work


@inner
def take_block(forest):
    """Take a free block, with whatever it holds; the caller has made sure that there is one."""
    forest.meta[s.N_FREE] -= 1
    return np.int64(forest.free[forest.meta[s.N_FREE]])


@inner
def free_block(forest, tree, node):
    """Zero a node's histogram, if it has one, and give its block back."""
    block = np.int64(forest.nodes[tree, node]["block"])
    if block != s.NO_BLOCK:
        clear(forest.pool[block])
        forest.free[forest.meta[s.N_FREE]] = np.int32(block)
        forest.meta[s.N_FREE] += 1
        forest.nodes[tree, node]["block"] = np.int32(s.NO_BLOCK)


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

    A sample that is predicted well has no derivatives on the grid: of many classes that is nearly every sample.
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


@pasted
def set_split(nodes, tree, node, feature, cut, missing_left):
    """Write how a node is split; a LEAF, or ABSENT."""
    nodes[tree, node]["feature"] = np.int32(feature)
    nodes[tree, node]["cut"] = np.int32(cut)
    nodes[tree, node]["missing_left"] = np.uint8(missing_left)
    nodes[tree, node]["value"] = np.int32(0)


@inner
def make_leaf(forest, tree, node, key, rules):
    """Make a node a leaf: no split, and the value that follows from its total."""
    set_split(forest.nodes, tree, node, s.LEAF, 0, 0)
    forest.nodes[tree, node]["value"] = np.int32(leaf_value(forest.nodes[tree, node]["total"], key, node, rules))


@inner
def bound_leaves(forest, tree, key, rules):
    """Write a tree's leaves again within the bounds of monotone constraints; returns whether one has another value.

    A split of a constrained column divides the values below at the middle of its children's: none on the lower side is
    above it, none on the other below. The bounds of nodes further up come last, so that they hold in any case.
    """
    nodes, n_above = forest.nodes, (1 << rules.levels) - 1  # which part regions by columns without constraints
    has_changed = False
    if rules.directions.shape[0] == 0:
        return has_changed
    for leaf in range(nodes.shape[1]):
        if nodes[tree, leaf]["feature"] != s.LEAF:
            continue
        value, node = leaf_value(nodes[tree, leaf]["total"], key, leaf, rules), np.int64(leaf)
        while node > 2 * n_above:
            parent = (node - 1) >> 1
            direction = rules.directions[nodes[tree, parent]["feature"]]
            if direction != 0:
                left = leaf_value(nodes[tree, 2 * parent + 1]["total"], key, 2 * parent + 1, rules)
                right = leaf_value(nodes[tree, 2 * parent + 2]["total"], key, 2 * parent + 2, rules)
                middle = (left + right) >> 1
                value = min(value, middle) if (node & 1 == 1) == (direction > 0) else max(value, middle)
            node = parent
        has_changed |= value != nodes[tree, leaf]["value"]
        nodes[tree, leaf]["value"] = np.int32(value)
    return has_changed


@inner
def remove_below(forest, tree, node):
    """Take away what is below a node, histograms included."""
    nodes = forest.nodes
    start, end = 2 * node + 1, 2 * node + 3
    while start < nodes.shape[1]:
        for child in range(start, end):
            free_block(forest, tree, child)
            set_split(nodes, tree, child, s.ABSENT, 0, 0)
            nodes[tree, child]["total"] = np.int64(0)
            nodes[tree, child]["first_total"] = np.int64(0)
            nodes[tree, child]["count"] = np.int32(0)
        start, end = 2 * start + 1, 2 * end + 1


@pasted
def total_of(forest, tree, node, depth, rules):
    """The total that a node at a depth is split by."""
    return forest.nodes[tree, node]["first_total"] if depth < rules.top else forest.nodes[tree, node]["total"]


@inner
def may_split(forest, tree, node, depth, rules):
    """Whether a node may be split: it is not too deep, and has weight enough for two sides."""
    return depth < rules.depth and is_heavy(total_of(forest, tree, node, depth, rules), rules)


@pasted
def search_node(model, tree, node, depth, key):
    """Find the best split of a node and write it to `space.found`: its FEATURE is LEAF when there is none."""
    forest, space, rules = model.forest, model.space, model.rules
    space.found[FEATURE] = s.LEAF
    block = np.int64(forest.nodes[tree, node]["block"])
    if block != s.NO_BLOCK:
        total = total_of(forest, tree, node, depth, rules)
        iteration, node_key = tree // model.scores.new.shape[0], combine(key, np.uint64(node))
        search(forest.pool[block], total, model.bins, model.plans, iteration, rules, depth, node_key, space)


@pasted
def _fill(model, tree, node, depth, sums):
    """Fill a histogram from the samples of a node at a depth."""
    space, n_groups = model.space, model.scores.new.shape[0]
    iteration, group = tree // n_groups, tree % n_groups
    derivatives = model.samples.first[group] if depth < model.rules.top else space.packed[group]
    places = model.plans.places[iteration]
    clear(sums)
    fill_rows(sums, model.bins.rows, places, space.members, space.first[node], space.last[node], derivatives)


@inner
def give_histogram(model, tree, node, depth):
    """Give a node at a depth a histogram, filled from its samples."""
    block = take_block(model.forest)
    model.forest.nodes[tree, node]["block"] = np.int32(block)
    _fill(model, tree, node, depth, model.forest.pool[block])


@pasted
def _fill_children(model, tree, node, depth):
    """Give the children of a node, which are at a depth, their histograms, as far as they may be split.

    The smaller one's is filled from its samples, the other one's is the difference to the parent's.
    """
    forest, space, rules = model.forest, model.space, model.rules
    small, large = 2 * node + 1, 2 * node + 2
    if space.last[large] - space.first[large] < space.last[small] - space.first[small]:
        small, large = large, small
    needs_small = may_split(forest, tree, small, depth, rules)
    needs_large = may_split(forest, tree, large, depth, rules)
    if needs_small:
        give_histogram(model, tree, small, depth)
    if not needs_large:
        return
    if depth == rules.top:  # the parent's is one of other derivatives
        give_histogram(model, tree, large, depth)
        return
    sums = space.sums
    if needs_small:
        sums = forest.pool[np.int64(forest.nodes[tree, small]["block"])]
    else:
        _fill(model, tree, small, depth, sums)
    block = take_block(forest)
    forest.nodes[tree, large]["block"] = np.int32(block)
    subtract(forest.pool[np.int64(forest.nodes[tree, node]["block"])], sums, forest.pool[block])


@pasted
def _split_node(model, tree, node, depth):
    """Split a node as `space.found` says: its children get their samples, totals and histograms."""
    space, nodes = model.space, model.forest.nodes
    found = space.found
    set_split(nodes, tree, node, found[FEATURE], found[CUT], found[MISSING_LEFT])
    low, width, extra = split_range(nodes, tree, node, model.bins)
    start, end = space.first[node], space.last[node]
    codes = model.bins.codes[found[FEATURE]]
    middle = split_members(space.members, space.spare, start, end, codes, low, width, extra)
    left, right = 2 * node + 1, 2 * node + 2
    space.first[left], space.last[left] = start, middle
    space.first[right], space.last[right] = middle, end
    nodes[tree, left]["count"] = np.int32(middle - start)
    nodes[tree, right]["count"] = np.int32(end - middle)
    total = found[LEFT_TOTAL]
    if depth < model.rules.top:
        nodes[tree, left]["first_total"] = total
        nodes[tree, right]["first_total"] = nodes[tree, node]["first_total"] - total
        packed, total = space.packed[tree % model.scores.new.shape[0]], np.int64(0)
        for i in range(start, middle):
            total += packed[np.uint64(space.members[i])]
    nodes[tree, left]["total"] = total
    nodes[tree, right]["total"] = nodes[tree, node]["total"] - total
    _fill_children(model, tree, node, depth + 1)


@inner
def grow_below(model, tree, top, key):
    """Grow what is below a node, whose total and histogram stand and whose samples are listed; nothing is below yet."""
    space, nodes, rules = model.space, model.forest.nodes, model.rules
    depth = depth_of(top)
    start, end = top, top + 1
    nodes[tree, top]["feature"] = np.int32(s.LEAF)
    while start < nodes.shape[1]:
        for node in range(start, end):
            if node != top and nodes[tree, (node - 1) >> 1]["feature"] < 0:
                continue
            search_node(model, tree, node, depth, key)
            if space.found[FEATURE] != s.LEAF:
                _split_node(model, tree, node, depth)
                continue
            make_leaf(model.forest, tree, node, key, rules)
            label = label_of(node, depth, rules.depth)
            label_members(model.forest.leaf_of[tree], space.members, space.first[node], space.last[node], label)
        start, end = 2 * start + 1, 2 * end + 1
        depth += 1


@inner
def label_members(leaf_of, members, first, last, label):
    """Write the label of the leaf that members[first:last] are in."""
    for i in range(first, last):
        leaf_of[np.uint64(members[i])] = label


@inner
def grow_regions(model, tree, slots):
    """Grow a tree on the samples of `slots` in the regions that are to grow.

    With `group` the tree's, space.packed[group] holds their derivatives, space.root[group * regions + region] the sums
    of those at F_0, by bin. Takes up to 2**depth - 1 free blocks.
    """
    forest, space, rules = model.forest, model.space, model.rules
    n_groups = model.scores.new.shape[0]
    iteration, group = tree // n_groups, tree % n_groups
    packed, first = space.packed[group], model.samples.first[group]
    key = leaf_key(model.seed_key, tree)
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
                sums = space.root[group * n_regions + region]
                reduce_bins(sums, model.plans.places[iteration], forest.pool[block])
            else:
                give_histogram(model, tree, node, rules.levels)
        grow_below(model, tree, node, key)


@inner
def set_cuts(forest, tree, rules):
    """Join the regions of a tree by the splits that all trees have."""
    nodes, cuts = forest.nodes, rules.cuts
    n_above = (1 << rules.levels) - 1
    for above in range(n_above):
        node = n_above - 1 - above
        left, right = 2 * node + 1, 2 * node + 2
        set_split(nodes, tree, node, cuts[node, 0], cuts[node, 1], cuts[node, 2])
        nodes[tree, node]["total"] = nodes[tree, left]["total"] + nodes[tree, right]["total"]
        nodes[tree, node]["first_total"] = nodes[tree, left]["first_total"] + nodes[tree, right]["first_total"]
        nodes[tree, node]["count"] = nodes[tree, left]["count"] + nodes[tree, right]["count"]


@kernel
def sum_first(rows, first, slots, root):
    """Sum the derivatives at F_0 of some samples by group and bin."""
    for k in range(first.shape[0]):
        clear(root[k])
        for i in range(slots.shape[0]):
            slot = np.uint64(slots[i])
            value = first[k, slot]
            for column in range(rows.shape[1]):
                root[k, np.uint64(rows[slot, column])] += value


@kernel
def grow_iterations(model, slots, values, report, begin, end, patience):
    """Grow the iterations from `begin` on, up to `end` or until validation ends training.

    model   scores.new holds the scores before iteration `begin`, space.root the sums of derivatives at F_0
    slots   int32[n]: all samples held, by region, which space.bounds parts
    values  int32[labels], working space

    Returns (iterations there are, status); with NO_BLOCKS to be called again from there. Since DRIFTS is then set,
    an update that is under way continues in the same manner.
    """
    forest, rules, scores = model.forest, model.rules, model.scores
    n_groups, n_slots = scores.new.shape
    n_needed = n_groups * ((1 << rules.depth) - 1)
    report[s.DRIFTS] = 1
    for iteration in range(begin, end):
        if forest.meta[s.N_FREE] < n_needed:
            return iteration, NO_BLOCKS
        derive_all(model, iteration, slots)
        for k in range(n_groups):
            tree = iteration * n_groups + k
            grow_regions(model, tree, slots)
            set_cuts(forest, tree, rules)
            bound_leaves(forest, tree, leaf_key(model.seed_key, tree), rules)
        for k in range(n_groups):
            tree = iteration * n_groups + k
            leaf_values(forest, tree, rules.depth, values)
            roll(scores.new[k], forest.leaf_of[tree], values, 0, n_slots)
        keep(scores, iteration + 1, 0, n_slots)
        if patience > 0:
            scores.losses[iteration] = total_loss(model.loss, scores.new, model.samples, 0, n_slots)
            report[s.BEST_ITERATION], stops = should_stop(scores.losses, iteration, report[s.BEST_ITERATION], patience)
            if stops:
                return iteration + 1, DONE
    return end, DONE


@inner
def leaf_values(forest, tree, max_depth, values):
    """Write the values of a tree's leaves by label; that of no leaf is 0. values: int32[2**depth + 1]."""
    for label in range(values.shape[0]):
        values[label] = 0
    start, end = 0, 1
    for depth in range(max_depth + 1):
        for node in range(start, end):
            if forest.nodes[tree, node]["feature"] == s.LEAF:
                values[label_of(np.int64(node), np.int64(depth), max_depth)] = forest.nodes[tree, node]["value"]
        start, end = 2 * start + 1, 2 * end + 1


@inner
def roll(scores, labels, values, begin, end):
    """Add the values of the leaves of the slots from `begin` to `end` - 1 to int32[slots]."""
    for i in range(begin, end):
        slot = np.uint64(i)
        scores[slot] += values[np.uint64(labels[slot])]


@inner
def keep(scores, iteration, begin, end):
    """Keep the scores of some slots before an iteration, if it is one of those."""
    if iteration % s.EVERY == 0:
        kept = scores.kept[iteration // s.EVERY]
        for k in range(kept.shape[0]):
            for i in range(begin, end):
                slot = np.uint64(i)
                kept[k, slot] = scores.new[k, slot]


@inner
def roll_to(forest, scores, iteration, max_depth, values):
    """Set the new scores of all slots to those before an iteration, by the trees as they are."""
    n_groups, n_slots = scores.new.shape
    begin = iteration // s.EVERY
    for k in range(n_groups):
        target = scores.new[k]
        kept = scores.kept[begin, k]
        for slot in range(n_slots):
            target[slot] = kept[slot]
        for earlier in range(begin * s.EVERY, iteration):
            tree = earlier * n_groups + k
            leaf_values(forest, tree, max_depth, values)
            roll(target, forest.leaf_of[tree], values, 0, n_slots)
