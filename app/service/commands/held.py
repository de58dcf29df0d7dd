"""What commands ask of the samples held: whose they are, which leave, which are restricted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oubli.app.errors import RestrictedError

if TYPE_CHECKING:
    from oubli.core.model import Model
    from oubli.core.samples.additions import Retention
    from oubli.core.samples.restricted import RestrictedSamples
    from oubli.core.samples.store import SampleStore


def names_leaving(model: Model, n_new: int) -> set[tuple[str, str]]:
    """Return the ids that leave by themselves when so many samples are added, and their subjects."""
    ids = model.leaving(n_new)
    if not ids:
        return set()
    subjects = {subject for name in ids if (subject := model.samples_.subject(name)) is not None}
    return {("id", name) for name in ids} | {("subject", subject) for subject in subjects}


def held_of(store: SampleStore, subject: str) -> list[str]:
    """Return the ids of a subject's samples, restricted or not."""
    return store.ids_of_subject(subject) or store.restricted.ids_of_subject(subject)


def retention_of(store: SampleStore, subject: str) -> Retention | None:
    """Return how long samples of a subject are kept, restricted or not; None when nothing is said."""
    return (store.restricted.samples if subject in store.restricted.marks else store).retention(subject)


def require_unrestricted(
    restricted: RestrictedSamples, ids: Sequence[str], subjects: Sequence[str | None] = ()
) -> None:
    """Refuse samples whose ids or subjects are restricted.

    Raises
    ------
    RestrictedError
        With the positions of both.
    """
    rows = [row for row, name in enumerate(ids) if restricted.holds(name)]
    of_subjects = [row for row, subject in enumerate(subjects) if subject in restricted.marks]
    if rows or of_subjects:
        raise RestrictedError(rows, of_subjects)
