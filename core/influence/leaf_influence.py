"""LeafInfluence and FastLeafInfluence: the derivative of all leaf values by the weight of one training sample.

Paper: "Finding Influential Training Samples for Gradient Boosted Decision Trees", section 3.2, Algorithm 4,
Proposition 1:

    df/dw_i = -(1[i in leaf] (h_i f + g_i) + sum over its samples of w_j (k_j f + h_j) J_ij) / H       Newton
    J_ij    = dA_j/dw_i, brought up to date with every tree by the df/dw_i of the leaf that j is in    (8)

with H's regulariser, the learning rate, F_0 and, for softmax, dA_j of all classes. These are the oracle of
`reverse.py`, which gives all samples in the time of a few of these, and what there is for update sets of some leaves.
"""

import numpy as np

from oubli.core.influence.derivatives import SOFTMAX_LOG_LOSS, hessian
from oubli.core.influence.forward import Change, Forward, choose_leaves
from oubli.core.influence.reverse import score_slope, weight_slope
from oubli.core.influence.start import start_slopes
from oubli.core.influence.update_sets import AllPoints, UpdateSet
from oubli.core.influence.views import View
from oubli.core.jit.policy import kernel, pasted


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
def _differentiate_tree(rule, leaves, tree, group, first, n_leaves, values, weights, levels, changes, choice, slopes):
    """Add to slopes[first:] what the changes of the samples in the chosen leaves do to -H f."""
    for i in range(changes.shape[1]):
        leaf = np.uint64(leaves[tree, i])
        if choice.is_chosen[leaf]:
            value = values[first + leaf]
            change = _level_change(rule.loss, levels, tree, group, changes, i)
            slopes[first + leaf] += weights[i] * score_slope(rule, levels[tree, i], value) * change


@kernel
def differentiate(
    rule, leaves, offsets, values, denominators, counts, y, weights, levels, sample, n_wanted, choice, changes, slopes
):
    """Find df/dw of all leaves for the weight of one sample.

    n_wanted  leaves of the update set
    changes   float64[K, n] dF_0/dw before; dA/dw after all trees (untouched with no leaves wanted)
    slopes    float64[leaves] zero before; df/dw afterwards
    """
    n_groups, n = changes.shape
    for iteration in range(leaves.shape[0] // n_groups):
        for k in range(n_groups):
            tree = iteration * n_groups + k
            first = np.uint64(offsets[tree])
            n_leaves = offsets[tree + 1] - offsets[tree]
            if n_wanted != 0:
                choose_leaves(choice, leaves, tree, n_leaves, changes, n_wanted)
                _differentiate_tree(
                    rule, leaves, tree, k, first, n_leaves, values, weights, levels, changes, choice, slopes
                )
            own = first + np.uint64(leaves[tree, sample])
            slopes[own] += weight_slope(rule, levels[tree, sample], y[sample], k, values[own])
            for leaf in range(offsets[tree], offsets[tree + 1]):
                is_filled = counts[leaf] > 0 and denominators[leaf] > 0.0
                slopes[leaf] = -slopes[leaf] / denominators[leaf] if is_filled else 0.0
        if n_wanted == 0:
            continue
        for k in range(n_groups):
            tree = iteration * n_groups + k
            first = np.uint64(offsets[tree])
            for i in range(n):
                changes[k, i] += rule.rate * slopes[first + np.uint64(leaves[tree, i])]


class FastLeafInfluence(Forward):
    """The derivatives with an update set (section 3.2.2)."""

    def __init__(self, view: View, update_set: UpdateSet) -> None:
        super().__init__(view)
        self.update_set = update_set
        self._start_slopes = start_slopes(view.start_rule, view.y, view.weights, view.n_groups)

    def change(self, sample: int) -> Change:
        """Derivative of F_0 and of all leaf values by the weight of a sample. O(T n), O(T) for SinglePoint."""
        if not self.trains(sample):
            return self.no_change()
        view, trace = self.view, self.view.trace
        start = self._start_slopes[:, sample].copy()
        changes = np.repeat(start[:, np.newaxis], view.n_samples, axis=1)
        slopes = np.zeros(int(view.offsets[-1]))
        differentiate(
            self.rule, view.leaves, view.offsets, trace.values, trace.denominators, trace.counts, view.y,
            view.weights, self.levels, sample, self.update_set.n_leaves, self.choice, changes, slopes,
        )  # fmt: skip
        return Change(start, slopes)


class LeafInfluence(FastLeafInfluence):
    """The derivatives as they are: all changes are followed."""

    def __init__(self, view: View) -> None:
        super().__init__(view, AllPoints())
