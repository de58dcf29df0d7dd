"""Gradient boosting with floats, as the papers write it down: every split of every node is tried, nothing is kept.

* Squared error: "On Incremental Learning for Gradient Boosting Decision Trees" (Zhang et al. 2019), Algorithm 2, with
  splits by its formula 3.
* Classes: robust LogitBoost, "Online Gradient Boosting Decision Tree" (Lin et al. 2025), Algorithm 1 and equations 1
  to 5. Of two classes one tree an iteration is grown, for the second one: those of the first have the same splits and
  opposite values.

Trees are limited in depth, or grown best first up to a number of leaves, or both. Two things are added to the papers: a
regularisation (0 leaves it out), and splits of missing values and of categories as in `tests/oracles/tree.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracles.boosting.trees import Ensemble, Node, Split
from tests.oracles.common import Column
from tests.oracles.tree import Sample, splits_of

Cells = tuple[Any, ...]


@dataclass(frozen=True)
class Parameters:
    """What decides the trees."""

    n_estimators: int = 10
    learning_rate: float = 1.0
    max_depth: int | None = None
    max_leaf_nodes: int | None = None
    l2: float = 0.0
    min_child_weight: float = 0.0


@dataclass
class Part:
    """Samples of a node, with the derivatives of the loss."""

    cells: list[Cells]
    g: list[float]
    h: list[float]
    numbers: list[int]  # places in the training set

    def side(self, split: Split, is_left: bool) -> Part:
        """Those that go to one side."""
        chosen = [i for i, cells in enumerate(self.cells) if split.goes_left(cells) is is_left]
        return Part(*([values[i] for i in chosen] for values in (self.cells, self.g, self.h, self.numbers)))

    def score(self, l2: float) -> float:
        """G^2 / (H + l2): what a leaf of these samples takes off the loss, twice over."""
        weight = sum(self.h) + l2
        return sum(self.g) ** 2 / weight if weight > 0 else 0.0


def all_splits(cells: Sequence[Cells], columns: Sequence[Column]) -> list[Split]:
    """Every split that parts some samples, in the order in which they are preferred."""
    found = splits_of([Sample(row, ("", 0)) for row in cells], columns)
    return [Split(split.attribute, split.threshold, split.missing_left, split.category) for split in found]


def gain(part: Part, split: Split, l2: float) -> float:
    """Equation 5; for the squared error it orders splits as formula 3 does."""
    left, right = part.side(split, True), part.side(split, False)
    return left.score(l2) + right.score(l2) - part.score(l2)


def best_split(part: Part, columns: Sequence[Column], parameters: Parameters) -> tuple[float, Split] | None:
    """The first of the splits with the largest gain above 0, None when there is none."""
    best: tuple[float, Split] | None = None
    for split in all_splits(part.cells, columns):
        weights = [sum(part.side(split, is_left).h) for is_left in (True, False)]
        if min(weights) < parameters.min_child_weight:
            continue
        found = gain(part, split, parameters.l2)
        if found > (best[0] if best else 1e-12):
            best = found, split
    return best


def grow(part: Part, columns: Sequence[Column], parameters: Parameters, factor: float) -> Node:
    """A regression tree; leaves are worth factor * -G / (H + l2).

    The leaf that gains most is split next, of equal ones the one that was there first, until there are enough leaves.
    Without a limit on leaves every leaf that can be is split, in whatever order.
    """
    root = Node(notes={"part": part, "depth": 0})
    leaves = [root]
    limit = math.inf if parameters.max_leaf_nodes is None else parameters.max_leaf_nodes
    deepest = math.inf if parameters.max_depth is None else parameters.max_depth
    while len(leaves) < limit:
        options = [
            (found[0], -number, found[1])
            for number, leaf in enumerate(leaves)
            if leaf.notes["depth"] < deepest
            and (found := best_split(leaf.notes["part"], columns, parameters)) is not None
        ]
        if not options:
            break
        _, place, split = max(options, key=lambda option: option[:2])
        node = leaves.pop(-place)
        node.split = split
        depth = node.notes["depth"] + 1
        node.left, node.right = (
            Node(notes={"part": node.notes["part"].side(split, is_left), "depth": depth}) for is_left in (True, False)
        )
        leaves += [node.left, node.right]
    for leaf in leaves:
        node_part = leaf.notes["part"]
        weight = sum(node_part.h) + parameters.l2
        leaf.value = -factor * sum(node_part.g) / weight if weight > 0 else 0.0
    return root


def learn(root: Node, scores: list[float], rate: float) -> None:
    """Add a tree to the scores of the samples that it was grown on."""
    for leaf in root.leaves():
        for number in leaf.notes["part"].numbers:
            scores[number] += rate * leaf.value


def regression(cells: Sequence[Cells], y: Sequence[float], columns: Sequence[Column], p: Parameters) -> Ensemble:
    """Squared error: F_0 is the mean, trees are grown on the residuals."""
    base = sum(y) / len(y)
    scores = [base] * len(y)
    iterations = []
    for _ in range(p.n_estimators):
        g = [f - target for f, target in zip(scores, y, strict=True)]
        root = grow(Part(list(cells), g, [1.0] * len(y), list(range(len(y)))), columns, p, 1.0)
        learn(root, scores, p.learning_rate)
        iterations.append([root])
    return Ensemble(iterations, [base], p.learning_rate)


def two_classes(
    cells: Sequence[Cells], y: Sequence[int], columns: Sequence[Column], p: Parameters, base: float
) -> Ensemble:
    """Log-loss of classes 0 and 1; scores are log-odds."""
    scores = [base] * len(y)
    iterations = []
    for _ in range(p.n_estimators):
        shares = [1 / (1 + math.exp(-f)) for f in scores]
        g = [share - target for share, target in zip(shares, y, strict=True)]
        h = [share * (1 - share) for share in shares]
        root = grow(Part(list(cells), g, h, list(range(len(y)))), columns, p, 1.0)
        learn(root, scores, p.learning_rate)
        iterations.append([root])
    return Ensemble(iterations, [base], p.learning_rate)


def many_classes(
    cells: Sequence[Cells], y: Sequence[int], n_classes: int, columns: Sequence[Column], p: Parameters
) -> Ensemble:
    """Robust LogitBoost: K trees an iteration, all on the probabilities before it; F_0 is 0."""
    n = len(y)
    scores = [[0.0] * n for _ in range(n_classes)]
    iterations = []
    for _ in range(p.n_estimators):
        shares = [probabilities([scores[k][i] for k in range(n_classes)]) for i in range(n)]
        roots = []
        for k in range(n_classes):
            g = [shares[i][k] - (y[i] == k) for i in range(n)]
            h = [shares[i][k] * (1 - shares[i][k]) for i in range(n)]
            root = grow(Part(list(cells), g, h, list(range(n))), columns, p, (n_classes - 1) / n_classes)
            roots.append(root)
        for k, root in enumerate(roots):
            learn(root, scores[k], p.learning_rate)
        iterations.append(roots)
    return Ensemble(iterations, [0.0] * n_classes, p.learning_rate)


def probabilities(scores: Sequence[float]) -> list[float]:
    """Equation 1."""
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / sum(powers) for power in powers]
