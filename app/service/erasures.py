"""Erasures that are acknowledged and not finished: when they are due, and when nothing holds what was erased any more.

An erasure is finished by the first snapshot that begins after it, when all files from before are gone. Besides files,
work that goes on and results that are kept may hold what was erased: `holders` lists them, and receipts say `erased`
when it is rid of them. Deadlines go by elapsed time: setting a clock neither stops them nor hides that they are late.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from oubli.app.errors import DeposedError, FlushFailedError, JournalError, StopReason, StorageError

if TYPE_CHECKING:
    from oubli.app.ledger.ledger import Ledger, LedgerWorker
    from oubli.app.service.holders import Holders
    from oubli.app.service.roles import Role
    from oubli.app.service.state import ModelState
    from oubli.app.service.state_entries import StateEntries
    from oubli.app.service.writer import Writer
    from oubli.app.storage.storage import Storage
    from oubli.app.threads import Threads
    from oubli.app.times import Clock

log = logging.getLogger("oubli.service")

RETRY = 5.0  # seconds before a snapshot that could not be written is tried again
_MOST_PATIENCE = 15.0  # seconds for which work that holds erased samples may go on


class Deadline:
    """How long erasures have waited, and which of them are overdue. It may be asked from any thread.

    Parameters
    ----------
    state
        Knows the erasures that are not finished.
    steady_ms
        The time, in milliseconds, that nobody can set; see `Clock.steady_ms`.
    seconds
        How long an erasure may take from its acknowledgement.
    """

    def __init__(self, state: ModelState, steady_ms: Callable[[], int], seconds: float) -> None:
        self._state = state
        self._steady_ms = steady_ms
        self.seconds = seconds
        self.ms = round(seconds * 1000)

    def is_overdue(self, receipt_id: str) -> bool:
        """Whether an erasure should be finished and is not."""
        pending = self._state.pending.get(receipt_id)
        return pending is not None and self._steady_ms() - pending.since_ms > self.ms

    def n_overdue(self) -> int:
        """Return how many erasures are overdue."""
        end = self._steady_ms() - self.ms
        return sum(pending.since_ms < end for pending in self._state.pending.values())

    def overdue(self) -> list[str]:
        """Return the receipts of overdue erasures, up to the first that is not; they are in the order of their age."""
        end = self._steady_ms() - self.ms
        return [name for name, _ in takewhile(lambda item: item[1].since_ms < end, self._state.pending.items())]

    def next_in(self) -> tuple[str, float] | None:
        """Return the receipt of the oldest erasure, and in how many seconds it is due; negative when it is overdue."""
        for name, pending in self._state.pending.items():  # in the order of their age
            return name, (pending.since_ms + self.ms - self._steady_ms()) / 1000
        return None

    def longest_wait(self) -> float:
        """Return how many seconds the oldest erasure has waited; 0 when there is none."""
        oldest = min((pending.since_ms for pending in self._state.pending.values()), default=None)
        return 0.0 if oldest is None else max(0, self._steady_ms() - oldest) / 1000

    def is_due(self, receipt_ids: Iterable[str], lasts: float) -> bool:
        """Whether one of some erasures has to be finished now, when that lasts so many seconds.

        Half of the deadline is left, or thrice the time that it takes; or an earlier process has left it.
        """
        waiting = [self._state.pending[name] for name in receipt_ids]
        if not waiting:
            return False
        if any(pending.is_inherited for pending in waiting):
            return True
        waited = self._steady_ms() - min(pending.since_ms for pending in waiting)
        return waited / 1000 >= min(self.seconds / 2, self.seconds - 3 * lasts)


@dataclass(eq=False, repr=False)
class Erasures:
    """Removes the files from before erasures, and says that these are finished.

    Parameters
    ----------
    state
        Knows the erasures that are not finished.
    storage
        The files.
    writer
        Takes the notes of finished erasures to the journal.
    ledger, database
        The ledger.
    threads
        For files.
    clock
        Tells the time.
    deadline
        Of erasures.
    holders
        What else may hold something of a sample.
    push
        Who is told.
    states
        Forgets the digests of what was.
    role
        Knows what other nodes hold.

    Attributes
    ----------
    retry_at
        From when on another snapshot has to be written, because the last could not be, or could not be noted; None when
        there is no need.
    n_erased
        Erasures that were finished since the start.
    """

    _state: ModelState
    _storage: Storage
    _writer: Writer
    _ledger: Ledger
    _database: LedgerWorker
    _threads: Threads
    _clock: Clock
    deadline: Deadline
    _holders: Holders
    _push: Sequence[str]
    _states: StateEntries
    _role: Role
    retry_at: float | None = field(default=None, init=False)
    n_erased: int = field(default=0, init=False)
    _finishing: set[str] = field(default_factory=set, init=False)  # receipts that only wait for `holders`
    _finishers: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def waiting(self) -> list[str]:
        """Return the receipts of erasures whose files are still there."""
        return [name for name in self._state.pending if name not in self._finishing]

    def finishable(self, traceless: list[str] | None = None) -> list[str]:
        """Return the receipts that a snapshot of the model as it is now finishes: nothing else will bring them back.

        Parameters
        ----------
        traceless
            Those that the model has no trace of; None for all.
        """
        pending, end = self._state.pending, self._holders.delayed_from
        found = [name for name in self.waiting() if pending[name].period < end]
        return found if traceless is None else [name for name in found if name in traceless]

    def last_period(self, receipts: list[str]) -> int:
        """Return the last period in which something could begin that holds what was erased; after a copy was made."""
        state = self._state
        if state.model.guarantee != "exact":  # also a copy that was made after a wipe has traces, until the scrub
            return state.period - 1
        return max((state.pending[name].period for name in receipts), default=-1)

    async def remove_older_files(self, *, erases: bool) -> None:
        """Remove older snapshots, and the journal up to those that stay.

        Parameters
        ----------
        erases
            Whether they hold what is to be erased.
        """
        now = self._clock.steady_ms()
        await self._database.read(lambda database: database.forget_idempotent(now))
        # The journal is what the ledger's database could be made from again.
        await self._database.flush()
        seq = await self._threads.save(self._storage.snapshots.keep_newest)
        await self._drop_journal(self._role.kept_from(seq + 1), erases=erases)

    async def finish(self, receipts: list[str], period: int) -> None:
        """Finish erasures that no file holds anything of any more: now, or when nothing else does.

        Parameters
        ----------
        receipts
            Of the erasures.
        period
            The last one in which something could begin that holds what was erased.
        """
        if not receipts:
            return
        seq = self._storage.newest_seq()
        if self._holders.is_rid(period) and self._role.is_rid(seq):
            await self._note_finished(receipts)
            return
        self._finishing.update(receipts)
        # At the end of the server it is cancelled: what only memory holds ends with the process.
        task = self._threads.begin(self._finish_later(receipts, period, seq), endless=True)
        self._finishers.add(task)
        task.add_done_callback(self._finishers.discard)

    async def wait(self) -> None:
        """Return when the erasures are finished that only waited for something else than files."""
        while self._finishers:
            await asyncio.wait(list(self._finishers))

    async def abandon(self) -> None:
        """Finish nothing any more: another node does."""
        finishers = list(self._finishers)
        for task in finishers:
            task.cancel()
        await asyncio.gather(*finishers, return_exceptions=True)
        self._finishing.clear()
        self.retry_at = None

    async def write_journal(self, work: Callable[[], None]) -> None:
        """Do something with the journal; when it has failed, nothing is changed any more."""
        try:
            await self._threads.write(work)
        except DeposedError:
            self._state.depose()
            raise
        finally:
            if self._storage.journal.failed:
                self._state.halt(StopReason.DISK_FAILED)

    @contextlib.contextmanager
    def halting(self) -> Iterator[None]:
        """Change nothing any more after a flush that has failed: nobody knows what the disk holds."""
        try:
            yield
        except FlushFailedError:
            self._state.halt(StopReason.DISK_FAILED)
            raise

    async def _drop_journal(self, seq: int, *, erases: bool) -> None:
        await self.write_journal(partial(self._storage.journal.drop_before, seq, erases=erases))

    async def _finish_later(self, receipts: list[str], period: int, seq: int) -> None:
        try:
            await self._holders.rid(period, min(_MOST_PATIENCE, self.deadline.seconds / 4))
            if self._role.is_shared:
                await self._role.rid(seq)
                await self._drop_journal(seq + 1, erases=True)
            with self.halting():
                await self._note_finished(receipts)
        except (JournalError, StorageError) as error:
            self.retry_at = time.monotonic() + RETRY
            log.error("erasures could not be noted as finished (%s): it is tried again", type(error).__name__)
        finally:
            self._finishing.difference_update(receipts)

    async def _note_finished(self, receipts: list[str]) -> None:
        """Say that erasures are finished."""
        await self._states.forget()  # from the file, before anybody is told that it is gone

        def notes() -> bytes:
            overdue = [name for name in receipts if self.deadline.is_overdue(name)]
            return self._ledger.erased(
                receipts,
                erased_at=self._clock.now_ms(),
                deadline_ms=self.deadline.ms,
                overdue=overdue,
                push=self._push,
            )

        def settle() -> None:
            self.n_erased += len(receipts)
            for receipt in receipts:
                self._state.pending.pop(receipt, None)

        await self._writer.note(notes, settle)
