"""Edges and categories that come and go without growing anew.

The bins of a feature stay where they are; a bin may be *dead*, without samples and candidates:

    an edge goes      the samples of its bin join those of the next live one, whose sums take up those of the bin; the
                      bin is dead, its edge a copy of the edge below, so that no value is put there and none remembered
    an edge comes     where the bin below it is dead, it takes this: the samples of the next live bin that are not
                      above the edge move there; elsewhere there is no room, and everything is grown anew
    categories        the same, but for samples: those of a category come and go themselves

Afterwards all nodes have to be searched again: a candidate that they were split by may be gone, or a new one better.
"""

import numpy as np

from oubli.core.boosting.quantised.candidates import feature_key
from oubli.core.boosting.quantised.gradients import derive_one
from oubli.core.boosting.quantised.rolling import leaf_values
from oubli.core.boosting.quantised.state import NO_BLOCK
from oubli.core.jit.policy import inner, kernel
from oubli.core.rng import combine

_BYTE = np.uint64(56)


@kernel
def set_candidate(plans, bins, feature, code, bits, seed, is_live):
    """Make a code's place a candidate of all iterations, with the draw of its value's bits, or none."""
    for iteration in range(plans.places.shape[0]):
        place = np.int64(plans.places[iteration, bins.first_bin[feature] + code])
        plans.cuts[iteration, place] = code if is_live else -1
        draw = combine(feature_key(seed, iteration, feature), ~bits) >> _BYTE
        plans.draws[iteration, place] = draw if is_live else np.uint64(0)


@inner
def replace_in_row(rows, slot, old, new):
    """Put a bin in the place of another in a sample's row; returns False when the other is not there."""
    for column in range(rows.shape[1]):
        if rows[slot, column] == old:
            rows[slot, column] = new
            return True
    return False


@kernel
def merge_codes(forest, n_trees, n_groups, plans, bins, feature, code, target, slots):
    """Let the samples of a code have another one, whose bin is not the one that rows leave out if the first is.

    slots  int32[n]: all samples held
    """
    old, new = np.int64(bins.first_bin[feature]) + code, np.int64(bins.first_bin[feature]) + target
    pad = np.int64(bins.first_bin[bins.codes.shape[0]])
    is_common = bins.common_bin[feature] == new
    codes = bins.codes[feature]
    for i in range(slots.shape[0]):
        slot = np.uint64(slots[i])
        if codes[slot] == code:
            codes[slot] = target
            replace_in_row(bins.rows, slot, old, pad if is_common else new)
    for tree in range(n_trees):
        places = plans.places[tree // n_groups]
        for node in range(forest.nodes.shape[1]):
            block = np.int64(forest.nodes[tree, node]["block"])
            if block != NO_BLOCK:
                if not is_common:
                    forest.pool[block, places[new]] += forest.pool[block, places[old]]
                forest.pool[block, places[old]] = 0


@inner
def move_sums(forest, tree, places, max_depth, top, label, old, new, is_common, first, packed):
    """Move a sample's derivatives from one bin to another in the histograms along its path."""
    node = np.int64(0)
    depth = np.int64(0)
    while True:
        block = np.int64(forest.nodes[tree, node]["block"])
        if block != NO_BLOCK:
            value = first if depth < top else packed
            forest.pool[block, places[new]] += value
            if not is_common:
                forest.pool[block, places[old]] -= value
        if forest.nodes[tree, node]["feature"] < 0:
            return
        depth += 1
        node = 2 * node + 1 + ((label >> (max_depth - depth)) & 1)


@kernel
def split_code(forest, n_trees, plans, rules, loss, samples, scores, space, bins, feature, code, target, slots, values):
    """Give some samples that have the code `target` the code `code`, whose bin is empty.

    slots   int32[m]: these; `scores.new` of theirs holds F_0
    values  int32[labels], working space

    Returns False, with nothing changed, when a row has no room.
    """
    n_groups = scores.new.shape[0]
    old, new = np.int64(bins.first_bin[feature]) + target, np.int64(bins.first_bin[feature]) + code
    pad = np.int64(bins.first_bin[bins.codes.shape[0]])
    is_common = bins.common_bin[feature] == old
    if is_common:
        for i in range(slots.shape[0]):
            if bins.rows[np.uint64(slots[i]), bins.rows.shape[1] - 1] != pad:
                return False
    for i in range(slots.shape[0]):
        slot = np.uint64(slots[i])
        bins.codes[feature, slot] = code
        replace_in_row(bins.rows, slot, pad if is_common else old, new)
    for iteration in range(n_trees // n_groups):
        places = plans.places[iteration]
        for i in range(slots.shape[0]):
            derive_one(loss, scores.new, samples, iteration, slots[i], space.packed)
        for k in range(n_groups):
            tree = iteration * n_groups + k
            leaf_values(forest, tree, rules.depth, values)
            for i in range(slots.shape[0]):
                slot = np.uint64(slots[i])
                label = np.int64(forest.leaf_of[tree, slot])
                first, packed = samples.first[k, slot], space.packed[k, slot]
                move_sums(forest, tree, places, rules.depth, rules.top, label, old, new, is_common, first, packed)
                scores.new[k, slot] += values[label]
    return True
