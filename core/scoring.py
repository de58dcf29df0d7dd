"""How good a model's answers are for samples that it has not learned, of the samples that it holds.

    out-of-bag   a forest in which each sample is in a share of the trees: the others answer for it
    5-fold       every other model: five are fitted on four fifths of the samples, and answer for the last fifth

A sample's fold is a hash of its id, so that the same samples are compared whatever the parameters are, and one sample
more or less moves no other. Of many samples those with the smallest hashes are looked at.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from oubli.core.array_types import Ints
from oubli.core.data.values import Task
from oubli.core.model import Model
from oubli.core.samples.store import SampleStore

FOLDS = 5
FEWEST = 10  # samples below which a score says nothing
OUT_OF_BAG, FOLDED = "out-of-bag", f"{FOLDS}-fold"


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


def out_of_bag(model: Model, most: int) -> Score | None:
    """Score a model by the trees that have not learned a sample; it has no tags, and is only read.

    Returns
    -------
    Score or None
        None where all trees learn all samples.
    """
    store = model.samples_
    slots = _slots_of(store, most)
    order = model.class_order()
    found = model.engine_.predict_unseen(model.problem(), slots, order)
    if found is None:
        return None
    answers, known = found
    slots, answers = slots[known], answers[known]
    if model.task is Task.CLASSIFICATION:
        codes = order[answers.argmax(axis=1)] if len(slots) else slots
        given = Answers(store.class_codes[slots].tolist(), codes.tolist())
    else:
        given = Answers(store.y[slots].tolist(), answers.tolist())
    return score_of(model.task, [given], OUT_OF_BAG)


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
