"""Mutations, planned: checked against the model before anything is written or changed, so that they cannot fail after.

    plan    what a request asks for is compared with the samples held; refused, or found to be right
    record  the plan's body goes to the journal; the disk may still refuse
    make    the model is changed, which cannot fail any more

Plans of different requests are committed together when nothing that one touches is touched by another: then each sees
the model as if it came alone, in its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from oubli.app.errors import ConflictError, ErasedLatelyError, NotHeldError
from oubli.app.service.results import Keep, NewSamples, Replacement
from oubli.app.storage.models import ServedModel
from oubli.app.storage.records import AddBody, Body, DeleteBody, ReplaceBody
from oubli.core.samples.slots import canonical_number
from oubli.core.samples.store import Prepared

T = TypeVar("T")
LARGE = 32  # rows whose memory is overwritten when it is done with


@dataclass(frozen=True, slots=True)
class Ground:
    """What plans are checked against besides the model.

    Attributes
    ----------
    first_id
        The smallest number that may be generated as an id.
    erased_lately
        Whether an id was erased so lately that it may only come back when the caller means it.
    origin
        Number of snapshots exported so far; kept with samples that are added.
    default_expiry
        When samples that say nothing expire, in milliseconds since 1970; None for never.
    """

    first_id: int
    erased_lately: Callable[[str], bool]
    origin: int = 0
    default_expiry: int | None = None


@dataclass(slots=True)
class Plan(Generic[T]):
    """A mutation that may be made.

    Attributes
    ----------
    outcome
        What is answered.
    body
        For the journal; None when no sample changes.
    make
        Changes the model. Not used for plain additions and deletions, which are merged.
    adds, deletes
        What a plain addition or deletion brings and takes.
    after_adding
        What is left to do when `adds` are held.
    names
        Ids and subjects that no other plan of the same commit may touch.
    gone
        Ids whose old content is gone then.
    next_id
        The first number that is free after it.
    first_generated
        The first id that was generated; None when none was.
    """

    outcome: T
    body: Body | None = None
    make: Callable[[ServedModel], None] | None = None
    adds: Prepared | None = None
    deletes: Sequence[str] = ()
    after_adding: Callable[[ServedModel], None] | None = None
    names: set[tuple[str, str]] = field(default_factory=set)
    gone: Sequence[str] = ()
    next_id: int = 0
    first_generated: int | None = None


def plan_addition(model: ServedModel, ground: Ground, samples: NewSamples) -> Plan[tuple[list[str], int]]:
    """Plan to add the samples whose ids are not held; those that are must have the same content.

    Returns
    -------
    Plan
        Its outcome: the ids in the order of the request, and how many samples are new.

    Raises
    ------
    ConflictError
        When ids are held with other content, another subject or another expiry.
    ErasedLatelyError
        When ids were erased lately and the samples do not say that they may come back.
    InputError
        With the position in the request as `row`.
    """
    store, given_ids = model.samples_, samples.ids
    ids = with_generated(given_ids, max(store.next_id, ground.first_id))
    # What is sent is encoded before it is compared, so that 0.1 equals the float32 nearest to it.
    prepared = store.prepare(samples.rows, samples.labels, ids, allow_held=True)
    held = [row for row, name in enumerate(ids) if store.contains(name)]
    conflicts = [row for row in held if not _is_same(model, samples, row, ids[row], prepared)]
    if conflicts:
        raise ConflictError(conflicts)
    new = _others(held, len(ids)) if held else list(range(len(ids)))
    late = [row for row in new if not samples.readd[row] and ground.erased_lately(ids[row])]
    if late:
        raise ErasedLatelyError(late)
    names = {("id", name) for name in ids}
    names.update(("subject", subject) for subject in samples.subjects if subject is not None)
    if not new:
        return Plan((ids, 0), names=names)
    names.update(("id", name) for name in model.leaving(len(new)))
    if held:
        samples, prepared = samples.take(new), prepared.take(new)
    new_ids = [ids[row] for row in new]
    expires = [ground.default_expiry if at is None else at for at in samples.expires]
    next_id = end_of_ids(new_ids, max(store.next_id, ground.first_id))
    body = AddBody(
        new_ids,
        samples.rows,
        samples.labels,
        samples.subjects if any(subject is not None for subject in samples.subjects) else None,
        expires if any(at is not None for at in expires) else None,
        next_id,
    )

    def attach(live: ServedModel) -> None:
        attach_details(live, body, ground.origin)

    generated = [int(name) for name, given in zip(ids, given_ids, strict=True) if given is None]
    return Plan(
        (ids, len(new)),
        body,
        adds=prepared,
        after_adding=attach,
        names=names,
        next_id=next_id,
        first_generated=generated[0] if generated else None,
    )


def attach_details(model: ServedModel, body: AddBody, origin: int) -> None:
    """Keep with samples just added what is not learned from: subject, expiry, and the number of exports so far.

    Those that have left a sliding window again, because more came with them than it holds, are passed over.
    """
    store = model.samples_
    if body.subjects is not None:
        for name, subject in zip(body.ids, body.subjects, strict=True):
            if subject is not None and store.contains(name):
                store.set_subject(name, subject)
    if body.expires is not None:
        for name, at in zip(body.ids, body.expires, strict=True):
            if at is not None and store.contains(name):
                store.set_expiry(name, at)
    if origin:
        store.set_origins([name for name in body.ids if store.contains(name)], origin)


def plan_replacement(model: ServedModel, ground: Ground, asked: Replacement) -> Plan[tuple[bool, bool]]:
    """Plan to give one held sample new content.

    Returns
    -------
    Plan
        Its outcome: whether the model has to unlearn the old content, and whether anything about the sample changes.

    Raises
    ------
    NotHeldError
        When the id is not held.
    InputError
        When the content does not fit the schema.
    """
    store, name = model.samples_, asked.sample_id
    if not store.contains(name):
        raise NotHeldError
    old_subject, old_expiry = store.subject(name), store.expiry(name)
    subject = old_subject if isinstance(asked.subject, Keep) else asked.subject
    expires = old_expiry if isinstance(asked.expires, Keep) else asked.expires
    relearned = not store.same_content(name, store.prepare([asked.row], [asked.label]), 0)
    changed = relearned or subject != old_subject or expires != old_expiry
    names = {("id", name)} | {("subject", text) for text in (old_subject, subject) if text is not None}
    if not changed:
        return Plan((False, False), names=names)
    body = ReplaceBody(name, asked.row, asked.label, subject, expires)

    def make(live: ServedModel) -> None:
        make_replacement(live, body, relearned=relearned, origin=ground.origin)

    return Plan((relearned, True), body, make=make, names=names, gone=[name])


def make_replacement(model: ServedModel, body: ReplaceBody, *, relearned: bool, origin: int) -> None:
    """Give a held sample the content of a body."""
    store = model.samples_
    if relearned:
        model.replace(body.id, body.row, body.label)
        store.set_origins([body.id], origin)
    store.set_subject(body.id, body.subject)
    store.set_expiry(body.id, body.expires)


def plan_deletion(model: ServedModel, ids: Sequence[str]) -> Plan[tuple[list[str], int]]:
    """Plan to delete what is held under `ids`; its outcome: their ids, and how many ids are not held."""
    store = model.samples_
    held = [name for name in ids if store.contains(name)]
    return _deletion(model, held, len(ids) - len(held), [("id", name) for name in ids])


def plan_deletion_of_subjects(model: ServedModel, subjects: Sequence[str]) -> Plan[tuple[list[str], int]]:
    """Plan to delete every sample of `subjects`; its outcome: the samples' ids, and how many subjects have none."""
    samples = [model.samples_.ids_of_subject(subject) for subject in subjects]
    held = [name for ids in samples for name in ids]
    names = [("subject", subject) for subject in subjects]
    return _deletion(model, held, sum(not ids for ids in samples), [*names, *(("id", name) for name in held)])


def _deletion(
    model: ServedModel, held: list[str], absent: int, names: list[tuple[str, str]]
) -> Plan[tuple[list[str], int]]:
    touched = set(names)
    if not held:
        return Plan((held, absent), names=touched)
    # An addition to a subject whose last sample goes would otherwise be committed beside it, in either order.
    subjects = map(model.samples_.subject, held)
    touched.update(("subject", subject) for subject in subjects if subject is not None)
    return Plan((held, absent), DeleteBody(held), deletes=held, names=touched, gone=held)


def make_held(model: ServedModel, plans: Sequence[Plan[Any]]) -> None:
    """Change a model that was fitted on the samples of another by plans for that one.

    A sliding window may hold fewer of them: what it does not hold is neither deleted nor replaced.
    """
    if model.guarantee == "exact":  # has no window; and makes what is alike as one
        make_all(model, plans)
        return
    store = model.samples_
    for plan in plans:
        if plan.adds is None:
            gone = [name for name in plan.gone if store.contains(name)]
            if not gone:
                continue
            if plan.deletes:
                plan = replace(plan, deletes=gone)
        make_all(model, [plan])


def make_all(model: ServedModel, plans: Sequence[Plan[object]]) -> None:
    """Change the model by plans that touch nothing in common, in their order.

    Of an exact model neighbouring additions are made as one, and so are neighbouring deletions: the result is the
    same. Of others each is made by itself.
    """
    mergeable = model.guarantee == "exact"
    start = 0
    while start < len(plans):
        end = start + 1
        first = plans[start]
        while mergeable and end < len(plans) and _is_like(first, plans[end]):
            end += 1
        _make_alike(model, plans[start:end])
        start = end


def _is_like(first: Plan[object], other: Plan[object]) -> bool:
    return (first.adds is not None and other.adds is not None) or bool(first.deletes and other.deletes)


def _make_alike(model: ServedModel, plans: Sequence[Plan[object]]) -> None:
    first = plans[0]
    if first.make is not None:
        first.make(model)
    elif first.deletes:
        model.delete(first.deletes if len(plans) == 1 else [name for plan in plans for name in plan.deletes])
    elif first.adds is not None:
        rows = [plan.adds for plan in plans if plan.adds is not None]
        model.add_prepared(rows[0] if len(rows) == 1 else Prepared.merged(rows))
        for plan in plans:
            if plan.after_adding is not None:
                plan.after_adding(model)


def overwrite(plans: Sequence[Plan[Any]]) -> None:
    """Overwrite the numbers of large additions that the model holds by now: freeing memory does not empty it.

    Of a small one that would take as long as a good part of the addition.
    """
    for plan in plans:
        adds = plan.adds
        if adds is not None and adds.n >= LARGE:
            adds.cells.fill(0)
            if type(adds.labels) is np.ndarray:
                adds.labels.fill(0)


def end_of_ids(ids: Sequence[str | None], first: int) -> int:
    """Return the number above all that `with_generated` may give out from `first` on."""
    numbers = [canonical_number(name) for name in ids if name is not None]
    above = max((number + 1 for number in numbers if number is not None), default=0)
    return max(first, above) + sum(name is None for name in ids)


def with_generated(ids: Sequence[str | None], first: int) -> list[str]:
    """Return ids with a generated one for each None: numbers from `first` on, above all numbers among the others."""
    n_generated = sum(name is None for name in ids)
    number = end_of_ids(ids, first) - n_generated if n_generated else 0
    names = []
    for name in ids:
        if name is None:
            name = str(number)
            number += 1
        names.append(name)
    return names


def _is_same(model: ServedModel, samples: NewSamples, row: int, name: str, prepared: Prepared) -> bool:
    """Whether a sample that was sent is the one held. An expiry that was left out is not compared: it moves."""
    store = model.samples_
    expires = samples.expires[row]
    return (
        samples.subjects[row] == store.subject(name)
        and (expires is None or expires == store.expiry(name))
        and store.same_content(name, prepared, row)
    )


def _others(rows: Sequence[int], n: int) -> list[int]:
    left_out = set(rows)
    return [row for row in range(n) if row not in left_out]
