"""Scores that an update moves: those of a few samples, which are listed, or those of all when they are many.

While few samples *drift*, that is have other scores than before, only theirs are known, before and after. Those of
another sample are a few additions away, see `rolling.py`; they are looked up when its leaf gets another value, from
when on it is listed, or when it is in a subtree that is grown anew.
"""

import numpy as np

from oubli.core.boosting.quantised.past import find_scores, past_row
from oubli.core.boosting.quantised.rolling import keep, keep_one, roll, roll_to
from oubli.core.boosting.quantised.state import DRIFTS, N_LISTED, TRAINS, VALIDATES
from oubli.core.jit.policy import inner

_NO_MARK = np.uint64(0)
_MANY = 4  # more than one sample in so many drifts: the scores of all are kept; less than half of that: a list again


@inner
def _enlist(samples, change, slot):
    """List a sample, unless it is listed, or comes or goes itself."""
    role = samples.roles[slot]
    if change.is_listed[slot] == 0 and (role in (TRAINS, VALIDATES)):
        change.is_listed[slot] = 1
        change.drifting[change.report[N_LISTED]] = slot
        change.report[N_LISTED] += 1


@inner
def list_drifting(forest, tree, scores, samples, space, change, iteration, group, n_members):
    """List the samples whose leaf in a tree has another value than before; the first n_members were in stale nodes."""
    n_groups = scores.new.shape[0]
    labels = forest.leaf_of[tree]
    before, after = change.values[group], change.past[past_row(iteration, group, n_groups)]
    owners, others = change.values[n_groups], forest.nodes.shape[1]
    first = change.report[N_LISTED]
    old_labels = change.labels[group]
    for i in range(n_members):
        slot = np.uint64(space.members[i])
        if before[np.uint64(old_labels[slot])] != after[np.uint64(labels[slot])]:
            _enlist(samples, change, slot)
    # What is left of `before` differs from `after` where a leaf that stays has got another value.
    has_other = False
    for label in range(before.shape[0]):
        is_other = before[label] != after[label] and (n_members == 0 or owners[label] == others)
        owners[label] = is_other
        has_other |= is_other
    if has_other:
        for slot in range(labels.shape[0]):
            change.marks[slot] = owners[np.uint64(labels[slot])]
        for word in range(change.mark_words.shape[0]):
            if change.mark_words[word] != _NO_MARK:
                for slot in range(8 * word, min(8 * word + 8, labels.shape[0])):
                    if change.marks[slot] != 0:
                        _enlist(samples, change, np.uint64(slot))
    last = change.report[N_LISTED]
    find_scores(forest, scores, change, iteration, change.drifting, first, last)
    for k in range(n_groups):
        for i in range(first, last):
            slot = np.uint64(change.drifting[i])
            scores.old[k, slot] = scores.new[k, slot]


@inner
def advance(forest, scores, change, iteration):
    """Take the scores past an iteration: of all samples or those listed, and of those that come and go."""
    n_groups = scores.new.shape[0]
    has_all, n_listed = change.report[DRIFTS] != 0, change.report[N_LISTED]
    for k in range(n_groups):
        labels = forest.leaf_of[iteration * n_groups + k]
        old_labels = change.labels[k] if change.is_rebuilt[k] else labels
        before, after = change.values[k], change.past[past_row(iteration, k, n_groups)]
        old, new = scores.old[k], scores.new[k]
        if has_all:
            roll(old, old_labels, before)
            roll(new, labels, after)
        for i in range(n_listed):
            slot = np.uint64(change.drifting[i])
            old[slot] += before[np.uint64(old_labels[slot])]
            new[slot] += after[np.uint64(labels[slot])]
        for i in range(change.slots.shape[0]):
            slot = np.uint64(change.slots[i])
            if not change.joins[i]:
                old[slot] += change.steps[k, i]
            elif not has_all:
                new[slot] += after[np.uint64(labels[slot])]
    if has_all:
        keep(scores, iteration + 1)
        return
    for i in range(n_listed):
        keep_one(scores, iteration + 1, np.uint64(change.drifting[i]))
    for i in range(change.slots.shape[0]):
        if change.joins[i]:
            keep_one(scores, iteration + 1, np.uint64(change.slots[i]))


@inner
def _is_same(scores, slot):
    is_same = True
    for k in range(scores.new.shape[0]):
        is_same &= scores.new[k, slot] == scores.old[k, slot]
    return is_same


@inner
def forget_still(scores, change):
    """Take those off the list whose scores are again what they were."""
    n_left = np.int64(0)
    for i in range(change.report[N_LISTED]):
        slot = np.uint64(change.drifting[i])
        if _is_same(scores, slot):
            change.is_listed[slot] = 0
        else:
            change.drifting[n_left] = slot
            n_left += 1
    change.report[N_LISTED] = n_left


@inner
def choose_form(forest, scores, samples, change, iteration, max_depth):
    """Go over from a list to the scores of all samples, or back, if that is better before an iteration."""
    report, n_samples = change.report, samples.roles.shape[0]
    if report[DRIFTS] == 0:
        if _MANY * report[N_LISTED] > n_samples:
            _find_all(forest, scores, change, iteration, max_depth)
        return
    n_other = np.int64(0)
    for k in range(scores.new.shape[0]):
        new, old = scores.new[k], scores.old[k]
        for slot in range(new.shape[0]):
            n_other += new[slot] != old[slot]
    if 2 * _MANY * n_other < n_samples:
        report[DRIFTS] = 0
        for slot in range(samples.roles.shape[0]):
            if not _is_same(scores, np.uint64(slot)):
                _enlist(samples, change, np.uint64(slot))


@inner
def _find_all(forest, scores, change, iteration, max_depth):
    """Find the scores of all samples; nobody is listed any more."""
    for i in range(change.slots.shape[0]):
        # The scores of those that go are known, and not to be read from trees that they have left.
        change.is_listed[np.uint64(change.slots[i])] = 1
    n_groups = scores.new.shape[0]
    roll_to(forest, scores, iteration, max_depth, change.values[n_groups])
    for k in range(n_groups):
        for slot in range(scores.new.shape[1]):
            if change.is_listed[slot] == 0:
                scores.old[k, slot] = scores.new[k, slot]
    for slot in range(change.is_listed.shape[0]):
        change.is_listed[slot] = 0
    change.report[N_LISTED] = 0
    change.report[DRIFTS] = 1
