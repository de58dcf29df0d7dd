"""What keeps the disk in order by itself: snapshots, erasures that have to be finished, samples that have expired.

    turn of the mutations          tags resolved in slices on the loop
                                   freed memory overwritten, model copied      in a thread
                                   journal goes on in a new segment
    mutations go on                copy written, flushed, read back            in a thread
                                   when something was erased: written twice
                                   ledger flushed, older files removed
                                   receipts say `erased`

An erasure is finished by the first snapshot that begins after it, when all files from before are gone. A model that is
not exact keeps traces of what it has unlearned: before the snapshot that finishes erasures it is fitted anew. Killed
between any two steps, the server begins anew at its next start: receipts that are not `erased` are known from the
ledger.

Besides files, work that goes on and results that are kept may hold what was erased: `holders` lists them, and receipts
say `erased` when it is rid of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from oubli.app.clock import Clock
from oubli.app.errors import FlushFailedError, ServiceError, UnavailableError
from oubli.app.ledger.ledger import Auditor, Field
from oubli.app.service.background import TagSlices
from oubli.app.service.deadlines import Deadline
from oubli.app.service.folding import Folder
from oubli.app.service.holders import Holders
from oubli.app.service.lock import Turns
from oubli.app.service.memory import let_go_of
from oubli.app.service.state import Live, StopReason
from oubli.app.service.threads import Workers
from oubli.app.service.writer import Committer
from oubli.app.storage.journal import JournalError, JournalFullError
from oubli.app.storage.keeper import Keeper
from oubli.app.storage.models import ServedModel
from oubli.app.storage.snapshots import Facts, Snapshot
from oubli.app.times import moment

log = logging.getLogger("oubli.service")
T = TypeVar("T")

TAG_SLICE = 0.002  # seconds of one piece of the work before a snapshot; requests are answered in between
_TICK = 0.25  # seconds between two looks at the clock
_TIME_KEPT_MS = 3_600_000
_PROBE = 1.0  # seconds between two looks whether a full disk has room again
_RETRY = 5.0  # seconds before a snapshot that could not be written is tried again
_MOST_PATIENCE = 15.0  # seconds for which work that holds erased samples may go on


@dataclass(frozen=True, slots=True)
class UpkeepPolicy:
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


class Upkeep:
    """Writes snapshots and finishes erasures, when asked and by itself.

    Parameters
    ----------
    live
        What is served.
    keeper
        The files.
    committer
        Takes the notes of finished erasures to the journal.
    auditor, folder
        The ledger.
    turns, workers
        Who may touch the model, and the threads.
    policy
        When things are done.
    clock
        Tells the time, and how long something has waited.
    deadline
        Of erasures.
    holders
        What else may hold something of a sample.
    """

    def __init__(
        self,
        live: Live,
        keeper: Keeper,
        committer: Committer,
        auditor: Auditor,
        folder: Folder,
        turns: Turns,
        workers: Workers,
        policy: UpkeepPolicy,
        clock: Clock,
        deadline: Deadline,
        holders: Holders,
    ) -> None:
        self._live = live
        self._keeper = keeper
        self._committer = committer
        self._auditor = auditor
        self._folder = folder
        self._turns = turns
        self._workers = workers
        self._policy = policy
        self._clock = clock
        self._now_ms = clock.now_ms
        self._deadline = deadline
        self._rebuild: Callable[[], Awaitable[list[str]]] | None = None
        self._holders = holders
        self._finishing: set[str] = set()  # receipts that only wait for `holders`
        self._finishers: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()
        self._lasted = 0.0
        self._not_before = 0.0
        self._is_owed = False
        self._next_probe = 0.0
        self._witnessed_ms = 0
        self._traceless_at = time.monotonic()
        # What the journal's first record follows, and since when it is there, in steady time; None without one.
        self._oldest = self._oldest_found()

    def scrub_with(self, rebuild: Callable[[], Awaitable[list[str]]]) -> None:
        """Say how a model that is not exact is rid of traces; it returns the receipts of which there are none left."""
        self._rebuild = rebuild

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
                await self._workers.finish(self.write_snapshot(erase=is_scrub_due))
            except Exception as error:  # whatever it was: erasures are owed, and it must be tried again
                # The journal's counters may have begun anew, so that they do not ask for it again.
                self._is_owed = True
                self._not_before = time.monotonic() + _RETRY
                log.error("a snapshot could not be written (%s): it is tried again", type(error).__name__)

    async def write_snapshot(self, *, erase: bool = False) -> Snapshot:
        """Write a snapshot now, and finish all erasures that were acknowledged before.

        When something else than files holds what was erased, they are finished in the background, as soon as it does
        not any more.

        Parameters
        ----------
        erase
            Whether to write both generations anew even if no erasure is known to wait for it.

        Raises
        ------
        StorageError
            When it cannot be written.
        """
        async with self._one_at_a_time, _without_collector():
            with self._halting():
                started = time.monotonic()
                traceless = await self._scrubbed(erase)
                async with self._turns.mutation(refusable=False):
                    self._require_sound()
                    copy = await self.copied()
                    facts = self.facts()
                    finished = self._finishable(traceless)
                    period = self._last_period(finished)
                    await self._write(partial(self._keeper.journal.rotate, facts.seq + 1))
                twice = erase or bool(finished)
                snapshot = await self._workers.save(partial(self._keeper.write, copy, facts, twice=twice))
                await self._workers.save(partial(let_go_of, copy))
                del copy
                await self.settle_files()
                await self._begin_finishing(finished, period)
                self._lasted = time.monotonic() - started
                self._is_owed = False
            return snapshot

    async def wait_for_holders(self) -> None:
        """Return when the erasures are finished that only waited for something else than files."""
        while self._finishers:
            await asyncio.wait(list(self._finishers))

    async def _scrubbed(self, erase: bool) -> list[str] | None:
        """Rid the model of traces when an erasure is due; return the receipts without any left, None for all."""
        live = self._live
        if live.model.guarantee == "exact":
            return None
        if self._rebuild is None or not (erase or self._is_erasure_due()):
            return []
        return await self._rebuild()

    async def replace_all(self, model: ServedModel, notes: Callable[[], bytes], *, epoch: int, next_id: int) -> None:
        """Put another model in place of the live one, on the disk and in memory; inside a mutation's turn.

        The new snapshot is the instant at which it happens. What the journal has to note of it is in the snapshot too,
        so that a server that is killed in between finds it there.

        Raises
        ------
        StorageError, JournalFullError
            When the snapshot or the journal cannot be written; nothing has changed.
        """
        live, head = self._live, self._auditor.head
        old = live.model
        noted = notes()
        facts = replace(
            self.facts(),
            model_version=live.version + 1,
            next_id=next_id,
            epoch=epoch,
            seq=live.seq + 1,
            restore_notes=noted.decode(),
        )
        finished = [name for name in live.pending if name not in self._finishing]
        period = self._holders.period

        def swap() -> None:
            live.model, live.epoch, live.next_id = model, epoch, next_id
            self._holders.wiped()

        take_back: Callable[[], None] | None = None
        if not self._keeper.is_ephemeral:
            try:
                with self._halting():
                    take_back = await self._workers.save(partial(self._keeper.write_instead, model, facts))
            except ServiceError:
                self._auditor.rewind(head)
                raise
        try:
            await self._write(partial(self._keeper.journal.rotate, facts.seq))
            await self._committer.record(lambda: noted, changes=1, then=swap)
        except JournalFullError:
            # Nothing is in the journal, which goes on: a snapshot of what did not happen must not be found.
            self._auditor.rewind(head)
            if take_back is not None:
                with self._halting():
                    await self._workers.save(take_back)
            raise
        except JournalError:
            live.halt(StopReason.DISK_FAILED)  # the snapshot stands: a restart goes on from it
            raise UnavailableError("failed") from None
        await self.let_go(old)
        if not self._keeper.is_ephemeral:
            with self._halting():
                await self.settle_files()
            self._workers.begin(self._begin_finishing(finished, period))

    async def let_go(self, old: ServedModel) -> None:
        """Overwrite a model that another one has taken the place of; inside the turn of the mutation that did that."""
        await self._turns.exclusive()  # whoever reads it in a thread has begun before
        await self._workers.save(partial(let_go_of, old))

    async def export(self) -> Snapshot:
        """Return the newest snapshot to be handed out; the ledger knows of it first."""
        snapshot = self._keeper.newest
        fields: dict[str, Field] = {"snapshot": snapshot.id, "model_version": snapshot.model_version}
        await self._committer.note(lambda: self._auditor.event("export", fields))
        self._live.exports += 1
        return snapshot

    def facts(self) -> Facts:
        """What a snapshot of the live model would say now."""
        return facts_of(self._live, self._keeper, self._auditor)

    async def settle_files(self) -> None:
        """Remove older snapshots, and the journal up to those that stay."""
        now = self._clock.steady_ms()
        await self._folder.read(lambda store: store.forget_idempotent(now))
        # The journal is what the ledger's file could be made from again.
        await self._folder.flush()
        seq = await self._workers.save(self._keeper.remove_older)
        await self._write(partial(self._keeper.journal.drop_before, seq + 1))

    async def finish_erasures(self, receipts: list[str]) -> None:
        """Say that erasures are finished."""
        if not receipts:
            return

        def notes() -> bytes:
            overdue = self._deadline.overdue_of(receipts)
            at = moment(self._now_ms())
            return self._auditor.erased(receipts, erased_at=at, deadline_ms=self._deadline.ms, overdue=overdue)

        await self._committer.note(notes)
        for receipt in receipts:
            self._live.pending.pop(receipt, None)

    def _finishable(self, traceless: list[str] | None) -> list[str]:
        """Return the receipts that a snapshot of the model as it is now finishes: nothing else will bring them back."""
        end = self._holders.delayed_from
        return [
            name
            for name, pending in self._live.pending.items()
            if pending.period < end and name not in self._finishing and (traceless is None or name in traceless)
        ]

    def _last_period(self, receipts: list[str]) -> int:
        """Return the last period in which something could begin that holds what was erased; after `copied`."""
        live = self._live
        if live.model.guarantee != "exact":  # also a copy that was made after a wipe has traces, until the scrub
            return self._holders.period - 1
        return max((live.pending[name].period for name in receipts), default=-1)

    async def _begin_finishing(self, receipts: list[str], period: int) -> None:
        """Finish erasures that no file holds anything of any more: now, or when nothing else does."""
        if not receipts:
            return
        if self._holders.is_rid(period):
            await self.finish_erasures(receipts)
            return
        self._finishing.update(receipts)
        # At the end of the server it is cancelled: what only memory holds ends with the process.
        task = self._workers.begin(self._finish_later(receipts, period), endless=True)
        self._finishers.add(task)
        task.add_done_callback(self._finishers.discard)

    async def _finish_later(self, receipts: list[str], period: int) -> None:
        try:
            await self._holders.rid(period, min(_MOST_PATIENCE, self._policy.erasure_deadline / 4))
            await self.finish_erasures(receipts)
        except JournalError as error:
            self._is_owed = True
            self._not_before = time.monotonic() + _RETRY
            log.error("erasures could not be noted as finished (%s): it is tried again", type(error).__name__)
        finally:
            self._finishing.difference_update(receipts)

    async def _keep_time(self) -> None:
        """Write the time down now and then: a start after quiet days must not take them for a leap of the clock."""
        now = self._now_ms()
        if now - self._witnessed_ms >= _TIME_KEPT_MS and not self._live.failed:
            self._witnessed_ms = now
            await self._folder.read(lambda store: store.witness(now))

    async def copied(self) -> ServedModel:
        """Return a copy of the live model without tags, and without anything of what has left; in a mutation's turn."""
        return await self.cleaned(_wiped_copy)

    async def cleaned(self, read: Callable[[ServedModel], T]) -> T:
        """Rid the live model of tags and of what it keeps of samples that have left; inside a mutation's turn.

        Parameters
        ----------
        read
            Overwrites that, and reads the model; called in a thread.
        """
        slices = TagSlices(TAG_SLICE)
        await self._turns.exclusive()
        while self._live.model.n_lazy_tags_ and slices.step(self._live.model):
            await asyncio.sleep(0)
            await self._turns.exclusive()
        with self._turns.reading():
            found = await self._workers.save(partial(read, self._live.model))
        self._holders.wiped()
        return found

    @contextlib.contextmanager
    def _halting(self) -> Iterator[None]:
        """Change nothing any more after a flush that has failed: nobody knows what the disk holds."""
        try:
            yield
        except FlushFailedError:
            self._live.halt(StopReason.DISK_FAILED)
            raise

    async def _write(self, work: Callable[[], None]) -> None:
        """Do something with the journal; when it has failed, nothing is changed any more."""
        try:
            await self._workers.write(work)
        finally:
            if self._keeper.journal.failed:
                self._live.halt(StopReason.DISK_FAILED)

    async def _look_again(self) -> None:
        """Find out, now and then, whether what kept changes from being written has passed."""
        if self._live.hindered is None or self._live.failed or time.monotonic() < self._next_probe:
            return
        self._next_probe = time.monotonic() + _PROBE
        with contextlib.suppress(JournalFullError):
            await self._write(self._keeper.journal.probe)
            self._live.hindered = None

    def _is_due(self) -> bool:
        if self._live.failed or time.monotonic() < self._not_before:
            return False
        return self._is_owed or self._is_erasure_due() or self._is_journal_long()

    def _is_erasure_due(self) -> bool:
        """Whether waiting longer could miss the deadline of one that can be finished now."""
        return bool(self._live.pending) and self._deadline.is_due(self._finishable(None), self._lasted)

    def _is_scrub_due(self) -> bool:
        """Whether a model that is not exact has been changed so often, or so long ago, that it is fitted anew."""
        model, policy, now = self._live.model, self._policy, time.monotonic()
        if model.guarantee == "exact" or model.n_mutations_since_scrub_ == 0:
            self._traceless_at = now
            return False
        if self._live.failed or now < self._not_before:
            return False
        many = policy.scrub_mutations is not None and model.n_mutations_since_scrub_ >= policy.scrub_mutations
        return many or (policy.scrub_age is not None and now - self._traceless_at >= policy.scrub_age)

    def _is_journal_long(self) -> bool:
        journal, policy = self._keeper.journal, self._policy
        if not journal.n_records:
            self._oldest = None
            return False
        if self._keeper.is_current(self._live.seq):
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
        return self._keeper.journal.last_seq - self._keeper.journal.n_records

    def _oldest_found(self) -> tuple[int, int] | None:
        """Return the same of what an earlier process has left; its time is one of the machine's clock."""
        oldest_at = self._keeper.journal.oldest_at
        if oldest_at is None:
            return None
        return self._before_journal(), self._clock.steady_since_wall(round(oldest_at * 1000))

    def _require_sound(self) -> None:
        if self._live.failed:
            raise UnavailableError("failed")


@asynccontextmanager
async def _without_collector() -> AsyncIterator[None]:
    """Keep Python's collector off a copy of the model: going through it takes longer than a request may wait."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def facts_of(live: Live, keeper: Keeper, auditor: Auditor) -> Facts:
    """What a snapshot says of a model besides itself."""
    head = auditor.head
    return Facts(
        model_version=live.version,
        next_id=max(live.next_id, live.model.samples_.next_id),
        lineage=keeper.lineage,
        epoch=live.epoch,
        seq=live.seq,
        exports=live.exports,
        ledger_index=head.index,
        ledger_hash=head.hash,
    )


def _wiped_copy(model: ServedModel) -> ServedModel:
    """Overwrite what the model keeps of samples that have left, then copy it."""
    model.wipe()
    return model.copy()
