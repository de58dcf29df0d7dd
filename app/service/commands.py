"""Mutations: one command each, from the request to the journal, into the model and to the answer.

    plan      checks the command against the model and finds its body; changes nothing, and may be called again
    body      what the journal keeps, and what a start applies again (see `bodies`); None when no sample changes
    apply     changes the model, which cannot fail any more
    result    what is answered

Commands are committed together, in a `Transaction`, when nothing that one touches is touched by another: then each sees
the model as if it came alone. A `ModelSwap` replaces the whole model, and is written alone.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeGuard, TypeVar

import numpy as np

from oubli.app import logs
from oubli.app.errors import ConflictError, ErasedLatelyError, NotHeldError, OwnerlessError, RestrictedError
from oubli.app.service.bodies import (
    AddBody,
    Body,
    DeleteBody,
    FitBody,
    ReleaseBody,
    ReplaceBody,
    RestrictBody,
    RetainBody,
    delete,
)
from oubli.app.service.nonces import new_nonces
from oubli.app.service.results import (
    Added,
    Keep,
    NewSamples,
    NothingHeld,
    Replacement,
    Restricted,
    RestrictionKind,
)
from oubli.app.service.stages import Stages, stages
from oubli.core.samples.slots import canonical_number
from oubli.core.samples.store import Prepared

if TYPE_CHECKING:
    from oubli.app.ledger.entries import Entry, Receipt, ReceiptKind, SubjectRequest
    from oubli.app.service.idempotency import IdempotencyKey
    from oubli.app.service.state import ModelState
    from oubli.app.service.writer import Transaction
    from oubli.core.model import Model
    from oubli.core.samples.additions import Retention
    from oubli.core.samples.restricted import RestrictedSamples
    from oubli.core.samples.store import SampleStore

log = logging.getLogger("oubli.service")

R = TypeVar("R")
LARGE = 32  # rows whose memory is overwritten when it is done with


class Command(ABC, Generic[R]):
    """One mutation of samples: `AddSamples`, `ReplaceSample`, `DeleteSamples`, or a `Restriction`.

    Attributes
    ----------
    is_refusable
        Whether a full queue or a full disk refuses it; erasures are not.
    is_merged
        Whether neighbours of the same kind may be applied to an exact model as one: the result is the same.
    is_erasure, is_restriction
        Whether it is an `Erasure`, or a `Restriction`.
    key
        The caller's idempotency key.
    done
        Called once: with None when the command is on the disk and in the model, else with what refused it.
    body, encoded
        See the module; known when it is planned, as are those that follow.
    names
        Ids and subjects that no other command of the same transaction may touch.
    adds
        The samples that come, encoded.
    gone
        Ids whose old content is gone then.
    unlearned
        Ids that leave the trees then, where they leave for good or for long.
    n_more
        How many samples more there are then.
    next_id
        The first number that is free as an id afterwards.
    first_generated
        The first id that was generated; None when none was.
    request_id
        Of the request that asks for it, for log lines; empty outside of requests.
    stages
        Of the same request; None when nobody reads them.
    version, n_samples
        Of the model after it; known when it is committed.
    """

    is_refusable: ClassVar[bool] = True
    is_merged: ClassVar[bool] = False
    is_erasure: ClassVar[bool] = False
    is_restriction: ClassVar[bool] = False
    receipt: Receipt | None = None

    def __init__(self, key: IdempotencyKey | None = None) -> None:
        self.key = key
        self.done: Callable[[BaseException | None], None] = _nobody
        self.request_id = ""
        self.stages: Stages | None = None
        self.body: Body | None = None
        self.encoded = b""
        self.names: set[tuple[str, str]] = set()
        self.adds: Prepared | None = None
        self.gone: Sequence[str] = ()
        self.unlearned: Sequence[str] = ()
        self.n_more = 0
        self.next_id = 0
        self.first_generated: int | None = None
        self.version = 0
        self.n_samples = 0
        self.n_items = 1

    def count(self, model: Model) -> int:
        """Return how many samples it is about, roughly: that tells how long it takes."""
        del model
        return 1

    @abstractmethod
    def plan(self, model: Model, transaction: Transaction) -> None:
        """Check it against the model and the commands before it in its transaction, and find its body.

        Raises
        ------
        OubliError, ServiceError
            When it is refused.
        """

    @abstractmethod
    def apply(self, model: Model, alike: Sequence[Any]) -> None:
        """Change the model by this command, which is the first of some that are alike."""

    @abstractmethod
    def result(self) -> R:
        """Return what is answered."""

    @property
    def is_written(self) -> bool:
        """Whether it goes to the journal; what changes nothing and gives no receipt does not."""
        return self.body is not None or self.key is not None

    def tell(self, error: BaseException | None = None) -> None:
        """Tell who asked, once; a mistake in an answer must not keep others from theirs."""
        done, self.done = self.done, _nobody
        # It is the writer's task that tells.
        token, noted = logs.request_id.set(self.request_id), stages.set(self.stages)
        try:
            done(error)
        except Exception as mistake:
            log.error("an answer could not be made (%s)", type(mistake).__name__)
            with suppress(Exception):
                done(mistake)  # or who asked would wait for ever
        finally:
            logs.request_id.reset(token)
            stages.reset(noted)

    def tell_unchanged(self, state: ModelState) -> None:
        """Tell who asked that nothing had to be changed."""
        self.version, self.n_samples = state.version, state.model.n_samples_
        self.tell()


def _nobody(error: BaseException | None) -> None:
    """Take in an outcome that was told before."""


class AddSamples(Command[Added]):
    """Add the samples whose ids are not held; those that are must have the same content.

    Parameters
    ----------
    samples
        An id that is None is generated.
    key
        The caller's idempotency key.
    """

    is_merged = True

    def __init__(self, samples: NewSamples, key: IdempotencyKey | None = None) -> None:
        super().__init__(key)
        self._samples = samples
        self._ids: list[str] = []
        self._n_new = 0
        self.exports = 0

    def count(self, model: Model) -> int:
        """Return how many samples were sent."""
        del model
        return len(self._samples)

    def plan(self, model: Model, transaction: Transaction) -> None:
        """Find what is new.

        Raises
        ------
        RestrictedError
            When ids or subjects are restricted.
        ConflictError
            When ids are held with other content, another subject or another expiry.
        ErasedLatelyError
            When ids were erased lately and the samples do not say that they may come back.
        CapacityError
            When the model cannot hold so many samples.
        InputError
            With the position in the request as `row`.
        """
        samples, store, given_ids = self._samples, model.samples_, self._samples.ids
        first_id = max(store.next_id, transaction.next_id)
        self._ids = ids = with_generated(given_ids, first_id)
        if len(store.restricted):
            require_unrestricted(store.restricted, ids, samples.subjects)
        # What is sent is encoded before it is compared, so that 0.1 equals the float32 nearest to it.
        prepared = store.prepare(samples.rows, samples.labels, ids, allow_held=True)
        held = [row for row, name in enumerate(ids) if store.contains(name)]
        conflicts = [row for row in held if not _is_same(model, samples, row, ids[row], prepared)]
        if conflicts:
            raise ConflictError(conflicts)
        known = set(held)
        new = [row for row in range(len(ids)) if row not in known] if held else list(range(len(ids)))
        late = [row for row in new if not samples.readd[row] and transaction.erased_lately(ids[row])]
        if late:
            raise ErasedLatelyError(late)
        self.names = {("id", name) for name in ids}
        self.names.update(("subject", subject) for subject in samples.subjects if subject is not None)
        self._n_new = self.n_more = len(new)
        self.body = self.adds = None
        retentions = {
            subject: period
            for subject, period in samples.retentions.items()
            if (before := store.retention(subject)) is None or before.period_ms != period
        }
        if not new and not retentions:
            return
        model.require_room(transaction.n_more + len(new))
        self.names |= names_leaving(model, len(new))
        if held:
            samples, prepared = samples.take(new), prepared.take(new)
        new_ids = [ids[row] for row in new]
        later = transaction.default_expiry()
        expires = [later if at is None else at for at in samples.expires]
        self.next_id = end_of_ids(new_ids, first_id)
        self.exports = transaction.exports
        self.body = AddBody(
            new_ids,
            samples.rows,
            samples.labels,
            samples.subjects if any(subject is not None for subject in samples.subjects) else None,
            expires if any(at is not None for at in expires) else None,
            self.next_id,
            transaction.now_ms(),
            self.request_id or None,
            retentions or None,
            new_nonces(len(new_ids)) if new_ids else None,
        )
        self.adds = prepared if new else None
        generated = (int(name) for name, given in zip(ids, given_ids, strict=True) if given is None)
        self.first_generated = next(generated, None)

    def apply(self, model: Model, alike: Sequence[AddSamples]) -> None:
        """Add the samples of all."""
        prepared = [one.adds for one in alike if one.adds is not None]
        if prepared:
            model.add_prepared(prepared[0] if len(prepared) == 1 else Prepared.merged(prepared))
        for one in alike:
            if isinstance(one.body, AddBody):
                one.body.attach(model, one.exports)

    def result(self) -> Added:
        """Return the ids in the order of the request, and how many samples are new."""
        return Added(self._ids, self._n_new, self.n_samples, self.version)

    def overwrite(self) -> None:
        """Overwrite the numbers of a large addition that the model holds by now: freeing memory does not empty it.

        Of a small one that would take as long as a good part of the addition.
        """
        adds = self.adds
        if adds is not None and adds.n >= LARGE:
            adds.cells.fill(0)
            if type(adds.labels) is np.ndarray:
                adds.labels.fill(0)


class Erasure(Command["Receipt | NothingHeld"]):
    """A command that is answered with a receipt.

    Attributes
    ----------
    kind
        What was asked for.
    targets, by
        The ids or subjects named, each once.
    ref
        The caller's case number.
    received_ms
        When it came, in milliseconds since 1970.
    absent
        How many targets were not held.
    counts
        How many samples of each target were held, where any were.
    hashes
        Keyed hashes of what is gone; known with the receipt.
    is_recorded
        Whether there is a receipt, and an entry of the ledger.
    request
        The request of OpenDSR that asks for it.
    """

    is_erasure = True
    is_recorded = True
    request: SubjectRequest | None = None

    def __init__(
        self,
        kind: ReceiptKind,
        targets: Sequence[str],
        by: Literal["ids", "subjects"] = "ids",
        ref: str | None = None,
        key: IdempotencyKey | None = None,
    ) -> None:
        super().__init__(key)
        self.kind: ReceiptKind = kind
        self.targets = targets
        self.by: Literal["ids", "subjects"] = by
        self.ref = ref
        self.received_ms = 0
        self.absent = 0
        self.counts: Mapping[str, int] = {}
        self.hashes: Sequence[str] = ()

    @property
    def is_written(self) -> bool:
        """Whether it goes to the journal: the receipt does, also when nothing changes."""
        return self.is_recorded or self.key is not None or self.request is not None

    def result(self) -> Receipt | NothingHeld:
        """Return the receipt."""
        if self.receipt is None:
            raise RuntimeError("an erasure was made without a receipt")
        return self.receipt


def is_erasure(command: Command[Any]) -> TypeGuard[Erasure]:
    """Whether a command is an erasure; of abstract classes `isinstance` takes ten times as long."""
    return command.is_erasure


class ReplaceSample(Erasure):
    """Give one held sample new content.

    Parameters
    ----------
    asked
        The sample and its new content.
    ref
        The caller's case number.
    key
        The caller's idempotency key.
    """

    def __init__(self, asked: Replacement, ref: str | None = None, key: IdempotencyKey | None = None) -> None:
        super().__init__("rectification", [asked.sample_id], ref=ref, key=key)
        self._asked = asked
        self.exports: int | None = None  # None: what is learned from stays as it is

    def plan(self, model: Model, transaction: Transaction) -> None:
        """Find what changes.

        Raises
        ------
        NotHeldError
            When the id is not held.
        OwnerlessError
            When a restricted sample would be nobody's: that would end the restriction.
        CapacityError
            When a sample that is not restricted any more has no room.
        InputError
            When the content does not fit the schema.
        """
        asked, name, restricted = self._asked, self._asked.sample_id, model.samples_.restricted
        store = model.samples_.holding(name)
        if store is None:
            raise NotHeldError
        old_subject, old_expiry = store.subject(name), store.own_expiry(name)
        subject = old_subject if isinstance(asked.subject, Keep) else asked.subject
        expires = old_expiry if isinstance(asked.expires, Keep) else asked.expires
        was, is_next = restricted.holds(name), subject in restricted.marks
        if was and subject is None:
            raise OwnerlessError
        relearned = not store.same_content(name, store.prepare([asked.row], [asked.label]), 0)
        self.exports = transaction.exports if relearned else None
        self.names = {("id", name)} | {("subject", text) for text in (old_subject, subject) if text is not None}
        self.unlearned, self.n_more, self.adds = (), int(was) - int(is_next), None
        if is_next and not was:
            self.unlearned = [name]
        elif was and not is_next:
            model.require_room(transaction.n_more + 1)
            self.adds = model.samples_.prepare([asked.row], [asked.label], [name], allow_held=True)
            self.names |= names_leaving(model, 1)
        if relearned or subject != old_subject or expires != old_expiry:
            self.body = ReplaceBody(name, asked.row, asked.label, subject, expires, new_nonces(1))
            self.gone = [name]
        else:
            self.body, self.gone = None, ()

    def apply(self, model: Model, alike: Sequence[ReplaceSample]) -> None:
        """Replace the content."""
        for one in alike:
            if isinstance(one.body, ReplaceBody):
                one.body.apply(model, one.exports)


class DeleteSamples(Erasure):
    """Delete what is held under ids, or of subjects; what is not held is counted.

    Parameters
    ----------
    targets, by
        The ids or subjects, each once.
    ref
        The caller's case number.
    key
        The caller's idempotency key.
    kind
        ``"expiry"`` when their time is over.
    request
        The request of OpenDSR that asks for it; committed with it.
    caller
        The id of the caller's key; empty when it has none.
    """

    is_refusable = False
    is_merged = True

    def __init__(
        self,
        targets: Sequence[str],
        by: Literal["ids", "subjects"] = "ids",
        ref: str | None = None,
        key: IdempotencyKey | None = None,
        kind: Literal["deletion", "expiry"] = "deletion",
        request: SubjectRequest | None = None,
        caller: str = "",
    ) -> None:
        super().__init__(kind, targets, by, ref, key)
        self.request = request
        self._caller = caller
        self._is_admitted: bool | None = None
        self._guarantee = ""

    def count(self, model: Model) -> int:
        """Return how many samples are held of what is named: the rest takes next to no time."""
        store = model.samples_
        if self.by == "ids":
            return sum(store.holding(name) is not None for name in self.targets)
        return sum(len(held_of(store, name)) for name in self.targets)

    def plan(self, model: Model, transaction: Transaction) -> None:
        """Find what is held."""
        store, targets = model.samples_, self.targets
        if self.by == "ids":
            held = [name for name in targets if store.holding(name) is not None]
            self.counts = dict.fromkeys(held, 1)
            names = {("id", name) for name in targets}
        else:
            samples = {subject: ids for subject in targets if (ids := held_of(store, subject))}
            held = [name for ids in samples.values() for name in ids]
            self.counts = {subject: len(ids) for subject, ids in samples.items()}
            names = {("subject", subject) for subject in targets}
            names.update(("id", name) for name in held)
        self.absent = len(targets) - len(self.counts)
        if not held and self._is_admitted is None:  # what is planned again counts once, and expiry is nobody's request
            self._is_admitted = self.kind == "deletion" and transaction.admits_empty(self._caller)
        self.is_recorded = bool(held or self._is_admitted)
        self._guarantee = model.guarantee
        restricted = store.restricted
        unlearned, others = held, list[str]()
        if len(restricted):
            unlearned = [name for name in held if not restricted.holds(name)]
            others = [name for name in held if restricted.holds(name)]
        self.names, self.gone, self.unlearned, self.n_more = names, held, unlearned, -len(unlearned)
        self.body = DeleteBody(held) if held else None
        # An addition to a subject whose last sample goes would otherwise be committed beside it, in either order.
        subjects = (*map(store.subject, unlearned), *(restricted.samples.subject(name) for name in others))
        names.update(("subject", subject) for subject in subjects if subject is not None)

    def apply(self, model: Model, alike: Sequence[DeleteSamples]) -> None:
        """Delete the samples of all."""
        delete(model, self.gone if len(alike) == 1 else [name for one in alike for name in one.gone])

    def result(self) -> Receipt | NothingHeld:
        """Return the receipt, or that nothing was held."""
        if self.is_recorded:
            return super().result()
        return NothingHeld(self.ref, self._guarantee, self.by, len(self.targets), self.version)


# --- restriction of processing, and retention


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

    is_restriction = True
    kind: RestrictionKind

    def __init__(self, subjects: Sequence[str], ref: str | None = None, key: IdempotencyKey | None = None) -> None:
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

    def fields(self, guarantee: str) -> dict[str, Any]:
        """Return what the ledger's entry is to say, as `Ledger.restriction` takes it."""
        return {
            "kind": self.kind,
            "at_ms": self._at_ms,
            "subjects": self._subjects,
            "fields": {
                "ref": self._ref,
                "requested": len(self._subjects),
                "absent": self._absent,
                "n_samples": self._n_moved,
                **self.own_fields(),
                "guarantee": guarantee,
                "model_version": self.version,
            },
        }

    def own_fields(self) -> dict[str, int | bool | None]:
        """Return what only entries of this kind say."""
        return {"expired": self._n_expired, "keep": self._keep}

    @abstractmethod
    def apply(self, model: Model, alike: Sequence[Any]) -> None:
        """Change the model."""

    def result(self) -> Restricted:
        """Return what became of it."""
        return Restricted.of_entry(self.entry, self.n_samples)


def is_restriction(command: Command[Any]) -> TypeGuard[Restriction]:
    """Whether a command restricts or releases; of abstract classes `isinstance` takes ten times as long."""
    return command.is_restriction


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

    def __init__(
        self,
        subjects: Sequence[str],
        ref: str | None = None,
        key: IdempotencyKey | None = None,
        *,
        keep: bool = False,
    ) -> None:
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

    def apply(self, model: Model, alike: Sequence[RestrictSubjects]) -> None:
        """Have the samples leave the trees."""
        for one in alike:
            if isinstance(one.body, RestrictBody):
                one.body.apply(model)


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

    def __init__(
        self,
        subjects: Sequence[str],
        ref: str | None = None,
        key: IdempotencyKey | None = None,
        *,
        n_expired: int = 0,
    ) -> None:
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

    def apply(self, model: Model, alike: Sequence[ReleaseSubjects]) -> None:
        """Have the samples learned again."""
        for one in alike:
            if isinstance(one.body, ReleaseBody):
                one.body.apply(model)


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
        self,
        subjects: Sequence[str],
        seconds: int | None,
        ref: str | None = None,
        key: IdempotencyKey | None = None,
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

    def apply(self, model: Model, alike: Sequence[RetainSubjects]) -> None:
        """Set the period."""
        for one in alike:
            if isinstance(one.body, RetainBody):
                one.body.apply(model)


# --- another model


@dataclass(eq=False, slots=True)
class ModelSwap:
    """A model that was made aside and takes the place of the live one: nothing is planned, and nothing waits for it.

    Attributes
    ----------
    model
        What is served then.
    body
        What the journal keeps; None when the snapshots hold the model by then.
    """

    model: Model
    body: FitBody | None = None

    def swap(self, state: ModelState) -> None:
        """Put the model in its place."""
        state.model = self.model


@dataclass(eq=False, slots=True)
class Fit(ModelSwap):
    """A model that was fitted on the samples held, as the body says; `key` is the caller's idempotency key."""

    key: IdempotencyKey | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class Restore(ModelSwap):
    """A model from a snapshot, less what must not come back; for `epoch` and `next_id` see `ModelState`."""

    epoch: int
    next_id: int

    def swap(self, state: ModelState) -> None:
        """Put the model in its place; nothing is left of the memory of the one before."""
        state.model, state.epoch, state.next_id = self.model, self.epoch, self.next_id
        state.period += 1


# --- several commands


def apply_all(model: Model, commands: Sequence[Command[Any]]) -> None:
    """Change a model by commands that touch nothing in common, in their order.

    Of an exact model neighbouring additions are made as one, and so are neighbouring deletions: the result is the
    same. Of others each is made by itself.
    """
    is_exact = model.guarantee == "exact"
    start = 0
    while start < len(commands):
        first, end = commands[start], start + 1
        while is_exact and first.is_merged and end < len(commands) and type(commands[end]) is type(first):
            end += 1
        first.apply(model, commands[start:end])
        start = end


def apply_held(model: Model, commands: Sequence[Command[Any]]) -> None:
    """Change a model that was fitted on the samples of another by commands that were planned for that one.

    A sliding window may hold fewer of them: what it does not hold is neither deleted nor replaced.
    """
    if model.guarantee == "exact":  # has no window
        apply_all(model, commands)
        return
    store = model.samples_
    for command in commands:
        gone = [name for name in command.gone if store.holding(name) is not None]
        if isinstance(command, DeleteSamples):
            if gone:
                delete(model, gone)
        elif gone or command.is_restriction or isinstance(command, AddSamples):
            command.apply(model, [command])


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


def _is_same(model: Model, samples: NewSamples, row: int, name: str, prepared: Prepared) -> bool:
    """Whether a sample that was sent is the one held. An expiry that was left out is not compared: it moves."""
    store = model.samples_
    expires = samples.expires[row]
    return (
        samples.subjects[row] == store.subject(name)
        and (expires is None or expires in (store.own_expiry(name), store.expiry(name)))
        and store.same_content(name, prepared, row)
    )
