"""Boosting with given structures, in plain NumPy: what influence is a derivative, or a difference, of."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from oubli.core.influence.losses import Loss, StartRule
from oubli.core.influence.views import View

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Structures:
    """Where samples and rows are in trees whose leaf values are yet to be found."""

    loss: Loss
    start_rule: StartRule
    n_groups: int
    leaves: npt.NDArray[np.int64]  # [T, n]
    row_leaves: npt.NDArray[np.int64]  # [T, m]
    n_leaves: int
    y: Reals
    row_y: Reals
    weights: Reals
    rate: float = 0.3
    l2: float = 0.5
    factor: float = 1.0
    hessian_scale: float = 1.0

    def start(self, weights: Reals) -> Reals:
        """F_0."""
        mean = np.average(self.y, weights=weights)
        if self.start_rule is StartRule.MEAN:
            return np.array([mean])
        if self.start_rule is StartRule.LOG_ODDS:
            return np.array([np.log(mean / (1 - mean))])
        if self.start_rule is StartRule.NEWTON_STEP:
            return np.array([4 * (mean - 0.5)])
        if self.start_rule is StartRule.LOG_SHARES:
            return np.log([weights[self.y == k].sum() / weights.sum() for k in range(self.n_groups)])
        return np.zeros(self.n_groups)

    def derivatives(self, scores: Reals, group: int) -> tuple[Reals, Reals]:
        """g and h of all samples for the trees of a group."""
        if self.loss is Loss.SQUARED_ERROR:
            return scores[:, 0] - self.y, np.ones(len(self.y))
        if self.loss is Loss.BINARY_LOG_LOSS:
            p = 1 / (1 + np.exp(-scores[:, 0]))
            return p - self.y, p * (1 - p)
        powers = np.exp(scores)
        p = powers[:, group] / powers.sum(axis=1)
        return p - (self.y == group), p * (1 - p)

    def fit(self, weights: Reals, without: int | None = None) -> tuple[Reals, list[Reals]]:
        """F_0 and the leaf values of each tree, one leaf after the other; `without` a sample."""
        weights = weights.copy()
        if without is not None:
            weights[without] = 0.0
        start = self.start(weights)
        scores = np.tile(start, (len(self.y), 1))
        values = []
        for tree in range(0, len(self.leaves), self.n_groups):
            moves = np.zeros_like(scores)
            for k in range(self.n_groups):
                g, h = self.derivatives(scores, k)
                f = np.zeros(self.n_leaves)
                for leaf in range(self.n_leaves):
                    here = (self.leaves[tree + k] == leaf) & (weights > 0)
                    below = self.hessian_scale * (weights * h)[here].sum() + self.l2
                    if here.any():
                        f[leaf] = -self.factor * (weights * g)[here].sum() / below
                values.append(f)
                moves[:, k] = self.rate * f[self.leaves[tree + k]]
            scores = scores + moves
        return start, values

    def row_scores(self, start: Reals, values: list[Reals]) -> Reals:
        """Raw scores of the rows."""
        scores = np.tile(start, (len(self.row_y), 1))
        for tree, f in enumerate(values):
            scores[:, tree % self.n_groups] += self.rate * f[self.row_leaves[tree]]
        return scores

    def losses(self, weights: Reals, without: int | None = None) -> Reals:
        """Loss of each row after fitting."""
        scores = self.row_scores(*self.fit(weights, without))
        if self.loss is Loss.SQUARED_ERROR:
            return (scores[:, 0] - self.row_y) ** 2
        if self.loss is Loss.BINARY_LOG_LOSS:
            return np.logaddexp(0, np.where(self.row_y == 1, -scores[:, 0], scores[:, 0]))
        log_sum = np.log(np.exp(scores).sum(axis=1))
        return log_sum - scores[np.arange(len(self.row_y)), self.row_y.astype(int)]

    def view(self) -> View:
        """The same as a view; its values are those of a fit."""
        start, values = self.fit(self.weights)
        return View(
            leaves=self.leaves.astype(np.uint8), offsets=np.arange(len(self.leaves) + 1) * self.n_leaves,
            values=np.concatenate(values), n_groups=self.n_groups, loss=self.loss, learning_rate=self.rate,
            l2=np.full(len(values) * self.n_leaves, self.l2), start=start, start_rule=self.start_rule, y=self.y,
            weights=self.weights, ids=[str(i) for i in range(len(self.y))],
            route=lambda X: self.row_leaves.astype(np.uint8),
            read_labels=lambda y, n: np.asarray(y, np.float64),
            factor=self.factor, hessian_scale=self.hessian_scale,
        )  # fmt: skip


def random_structures(
    loss: Loss,
    *,
    n: int = 40,
    n_rows: int = 5,
    n_iterations: int = 6,
    n_classes: int = 3,
    n_leaves: int = 4,
    seed: int = 0,
    **changes: Any,
) -> Structures:
    """Samples thrown into leaves at random."""
    rng = np.random.default_rng(seed)
    n_groups = n_classes if loss is Loss.SOFTMAX_LOG_LOSS else 1

    def targets(size: int) -> Reals:
        if loss is Loss.SQUARED_ERROR:
            return rng.normal(size=size) * 2 + 1
        codes = rng.integers(0, 2 if loss is Loss.BINARY_LOG_LOSS else n_classes, size)
        n_needed = min(size, 2 if loss is Loss.BINARY_LOG_LOSS else n_classes)
        codes[:n_needed] = np.arange(n_needed)
        return codes.astype(np.float64)

    rules = {
        Loss.SQUARED_ERROR: StartRule.MEAN,
        Loss.BINARY_LOG_LOSS: StartRule.LOG_ODDS,
        Loss.SOFTMAX_LOG_LOSS: StartRule.LOG_SHARES,
    }
    n_trees = n_iterations * n_groups
    y = targets(n)
    # Leaves that know something of the targets, so that values are not all about zero.
    noise = rng.integers(0, n_leaves, (n_trees, n))
    hint = (np.argsort(np.argsort(y)) * n_leaves // n)[np.newaxis]
    leaves = np.where(rng.random((n_trees, n)) < 0.4, hint, noise)
    structures = Structures(
        loss=loss, start_rule=rules[loss], n_groups=n_groups, leaves=leaves,
        row_leaves=rng.integers(0, n_leaves, (n_trees, n_rows)), n_leaves=n_leaves, y=y, row_y=targets(n_rows),
        weights=rng.uniform(0.3, 2.0, n), factor=(n_groups - 1) / n_groups if n_groups > 1 else 1.0,
    )  # fmt: skip
    return replace(structures, **changes)
