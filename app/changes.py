"""The mutations themselves: plain functions that change a model now, or refuse and change nothing.

They run on the event loop when they are short, and in a thread on a copy when they are long; they know neither.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import ConflictError, NotHeldError
from app.model import ServedModel
from app.outcomes import Keep, NewSamples, Row
from core.ids import canonical_number


def add_samples(model: ServedModel, samples: NewSamples, id_floor: int = 0) -> tuple[list[str], int]:
    """Add the samples whose ids are not held; those that are must have the same content.

    Parameters
    ----------
    model
        Changed.
    samples
        Checked as a whole before the first is added.
    id_floor
        Generated ids are at least this number.

    Returns
    -------
    tuple
        The ids in the order of the request, and how many samples are new.

    Raises
    ------
    ConflictError
        When ids are held with other content or another subject.
    InputError
        With the position in the request as `row`.
    """
    store = model.samples_
    ids = with_generated(samples.ids, max(store.next_id, id_floor))
    # What is sent is encoded before it is compared, so that 0.1 equals the float32 nearest to it.
    prepared = store.prepare(samples.rows, samples.labels, ids, allow_held=True)
    held = [row for row, name in enumerate(ids) if store.contains(name)]
    conflicts = [
        row
        for row in held
        if samples.subjects[row] != store.subject(ids[row]) or not store.same_content(ids[row], prepared, row)
    ]
    if conflicts:
        raise ConflictError(conflicts)
    new = _others(held, len(ids))
    if new:
        model.add_prepared(prepared.take(new) if held else prepared)
    for row in new:
        subject = samples.subjects[row]
        if subject is not None:
            store.set_subject(ids[row], subject)
    return ids, len(new)


def replace_sample(
    model: ServedModel, sample_id: str, row: Row, label: object, subject: str | Keep | None
) -> tuple[bool, bool]:
    """Give one held sample new content.

    Returns
    -------
    tuple
        Whether the model had to unlearn the old content, and whether anything about the sample changed.

    Raises
    ------
    NotHeldError
        When the id is not held.
    InputError
        When the content does not fit the schema.
    """
    store = model.samples_
    if not store.contains(sample_id):
        raise NotHeldError
    old_subject = store.subject(sample_id)
    new_subject = old_subject if isinstance(subject, Keep) else subject
    relearned = not store.same_content(sample_id, store.prepare([row], [label]), 0)
    changed = relearned or new_subject != old_subject
    if relearned:
        model.replace(sample_id, row, label)
    if changed:
        store.set_subject(sample_id, new_subject)
    return relearned, changed


def delete_ids(model: ServedModel, ids: Sequence[str]) -> tuple[list[str], int]:
    """Delete the samples that are held under `ids`; return their ids, and how many ids are not held."""
    store = model.samples_
    held = [name for name in ids if store.contains(name)]
    if held:
        model.delete(held)
    return held, len(ids) - len(held)


def delete_subjects(model: ServedModel, subjects: Sequence[str]) -> tuple[list[str], int]:
    """Delete every sample of `subjects`; return the samples' ids, and how many subjects have none."""
    samples = [model.samples_.ids_of_subject(subject) for subject in subjects]
    held = [name for ids in samples for name in ids]
    if held:
        model.delete(held)
    return held, sum(not ids for ids in samples)


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


def _others(rows: Sequence[int], n: int) -> list[int]:
    left_out = set(rows)
    return [row for row in range(n) if row not in left_out]
