"""Erasures that are acknowledged and not finished, until nothing holds what was erased.

An erasure is finished by the first snapshot that begins after it, when all files from before are gone. Besides files,
work in progress and results that are kept may hold what was erased: `holders` lists them, and receipts say `erased`
when it is rid of them.

Samples whose time is over are unlearned and erased in the background.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from oubli.app.errors import DeposedError, FlushFailedError, JournalError, StopReason, StorageError
from oubli.app.logs import cause_of
from oubli.app.service.changes.deletions import DeleteSamples
from oubli.app.service.changes.writer import Writer
from oubli.app.service.evidence.receipts import Deadline
from oubli.app.service.model.live import Disk, LiveModel
from oubli.app.service.roles import Role

log = logging.getLogger("oubli.service")

RETRY = 5.0  # seconds before a snapshot that could not be written is tried again
_LOOK = 1.0  # seconds between two looks whether erasures are overdue


@dataclass(eq=False, repr=False)
class Erasures:
    """Removes the files from before erasures, and says that these are finished.

    Parameters
    ----------
    live
        The live model and who may use it.
    disk
        Where changes are kept.
    writer
        Takes changes and notes to the journal.
    deadline
        Of erasures.
    push
        Targets of webhooks.
    forget_states
        Forgets the digests of what was.
    role
        Knows what other nodes hold.

    Attributes
    ----------
    retry_at
        From when on another snapshot has to be written, because the last could not be, or could not be noted; None when
        there is no need.
    lasted
        How many seconds it took last from the beginning of a snapshot until the erasures of before it were finished; a
        quarter of the deadline until that is known.
    n_erased, n_late
        Erasures that were finished since the start, and those of them that were overdue.
    """

    _live: LiveModel
    _disk: Disk
    _writer: Writer
    deadline: Deadline
    _push: Sequence[str]
    _forget_states: Callable[[], Awaitable[None]]
    _role: Role
    retry_at: float | None = field(default=None, init=False)
    lasted: float = field(init=False)
    n_erased: int = field(default=0, init=False)
    n_late: int = field(default=0, init=False)
    _finishing: set[str] = field(default_factory=set, init=False)  # receipts that only wait for `holders`
    _finishers: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.lasted = self.deadline.seconds / 4

    def waiting(self) -> list[str]:
        """Return the receipts of erasures whose files are still there."""
        return [name for name in self._live.state.pending if name not in self._finishing]

    def finishable(self, traceless: list[str] | None = None) -> list[str]:
        """Return the receipts that a snapshot of the model as it is now finishes: nothing else will bring them back.

        Parameters
        ----------
        traceless
            Those that the model has no trace of; None for all.
        """
        pending, end = self._live.state.pending, self._live.holders.delayed_from
        found = [name for name in self.waiting() if pending[name].period < end]
        return found if traceless is None else [name for name in found if name in traceless]

    def last_period(self, receipts: list[str]) -> int:
        """Return the last period in which something could begin that holds what was erased; after a copy was made."""
        state = self._live.state
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
        now = self._live.clock.steady_ms()
        await self._disk.database.read(lambda database: database.forget_idempotent(now))
        # The journal is what the ledger's database could be made from again.
        await self._disk.database.flush()
        seq = await self._live.threads.save(self._disk.storage.snapshots.keep_newest)
        await self._drop_journal(self._role.kept_from(seq + 1), erases=erases)

    async def finish(self, receipts: list[str], period: int, began: float | None = None) -> None:
        """Finish erasures that no file holds anything of any more: now, or when nothing else does.

        Parameters
        ----------
        receipts
            Of the erasures.
        period
            The last one in which something could begin that holds what was erased.
        began
            When the snapshot was begun, in seconds of `time.monotonic`; None when it was not written for them.
        """
        if not receipts:
            self._lasted_since(began)
            return
        seq = self._disk.storage.newest_seq()
        if self._live.holders.is_rid(period) and self._role.is_rid(seq):
            await self._note_finished(receipts, began)
            return
        self._finishing.update(receipts)
        # At the end of the server it is cancelled: what only memory holds ends with the process.
        task = self._live.threads.begin(self._finish_later(receipts, period, seq, began), endless=True)
        self._finishers.add(task)
        task.add_done_callback(self._finishers.discard)

    async def wait(self) -> None:
        """Return when the erasures are finished that only waited for something else than files."""
        while self._finishers:
            await asyncio.wait(list(self._finishers))

    async def watch(self) -> None:
        """Tell in the log when erasures become overdue, and when none is any more, until cancelled."""
        was_late = False
        while True:
            n_late = self.deadline.n_overdue()
            if n_late and not was_late:
                log.warning(
                    "erasures take longer than erasure_deadline (%g s): %d are overdue, see GET "
                    "/erasures?status=overdue. Look for long jobs, and what else uses the processors and the disk",
                    self.deadline.seconds,
                    n_late,
                )
            elif was_late and not n_late:
                log.warning("no erasure is overdue any more")
            was_late = bool(n_late)
            await asyncio.sleep(_LOOK)

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
            await self._live.threads.write(work)
        except DeposedError:
            self._live.state.depose()
            raise
        finally:
            if self._disk.storage.journal.failed:
                self._live.state.halt(StopReason.DISK_FAILED)

    @contextlib.contextmanager
    def halting(self) -> Iterator[None]:
        """Refuse all changes after a flush that has failed: what the disk holds is not known."""
        try:
            yield
        except FlushFailedError:
            self._live.state.halt(StopReason.DISK_FAILED)
            raise

    async def _drop_journal(self, seq: int, *, erases: bool) -> None:
        await self.write_journal(partial(self._disk.storage.journal.drop_before, seq, erases=erases))

    async def _finish_later(self, receipts: list[str], period: int, seq: int, began: float | None) -> None:
        try:
            await self._live.holders.rid(period, self.deadline.patience(receipts))
            if self._role.is_shared:
                await self._role.rid(seq)
                await self._drop_journal(seq + 1, erases=True)
            with self.halting():
                await self._note_finished(receipts, began)
        except (JournalError, StorageError) as error:
            self.retry_at = time.monotonic() + RETRY
            log.error("erasures could not be noted as finished, and it is tried again: %s", cause_of(error))
        finally:
            self._finishing.difference_update(receipts)

    def _lasted_since(self, began: float | None) -> None:
        if began is not None:
            self.lasted = time.monotonic() - began

    async def _note_finished(self, receipts: list[str], began: float | None) -> None:
        """Say that erasures are finished."""
        await self._forget_states()  # from the file, before a receipt says that it is gone

        overdue: list[str] = []

        def notes() -> bytes:
            overdue[:] = [name for name in receipts if self.deadline.is_overdue(name)]
            return self._disk.ledger.erased(
                receipts,
                erased_at=self._live.clock.now_ms(),
                deadline_ms=self.deadline.ms,
                overdue=overdue,
                push=self._push,
            )

        def settle() -> None:
            self.n_erased += len(receipts)
            self.n_late += len(overdue)
            self._lasted_since(began)
            for receipt in receipts:
                self._live.state.pending.pop(receipt, None)

        await self._writer.note(notes, settle)


log = logging.getLogger("oubli.service")
_TICK = 0.5  # seconds between two looks at the clock
_MOST_AT_ONCE = 1000


@dataclass(eq=False, repr=False)
class Retention:
    """The background task that lets samples expire.

    Parameters
    ----------
    live
        The live model and who may use it.
    disk
        Where changes are kept.
    writer
        Takes changes and notes to the journal.
    max_share
        Largest share of the samples that may expire at once without being confirmed.
    """

    _live: LiveModel
    _disk: Disk
    _writer: Writer
    _max_share: float
    _confirmed: int = field(default=0, init=False)
    _refusal: str | None = field(default=None, init=False)
    _is_told: bool = field(default=False, init=False)

    @property
    def paused(self) -> str | None:
        """Why nothing expires at present; None when it does."""
        return self._live.clock.paused or self._refusal or self._live.clock.behind

    async def confirm(self) -> None:
        """Resume expiry that is paused; the ledger notes it first. When it is not paused, nothing is done.

        Raises
        ------
        JournalError
            When that cannot be noted; expiry stays paused.
        """
        self._live.state.require_open()
        if self.paused is not None:
            await self._writer.note(partial(self._disk.ledger.event, "expiry-confirmed", {}), self._confirm)

    def _confirm(self) -> None:
        """Believe the clock, and let all expire that is due now, however many they are."""
        self._live.clock.confirm()
        self._confirmed = self._live.clock.now_ms()
        self._refusal = None

    async def run(self) -> None:
        """Look for what is due, until cancelled."""
        while True:
            await asyncio.sleep(_TICK)
            self._tell_clock()
            try:
                await self.sweep()
            except Exception as error:  # whatever it was: it must be tried again
                log.error("samples that have expired could not be deleted, and it is tried again: %s", cause_of(error))

    def _tell_clock(self) -> None:
        """Log once what is wrong with the clock, and once that nothing is any more."""
        found = self._live.clock.paused or self._live.clock.behind
        if found is not None and not self._is_told:
            log.warning("nothing expires: %s", found)
        elif found is None and self._is_told:
            log.warning("the clock can be trusted again")
        self._is_told = found is not None

    async def sweep(self) -> None:
        """Delete what is due, unless the clock or the number of samples says that something is wrong."""
        store, now = self._live.state.model.samples_, self._live.clock.now_ms()
        first, restricted = store.next_expiry(), store.restricted
        others = restricted.due_unless_kept(now)
        if self._live.state.failed or self._live.clock.paused or not (others or (first is not None and first <= now)):
            return
        due = [*store.due(now, len(store)), *others]
        unconfirmed = [name for name in due if ((store.holding(name) or store).expiry(name) or 0) > self._confirmed]
        was_paused = self._refusal is not None
        self._refusal = refuses(n_held=len(store) + len(restricted), n_due=len(unconfirmed), max_share=self._max_share)
        if self._refusal is not None:
            if not was_paused:
                log.warning("expiry is paused: %s", self._refusal)
            return
        for start in range(0, len(due), _MOST_AT_ONCE):
            await self._writer.execute(DeleteSamples(due[start : start + _MOST_AT_ONCE], kind="expiry"))

    async def erase_restricted(self, subjects: Sequence[str]) -> int:
        """Delete what is due of restricted subjects and was kept beyond that; return how many samples.

        Who names the subjects has confirmed it, however many samples they have.
        """
        restricted, now = self._live.state.model.samples_.restricted, self._live.clock.now_ms()
        if self._live.clock.paused or not len(restricted):
            return 0
        named = set(subjects)
        due = [name for name in restricted.due(now, len(restricted)) if restricted.subject(name) in named]
        if due:
            await self._writer.execute(DeleteSamples(due, kind="expiry"))
        return len(due)


def refuses(*, n_held: int, n_due: int, max_share: float) -> str | None:
    """Return why a sweep must wait until it is confirmed, or None when it need not.

    A retention period with a mistake in it, or one that is new to samples already held, lets half of a model expire in
    one night. One sample may always go: in a small model it is a large share.

    Parameters
    ----------
    n_held
        Samples held.
    n_due
        Those of them whose time is over and that are not confirmed.
    max_share
        Largest share of the samples held that may go at once; 0 has every sample confirmed.
    """
    allowed = max(1, int(max_share * n_held)) if max_share > 0 else 0
    if n_due <= allowed:
        return None
    return (
        f"{n_due} of {n_held} samples have expired at once, max_expiry_share lets {allowed} go: look why, and confirm"
    )
