"""Growing iterations from the scores before them."""

import numpy as np

from oubli.core.boosting.histogram import clear
from oubli.core.boosting.quantised.gradients import derive_all
from oubli.core.boosting.quantised.grow import grow_root
from oubli.core.boosting.quantised.rolling import keep, leaf_values, roll
from oubli.core.boosting.quantised.state import BEST_ITERATION, DRIFTS, N_FREE
from oubli.core.boosting.quantised.validate import should_stop, total_loss
from oubli.core.jit.policy import inner, kernel

# What `grow_iterations` and `update_iterations` return, together with the iteration to go on from.
DONE = 0
NO_BLOCKS = 1  # the pool is too small for the next iteration
TOO_MUCH = 2  # growing the rest anew is less work


@inner
def count_first(rows, first, slots, bounds, root):
    """Sum the derivatives at F_0 by group, region and bin."""
    n_regions = bounds.shape[0] - 1
    for k in range(first.shape[0]):
        for region in range(n_regions):
            sums = root[k * n_regions + region]
            clear(sums)
            for i in range(bounds[region], bounds[region + 1]):
                slot = np.uint64(slots[i])
                value = first[k, slot]
                for column in range(rows.shape[1]):
                    sums[np.uint64(rows[slot, column])] += value


@kernel
def grow_iterations(
    forest, bins, plans, rules, samples, scores, space, loss, values, report, slots, begin, end, patience, seed_key
):
    """Grow the iterations from `begin` on, up to `end` or until validation ends training.

    slots   int32[n]: all samples held, by region, which space.bounds parts
    scores  `new` holds the scores before iteration `begin`
    values  int32[labels], working space

    Returns (iterations there are, status); with NO_BLOCKS to be called again from there. Since DRIFTS is then set,
    an update that is under way goes on in the same manner.
    """
    n_groups = scores.new.shape[0]
    n_needed = n_groups * ((1 << rules.depth) - 1)
    report[DRIFTS] = 1
    count_first(bins.rows, samples.first, slots, space.bounds, space.root)
    for iteration in range(begin, end):
        if forest.meta[N_FREE] < n_needed:
            return iteration, NO_BLOCKS
        derive_all(loss, scores.new, samples, iteration, slots, space.packed)
        for k in range(n_groups):
            tree = iteration * n_groups + k
            grow_root(forest, tree, bins, plans, iteration, rules, samples, space, k, slots, seed_key)
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
