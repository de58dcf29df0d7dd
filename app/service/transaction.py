"""Commands that are committed together: their records, their receipts, and what follows from them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from oubli.app import logs
from oubli.app.ledger.entries import with_idempotency
from oubli.app.service.commands.command import LARGE, apply_all
from oubli.app.service.commands.deletions import ReplaceSample
from oubli.app.service.durations import LONGEST_PAUSE
from oubli.app.service.state import Pending
from oubli.app.storage.journal import Record

if TYPE_CHECKING:
    from oubli.app.ledger.entries import Head
    from oubli.app.ledger.ledger import Ledger, Tombstones
    from oubli.app.service.commands.command import Command
    from oubli.app.service.stages import Name, Stages
    from oubli.app.service.state import ModelState
    from oubli.app.times import Clock

log = logging.getLogger("oubli.service")


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
        Who is told of receipts.
    deadline_ms
        How long an erasure may take.
    admits_empty
        Counts an erasure of a caller that has found nothing; whether it is written down. See `EmptyErasures`.

    Attributes
    ----------
    commands, records
        What is committed, and its records in the journal: one each.
    n_items, n_changes
        How many samples it is about, and by how much the model's version goes up.
    n_more
        How many samples more the model holds then.
    names
        Kinds (`id` or `subject`) and texts of what it is about.
    next_id
        The smallest number that may be generated as an id.
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
    n_items: int = field(default=0, init=False)
    n_changes: int = field(default=0, init=False)
    n_more: int = field(default=0, init=False)
    names: set[tuple[str, str]] = field(default_factory=set, init=False)
    next_id: int = field(init=False)
    _head: Head = field(init=False)
    _stages: list[Stages] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.next_id = self.state.next_id
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
        command.plan(self.state.model, self)
        command.encoded = b"" if command.body is None else orjson.dumps(command.body)
        return self.names.isdisjoint(command.names)

    def takes_long(self, command: Command[Any]) -> bool:
        """Whether a planned command sets off long work in the model."""
        touches_trees = command.adds is not None or command.unlearned or isinstance(command, ReplaceSample)
        if command.body is None or not touches_trees:
            return False
        return self.state.model.takes_long(command.adds, command.unlearned, self.n_items, LONGEST_PAUSE)

    def add(self, command: Command[Any]) -> None:
        """Take a planned command in: write its record, and its receipt."""
        state = self.state
        if command.stages is not None:
            self._stages.append(command.stages)
        changes = int(command.body is not None)
        command.version = state.version + self.n_changes + changes
        notes = command.notes(self)
        self.n_more += command.n_more
        if command.key is not None:
            kept = command.key.record(
                now_ms=self.clock.steady_ms(),
                model_version=command.version,
                n_samples=state.model.n_samples_ + self.n_more,
                n_new=command.n_new,
                first_id=command.first_id,
                receipt=None if command.receipt is None else command.receipt.id,
            )
            notes = with_idempotency(notes, kept)
        self.names |= command.names
        self.n_changes += changes
        self.n_items += command.n_items
        self.next_id = max(self.next_id, command.next_id)
        self.records.append(Record(state.seq + len(self.records) + 1, command.version, command.encoded, notes))
        self.commands.append(command)

    def apply(self) -> None:
        """Change the model by what is on the disk now."""
        apply_all(self.state.model, self.changing)

    @property
    def changing(self) -> list[Command[Any]]:
        """The commands that change the model."""
        return [command for command in self.commands if command.body is not None]

    def answer(self) -> None:
        """Answer all: they are on the disk and in the model."""
        state = self.state
        state.next_id = max(state.next_id, self.next_id)
        n_samples = state.model.n_samples_
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
        if self.n_items >= LARGE:
            for command in self.commands:
                command.overwrite()

    def note_erasure(self, receipt_id: str, hashes: Sequence[str]) -> None:
        """Note an erasure that is to be finished, and the keyed hashes of ids that may not come back for a while."""
        state, now = self.state, self.clock.steady_ms()
        state.pending[receipt_id] = Pending(state.seq, now, period=state.period)
        self.tombstones.add(hashes, now)
