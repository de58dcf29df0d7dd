"""How good a model's answers are for samples that it has not learned, of the samples that it holds.

    out-of-bag   a forest in which each sample is in a share of the trees: the others answer for it
    held-out     boosting with early stopping: the samples that it validates on, which no tree has learned
    5-fold       every other model: five are fitted on four fifths of the samples, and answer for the last fifth

A sample's fold is a hash of its id, so that the same samples are compared whatever the parameters are, and one sample
more or less moves no other. Of many samples those with the smallest hashes are looked at.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from oubli.core.array_types import Bools, Ints, Reals
from oubli.core.data.values import Task
from oubli.core.errors import EmptyModelError, UnavailableError
from oubli.core.model import Model
from oubli.core.samples.store import SampleStore

FOLDS = 5
FEWEST = 10  # samples below which a score says nothing
OUT_OF_BAG, HELD_OUT, FOLDED = "out-of-bag", "held-out", f"{FOLDS}-fold"
_BINS = 10  # of probabilities, whose calibration is told
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


class Unseen(NamedTuple):
    """What a model answers for samples that it holds, by trees that have not learned them.

    Attributes
    ----------
    slots : of the samples, rising.
    answers : float64[n, n_classes] in the order of the classes held, or float64[n].
    """

    slots: Ints
    answers: Reals


def metric_of(task: Task) -> str:
    """Return what a score's value is called."""
    return "accuracy" if task is Task.CLASSIFICATION else "r2"


def out_of_bag(model: Model, most: int) -> Score | None:
    """Score a model by the trees that have not learned a sample; it has no tags, and is only read.

    Returns
    -------
    Score or None
        None where all trees learn all samples.
    """
    unseen = _ask(model, _slots_of(model.samples_, most))
    return None if unseen is None else score_unseen(model, unseen)


def unseen_of(model: Model, most: int | None = None) -> Unseen:
    """Predict samples held by trees that have not learned them, all or so many; in a read of the model.

    O(n T depth) once for each version: it is kept with the model until the next change.

    Raises
    ------
    InputError
        When all trees learn all samples.
    EmptyModelError
        When there is no sample.
    """
    model.check_is_fitted()
    store = model.samples_
    if len(store) == 0:
        raise EmptyModelError("the model holds no samples: add some before asking how it predicts them")
    kept, names = store.changes.derived, (f"slots of {most}", f"answers of {most}")
    if names[1] not in kept:
        model.resolve()
        found = _ask(model, store.slots() if most is None else np.sort(_slots_of(store, most)))
        if found is None:
            raise UnavailableError(
                f"all trees of this {type(model).__name__} learn all samples, so that none can be predicted by others: "
                "use a forest with occurrence < 1, or incremental-boosting with early_stopping"
            )
        kept.update(zip(names, found, strict=True))  # the answers last: who sees them sees both
    return Unseen(*(kept[name] for name in names))


def out_of_bag_answers(model: Model) -> Unseen:
    """Return what a forest's trees answer for samples that they have not learned; raises as `unseen_of` does."""
    if model.is_boosted:
        raise UnavailableError(
            "there is no tree of a boosted model that has not learned from a sample: ask a forest, or `influence` for "
            "what each sample does to predictions"
        )
    return unseen_of(model)


def _ask(model: Model, slots: Ints) -> Unseen | None:
    found = model.engine_.predict_unseen(model.problem(), slots, model.class_order())
    if found is None:
        return None
    answers, known = found
    return Unseen(slots[known], answers[known])


def label_columns(model: Model, slots: Ints) -> Ints:
    """The columns of the classes of samples in answers."""
    order = model.class_order()
    columns = np.zeros(int(order.max(initial=-1)) + 1, np.int64)
    columns[order] = np.arange(len(order))
    return columns[model.samples_.class_codes[slots]]


def score_unseen(model: Model, unseen: Unseen) -> Score:
    """Score a model by what it answers for samples that it has not learned."""
    store, (slots, answers) = model.samples_, unseen
    if model.task is Task.CLASSIFICATION:
        given = Answers(label_columns(model, slots).tolist(), answers.argmax(axis=1).tolist() if len(slots) else [])
    else:
        given = Answers(store.y[slots].tolist(), answers.tolist())
    return score_of(model.task, [given], HELD_OUT if model.is_boosted else OUT_OF_BAG)


def quality_of(model: Model, most: int) -> dict[str, Any] | None:
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


def _class_quality(model: Model, unseen: Unseen) -> dict[str, float | None]:
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


def take_samples(store: SampleStore, most: int) -> SampleStore:
    """Copy samples, at most so many, to a store of their own."""
    taken = SampleStore(store.schema, store.owner)
    slots = _slots_of(store, most)
    if len(slots):
        taken.commit(store.prepared_again(slots))
    return taken


def answer_fold(new_estimator: Callable[[], Model], samples: SampleStore, number: int) -> Answers:
    """Fit an estimator on all samples but those of a fold, and predict these; nothing of the model stays.

    Parameters
    ----------
    new_estimator : makes one that is not fitted.
    samples : all of them.
    number : of the fold, from 0 to `FOLDS` - 1.
    """
    slots = samples.slots()
    folds = samples.id_hashes[slots] % np.uint64(FOLDS)
    learned, asked = slots[folds != number], slots[folds == number]
    if not (len(learned) and len(asked)):
        return Answers([], [])
    store = SampleStore(samples.schema, samples.owner)
    store.commit(samples.prepared_again(learned))
    model = new_estimator()
    try:
        model.fit_held(store)
        held = [samples.get(name) for name in samples.names(asked)]
        predicted = model.query([sample.features for sample in held], frozen=True).labels.tolist()
        return Answers([sample.label for sample in held], predicted)
    finally:
        model.shred()
        store.shred()  # which a fit that failed has left


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


def _slots_of(store: SampleStore, most: int) -> Ints:
    """Return the slots of the samples with the smallest hashes of ids, in their order."""
    slots = store.slots()
    return slots[np.argsort(store.id_hashes[slots], kind="stable")[:most]]
