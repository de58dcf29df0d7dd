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
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from app.audit.auditor import Auditor, Field
from app.commits import Committer
from app.errors import ServiceError, UnavailableError
from app.folding import Folder
from app.idle import TagSlices
from app.journal.journal import JournalError
from app.live import Live
from app.memory import let_go_of
from app.model import ServedModel
from app.retention.parse import moment
from app.store.keeper import Keeper
from app.store.snapshots import Facts, Snapshot
from app.turns import Turns
from app.workers import Workers

log = logging.getLogger("oubli.service")

TAG_SLICE = 0.002  # seconds of one piece of the work before a snapshot; requests are answered in between
_TICK = 0.25  # seconds between two looks at the clock
_TIME_KEPT_MS = 3_600_000
_RETRY = 5.0  # seconds before a snapshot that could not be written is tried again


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
    now_ms
        The time, in milliseconds since 1970.
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
        now_ms: Callable[[], int],
    ) -> None:
        self._live = live
        self._keeper = keeper
        self._committer = committer
        self._auditor = auditor
        self._folder = folder
        self._turns = turns
        self._workers = workers
        self._policy = policy
        self._now_ms = now_ms
        self._rebuild: Callable[[], Awaitable[list[str]]] | None = None
        self._forget: Callable[[], None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._lasted = 0.0
        self._not_before = 0.0
        self._is_owed = False
        self._witnessed_ms = 0
        self._traceless_at = time.monotonic()

    def scrub_with(self, rebuild: Callable[[], Awaitable[list[str]]]) -> None:
        """Say how a model that is not exact is rid of traces; it returns the receipts of which there are none left."""
        self._rebuild = rebuild

    def erase_with(self, forget: Callable[[], None]) -> None:
        """Say how answers that are kept, and may name samples that are gone, are forgotten."""
        self._forget = forget

    async def run(self) -> None:
        """Do what is due, until cancelled."""
        while True:
            await asyncio.sleep(_TICK)
            await self._keep_time()
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
            started = time.monotonic()
            traceless = await self._scrubbed(erase)
            async with self._turns.mutation(refusable=False):
                self._require_sound()
                copy = await self.copied()
                facts = self.facts()
                finished = [one for one in self._live.pending if traceless is None or one in traceless]
                await self._write(partial(self._keeper.journal.rotate, facts.seq + 1))
            twice = erase or bool(finished)
            if twice and self._forget is not None:
                self._forget()
            snapshot = await self._workers.save(partial(self._keeper.write, copy, facts, twice=twice))
            await self._workers.save(partial(let_go_of, copy))
            del copy
            await self.settle_files()
            await self.finish_erasures(finished)
            self._lasted = time.monotonic() - started
            self._is_owed = False
            return snapshot

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
        StorageError
            When the snapshot cannot be written; nothing has changed.
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
        finished = list(live.pending)

        def swap() -> None:
            live.model, live.epoch, live.next_id = model, epoch, next_id

        if not self._keeper.is_ephemeral:
            try:
                await self._workers.save(partial(self._keeper.write, model, facts, twice=True))
            except ServiceError:
                self._auditor.rewind(head)
                raise
        try:
            await self._write(partial(self._keeper.journal.rotate, facts.seq))
            await self._committer.record(lambda: noted, changes=1, then=swap)
        except JournalError:
            live.failed = True  # the snapshot stands: a restart goes on from it
            raise UnavailableError("failed") from None
        await self.let_go(old)
        if not self._keeper.is_ephemeral:
            await self.settle_files()
            self._workers.begin(self.finish_erasures(finished))

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
        now = self._now_ms()
        await self._folder.read(lambda store: store.forget_idempotent(now))
        # The journal is what the ledger's file could be made from again.
        await self._folder.flush()
        seq = await self._workers.save(self._keeper.remove_older)
        await self._write(partial(self._keeper.journal.drop_before, seq + 1))

    async def finish_erasures(self, receipts: list[str]) -> None:
        """Say that erasures are finished."""
        if not receipts:
            return
        deadline = round(self._policy.erasure_deadline * 1000)
        await self._committer.note(
            lambda: self._auditor.erased(receipts, erased_at=moment(self._now_ms()), deadline_ms=deadline)
        )
        for receipt in receipts:
            self._live.pending.pop(receipt, None)

    async def _keep_time(self) -> None:
        """Write the time down now and then: a start after quiet days must not take them for a leap of the clock."""
        now = self._now_ms()
        if now - self._witnessed_ms >= _TIME_KEPT_MS and not self._live.failed:
            self._witnessed_ms = now
            await self._folder.read(lambda store: store.witness(now))

    async def copied(self) -> ServedModel:
        """Return a copy of the live model without tags; inside a mutation's turn."""
        slices = TagSlices(TAG_SLICE)
        await self._turns.exclusive()
        while self._live.model.n_lazy_tags_ and slices.step(self._live.model):
            await asyncio.sleep(0)
            await self._turns.exclusive()
        with self._turns.reading():
            return await self._workers.save(partial(_wiped_copy, self._live.model))

    async def _write(self, work: Callable[[], None]) -> None:
        """Do something with the journal; when it has failed, nothing is changed any more."""
        try:
            await self._workers.write(work)
        finally:
            self._live.failed = self._live.failed or self._keeper.journal.failed

    def _is_due(self) -> bool:
        if self._live.failed or time.monotonic() < self._not_before:
            return False
        return self._is_owed or self._is_erasure_due() or self._is_journal_long()

    def _is_erasure_due(self) -> bool:
        """Whether waiting longer could miss the deadline: half of it is left, or thrice what the last time took."""
        if not self._live.pending:
            return False
        oldest = min(pending.acknowledged_ms for pending in self._live.pending.values())
        deadline = self._policy.erasure_deadline
        return self._now_ms() / 1000 - oldest / 1000 >= min(deadline / 2, deadline - 3 * self._lasted)

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
        if not journal.n_records or self._keeper.is_current(self._live.seq):
            return False
        age = 0.0 if journal.oldest_at is None else self._now_ms() / 1000 - journal.oldest_at
        return (
            journal.n_records >= policy.snapshot_mutations
            or journal.n_bytes >= policy.snapshot_bytes
            or age >= policy.snapshot_age
        )

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
