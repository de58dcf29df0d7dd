"""What keeps the disk in order by itself: snapshots, for the journal's length and to finish erasures.

    turn of the mutations          tags resolved in slices on the loop
                                   freed memory overwritten, model copied      in a thread
                                   journal continues in a new segment
    mutations continue             copy written, flushed, read back            in a thread
                                   when something was erased: written twice
                                   what was written is noted in the ledger
                                   ledger flushed, older files removed
                                   receipts say `erased`

A model that is not exact keeps traces of what it has unlearned: before the snapshot that finishes erasures it is fitted
again. Killed between any two steps, the server repeats them after its next start: the ledger says which receipts are
not `erased`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from oubli.app.errors import EphemeralError, JournalError, JournalFullError, ServiceError
from oubli.app.ledger.ledger import Field
from oubli.app.logs import cause_of
from oubli.app.progress import Activities
from oubli.app.service.changes.writer import Writer
from oubli.app.service.erasure.erasures import RETRY, Erasures, Retention
from oubli.app.service.evidence.states import StateEntries
from oubli.app.service.jobs.jobs import Report
from oubli.app.service.memory import let_go_of, without_collector
from oubli.app.service.model.live import Disk, LiveModel
from oubli.app.service.roles import Role
from oubli.app.storage.snapshots import Snapshot

log = logging.getLogger("oubli.service")

_TICK = 0.25  # seconds between two looks at the clock
_TIME_KEPT_MS = 3_600_000
# Shares of a snapshot that are done when a model that is not exact is fitted again, the copy made, the files written.
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
    scrub_age
        Seconds after which a model that is not exact and has changed is fitted again; None: only to finish erasures.
    """

    erasure_deadline: float = 60.0
    snapshot_mutations: int = 10_000
    snapshot_bytes: int = 64 * 2**20
    snapshot_age: float = 3600.0
    scrub_age: float | None = None


@dataclass(eq=False, repr=False)
class Checkpointer:
    """Writes snapshots, when asked and by itself.

    Parameters
    ----------
    live
        The live model and who may use it.
    disk
        Where changes are kept.
    writer
        Takes changes and notes to the journal.
    erasures
        Finishes what waits for a snapshot.
    scrub
        Rids a model that is not exact of traces; returns the receipts of which there are none left.
    states
        Tells in the ledger what is written.
    policy
        When things are done.
    activities
        Lists snapshots that are being written.
    role
        Has the digest compared by other nodes.

    Attributes
    ----------
    scrubbed_at
        When all files were last rewritten without anything of what was unlearned, in seconds since 1970; None when they
        were not since the start.
    """

    _live: LiveModel
    _disk: Disk
    _writer: Writer
    _erasures: Erasures
    _scrub: Callable[[Report], Awaitable[list[str]]]
    _states: StateEntries
    _policy: CheckpointPolicy
    _activities: Activities
    _role: Role
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    scrubbed_at: float | None = field(default=None, init=False)
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
                await self._live.threads.finish(self.write_snapshot(erase=is_scrub_due))
            except Exception as error:  # whatever it was: erasures are owed, and it must be tried again
                # The journal's counters may have been reset, so that they do not ask for it again.
                self._erasures.retry_at = time.monotonic() + RETRY
                log.error("a snapshot could not be written, and is tried again: %s", cause_of(error))

    async def write_snapshot(self, *, erase: bool = False, report: Report | None = None) -> Snapshot:
        """Write a snapshot now, and finish all erasures that were acknowledged before.

        When something else than files holds what was erased, they are finished in the background, as soon as it does
        not any more.

        Parameters
        ----------
        erase
            Whether to rewrite both generations even if no erasure is known to wait for it.
        report
            Takes the share that is done, besides the list of activities; None: nothing else does.

        Raises
        ------
        StorageError
            When it cannot be written.
        """
        storage, erasures, state = self._disk.storage, self._erasures, self._live.state
        async with self._one_at_a_time:
            with without_collector(), erasures.halting(), self._activities.begin("snapshot") as noted:

                def tell(share: float) -> None:
                    noted(share)
                    if report is not None:
                        report(share)

                began = time.monotonic()
                traceless = await self._scrubbed(erase, lambda share: tell(_SCRUBBED * share))
                tell(_SCRUBBED)
                await self._states.catch_up()
                async with self._live.lock.mutation(refusable=False):
                    state.require_changeable()
                    captured = await self._states.capture_beside()
                    copy = await self._live.copied()
                    facts = self._disk.facts(state)
                    finished = erasures.finishable(traceless)
                    period = erasures.last_period(finished)
                    if finished:
                        self._states.close_before(state.version)
                    await erasures.write_journal(partial(storage.journal.rotate, facts.seq + 1))
                tell(_COPIED)
                twice = erase or bool(finished)
                try:
                    snapshot = await self._live.threads.save(partial(storage.write, copy, facts, twice=twice))
                    tell(_WRITTEN)
                finally:
                    await self._live.threads.save(partial(let_go_of, copy))
                    del copy
                if state.model.guarantee == "exact":
                    self._role.tell_digest(facts.seq + 1, snapshot.digest)
                await self._states.write_beside(captured, snapshot.digest)
                await erasures.remove_older_files(erases=twice)
                await erasures.finish(finished, period, began)
                erasures.retry_at = None
                if twice:
                    self.scrubbed_at = self._live.clock.latest_ms() / 1000
            return snapshot

    async def snapshot(self) -> Snapshot:
        """Write a snapshot of the model as it is when its turn comes, also when the caller is cancelled."""
        self.require_kept()
        return await self._live.threads.finish(self.write_snapshot())

    async def scrub(self, report: Report) -> dict[str, Any]:
        """Erase from all files what was unlearned, and wait until these erasures are finished; the work of a job."""
        n_pending, n_late = len(self._live.state.pending), self._erasures.n_late
        snapshot = await self._live.threads.finish(self.write_snapshot(erase=True, report=report))
        await self._erasures.wait()
        late = self._erasures.n_late - n_late
        return {"snapshot": snapshot.id, "model_version": snapshot.model_version, "erasures": n_pending, "late": late}

    def require_kept(self) -> None:
        """Refuse a request that needs files; raises as `ModelState.require_open`, or `EphemeralError`."""
        self._live.state.require_open()
        if self._disk.storage.is_ephemeral:
            raise EphemeralError

    async def settle(self) -> None:
        """Return when no snapshot is being written."""
        async with self._one_at_a_time:
            pass

    async def export(self) -> Snapshot:
        """Return the newest snapshot to be handed out, after the ledger has noted it; it runs to its end."""
        self.require_kept()
        return await self._live.threads.finish(self._export())

    async def _export(self) -> Snapshot:
        snapshot = self._disk.storage.snapshots.newest
        fields: dict[str, Field] = {"snapshot": snapshot.id, "model_version": snapshot.model_version}
        await self._writer.note(lambda: self._disk.ledger.event("export", fields), self._live.state.count_export)
        return snapshot

    async def _scrubbed(self, erase: bool, report: Report) -> list[str] | None:
        """Rid the model of traces when an erasure is due; return the receipts without any left, None for all."""
        if self._live.state.model.guarantee == "exact":
            return None
        return await self._scrub(report) if erase or self._is_erasure_due() else []

    async def _keep_time(self) -> None:
        """Write the time down now and then: a start after quiet days must not take them for a leap of the clock."""
        now = self._live.clock.now_ms()
        if now - self._witnessed_ms >= _TIME_KEPT_MS and not self._live.state.failed:
            self._witnessed_ms = now
            await self._disk.database.read(lambda database: database.witness(now))

    async def _look_again(self) -> None:
        """Find out, now and then, whether what kept changes from being written has passed."""
        state = self._live.state
        if state.hindered is None or state.failed or time.monotonic() < self._next_probe:
            return
        self._next_probe = time.monotonic() + _PROBE
        with contextlib.suppress(JournalFullError):
            await self._erasures.write_journal(self._disk.storage.journal.probe)
            state.hinder(None)

    def _is_due(self) -> bool:
        retry_at = self._erasures.retry_at
        if self._live.state.failed:
            return False
        if retry_at is not None:
            return time.monotonic() >= retry_at
        return self._is_erasure_due() or self._is_journal_long()

    def _is_erasure_due(self) -> bool:
        """Whether waiting longer could miss the deadline of one that can be finished now."""
        erasures = self._erasures
        return bool(self._live.state.pending) and erasures.deadline.is_due(erasures.finishable(), erasures.lasted)

    def _is_scrub_due(self) -> bool:
        """Whether a model that is not exact has changed, and its last fit is too long ago."""
        model, policy, now = self._live.state.model, self._policy, time.monotonic()
        if model.guarantee == "exact" or model.n_mutations_since_scrub_ == 0:
            self._scrubbed_at = now
            return False
        if self._live.state.failed or now < (self._erasures.retry_at or 0.0):
            return False
        return policy.scrub_age is not None and now - self._scrubbed_at >= policy.scrub_age

    def _is_journal_long(self) -> bool:
        journal, policy = self._disk.storage.journal, self._policy
        if not journal.n_records or self._disk.storage.is_current(self._live.state.seq):
            self._oldest = None
            return False
        return (
            journal.n_records >= policy.snapshot_mutations
            or journal.n_bytes >= policy.snapshot_bytes
            or self._journal_age() >= policy.snapshot_age
        )

    def _journal_age(self) -> float:
        """How many seconds the journal's first record has been there, as far as this process has seen it."""
        before, now = self._before_journal(), self._live.clock.steady_ms()
        if self._oldest is None or self._oldest[0] != before:
            self._oldest = before, now
        return (now - self._oldest[1]) / 1000

    def _before_journal(self) -> int:
        """Return the number before the first record since the newest rotation."""
        return self._disk.storage.journal.last_seq - self._disk.storage.journal.n_records

    def _oldest_found(self) -> tuple[int, int] | None:
        """Return the same of what an earlier process has left; its time is one of the machine's clock."""
        oldest_at = self._disk.storage.journal.oldest_at
        if oldest_at is None:
            return None
        return self._before_journal(), self._live.clock.steady_since_wall(round(oldest_at * 1000))


@dataclass(frozen=True, slots=True)
class Erasing:
    """What erases from files, and by itself.

    Attributes
    ----------
    checkpointer
        Writes snapshots.
    erasures
        Finishes erasures.
    retention
        Lets samples expire.
    """

    checkpointer: Checkpointer
    erasures: Erasures
    retention: Retention
