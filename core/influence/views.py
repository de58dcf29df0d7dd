"""One read-only view of a fitted boosted model, whoever trained it: what the influence of its samples depends on.

    leaves   tree 0   | 3 0 0 1 2 ... |     leaf of each training sample; tree m K + k is that of group k in iteration m
             tree 1   | 0 2 1 1 0 ... |
    values            | tree 0: f f f f | tree 1: f f f | ...     offsets says where each tree's begin

With w the weights of the samples, sums over those in a leaf, and the derivatives of `derivatives.py`,

    F(x) = F_0 + rate * (sum of the values f of the leaves that x reaches)
    f = -factor * G / H     G = sum w g
                            H = hessian_scale * (sum w h) + l2      Newton leaves
                            H = (sum w) + l2                        Gradient leaves

all in float64. `factor` is robust LogitBoost's (K - 1) / K where a model has it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

from oubli.core.array_types import Array, Ints, Reals
from oubli.core.errors import InputError
from oubli.core.influence.losses import Loss
from oubli.core.influence.start import StartRule
from oubli.core.influence.trace import Trace, sum_values, trace_of


class LeafKind(Enum):
    """How a leaf's value is made of its samples' derivatives (equations 1 and 2 of the paper)."""

    NEWTON = "newton"
    GRADIENT = "gradient"


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
    loss, leaf_kind, learning_rate, factor, hessian_scale
        What leaf values are made by.
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
        Whether the values are made anew from the samples, in the structures of the trees.
    note : str
        What there is to know about the answers; empty when they are what the papers say.
    """

    leaves: Array
    offsets: Ints
    values: Reals
    n_groups: int
    loss: Loss
    leaf_kind: LeafKind
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
    def is_newton(self) -> bool:
        """Whether leaves take a Newton step."""
        return self.leaf_kind is LeafKind.NEWTON

    @cached_property
    def trace(self) -> Trace:
        """One pass forward over the trees: sums and values of all leaves, raw scores of all samples."""
        return trace_of(self)

    def raw_scores(self, X: Any) -> Reals:
        """Raw scores of rows, float64[m, K]."""
        return self.scores_in(self.route(X))

    def scores_in(self, leaves: Array) -> Reals:
        """Raw scores of rows by the leaves that they reach, float64[m, K]."""
        return self.start + self.learning_rate * self.sum_in(leaves, self.trace.values)

    def sum_in(self, leaves: Array, values: Reals) -> Reals:
        """Sum numbers of the leaves that rows reach, by group: float64[m, K]."""
        sums = np.zeros((leaves.shape[1], self.n_groups))
        sum_values(leaves, self.offsets, values, sums)
        return sums

    def check(self, tolerance: float = 0.02) -> "View":
        """Check that the samples are those that the values were made of; for models read from other libraries.

        Raises
        ------
        InputError
            When the leaf values made of these samples are others, on average and relative to their size.
        """
        trace = self.trace
        refitted = trace.refitted_values(self)
        # Every leaf counts as much as it has samples.
        size = float(np.dot(trace.counts, np.abs(self.values)))
        error = float(np.dot(trace.counts, np.abs(refitted - self.values)))
        if not np.isfinite(error) or error > tolerance * size + 1e-9 * float(trace.counts.sum()):
            raise InputError(
                "the leaf values of the model are not those of these samples: pass X, y and the weights that it was "
                "fitted on, without sampling of rows"
            )
        return self
