"""What a model answers for samples that it holds, by trees that have not learned them.

Answers are kept with the version of the model that gave them, until the next change.
"""

from typing import NamedTuple

import numpy as np

from oubli.core.array_types import Ints, Reals
from oubli.core.base import Keepable
from oubli.core.errors import EmptyModelError, UnavailableError
from oubli.core.samples.store import SampleStore


class Unseen(NamedTuple):
    """What a model answers for samples that it holds, by trees that have not learned them.

    Attributes
    ----------
    slots : of the samples, rising.
    answers : float64[n, n_classes] in the order of the classes held, or float64[n].
    """

    slots: Ints
    answers: Reals


def unseen_of(model: Keepable, most: int | None = None) -> Unseen:
    """Predict samples held by trees that have not learned them, all or so many; in a read of a model without tags.

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
        found = ask(model, store.slots() if most is None else np.sort(chosen_slots(store, most)))
        if found is None:
            raise UnavailableError(
                f"all trees of this {type(model).__name__} learn all samples, so that none can be predicted by others: "
                "use a forest with occurrence < 1, or incremental-boosting with early_stopping"
            )
        kept.update(zip(names, found, strict=True))  # the answers last: who sees them sees both
    return Unseen(*(kept[name] for name in names))


def out_of_bag_answers(model: Keepable) -> Unseen:
    """Return what a forest's trees answer for samples that they have not learned; raises as `unseen_of` does."""
    if model.is_boosted:
        raise UnavailableError(
            "there is no tree of a boosted model that has not learned from a sample: ask a forest, or `influence` for "
            "what each sample does to predictions"
        )
    return unseen_of(model)


def ask(model: Keepable, slots: Ints) -> Unseen | None:
    """Predict some samples by trees that have not learned them; None where all trees learn all."""
    found = model.engine_.predict_unseen(model.samples_.problem(), slots, model.class_order())
    if found is None:
        return None
    answers, known = found
    return Unseen(slots[known], answers[known])


def label_columns(model: Keepable, slots: Ints) -> Ints:
    """The columns of the classes of samples in answers."""
    order = model.class_order()
    columns = np.zeros(int(order.max(initial=-1)) + 1, np.int64)
    columns[order] = np.arange(len(order))
    return columns[model.samples_.class_codes[slots]]


def chosen_slots(store: SampleStore, most: int) -> Ints:
    """Return the slots of the samples with the smallest hashes of ids, in their order."""
    slots = store.slots()
    return slots[np.argsort(store.id_hashes[slots], kind="stable")[:most]]
