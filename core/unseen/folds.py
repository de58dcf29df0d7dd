"""Samples that are answered by models that have not learned them: five fits, each on four fifths of the samples."""

from collections.abc import Callable

import numpy as np

from oubli.core.model import Model
from oubli.core.samples.store import SampleStore
from oubli.core.unseen.answers import chosen_slots
from oubli.core.unseen.scoring import Answers

FOLDS = 5
FOLDED = f"{FOLDS}-fold"


def take_samples(store: SampleStore, most: int) -> SampleStore:
    """Copy samples, at most so many, to a store of their own."""
    taken = SampleStore(store.schema, store.owner)
    slots = chosen_slots(store, most)
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
