"""LeafRefit and FastLeafRefit: all leaf values without one training sample, in the structures as they are.

Paper: "Finding Influential Training Samples for Gradient Boosted Decision Trees", section 3.1, Algorithms 1 to 3. It is
left open there, and settled here, that

    a) F_0 is refitted too, by its rule (`start.py`);
    b) the sample itself is in no update set: Algorithm 3 takes its derivatives at the old scores out of the sums, and
       those at the new ones never were in;
    c) a leaf that held no other sample has the value 0 afterwards;
    d) a change is the difference to the value that the same sums give with the sample, so that rounding in the library
       that trained the model (float32) does not count as influence.
"""

import numpy as np

from oubli.core.influence.derivatives import BLOCK, fill_levels, gradient
from oubli.core.influence.forward import Change, Forward, choose_leaves
from oubli.core.influence.start import start_scores
from oubli.core.influence.trace import leaf_value, make_space, move_scores, rule_of, sum_weight
from oubli.core.influence.update_sets import UpdateSet
from oubli.core.influence.views import View
from oubli.core.jit.policy import kernel, pasted


@pasted
def _gather_scores(space, n, scores, changes, start):
    """Write the changed scores of a block to space.pushes."""
    for k in range(scores.shape[0]):
        for j in range(n):
            space.pushes[k, j] = scores[k, start + j] + changes[k, start + j]


@pasted
def _finish_tree(rule, first, end, totals, weights_sums, counts, refitted, changes_of_values):
    """Turn the new sums of a tree into changes of its values."""
    for leaf in range(first, end):
        value = leaf_value(rule, totals[leaf], weights_sums[leaf], counts[leaf])
        changes_of_values[leaf] = value - refitted[leaf]


@pasted
def _move_changes(rule, leaves, offsets, iteration, changes_of_values, changes):
    """Bring the changes of all scores up to date with the trees of an iteration (line 14)."""
    n_groups, n = changes.shape
    for k in range(n_groups):
        tree = iteration * n_groups + k
        first = np.uint64(offsets[tree])
        for i in range(n):
            changes[k, i] += rule.rate * changes_of_values[first + np.uint64(leaves[tree, i])]


@kernel
def refit(
    rule, leaves, offsets, values, refitted, y, weights, sample, space, scores, changes,
    totals, denominators, counts, changes_of_values,
):  # fmt: skip
    """Algorithm 1.

    refitted           float64[leaves] values that the sums give with the sample
    scores             float64[K, n] F_0 before, F after all trees
    changes            float64[K, n] change of F_0 before; of F afterwards
    totals, denominators, counts
        of all leaves: zero, l2 and zero before
    changes_of_values  float64[leaves] written
    """
    n_groups, n = scores.shape
    for iteration in range(leaves.shape[0] // n_groups):
        tree = iteration * n_groups
        for start in range(0, n, BLOCK):
            m = min(BLOCK, n - start)
            _gather_scores(space, m, scores, changes, start)
            fill_levels(rule.loss, space.pushes, 0, m, space.levels, space.powers, space.power_bits)
            for k in range(n_groups):
                for j in range(m):
                    i = start + j
                    if i == sample or weights[i] <= 0.0:
                        continue
                    leaf = np.uint64(offsets[tree + k] + leaves[tree + k, i])
                    totals[leaf] += weights[i] * gradient(rule.loss, space.levels[k, j], y[i], k)
                    denominators[leaf] += weights[i] * sum_weight(rule, space.levels[k, j])
                    counts[leaf] += 1
        end = offsets[tree + n_groups]
        _finish_tree(rule, offsets[tree], end, totals, denominators, counts, refitted, changes_of_values)
        _move_changes(rule, leaves, offsets, iteration, changes_of_values, changes)
        move_scores(rule, leaves, offsets, values, iteration, 1.0, scores, 0, n)


@pasted
def _take_out(rule, leaf, level, y, weight, group, totals, denominators, counts):
    """Take a sample out of the sums of its leaf."""
    totals[leaf] -= weight * gradient(rule.loss, level, y, group)
    denominators[leaf] -= weight * sum_weight(rule, level)
    counts[leaf] -= 1


@pasted
def _update_block(
    rule, leaves, tree, group, first, y, weights, levels, sample, is_chosen, space, places, scores, changes,
    start, n, totals, denominators,
):  # fmt: skip
    """Bring the sums of a tree up to date with the changed scores of those in a block whose leaves are chosen."""
    n_groups = scores.shape[0]
    n_found = 0
    for i in range(start, start + n):
        places[n_found] = i
        n_found += np.int64(is_chosen[np.uint64(leaves[tree, i])] and i != sample)
    if n_found == 0:
        return
    for k in range(n_groups):
        for j in range(n_found):
            i = places[j]
            space.pushes[k, j] = scores[k, i] + changes[k, i]
    fill_levels(rule.loss, space.pushes, 0, n_found, space.levels, space.powers, space.power_bits)
    for j in range(n_found):
        i = places[j]
        leaf = first + np.uint64(leaves[tree, i])
        new = space.levels[group, j]
        old = levels[tree, i]
        totals[leaf] += weights[i] * (gradient(rule.loss, new, y[i], group) - gradient(rule.loss, old, y[i], group))
        denominators[leaf] += weights[i] * (sum_weight(rule, new) - sum_weight(rule, old))


@kernel
def refit_fast(
    rule, leaves, offsets, values, refitted, y, weights, levels, sample, n_wanted, choice, space, places,
    scores, changes, totals, denominators, counts, changes_of_values,
):  # fmt: skip
    """Algorithms 2 and 3.

    levels                     float64[T, n] of the scores as they were
    n_wanted                   leaves of the update set
    scores, changes            as in `refit`; untouched with no leaves wanted
    totals, denominators, counts
        float64[leaves], float64[leaves], int64[leaves]: the sums with the sample before, without it afterwards
    """
    n_groups, n = scores.shape
    for iteration in range(leaves.shape[0] // n_groups):
        for k in range(n_groups):
            tree = iteration * n_groups + k
            first = np.uint64(offsets[tree])
            own = first + np.uint64(leaves[tree, sample])
            if n_wanted != 0:
                choose_leaves(choice, leaves, tree, offsets[tree + 1] - offsets[tree], changes, n_wanted)
                for start in range(0, n, BLOCK):
                    _update_block(
                        rule, leaves, tree, k, first, y, weights, levels, sample, choice.is_chosen, space, places,
                        scores, changes, start, min(BLOCK, n - start), totals, denominators,
                    )  # fmt: skip
            _take_out(rule, own, levels[tree, sample], y[sample], weights[sample], k, totals, denominators, counts)
            if n_wanted != 0:
                end = offsets[tree + 1]
                _finish_tree(rule, offsets[tree], end, totals, denominators, counts, refitted, changes_of_values)
            else:
                value = leaf_value(rule, totals[own], denominators[own], counts[own])
                changes_of_values[own] = value - refitted[own]
        if n_wanted != 0:
            _move_changes(rule, leaves, offsets, iteration, changes_of_values, changes)
            move_scores(rule, leaves, offsets, values, iteration, 1.0, scores, 0, n)


def _start_change(view: View, sample: int) -> np.ndarray:
    """How F_0 moves when a sample goes."""
    without = view.weights.copy()
    without[sample] = 0.0
    new = start_scores(view.start_rule, view.y, without, view.n_groups)
    return new - start_scores(view.start_rule, view.y, view.weights, view.n_groups)


class LeafRefit:
    """Algorithm 1: all leaves anew, from the derivatives of all samples but one."""

    def __init__(self, view: View) -> None:
        self.view = view

    def change(self, sample: int) -> Change:
        """Change of F_0 and of all leaf values without a sample. O(T n)."""
        view, trace = self.view, self.view.trace
        n_leaves = int(view.offsets[-1])
        start, values = np.zeros(view.n_groups), np.zeros(n_leaves)
        if view.weights[sample] > 0:
            start = _start_change(view, sample)
            scores = np.repeat(view.start[:, np.newaxis], view.n_samples, axis=1)
            refit(
                rule_of(view), view.leaves, view.offsets, trace.values, trace.refitted_values(view), view.y,
                view.weights, sample, make_space(view.n_groups), scores,
                np.repeat(start[:, np.newaxis], view.n_samples, axis=1), np.zeros(n_leaves), view.l2.copy(),
                np.zeros(n_leaves, np.int64), values,
            )  # fmt: skip
        return Change(start, values)


class FastLeafRefit(Forward):
    """Algorithm 2: the sums kept are brought up to date with the changes of an update set."""

    def __init__(self, view: View, update_set: UpdateSet) -> None:
        super().__init__(view)
        self.update_set = update_set
        self._refitted = view.trace.refitted_values(view)

    def change(self, sample: int) -> Change:
        """Change of F_0 and of all leaf values without a sample. O(T n), O(T) for SinglePoint."""
        if not self.trains(sample):
            return self.no_change()
        view, trace = self.view, self.view.trace
        start = _start_change(view, sample)
        values = np.zeros(int(view.offsets[-1]))
        refit_fast(
            self.rule, view.leaves, view.offsets, trace.values, self._refitted, view.y, view.weights, self.levels,
            sample, self.update_set.n_leaves, self.choice, self.space, np.zeros(BLOCK + 1, np.int64),
            np.repeat(view.start[:, np.newaxis], view.n_samples, axis=1),
            np.repeat(start[:, np.newaxis], view.n_samples, axis=1),
            trace.gradients.copy(), trace.denominators.copy(), trace.counts.copy(), values,
        )  # fmt: skip
        return Change(start, values)
