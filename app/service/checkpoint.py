"""What keeps the disk in order by itself: snapshots, for the journal's length and to finish erasures.

    turn of the mutations          tags resolved in slices on the loop
                                   freed memory overwritten, model copied      in a thread
                                   journal goes on in a new segment
    mutations go on                copy written, flushed, read back            in a thread
                                   when something was erased: written twice
                                   the ledger is told what was written
                                   ledger flushed, older files removed
                                   receipts say `erased`

A model that is not exact keeps traces of what it has unlearned: before the snapshot that finishes erasures it is fitted
anew. Killed between any two steps, the server begins anew at its next start: receipts that are not `erased` are known
from the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from oubli.app.errors import JournalError, JournalFullError, ServiceError
from oubli.app.service.copies import facts_of
from oubli.app.service.erasures import RETRY
from oubli.app.service.memory import let_go_of, without_collector

if TYPE_CHECKING:
    from oubli.app.ledger.ledger import Field, Ledger, LedgerWorker
    from oubli.app.service.activities import Activities
    from oubli.app.service.copies import ModelCopier
    from oubli.app.service.erasures import Erasures
    from oubli.app.service.jobs import Report
    from oubli.app.service.lock import ModelLock
    from oubli.app.service.roles import Role
    from oubli.app.service.state import ModelState
    from oubli.app.service.state_entries import StateEntries
    from oubli.app.service.writer import Writer
    from oubli.app.storage.snapshots import Snapshot
    from oubli.app.storage.storage import Storage
    from oubli.app.threads import Threads
    from oubli.app.times import Clock

log = logging.getLogger("oubli.service")

_TICK = 0.25  # seconds between two looks at the clock
_TIME_KEPT_MS = 3_600_000
# Shares of a snapshot that are done when a model that is not exact is fitted anew, the copy made, the files written.
_SCRUBBED, _COPIED, _WRITTEN = 0.4, 0.5, 0.95
_PROBE = 1.0  # seconds between two looks whether a full disk has room again


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """When things are done by themselves.

    Attributes
    ----------
    erasure_deadline
        Seconds from an acknowledged erasure until no file holds anything of it.
    snapshot_mutations, snapshot_bytes, snapshot_age
        A snapshot is written when the journal holds so many records or bytes, or its oldest record is so many
        seconds old.
    scrub_mutations, scrub_age
        A model that is not exact is fitted anew when so many samples have come or gone since the last time, or the
        last time is so many seconds ago and some have; None: only to finish erasures.
    """

    erasure_deadline: float = 60.0
    snapshot_mutations: int = 10_000
    snapshot_bytes: int = 64 * 2**20
    snapshot_age: float = 3600.0
    scrub_mutations: int | None = None
    scrub_age: float | None = None


@dataclass(eq=False, repr=False)
class Checkpointer:
    """Writes snapshots, when asked and by itself.

    Parameters
    ----------
    state
        What is served.
    storage
        The files.
    writer
        Takes notes to the journal.
    ledger, database
        The ledger.
    lock, threads
        Who may touch the model, and the threads.
    copier
        Copies the model.
    erasures
        Finishes what waits for a snapshot.
    scrub
        Rids a model that is not exact of traces; returns the receipts of which there are none left.
    states
        Tells in the ledger what is written.
    policy
        When things are done.
    clock
        Tells the time, and how long something has waited.
    activities
        Told of snapshots.
    role
        Has the digest compared by other nodes.

    Attributes
    ----------
    scrubbed_at
        When all files were last rewritten without anything of what was unlearned, in seconds since 1970; None when they
        were not since the start.
    """

    _state: ModelState
    _storage: Storage
    _writer: Writer
    _ledger: Ledger
    _database: LedgerWorker
    _lock: ModelLock
    _threads: Threads
    _copier: ModelCopier
    _erasures: Erasures
    _scrub: Callable[[Report], Awaitable[list[str]]]
    _states: StateEntries
    _policy: CheckpointPolicy
    _clock: Clock
    _activities: Activities
    _role: Role
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    scrubbed_at: float | None = field(default=None, init=False)
    _lasted: float = field(default=0.0, init=False)
    _next_probe: float = field(default=0.0, init=False)
    _witnessed_ms: int = field(default=0, init=False)
    _scrubbed_at: float = field(default_factory=time.monotonic, init=False)
    # What the journal's first record follows, and since when it is there, in steady time; None without one.
    _oldest: tuple[int, int] | None = field(init=False)

    def __post_init__(self) -> None:
        self._oldest = self._oldest_found()

    async def run(self) -> None:
        """Do what is due, until cancelled."""
        while True:
            await asyncio.sleep(_TICK)
            with contextlib.suppress(ServiceError, JournalError):  # tried again; what is owed must not wait for it
                await self._keep_time()
                await self._look_again()
            is_scrub_due = self._is_scrub_due()
            if not (self._is_due() or is_scrub_due):
                continue
            try:
                await self._threads.finish(self.write_snapshot(erase=is_scrub_due))
            except Exception as error:  # whatever it was: erasures are owed, and it must be tried again
                # The journal's counters may have begun anew, so that they do not ask for it again.
                self._erasures.retry_at = time.monotonic() + RETRY
                log.error("a snapshot could not be written (%s): it is tried again", type(error).__name__)

    async def write_snapshot(self, *, erase: bool = False, report: Report | None = None) -> Snapshot:
        """Write a snapshot now, and finish all erasures that were acknowledged before.

        When something else than files holds what was erased, they are finished in the background, as soon as it does
        not any more.

        Parameters
        ----------
        erase
            Whether to write both generations anew even if no erasure is known to wait for it.
        report
            Told how far it is; None: nobody, but the list of what goes on.

        Raises
        ------
        StorageError
            When it cannot be written.
        """
        storage, erasures, state = self._storage, self._erasures, self._state
        async with self._one_at_a_time:
            with without_collector(), erasures.halting(), self._activities.begin("snapshot") as noted:

                def tell(share: float) -> None:
                    noted(share)
                    if report is not None:
                        report(share)

                started = time.monotonic()
                traceless = await self._scrubbed(erase, lambda share: tell(_SCRUBBED * share))
                tell(_SCRUBBED)
                await self._states.catch_up()
                async with self._lock.mutation(refusable=False):
                    state.require_changeable()
                    captured = await self._states.capture_beside()
                    copy = await self._copier.copied()
                    facts = facts_of(state, storage, self._ledger)
                    finished = erasures.finishable(traceless)
                    period = erasures.last_period(finished)
                    if finished:
                        self._states.close_before(state.version)
                    await erasures.write_journal(partial(storage.journal.rotate, facts.seq + 1))
                tell(_COPIED)
                twice = erase or bool(finished)
                try:
                    snapshot = await self._threads.save(partial(storage.write, copy, facts, twice=twice))
                    tell(_WRITTEN)
                finally:
                    await self._threads.save(partial(let_go_of, copy))
                    del copy
                if state.model.guarantee == "exact":
                    self._role.tell_digest(facts.seq + 1, snapshot.digest)
                await self._states.write_beside(captured, snapshot.digest)
                await erasures.remove_older_files(erases=twice)
                await erasures.finish(finished, period)
                self._lasted = time.monotonic() - started
                erasures.retry_at = None
                if twice:
                    self.scrubbed_at = self._clock.latest_ms() / 1000
            return snapshot

    async def settle(self) -> None:
        """Return when no snapshot is being written."""
        async with self._one_at_a_time:
            pass

    async def export(self) -> Snapshot:
        """Return the newest snapshot to be handed out; the ledger knows of it first."""
        snapshot = self._storage.snapshots.newest
        fields: dict[str, Field] = {"snapshot": snapshot.id, "model_version": snapshot.model_version}
        await self._writer.note(lambda: self._ledger.event("export", fields), self._state.count_export)
        return snapshot

    async def _scrubbed(self, erase: bool, report: Report) -> list[str] | None:
        """Rid the model of traces when an erasure is due; return the receipts without any left, None for all."""
        if self._state.model.guarantee == "exact":
            return None
        return await self._scrub(report) if erase or self._is_erasure_due() else []

    async def _keep_time(self) -> None:
        """Write the time down now and then: a start after quiet days must not take them for a leap of the clock."""
        now = self._clock.now_ms()
        if now - self._witnessed_ms >= _TIME_KEPT_MS and not self._state.failed:
            self._witnessed_ms = now
            await self._database.read(lambda database: database.witness(now))

    async def _look_again(self) -> None:
        """Find out, now and then, whether what kept changes from being written has passed."""
        state = self._state
        if state.hindered is None or state.failed or time.monotonic() < self._next_probe:
            return
        self._next_probe = time.monotonic() + _PROBE
        with contextlib.suppress(JournalFullError):
            await self._erasures.write_journal(self._storage.journal.probe)
            state.hindered = None

    def _is_due(self) -> bool:
        retry_at = self._erasures.retry_at
        if self._state.failed:
            return False
        if retry_at is not None:
            return time.monotonic() >= retry_at
        return self._is_erasure_due() or self._is_journal_long()

    def _is_erasure_due(self) -> bool:
        """Whether waiting longer could miss the deadline of one that can be finished now."""
        erasures = self._erasures
        return bool(self._state.pending) and erasures.deadline.is_due(erasures.finishable(), self._lasted)

    def _is_scrub_due(self) -> bool:
        """Whether a model that is not exact has been changed so often, or so long ago, that it is fitted anew."""
        model, policy, now = self._state.model, self._policy, time.monotonic()
        if model.guarantee == "exact" or model.n_mutations_since_scrub_ == 0:
            self._scrubbed_at = now
            return False
        if self._state.failed or now < (self._erasures.retry_at or 0.0):
            return False
        many = policy.scrub_mutations is not None and model.n_mutations_since_scrub_ >= policy.scrub_mutations
        return many or (policy.scrub_age is not None and now - self._scrubbed_at >= policy.scrub_age)

    def _is_journal_long(self) -> bool:
        journal, policy = self._storage.journal, self._policy
        if not journal.n_records or self._storage.is_current(self._state.seq):
            self._oldest = None
            return False
        return (
            journal.n_records >= policy.snapshot_mutations
            or journal.n_bytes >= policy.snapshot_bytes
            or self._journal_age() >= policy.snapshot_age
        )

    def _journal_age(self) -> float:
        """How many seconds the journal's first record has been there, as far as this process has seen it."""
        before, now = self._before_journal(), self._clock.steady_ms()
        if self._oldest is None or self._oldest[0] != before:
            self._oldest = before, now
        return (now - self._oldest[1]) / 1000

    def _before_journal(self) -> int:
        """Return the number before the first record since the newest rotation."""
        return self._storage.journal.last_seq - self._storage.journal.n_records

    def _oldest_found(self) -> tuple[int, int] | None:
        """Return the same of what an earlier process has left; its time is one of the machine's clock."""
        oldest_at = self._storage.journal.oldest_at
        if oldest_at is None:
            return None
        return self._before_journal(), self._clock.steady_since_wall(round(oldest_at * 1000))
