"""Nodes whose sums have changed: another split is grown anew from the samples there, leaves get their values."""

import numpy as np

from oubli.core.boosting.quantised.gradients import BINARY, derive_binary, derive_some
from oubli.core.boosting.quantised.grow import (
    depth_of,
    free_block,
    give_histogram,
    grow_below,
    label_of,
    leaf_value,
    may_split,
    remove_below,
)
from oubli.core.boosting.quantised.noting import CLEAN, GONE, MOVED, STALE
from oubli.core.boosting.quantised.past import find_scores
from oubli.core.boosting.quantised.split import CUT, FEATURE, MISSING_LEFT, search
from oubli.core.boosting.quantised.state import DRIFTS, N_WORK, NO_BLOCK
from oubli.core.jit.policy import inner
from oubli.core.rng import combine

_DERIVE_ALL = 0.75  # a larger share of all samples is derived with all others, which is faster a sample


@inner
def has_other_split(forest, tree, node, depth, bins, plans, iteration, rules, space, key):
    """Search a node's best split; whether it is not the one that it has."""
    nodes = forest.nodes
    total = nodes[tree, node]["total"]
    if depth < rules.top:
        total = nodes[tree, node]["first_total"]
    histogram = forest.pool[np.int64(nodes[tree, node]["block"])]
    search(histogram, total, bins, plans, iteration, rules, depth, combine(key, np.uint64(node)), space)
    if space.found[FEATURE] != nodes[tree, node]["feature"]:
        return True
    return space.found[FEATURE] >= 0 and (
        space.found[CUT] != nodes[tree, node]["cut"] or space.found[MISSING_LEFT] != nodes[tree, node]["missing_left"]
    )


@inner
def check_nodes(forest, tree, bins, plans, iteration, rules, space, change, key):
    """Mark the uppermost nodes that are to be grown anew as stale; refresh the leaves whose sums changed.

    Returns (number of stale nodes, whether a leaf's value changed).
    """
    nodes = forest.nodes
    n_stale = 0
    has_changed = False
    start, end = 0, 1
    for depth in range(rules.depth + 1):
        for node in range(start, end):
            if node > 0 and change.states[(node - 1) >> 1] >= STALE:
                change.states[node] = GONE
                continue
            if change.states[node] == CLEAN or depth < rules.levels:
                continue
            splits = may_split(forest, tree, node, depth, rules)
            is_stale = splits != (nodes[tree, node]["block"] != NO_BLOCK)
            if splits and not is_stale and (depth >= rules.top or change.states[node] == MOVED):
                change.report[N_WORK] += searching_work(plans, 1)
                is_stale = has_other_split(forest, tree, node, depth, bins, plans, iteration, rules, space, key)
            if is_stale:
                change.states[node] = STALE
                n_stale += 1
            elif nodes[tree, node]["feature"] < 0:
                value = np.int32(leaf_value(nodes[tree, node]["total"], key, node, rules))
                if value != nodes[tree, node]["value"]:
                    nodes[tree, node]["value"] = value
                    has_changed = True
        start, end = 2 * start + 1, 2 * end + 1
    return n_stale, has_changed


@inner
def list_members(forest, tree, space, change, max_depth):
    """List the samples below each stale node; returns how many there are.

    space.first and space.last say where. No branch depends on a sample: the others are written behind the last
    place, one over the other.
    """
    n_stale, last_stale = 0, 0
    nodes = forest.nodes
    n_labels = 1 << max_depth
    owners = change.values[change.values.shape[0] - 1]
    others = nodes.shape[1]
    for label in range(n_labels + 1):
        owners[label] = others
    n_members = np.int64(0)
    for node in range(nodes.shape[1]):
        if change.states[node] == STALE:
            n_stale, last_stale = n_stale + 1, node
            space.first[node] = n_members
            space.last[node] = n_members
            n_members += np.int64(nodes[tree, node]["count"])
            depth = depth_of(node)
            label = label_of(node, depth, max_depth)
            for i in range(np.int64(1) << (max_depth - depth)):
                owners[label + i] = node
    labels = forest.leaf_of[tree]
    # Those of one node are in their place at once; those of several are told apart in a second step.
    listed = space.members if n_stale == 1 else space.spare
    n_listed = np.uint64(0)
    for slot in range(labels.shape[0]):
        listed[n_listed] = slot
        n_listed += np.uint64(owners[np.uint64(labels[slot])] != others)
    if n_stale == 1:
        space.last[last_stale] = n_members
        return n_members
    for i in range(n_members):
        slot = listed[np.uint64(i)]
        owner = np.uint64(owners[np.uint64(labels[np.uint64(slot)])])
        place = space.last[owner]
        space.members[np.uint64(place)] = slot
        space.last[owner] = place + 1
    return n_members


@inner
def growing_work(bins, n_levels):
    """What growing so many levels takes a sample, in cells added to histograms, as measured."""
    return bins.rows.shape[1] * max(n_levels - 1, 0) // 2 + 3 * n_levels + 10


@inner
def searching_work(plans, n_nodes):
    """What filling and searching the histograms of so many nodes takes, whatever samples there are, in the same."""
    return 3 * n_nodes * plans.cuts.shape[1]


@inner
def rebuild(forest, tree, bins, plans, iteration, rules, samples, scores, space, change, loss, group, key):
    """Grow anew what is below the stale nodes."""
    n_members = list_members(forest, tree, space, change, rules.depth)
    change.report[N_WORK] += 3 * samples.roles.shape[0]
    derive_members(forest, iteration, samples, scores, space, change, loss, n_members)
    packed, first, places = space.packed[group], samples.first[group], plans.places[iteration]
    for node in range(forest.nodes.shape[1]):
        if change.states[node] != STALE:
            continue
        remove_below(forest, tree, node)
        depth = depth_of(node)
        count, n_levels = np.int64(forest.nodes[tree, node]["count"]), rules.depth - depth
        n_nodes = min(count, np.int64(1) << n_levels)
        change.report[N_WORK] += count * growing_work(bins, n_levels) + searching_work(plans, n_nodes)
        if not may_split(forest, tree, node, depth, rules):
            free_block(forest, tree, node)
        elif forest.nodes[tree, node]["block"] == NO_BLOCK:
            give_histogram(forest, tree, node, bins, places, space, first if depth < rules.top else packed)
        grow_below(forest, tree, node, bins, plans, iteration, rules, space, packed, first, key)
    return n_members


@inner
def derive_members(forest, iteration, samples, scores, space, change, loss, n_members):
    """Derive the samples that are in a subtree to be grown anew, unless another tree of the iteration has needed it."""
    n_fresh = np.int64(0)
    for i in range(n_members):
        slot = np.uint64(space.members[i])
        space.spare[n_fresh] = slot
        n_fresh += change.derived[slot] != iteration
        change.derived[slot] = iteration
    if change.report[DRIFTS] == 0:
        find_scores(forest, scores, change, iteration, space.spare, 0, n_fresh)
    if loss.kind == BINARY and n_fresh > _DERIVE_ALL * samples.roles.shape[0]:
        derive_binary(loss, scores.new[0], samples, iteration, space.packed[0])
    else:
        derive_some(loss, scores.new, samples, iteration, space.spare, n_fresh, space.packed)
    change.report[N_WORK] += n_fresh * deriving_work(scores.new.shape[0])


@inner
def deriving_work(n_groups):
    """What finding a sample's scores and deriving it takes, in cells."""
    return 25 * n_groups
