"""Differences of derivatives, noted where samples are and added to totals and histograms of the nodes above."""

import numpy as np

from oubli.core.boosting.quantised.grow import depth_of, label_of, split_range
from oubli.core.boosting.quantised.state import NO_BLOCK
from oubli.core.jit.policy import inner

# States of the nodes of the tree at hand.
CLEAN = 0
DIRTY = 1  # sums changed
MOVED = 3  # samples came or went, too
STALE = 4  # everything below is to be grown anew
GONE = 5  # below a stale one


@inner
def route(forest, tree, bins, slot, max_depth):
    """Label of the leaf that a sample's codes lead to."""
    node = np.int64(0)
    depth = np.int64(0)
    while forest.nodes[tree, node]["feature"] >= 0:
        low, width, extra = split_range(forest.nodes, tree, node, bins)
        code = np.int64(bins.codes[np.int64(forest.nodes[tree, node]["feature"]), np.uint64(slot)])
        is_left = np.uint64(code - low) <= np.uint64(width) or code == extra
        node = 2 * node + (1 if is_left else 2)
        depth += 1
    return label_of(node, depth, max_depth)


@inner
def leaf_at(forest, tree, label, max_depth):
    """The leaf with a label."""
    node = np.int64(0)
    depth = max_depth
    while forest.nodes[tree, node]["feature"] >= 0:
        depth -= 1
        node = 2 * node + 1 + ((label >> depth) & 1)
    return node


@inner
def add_to_path(forest, tree, bins, places, rules, change, slot, label, delta, first, count):
    """Add a sample's differences at once to all nodes from the root to its leaf.

    count : 1 of a sample that comes, -1 of one that goes; and 0.
    first : that many times its derivative at F_0.
    """
    row = np.uint64(slot)
    node = np.int64(0)
    depth = np.int64(0)
    while True:
        forest.nodes[tree, node]["total"] += delta
        forest.nodes[tree, node]["count"] += np.int32(count)
        if depth <= rules.top:
            forest.nodes[tree, node]["first_total"] += first
        change.states[node] |= MOVED if count != 0 else DIRTY
        block = np.int64(forest.nodes[tree, node]["block"])
        value = first if depth < rules.top else delta
        if block != NO_BLOCK and value != 0:
            histogram = forest.pool[block]
            for column in range(bins.rows.shape[1]):
                histogram[np.uint64(places[np.uint64(bins.rows[row, column])])] += value
        if forest.nodes[tree, node]["feature"] < 0:
            return
        depth += 1
        node = 2 * node + 1 + ((label >> (rules.depth - depth)) & 1)


@inner
def note_row(bins, places, change, slot, node, delta):
    """Note what is to be added to a node's histogram for a sample."""
    deltas = change.deltas[node]
    row = np.uint64(slot)
    for column in range(bins.rows.shape[1]):
        deltas[np.uint64(places[np.uint64(bins.rows[row, column])])] += delta


@inner
def note_difference(forest, tree, bins, places, rules, change, slot, leaf, delta):
    """Note what is to be added at a leaf for a sample; `add_differences` carries it up to the root."""
    change.states[leaf] |= DIRTY
    change.totals[leaf] += delta
    node = leaf
    if forest.nodes[tree, node]["block"] == NO_BLOCK and node > 0:
        node = (node - 1) >> 1  # inner nodes have histograms
    if forest.nodes[tree, node]["block"] != NO_BLOCK and depth_of(node) >= rules.top:
        note_row(bins, places, change, slot, node, delta)


@inner
def note_move(forest, tree, bins, places, rules, change, slot, leaf, delta, count):
    """The same for a sample that comes (count 1) or goes (-1), whose derivative at F_0 is `delta`, or the negative."""
    change.states[leaf] |= MOVED
    change.counts[leaf] += count
    change.first_totals[leaf] += delta
    node = leaf
    while node > 0 and (forest.nodes[tree, node]["block"] == NO_BLOCK or depth_of(node) >= rules.top):
        node = (node - 1) >> 1
    if forest.nodes[tree, node]["block"] != NO_BLOCK and rules.top > 0:
        note_row(bins, places, change, slot, node, delta)


@inner
def add_differences(forest, tree, rules, change):
    """Add what was noted to totals, counts and histograms, from the leaves up."""
    nodes = forest.nodes
    first_of_top = (1 << rules.top) - 1
    first_below = 2 * first_of_top + 1
    first_inside = (2 << rules.levels) - 1  # nodes above have no histograms
    for place in range(nodes.shape[1]):
        node = nodes.shape[1] - 1 - place
        if change.states[node] == CLEAN:
            continue
        parent = (node - 1) >> 1
        nodes[tree, node]["total"] += change.totals[node]
        if node < first_below:
            nodes[tree, node]["first_total"] += change.first_totals[node]
        nodes[tree, node]["count"] += change.counts[node]
        if node > 0:
            change.states[parent] |= change.states[node]
            change.totals[parent] += change.totals[node]
            change.first_totals[parent] += change.first_totals[node]
            change.counts[parent] += change.counts[node]
        change.totals[node] = 0
        change.first_totals[node] = 0
        change.counts[node] = 0
        block = np.int64(nodes[tree, node]["block"])
        if block == NO_BLOCK or (node < first_of_top and change.states[node] != MOVED):
            continue
        histogram, deltas = forest.pool[block], change.deltas[node]
        # The histograms of nodes at depth `top` and of their parents are of different derivatives.
        if node >= first_inside and not first_of_top <= node < first_below:
            above = change.deltas[parent]
            for i in range(deltas.shape[0]):
                above[i] += deltas[i]
        for i in range(deltas.shape[0]):
            histogram[i] += deltas[i]
            deltas[i] = 0
