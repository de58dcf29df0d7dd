"""A read-only view of a fitted boosted model, ours or another library's: what the influence of its samples depends on.

    leaves   tree 0   | 3 0 0 1 2 ... |     leaf of each training sample; tree m K + k is that of group k in iteration m
             tree 1   | 0 2 1 1 0 ... |
    values            | tree 0: f f f f | tree 1: f f f | ...     offsets says where each tree's begin

With w the weights of the samples, sums over those in a leaf, and the derivatives of `losses.py`,

    F(x) = F_0 + rate * (sum of the values f of the leaves that x reaches)
    f = -factor * G / H     G = sum w g
                            H = hessian_scale * (sum w h) + l2

all in float64. `factor` is robust LogitBoost's (K - 1) / K where a model has it.

One pass forward over the trees finds the sums of all leaves, and the raw scores of all samples at the end. Derivatives
are not kept. Writing and reading T n numbers takes as long as computing them again from the scores, in either direction
(`reverse.py` goes backward).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Ints, Reals
from oubli.core.errors import InputError
from oubli.core.influence.losses import BLOCK, Loss, StartRule, fill_levels, gradient, hessian
from oubli.core.jit.policy import kernel, pasted


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
    """How leaf values are computed, for the kernels."""

    loss: int
    factor: float
    hessian_scale: float
    rate: float


class Trace(NamedTuple):
    """The trees and their samples for the kernels, with what a pass forward has found."""

    rule: Rule
    leaves: Array  # uint8/16/32[T, n]
    offsets: Ints  # int64[T + 1]
    y: Reals  # float64[n]
    weights: Reals  # float64[n]
    values: Reals  # float64[leaves]: f, as they are in force
    gradients: Reals  # float64[leaves]: G
    denominators: Reals  # float64[leaves]: H, with what is added to it
    counts: Ints  # int64[leaves]: samples of a weight above 0
    scores: Reals  # float64[K, n]: raw scores after the last iteration


@pasted
def is_filled(trace, leaf):
    """Whether a leaf has samples that decide its value."""
    return trace.counts[leaf] > 0 and trace.denominators[leaf] > 0.0


@pasted
def leaf_value(rule, total, denominator, count):
    """Value of a leaf by its sums; 0 without samples."""
    if count == 0 or denominator <= 0.0:
        return 0.0
    return -rule.factor * total / denominator


@pasted
def sum_weight(rule, level):
    """What a sample of weight 1 adds to H."""
    return rule.hessian_scale * hessian(rule.loss, level)


@pasted
def move_scores(trace, values, iteration, sign, scores, start, n):
    """Take samples start .. start + n past the trees of an iteration (sign 1), or back before them (-1)."""
    n_groups = scores.shape[0]
    for k in range(n_groups):
        tree = iteration * n_groups + k
        first = trace.offsets[tree]
        for i in range(start, start + n):
            scores[k, i] += sign * trace.rule.rate * values[np.uint64(first + trace.leaves[tree, i])]


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
def sum_leaves(trace, refits, space):
    """Fill the sums of all leaves, and their values with `refits`. O(T n).

    Before, the trace has F_0 as scores, l2 as denominators, and zero as gradients and counts.
    """
    rule, scores, values = trace.rule, trace.scores, trace.values
    n_groups, n = scores.shape
    n_iterations = trace.leaves.shape[0] // n_groups
    for iteration in range(n_iterations):
        for start in range(0, n, BLOCK):
            m = min(BLOCK, n - start)
            if iteration > 0:
                move_scores(trace, values, iteration - 1, 1.0, scores, start, m)
            fill_levels(rule.loss, scores, start, m, space.levels, space.powers, space.power_bits)
            for k in range(n_groups):
                # In loops of their own, of which LLVM vectorises the first.
                for j in range(m):
                    w = trace.weights[start + j]
                    level = space.levels[k, j]
                    space.pairs[0, j] = w * gradient(rule.loss, level, trace.y[start + j], k)
                    space.pairs[1, j] = w * sum_weight(rule, level)
                tree = iteration * n_groups + k
                first = trace.offsets[tree]
                for j in range(m):
                    leaf = np.uint64(first + trace.leaves[tree, start + j])
                    trace.gradients[leaf] += space.pairs[0, j]
                    trace.denominators[leaf] += space.pairs[1, j]
                    trace.counts[leaf] += np.int64(trace.weights[start + j] > 0.0)
        if refits:
            for leaf in range(trace.offsets[iteration * n_groups], trace.offsets[(iteration + 1) * n_groups]):
                values[leaf] = leaf_value(rule, trace.gradients[leaf], trace.denominators[leaf], trace.counts[leaf])
    if n_iterations > 0:
        move_scores(trace, values, n_iterations - 1, 1.0, scores, 0, n)


def leaf_type(n_most: int) -> npt.DTypeLike:
    """The smallest type that numbers so many leaves."""
    if n_most <= 2**8:
        return np.uint8
    return np.uint16 if n_most <= 2**16 else np.uint32


@dataclass(frozen=True, eq=False)
class View:
    """A fitted boosted model, to be read.

    Attributes
    ----------
    leaves : uint8/16/32[T, n]
    offsets : int64[T + 1]
    values : float64[offsets[T]]
        Unshrunk. With `refits` they are not read.
    n_groups : int
        K, trees an iteration.
    loss, learning_rate, factor, hessian_scale
        How leaf values are computed.
    l2 : float64[offsets[T]]
        The regulariser of each leaf.
    start : float64[K]
        F_0.
    start_rule : StartRule
        How F_0 depends on the samples.
    y : float64[n]
        Targets of the training samples; numbers of classes for log-loss.
    weights : float64[n]
        0 for samples that do not train: their influence is 0.
    ids : sequence of str, length n
    route : callable
        X -> the leaves of its rows, as `leaves`.
    read_labels : callable
        y and how many there are -> float64, as `y`.
    refits : bool
        Whether the values are computed from the samples, in the structures of the trees.
    note : str
        What there is to know about the answers; empty when they are what the papers say.

    Examples
    --------
    >>> from oubli import IncrementalBoostingRegressor
    >>> from oubli.core.influence import view
    >>> model = IncrementalBoostingRegressor(n_estimators=5, random_state=0).fit([[1.0], [2.0], [3.0]], [1.0, 2.0, 3.0])
    >>> view(model).raw_scores([[1.0]]).shape
    (1, 1)
    """

    leaves: Array
    offsets: Ints
    values: Reals
    n_groups: int
    loss: Loss
    learning_rate: float
    l2: Reals
    start: Reals
    start_rule: StartRule
    y: Reals
    weights: Reals
    ids: Sequence[str]
    route: Callable[[Any], Array] = field(repr=False)
    read_labels: Callable[[Any, int], Reals] = field(repr=False)
    factor: float = 1.0
    hessian_scale: float = 1.0
    refits: bool = False
    note: str = ""

    @property
    def n_samples(self) -> int:
        """Training samples."""
        return int(self.leaves.shape[1])

    @property
    def n_trees(self) -> int:
        """T."""
        return int(self.leaves.shape[0])

    @property
    def rule(self) -> Rule:
        """How leaf values are computed, for the kernels."""
        return Rule(int(self.loss), self.factor, self.hessian_scale, self.learning_rate)

    @cached_property
    def trace(self) -> Trace:
        """One pass forward over the trees: sums and values of all leaves, raw scores of all samples. O(T n)."""
        n_leaves = int(self.offsets[-1])
        values = np.zeros(n_leaves) if self.refits else self.values.astype(np.float64, copy=True)
        trace = Trace(
            self.rule, self.leaves, self.offsets, self.y, self.weights, values, np.zeros(n_leaves), self.l2.copy(),
            np.zeros(n_leaves, np.int64), self.columns_of(self.start),
        )  # fmt: skip
        sum_leaves(trace, self.refits, make_space(self.n_groups))
        return trace

    @cached_property
    def refitted_values(self) -> Reals:
        """The leaf values that the sums of the samples give, float64[offsets[T]]; 0 in a leaf without samples."""
        trace = self.trace
        is_filled = (trace.counts > 0) & (trace.denominators > 0)
        return np.where(is_filled, -self.factor * trace.gradients / np.where(is_filled, trace.denominators, 1.0), 0.0)

    def columns_of(self, scores: Reals) -> Reals:
        """Internal: repeat a score of each group for all samples, float64[K, n]."""
        return np.repeat(scores[:, np.newaxis], self.n_samples, axis=1)

    def raw_scores(self, X: Any) -> Reals:
        """Raw scores of rows, float64[m, K].

        Examples
        --------
        >>> from oubli import IncrementalBoostingRegressor
        >>> from oubli.core.influence import view
        >>> model = IncrementalBoostingRegressor(n_estimators=5, random_state=0).fit([[1.0], [2.0]], [1.0, 2.0])
        >>> view(model).raw_scores([[1.0], [3.0]]).shape
        (2, 1)
        """
        return self.scores_in(self.route(X))

    def scores_in(self, leaves: Array) -> Reals:
        """Internal: raw scores of rows by the leaves that they reach, float64[m, K]."""
        return self.start + self.learning_rate * self.sum_in(leaves, self.trace.values)

    def sum_in(self, leaves: Array, values: Reals) -> Reals:
        """Internal: sum numbers of the leaves that rows reach, by group: float64[m, K]."""
        sums = np.zeros((leaves.shape[1], self.n_groups))
        sum_values(leaves, self.offsets, values, sums)
        return sums

    def check(self, tolerance: float = 0.02) -> "View":
        """Check that the samples are those that the values come from; for models read from other libraries.

        Raises
        ------
        InputError
            When the leaf values of these samples are others, on average and relative to their size.

        Examples
        --------
        >>> from oubli import IncrementalBoostingRegressor
        >>> from oubli.core.influence import view
        >>> model = IncrementalBoostingRegressor(n_estimators=5, random_state=0).fit([[1.0], [2.0]], [1.0, 2.0])
        >>> view(model).check(tolerance=1.0).n_samples
        2
        """
        counts = self.trace.counts  # a leaf weighs as much as it has samples
        size = float(np.dot(counts, np.abs(self.values)))
        error = float(np.dot(counts, np.abs(self.refitted_values - self.values)))
        if not np.isfinite(error) or error > tolerance * size + 1e-9 * float(counts.sum()):
            raise InputError(
                "the leaf values of the model are not those of these samples: pass X, y and the weights that it was "
                "fitted on, without sampling of rows"
            )
        return self
