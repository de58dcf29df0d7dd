"""Samples are deleted or replaced, with a receipt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from oubli.app.errors import NotHeldError, OwnerlessError
from oubli.app.service.bodies import DeleteBody, ReplaceBody, delete
from oubli.app.service.commands.command import Command
from oubli.app.service.commands.held import held_of, names_leaving
from oubli.app.service.nonces import new_nonces
from oubli.app.service.results import Keep, NothingHeld, Replacement

if TYPE_CHECKING:
    from oubli.app.ledger.entries import Receipt, ReceiptKind, SubjectRequest
    from oubli.app.service.idempotency import IdempotencyKey
    from oubli.app.service.writer import Transaction
    from oubli.core.model import Model


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
        self.absent = 0
        self.counts: Mapping[str, int] = {}
        self.hashes: Sequence[str] = ()

    @property
    def is_written(self) -> bool:
        """Whether it goes to the journal: the receipt does, also when nothing changes."""
        return self.is_recorded or self.key is not None or self.request is not None

    def notes(self, transaction: Transaction) -> bytes:
        """Return the entry of the receipt, and the request that asks for it."""
        return transaction.erasure_notes(self)

    def committed(self, transaction: Transaction) -> None:
        """Note that it is to be finished."""
        transaction.note_erasure(self)

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

    def apply_to_fewer(self, model: Model, gone: Sequence[str]) -> None:
        """Delete those of the samples that the model holds."""
        if gone:
            delete(model, gone)

    def result(self) -> Receipt | NothingHeld:
        """Return the receipt, or that nothing was held."""
        if self.is_recorded:
            return super().result()
        return NothingHeld(self.ref, self._guarantee, self.by, len(self.targets), self.version)
