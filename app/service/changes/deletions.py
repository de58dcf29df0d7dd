"""Samples are deleted or replaced, with a receipt."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from oubli.app.errors import NotHeldError, OwnerlessError
from oubli.app.ledger.entries import By, Receipt, ReceiptKind, SubjectRequest, with_request
from oubli.app.ledger.ledger import Unlearned
from oubli.app.service.changes.command import MANY_NAMES, Command, IdempotencyKey, Names, PlannedBody, Transaction
from oubli.app.service.model.state import ModelState, require_tag
from oubli.app.times import LONGEST_PAUSE
from oubli.core.errors import UnknownIdError
from oubli.core.model import Model
from oubli.core.planning import FIRST, KEEP, DeletePlan, Keep, ReplacePlan, Turn
from oubli.core.samples.indexes import NONCE_BYTES


@dataclass(frozen=True, slots=True)
class Replacement:
    """The new content of one sample; `subject`, `expires` and `weight` stay as they are with `KEEP`.

    `tags`: entity tags, one of which the sample must have; None for any.
    """

    sample_id: str
    row: list[Any]
    label: Any
    subject: str | Keep | None = KEEP
    expires: int | Keep | None = KEEP
    weight: float | Keep = KEEP
    tags: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class NothingErased:
    """The answer to an erasure or a rectification that changed nothing and was not recorded; see `max_empty_erasures`.

    Attributes
    ----------
    ref
        The caller's case number.
    kind
        What was asked for.
    guarantee
        Of the model.
    by, requested, absent
        What was named, how many, and of how many of them nothing was held.
    model_version
        Of the model, which has not changed.
    """

    ref: str | None
    kind: ReceiptKind
    guarantee: str
    by: By
    requested: int
    absent: int
    model_version: int

    def content(self) -> dict[str, Any]:
        """Return it as an object, with the fields of a receipt as far as there is something to say."""
        return {
            "id": None,
            "ref": self.ref,
            "kind": self.kind,
            "guarantee": self.guarantee,
            "by": self.by,
            "held": self.absent < self.requested,
            "requested": self.requested,
            "unlearned": 0,
            "absent": self.absent,
            "model_version": self.model_version,
        }


class Deleted(NamedTuple):
    """What became of a deletion.

    Attributes
    ----------
    outcome
        What is answered.
    found
        Of the names of which something was held, the position in the request and how many samples; in their order.
    """

    outcome: Receipt | NothingErased
    found: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class DeleteBody(PlannedBody):
    """Samples that are deleted."""

    do: str = field(default="delete", init=False)
    ids: Sequence[str]

    def plan(self, model: Model, exports: int, turn: Turn = FIRST) -> DeletePlan:
        """Plan the deletion for a model that holds all of them; UnknownIdError when it does not."""
        del exports
        plan = model.plan_delete(self.ids, turn=turn)
        if plan.absent:
            raise UnknownIdError(plan.absent)
        return plan


@dataclass(frozen=True, slots=True)
class ReplaceBody(PlannedBody):
    """The new content of one sample, whole."""

    do: str = field(default="replace", init=False)
    id: str
    row: Sequence[Any]
    label: Any
    subject: str | None
    expires: int | None
    nonce: str | None = None
    weight: float = 1.0

    def plan(self, model: Model, exports: int, turn: Turn = FIRST) -> ReplacePlan:
        """Plan the replacement; `exports` snapshots were handed out before."""
        return model.plan_replace(
            self.id,
            [self.row],
            self.label,
            subject=self.subject,
            expires_ms=self.expires,
            weight=self.weight,
            origin=exports,
            nonce=None if self.nonce is None else base64.b64decode(self.nonce),
            turn=turn,
        )


@dataclass(eq=False, repr=False)
class Erasure(Command["Receipt | NothingErased"]):
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
    made
        The receipt and what belongs to it, when it is written.
    is_recorded
        Whether there is a receipt of its own, and an entry of the ledger.
    request
        The request of OpenDSR that asks for it.
    """

    targets: Sequence[str]
    by: By = "ids"
    kind: ReceiptKind = field(default="deletion", kw_only=True)
    ref: str | None = field(default=None, kw_only=True)
    request: SubjectRequest | None = field(default=None, kw_only=True)
    is_recorded: bool = field(default=True, init=False)
    absent: int = field(default=0, init=False)
    counts: Mapping[str, int] = field(default_factory=dict, init=False)
    made: Unlearned | None = field(default=None, init=False)
    _guarantee: str = field(default="", init=False)
    _origin: int = field(default=0, init=False)  # the smallest number of exports that any of the samples came after

    @property
    def is_written(self) -> bool:
        """Whether it goes to the journal: the receipt does, also when nothing changes."""
        return self.is_recorded or self.key is not None or self.request is not None

    def notes(self, transaction: Transaction) -> bytes:
        """Return the entry of the receipt, which is made here, and the request that asks for it."""
        self.made, notes = None, b""
        if self.is_recorded:
            self.made = self._receipt(transaction)
            self.receipt_id, notes = self.made.receipt.id, self.made.notes
        if self.request is None:
            return notes
        # What found nothing has nothing left to erase.
        state = "completed" if self.receipt_id is None else "open"
        return with_request(notes, replace(self.request, receipt=self.receipt_id, state=state))

    def _receipt(self, transaction: Transaction) -> Unlearned:
        exports = transaction.state.exports
        return transaction.ledger.unlearned(
            kind=self.kind,
            guarantee=self._guarantee,
            disclosure=transaction.state.model.disclosure_,
            requested=len(self.targets),
            unlearned_ids=self.gone,
            targets=self.targets,
            by=self.by,
            absent=self.absent,
            ref=self.ref,
            model_version=self.version,
            received_at=self.received_ms,
            unlearned_at=transaction.clock.now_ms(),
            # How many of the snapshots were handed out while one of the samples that go was held.
            exported=exports - self._origin if exports and self.gone else 0,
            deadline_ms=transaction.deadline_ms,
            found=self.counts if self.by == "subjects" else None,
            push=transaction.push,
        )

    def committed(self, transaction: Transaction) -> None:
        """Note that it is to be finished. Also when nothing was held: older files may hold what went before."""
        if self.made is not None:
            hashes = () if self.kind == "rectification" else self.made.hashes
            targets = self.targets if self.kind == "deletion" and self.gone else ()
            transaction.note_erasure(self.made.receipt.id, hashes, targets, self.by)

    def result(self) -> Receipt | NothingErased:
        """Return the receipt, or that nothing was erased."""
        if not self.is_recorded:
            requested = len(self.targets)
            return NothingErased(self.ref, self.kind, self._guarantee, self.by, requested, self.absent, self.version)
        if self.made is None:
            raise RuntimeError("an erasure was made without a receipt")
        return self.made.receipt


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
    caller
        The id of the caller's key; empty when it has none.
    """

    def __init__(
        self, asked: Replacement, ref: str | None = None, key: IdempotencyKey | None = None, caller: str = ""
    ) -> None:
        super().__init__([asked.sample_id], kind="rectification", ref=ref, key=key, caller=caller)
        self._asked = asked

    def plan(self, model: Model, transaction: Transaction) -> None:
        """Find what changes.

        Raises
        ------
        NotHeldError, SampleChangedError
            When the id is not held, or has none of the tags.
        OwnerlessError
            When a restricted sample would have no subject: that would end the restriction.
        CapacityError
            When a sample that is not restricted any more has no room.
        InputError
            When the content does not fit the schema.
        """
        asked, exports = self._asked, transaction.state.exports
        require_tag(model.samples_, asked.sample_id, asked.tags)
        try:
            plan = model.plan_replace(
                asked.sample_id,
                [asked.row],
                asked.label,
                subject=asked.subject,
                expires_ms=asked.expires,
                weight=asked.weight,
                origin=exports,
                turn=transaction.turn,
            )
        except UnknownIdError:
            raise NotHeldError from None
        if plan.is_ownerless:
            raise OwnerlessError
        self.take(plan)
        self._guarantee, self._origin = plan.guarantee, plan.old_origin
        if plan.changes:
            plan.nonce = os.urandom(NONCE_BYTES)
            nonce = base64.b64encode(plan.nonce).decode("ascii")
            self.body = ReplaceBody(plan.id, asked.row, asked.label, plan.subject, plan.expires_ms, nonce, plan.weight)
            self.gone = [plan.id]
        else:
            self.body, self.planned, self.gone = None, None, ()
        self.is_recorded = self.body is not None or self.is_admitted(transaction)


@dataclass(eq=False, repr=False)
class DeleteSamples(Erasure):
    """Delete what is held under ids, or of subjects; what is not held is counted.

    When another request has deleted exactly these targets since this one came, the answer is the receipt of that one:
    a receipt of its own would say that nothing was held. Then `receipt_id` is that of the other, and `made` is None.

    Parameters
    ----------
    targets, by, kind, ref, request
        See `Erasure`; the kind is ``"expiry"`` when the time of the samples is over.
    tags
        Entity tags, one of which the only target must have if it is held; None for any.
    asked_at
        Number of the journal's newest record when it was looked for an earlier receipt, or found that something was
        held.
    """

    is_refusable = False

    tags: frozenset[str] | None = field(default=None, kw_only=True)
    asked_at: int | None = field(default=None, kw_only=True)
    _earlier: str | None = field(default=None, init=False)
    _looked: tuple[Model, int, DeletePlan] | None = field(default=None, init=False)

    def finds(self, state: ModelState) -> bool:
        """Whether something is held of what is named. The answer for few ids is the plan, while the model is the same.

        Of many names, or of subjects, only as much is looked at as that takes.
        """
        model, targets = state.model, self.targets
        if self.by == "subjects":
            return any(model.samples_.held_of(name) for name in targets)
        for start in range(0, len(targets), MANY_NAMES):
            plan = model.plan_delete(targets[start : start + MANY_NAMES], turn=Turn(longest_pause=LONGEST_PAUSE))
            if len(targets) <= MANY_NAMES:
                self._looked = model, state.version, plan
            if plan.held:
                return True
        return False

    def found_before(self, earlier: Receipt | None) -> None:
        """Note the receipt of the last erasure of exactly these targets until `asked_at`; None where there is none."""
        self._earlier = None if earlier is None else earlier.id

    def count(self, model: Model) -> int:
        """Return how many samples are held of what is named, or how many names there are, if that is many."""
        if len(self.targets) > MANY_NAMES:
            return len(self.targets)
        if self._looked is not None:
            return len(self._looked[2].held)
        store = model.samples_
        if self.by == "ids":
            return sum(store.holding(name) is not None for name in self.targets)
        return sum(len(store.held_of(name)) for name in self.targets)

    def plan(self, model: Model, transaction: Transaction) -> None:
        """Find what is held; SampleChangedError when the only target has none of the tags."""
        if self.tags is not None:
            require_tag(model.samples_, self.targets[0], self.tags)
        plan = self._plan_of(model, transaction)
        held = plan.held
        self.take(plan)
        self.counts, self.absent, self.gone = plan.counts, len(plan.targets) - len(plan.counts), held
        self._guarantee, self._origin = plan.guarantee, plan.origin
        self.made, self.receipt_id = None, None
        if not held and self.asked_at is not None:
            self.receipt_id = transaction.deletion_after(self.asked_at, self.targets, self.by) or self._earlier
        is_new = self.receipt_id is None
        # Expiry is not a caller's request.
        self.is_recorded = bool(held) or (is_new and self.kind == "deletion" and self.is_admitted(transaction))
        self.body = DeleteBody(held) if held else None
        if not held:
            self.planned = None

    def _plan_of(self, model: Model, transaction: Transaction) -> DeletePlan:
        """Return the plan, which is there already when nothing has changed since `finds`."""
        if self._looked is not None:
            known, version, plan = self._looked
            if known is model and version == transaction.state.version and not transaction.commands:
                return plan
        if self.by == "ids":
            return model.plan_delete(self.targets, turn=transaction.turn)
        return model.plan_delete(subjects=self.targets, turn=transaction.turn)

    def names_in_body(self) -> Names:
        """Return nothing: the body holds names alone, and is answered with the receipt when it is repeated."""
        return set()

    def apply_to_fewer(self, model: Model, gone: Sequence[str]) -> None:
        """Delete those of the samples that the model holds."""
        if gone:
            model.apply(model.plan_delete(gone))
