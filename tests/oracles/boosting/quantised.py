"""`incremental-boosting` with quantization, slowly: what a fit on a set of samples is.

There are no updates: a delete is a fit without the sample. Whatever decides anything is an integer, or one expression
of integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.oracles.boosting import quantised_parts
from tests.oracles.boosting.numbers import ANY, Bounds, is_against
from tests.oracles.boosting.statistics import Statistics
from tests.oracles.boosting.trees import Ensemble, Node, Sample
from tests.oracles.common import Column, combine, tree_key, unit
from tests.oracles.splits import Split, sides

LEAVES = 4


@dataclass
class Part:
    """Samples of a node: their cells and derivatives."""

    rows: list[Sequence[Any]]
    derivatives: np.ndarray[Any, Any]  # int64[n, 2]: by the scores so far
    first: np.ndarray[Any, Any]  # int64[n, 2]: at F_0

    def chosen(self, mask: np.ndarray[Any, Any]) -> Part:
        """Some of them."""
        rows = [row for row, is_in in zip(self.rows, mask.tolist(), strict=True) if is_in]
        return Part(rows, self.derivatives[mask], self.first[mask])


def quotient(a: float, b: float) -> float:
    """a / b as processors divide."""
    if b != 0.0:
        return a / b
    return math.nan if a == 0.0 else math.copysign(math.inf, a)


class Trees:
    """What decides the trees of a fit."""

    def __init__(
        self,
        parameters: quantised_parts.Parameters,
        loss: quantised_parts.Loss,
        steady: quantised_parts.Steadiness,
        drawn: Sequence[Sequence[quantised_parts.Candidate]],
        parts: Sequence[Split],
    ) -> None:
        self.parameters = parameters
        self.steady = steady
        self.parts = parts  # splits that all trees begin with
        self.levels = (len(parts) + 1).bit_length() - 1
        self.candidates = drawn  # by iteration
        hessian_steps = 64 if loss.is_classification else 16
        gradient = 1.0 / loss.steps if loss.is_classification else 1.0 / (loss.inverse_grid * loss.start.spread)
        share = (loss.n_groups - 1) / loss.n_groups if loss.n_groups > 1 else 1.0
        self.least = parameters.min_child_weight * hessian_steps
        self.l2 = parameters.l2_regularization * hessian_steps
        self.leaf_scale = share * gradient * hessian_steps / parameters.leaf_grid
        self.leaf_limit = math.floor(8.0 / parameters.leaf_grid)
        if isinstance(loss, quantised_parts.NumberLoss):
            self.least = parameters.min_child_weight * loss.ordinary
            self.l2 = parameters.l2_regularization * loss.ordinary
            self.leaf_scale, self.leaf_limit = loss.leaf_scale, math.floor(loss.leaf_limit)

    def grow(self, part: Part, iteration: int, tree: int, place: int = 0, bounds: Bounds = ANY) -> Node:
        """The subtree of a node; its place is that in a complete heap."""
        drawn = self.drawn(tree, place)
        if place < len(self.parts):
            split: Split | None = self.parts[place]
        else:
            split = self.best_split(part, iteration, (place + 1).bit_length() - 1 - self.levels, drawn >> 56)
        if split is None:
            g, h = part.derivatives.sum(axis=0).tolist()
            return Node(float(bounds.clip(self.leaf_value(g, h, drawn))))
        left = sides([split], part.rows)[0] if part.rows else np.zeros(0, np.bool_)
        parts, places = (part.chosen(left), part.chosen(~left)), (2 * place + 1, 2 * place + 2)
        own = [
            self.leaf_value(*one.derivatives.sum(axis=0).tolist(), self.drawn(tree, child))
            for one, child in zip(parts, places, strict=True)
        ]
        direction = self.parameters.directions.get(split.feature, 0) if place >= len(self.parts) else 0
        below = bounds.divide(own[0], own[1], direction)
        children = [
            self.grow(one, iteration, tree, child, within)
            for one, child, within in zip(parts, places, below, strict=True)
        ]
        return Node(0.0, split, *children)

    def drawn(self, tree: int, place: int) -> int:
        """What is drawn for a node."""
        return combine(combine(tree_key(self.parameters.random_state, tree), LEAVES), place)

    def leaf_value(self, g: int, h: int, drawn: int) -> int:
        """-G / (H + l2) in units, rounded up or down by what is drawn for the leaf."""
        weight = h + self.l2
        if weight <= 0.0:
            return 0
        value = math.floor(-float(g) * self.leaf_scale / weight + unit(drawn))
        return min(max(value, -self.leaf_limit), self.leaf_limit)

    def best_split(self, part: Part, iteration: int, depth: int, drawn: int) -> Split | None:
        """The first of the candidates with the greatest gain, weighted by what is drawn for it and for the node.

        The uppermost nodes are split by the derivatives at F_0.
        """
        if depth >= self.parameters.max_depth:
            return None
        derivatives = part.first if depth < self.steady.top else part.derivatives
        g, h = derivatives.sum(axis=0).tolist()
        if h < 2.0 * self.least:
            return None
        to_beat = quotient(float(g) * float(g), h + self.l2) * (1.0 + 2.0**-40)
        options = [one for one in self.candidates[iteration] if self.counts(part.rows, derivatives, one.split)]
        lefts = sides([one.split for one in options], part.rows).astype(np.int64) @ derivatives
        best, found = 0.0, None
        for (split, own), (left_g, left_h) in zip(options, lefts.tolist(), strict=True):
            direction = self.parameters.directions.get(split.feature, 0)
            if direction and is_against((left_g, left_h), (g - left_g, h - left_h), self.l2, direction):
                continue
            gain = self.score(left_g, left_h, g - left_g, h - left_h) - to_beat
            gain *= quantised_parts.weight_of(self.steady.scales[depth], own ^ drawn)
            if gain > best:
                best, found = gain, split
        return found

    def counts(self, rows: Sequence[Sequence[Any]], derivatives: np.ndarray[Any, Any], split: Split) -> bool:
        """Whether a split is a candidate: missing values go left only where they contribute anything."""
        if not split.missing_left:
            return True
        missing = np.array([row[split.feature] is None for row in rows], np.bool_)
        return bool(derivatives[missing].sum(axis=0).any())

    def score(self, a: int, h_left: int, b: int, h_right: int) -> float:
        """G^2 / (H + l2) of both sides, -1 where one is too light."""
        if h_left < self.least or h_right < self.least:
            return -1.0
        c, d = h_left + self.l2, h_right + self.l2
        return quotient(float(a) * float(a) * d + float(b) * float(b) * c, c * d)


def loss_of(
    p: quantised_parts.Parameters, start: quantised_parts.Start, grid: float, groups: int, *, is_classification: bool
) -> quantised_parts.Loss:
    """The loss of the parameters."""
    if is_classification or p.loss == "squared_error":
        return quantised_parts.Loss(p, start, grid, n_groups=groups, is_classification=is_classification)
    return quantised_parts.NumberLoss(p, start, grid)


def fit(
    samples: Mapping[str, Sample], parameters: quantised_parts.Parameters, columns: Sequence[Column], task: str
) -> Ensemble:
    """The trees of a set of samples that predictions read; their order does not matter."""
    p, held = parameters, list(samples.values())
    is_classification = task == "classification"
    classes = sorted({sample.label for sample in held}) if is_classification else []
    if len(classes) == 1:
        return Ensemble([], [])
    training = [not quantised_parts.validates(sample, p) for sample in held]
    if not any(training):
        training = [True] * len(held)
    groups = len(classes) if len(classes) > 2 else 1
    ranks = [classes.index(sample.label) if is_classification else 0 for sample in held]
    if is_classification:
        weights = [0.0] * len(classes)
        for sample, trains, rank in zip(held, training, ranks, strict=True):
            weights[rank] += sample.weight * trains
        start = quantised_parts.class_start(weights, groups, p.learning_rate * p.leaf_grid, p.random_state)
    else:
        used = [sample for sample, trains in zip(held, training, strict=True) if trains]
        units = [round(256 * sample.weight) for sample in used]
        start = quantised_parts.number_start_of([sample.label for sample in used], units, p)
    steady = (
        quantised_parts.steadiness(sum(training), p) if is_classification else quantised_parts.regression_steadiness(p)
    )
    loss = loss_of(p, start, steady.grid, groups, is_classification=is_classification)
    read = Statistics(p, list(zip(held, training, ranks, strict=True)), columns, loss)
    held, columns = [read.of(sample) for sample in held], read.columns
    least = quantised_parts.least_level(sum(training), p.random_state)
    bins = quantised_parts.bins_of(held, columns, p.max_bins, least, p.random_state)
    learned = [(sample, rank) for sample, rank, trains in zip(held, ranks, training, strict=True) if trains]
    gradients = np.array([[g for g, _ in loss.derive_at_start(*one)] for one in learned], np.int64)
    levels = quantised_parts.most_levels(len(learned), groups, p.random_state, is_classification=is_classification)
    rows_learned, barred = [sample.cells for sample, _ in learned], list(p.directions)
    weights_learned = np.array([sample.weight for sample, _ in learned])
    parts = quantised_parts.regions_of(
        rows_learned, weights_learned, gradients, bins, columns, levels, p.random_state, barred
    )
    share = p.split_sampling
    if parts:
        share /= 4 if is_classification else 2
        if not is_classification:
            grids = {name: max(getattr(p, name) / 4, 2.0**-8) for name in ("gradient_grid", "leaf_grid")}
            p = replace(p, **grids)
            loss = loss_of(p, start, p.gradient_grid, groups, is_classification=False)
    drawn = [quantised_parts.candidates(bins, columns, share, m, p.random_state) for m in range(p.n_estimators)]
    trees = Trees(p, loss, steady, drawn, parts)
    scores = [list(start.scores) for _ in held]
    may_stop = bool(p.early_stopping) and not all(training)
    iterations: list[list[Node]] = []
    losses: list[int] = []
    for m in range(p.n_estimators):
        learns = [one for one in zip(held, ranks, scores, training, strict=True) if one[3]]
        derived = np.array([loss.derive(sample, rank, own, m) for sample, rank, own, _ in learns], np.int64)
        first = np.array([loss.derive_at_start(sample, rank) for sample, rank, _, _ in learns], np.int64)
        rows = [sample.cells for sample, _, _, _ in learns]
        parts = [Part(rows, derived[:, k], first[:, k]) for k in range(groups)]
        roots = [trees.grow(part, m, m * groups + k) for k, part in enumerate(parts)]
        for own, sample in zip(scores, held, strict=True):
            for k, root in enumerate(roots):
                own[k] += int(root.leaf_of(sample.cells).value)
        iterations.append(roots)
        validation = zip(held, ranks, scores, training, strict=True)
        losses.append(sum(loss.of(sample, rank, own) for sample, rank, own, trains in validation if not trains))
        if may_stop and m - losses.index(min(losses)) >= (p.early_stopping or 0):
            break
    if may_stop:
        iterations = iterations[: losses.index(min(losses)) + 1]
    return Ensemble(iterations, [loss.unit * score + start.base for score in start.scores], loss.unit, read.read)
