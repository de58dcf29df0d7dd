"""What a boosted model says after each of its iterations: staged predictions, and the loss on the samples held.

Scores are added up in the order of the iterations, so that the last stage is what the model predicts, bit for bit.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from oubli.core.array_types import Array, Hashes, Ints, Reals
from oubli.core.boosting.loss import sigmoids, softmaxes
from oubli.core.boosting.numbers import KINDS, losses_at, means_of
from oubli.core.boosting.parameters import POISSON
from oubli.core.boosting.predict import raw_scores
from oubli.core.boosting.state import Trees
from oubli.core.boosting.weights import units_of
from oubli.core.samples.arrays import Problem

_LEAST = 1e-15  # a probability, as in `core/influence/losses.py`


def staged_scores(trees: Trees, cells: Array, category_hashes: Hashes) -> Iterator[Reals]:
    """Yield the raw scores of rows after each iteration, float64[n, groups]; all in the same memory."""
    groups, nothing = trees.n_groups, np.zeros(trees.n_groups)
    totals, own = np.zeros((len(cells), groups)), np.empty((len(cells), groups))
    for first in range(0, len(trees.roots), max(groups, 1)):
        raw_scores(trees.nodes, trees.roots[first : first + groups], nothing, 1.0, cells, category_hashes, own)
        totals += own
        yield trees.base + trees.unit * totals


def answers_of(scores: Reals, loss: str | None) -> Reals:
    """What raw scores mean: probabilities float64[n, classes], or numbers float64[n, 1]; loss: None of a classifier."""
    if loss is None:
        answers = np.empty((len(scores), max(scores.shape[1], 2)))
        (sigmoids if scores.shape[1] == 1 else softmaxes)(scores, answers)
        return answers
    if loss == POISSON:
        answers = np.empty(scores.shape)
        means_of(scores, answers)
        return answers
    return scores


def mean_losses(trees: Trees, problem: Problem, read: Any, slots: Ints, loss: str | None, level: float) -> Reals:
    """Mean loss of the samples in some slots after each iteration, by their weights, float64[iterations].

    read : what trees read of the cells of samples, as `BoostedEngine.read_queries` says.
    """
    cells, hashes = read(problem.data.cells[slots], problem.data.category_hashes)
    weights = units_of(problem.units, slots).astype(np.float64)
    losses, found = np.empty(len(slots)), []
    for scores in staged_scores(trees, cells, hashes):
        if loss is None:
            columns = problem.ranks[problem.class_codes[slots]]
            losses = -np.log(np.maximum(answers_of(scores, None)[np.arange(len(slots)), columns], _LEAST))
        elif loss in KINDS:
            losses_at(KINDS[loss], level, scores[:, 0], problem.y[slots], losses)
        else:
            losses = (scores[:, 0] - problem.y[slots]) ** 2
        found.append(np.average(losses, weights=weights))
    return np.array(found)
