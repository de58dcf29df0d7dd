"""How good a model's answers are for samples that it has not learned, of the samples that it holds.

    out-of-bag   a forest in which each sample is in a share of the trees: the others answer for it
    held-out     boosting with early stopping: the samples that it validates on, which no tree has learned
    5-fold       every other model: five are fitted on four fifths of the samples, and answer for the last fifth

A sample's fold is a hash of its id, so that the same samples are compared whatever the parameters are, and one sample
more or less moves no other. Of many samples those with the smallest hashes are looked at.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from oubli.core.array_types import Bools, Reals
from oubli.core.base import Keepable
from oubli.core.data.values import Task
from oubli.core.errors import EmptyModelError, UnavailableError
from oubli.core.unseen.answers import Unseen, ask, chosen_slots, label_columns, unseen_of

FEWEST = 10  # samples below which a score says nothing
OUT_OF_BAG, HELD_OUT = "out-of-bag", "held-out"
_BINS = 10  # of probabilities, for the error of calibration
_LEAST_PROBABILITY = 1e-15  # as in scikit-learn's log-loss


class Score(NamedTuple):
    """What answers are worth.

    Attributes
    ----------
    value : share of right classes, or R^2; None where there are too few samples to tell.
    method : how samples were kept from the trees that answer for them.
    n_samples : how many were asked about.
    """

    value: float | None
    method: str
    n_samples: int


class Answers(NamedTuple):
    """The labels of samples, and what was predicted for them."""

    labels: Sequence[Any]
    predicted: Sequence[Any]


def metric_of(task: Task) -> str:
    """Return what a score's value is called."""
    return "accuracy" if task is Task.CLASSIFICATION else "r2"


def out_of_bag(model: Keepable, most: int) -> Score | None:
    """Score a model by the trees that have not learned a sample; it has no tags, and is only read.

    Returns
    -------
    Score or None
        None where all trees learn all samples.
    """
    unseen = ask(model, chosen_slots(model.samples_, most))
    return None if unseen is None else score_unseen(model, unseen)


def score_unseen(model: Keepable, unseen: Unseen) -> Score:
    """Score a model by what it answers for samples that it has not learned."""
    store, (slots, answers) = model.samples_, unseen
    if model.task is Task.CLASSIFICATION:
        given = Answers(label_columns(model, slots).tolist(), answers.argmax(axis=1).tolist() if len(slots) else [])
    else:
        given = Answers(store.y[slots].tolist(), answers.tolist())
    return score_of(model.task, [given], HELD_OUT if model.is_boosted else OUT_OF_BAG)


def quality_of(model: Keepable, most: int) -> dict[str, Any] | None:
    """Say how good a model's answers for samples are that it has not learned; in a read of the model.

    With low disclosure numbers have two decimals: exact ones of two versions would tell the loss of a sample that left.

    Returns
    -------
    dict or None
        The score, for classes with `log_loss`, `auc` (the mean over classes, each against the others) and
        `calibration_error` (how far the share of right answers is from the probability of the predicted class, on
        average over ten bins), for numbers with `rmse`. None where too few samples tell, or all trees learn all.
    """
    try:
        unseen = unseen_of(model, most)
    except (UnavailableError, EmptyModelError):
        return None
    score, (slots, answers) = score_unseen(model, unseen), unseen
    if score.value is None:
        return None
    found = {"metric": metric_of(model.task), **score._asdict()}
    if model.task is Task.CLASSIFICATION:
        found |= _class_quality(model, unseen)
    else:
        found["rmse"] = float(np.sqrt(np.mean((answers - model.samples_.y[slots]) ** 2)))
    if model.disclosure_ == "low":
        return {name: round(value, 2) if isinstance(value, float) else value for name, value in found.items()}
    return found


def _class_quality(model: Keepable, unseen: Unseen) -> dict[str, float | None]:
    slots, answers = unseen
    columns, rows = label_columns(model, slots), np.arange(len(slots))
    log_loss = -np.log(np.maximum(answers[rows, columns], _LEAST_PROBABILITY)).mean()
    aucs = [_auc(answers[:, k], columns == k) for k in np.unique(columns)] if answers.shape[1] > 1 else []
    known = [auc for auc in aucs if auc is not None]
    return {
        "log_loss": float(log_loss),
        "auc": float(np.mean(known)) if known else None,
        "calibration_error": _calibration_error(answers.max(axis=1), answers.argmax(axis=1) == columns),
    }


def _auc(scores: Reals, is_positive: Bools) -> float | None:
    """How often a positive sample has a higher score than a negative one; ties count half."""
    n_positive = int(is_positive.sum())
    n_negative = len(scores) - n_positive
    if not (n_positive and n_negative):
        return None
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    above = ranks[places[is_positive]].sum() - n_positive * (n_positive + 1) / 2
    return float(above / (n_positive * n_negative))


def _calibration_error(probabilities: Reals, is_right: Bools) -> float:
    bins = np.minimum((probabilities * _BINS).astype(np.int64), _BINS - 1)
    gaps = np.bincount(bins, is_right, _BINS) - np.bincount(bins, probabilities, _BINS)
    return float(np.abs(gaps).sum() / len(probabilities))


def score_of(task: Task, answers: Sequence[Answers], method: str) -> Score:
    """Return what all answers together are worth."""
    labels = [label for some in answers for label in some.labels]
    predicted = [one for some in answers for one in some.predicted]
    if len(labels) < FEWEST:
        return Score(None, method, len(labels))
    if task is Task.CLASSIFICATION:
        hits = [type(a) is type(b) and a == b for a, b in zip(predicted, labels, strict=True)]
        return Score(float(np.mean(hits)), method, len(labels))
    y = np.array(labels, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # of the largest numbers
        residual = float(np.sum((y - np.array(predicted, np.float64)) ** 2))
        total = float(np.sum((y - y.mean()) ** 2))
    if not (math.isfinite(residual) and math.isfinite(total)):
        return Score(None, method, len(labels))
    return Score(1.0 - residual / total if total > 0 else float(residual == 0), method, len(labels))
