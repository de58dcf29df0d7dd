"""A mutation as the service handles it: what is to be done, how long that takes, and what its outcome means.

`changes` does the work; the service decides when and where, and these records tell it what it must know for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from app.changes import add_samples, delete_ids, delete_subjects, replace_sample
from app.costs import Cost
from app.erased import ERASED, RECTIFIED
from app.model import ServedModel
from app.outcomes import Added, Keep, NewSamples, Row

T = TypeVar("T")


@dataclass(slots=True)
class Change(Generic[T]):
    """Something to be done to the model.

    Attributes
    ----------
    apply
        Does it.
    cost, n_items
        How long it will take.
    changed
        Whether an outcome means that the samples held are others than before.
    erased
        The ids in an outcome whose old content is gone, and whether it was erased or rectified.
    new_ids
        Of samples to be added; None for those to be generated.
    refusable
        Whether a full queue refuses it.
    """

    apply: Callable[[ServedModel], T]
    cost: Cost
    n_items: int
    changed: Callable[[T], bool]
    erased: Callable[[T], tuple[Sequence[str], int]] | None = None
    new_ids: Sequence[str | None] = ()
    refusable: bool = True


@dataclass(slots=True)
class Done(Generic[T]):
    """A change that was made, with what was true at that instant."""

    outcome: T
    n_samples: int
    model_version: int


def addition(samples: NewSamples, id_floor: int, cost: Cost) -> Change[tuple[list[str], int]]:
    """Return the change that adds samples; generated ids are at least `id_floor`."""
    return Change(
        partial(add_samples, samples=samples, id_floor=id_floor),
        cost,
        len(samples),
        changed=_is_any_new,
        new_ids=samples.ids,
    )


def added(done: Done[tuple[list[str], int]]) -> Added:
    """Return what an addition has done."""
    ids, n_new = done.outcome
    return Added(ids, n_new, done.n_samples, done.model_version)


def replacement(
    sample_id: str, row: Row, label: object, subject: str | Keep | None, cost: Cost
) -> Change[tuple[bool, bool]]:
    """Return the change that rectifies one sample."""
    return Change(
        partial(replace_sample, sample_id=sample_id, row=row, label=label, subject=subject),
        cost,
        1,
        changed=lambda outcome: outcome[1],
        erased=lambda outcome: ([sample_id] if outcome[1] else [], RECTIFIED),
    )


def deletion(names: Sequence[str], cost: Cost) -> Change[tuple[list[str], int]]:
    """Return the change that deletes what is held under ids."""
    return _deletion(partial(delete_ids, ids=names), len(names), cost)


def deletion_of_subjects(names: Sequence[str], model: ServedModel, cost: Cost) -> Change[tuple[list[str], int]]:
    """Return the change that deletes the samples of subjects; the model only tells how many there are."""
    n_samples = sum(len(model.samples_.ids_of_subject(name)) for name in names)
    return _deletion(partial(delete_subjects, subjects=names), n_samples, cost)


def _deletion(
    apply: Callable[[ServedModel], tuple[list[str], int]], n_samples: int, cost: Cost
) -> Change[tuple[list[str], int]]:
    return Change(apply, cost, n_samples, changed=_is_any_deleted, erased=_ids_of_deletion, refusable=False)


def _is_any_new(outcome: tuple[list[str], int]) -> bool:
    return outcome[1] > 0


def _is_any_deleted(outcome: tuple[list[str], int]) -> bool:
    return bool(outcome[0])


def _ids_of_deletion(outcome: tuple[list[str], int]) -> tuple[Sequence[str], int]:
    return outcome[0], ERASED
