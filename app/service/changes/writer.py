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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import orjson

from oubli.app import logs
from oubli.app.errors import (
    BusyError,
    DeposedError,
    JournalError,
    JournalFullError,
    JournalUnreachableError,
    NotLeaderError,
    StopReason,
    StorageError,
    UnavailableError,
)
from oubli.app.service.changes.command import MANY_NAMES, Body, Command, Transaction, apply_all
from oubli.app.service.memory import without_collector
from oubli.app.service.model.live import Disk, LiveModel
from oubli.app.service.model.state import ModelState
from oubli.app.storage.journal import Record
from oubli.app.times import LONGEST_PAUSE, LOOP_BUDGET, Histogram, stages
from oubli.core.model import Model
from oubli.core.planning import Plan

log = logging.getLogger("oubli.service")

R = TypeVar("R")
_MOST_AT_ONCE = 256


def _nothing() -> None:
    """Do nothing."""


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
    body: Body | None = None

    def swap(self, state: ModelState) -> None:
        """Put the model in its place."""
        state.model = self.model


@dataclass(eq=False, repr=False)
class Writer:
    """Commits commands, several at a time.

    Parameters
    ----------
    live
        The live model and who may use it.
    disk
        Where changes are kept.
    begin
        Makes an empty transaction.

    Attributes
    ----------
    commits
        How long records took until they were on the disk.
    """

    _live: LiveModel
    _disk: Disk
    _begin: Callable[[], Transaction]
    commits: Histogram = field(default_factory=Histogram, init=False)
    _waiting: deque[Command[Any]] = field(default_factory=deque, init=False)
    _followers: list[list[Command[Any]]] = field(default_factory=list, init=False)
    _use_reserve: bool = field(default=False, init=False)
    _is_queried: bool = field(default=False, init=False)  # since the last change
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def n_waiting(self) -> int:
        """How many commands wait."""
        return len(self._waiting)

    # --- asking for a change

    def submit(self, command: Command[R], done: Callable[[BaseException | None], None]) -> bool:
        """Have a command committed; false, and nothing is done, when already planning it takes long: see `execute`.

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
        state = self._live.state
        state.require_changeable()
        command.n_items = command.count(state.model)
        command.done = done
        command.request_id = logs.request_id.get()
        command.stages = noted = stages.get()
        if noted is not None:
            noted.end("parse")
        command.received_ms = self._live.clock.now_ms()
        if command.n_items > MANY_NAMES:  # already planning takes long
            return False
        is_first = not self._waiting and self._live.lock.free
        if is_first and not self._disk.storage.journal.is_durable and self._is_short(command):
            self._commit_now(command)  # nothing is written, so there is nothing to wait for
        elif command.is_refusable and len(self._waiting) >= self._live.lock.max_queue:
            raise BusyError
        else:
            self._waiting.append(command)
            self._wake.set()
        return True

    def _is_short(self, command: Command[Any]) -> bool:
        n_items = command.n_items
        return n_items <= 1 or self._live.state.model.seconds_to_change(n_items) <= LONGEST_PAUSE

    async def execute(self, command: Command[R]) -> R:
        """Commit a command, long or short, and return its result."""
        settled: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        if not self.submit(command, partial(_settle, settled, command)):
            try:
                await self._live.threads.finish(self._commit_aside(command))
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
                self._is_queried = self._live.idle.n_queries > 0
                if self._is_queried:  # and may have met tags
                    await self._live.idle.keep_up()
                async with self._live.lock.mutations:
                    await self._commit_waiting()

    async def drain(self) -> None:
        """Commit what waits and return when nothing does."""
        while self._waiting:  # noqa: ASYNC110 - at the end of the server, for a moment
            await asyncio.sleep(0.001)
        async with self._live.lock.mutation(refusable=False):
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
        """Write notes to the journal that change no sample; a caller that is cancelled does not cut it short.

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
        await self._live.threads.finish(self._note(notes, then))

    async def _note(self, notes: Callable[[], bytes], then: Callable[[], object]) -> None:
        async with self._live.lock.mutation(refusable=False):
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
        transaction, state = self._begin(), self._live.state
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
            if self._disk.storage.journal.failed:
                state.halt(StopReason.DISK_FAILED)
            raise
        if swap is not None:
            swap.swap(state)
        self._advance([record], changes)
        self._disk.database.write([record])
        if swap is not None:
            state.note_change(None)

    async def _append(self, records: Sequence[Record], *, reserve: bool) -> None:
        """Write records to the journal in its thread."""
        work = partial(self._write, records, reserve=reserve)
        await asyncio.get_running_loop().run_in_executor(self._live.threads.writer, work)

    def _write(self, records: Sequence[Record], *, reserve: bool) -> None:
        started = time.perf_counter()
        self._disk.storage.journal.append(records, reserve=reserve)
        self.commits.observe(time.perf_counter() - started)

    # --- one transaction

    def _commit_now(self, command: Command[Any]) -> None:
        transaction = self._begin()
        if self._take(transaction, command):
            transaction.end_stage("plan")
            self._disk.storage.journal.append(transaction.records)
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
                await self._commit_next(self._waiting.popleft(), transaction)
            return
        transaction.end_stage("plan")
        try:
            await self._append(transaction.records, reserve=self._use_reserve)
        except JournalFullError as error:
            transaction.rewind()
            self._live.state.hinder(error.reason)
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
            self._live.state.hinder(None)
        self._use_reserve = False
        if self._live.lock.n_readers:
            await self._live.lock.exclusive()
        self._apply(transaction)

    def _take_waiting(self, transaction: Transaction) -> Command[Any] | None:
        """Plan commands in their order, until two touch the same or applying them all would take too long.

        Returns
        -------
        Command or None
            The first that waits, when it is planned and takes long.
        """
        while self._waiting and not self._is_full(transaction):
            command = self._waiting[0]
            if self._use_reserve and command.is_refusable:
                if transaction.commands:
                    break
                self._use_reserve = False  # the erasure that asked for it has been refused
            if not self._take(transaction, command):
                return command
            self._waiting.popleft()
        return None

    def _is_full(self, transaction: Transaction) -> bool:
        """Whether the commands of a transaction are so many, or add so much to what a single sample takes."""
        if not transaction.commands or len(transaction.commands) >= _MOST_AT_ONCE:
            return bool(transaction.commands)
        seconds = self._live.state.model.seconds_to_change
        return seconds(transaction.turn.n_items) - seconds(1) >= LOOP_BUDGET

    def _take(self, transaction: Transaction, command: Command[Any]) -> bool:
        """Plan a command and take it into a transaction; false when it has to wait for the next one, or takes long."""
        state = self._live.state
        if command.stages is not None:
            command.stages.end("wait")
        try:
            state.require_changeable()
            is_accepted = transaction.accepts(command)
        except Exception as refused:  # planning changes nothing, so that only this command is lost, whatever it was
            command.tell(refused)
            return True
        if not is_accepted or command.takes_long:
            return False
        if command.is_written:
            transaction.add(command)
        else:
            command.tell_unchanged(state)
        return True

    async def _commit_aside(self, command: Command[Any]) -> None:
        """Plan a command of very many names in a thread, and commit it."""
        async with self._live.lock.mutation(refusable=command.is_refusable):
            self._live.state.require_changeable()
            if command.stages is not None:
                command.stages.end("wait")
            transaction = self._begin()
            with self._live.lock.reading():
                await self._live.threads.save(partial(_plan, transaction, command))
            self._is_queried = self._live.idle.n_queries > 0
            await self._commit_long(command, transaction)

    async def _commit_next(self, command: Command[Any], transaction: Transaction) -> None:
        """Commit a planned command that takes long, and tell who asked what is wrong."""
        try:
            await self._commit_long(command, transaction)
        except Exception as error:
            command.tell(error)

    async def _commit_long(self, command: Command[Any], transaction: Transaction) -> None:
        """Commit a planned command in slices; on a copy, which then takes the model's place, if it has none."""
        state, copy = self._live.state, None
        if not command.is_written:
            command.tell_unchanged(state)
            return
        plan = command.planned if command.takes_long else None
        if plan is not None and state.model.can_be_sliced(plan, is_queried=self._is_queried):
            await self._live.resolve()
        elif command.body is not None and command.takes_long:
            plan = None
            with self._live.lock.reading():
                copy = await self._live.threads.save(partial(_copy_with, state.model, command))
        # It may be about ten thousand names, which are hashed. The turn is ours: no other command writes to the ledger.
        await self._live.threads.save(partial(transaction.add, command))
        transaction.end_stage("plan" if copy is None else "model")
        if not await self._is_durable(transaction, reserve=not command.is_refusable):
            return
        if copy is None:
            await self._apply_alone(transaction, plan)
            return
        old, state.model = state.model, copy
        self._answer(transaction)
        await self._live.let_go(old)

    async def _is_durable(self, transaction: Transaction, *, reserve: bool) -> bool:
        """Write the records of a transaction with a long command; false when it is refused."""
        try:
            await self._append(transaction.records, reserve=reserve)
        except JournalFullError as error:
            transaction.rewind()
            self._live.state.hinder(error.reason)
            transaction.refuse(error if isinstance(error, JournalUnreachableError) else StorageError(str(error)))
            return False
        except JournalError as error:
            transaction.rewind()
            self._fail(transaction, error)
            return False
        transaction.end_stage("journal")
        return True

    async def _apply_alone(self, transaction: Transaction, plan: Plan | None) -> None:
        """Change the model by what is on the disk now, in slices if there is a plan for that, and answer."""
        if plan is None:
            await self._live.lock.exclusive()
            self._apply(transaction)
            return
        try:
            await self._live.change_in_slices(plan)
        except BaseException as mistake:
            self._stop_after(transaction, mistake)
            return
        transaction.end_stage("model")
        self._answer(transaction)

    def _apply(self, transaction: Transaction) -> None:
        """Change the model by what is on the disk now, and answer."""
        self._live.lock.own()
        try:
            transaction.apply()
        except BaseException as mistake:
            self._stop_after(transaction, mistake)
            return
        transaction.end_stage("model")
        self._answer(transaction)

    def _stop_after(self, transaction: Transaction, mistake: BaseException) -> None:
        """Change nothing any more: how far a change got is not known, and a snapshot or another one could be worse."""
        transaction.log_error("a mutation failed inside the model: no further mutation is accepted until a restart")
        self._fail(transaction, mistake)
        if not isinstance(mistake, Exception):
            raise mistake

    def _answer(self, transaction: Transaction) -> None:
        """Answer what is on the disk and in the model; then the ledger's file and the set tree may follow."""
        self._advance(transaction.records, transaction.n_changes)
        for followed in self._followers:
            followed.extend(transaction.changing)
        if not self._followers:
            transaction.overwrite()
        try:
            transaction.answer()
        finally:
            self._disk.database.write(transaction.records)
            if transaction.n_changes:
                self._live.state.note_change(transaction.names)

    def _advance(self, records: Sequence[Record], n_changes: int) -> None:
        """Note that records are in the journal and the model is as they say."""
        state = self._live.state
        if records:
            state.seq = records[-1].seq
        state.version += n_changes

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
            self._live.state.depose()
            transaction.refuse(NotLeaderError())
            return
        is_known = isinstance(error, JournalError)
        self._live.state.halt(StopReason.DISK_FAILED if is_known else StopReason.MODEL_UNUSABLE)
        # The journal has the change already when there is no memory to make it.
        is_unsaid = is_known or isinstance(error, MemoryError)
        transaction.refuse(UnavailableError("failed") if is_unsaid else error)
        if is_known:
            transaction.log_error("the journal could not be written: no mutation is accepted until a restart")


def _settle(future: asyncio.Future[R], command: Command[R], error: BaseException | None) -> None:
    """Settle the future that a caller awaits; the caller may have gone."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(command.result())


@without_collector()
def _plan(transaction: Transaction, command: Command[Any]) -> None:
    """Plan a command; in a thread."""
    transaction.accepts(command)


@without_collector()
def _copy_with(model: Model, command: Command[Any]) -> Model:
    """Apply a planned command to a copy."""
    copy = model.copy()
    apply_all(copy, [command])
    copy.build_planted()
    return copy
