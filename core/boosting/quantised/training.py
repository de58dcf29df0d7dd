"""Growing iterations from the scores before them."""

import numpy as np

from oubli.core.boosting.histogram import clear
from oubli.core.boosting.quantised.gradients import derive_all
from oubli.core.boosting.quantised.grow import grow_regions, set_cuts
from oubli.core.boosting.quantised.rolling import keep, leaf_values, roll
from oubli.core.boosting.quantised.state import BEST_ITERATION, DRIFTS, N_FREE
from oubli.core.boosting.quantised.validate import should_stop, total_loss
from oubli.core.jit.policy import kernel

# What `grow_iterations` and `update_iterations` return, together with the iteration to go on from.
DONE = 0
NO_BLOCKS = 1  # the pool is too small for the next iteration
TOO_MUCH = 2  # growing the rest anew is less work


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
def grow_iterations(
    bins, plans, rules, samples, scores, space, loss, slots, seed_key, values, forest, report, begin, end, patience
):
    """Grow the iterations from `begin` on, up to `end` or until validation ends training.

    slots   int32[n]: all samples held, by region, which space.bounds parts
    scores  `new` holds the scores before iteration `begin`
    space   `root` holds the sums of derivatives at F_0
    values  int32[labels], working space

    Returns (iterations there are, status); with NO_BLOCKS to be called again from there. Since DRIFTS is then set,
    an update that is under way goes on in the same manner.
    """
    n_groups = scores.new.shape[0]
    n_needed = n_groups * ((1 << rules.depth) - 1)
    report[DRIFTS] = 1
    for iteration in range(begin, end):
        if forest.meta[N_FREE] < n_needed:
            return iteration, NO_BLOCKS
        derive_all(loss, scores.new, samples, iteration, slots, space.packed)
        for k in range(n_groups):
            tree = iteration * n_groups + k
            grow_regions(forest, tree, bins, plans, iteration, rules, samples, space, k, slots, seed_key)
            set_cuts(forest, tree, rules)
        for k in range(n_groups):
            tree = iteration * n_groups + k
            leaf_values(forest, tree, rules.depth, values)
            roll(scores.new[k], forest.leaf_of[tree], values)
        keep(scores, iteration + 1)
        if patience > 0:
            scores.losses[iteration] = total_loss(loss, scores.new, samples)
            report[BEST_ITERATION], stops = should_stop(scores.losses, iteration, report[BEST_ITERATION], patience)
            if stops:
                return iteration + 1, DONE
    return end, DONE
