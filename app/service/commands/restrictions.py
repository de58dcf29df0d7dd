"""Subjects are restricted, released and retained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oubli.app.service.commands.command import Command
from oubli.app.service.commands.held import held_of, names_leaving, retention_of
from oubli.app.service.results import Restricted, RestrictionKind
from oubli.core.samples.restricted import Mark

if TYPE_CHECKING:
    from oubli.app.ledger.entries import Entry
    from oubli.app.service.idempotency import IdempotencyKey
    from oubli.app.service.transaction import Transaction
    from oubli.core.model import Model


class RestrictionBody(ABC):
    """What the journal keeps of a `Restriction`."""

    __slots__ = ()

    @abstractmethod
    def apply(self, model: Model) -> None:
        """Change the model."""

    def redo(self, model: Model, exports: int) -> Model:
        """Change a model from a snapshot."""
        del exports
        self.apply(model)
        return model


@dataclass(frozen=True, slots=True)
class RestrictBody(RestrictionBody):
    """Subjects whose processing is restricted.

    Attributes
    ----------
    subjects
        Those of which something is held.
    at
        When, in milliseconds since 1970.
    keep
        Whether their samples are kept beyond their expiry.
    """

    do: str = field(default="restrict", init=False)
    subjects: Sequence[str]
    at: int
    keep: bool

    def apply(self, model: Model) -> None:
        """Keep the samples of the subjects, and unlearn them; a subject that is restricted stays so since it was."""
        store, known = model.samples_, model.samples_.restricted.marks
        for subject in self.subjects:
            # A sliding window may hold none of the samples that the model had.
            model.restrict(store.ids_of_subject(subject), {subject: Mark(self.at, self.keep)})
            if subject in known:
                known[subject] = known[subject]._replace(keeps=self.keep)


@dataclass(frozen=True, slots=True)
class ReleaseBody(RestrictionBody):
    """Subjects whose processing is restricted no longer.

    Attributes
    ----------
    subjects
        Those that are restricted.
    """

    do: str = field(default="release", init=False)
    subjects: Sequence[str]

    def apply(self, model: Model) -> None:
        """Learn the samples of the subjects again."""
        restricted = model.samples_.restricted
        model.release([name for subject in self.subjects for name in restricted.ids_of_subject(subject)])


@dataclass(frozen=True, slots=True)
class RetainBody(RestrictionBody):
    """How long samples of subjects are kept.

    Attributes
    ----------
    subjects
        Those of which something is held.
    period
        In milliseconds from the addition of each sample; None takes it back.
    at
        When it was said, in milliseconds since 1970.
    """

    do: str = field(default="retain", init=False)
    subjects: Sequence[str]
    period: int | None
    at: int

    def apply(self, model: Model) -> None:
        """Set the period, whether the subjects are restricted or not."""
        store = model.samples_
        for subject in self.subjects:
            holder = store.restricted.samples if subject in store.restricted.marks else store
            holder.set_retention(subject, self.period, self.at)


class Restriction(Command[Restricted]):
    """A command that restricts subjects or releases them, or says how long their samples are kept.

    Parameters
    ----------
    subjects
        Each once.
    ref
        The caller's case number.
    key
        The caller's idempotency key.

    Attributes
    ----------
    entry
        That of the ledger; known when it is written.
    """

    kind: RestrictionKind

    def __init__(self, subjects: Sequence[str], ref: str | None, key: IdempotencyKey | None) -> None:
        super().__init__(key)
        self._subjects = subjects
        self._ref = ref
        self._absent = 0
        self._n_moved = 0
        self._n_expired = 0
        self._at_ms = 0
        self._keep = False
        self.entry: Entry = {}

    def count(self, model: Model) -> int:
        """Return how many samples are held of the subjects."""
        return sum(len(held_of(model.samples_, subject)) for subject in self._subjects)

    @property
    def is_written(self) -> bool:
        """Return true: the ledger tells of it, also when nothing changes."""
        return True

    def notes(self, transaction: Transaction) -> bytes:
        """Return the entry."""
        self.entry, notes = transaction.ledger.restriction(
            kind=self.kind,
            at_ms=self._at_ms,
            subjects=self._subjects,
            fields={
                "ref": self._ref,
                "requested": len(self._subjects),
                "absent": self._absent,
                "n_samples": self._n_moved,
                **self.own_fields(),
                "guarantee": transaction.state.model.guarantee,
                "model_version": self.version,
            },
        )
        self.first_id = self.entry["index"]
        return notes

    def own_fields(self) -> dict[str, int | bool | None]:
        """Return what only entries of this kind say."""
        return {"expired": self._n_expired, "keep": self._keep}

    def apply(self, model: Model, alike: Sequence[Any]) -> None:
        """Change the model by the bodies of all."""
        for one in alike:
            if one.body is not None:
                one.body.apply(model)

    def apply_to_fewer(self, model: Model, gone: Sequence[str]) -> None:
        """Change the model, whatever it holds."""
        del gone
        self.apply(model, [self])

    def result(self) -> Restricted:
        """Return what became of it."""
        return Restricted.of_entry(self.entry, self.n_samples)


class RestrictSubjects(Restriction):
    """Keep all samples of some subjects, and learn from them no longer.

    Parameters
    ----------
    subjects, ref, key
        See `Restriction`.
    keep
        Whether the samples are kept beyond their expiry, until they are released.
    """

    is_refusable = False
    kind = "restricted"

    def __init__(self, subjects: Sequence[str], ref: str | None, key: IdempotencyKey | None, *, keep: bool) -> None:
        super().__init__(subjects, ref, key)
        self._keep = keep

    def plan(self, model: Model, transaction: Transaction) -> None:
        """Find what is held."""
        store, marks = model.samples_, model.samples_.restricted.marks
        moved = [name for subject in self._subjects for name in store.ids_of_subject(subject)]
        changed = [
            subject
            for subject in self._subjects
            if store.ids_of_subject(subject) or (subject in marks and marks[subject].keeps != self._keep)
        ]
        self._absent = sum(not held_of(store, subject) for subject in self._subjects)
        self._n_moved, self._at_ms = len(moved), transaction.now_ms()
        self.names = {("subject", subject) for subject in self._subjects} | {("id", name) for name in moved}
        self.gone = self.unlearned = moved
        self.n_more = -len(moved)
        self.body = RestrictBody(changed, self._at_ms, self._keep) if changed else None


class ReleaseSubjects(Restriction):
    """Learn from the samples of restricted subjects again.

    Parameters
    ----------
    subjects, ref, key
        See `Restriction`.
    n_expired
        How many of their samples were erased just before, because their time is over.
    """

    kind = "released"

    def __init__(self, subjects: Sequence[str], ref: str | None, key: IdempotencyKey | None, *, n_expired: int) -> None:
        super().__init__(subjects, ref, key)
        self._n_expired = n_expired

    def plan(self, model: Model, transaction: Transaction) -> None:
        """Find what is restricted.

        Raises
        ------
        CapacityError
            When the model cannot hold so many samples.
        """
        store, restricted = model.samples_, model.samples_.restricted
        known = [subject for subject in self._subjects if subject in restricted.marks]
        held = [name for subject in known for name in restricted.ids_of_subject(subject)]
        self._absent, self._n_moved, self._at_ms = len(self._subjects) - len(known), len(held), transaction.now_ms()
        self.names = {("subject", subject) for subject in self._subjects} | {("id", name) for name in held}
        self.n_more, self.adds, self.body = len(held), None, None
        if held:
            model.require_room(transaction.n_more + len(held))
            samples = [restricted.get(name) for name in held]
            self.adds = store.prepare([s.features for s in samples], [s.label for s in samples], held, allow_held=True)
            self.names |= names_leaving(model, len(held))
        if known:
            self.body = ReleaseBody(known)


class RetainSubjects(Restriction):
    """Say how long samples of subjects are kept from their addition.

    Parameters
    ----------
    subjects, ref, key
        See `Restriction`.
    seconds
        How long; None takes it back.
    """

    kind = "retained"

    def __init__(
        self, subjects: Sequence[str], seconds: int | None, ref: str | None, key: IdempotencyKey | None
    ) -> None:
        super().__init__(subjects, ref, key)
        self._seconds = seconds

    def own_fields(self) -> dict[str, int | bool | None]:
        """Return the period."""
        return {"seconds": self._seconds}

    def plan(self, model: Model, transaction: Transaction) -> None:
        """Find what is held."""
        store = model.samples_
        period_ms = None if self._seconds is None else self._seconds * 1000
        counts = {subject: len(ids) for subject in self._subjects if (ids := held_of(store, subject))}
        known = {subject: retention_of(store, subject) for subject in counts}
        changed = [
            subject for subject, period in known.items() if (None if period is None else period.period_ms) != period_ms
        ]
        self._absent, self._n_moved = len(self._subjects) - len(counts), sum(counts.values())
        self._at_ms = transaction.now_ms()
        self.names = {("subject", subject) for subject in self._subjects}
        self.body = RetainBody(changed, period_ms, self._at_ms) if changed else None
