"""Updating the trees for samples that come and go, so that they are those that growing anew would give.

Iteration by iteration, with the samples whose derivatives in it are others than before (those that come and go,
and *touched* ones, whose scores have moved so far that a rounded derivative is another):

    1. the differences are added to totals and histograms along the samples' old paths
    2. of the nodes whose sums changed, from the root down, the best split is searched again; where it is another,
       everything below is grown anew from the samples there; leaves get the values that their totals ask for
    3. where values or leaves changed, the scores of the samples there move (they *drift*)

As long as nothing drifts only the samples that come and go are looked at at all.
"""

import numpy as np

from oubli.core.boosting.quantised.drifting import advance, choose_form, forget_still, list_drifting
from oubli.core.boosting.quantised.gradients import (
    BINARY,
    REGRESSION,
    derive_one,
    derive_some,
    list_other,
    list_other_binary,
    mark_drifted,
    mark_regression,
)
from oubli.core.boosting.quantised.grow import leaf_key
from oubli.core.boosting.quantised.noting import (
    CLEAN,
    MOVED,
    add_differences,
    add_to_path,
    leaf_at,
    note_difference,
    note_move,
    route,
)
from oubli.core.boosting.quantised.past import past_row
from oubli.core.boosting.quantised.rechecking import check_nodes, deriving_work, growing_work, rebuild, searching_work
from oubli.core.boosting.quantised.rolling import leaf_values, roll_to
from oubli.core.boosting.quantised.state import (
    BEST_ITERATION,
    CHECKS_ALL,
    DRIFTS,
    FIRST_TREE,
    LEAF,
    N_BUSY,
    N_FREE,
    N_LISTED,
    N_MEMBERS,
    N_NODES,
    N_TOUCHED,
    N_TREES,
    N_WORK,
    TRAINS,
    VALIDATES,
)
from oubli.core.boosting.quantised.training import DONE, NO_BLOCKS, TOO_MUCH
from oubli.core.boosting.quantised.validate import loss_of, should_stop, total_loss
from oubli.core.jit.policy import inner, kernel

_NO_MARK = np.uint64(0)
_BUSY_ITERATIONS = 2  # in a row that were more work than growing them anew, and the rest is grown anew


@inner
def find_touched(samples, scores, space, change, loss, iteration):
    """List the samples held whose derivatives change, with these before and after; returns how many."""
    slots, n = change.touched, np.int64(0)
    if change.report[DRIFTS] == 0:
        slots, n = change.drifting, change.report[N_LISTED]
    elif loss.kind == BINARY:
        n = list_other(scores.new[0], scores.old[0], change.touched)
    elif loss.kind == REGRESSION:
        mark_regression(loss, scores.new[0], scores.old[0], samples, iteration, change.marks)
        n = list_marked(samples, change)
    else:
        mark_drifted(scores.new, scores.old, change.marks)
        n = list_marked(samples, change)
    if loss.kind == BINARY:
        n = list_other_binary(loss, scores.new[0], scores.old[0], samples, iteration, slots, n, change.touched)
        slots = change.touched
    derive_some(loss, scores.old, samples, iteration, slots, n, change.before)
    derive_some(loss, scores.new, samples, iteration, slots, n, space.packed)
    return keep_other(slots, n, space, change)


@inner
def list_marked(samples, change):
    """List the slots that are marked and whose samples train as touched; returns how many there are."""
    n_marked = 0
    for word in range(change.mark_words.shape[0]):
        if change.mark_words[word] == _NO_MARK:
            continue
        for slot in range(8 * word, min(8 * word + 8, samples.roles.shape[0])):
            if change.marks[slot] != 0 and samples.roles[slot] == TRAINS:
                change.touched[n_marked] = slot
                n_marked += 1
    return n_marked


@inner
def keep_other(slots, n, space, change):
    """List those of the first n slots as touched whose derivatives are others than before; returns how many are."""
    n_touched = 0
    for i in range(n):
        slot = np.uint64(slots[i])
        is_touched = 0
        for k in range(change.before.shape[0]):
            is_touched |= np.int64(change.before[k, slot] != space.packed[k, slot])
        change.touched[n_touched] = slot
        n_touched += is_touched
    return n_touched


@inner
def derive_moved(samples, scores, space, change, loss, iteration):
    """Derivatives of samples that come and go: nothing after for those that go, nothing before for those that come."""
    n_groups = scores.new.shape[0]
    for i in range(change.slots.shape[0]):
        slot = np.uint64(change.slots[i])
        if change.joins[i]:
            derive_one(loss, scores.new, samples, iteration, slot, space.packed)
            for k in range(n_groups):
                change.before[k, slot] = 0
        else:
            derive_one(loss, scores.old, samples, iteration, slot, change.before)
            for k in range(n_groups):
                space.packed[k, slot] = 0


@inner
def note_all(forest, tree, bins, places, rules, samples, space, change, group, n_touched):
    """Add what touched samples, and those that come and go, change in a tree's sums; the latter move, too."""
    max_depth = rules.depth
    before, after = change.before[group], space.packed[group]
    labels = forest.leaf_of[tree]
    n_labels = np.int64(1) << max_depth
    n_noted = change.slots.shape[0]
    for i in range(n_touched):
        slot = np.uint64(change.touched[i])
        n_noted += after[slot] != before[slot]
    is_direct = n_noted * bins.rows.shape[1] <= change.deltas.shape[1]
    for i in range(n_touched):
        slot = np.uint64(change.touched[i])
        delta = after[slot] - before[slot]
        if delta == 0:
            continue
        label = np.int64(labels[slot])
        if is_direct:
            add_to_path(forest, tree, bins, places, rules, change, slot, label, delta, 0, 0)
        else:
            leaf = leaf_at(forest, tree, label, max_depth)
            note_difference(forest, tree, bins, places, rules, change, slot, leaf, delta)
        change.report[N_TOUCHED] += 1
    for i in range(change.slots.shape[0]):
        slot = np.uint64(change.slots[i])
        if change.joins[i]:
            label = route(forest, tree, bins, slot, max_depth)
            labels[slot] = label
        else:
            label = np.int64(labels[slot])
            labels[slot] = n_labels
            change.steps[group, i] = change.values[group, label]
        count = 1 if change.joins[i] else -1
        delta, first = after[slot] - before[slot], count * samples.first[group, slot]
        if is_direct:
            add_to_path(forest, tree, bins, places, rules, change, slot, label, delta, first, count)
        else:
            leaf = leaf_at(forest, tree, label, max_depth)
            note_difference(forest, tree, bins, places, rules, change, slot, leaf, delta)
            note_move(forest, tree, bins, places, rules, change, slot, leaf, first, count)
    if not is_direct:
        add_differences(forest, tree, rules, change)


@inner
def update_tree(
    forest, tree, bins, plans, iteration, rules, samples, scores, space, change, loss, group, n_touched, key
):
    """Update one tree; the derivatives before and after stand. Returns whether it changed."""
    max_depth = rules.depth
    for node in range(change.states.shape[0]):
        change.states[node] = CLEAN
    values = change.values[group]
    leaf_values(forest, tree, max_depth, values)
    note_all(forest, tree, bins, plans.places[iteration], rules, samples, space, change, group, n_touched)
    if change.report[CHECKS_ALL] != 0:
        for node in range(change.states.shape[0]):
            if forest.nodes[tree, node]["feature"] >= LEAF:
                change.states[node] = MOVED
    n_stale, has_changed = check_nodes(forest, tree, bins, plans, iteration, rules, space, change, key)
    change.is_rebuilt[group] = n_stale > 0
    n_members = np.int64(0)
    if n_stale > 0:
        labels, old_labels = forest.leaf_of[tree], change.labels[group]
        for slot in range(labels.shape[0]):
            old_labels[slot] = labels[slot]
        n_members = rebuild(
            forest, tree, bins, plans, iteration, rules, samples, scores, space, change, loss, group, key
        )
        change.report[N_NODES] += n_stale
        change.report[N_MEMBERS] += n_members
    after = change.past[past_row(iteration, group, scores.new.shape[0])]
    if not has_changed and n_stale == 0:
        for label in range(after.shape[0]):
            after[label] = values[label]
        return False
    leaf_values(forest, tree, max_depth, after)
    if change.report[DRIFTS] == 0:
        list_drifting(forest, tree, scores, samples, space, change, iteration, group, n_members)
    return True


@inner
def renew_loss(scores, samples, change, loss, iteration):
    """Bring the validation loss after an iteration up to date."""
    if change.report[DRIFTS] != 0:
        scores.losses[iteration] = total_loss(loss, scores.new, samples)
    for i in range(change.report[N_LISTED]):
        slot = np.uint64(change.drifting[i])
        if samples.roles[slot] == VALIDATES:
            scores.losses[iteration] += loss_of(loss, scores.new, samples, slot)
            scores.losses[iteration] -= loss_of(loss, scores.old, samples, slot)
    for i in range(change.slots.shape[0]):
        slot = np.uint64(change.slots[i])
        if samples.roles[slot] & VALIDATES == 0:
            continue
        if change.joins[i]:
            scores.losses[iteration] += loss_of(loss, scores.new, samples, slot)
        elif change.report[DRIFTS] == 0:
            scores.losses[iteration] -= loss_of(loss, scores.old, samples, slot)


@inner
def growing_anew(bins, plans, rules, n_samples, n_regions, n_groups):
    """What growing an iteration in some regions takes, in cells added to histograms."""
    depth = rules.depth - rules.levels
    cells = n_samples * (growing_work(bins, depth) + bins.rows.shape[1] // 2 + deriving_work(1))
    return n_groups * (cells + searching_work(plans, min(n_samples, n_regions << depth)))


@inner
def updating_work(bins, change, n_touched, n_groups, n_slots):
    """What an iteration of an update takes, but for what is grown anew and searched: N_WORK."""
    width = bins.rows.shape[1]
    n_drifting = n_slots if change.report[DRIFTS] != 0 else change.report[N_LISTED]
    moving = change.slots.shape[0] * n_groups * (2 * width + 50) + n_touched * (2 * width + 20)
    per_drifting = 3 if change.report[DRIFTS] != 0 else deriving_work(2) + 10
    return moving + n_drifting * n_groups * per_drifting


@kernel
def update_iterations(
    forest,
    bins,
    plans,
    rules,
    samples,
    scores,
    space,
    change,
    loss,
    n_samples,
    n_regions,
    begin,
    end,
    patience,
    seed_key,
):
    """Update the iterations from `begin` to `end`, or until validation ends training.

    The samples that come and go are marked as MOVING; `scores.new` of those that come and `scores.old` of those that go
    hold their scores before iteration `begin`, and so do both of those that drift already.

    n_samples, n_regions : held in the regions of the samples that come and go, and these.

    Returns (iterations that are up to date, status). With NO_BLOCKS to be called again from there, with TOO_MUCH
    the others are to be grown anew from `scores.new`.
    """
    n_groups = scores.new.shape[0]
    n_needed = n_groups * ((1 << rules.depth) - 1)
    report = change.report
    growing = growing_anew(bins, plans, rules, n_samples, n_regions, n_groups)
    for iteration in range(begin, end):
        if forest.meta[N_FREE] < n_needed:
            return iteration, NO_BLOCKS
        if report[N_BUSY] >= _BUSY_ITERATIONS:
            return iteration, TOO_MUCH
        choose_form(forest, scores, samples, change, iteration, rules.depth)
        n_touched = find_touched(samples, scores, space, change, loss, iteration)
        derive_moved(samples, scores, space, change, loss, iteration)
        n_work, n_before = report[N_WORK], report[N_TOUCHED]
        for k in range(n_groups):
            tree = iteration * n_groups + k
            key = leaf_key(seed_key, tree)
            if update_tree(
                forest, tree, bins, plans, iteration, rules, samples, scores, space, change, loss, k, n_touched, key
            ):
                report[N_TREES] += 1
                if report[FIRST_TREE] < 0:
                    report[FIRST_TREE] = tree
        advance(forest, scores, change, iteration)
        n_work, n_touched = report[N_WORK] - n_work, report[N_TOUCHED] - n_before
        n_work += updating_work(bins, change, n_touched, n_groups, samples.roles.shape[0])
        report[N_BUSY] = report[N_BUSY] + 1 if n_work > growing else 0
        if patience > 0:
            renew_loss(scores, samples, change, loss, iteration)
            report[BEST_ITERATION], stops = should_stop(scores.losses, iteration, report[BEST_ITERATION], patience)
            if stops:
                return iteration + 1, DONE
        forget_still(scores, change)
    return end, DONE


@kernel
def reach(forest, scores, change, iteration, max_depth):
    """Make `scores.new` those before an iteration for all samples."""
    roll_to(forest, scores, iteration, max_depth, change.values[scores.new.shape[0]])
