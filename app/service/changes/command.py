"""What all mutations have in common: a plan, a body for the journal, a result; and the transaction of several.

A transaction plans each command, writes one record of each, applies them all and answers them all.
"""

from __future__ import annotations

import logging
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import orjson

from oubli.app import logs
from oubli.app.errors import UnavailableError
from oubli.app.ledger.entries import By, Head, IdempotencyRecord, with_idempotency
from oubli.app.ledger.ledger import Ledger, Tombstones
from oubli.app.logs import cause_of
from oubli.app.service.model.state import ModelState, Pending
from oubli.app.storage.journal import Record
from oubli.app.times import LONGEST_PAUSE, Clock, Name, Stages, stages
from oubli.core.errors import UnusableModelError
from oubli.core.model import Model
from oubli.core.planning import FIRST, Plan, Turn
from oubli.core.samples.indexes import NONCE_BYTES
from oubli.core.samples.store import SampleStore

log = logging.getLogger("oubli.service")

R = TypeVar("R")
Names = set[tuple[str, str]]
"""Kinds (`id` or `subject`) and texts."""
MANY_NAMES = 1000  # whose samples are not counted on the event loop
LARGE = 32  # rows whose memory is overwritten when it is done with

KEPT_MS = 86_400_000  # for which an answer is kept
_KEYS = uuid.UUID("6f75626c-692d-4a6f-8273-2d6279206b65")  # the name space of keyed requests


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A key that came with a request.

    Attributes
    ----------
    key, body
        Keyed hashes of the key with the route, and of the body.
    mask
        Hides the first generated id.
    earlier
        How the request was answered before; None when it is new.
    """

    key: str
    body: str
    mask: int
    earlier: IdempotencyRecord | None = None

    def as_uuid(self) -> str:
        """Return an id that is the same whenever the request comes."""
        return str(uuid.uuid5(_KEYS, self.key))

    def record(
        self,
        *,
        now_ms: int,
        model_version: int,
        n_samples: int,
        n_new: int = 0,
        first_id: int | None = None,
        receipt: str | None = None,
        names: Sequence[str] = (),
    ) -> IdempotencyRecord:
        """Return what to keep of the answer; `names` are the marks of what the body names, see `Ledger.marks`."""
        return IdempotencyRecord(
            key=self.key,
            body=self.body,
            expires_ms=now_ms + KEPT_MS,
            model_version=model_version,
            n_samples=n_samples,
            n_new=n_new,
            first_id=None if first_id is None else first_id ^ self.mask,
            receipt=receipt,
            names=names,
        )


class Body(Protocol):
    """What the journal keeps of a mutation, as JSON; a class for each, beside the command that writes it.

    {"do": "add", "ids": [..], "rows": [[..]], "labels": [..], "subjects": [..] or null, "expires": [..] or null,
     "next_id": n, "at": t, "request": ".." or null, "retentions": {"subject": ms} or null, "nonces": base64,
     "weights": [..] or null}             earlier versions have written none of the last five
    {"do": "delete", "ids": [..]}
    {"do": "replace", "id": .., "row": [..], "label": .., "subject": .. or null, "expires": .. or null, "nonce": base64,
     "weight": w}                         earlier versions have written neither of the last two
    {"do": "restrict", "subjects": [..], "at": t, "keep": true or false}
    {"do": "release", "subjects": [..]}
    {"do": "retain", "subjects": [..], "period": ms or null, "at": t}
    {"do": "fit", "kind": .., "parameters": {..}, "classes": [..] or "open" or null, "max_classes": n or null}
                                          earlier versions have written neither of the last two

    Cells and labels are those of the request, not their codes: they mean the same to a model from any snapshot. JSON's
    shortest form of a number is read back as the same number. `decode` in `recovery/start.py` reads a body, and `redo`
    applies it.
    """

    def redo(self, model: Model, exports: int) -> Model:
        """Make the mutation in a model from a snapshot and return it; `exports` snapshots were handed out before."""


class PlannedBody(ABC):
    """The body of a mutation that a model plans."""

    __slots__ = ()

    @abstractmethod
    def plan(self, model: Model, exports: int, turn: Turn = FIRST) -> Plan:
        """Plan the mutation; `exports` snapshots were handed out before."""

    def redo(self, model: Model, exports: int) -> Model:
        """Make the mutation in a model from a snapshot and return it."""
        model.apply(self.plan(model, exports))
        return model


def _unasked(error: BaseException | None) -> None:
    """Take in an outcome that was told before."""


@dataclass(eq=False, repr=False)
class Command(ABC, Generic[R]):
    """One mutation of samples: `AddSamples`, `ReplaceSample`, `DeleteSamples`, or a `Restriction`.

    Attributes
    ----------
    is_refusable
        Whether a full queue or a full disk refuses it; erasures are not.
    key, caller
        The caller's idempotency key, and the id of the caller's access key; empty when it has none.
    done
        Called once: with None when the command is on the disk and in the model, else with what refused it.
    body, encoded
        What the journal keeps; known when it is planned, as are those that follow.
    planned
        The change that the model makes; None when it changes nothing, or by its body.
    names
        Ids and subjects that no other command of the same transaction may touch.
    takes_long
        Whether it sets off long work in the model.
    n_classes
        How many classes they add to those held.
    gone
        Ids whose old content is gone then.
    n_more
        How many samples more there are then.
    next_id
        The first number that is free as an id afterwards.
    n_new
        How many samples it adds; what else the answer to the same idempotency key needs.
    receipt_id
        Of the receipt that answers it; None where none does.
    first_id
        The first id that was generated, or that of the ledger's entry; None when there is none.
    received_ms
        When it came, in milliseconds since 1970.
    request_id
        Of the request that asks for it, for log lines; empty outside of requests.
    stages
        Of the same request; None when they are not read.
    version, n_samples
        Of the model after it; known when it is committed.
    """

    is_refusable: ClassVar[bool] = True

    key: IdempotencyKey | None = field(default=None, kw_only=True)
    caller: str = field(default="", kw_only=True)
    done: Callable[[BaseException | None], None] = field(default=_unasked, init=False)
    request_id: str = field(default="", init=False)
    stages: Stages | None = field(default=None, init=False)
    body: Body | None = field(default=None, init=False)
    encoded: bytes = field(default=b"", init=False)
    planned: Plan | None = field(default=None, init=False)
    names: Names = field(default_factory=set, init=False)
    takes_long: bool = field(default=False, init=False)
    n_classes: int = field(default=0, init=False)
    gone: Sequence[str] = field(default=(), init=False)
    n_more: int = field(default=0, init=False)
    next_id: int = field(default=0, init=False)
    n_new: int = field(default=0, init=False)
    receipt_id: str | None = field(default=None, init=False)
    first_id: int | None = field(default=None, init=False)
    received_ms: int = field(default=0, init=False)
    version: int = field(default=0, init=False)
    n_samples: int = field(default=0, init=False)
    n_items: int = field(default=1, init=False)
    _is_admitted: bool | None = field(default=None, init=False)

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

    def take(self, plan: Plan) -> None:
        """Take over what the model has answered, and what it is going to do."""
        self.planned = plan
        self.names = names_of(plan.ids, plan.subjects)
        self.n_more, self.n_classes, self.takes_long = plan.n_more, plan.n_classes, plan.takes_long

    def apply(self, model: Model) -> None:
        """Change the model by what was planned."""
        if self.planned is not None:
            model.apply(self.planned)

    def apply_to_fewer(self, model: Model, gone: Sequence[str]) -> None:
        """Change a model that holds fewer samples than the one of the plan: of those that go, only some."""
        if gone:
            self.apply(model)

    @abstractmethod
    def result(self) -> R:
        """Return what is answered."""

    def notes(self, transaction: Transaction) -> bytes:
        """Return what the ledger is to take in with it, when it is planned and has its version."""
        del transaction
        return b""

    def names_in_body(self) -> Names:
        """Return the ids and subjects whose erasure ends what is known of the request; more do no harm."""
        return self.names

    def committed(self, transaction: Transaction) -> None:
        """Note what follows from it, when it is on the disk and in the model."""
        del transaction

    def overwrite(self) -> None:
        """Overwrite what was sent and is in the model by now, where it is much."""

    @property
    def is_written(self) -> bool:
        """Whether it goes to the journal; what changes nothing and gives no receipt does not."""
        return self.body is not None or self.key is not None

    def is_admitted(self, transaction: Transaction) -> bool:
        """Whether it gets an entry of the ledger although it changes nothing; planned again, it counts once."""
        if self._is_admitted is None:
            self._is_admitted = transaction.admits_empty(self.caller)
        return self._is_admitted

    def tell(self, error: BaseException | None = None) -> None:
        """Tell who asked, once; a mistake in an answer must not keep others from theirs."""
        done, self.done = self.done, _unasked
        # It is the writer's task that tells.
        token, noted = logs.request_id.set(self.request_id), stages.set(self.stages)
        try:
            done(error)
        except Exception as mistake:
            log.error("a change was made, and its answer could not be: %s", cause_of(mistake))
            with suppress(Exception):
                done(mistake)  # or the caller would never get an answer
        finally:
            logs.request_id.reset(token)
            stages.reset(noted)

    def tell_unchanged(self, state: ModelState) -> None:
        """Tell who asked that nothing had to be changed."""
        self.version, self.n_samples = state.version, state.model.n_samples_
        self.tell()


def names_of(ids: Iterable[str], subjects: Iterable[str]) -> Names:
    """Return ids and subjects as names."""
    names = {("id", name) for name in ids}
    names.update([("subject", name) for name in subjects])
    return names


def apply_all(model: Model, commands: Sequence[Command[Any]]) -> int:
    """Change a model by commands that touch nothing in common, in their order; return how many samples it holds then.

    What neighbouring commands have planned enters the model at once.
    """
    n_samples = None
    for is_planned, run in groupby(commands, lambda command: command.planned is not None):
        if is_planned:
            n_samples = model.apply(*(command.planned for command in run if command.planned is not None))
        else:
            n_samples = None
            for command in run:
                command.apply(model)
    return model.n_samples_ if n_samples is None else n_samples


def apply_held(model: Model, commands: Sequence[Command[Any]]) -> None:
    """Change a model that was fitted on the samples of another by commands that were planned for that one.

    A sliding window may hold fewer of them: what it does not hold is neither deleted nor replaced.
    """
    if model.guarantee == "exact":  # has no window
        apply_all(model, commands)
        return
    store = model.samples_
    for command in commands:
        command.apply_to_fewer(model, [name for name in command.gone if store.holding(name) is not None])


def give_nonces(store: SampleStore) -> int:
    """Give nonces to all samples that have none, restricted or not; return to how many.

    Those are samples of a data file, and of files and journals of earlier versions.
    """
    n_given = 0
    for part in store.parts:
        without = np.setdiff1d(part.slots(), part.nonces.slots(), assume_unique=True)
        if len(without):
            part.nonces.reserve(int(without.max()) + 1)
            with part.changes:
                part.nonces.note(without, os.urandom(NONCE_BYTES * len(without)))
        n_given += len(without)
    return n_given


@dataclass(eq=False, repr=False)
class Transaction:
    """Commands that are committed together.

    Parameters
    ----------
    state
        What is changed.
    ledger
        Makes receipts and the entries of erasures.
    tombstones
        The ids that were erased lately.
    clock
        Tells the time.
    retention_ms
        After which samples expire that say nothing; None for never.
    push
        Targets of webhooks.
    deadline_ms
        How long an erasure may take.
    admits_empty
        Counts a request of a caller that changes nothing; whether it is written down. See `EmptyErasures`.

    Attributes
    ----------
    commands, records
        What is committed, and its records in the journal: one each.
    n_changes
        By how much the model's version goes up.
    turn
        What a further command finds: how many samples more, and which ids may be generated.
    names
        What it is about.
    """

    state: ModelState
    ledger: Ledger
    tombstones: Tombstones
    clock: Clock
    _retention_ms: int | None
    push: Sequence[str]
    deadline_ms: int
    admits_empty: Callable[[str], bool]
    commands: list[Command[Any]] = field(default_factory=list, init=False)
    records: list[Record] = field(default_factory=list, init=False)
    n_changes: int = field(default=0, init=False)
    names: Names = field(default_factory=set, init=False)
    turn: Turn = field(init=False)
    _n_samples: int | None = field(default=None, init=False)
    _head: Head = field(init=False)
    _stages: list[Stages] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.turn = Turn(next_id=self.state.next_id, longest_pause=LONGEST_PAUSE)
        self._head = self.ledger.head

    def now_ms(self) -> int:
        """Return the time, in milliseconds since 1970; never 0."""
        return max(1, self.clock.now_ms())

    def default_expiry(self) -> int | None:
        """Return when samples expire that say nothing, in milliseconds since 1970; None for never."""
        return None if self._retention_ms is None else self.clock.now_ms() + self._retention_ms

    def accepts(self, command: Command[Any]) -> bool:
        """Plan a command; whether it touches nothing that one of the transaction touches.

        Raises
        ------
        OubliError, ServiceError
            When it is refused.
        """
        try:
            command.plan(self.state.model, self)
        except UnusableModelError:
            raise UnavailableError("failed") from None
        command.encoded = b"" if command.body is None else orjson.dumps(command.body)
        # Two together could add more classes than there may be.
        adds_classes = command.n_classes and any(one.n_classes for one in self.commands)
        return not adds_classes and self.names.isdisjoint(command.names)

    def add(self, command: Command[Any]) -> None:
        """Take a planned command in: write its record, and its receipt."""
        state = self.state
        if command.stages is not None:
            self._stages.append(command.stages)
        changes = int(command.body is not None)
        command.version = state.version + self.n_changes + changes
        notes = command.notes(self)
        turn = self.turn
        self.turn = turn._replace(
            n_more=turn.n_more + command.n_more,
            n_items=turn.n_items + command.n_items,
            next_id=max(turn.next_id, command.next_id),
        )
        if command.key is not None:
            kept = command.key.record(
                now_ms=self.clock.steady_ms(),
                model_version=command.version,
                n_samples=state.model.n_samples_ + self.turn.n_more,
                n_new=command.n_new,
                first_id=command.first_id,
                receipt=command.receipt_id,
                names=self.ledger.marks(command.names_in_body()),
            )
            notes = with_idempotency(notes, kept)
        self.names |= command.names
        self.n_changes += changes
        self.records.append(Record(state.seq + len(self.records) + 1, command.version, command.encoded, notes))
        self.commands.append(command)

    def apply(self) -> None:
        """Change the model by what is on the disk now."""
        self._n_samples = apply_all(self.state.model, self.changing)

    @property
    def changing(self) -> list[Command[Any]]:
        """The commands that change the model."""
        return [command for command in self.commands if command.body is not None]

    def answer(self) -> None:
        """Answer all: they are on the disk and in the model."""
        state = self.state
        state.next_id = max(state.next_id, self.turn.next_id)
        n_samples = state.model.n_samples_ if self._n_samples is None else self._n_samples
        for command in self.commands:
            command.n_samples = n_samples
            command.committed(self)
            command.tell()

    def refuse(self, error: BaseException) -> None:
        """Answer all that they were not made."""
        for command in self.commands:
            command.tell(error)

    def end_stage(self, name: Name) -> None:
        """Note for the traces of all commands that a stage has ended."""
        for noted in self._stages:
            noted.end(name)

    def log_error(self, text: str) -> None:
        """Log what has happened to each command, with the id of its request."""
        for command in self.commands:
            with logs.about(command.request_id):
                log.error(text)

    def rewind(self) -> None:
        """Have the ledger forget the entries: the journal does not have them."""
        self.ledger.rewind(self._head)

    def overwrite(self) -> None:
        """Overwrite what was sent and is in the model by now."""
        if self.turn.n_items >= LARGE:
            for command in self.commands:
                command.overwrite()

    def note_erasure(self, receipt_id: str, hashes: Sequence[str], targets: Sequence[str], by: By) -> None:
        """Note an erasure that is to be finished, and the keyed hashes of ids that may not come back for a while."""
        state, now = self.state, self.clock.steady_ms()
        known = self.ledger.target_hashes(targets, by)[0] if targets else ""
        state.pending[receipt_id] = Pending(state.seq, now, period=state.period, targets=known)
        self.tombstones.add(hashes, now)

    def deletion_after(self, seq: int, targets: Sequence[str], by: By) -> str | None:
        """Return the receipt of the last deletion of exactly these targets, if a record after one has it."""
        known = self.ledger.target_hashes(targets, by)[0]
        later = takewhile(lambda one: one[1].seq > seq, reversed(self.state.pending.items()))
        return next((receipt_id for receipt_id, pending in later if pending.targets == known), None)
