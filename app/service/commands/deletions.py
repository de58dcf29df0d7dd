"""Samples are deleted or replaced, with a receipt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from oubli.app.errors import NotHeldError, OwnerlessError
from oubli.app.ledger.entries import with_request
from oubli.app.service.commands.command import Command
from oubli.app.service.commands.held import held_of, names_leaving
from oubli.app.service.nonces import new_nonces, note_nonces
from oubli.app.service.results import Keep, NothingHeld, Replacement

if TYPE_CHECKING:
    from oubli.app.ledger.entries import By, Receipt, ReceiptKind, SubjectRequest
    from oubli.app.service.idempotency import IdempotencyKey
    from oubli.app.service.transaction import Transaction
    from oubli.core.model import Model
    from oubli.core.samples.store import SampleStore


@dataclass(frozen=True, slots=True)
class DeleteBody:
    """Samples that are deleted."""

    do: str = field(default="delete", init=False)
    ids: Sequence[str]

    def redo(self, model: Model, exports: int) -> Model:
        """Delete the samples from a model from a snapshot."""
        del exports
        delete(model, self.ids)
        return model


@dataclass(frozen=True, slots=True)
class ReplaceBody:
    """The new content of one sample, whole."""

    do: str = field(default="replace", init=False)
    id: str
    row: Sequence[Any]
    label: Any
    subject: str | None
    expires: int | None
    nonce: str | None = None

    def redo(self, model: Model, exports: int) -> Model:
        """Replace the content in a model from a snapshot; `exports` snapshots were handed out before."""
        store = model.samples_.holding(self.id) or model.samples_
        relearned = not store.same_content(self.id, store.prepare([self.row], [self.label]), 0)
        self.apply(model, exports if relearned else None)
        return model

    def apply(self, model: Model, exports: int | None) -> None:
        """Replace the content; `exports` is None when features and label stay as they are.

        The sample is restricted afterwards when the subject that it has then is.
        """
        store, restricted = model.samples_, model.samples_.restricted
        was, is_next = restricted.holds(self.id), self.subject in restricted.marks
        if not (was or is_next):
            if exports is not None:
                model.replace(self.id, self.row, self.label)
            self._attach(store, exports)
            return
        # The content changes where nothing is learned from it.
        if not was:
            model.restrict([self.id])
        before = restricted.samples.subject(self.id)
        if exports is not None:
            restricted.replace(self.id, self.row, self.label)
        self._attach(restricted.samples, exports)
        if not is_next:
            model.release([self.id])
        restricted.drop_marks([before])

    def _attach(self, store: SampleStore, exports: int | None) -> None:
        if exports is not None:
            store.set_origins([self.id], exports)
        store.set_subject(self.id, self.subject)
        store.set_expiry(self.id, self.expires)
        if self.nonce is not None:
            note_nonces(store, [self.id], self.nonce)


def delete(model: Model, ids: Sequence[str]) -> None:
    """Delete samples, whether they are restricted or not."""
    restricted = model.samples_.restricted
    if restricted.marks:
        others = [name for name in ids if restricted.holds(name)]
        ids = [name for name in ids if not restricted.holds(name)]
        restricted.remove(others)
    model.delete(ids)


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

    is_recorded = True
    request: SubjectRequest | None = None

    def __init__(
        self, kind: ReceiptKind, targets: Sequence[str], by: By, ref: str | None, key: IdempotencyKey | None
    ) -> None:
        super().__init__(key)
        self.kind: ReceiptKind = kind
        self.targets = targets
        self.by: By = by
        self.ref = ref
        self.absent = 0
        self.counts: Mapping[str, int] = {}
        self.hashes: Sequence[str] = ()

    @property
    def is_written(self) -> bool:
        """Whether it goes to the journal: the receipt does, also when nothing changes."""
        return self.is_recorded or self.key is not None or self.request is not None

    def notes(self, transaction: Transaction) -> bytes:
        """Return the entry of the receipt, which is made here, and the request that asks for it."""
        self.receipt = None
        notes = self._receipt_notes(transaction) if self.is_recorded else b""
        if self.request is None:
            return notes
        if self.receipt is None:  # what found nothing has nothing left to erase
            return with_request(notes, replace(self.request, state="completed"))
        return with_request(notes, replace(self.request, receipt=self.receipt.id))

    def _receipt_notes(self, transaction: Transaction) -> bytes:
        model = transaction.state.model
        self.receipt, notes, self.hashes = transaction.ledger.unlearned(
            kind=self.kind,
            guarantee=model.guarantee,
            requested=len(self.targets),
            unlearned_ids=self.gone,
            targets=self.targets,
            by=self.by,
            absent=self.absent,
            ref=self.ref,
            model_version=self.version,
            received_at=self.received_ms,
            unlearned_at=transaction.clock.now_ms(),
            exported=self._n_exported(model.samples_, transaction.state.exports),
            deadline_ms=transaction.deadline_ms,
            found=self.counts if self.by == "subjects" else None,
            push=transaction.push,
        )
        return notes

    def _n_exported(self, store: SampleStore, exports: int) -> int:
        """How many of the snapshots that were handed out were so while one of the samples that go was held."""
        if not exports or not self.gone:
            return 0
        return exports - min((store.holding(name) or store).origin(name) for name in self.gone)

    def committed(self, transaction: Transaction) -> None:
        """Note that it is to be finished. Also when nothing was held: older files may hold what went before."""
        if self.receipt is not None:
            transaction.note_erasure(self.receipt.id, () if self.kind == "rectification" else self.hashes)

    def result(self) -> Receipt | NothingHeld:
        """Return the receipt."""
        if self.receipt is None:
            raise RuntimeError("an erasure was made without a receipt")
        return self.receipt


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
        super().__init__("rectification", [asked.sample_id], "ids", ref, key)
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
        self.exports = transaction.state.exports if relearned else None
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
        by: By = "ids",
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
        if restricted.marks:
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

    def apply_to_fewer(self, model: Model, gone: Sequence[str]) -> None:
        """Delete those of the samples that the model holds."""
        if gone:
            delete(model, gone)

    def result(self) -> Receipt | NothingHeld:
        """Return the receipt, or that nothing was held."""
        if self.is_recorded:
            return super().result()
        return NothingHeld(self.ref, self._guarantee, self.by, len(self.targets), self.version)
