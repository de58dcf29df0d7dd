"""Scores of a few samples before an iteration: those kept last, and the values of their leaves since."""

import numpy as np

from oubli.core.boosting.quantised.state import EVERY
from oubli.core.jit.policy import inner


@inner
def past_row(iteration, group, n_groups):
    """The row of `change.past` with the values of a tree's leaves."""
    return (iteration % EVERY) * n_groups + group


@inner
def find_scores(forest, scores, change, iteration, slots, begin, end):
    """Set the new scores of the samples slots[begin:end] to those before an iteration, by the trees as they are."""
    n_groups = scores.new.shape[0]
    for k in range(n_groups):
        target, kept = scores.new[k], scores.kept[iteration // EVERY, k]
        for i in range(begin, end):
            slot = np.uint64(slots[i])
            target[slot] = kept[slot]
        for earlier in range(iteration - iteration % EVERY, iteration):
            labels = forest.leaf_of[earlier * n_groups + k]
            values = change.past[past_row(earlier, k, n_groups)]
            for i in range(begin, end):
                slot = np.uint64(slots[i])
                target[slot] += values[np.uint64(labels[slot])]
