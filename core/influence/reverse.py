"""LeafInfluence of all training samples at once: one pass backward over the trees, O(T n).

The paper differentiates forwards, one training sample at a time. Backwards, with

    adj_F       derivative of the loss (a mean of losses) by the raw scores of each row
    adj_A       derivative by the scores of each training sample after the iterations so far; 0 at the end

and the last iteration first, an iteration is

    adj_leaf  = rate * (sum of adj_F over the rows in the leaf + sum of adj_A over its training samples) / H
    adj_w[i] -= adj_leaf * (factor * g + hessian_scale * h f)                   df/dw, Proposition 1
    adj_A[j] -= w adj_leaf * (factor * dg/dA + f * hessian_scale * dh/dA)       df/dA

for all its K trees, whose adj_leaf are taken before adj_A changes. At the end
F_0 moves all raw scores: adj_w += (sum of adj_F + sum of adj_A) * dF_0/dw.

Many rows at once (one influence for each) go over the trees together, in *lanes*: derivatives are found once for all.
"""

import numpy as np

from oubli.core.array_types import Array, Reals
from oubli.core.engine import Progress
from oubli.core.influence.losses import (
    BLOCK,
    SOFTMAX_LOG_LOSS,
    SQUARED_ERROR,
    fill_levels,
    gradient,
    hessian,
    start_slopes,
)
from oubli.core.influence.views import View, is_filled, make_space, move_scores
from oubli.core.jit.policy import kernel, pasted

_LANES = 16
_PIECES = 20  # of a pass, after each of which progress is reported


@kernel
def sum_rows(leaves, offsets, slopes, totals):
    """Add the slopes of rows, float64[m, K], to the leaves that they reach, float64[leaves]."""
    n_groups = slopes.shape[1]
    for tree in range(leaves.shape[0]):
        first = offsets[tree]
        group = tree % n_groups
        for row in range(leaves.shape[1]):
            totals[np.uint64(first + leaves[tree, row])] += slopes[row, group]


@pasted
def weight_slope(rule, level, y, group, value):
    """-H df/dw of a sample in a leaf."""
    return rule.factor * gradient(rule.loss, level, y, group) + rule.hessian_scale * hessian(rule.loss, level) * value


@pasted
def score_slope(rule, level, value):
    """-H df/dA of a sample of weight 1, by the derivative of the level by A (1 for squared error)."""
    if rule.loss == SQUARED_ERROR:
        return rule.factor
    return rule.factor + rule.hessian_scale * (1.0 - 2.0 * level) * value


@pasted
def _push_weights(trace, tree, group, space, totals, adjoints, start, n):
    """Push what a tree's leaves say to the weights of a block; what they say to its scores goes to space.pushes."""
    first = trace.offsets[tree]
    for j in range(n):
        leaf = np.uint64(first + trace.leaves[tree, start + j])
        space.pairs[0, j] = totals[leaf]
        space.pairs[1, j] = trace.values[leaf]
    for j in range(n):
        push = space.pairs[0, j]
        value = space.pairs[1, j]
        level = space.levels[group, j]
        adjoints[start + j] -= push * weight_slope(trace.rule, level, trace.y[start + j], group, value)
        space.pushes[group, j] = trace.weights[start + j] * push * score_slope(trace.rule, level, value)


@pasted
def _push_scores(loss, space, adjoints, start, n):
    """Take space.pushes through the derivatives of the levels, and to the adjoints of a block's scores."""
    n_groups = adjoints.shape[0]
    if loss == SOFTMAX_LOG_LOSS:
        for j in range(n):
            space.pairs[0, j] = 0.0
        for k in range(n_groups):
            for j in range(n):
                space.pushes[k, j] *= space.levels[k, j]
                space.pairs[0, j] += space.pushes[k, j]
        for k in range(n_groups):
            for j in range(n):
                adjoints[k, start + j] -= space.pushes[k, j] - space.levels[k, j] * space.pairs[0, j]
        return
    for j in range(n):
        adjoints[0, start + j] -= space.pushes[0, j] * hessian(loss, space.levels[0, j])


@kernel
def pull_back(trace, propagates, first, last, space, scores, totals, sample_adjoints, weight_adjoints):
    """Take one loss back over the iterations first to last, the last one first; those after them have been taken.

    propagates       whether adj_A is followed; without, no tree depends on those before it (update set "single")
    scores           float64[K, n] after the last of these iterations; before the first one afterwards
    totals           float64[leaves] sums of adj_F and, in the last, of adj_A; adj_leaf / H afterwards
    sample_adjoints  float64[K, n] adj_A, zero at the very end
    weight_adjoints  float64[n] adj_w, zero at the very end; without what F_0 does
    """
    rule, offsets = trace.rule, trace.offsets
    n_groups, n = scores.shape
    for iteration in range(last, first - 1, -1):
        tree = iteration * n_groups
        for leaf in range(offsets[tree], offsets[tree + n_groups]):
            totals[leaf] = rule.rate * totals[leaf] / trace.denominators[leaf] if is_filled(trace, leaf) else 0.0
        for start in range(0, n, BLOCK):
            m = min(BLOCK, n - start)
            move_scores(trace, trace.values, iteration, -1.0, scores, start, m)
            fill_levels(rule.loss, scores, start, m, space.levels, space.powers, space.power_bits)
            for k in range(n_groups):
                _push_weights(trace, tree + k, k, space, totals, weight_adjoints, start, m)
            if not propagates:
                continue
            _push_scores(rule.loss, space, sample_adjoints, start, m)
            if iteration == 0:
                continue
            for k in range(n_groups):
                before = tree - n_groups + k
                place = offsets[before]
                for i in range(start, start + m):
                    totals[np.uint64(place + trace.leaves[before, i])] += sample_adjoints[k, i]


@kernel
def pull_back_rows(trace, space, means, scores, totals, sample_adjoints, weight_adjoints):
    """Take as many losses back over all trees as there are lanes, each by itself.

    means            float64[lanes] working space
    scores           as in `pull_back`
    totals           float64[leaves, lanes] adj_F of each lane's row; adj_leaf / H afterwards
    sample_adjoints  float64[n, K, lanes] zero before; adj_A afterwards
    weight_adjoints  float64[n, lanes] zero before; adj_w afterwards, but for F_0
    """
    rule, offsets = trace.rule, trace.offsets
    n_groups, n = scores.shape
    n_lanes = totals.shape[1]
    last = trace.leaves.shape[0] // n_groups - 1
    for iteration in range(last, -1, -1):
        tree = iteration * n_groups
        for leaf in range(offsets[tree], offsets[tree + n_groups]):
            scale = rule.rate / trace.denominators[leaf] if is_filled(trace, leaf) else 0.0
            for lane in range(n_lanes):
                totals[leaf, lane] *= scale
        for start in range(0, n, BLOCK):
            m = min(BLOCK, n - start)
            move_scores(trace, trace.values, iteration, -1.0, scores, start, m)
            fill_levels(rule.loss, scores, start, m, space.levels, space.powers, space.power_bits)
            for j in range(m):
                _pull_sample(trace, space, means, totals, sample_adjoints, weight_adjoints, tree, start + j, j)
                if iteration == 0:
                    continue
                for k in range(n_groups):
                    before = tree - n_groups + k
                    leaf = np.uint64(offsets[before] + trace.leaves[before, start + j])
                    for lane in range(n_lanes):
                        totals[leaf, lane] += sample_adjoints[start + j, k, lane]


@pasted
def _pull_sample(trace, space, means, totals, sample_adjoints, weight_adjoints, tree, i, j):
    """Push what the leaves of a sample in one iteration say, in all lanes, to its weight and to its scores."""
    rule = trace.rule
    n_groups, n_lanes = sample_adjoints.shape[1], sample_adjoints.shape[2]
    is_softmax = rule.loss == SOFTMAX_LOG_LOSS
    for lane in range(n_lanes):
        means[lane] = 0.0
    for k in range(n_groups):
        leaf = np.uint64(trace.offsets[tree + k] + trace.leaves[tree + k, i])
        level, value = space.levels[k, j], trace.values[leaf]
        by_weight = weight_slope(rule, level, trace.y[i], k, value)
        by_score = trace.weights[i] * score_slope(rule, level, value)
        by_score *= level if is_softmax else hessian(rule.loss, level)
        for lane in range(n_lanes):
            push = totals[leaf, lane]
            weight_adjoints[i, lane] -= push * by_weight
            sample_adjoints[i, k, lane] -= push * by_score
            means[lane] += push * by_score
    if is_softmax:
        for k in range(n_groups):
            for lane in range(n_lanes):
                sample_adjoints[i, k, lane] += space.levels[k, j] * means[lane]


def weight_adjoints(
    view: View, leaves: Array, slopes: Reals, *, propagates: bool = True, progress: Progress | None = None
) -> Reals:
    """Derivative of a sum of losses by the weight of each training sample, float64[n].

    Parameters
    ----------
    view
        The model.
    leaves : uint[T, m]
        What the rows reach.
    slopes : float64[m, K]
        Derivatives of the sum by their raw scores.
    propagates
        Whether trees depend on those before them; without, the update set is "single".
    progress : callable(done, total), optional
        Called with the iterations that have been taken.
    """
    trace = view.trace
    totals = np.zeros(int(view.offsets[-1]))
    sum_rows(leaves, view.offsets, slopes, totals)
    sample_adjoints = np.zeros((view.n_groups, view.n_samples))
    adjoints = np.zeros(view.n_samples)
    space, scores = make_space(view.n_groups), trace.scores.copy()
    n_iterations = view.n_trees // view.n_groups
    step = n_iterations if progress is None else -(-n_iterations // _PIECES)
    for end in range(n_iterations, 0, -max(step, 1)):
        first = max(end - step, 0)
        pull_back(trace, propagates, first, end - 1, space, scores, totals, sample_adjoints, adjoints)
        if progress is not None:
            progress(n_iterations - first, n_iterations)
    by_start = slopes.sum(axis=0) + sample_adjoints.sum(axis=1)
    adjoints += by_start @ start_slopes(view.start_rule, view.y, view.weights, view.n_groups)
    adjoints[view.weights <= 0] = 0.0
    return adjoints


def weight_adjoints_by_row(view: View, leaves: Array, slopes: Reals, progress: Progress | None = None) -> Reals:
    """The same for the loss of each row by itself, float64[n, m]. O(T n m), some rows together."""
    trace, n_rows = view.trace, leaves.shape[1]
    if n_rows == 1:
        return weight_adjoints(view, leaves, slopes, progress=progress)[:, np.newaxis]
    result = np.empty((view.n_samples, n_rows))
    by_weight = start_slopes(view.start_rule, view.y, view.weights, view.n_groups)
    for first in range(0, n_rows, _LANES):
        part = slice(first, min(first + _LANES, n_rows))
        n_lanes = part.stop - part.start
        totals = np.zeros((int(view.offsets[-1]), n_lanes))
        for tree in range(view.n_trees):
            places = view.offsets[tree] + leaves[tree, part].astype(np.int64)
            totals[places, np.arange(n_lanes)] = slopes[part, tree % view.n_groups]
        sample_adjoints = np.zeros((view.n_samples, view.n_groups, n_lanes))
        adjoints = np.zeros((view.n_samples, n_lanes))
        space, scores = make_space(view.n_groups), trace.scores.copy()
        pull_back_rows(trace, space, np.zeros(n_lanes), scores, totals, sample_adjoints, adjoints)
        by_start = slopes[part].T + sample_adjoints.sum(axis=0)
        result[:, part] = adjoints + by_weight.T @ by_start
        if progress is not None:
            progress(part.stop, n_rows)
    result[view.weights <= 0] = 0.0
    return result
