"""FastLeafInfluence and FastLeafRefit: what one training sample does to all leaf values, followed through all trees.

Paper: "Finding Influential Training Samples for Gradient Boosted Decision Trees", sections 3.1 and 3.2.

A tree is grown on the derivatives at the scores that the trees before it give. Without one sample all those scores
change. The *update set* of a tree (section 3.1.3) says which samples' changes its leaves take into account; the scores
themselves are always kept up to date.

    "all"      all changes: no approximation. These are LeafInfluence (Algorithm 4) and LeafRefit (Algorithm 1).
    "single"   no changes: only the sample itself leaves its leaves, as in a forest
    k          the changes of the samples in the k leaves of the tree that have seen most of it, sum |change|
               (equation 3). Of several scores a sample (softmax), the changes of all are summed.

LeafInfluence is the derivative of all leaf values by the weight of one sample (Proposition 1):

    df/dw_i = -(1[i in leaf] (h_i f + g_i) + sum over its samples of w_j (k_j f + h_j) J_ij) / H
    J_ij    = dA_j/dw_i, brought up to date with every tree by the df/dw_i of the leaf that j is in    (8)

with H's regulariser, the learning rate, F_0 and, for softmax, dA_j of all classes. `reverse.py` gives it for all
samples in the time that a few take here.

LeafRefit computes all leaf values again without one sample, in the structures as they are. The paper leaves open, and
it is settled here, that

    a) F_0 is refitted too, by its rule (`losses.py`);
    b) the sample itself is in no update set: Algorithm 3 takes its derivatives at the old scores out of the sums, and
       those at the new ones never were in;
    c) a leaf that held no other sample has the value 0 afterwards;
    d) a change is the difference to the value that the same sums give with the sample, so that rounding in the library
       that trained the model (float32) does not count as influence.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Reals
from oubli.core.errors import InputError
from oubli.core.influence.losses import (
    BLOCK,
    SOFTMAX_LOG_LOSS,
    fill_levels,
    gradient,
    hessian,
    start_scores,
    start_slopes,
)
from oubli.core.influence.reverse import score_slope, weight_slope
from oubli.core.influence.views import View, is_filled, leaf_value, make_space, move_scores, sum_weight
from oubli.core.jit.policy import kernel, pasted

ALL, SINGLE = -1, 0  # otherwise the number of leaves


def read_update_set(value: Any) -> int:
    """Read "all", "single", or a number k of leaves.

    Raises
    ------
    InputError
        For anything else.
    """
    if isinstance(value, str) and value in ("all", "single"):
        return ALL if value == "all" else SINGLE
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 1:
        return int(value)
    raise InputError(f'update_set={value!r} must be "all", "single" or a number of leaves of at least 1')


class Change(NamedTuple):
    """What a training sample does to a model: the change without it, or the derivative by its weight."""

    start: Reals  # float64[K]: of F_0
    values: Reals  # float64[leaves]: of the leaf values, unshrunk

    def of_rows(self, view: View, leaves: Array) -> Reals:
        """Change of the raw scores of rows that reach some leaves, float64[m, K]."""
        return self.start + view.learning_rate * view.sum_in(leaves, self.values)


def no_change(view: View) -> Change:
    """What a sample does that does not train; also room for what another one does."""
    return Change(np.zeros(view.n_groups), np.zeros(int(view.offsets[-1])))


class Choice(NamedTuple):
    """Working space to choose the leaves of an update set."""

    sizes: Reals  # float64[most leaves of a tree]: sum |change| by leaf
    is_chosen: npt.NDArray[np.bool_]  # bool[most leaves of a tree]


@pasted
def _choose_leaves(trace, choice, tree, changes, n_wanted):
    """Choose the leaves of a tree with the largest changes; of equals the first."""
    n_groups, n = changes.shape
    n_leaves = trace.offsets[tree + 1] - trace.offsets[tree]
    if n_wanted == ALL or n_wanted >= n_leaves:
        for leaf in range(n_leaves):
            choice.is_chosen[leaf] = True
        return
    for leaf in range(n_leaves):
        choice.sizes[leaf] = 0.0
        choice.is_chosen[leaf] = False
    for k in range(n_groups):
        for i in range(n):
            choice.sizes[np.uint64(trace.leaves[tree, i])] += abs(changes[k, i])
    for _ in range(n_wanted):
        best = -1
        for leaf in range(n_leaves):
            if not choice.is_chosen[leaf] and (best < 0 or choice.sizes[leaf] > choice.sizes[best]):
                best = leaf
        choice.is_chosen[best] = True


@kernel
def _fill_all_levels(trace, space, scores, levels):
    """Write the levels at which each tree was grown to float64[T, n]; scores are F_0 before and F after."""
    n_groups, n = scores.shape
    for iteration in range(trace.leaves.shape[0] // n_groups):
        for start in range(0, n, BLOCK):
            m = min(BLOCK, n - start)
            fill_levels(trace.rule.loss, scores, start, m, space.levels, space.powers, space.power_bits)
            for k in range(n_groups):
                for j in range(m):
                    levels[iteration * n_groups + k, start + j] = space.levels[k, j]
            move_scores(trace, trace.values, iteration, 1.0, scores, start, m)


class Forward:
    """A view with the levels of all samples in all trees, 8 T n bytes, to be asked sample by sample.

    Parameters
    ----------
    view : the model.
    update_set : whose changes the leaves take into account.
    """

    def __init__(self, view: View, update_set: Any) -> None:
        self.view = view
        self.n_wanted = read_update_set(update_set)
        self.space = make_space(view.n_groups)
        n_most = int(np.diff(view.offsets).max(initial=0))
        self.choice = Choice(np.zeros(n_most), np.zeros(n_most, np.bool_))
        self.levels = np.empty((view.n_trees, view.n_samples))
        _fill_all_levels(view.trace, self.space, view.columns_of(view.start), self.levels)


# -- LeafInfluence ----------------------------------------------------------------------------------


@pasted
def _level_change(loss, levels, tree, group, changes, i):
    """Change of a sample's level in a tree by the changes of its scores."""
    level = levels[tree, i]
    if loss != SOFTMAX_LOG_LOSS:
        return hessian(loss, level) * changes[0, i]
    mean = 0.0
    for k in range(changes.shape[0]):
        mean += levels[tree - group + k, i] * changes[k, i]
    return level * (changes[group, i] - mean)


@pasted
def _differentiate_tree(trace, tree, group, levels, changes, choice, slopes):
    """Add to the slopes what the changes of the samples in the chosen leaves do to -H f."""
    first = np.uint64(trace.offsets[tree])
    for i in range(changes.shape[1]):
        leaf = np.uint64(trace.leaves[tree, i])
        if choice.is_chosen[leaf]:
            value = trace.values[first + leaf]
            change = _level_change(trace.rule.loss, levels, tree, group, changes, i)
            slopes[first + leaf] += trace.weights[i] * score_slope(trace.rule, levels[tree, i], value) * change


@kernel
def _differentiate(trace, levels, sample, n_wanted, choice, changes, slopes):
    """Find df/dw of all leaves for the weight of one sample.

    n_wanted  leaves of the update set
    changes   float64[K, n] dF_0/dw before; dA/dw after all trees (untouched with no leaves wanted)
    slopes    float64[leaves] zero before; df/dw afterwards
    """
    n_groups, n = changes.shape
    for iteration in range(trace.leaves.shape[0] // n_groups):
        for k in range(n_groups):
            tree = iteration * n_groups + k
            if n_wanted != SINGLE:
                _choose_leaves(trace, choice, tree, changes, n_wanted)
                _differentiate_tree(trace, tree, k, levels, changes, choice, slopes)
            own = np.uint64(trace.offsets[tree] + trace.leaves[tree, sample])
            slopes[own] += weight_slope(trace.rule, levels[tree, sample], trace.y[sample], k, trace.values[own])
            for leaf in range(trace.offsets[tree], trace.offsets[tree + 1]):
                slopes[leaf] = -slopes[leaf] / trace.denominators[leaf] if is_filled(trace, leaf) else 0.0
        if n_wanted != SINGLE:
            move_scores(trace, slopes, iteration, 1.0, changes, 0, n)


class FastLeafInfluence(Forward):
    """The derivatives with an update set (section 3.2.2)."""

    def __init__(self, view: View, update_set: Any) -> None:
        super().__init__(view, update_set)
        self._start_slopes = start_slopes(view.start_rule, view.y, view.weights, view.n_groups)

    def change(self, sample: int) -> Change:
        """Derivative of F_0 and of all leaf values by the weight of a sample. O(T n), O(T) for "single"."""
        view, change = self.view, no_change(self.view)
        if view.weights[sample] > 0:
            change.start[:] = self._start_slopes[:, sample]
            _differentiate(
                view.trace, self.levels, sample, self.n_wanted, self.choice, view.columns_of(change.start),
                change.values,
            )  # fmt: skip
        return change


# -- LeafRefit --------------------------------------------------------------------------------------


@pasted
def _update_block(trace, tree, group, levels, sample, choice, space, places, scores, changes, start, n):
    """Bring the sums of a tree up to date with the changed scores of those in a block whose leaves are chosen."""
    loss = trace.rule.loss
    n_found = 0
    for i in range(start, start + n):
        places[n_found] = i
        n_found += np.int64(choice.is_chosen[np.uint64(trace.leaves[tree, i])] and i != sample)
    if n_found == 0:
        return
    for k in range(scores.shape[0]):
        for j in range(n_found):
            i = places[j]
            space.pushes[k, j] = scores[k, i] + changes[k, i]
    fill_levels(loss, space.pushes, 0, n_found, space.levels, space.powers, space.power_bits)
    for j in range(n_found):
        i = places[j]
        leaf = np.uint64(trace.offsets[tree] + trace.leaves[tree, i])
        new, old, w, y = space.levels[group, j], levels[tree, i], trace.weights[i], trace.y[i]
        trace.gradients[leaf] += w * (gradient(loss, new, y, group) - gradient(loss, old, y, group))
        trace.denominators[leaf] += w * (sum_weight(trace.rule, new) - sum_weight(trace.rule, old))


@pasted
def _change_value(trace, leaf, refitted, changes_of_values):
    """Write the change of a leaf's value that follows from its new sums."""
    value = leaf_value(trace.rule, trace.gradients[leaf], trace.denominators[leaf], trace.counts[leaf])
    changes_of_values[leaf] = value - refitted[leaf]


@kernel
def _refit(trace, refitted, levels, sample, n_wanted, choice, space, places, scores, changes, changes_of_values):
    """Algorithms 2 and 3.

    trace              its sums are with the sample before, and without it afterwards
    refitted           float64[leaves] values that the sums give with the sample
    levels             float64[T, n] of the scores as they were
    n_wanted           leaves of the update set
    scores             float64[K, n] F_0 before, F after all trees; untouched with no leaves wanted
    changes            float64[K, n] change of F_0 before; of F afterwards; untouched with no leaves wanted
    changes_of_values  float64[leaves] written
    """
    n_groups, n = scores.shape
    for iteration in range(trace.leaves.shape[0] // n_groups):
        for k in range(n_groups):
            tree = iteration * n_groups + k
            if n_wanted != SINGLE:
                _choose_leaves(trace, choice, tree, changes, n_wanted)
                for start in range(0, n, BLOCK):
                    _update_block(
                        trace, tree, k, levels, sample, choice, space, places, scores, changes, start,
                        min(BLOCK, n - start),
                    )  # fmt: skip
            own = trace.offsets[tree] + trace.leaves[tree, sample]
            level, w = levels[tree, sample], trace.weights[sample]
            trace.gradients[own] -= w * gradient(trace.rule.loss, level, trace.y[sample], k)
            trace.denominators[own] -= w * sum_weight(trace.rule, level)
            trace.counts[own] -= 1
            if n_wanted != SINGLE:
                for leaf in range(trace.offsets[tree], trace.offsets[tree + 1]):
                    _change_value(trace, leaf, refitted, changes_of_values)
            else:
                _change_value(trace, own, refitted, changes_of_values)
        if n_wanted != SINGLE:
            move_scores(trace, changes_of_values, iteration, 1.0, changes, 0, n)
            move_scores(trace, trace.values, iteration, 1.0, scores, 0, n)


class FastLeafRefit(Forward):
    """Algorithm 2: the sums kept are brought up to date with the changes of an update set."""

    def change(self, sample: int) -> Change:
        """Change of F_0 and of all leaf values without a sample. O(T n), O(T) for "single"."""
        view, trace, change = self.view, self.view.trace, no_change(self.view)
        if view.weights[sample] > 0:
            without = view.weights.copy()
            without[sample] = 0.0
            change.start[:] = start_scores(view.start_rule, view.y, without, view.n_groups)
            change.start[:] -= start_scores(view.start_rule, view.y, view.weights, view.n_groups)
            sums = trace.gradients.copy(), trace.denominators.copy(), trace.counts.copy()
            _refit(
                trace._replace(gradients=sums[0], denominators=sums[1], counts=sums[2]), view.refitted_values,
                self.levels, sample, self.n_wanted, self.choice, self.space, np.zeros(BLOCK + 1, np.int64),
                view.columns_of(view.start), view.columns_of(change.start), change.values,
            )  # fmt: skip
        return change
