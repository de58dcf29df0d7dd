"""What the forward forms share: one training sample, all trees in order, and what that does to rows."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.influence.derivatives import BLOCK, fill_levels
from oubli.core.influence.trace import Space, make_space, move_scores, rule_of
from oubli.core.influence.update_sets import ALL
from oubli.core.influence.views import View
from oubli.core.jit.policy import kernel, pasted

Reals = npt.NDArray[np.float64]


class Change(NamedTuple):
    """What a training sample does to a model: the change without it, or the derivative by its weight."""

    start: Reals  # float64[K]: of F_0
    values: Reals  # float64[leaves]: of the leaf values, unshrunk

    def of_rows(self, view: "View", leaves: npt.NDArray[Any]) -> Reals:
        """Change of the raw scores of rows that reach some leaves, float64[m, K]."""
        return self.start + view.learning_rate * view.sum_in(leaves, self.values)


class Choice(NamedTuple):
    """Working space to choose the leaves of an update set."""

    sizes: Reals  # float64[most leaves of a tree]: sum |change| by leaf
    is_chosen: npt.NDArray[np.bool_]  # bool[most leaves of a tree]


@pasted
def choose_leaves(choice, leaves, tree, n_leaves, changes, n_wanted):
    """Choose the leaves of a tree with the largest changes; of equals the first."""
    n_groups, n = changes.shape
    if n_wanted == ALL or n_wanted >= n_leaves:
        for leaf in range(n_leaves):
            choice.is_chosen[leaf] = True
        return
    for leaf in range(n_leaves):
        choice.sizes[leaf] = 0.0
        choice.is_chosen[leaf] = False
    for k in range(n_groups):
        for i in range(n):
            choice.sizes[np.uint64(leaves[tree, i])] += abs(changes[k, i])
    for _ in range(n_wanted):
        best = -1
        for leaf in range(n_leaves):
            if not choice.is_chosen[leaf] and (best < 0 or choice.sizes[leaf] > choice.sizes[best]):
                best = leaf
        choice.is_chosen[best] = True


@kernel
def fill_all_levels(rule, leaves, offsets, values, space, scores, levels):
    """Write the levels that each tree was made of to float64[T, n]; scores are F_0 before and F after."""
    n_groups, n = scores.shape
    for iteration in range(leaves.shape[0] // n_groups):
        for start in range(0, n, BLOCK):
            m = min(BLOCK, n - start)
            fill_levels(rule.loss, scores, start, m, space.levels, space.powers, space.power_bits)
            for k in range(n_groups):
                for j in range(m):
                    levels[iteration * n_groups + k, start + j] = space.levels[k, j]
            move_scores(rule, leaves, offsets, values, iteration, 1.0, scores, start, m)


class Forward:
    """A view with what is kept to ask it sample by sample: the levels of all samples in all trees, 8 T n bytes."""

    def __init__(self, view: "View") -> None:
        self.view = view
        self.rule = rule_of(view)
        self.space: Space = make_space(view.n_groups)
        n_most = int(np.diff(view.offsets).max(initial=0))
        self.choice = Choice(np.zeros(n_most), np.zeros(n_most, np.bool_))
        self.levels = np.empty((view.n_trees, view.n_samples))
        scores = np.repeat(view.start[:, np.newaxis], view.n_samples, axis=1)
        fill_all_levels(self.rule, view.leaves, view.offsets, view.trace.values, self.space, scores, self.levels)

    def trains(self, sample: int) -> bool:
        """Whether a sample has had any part in the training."""
        return bool(self.view.weights[sample] > 0)

    def no_change(self) -> Change:
        """What a sample does that had none."""
        return Change(np.zeros(self.view.n_groups), np.zeros(int(self.view.offsets[-1])))
