"""The queue of commands, and the one place where the model changes.

    waiting        1 2 3 4 5 6 ...   commands, in the order in which they came
                   +---+ +-----+
    transaction      |     next      as many as touch nothing in common
                     v
                   plan all -> one record each -> journal (one flush for all) -> apply all -> answer all

What is refused when it is planned is answered at once. What the disk refuses is answered with that, and is not in the
model: the model changes after the flush, never before it. A flush that fails leaves the disk in doubt; then nothing is
changed any more until a restart reads what is there.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import orjson

from oubli.app import logs
from oubli.app.errors import (
    BusyError,
    DeposedError,
    JournalError,
    JournalFullError,
    JournalRefusedError,
    JournalUnreachableError,
    NoDescriptorsError,
    NotLeaderError,
    StopReason,
    StorageError,
    UnavailableError,
)
from oubli.app.ledger.entries import Entry, Head, with_idempotency, with_request
from oubli.app.ledger.ledger import Ledger, LedgerWorker, Tombstones
from oubli.app.service.bodies import AddBody
from oubli.app.service.commands.additions import AddSamples
from oubli.app.service.commands.command import LARGE, Command, apply_all
from oubli.app.service.commands.deletions import DeleteSamples, Erasure, ReplaceSample
from oubli.app.service.commands.restrictions import ReleaseSubjects, RestrictSubjects, RetainSubjects
from oubli.app.service.commands.swaps import ModelSwap
from oubli.app.service.lock import ModelLock
from oubli.app.service.measurements import Histogram
from oubli.app.service.memory import let_go_of
from oubli.app.service.outbox import Outbox
from oubli.app.service.stages import Name, Stages, stages
from oubli.app.service.state import ModelState, Pending
from oubli.app.storage.journal import Journal, Record
from oubli.app.threads import Threads
from oubli.app.times import Clock
from oubli.core.model import Model

log = logging.getLogger("oubli.service")

R = TypeVar("R")
LONGEST_PAUSE = 0.050  # seconds that a model may spend on the event loop on building parts of itself anew
LOOP_BUDGET = 0.010  # seconds of work that may run on the event loop in one piece
_WEIGHT = 0.1  # of the newest measurement in the moving average
_MOST_AT_ONCE = 256


def _nothing() -> None:
    """Do nothing."""


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
    outbox
        Knows who is told of receipts.
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
    _outbox: Outbox
    _deadline_ms: int
    admits_empty: Callable[[str], bool]
    commands: list[Command[Any]] = field(default_factory=list, init=False)
    records: list[Record] = field(default_factory=list, init=False)
    n_items: int = field(default=0, init=False)
    n_changes: int = field(default=0, init=False)
    n_more: int = field(default=0, init=False)
    next_id: int = field(init=False)
    erased_lately: Callable[[str], bool] = field(init=False)
    _head: Head = field(init=False)
    _names: set[tuple[str, str]] = field(default_factory=set, init=False)
    _stages: list[Stages] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.next_id = self._state.next_id
        self.erased_lately = self._tombstones.holds
        self._head = self._ledger.head

    @property
    def exports(self) -> int:
        """How many times a snapshot was handed out; kept with samples that are added."""
        return self._state.exports

    def now_ms(self) -> int:
        """Return the time, in milliseconds since 1970; never 0."""
        return max(1, self._clock.now_ms())

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
        touches_trees = command.adds is not None or command.unlearned or isinstance(command, ReplaceSample)
        if command.body is None or not touches_trees:
            return False
        return self._state.model.takes_long(command.adds, command.unlearned, self.n_items, LONGEST_PAUSE)

    def add(self, command: Command[Any]) -> None:
        """Take a planned command in: write its record, and its receipt."""
        state = self._state
        if command.stages is not None:
            self._stages.append(command.stages)
        changes = int(command.body is not None)
        command.version = state.version + self.n_changes + changes
        notes = command.notes(self)
        self.n_more += command.n_more
        if command.key is not None:
            kept = command.key.record(
                now_ms=self._clock.steady_ms(),
                model_version=command.version,
                n_samples=state.model.n_samples_ + self.n_more,
                n_new=len(command.body.ids) if isinstance(command.body, AddBody) else 0,
                first_id=command.first_id,
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
        self._ledger.rewind(self._head)

    def overwrite(self) -> None:
        """Overwrite what was sent and is in the model by now."""
        if self.n_items >= LARGE:
            for command in self.commands:
                if isinstance(command, AddSamples):
                    command.overwrite()

    # --- what commands add to their records

    def restriction(self, fields: Callable[[str], dict[str, Any]]) -> tuple[Entry, bytes]:
        """Return the ledger's entry of a restriction, and the notes that hold it; `fields` is given the guarantee."""
        return self._ledger.restriction(**fields(self._state.model.guarantee))

    def erasure_notes(self, command: Erasure) -> bytes:
        """Return the notes of an erasure, which gets its receipt."""
        notes, receipt_id = self._receipt_notes(command) if command.is_recorded else (b"", None)
        if command.request is None:
            return notes
        state = "open" if command.is_recorded else "completed"  # what found nothing has nothing left to erase
        return with_request(notes, replace(command.request, receipt=receipt_id, state=state))

    def _receipt_notes(self, command: Erasure) -> tuple[bytes, str]:
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
            deadline_ms=self._deadline_ms,
            found=command.counts if command.by == "subjects" else None,
            push=self._outbox.targets,
        )
        command.receipt, command.hashes = made.receipt, made.hashes
        return made.notes, made.receipt.id

    def _exported(self, command: Erasure) -> int:
        """How many snapshots were handed out while one of the samples that go was held."""
        if not self.exports or not command.gone:
            return 0
        store = self._state.model.samples_
        return self.exports - min((store.holding(name) or store).origin(name) for name in command.gone)

    def note_erasure(self, command: Erasure) -> None:
        """Note an erasure that is to be finished. Also when nothing was held: older files may hold what went before."""
        state, now = self._state, self._clock.steady_ms()
        if command.receipt is None:
            return
        state.pending[command.receipt.id] = Pending(state.seq, now, period=state.period)
        self._outbox.ring()
        if command.kind != "rectification":
            self._tombstones.add(command.hashes, now)


@dataclass(eq=False, repr=False)
class Writer:
    """Commits commands, several at a time.

    Parameters
    ----------
    state
        What is changed.
    journal
        What makes it durable.
    ledger
        Takes the entries of what is committed into its database.
    begin
        Makes an empty transaction.
    lock
        Who may touch the model.
    threads
        For the journal, and for commands that take long.
    max_queue
        Most commands that wait; erasures wait all the same.
    now_ms
        The time, in milliseconds since 1970.
    changed
        Called after each transaction that changed the model.
    keep_up
        Awaited before each transaction; see `IdleResolver`.
    touched
        Called with the ids and subjects of each command that has changed samples, with None for another model; see
        `SampleSet`.

    Attributes
    ----------
    commits
        How long records took until they were on the disk.
    """

    _state: ModelState
    _journal: Journal
    _ledger: LedgerWorker
    _begin: Callable[[], Transaction]
    _lock: ModelLock
    _threads: Threads
    _max_queue: int
    _now_ms: Callable[[], int]
    _changed: Callable[[], object]
    _keep_up: Callable[[], Awaitable[None]]
    _touched: Callable[[set[tuple[str, str]] | None], object]
    costs: dict[type[Command[Any]], Cost] = field(init=False)
    commits: Histogram = field(default_factory=Histogram, init=False)
    _waiting: deque[Command[Any]] = field(default_factory=deque, init=False)
    _followers: list[list[Command[Any]]] = field(default_factory=list, init=False)
    _use_reserve: bool = field(default=False, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        adding = Cost(200e-6)
        self.costs = {
            AddSamples: adding,
            ReplaceSample: adding,
            ReleaseSubjects: adding,
            DeleteSamples: Cost(200e-6),
            RestrictSubjects: Cost(300e-6),
            RetainSubjects: Cost(20e-6),
        }

    @property
    def n_waiting(self) -> int:
        """How many commands wait."""
        return len(self._waiting)

    # --- asking for a change

    def submit(self, command: Command[R], done: Callable[[BaseException | None], None]) -> bool:
        """Have a short command committed; false, and nothing is done, when it takes long: see `execute`.

        Parameters
        ----------
        command
            What to do.
        done
            Called when it is committed or refused, perhaps before this returns; see `Command`.

        Raises
        ------
        BusyError
            When as many wait as may.
        UnavailableError
            When nothing is changed any more.
        NotLeaderError
            When another node leads.
        """
        state = self._state
        state.require_leading()
        if state.halted is not None:
            raise UnavailableError("failed")
        command.n_items = command.count(state.model)
        command.done = done
        command.request_id = logs.request_id.get()
        command.stages = noted = stages.get()
        if noted is not None:
            noted.end("parse")
        command.received_ms = self._now_ms()
        if not self.costs[type(command)].is_short(command.n_items):
            return False
        if not self._journal.is_durable and not self._waiting and self._lock.free:
            self._commit_now(command)  # nothing is written, so nobody has to be waited for
        elif command.is_refusable and len(self._waiting) >= self._max_queue:
            raise BusyError
        else:
            self._waiting.append(command)
            self._wake.set()
        return True

    async def execute(self, command: Command[R]) -> R:
        """Commit a command, long or short, and return its result."""
        settled: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        if not self.submit(command, partial(_settle, settled, command)):
            try:
                await self._threads.finish(self._commit_aside(command))
            except BaseException:
                settled.cancel()
                raise
        return await settled

    async def run(self) -> None:
        """Commit what waits, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._keep_up()
                async with self._lock.mutations:
                    await self._commit_waiting()

    async def drain(self) -> None:
        """Commit what waits and return when nothing does."""
        while self._waiting:  # noqa: ASYNC110 - at the end of the server, for a moment
            await asyncio.sleep(0.001)
        async with self._lock.mutation(refusable=False):
            pass  # what was taken from the queue last has been answered

    def follow(self) -> list[Command[Any]]:
        """Return a list to which every command is added that changes the model from now on."""
        followed: list[Command[Any]] = []
        self._followers.append(followed)
        return followed

    def unfollow(self, followed: list[Command[Any]]) -> None:
        """Add no more commands to a list."""
        self._followers = [other for other in self._followers if other is not followed]

    # --- one record, inside of a mutation

    async def note(self, notes: Callable[[], bytes], then: Callable[[], object] = _nothing) -> None:
        """Take notes to the journal that change no sample, to the end also when whoever awaits it is cancelled.

        A record that is in the journal and not in the state would stop all that come after it.

        Parameters
        ----------
        notes
            Makes them, in their turn.
        then
            Called before the next turn, once they are in the journal.

        Raises
        ------
        JournalError
            When they are not in the journal.
        """
        await self._threads.finish(self._note(notes, then))

    async def _note(self, notes: Callable[[], bytes], then: Callable[[], object]) -> None:
        async with self._lock.mutation(refusable=False):
            await self.record(notes)
            then()

    async def record(self, notes: Callable[[], bytes], swap: ModelSwap | None = None) -> None:
        """Write one record to the journal, in a mutation, and put another model in place. It must not be cancelled.

        Parameters
        ----------
        notes
            Makes the entries of the ledger.
        swap
            Done in the same step of the loop in which the version goes up; None when no sample changes.

        Raises
        ------
        JournalError
            When it is not in the journal.
        """
        transaction, state = self._begin(), self._state
        if state.following:
            raise DeposedError("another node leads")
        changes = int(swap is not None)
        body = b"" if swap is None or swap.body is None else orjson.dumps(swap.body)
        record = Record(state.seq + 1, state.version + changes, body, notes())
        try:
            await self._append([record], reserve=True)
        except JournalError as error:
            transaction.rewind()
            if isinstance(error, DeposedError):
                state.depose()
            if self._journal.failed:
                state.halt(StopReason.DISK_FAILED)
            raise
        if swap is not None:
            swap.swap(state)
            self._touched(None)
        self._committed([record], changes)

    async def _append(self, records: Sequence[Record], *, reserve: bool) -> None:
        """Write records to the journal in its thread."""
        work = partial(self._write, records, reserve=reserve)
        await asyncio.get_running_loop().run_in_executor(self._threads.writer, work)

    def _write(self, records: Sequence[Record], *, reserve: bool) -> None:
        started = time.perf_counter()
        self._journal.append(records, reserve=reserve)
        self.commits.observe(time.perf_counter() - started)

    # --- one transaction

    def _commit_now(self, command: Command[Any]) -> None:
        transaction = self._begin()
        if self._take(transaction, command):
            transaction.end_stage("plan")
            self._journal.append(transaction.records)
            transaction.end_stage("journal")
            self._apply(transaction)
        else:
            self._waiting.append(command)
            self._wake.set()

    async def _commit_waiting(self) -> None:
        transaction = self._begin()
        long = self._take_waiting(transaction)
        if not transaction.commands:
            if long is not None:
                await self._commit_long(self._waiting.popleft(), transaction)
            return
        transaction.end_stage("plan")
        try:
            await self._append(transaction.records, reserve=self._use_reserve)
        except JournalFullError as error:
            transaction.rewind()
            self._state.hindered = hindrance(error)
            if isinstance(error, JournalUnreachableError):  # there is no reserve to try again with
                transaction.refuse(error)
            else:
                self._give_way(transaction)
            return
        except Exception as error:  # also a mistake of ours: what waits must be told, and what comes later be served
            transaction.rewind()
            self._fail(transaction, error)
            return
        transaction.end_stage("journal")
        if not self._use_reserve:
            self._state.hindered = None
        self._use_reserve = False
        if self._lock.n_readers:
            await self._lock.exclusive()
        self._apply(transaction)

    def _take_waiting(self, transaction: Transaction) -> Command[Any] | None:
        """Plan commands in their order, until two touch the same or applying them all would take too long.

        Returns
        -------
        Command or None
            The first that waits, when it is planned and takes long.
        """
        seconds = 0.0
        while self._waiting and len(transaction.commands) < _MOST_AT_ONCE and seconds < LOOP_BUDGET:
            command = self._waiting[0]
            if self._use_reserve and command.is_refusable:
                if transaction.commands:
                    break
                self._use_reserve = False  # the erasure that asked for it has been refused meanwhile
            if not self._take(transaction, command):
                return command
            self._waiting.popleft()
            seconds += self.costs[type(command)].guess(command.n_items)
        return None

    def _take(self, transaction: Transaction, command: Command[Any]) -> bool:
        """Plan a command and take it into a transaction; false when it has to wait for the next one, or takes long."""
        state = self._state
        if command.stages is not None:
            command.stages.end("wait")
        try:
            self._require_sound()
            is_accepted = transaction.accepts(command)
        except Exception as refused:  # planning changes nothing, so that only this command is lost, whatever it was
            command.tell(refused)
            return True
        if not is_accepted or transaction.takes_long(command):
            return False
        if command.is_written:
            transaction.add(command)
        else:
            command.tell_unchanged(state)
        return True

    async def _commit_long(self, command: Command[Any], transaction: Transaction) -> None:
        """Commit a command that looked short, and sets off long work in the model, on a copy."""
        try:
            with self._lock.reading():
                copy = await self._threads.save(partial(_copy_with, self._state.model, command))
            await self._commit_copy(transaction, command, copy)
        except Exception as error:
            command.tell(error)

    async def _commit_aside(self, command: Command[Any]) -> None:
        """Apply a long command to a copy in a thread; then the copy replaces the model in one step."""
        async with self._lock.mutation(refusable=command.is_refusable):
            self._require_sound()
            if command.stages is not None:
                command.stages.end("wait")
            transaction = self._begin()
            with self._lock.reading():
                copy = await self._threads.save(partial(_planned_copy, self._state.model, transaction, command))
            await self._commit_copy(transaction, command, copy)

    async def _commit_copy(self, transaction: Transaction, command: Command[Any], copy: Model | None) -> None:
        """Commit a command that was applied to a copy."""
        state = self._state
        if not command.is_written:
            command.tell_unchanged(state)
            return
        transaction.add(command)
        transaction.end_stage("model")  # the copy was changed before
        try:
            await self._append(transaction.records, reserve=not command.is_refusable)
        except JournalFullError as error:
            transaction.rewind()
            state.hindered = hindrance(error)
            transaction.refuse(error if isinstance(error, JournalUnreachableError) else StorageError(str(error)))
            return
        except JournalError as error:
            transaction.rewind()
            self._fail(transaction, error)
            return
        transaction.end_stage("journal")
        old = state.model
        if copy is not None:
            state.model = copy
        self._answer(transaction)
        if copy is not None:
            await self._lock.exclusive()  # whoever reads the old one in a thread has begun before
            await self._threads.save(partial(let_go_of, old))

    def _apply(self, transaction: Transaction) -> None:
        """Change the model by what is on the disk now, and answer."""
        started = time.perf_counter()
        self._lock.own()
        try:
            transaction.apply()
        except BaseException as mistake:
            # Nobody knows how far it got: a snapshot or a further change could make it worse.
            transaction.log_error("a mutation failed inside the model: no further mutation is accepted until a restart")
            self._fail(transaction, mistake)
            if not isinstance(mistake, Exception):
                raise
            return
        transaction.end_stage("model")
        if len(transaction.commands) == 1:
            (command,) = transaction.commands
            self.costs[type(command)].observe(command.n_items, time.perf_counter() - started)
        self._answer(transaction)

    def _answer(self, transaction: Transaction) -> None:
        """Answer what is on the disk and in the model."""
        self._committed(transaction.records, transaction.n_changes)
        for command in transaction.changing:
            self._touched(command.names)
        for followed in self._followers:
            followed.extend(transaction.changing)
        if not self._followers:
            transaction.overwrite()
        transaction.answer()

    def _committed(self, records: Sequence[Record], n_changes: int) -> None:
        """Note that records are in the journal and the model is as they say."""
        state = self._state
        if records:
            state.seq = records[-1].seq
        state.version += n_changes
        self._ledger.write(records)
        if n_changes:
            self._changed()

    def _give_way(self, transaction: Transaction) -> None:
        """On a full disk: refuse what may be refused, and let erasures try again with the reserve."""
        erasures = [command for command in transaction.commands if not command.is_refusable]
        for command in transaction.commands:
            if command.is_refusable or self._use_reserve:
                command.tell(StorageError("no room on the disk"))
        if not self._use_reserve and erasures:
            self._waiting.extendleft(reversed(erasures))
        self._use_reserve = not self._use_reserve and bool(erasures)

    def _fail(self, transaction: Transaction, error: BaseException) -> None:
        """Nothing is changed from now on: the disk or the model is in doubt until a restart, or another node leads."""
        if isinstance(error, DeposedError):
            self._state.depose()
            transaction.refuse(NotLeaderError())
            return
        is_known = isinstance(error, JournalError)
        self._state.halt(StopReason.DISK_FAILED if is_known else StopReason.MODEL_UNUSABLE)
        transaction.refuse(UnavailableError("failed") if is_known else error)
        if is_known:
            transaction.log_error("the journal could not be written: no mutation is accepted until a restart")

    def _require_sound(self) -> None:
        self._state.require_leading()
        if self._state.halted is not None or not self._state.model.is_usable:
            raise UnavailableError("failed")


def hindrance(error: JournalFullError) -> StopReason:
    """Return why a change could not be written that may be written later."""
    if isinstance(error, JournalUnreachableError):
        return StopReason.JOURNAL_UNREACHABLE
    if isinstance(error, JournalRefusedError):
        return StopReason.DISK_ERRORS
    return StopReason.NO_DESCRIPTORS if isinstance(error, NoDescriptorsError) else StopReason.DISK_FULL


def _settle(future: asyncio.Future[R], command: Command[R], error: BaseException | None) -> None:
    """Settle the future that a caller awaits; the caller may have gone."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(command.result())


def _planned_copy(model: Model, transaction: Transaction, command: Command[Any]) -> Model | None:
    """Plan a command and apply it to a copy; None where nothing changes."""
    transaction.accepts(command)
    return None if command.body is None else _copy_with(model, command)


def _copy_with(model: Model, command: Command[Any]) -> Model:
    """Apply a planned command to a copy."""
    copy = model.copy()
    apply_all(copy, [command])
    # Resolved here, or the first predictions would rebuild half the forest on the event loop.
    copy.resolve()
    return copy
