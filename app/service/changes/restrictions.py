"""Subjects are restricted, released and retained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from oubli.app.ledger.entries import Entry, IdempotencyRecord
from oubli.app.service.changes.command import MANY_NAMES, Command, Transaction, names_of
from oubli.app.times import to_text
from oubli.core.model import Model
from oubli.core.samples.owners import Mark

RestrictionKind = Literal["restricted", "released", "retained"]


@dataclass(frozen=True, slots=True)
class Restricted:
    """What became of a request to restrict subjects, to release them, or to keep their samples for some time only.

    Attributes
    ----------
    kind
        Which of the three.
    ref
        The caller's case number.
    requested, absent
        Subjects named, and those of them of which nothing is held, or nothing is restricted.
    samples
        How many left the trees, were learned again, or are kept for some time only.
    expired
        Samples that were released too late: their time is over, and they are erased instead.
    seconds
        How long samples are kept from their addition; None: nothing is said.
    guarantee
        Of the model.
    model_version, n_samples
        Of the model after it.
    at
        When, in RFC 3339.
    ledger_index, ledger_head
        Index and hash of the ledger's entry; None when nothing changed and it was not written down.
    """

    # Many fields: they are those of the answer, and of the entry of the ledger.
    kind: RestrictionKind
    ref: str | None
    requested: int
    absent: int
    samples: int
    expired: int
    guarantee: str
    model_version: int
    n_samples: int
    at: str
    ledger_index: int | None
    ledger_head: str | None
    seconds: int | None = None

    @classmethod
    def of_entry(cls, entry: Entry, n_samples: int) -> Restricted:
        """Return what an entry of the ledger says."""
        return cls(
            kind=entry["type"],
            samples=entry["n_samples"],
            n_samples=n_samples,
            expired=entry.get("expired", 0),
            seconds=entry.get("seconds"),
            ledger_index=entry["index"],
            ledger_head=entry["hash"],
            **{name: entry[name] for name in ("ref", "requested", "absent", "guarantee", "model_version", "at")},
        )


_MANY = 2**32  # more samples than a model holds


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
        # The trees of other models depend on how samples leave, so that a replay has to take the same steps.
        steps = [self.subjects] if model.guarantee == "exact" else [[subject] for subject in self.subjects]
        for subjects in steps:
            # A sliding window may hold none of the samples that the model had.
            held = {subject: store.ids_of_subject(subject) for subject in subjects}
            marks = {subject: Mark(self.at, self.keep) for subject, ids in held.items() if ids}
            model.restrict([name for ids in held.values() for name in ids], marks)
        for subject in self.subjects:
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
            holder = store.restricted if subject in store.restricted.marks else store
            holder.set_retention(subject, self.period, self.at)


@dataclass(eq=False, repr=False)
class Restriction(Command[Restricted]):
    """A command that restricts subjects or releases them, or says how long their samples are kept.

    Parameters
    ----------
    subjects
        Whose samples; names that are repeated count once.
    ref
        The caller's case number.

    Attributes
    ----------
    entry
        That of the ledger; empty until it is written, and when it is not because nothing changes.
    """

    kind: ClassVar[RestrictionKind]

    subjects: Sequence[str]
    ref: str | None = field(default=None, kw_only=True)
    entry: Entry = field(default_factory=dict, init=False)
    _is_recorded: bool = field(default=False, init=False)
    _guarantee: str = field(default="", init=False)
    _absent: int = field(default=0, init=False)
    _n_moved: int = field(default=0, init=False)
    _at_ms: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.subjects = list(dict.fromkeys(self.subjects))

    def count(self, model: Model) -> int:
        """Return how many samples are held of the subjects, or how many subjects there are, if that is many."""
        if len(self.subjects) > MANY_NAMES:
            return len(self.subjects)
        return sum(len(model.samples_.held_of(subject)) for subject in self.subjects)

    @property
    def is_written(self) -> bool:
        """Whether it goes to the journal: the entry does, also when nothing changes."""
        return self._is_recorded or self.key is not None

    def plan(self, model: Model, transaction: Transaction) -> None:
        """Find what changes, and whether it gets an entry of the ledger."""
        self._at_ms, self._guarantee = transaction.now_ms(), model.guarantee
        self.find(model, transaction)
        has_erased = bool(self.own_fields().get("expired"))
        self._is_recorded = self.body is not None or has_erased or self.is_admitted(transaction)

    @abstractmethod
    def find(self, model: Model, transaction: Transaction) -> None:
        """Find what changes."""

    def notes(self, transaction: Transaction) -> bytes:
        """Return the entry; without one, keep for the idempotency key what `recall` needs."""
        if not self._is_recorded:
            self.n_new, self.first_id = 1 + self._n_moved + _MANY * self._absent, self._at_ms
            return b""
        self.entry, notes = transaction.ledger.restriction(
            kind=self.kind, at_ms=self._at_ms, subjects=self.subjects, fields=self._fields()
        )
        self.first_id = self.entry["index"]
        return notes

    def _fields(self) -> dict[str, Any]:
        """Return what the entry says besides its kind and its time."""
        return {
            "ref": self.ref,
            "requested": len(self.subjects),
            "absent": self._absent,
            "n_samples": self._n_moved,
            **self.own_fields(),
            "guarantee": self._guarantee,
            "model_version": self.version,
        }

    @abstractmethod
    def own_fields(self) -> dict[str, int | bool | None]:
        """Return what only entries of this kind say."""

    def apply(self, model: Model) -> None:
        """Change the model by the body."""
        if isinstance(self.body, RestrictionBody):
            self.body.apply(model)

    def apply_to_fewer(self, model: Model, gone: Sequence[str]) -> None:
        """Change the model, whatever it holds."""
        del gone
        self.apply(model)

    def recall(self, earlier: IdempotencyRecord, at_ms: int, guarantee: str) -> Restricted:
        """Return what was answered to the same request at a time, when nothing changed and there is no entry."""
        self._absent, self._n_moved = divmod(earlier.n_new - 1, _MANY)
        self._guarantee, self._at_ms = guarantee, at_ms
        self.version, self.n_samples = earlier.model_version, earlier.n_samples
        return self.result()

    def result(self) -> Restricted:
        """Return what became of it."""
        nothing = {"type": self.kind, "at": to_text(self._at_ms), "index": None, "hash": None}
        return Restricted.of_entry(self.entry or {**nothing, **self._fields()}, self.n_samples)


@dataclass(eq=False, repr=False)
class RestrictSubjects(Restriction):
    """Keep all samples of some subjects, and learn from them no longer.

    Parameters
    ----------
    subjects, ref
        See `Restriction`.
    keep
        Whether the samples are kept beyond their expiry, until they are released.
    """

    is_refusable = False
    kind = "restricted"

    keep: bool = field(kw_only=True)

    def own_fields(self) -> dict[str, int | bool | None]:
        """Return whether samples are kept beyond their expiry."""
        return {"expired": 0, "keep": self.keep}

    def find(self, model: Model, transaction: Transaction) -> None:
        """Find what is held."""
        store, marks = model.samples_, model.samples_.restricted.marks
        moved = [name for subject in self.subjects for name in store.ids_of_subject(subject)]
        changed = [
            subject
            for subject in self.subjects
            if store.ids_of_subject(subject) or (subject in marks and marks[subject].keeps != self.keep)
        ]
        self._absent = sum(not store.held_of(subject) for subject in self.subjects)
        self._n_moved = len(moved)
        self.names = {("subject", subject) for subject in self.subjects} | {("id", name) for name in moved}
        self.gone = moved
        self.n_more = -len(moved)
        self.takes_long = bool(moved) and model.takes_long(None, moved, 0, transaction.turn)
        self.body = RestrictBody(changed, self._at_ms, self.keep) if changed else None


@dataclass(eq=False, repr=False)
class ReleaseSubjects(Restriction):
    """Learn from the samples of restricted subjects again.

    Parameters
    ----------
    subjects, ref
        See `Restriction`.
    n_expired
        How many of their samples were erased just before, because their time is over.
    """

    kind = "released"

    n_expired: int = field(default=0, kw_only=True)

    def own_fields(self) -> dict[str, int | bool | None]:
        """Return how many samples were erased just before."""
        return {"expired": self.n_expired, "keep": False}

    def find(self, model: Model, transaction: Transaction) -> None:
        """Find what is restricted.

        Raises
        ------
        CapacityError
            When the model cannot hold so many samples.
        """
        store, restricted = model.samples_, model.samples_.restricted
        known = [subject for subject in self.subjects if subject in restricted.marks]
        held = [name for subject in known for name in restricted.ids_of_subject(subject)]
        self._absent, self._n_moved = len(self.subjects) - len(known), len(held)
        self.names = {("subject", subject) for subject in self.subjects} | {("id", name) for name in held}
        self.n_more, self.n_classes, self.takes_long, self.body = len(held), 0, False, None
        if held:
            model.require_room(transaction.turn.n_more + len(held))
            samples = [restricted.get(name) for name in held]
            adds = store.prepare([s.features for s in samples], [s.label for s in samples], held, allow_held=True)
            self.names |= names_of(*model.leaving(len(held)))
            self.n_classes = store.admit_classes(adds)
            self.takes_long = model.takes_long(adds, (), self.n_classes, transaction.turn)
        if known:
            self.body = ReleaseBody(known)


@dataclass(eq=False, repr=False)
class RetainSubjects(Restriction):
    """Say how long samples of subjects are kept from their addition.

    Parameters
    ----------
    subjects, ref
        See `Restriction`.
    seconds
        How long; None takes it back.
    """

    kind = "retained"

    seconds: int | None = field(kw_only=True)

    def own_fields(self) -> dict[str, int | bool | None]:
        """Return the period."""
        return {"seconds": self.seconds}

    def find(self, model: Model, transaction: Transaction) -> None:
        """Find what is held."""
        store = model.samples_
        period_ms = None if self.seconds is None else self.seconds * 1000
        held = {subject: ids for subject in self.subjects if (ids := store.held_of(subject))}
        known = {subject: store.retention_of(subject) for subject in held}
        changed = [
            subject for subject, period in known.items() if (None if period is None else period.period_ms) != period_ms
        ]
        self._absent, self._n_moved = len(self.subjects) - len(held), sum(map(len, held.values()))
        self.names = {("subject", subject) for subject in self.subjects}
        self.names.update(("id", name) for ids in held.values() for name in ids)
        self.body = RetainBody(changed, period_ms, self._at_ms) if changed else None
