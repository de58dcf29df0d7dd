"""Scores as the trees go by: sums of the values of the leaves reached.

Those before every EVERY-th iteration are kept, so that the scores before any iteration are a few additions away.
"""

import numpy as np

from oubli.core.boosting.quantised.grow import label_of
from oubli.core.boosting.quantised.state import EVERY, LEAF
from oubli.core.jit.policy import inner


@inner
def leaf_values(forest, tree, max_depth, values):
    """Write the values of a tree's leaves by label; that of no leaf is 0. values: int32[2**depth + 1]."""
    for label in range(values.shape[0]):
        values[label] = 0
    start, end = 0, 1
    for depth in range(max_depth + 1):
        for node in range(start, end):
            if forest.nodes[tree, node]["feature"] == LEAF:
                values[label_of(np.int64(node), np.int64(depth), max_depth)] = forest.nodes[tree, node]["value"]
        start, end = 2 * start + 1, 2 * end + 1


@inner
def roll(scores, labels, values):
    """Add the values of the leaves of all slots to int32[slots]."""
    for slot in range(scores.shape[0]):
        scores[slot] += values[np.uint64(labels[slot])]


@inner
def keep(scores, iteration):
    """Keep the scores before an iteration, if it is one of those."""
    if iteration % EVERY == 0:
        kept = scores.kept[iteration // EVERY]
        for k in range(kept.shape[0]):
            for slot in range(kept.shape[1]):
                kept[k, slot] = scores.new[k, slot]


@inner
def keep_one(scores, iteration, slot):
    """The same for one sample."""
    if iteration % EVERY == 0:
        for k in range(scores.new.shape[0]):
            scores.kept[iteration // EVERY, k, slot] = scores.new[k, slot]


@inner
def roll_to(forest, scores, iteration, max_depth, values):
    """Set the new scores of all slots to those before an iteration, by the trees as they are."""
    n_groups = scores.new.shape[0]
    begin = iteration // EVERY
    for k in range(n_groups):
        target = scores.new[k]
        kept = scores.kept[begin, k]
        for slot in range(target.shape[0]):
            target[slot] = kept[slot]
        for earlier in range(begin * EVERY, iteration):
            tree = earlier * n_groups + k
            leaf_values(forest, tree, max_depth, values)
            roll(target, forest.leaf_of[tree], values)
