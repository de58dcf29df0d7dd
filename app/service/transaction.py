"""One transaction: the commands that are written to the journal with one flush, and applied together.

Beside it what decides about them: how long they take, and which ids were erased lately.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from oubli.app.ledger.entries import Head, with_idempotency
from oubli.app.ledger.ledger import Ledger
from oubli.app.service.bodies import AddBody
from oubli.app.service.commands import LARGE, AddSamples, Command, DeleteSamples, Erasure, apply_all
from oubli.app.service.state import ModelState, Pending
from oubli.app.storage.journal import Record
from oubli.app.times import Clock

LONGEST_PAUSE = 0.050  # seconds that a model may spend on the event loop on building parts of itself anew
LOOP_BUDGET = 0.010  # seconds of work that may run on the event loop in one piece
_WEIGHT = 0.1  # of the newest measurement in the moving average


class Cost:
    """A moving average of the time for one item.

    Parameters
    ----------
    seconds
        First guess for one item.
    budget
        Seconds that may be spent on the event loop, while nothing else is answered.
    """

    __slots__ = ("_budget", "_seconds")

    def __init__(self, seconds: float, budget: float = LOOP_BUDGET) -> None:
        self._seconds = seconds
        self._budget = budget

    def is_short(self, n_items: int) -> bool:
        """Whether `n_items` may run on the loop. A single item always may: a thread would not make it shorter."""
        return n_items <= 1 or n_items * self._seconds <= self._budget

    def guess(self, n_items: int) -> float:
        """Return how many seconds `n_items` will take."""
        return n_items * self._seconds

    def observe(self, n_items: int, seconds: float) -> None:
        """Take a measurement into the average."""
        if n_items:
            self._seconds += _WEIGHT * (seconds / n_items - self._seconds)


class Tombstones:
    """The ids erased so lately that a late retry could bring a person back; known by keyed hashes only.

    Parameters
    ----------
    period_ms
        How long an id is remembered; 0 remembers nothing.
    hashes
        Returns the keyed hashes of an id: one for each key that is known, the current one first.
    now_ms
        The steady time: a clock that is set must neither end the period nor prolong it.
    erased
        Hash and steady time of what was erased before, oldest first.
    """

    def __init__(
        self,
        period_ms: int,
        hashes: Callable[[str], Sequence[str]],
        now_ms: Callable[[], int],
        erased: Iterable[tuple[str, int]] = (),
    ) -> None:
        self._period_ms = period_ms
        self._hashes = hashes
        self._now_ms = now_ms
        self._times: dict[str, int] = {}
        self._order: deque[tuple[int, str]] = deque()
        for known, at in erased:
            self._remember(known, at)

    def add(self, hashes: Iterable[str], at_ms: int) -> None:
        """Note that ids were erased, by their hashes under the current key."""
        if self._period_ms:
            for known in hashes:
                self._remember(known, at_ms)

    def holds(self, sample_id: str) -> bool:
        """Whether an id was erased within the period."""
        self._forget()
        return bool(self._times) and any(known in self._times for known in self._hashes(sample_id))

    def _remember(self, known: str, at_ms: int) -> None:
        self._times[known] = at_ms
        self._order.append((at_ms, known))

    def _forget(self) -> None:
        end = self._now_ms() - self._period_ms
        while self._order and self._order[0][0] <= end:
            at, known = self._order.popleft()
            if self._times.get(known) == at:  # it may have been erased again since
                del self._times[known]


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

    Attributes
    ----------
    commands, records
        What is committed, and its records in the journal: one each.
    n_items, n_changes
        How many samples it is about, and by how much the model's version goes up.
    next_id
        The smallest number that may be generated as an id.
    erased_lately
        Whether an id was erased so lately that it may only come back when the caller means it.
    """

    _state: ModelState
    _ledger: Ledger
    _tombstones: Tombstones
    _clock: Clock
    _retention_ms: int | None
    commands: list[Command[Any]] = field(default_factory=list, init=False)
    records: list[Record] = field(default_factory=list, init=False)
    n_items: int = field(default=0, init=False)
    n_changes: int = field(default=0, init=False)
    next_id: int = field(init=False)
    erased_lately: Callable[[str], bool] = field(init=False)
    _head: Head = field(init=False)
    _names: set[tuple[str, str]] = field(default_factory=set, init=False)
    _n_more: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.next_id = self._state.next_id
        self.erased_lately = self._tombstones.holds
        self._head = self._ledger.head

    @property
    def exports(self) -> int:
        """How many times a snapshot was handed out; kept with samples that are added."""
        return self._state.exports

    def default_expiry(self) -> int | None:
        """Return when samples expire that say nothing, in milliseconds since 1970; None for never."""
        return None if self._retention_ms is None else self._clock.now_ms() + self._retention_ms

    def accepts(self, command: Command[Any]) -> bool:
        """Plan a command; whether it touches nothing that one of the transaction touches.

        Raises
        ------
        OubliError, ServiceError
            When it is refused.
        """
        command.plan(self._state.model, self)
        command.encoded = b"" if command.body is None else orjson.dumps(command.body)
        return self._names.isdisjoint(command.names)

    def takes_long(self, command: Command[Any]) -> bool:
        """Whether a planned command sets off long work in the model."""
        if command.body is None:
            return False
        deletes = command.gone if isinstance(command, DeleteSamples) else ()
        return self._state.model.takes_long(command.adds, deletes, self.n_items, LONGEST_PAUSE)

    def add(self, command: Command[Any]) -> None:
        """Take a planned command in: write its record, and its receipt."""
        state = self._state
        changes = int(command.body is not None)
        command.version = state.version + self.n_changes + changes
        notes = self._receipt_notes(command) if isinstance(command, Erasure) else b""
        self._n_more += command.n_more
        if command.key is not None:
            kept = command.key.record(
                now_ms=self._clock.steady_ms(),
                model_version=command.version,
                n_samples=state.model.n_samples_ + self._n_more,
                n_new=len(command.body.ids) if isinstance(command.body, AddBody) else 0,
                first_id=command.first_generated,
                receipt=None if command.receipt is None else command.receipt.id,
            )
            notes = with_idempotency(notes, kept)
        self._names |= command.names
        self.n_changes += changes
        self.n_items += command.n_items
        self.next_id = max(self.next_id, command.next_id)
        self.records.append(Record(state.seq + len(self.records) + 1, command.version, command.encoded, notes))
        self.commands.append(command)

    def apply(self) -> None:
        """Change the model by what is on the disk now."""
        apply_all(self._state.model, self.changing)

    @property
    def changing(self) -> list[Command[Any]]:
        """The commands that change the model."""
        return [command for command in self.commands if command.body is not None]

    def answer(self) -> None:
        """Answer all: they are on the disk and in the model."""
        state = self._state
        state.next_id = max(state.next_id, self.next_id)
        n_samples = state.model.n_samples_
        for command in self.commands:
            command.n_samples = n_samples
            if isinstance(command, Erasure):
                self._note_erasure(command)
            command.tell()

    def refuse(self, error: BaseException) -> None:
        """Answer all that they were not made."""
        for command in self.commands:
            command.tell(error)

    def rewind(self) -> None:
        """Have the ledger forget the entries: the journal does not have them."""
        self._ledger.rewind(self._head)

    def overwrite(self) -> None:
        """Overwrite what was sent and is in the model by now."""
        if self.n_items >= LARGE:
            for command in self.commands:
                if isinstance(command, AddSamples):
                    command.overwrite()

    def _receipt_notes(self, command: Erasure) -> bytes:
        made = self._ledger.unlearned(
            kind=command.kind,
            guarantee=self._state.model.guarantee,
            requested=len(command.targets),
            unlearned_ids=command.gone,
            targets=command.targets,
            by=command.by,
            absent=command.absent,
            ref=command.ref,
            model_version=command.version,
            received_at=command.received_ms,
            unlearned_at=self._clock.now_ms(),
            exported=self._exported(command),
        )
        command.receipt, command.hashes = made.receipt, made.hashes
        return made.notes

    def _exported(self, command: Erasure) -> int:
        """How many snapshots were handed out while one of the samples that go was held."""
        if not self.exports or not command.gone:
            return 0
        store = self._state.model.samples_
        return self.exports - min(store.origin(name) for name in command.gone)

    def _note_erasure(self, command: Erasure) -> None:
        """Note an erasure that is to be finished. Also when nothing was held: older files may hold what went before."""
        state, now = self._state, self._clock.steady_ms()
        if command.receipt is None:
            return
        state.pending[command.receipt.id] = Pending(state.seq, now, period=state.period)
        if command.kind != "rectification":
            self._tombstones.add(command.hashes, now)
