"""One pass forward over the trees: the sums of all leaves, and the raw scores of all samples at the end.

Derivatives are not kept: T n numbers would have to be written and read again, which takes as long as to find them
anew from the scores, going backwards (`reverse.py`) or forwards.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.influence.derivatives import BLOCK, fill_levels, gradient, hessian
from oubli.core.jit.policy import kernel, pasted

if TYPE_CHECKING:
    from oubli.core.influence.views import View

Reals = npt.NDArray[np.float64]


class Space(NamedTuple):
    """Working space of the passes."""

    levels: Reals  # float64[K + 1, BLOCK]
    pushes: Reals  # float64[K, BLOCK]
    pairs: Reals  # float64[2, BLOCK]: two numbers of each sample
    powers: Reals  # float64[BLOCK]
    power_bits: npt.NDArray[np.int64]  # int64[BLOCK], the same memory


def make_space(n_groups: int) -> Space:
    """Make working space for one thread."""
    powers = np.zeros(BLOCK)
    return Space(
        levels=np.zeros((n_groups + 1, BLOCK)),
        pushes=np.zeros((n_groups, BLOCK)),
        pairs=np.zeros((2, BLOCK)),
        powers=powers,
        power_bits=powers.view(np.int64),
    )


class Rule(NamedTuple):
    """How leaf values are made, for the kernels."""

    loss: int
    is_newton: bool
    factor: float
    hessian_scale: float
    rate: float


def rule_of(view: "View") -> Rule:
    """What a view says about leaf values."""
    return Rule(int(view.loss), view.is_newton, view.factor, view.hessian_scale, view.learning_rate)


class Trace(NamedTuple):
    """What a pass forward has found."""

    values: Reals  # float64[leaves]: f, as they are in force
    gradients: Reals  # float64[leaves]: G
    denominators: Reals  # float64[leaves]: H, with what is added to it
    counts: npt.NDArray[np.int64]  # int64[leaves]: samples of a weight above 0
    scores: Reals  # float64[K, n]: raw scores after the last iteration

    def refitted_values(self, view: "View") -> Reals:
        """The values that the sums give; 0 in a leaf without samples."""
        is_filled = (self.counts > 0) & (self.denominators > 0)
        return np.where(is_filled, -view.factor * self.gradients / np.where(is_filled, self.denominators, 1.0), 0.0)


@pasted
def leaf_value(rule, total, denominator, count):
    """Value of a leaf by its sums; 0 without samples."""
    if count == 0 or denominator <= 0.0:
        return 0.0
    return -rule.factor * total / denominator


@pasted
def sum_weight(rule, level):
    """What a sample of weight 1 adds to H."""
    if rule.is_newton:
        return rule.hessian_scale * hessian(rule.loss, level)
    return 1.0


@pasted
def move_scores(rule, leaves, offsets, values, iteration, sign, scores, start, n):
    """Take samples start .. start + n past the trees of an iteration (sign 1), or back before them (-1)."""
    n_groups = scores.shape[0]
    for k in range(n_groups):
        tree = iteration * n_groups + k
        first = offsets[tree]
        for i in range(start, start + n):
            scores[k, i] += sign * rule.rate * values[np.uint64(first + leaves[tree, i])]


@kernel
def sum_values(leaves, offsets, values, sums):
    """Add the values of the leaves that rows reach to their sums, float64[m, K]."""
    n_groups = sums.shape[1]
    for tree in range(leaves.shape[0]):
        first = offsets[tree]
        group = tree % n_groups
        for row in range(leaves.shape[1]):
            sums[row, group] += values[np.uint64(first + leaves[tree, row])]


@kernel
def sum_leaves(rule, leaves, offsets, y, weights, refits, space, scores, gradients, denominators, counts, values):
    """Fill the sums of all leaves, and their values with `refits`. O(T n).

    scores        float64[K, n] F_0 before, F after all trees
    gradients     float64[leaves] zero before
    denominators  float64[leaves] l2 before
    counts        int64[leaves] zero before
    """
    n_groups, n = scores.shape
    n_iterations = leaves.shape[0] // n_groups
    for iteration in range(n_iterations):
        for start in range(0, n, BLOCK):
            m = min(BLOCK, n - start)
            if iteration > 0:
                move_scores(rule, leaves, offsets, values, iteration - 1, 1.0, scores, start, m)
            fill_levels(rule.loss, scores, start, m, space.levels, space.powers, space.power_bits)
            for k in range(n_groups):
                # In loops of their own, of which LLVM vectorises the first.
                for j in range(m):
                    w = weights[start + j]
                    level = space.levels[k, j]
                    space.pairs[0, j] = w * gradient(rule.loss, level, y[start + j], k)
                    space.pairs[1, j] = w * sum_weight(rule, level)
                tree = iteration * n_groups + k
                first = offsets[tree]
                for j in range(m):
                    leaf = np.uint64(first + leaves[tree, start + j])
                    gradients[leaf] += space.pairs[0, j]
                    denominators[leaf] += space.pairs[1, j]
                    counts[leaf] += np.int64(weights[start + j] > 0.0)
        if refits:
            for leaf in range(offsets[iteration * n_groups], offsets[(iteration + 1) * n_groups]):
                values[leaf] = leaf_value(rule, gradients[leaf], denominators[leaf], counts[leaf])
    if n_iterations > 0:
        move_scores(rule, leaves, offsets, values, n_iterations - 1, 1.0, scores, 0, n)


def trace_of(view: "View") -> Trace:
    """Go over the trees of a view."""
    n_leaves = int(view.offsets[-1])
    scores = np.repeat(view.start[:, np.newaxis], view.n_samples, axis=1)
    values = np.zeros(n_leaves) if view.refits else view.values.astype(np.float64, copy=True)
    trace = Trace(values, np.zeros(n_leaves), view.l2.copy(), np.zeros(n_leaves, np.int64), scores)
    sum_leaves(
        rule_of(view), view.leaves, view.offsets, view.y, view.weights, view.refits, make_space(view.n_groups), scores,
        trace.gradients, trace.denominators, trace.counts, values,
    )  # fmt: skip
    return trace
