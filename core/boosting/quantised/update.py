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

from oubli.core.boosting.quantised.gradients import (
    BINARY,
    REGRESSION,
    derive_one,
    mark_binary,
    mark_drifted,
    mark_regression,
)
from oubli.core.boosting.quantised.grow import leaf_key
from oubli.core.boosting.quantised.noting import (
    CLEAN,
    MOVED,
    add_differences,
    leaf_at,
    note_difference,
    note_move,
    route,
)
from oubli.core.boosting.quantised.rechecking import check_nodes, growing_work, rebuild
from oubli.core.boosting.quantised.rolling import keep, keep_one, leaf_values, roll, roll_to
from oubli.core.boosting.quantised.state import (
    BEST_ITERATION,
    CHECKS_ALL,
    DRIFTS,
    FIRST_TREE,
    LEAF,
    N_BUSY,
    N_FREE,
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
_BUSY_ITERATIONS = 3  # in a row that were more work than growing them anew, and the rest is grown anew


@inner
def any_drifts(scores, samples):
    """Whether the scores of any sample that stays differ from before."""
    for k in range(scores.new.shape[0]):
        for slot in range(scores.new.shape[1]):
            role = samples.roles[slot]
            if scores.new[k, slot] != scores.old[k, slot] and (role in (TRAINS, VALIDATES)):
                return True
    return False


@inner
def find_touched(samples, scores, space, change, loss, iteration):
    """List the samples held whose derivatives change, with these before and after; returns how many."""
    marks = change.marks
    if loss.kind == BINARY:
        mark_binary(loss, scores.new[0], scores.old[0], samples, iteration, marks)
    elif loss.kind == REGRESSION:
        mark_regression(loss, scores.new[0], scores.old[0], samples, iteration, marks)
    else:
        mark_drifted(scores.new, scores.old, marks)
    n_touched = 0
    for word in range(change.mark_words.shape[0]):
        if change.mark_words[word] == _NO_MARK:
            continue
        for slot in range(8 * word, 8 * word + 8):
            if marks[slot] == 0 or samples.roles[slot] != TRAINS:
                continue
            derive_one(loss, scores.old, samples, iteration, slot, change.before)
            derive_one(loss, scores.new, samples, iteration, slot, space.packed)
            is_touched = 0
            for k in range(scores.new.shape[0]):
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
def begin_drift(forest, scores, change, iteration, max_depth):
    """Set the scores of all samples to those before an iteration, up to which no tree has changed."""
    n_groups = scores.new.shape[0]
    m = change.slots.shape[0]
    # The scores of those that come and go are known already, and not to be read from trees that they have left.
    for k in range(n_groups):
        for i in range(m):
            source = scores.new if change.joins[i] else scores.old
            change.steps[n_groups + k, i] = source[k, np.uint64(change.slots[i])]
    roll_to(forest, scores, iteration, max_depth, change.values[n_groups])
    for k in range(n_groups):
        for slot in range(scores.new.shape[1]):
            scores.old[k, slot] = scores.new[k, slot]
        for i in range(m):
            slot = np.uint64(change.slots[i])
            scores.old[k, slot] = change.steps[n_groups + k, i]
            scores.new[k, slot] = change.steps[n_groups + k, i]
    change.report[DRIFTS] = 1


@inner
def update_tree(
    forest, tree, bins, plans, iteration, rules, samples, scores, space, change, loss, group, n_touched, key
):
    """Update one tree; the derivatives before and after stand. Returns whether it changed."""
    max_depth = rules.depth
    places = plans.places[iteration]
    before, after = change.before[group], space.packed[group]
    for node in range(change.states.shape[0]):
        change.states[node] = CLEAN
    leaf_values(forest, tree, max_depth, change.values[group])
    labels = forest.leaf_of[tree]
    n_labels = np.int64(1) << max_depth
    for i in range(n_touched):
        slot = np.uint64(change.touched[i])
        delta = after[slot] - before[slot]
        if delta != 0:
            leaf = leaf_at(forest, tree, np.int64(labels[slot]), max_depth)
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
        leaf = leaf_at(forest, tree, label, max_depth)
        count = 1 if change.joins[i] else -1
        note_difference(forest, tree, bins, places, rules, change, slot, leaf, after[slot] - before[slot])
        note_move(forest, tree, bins, places, rules, change, slot, leaf, count * samples.first[group, slot], count)
    add_differences(forest, tree, rules, change)
    if change.report[CHECKS_ALL] != 0:
        for node in range(change.states.shape[0]):
            if forest.nodes[tree, node]["feature"] >= LEAF:
                change.states[node] = MOVED
    n_stale, has_changed = check_nodes(forest, tree, bins, plans, iteration, rules, space, change, key)
    change.is_rebuilt[group] = n_stale > 0
    if n_stale > 0:
        if change.report[DRIFTS] == 0:
            begin_drift(forest, scores, change, iteration, max_depth)
        old_labels = change.labels[group]
        for slot in range(labels.shape[0]):
            old_labels[slot] = labels[slot]
        change.report[N_NODES] += n_stale
        change.report[N_MEMBERS] += rebuild(
            forest, tree, bins, plans, iteration, rules, samples, scores, space, change, loss, group, key
        )
    return has_changed or n_stale > 0


@inner
def advance(forest, scores, change, iteration, max_depth):
    """Take the scores past an iteration: of all samples if anything drifts, else of those that come and go."""
    n_groups = scores.new.shape[0]
    drifts = change.report[DRIFTS] != 0
    values = change.values[n_groups]
    for k in range(n_groups):
        tree = iteration * n_groups + k
        leaf_values(forest, tree, max_depth, values)
        if drifts:
            labels = change.labels[k] if change.is_rebuilt[k] else forest.leaf_of[tree]
            roll(scores.old[k], labels, change.values[k])
            roll(scores.new[k], forest.leaf_of[tree], values)
        for i in range(change.slots.shape[0]):
            slot = np.uint64(change.slots[i])
            if not change.joins[i]:
                scores.old[k, slot] += change.steps[k, i]
            elif not drifts:
                scores.new[k, slot] += values[np.uint64(forest.leaf_of[tree, slot])]
    if drifts:
        keep(scores, iteration + 1)
        return
    for i in range(change.slots.shape[0]):
        if change.joins[i]:
            keep_one(scores, iteration + 1, np.uint64(change.slots[i]))


@inner
def renew_loss(scores, samples, change, loss, iteration):
    """Bring the validation loss after an iteration up to date."""
    if change.report[DRIFTS] != 0:
        scores.losses[iteration] = total_loss(loss, scores.new, samples)
    for i in range(change.slots.shape[0]):
        slot = np.uint64(change.slots[i])
        if samples.roles[slot] & VALIDATES == 0:
            continue
        if change.joins[i]:
            scores.losses[iteration] += loss_of(loss, scores.new, samples, slot)
        elif change.report[DRIFTS] == 0:
            scores.losses[iteration] -= loss_of(loss, scores.old, samples, slot)


@inner
def is_busy(n_work, n_moved, n_touched, n_samples, n_groups, bins, depth):
    """Whether an iteration was more work than growing it anew; the work of growing anew parts of it is `n_work`."""
    width = bins.rows.shape[1]
    growing = n_samples * n_groups * (growing_work(bins, depth) + width // 2)
    return n_work + n_moved * n_groups * (2 * width + 50) + n_touched * (width + 20) + 5 * n_samples > growing


@kernel
def update_iterations(
    forest, bins, plans, rules, samples, scores, space, change, loss, n_samples, begin, end, patience, seed_key
):
    """Update the iterations from `begin` to `end`, or until validation ends training.

    The samples that come and go are marked as MOVING; `scores.new` of those that come and `scores.old` of those that go
    hold their scores before iteration `begin`, and if something drifts already, so do both of all others.

    Returns (iterations that are up to date, status). With NO_BLOCKS to be called again from there, with TOO_MUCH
    the others are to be grown anew from `scores.new`.
    """
    n_groups = scores.new.shape[0]
    n_needed = n_groups * ((1 << rules.depth) - 1)
    report = change.report
    for iteration in range(begin, end):
        if forest.meta[N_FREE] < n_needed:
            return iteration, NO_BLOCKS
        if report[N_BUSY] >= _BUSY_ITERATIONS:
            return iteration, TOO_MUCH
        n_touched = 0
        if report[DRIFTS] != 0:
            if any_drifts(scores, samples):
                n_touched = find_touched(samples, scores, space, change, loss, iteration)
            else:
                report[DRIFTS] = 0
        derive_moved(samples, scores, space, change, loss, iteration)
        n_work, n_before = report[N_WORK], report[N_TOUCHED]
        has_changed = False
        for k in range(n_groups):
            tree = iteration * n_groups + k
            key = leaf_key(seed_key, tree)
            if update_tree(
                forest, tree, bins, plans, iteration, rules, samples, scores, space, change, loss, k, n_touched, key
            ):
                has_changed = True
                report[N_TREES] += 1
                if report[FIRST_TREE] < 0:
                    report[FIRST_TREE] = tree
        if has_changed and report[DRIFTS] == 0:
            begin_drift(forest, scores, change, iteration, rules.depth)
        advance(forest, scores, change, iteration, rules.depth)
        n_work, n_touched = report[N_WORK] - n_work, report[N_TOUCHED] - n_before
        busy = is_busy(n_work, change.slots.shape[0], n_touched, n_samples, n_groups, bins, rules.depth)
        report[N_BUSY] = report[N_BUSY] + 1 if busy else 0
        if patience > 0:
            renew_loss(scores, samples, change, loss, iteration)
            report[BEST_ITERATION], stops = should_stop(scores.losses, iteration, report[BEST_ITERATION], patience)
            if stops:
                return iteration + 1, DONE
    return end, DONE


@kernel
def reach(forest, scores, change, iteration, max_depth):
    """Make `scores.new` those before an iteration for all samples."""
    if change.report[DRIFTS] == 0:
        begin_drift(forest, scores, change, iteration, max_depth)
