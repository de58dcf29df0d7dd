"""What may be done with the model: every request that reads or changes it goes through `ModelService`. No HTTP here.

    reading     here: short predictions on the event loop, long ones in a thread
    changing    `commits`: planned, made durable, made, answered; long ones on a copy in a thread
    replacing   `replacing`: restore, fit
    upkeep      `upkeep`: snapshots and erasures; `expiring`: samples whose time is over

`turns` says who waits for whom; `live` is what they all work on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from oubli.app.clock import Clock
from oubli.app.errors import EphemeralError, ServiceError, StaleCursorError, UnavailableError
from oubli.app.ledger.database import AuditStore
from oubli.app.ledger.ledger import Auditor
from oubli.app.ledger.notes import IdempotencyRecord
from oubli.app.ledger.receipts import Receipt
from oubli.app.service.background import IdleResolver, TagSlices
from oubli.app.service.checkpoint import TAG_SLICE, Upkeep, UpkeepPolicy
from oubli.app.service.commands import Change, Done, Request, Settle, added, addition, deletion, replacement
from oubli.app.service.costs import Cost
from oubli.app.service.deadlines import Deadline
from oubli.app.service.folding import Folder
from oubli.app.service.holders import Holders
from oubli.app.service.idempotency import Claim, Claims
from oubli.app.service.influence import Influencing
from oubli.app.service.jobs import Job, JobBoard, Report
from oubli.app.service.lock import Turns
from oubli.app.service.rebuild import Replacing
from oubli.app.service.receipts import Receipts
from oubli.app.service.results import (
    Added,
    Deleted,
    Description,
    NewSamples,
    Page,
    Predicted,
    Replacement,
    Restored,
    Row,
)
from oubli.app.service.retention import Expiring
from oubli.app.service.state import Live, StopReason
from oubli.app.service.threads import Workers
from oubli.app.service.tombstones import Grace
from oubli.app.service.uploads import UploadPolicy, Uploads
from oubli.app.service.views import describe, one_sample, page_of_samples
from oubli.app.service.writer import LOOP_BUDGET, Committer, settle_future
from oubli.app.storage.journal import JournalError
from oubli.app.storage.keeper import Keeper
from oubli.app.storage.snapshots import Snapshot
from oubli.core.data.schema import Schema
from oubli.core.samples.store import HeldSample

log = logging.getLogger("oubli.service")

State = Literal["starting", "ready", "stopping"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """What the service refuses to exceed, and what it does by itself.

    Attributes
    ----------
    max_queue
        Most requests that wait; erasures wait all the same.
    page_size_max
        Most samples, receipts or entries on a page.
    readd_grace
        Seconds for which an erased id may not come back unless it is meant.
    retention
        Seconds after which samples expire that say nothing else; None for never.
    max_expiry_share
        Largest share of the samples that may expire at once without being confirmed.
    """

    max_queue: int = 1024
    page_size_max: int = 1000
    readd_grace: float = 86_400.0
    retention: float | None = None
    max_expiry_share: float = 0.1


@dataclass(slots=True)
class Records:
    """What the service remembers besides the model: the ledger with its keys, and the time.

    Attributes
    ----------
    auditor
        Makes receipts and entries.
    store
        The ledger's file.
    clock
        Tells the time.
    """

    auditor: Auditor
    store: AuditStore
    clock: Clock


class ModelService:
    """One model, its version, and everything that may be done with it.

    Parameters
    ----------
    live
        The model with its place in its history. It belongs to the service from now on.
    keeper
        What keeps it on disk, or keeps nothing.
    records
        The ledger and the time.
    uploads
        How long the upload of a snapshot may take.
    warm_up
        Compiles what the first requests would otherwise wait for; called in a thread by `start`.
    """

    def __init__(
        self,
        live: Live,
        keeper: Keeper,
        records: Records,
        *,
        limits: Limits | None = None,
        policy: UpkeepPolicy | None = None,
        uploads: UploadPolicy | None = None,
        idle_resolve: bool = True,
        warm_up: Callable[[], object] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.policy = policy or UpkeepPolicy()
        self.stop_error: str | None = None
        self.jobs = JobBoard()
        self._live = live
        self._keeper = keeper
        self._records = records
        self._state: State = "starting"
        self._warm_up = warm_up
        self._workers = Workers()
        self._turns = Turns(self.limits.max_queue)
        self._idle = IdleResolver(lambda: live.model, self._turns)
        self._idle_resolve = idle_resolve
        self._row_cost = Cost(50e-6, LOOP_BUDGET)
        self._add_cost = Cost(200e-6, LOOP_BUDGET)
        self._delete_cost = Cost(200e-6, LOOP_BUDGET)
        clock, auditor = records.clock, records.auditor
        now_ms, steady_ms = clock.now_ms, clock.steady_ms
        grace_ms = round(self.limits.readd_grace * 1000)
        lately = records.store.recently_erased(now_ms() - grace_ms) if grace_ms else []
        erased = [(known, clock.steady_since(at_ms)) for known, at_ms in lately]
        self._deadline = Deadline(live, steady_ms, self.policy.erasure_deadline)
        self._folder = Folder(records.store, self._workers, self._idle.is_idle, self._fail)
        self.claims = Claims(auditor, self._folder, steady_ms)
        self.receipts = Receipts(auditor, self._folder, self._deadline)
        self._committer = Committer(
            live,
            keeper.journal,
            auditor,
            self._folder,
            Grace(grace_ms, auditor.hashes_of, steady_ms, erased),
            self._turns,
            self._workers,
            max_queue=self.limits.max_queue,
            now_ms=now_ms,
            steady_ms=steady_ms,
            default_expiry=self._default_expiry,
            changed=self._idle.model_changed,
        )
        self.holders = holders = Holders(live)
        self._upkeep = Upkeep(
            live,
            keeper,
            self._committer,
            auditor,
            self._folder,
            self._turns,
            self._workers,
            self.policy,
            clock,
            self._deadline,
            holders,
        )
        self._replacing = Replacing(
            live,
            keeper,
            self._committer,
            self._upkeep,
            auditor,
            self._folder,
            self._turns,
            self._workers,
            now_ms,
            steady_ms,
            holders,
        )
        self._upkeep.scrub_with(self._replacing.rebuild)
        self.influencing = Influencing(live, self._upkeep, self._turns, self._workers, self.jobs, holders)
        self.uploads = Uploads(keeper.path, holders, uploads or UploadPolicy())
        self._expiring = Expiring(live, records.clock, self.limits.max_expiry_share, self._expire)

    # --- life

    @property
    def state(self) -> State:
        """Whether the service is starting, ready or stopping."""
        return self._state

    @property
    def failed(self) -> bool:
        """Whether an error left the model or the disk in doubt, so that nothing changes any more."""
        return self._live.failed

    @property
    def stopped(self) -> StopReason | None:
        """Why nothing is changed at present; None when changes are taken."""
        return self._live.stopped

    @property
    def is_usable(self) -> bool:
        """Whether the model can answer: no change of it was broken off halfway."""
        return self._live.model.is_usable

    @property
    def model_version(self) -> int:
        """Version of the samples held."""
        return self._live.version

    @property
    def is_durable(self) -> bool:
        """Whether what was acknowledged survives the process."""
        return self._keeper.journal.is_durable

    def start(self) -> None:
        """Begin in the background to make the service ready; call it on the event loop."""
        self._workers.begin(self._committer.run(), endless=True)
        if not self._keeper.is_ephemeral:
            self._workers.begin(self._upkeep.run(), endless=True)
        self._workers.begin(self._expiring.run(), endless=True)
        self._workers.begin(self._make_ready())

    def drain(self) -> None:
        """Say no to readiness from now on; requests are answered as before."""
        self._state = "stopping"
        self.jobs.drain()

    async def stop(self) -> None:
        """Finish what runs, write a snapshot when something changed since the last, and release the directory.

        What cannot be written is told in `stop_error`: nothing can be done about it any more. What was acknowledged
        is in the journal all the same.
        """
        self.drain()
        try:
            await self.jobs.close()
            await self._committer.drain()
            if not (self._live.failed or (self._keeper.is_current(self._live.seq) and not self._live.pending)):
                await self._upkeep.write_snapshot()
                log.info("snapshot written at model version %d", self._live.version)
            now = self.now_ms
            await self._folder.read(lambda store: store.witness(now))
            await self._folder.flush()
        except (ServiceError, JournalError):
            self.stop_error = "the last snapshot could not be written; what was acknowledged is in the journal"
        finally:
            await self._workers.settle()
            self._workers.close()
            self._records.store.close()
            self._keeper.close()

    def request_begins(self) -> None:
        """Note that a request is being handled, so that idle work stops."""
        self._idle.request_begins()

    def request_ends(self) -> None:
        """Note that a request was answered."""
        self._idle.request_ends()

    def request_passed(self) -> None:
        """Note a request that was answered in one step."""
        self._idle.request_passed()

    # --- reading

    def predict_now(self, rows: list[Row]) -> Predicted | None:
        """Predict for some rows if that is short; None when it takes a thread: see `predict`.

        Resolves the tags it meets unless a thread is reading the model.
        """
        self._require_started()
        if not self._row_cost.is_short(len(rows)):
            return None
        live = self._live
        if len(rows) == 1:  # always short, and no measure of a row among many
            return Predicted(live.model.query(rows, frozen=self._turns.frozen), live.version)
        started = time.perf_counter()
        result = live.model.query(rows, frozen=self._turns.frozen)
        self._row_cost.observe(len(rows), time.perf_counter() - started)
        return Predicted(result, live.version)

    async def predict(self, rows: list[Row]) -> Predicted:
        """Predict for some rows."""
        predicted = self.predict_now(rows)
        return predicted if predicted is not None else await self._workers.finish(self._predict_long(rows))

    def get(self, sample_id: str) -> tuple[HeldSample, int]:
        """Return one sample as held, and the model version; see `views.one_sample`."""
        self._require_started()
        return one_sample(self._live.model, sample_id), self._live.version

    def page(self, *, subject: str | None, after: tuple[int, int] | None, limit: int) -> Page:
        """Return a page of the samples held, or of one subject's; see `views.page_of_samples`.

        Parameters
        ----------
        subject
            Whose samples; None for all.
        after
            Epoch and slot where the page before ended; None for the first page.
        limit
            Most samples on the page.

        Raises
        ------
        StaleCursorError
            When a restore replaced the list meanwhile.
        """
        self._require_started()
        live = self._live
        if after is not None and after[0] != live.epoch:
            raise StaleCursorError
        return page_of_samples(
            live.model,
            subject=subject,
            after_slot=None if after is None else after[1],
            limit=limit,
            epoch=live.epoch,
            model_version=live.version,
        )

    def describe(self) -> Description:
        """Return what is known of the model as a whole."""
        self._require_started()
        live = self._live
        return describe(
            live.model,
            live.version,
            durable=self.is_durable,
            pending=len(live.pending),
            overdue=self._deadline.n_overdue(),
            expiry_paused=self._expiring.paused,
            stopped=live.stopped,
        )

    @property
    def kind(self) -> str:
        """The kind of the model."""
        return self._live.model.kind

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the model."""
        return self._live.model.get_params()

    @property
    def schema(self) -> Schema:
        """The schema of the model, for parsing."""
        return self._live.model.schema_

    @property
    def now_ms(self) -> int:
        """The time, in milliseconds since 1970; never runs backwards."""
        return self._records.clock.now_ms()

    def latest_ms(self) -> int:
        """Return the machine's time, which setting the clock back does not make earlier; see `Clock.latest_ms`."""
        return self._records.clock.latest_ms()

    @property
    def newest_snapshot(self) -> Snapshot:
        """The newest snapshot; raises `NoSnapshotError` or `EphemeralError`."""
        return self._keeper.newest

    # --- changing

    def submit_addition(
        self, samples: NewSamples, settle: Callable[[Added | None, BaseException | None], None]
    ) -> bool:
        """Have samples added and `settle` called; false, and nothing is done, when the change is long: see `add`."""

        def settled(done: Done[tuple[list[str], int]] | None, error: BaseException | None) -> None:
            settle(None if done is None else added(done), error)

        return self._submit(addition(samples, self._add_cost), settled)

    async def add(self, samples: NewSamples, claim: Claim | None = None) -> Added:
        """Add samples; see `plans.plan_addition`. What was claimed and answered before is answered again."""
        if claim is not None and claim.earlier is not None:
            return _added_before(samples, claim, claim.earlier)
        return added(await self._mutate(addition(samples, self._add_cost, claim)))

    async def replace(self, asked: Replacement, ref: str | None = None) -> Receipt:
        """Rectify one held sample; see `plans.plan_replacement`."""
        request = Request("rectification", [asked.sample_id], "ids", ref, self.now_ms)
        return _receipt(await self._mutate(replacement(asked, request, self._add_cost)))

    def submit_deletion(self, sample_id: str, settle: Callable[[Receipt | None, BaseException | None], None]) -> bool:
        """Have one sample deleted and `settle` called; false, and nothing is done, when it is not held."""
        if not self._live.model.samples_.contains(sample_id):
            return False

        def settled(done: Done[Deleted] | None, error: BaseException | None) -> None:
            settle(None if done is None else _receipt(done), error)

        request = Request("deletion", [sample_id], "ids", None, self.now_ms)
        return self._submit(deletion(request, self._live.model, self._delete_cost), settled)

    async def delete(
        self,
        *,
        ids: Sequence[str] | None = None,
        subjects: Sequence[str] | None = None,
        ref: str | None = None,
        claim: Claim | None = None,
    ) -> Receipt:
        """Delete what is held under ids, or of subjects; names that are repeated count once, absent ones are counted.

        When nothing of it is held, the receipt of the last erasure of exactly these targets is returned, if there is
        one. A full queue does not refuse it.
        """
        self._require_changeable()
        if claim is not None and claim.earlier is not None and claim.earlier.receipt is not None:
            return await self.receipts.get(claim.earlier.receipt)
        by: Literal["ids", "subjects"] = "subjects" if ids is None else "ids"
        names = list(dict.fromkeys((subjects or ()) if ids is None else ids))
        store = self._live.model.samples_
        held = store.ids_of_subject if by == "subjects" else store.contains
        if claim is None and not any(held(name) for name in names):
            earlier = await self.receipts.last_of(names, by)
            if earlier is not None:
                return earlier
        request = Request("deletion", names, by, ref, self.now_ms)
        return _receipt(await self._mutate(deletion(request, self._live.model, self._delete_cost, claim)))

    async def snapshot(self) -> Snapshot:
        """Write a snapshot of the model as it is when its turn comes."""
        self._require_changeable()
        self._require_kept()
        return await self._workers.finish(self._upkeep.write_snapshot())

    async def export(self) -> Snapshot:
        """Return the newest snapshot to be handed out, after that has been noted in the ledger."""
        self._require_changeable()
        self._require_kept()
        return await self._workers.finish(self._upkeep.export())

    async def restore(self, path: Path) -> Restored:
        """Replace the model by that of a snapshot file, less what was erased, rectified or expired since.

        Raises
        ------
        FileError
            When the file is not a sound model file; nothing has changed.
        """
        self._require_changeable()
        return await self._workers.finish(self._replacing.restore(path))

    async def confirm_expiry(self) -> None:
        """Let expiry go on that has been paused; the ledger notes it."""
        self._require_changeable()
        self._expiring.confirm()
        await self._committer.note(partial(self._records.auditor.event, "expiry-confirmed", {}))

    # --- jobs

    def verify_job(self) -> Job:
        """Begin to compare the model with a fresh fit."""
        self._require_started()
        return self.jobs.start("verify", self._replacing.verify)

    def scrub_job(self) -> Job:
        """Begin to erase from all files what was unlearned."""
        self._require_changeable()
        self._require_kept()
        return self.jobs.start("scrub", self._scrub)

    def fit_job(self, kind: str, parameters: dict[str, Any], claim: Claim | None = None) -> Job:
        """Begin to fit anew, with other parameters, on the samples held; or return the job that the claim began."""
        self._require_changeable()
        work = partial(self._replacing.fit, kind, parameters, claim=claim)
        if claim is None:
            return self.jobs.start("fit", work)
        job_id = claim.as_uuid()
        if claim.earlier is None:
            return self.jobs.start("fit", work, job_id, claim.body)
        result = {"model_version": claim.earlier.model_version, "n_samples": claim.earlier.n_samples}
        return self.jobs.get(job_id) or Job(job_id, "fit", "succeeded", 1.0, result)

    # --- how work gets done

    def _submit(self, change: Change[T], settle: Settle[T]) -> bool:
        self._require_changeable()
        if not change.cost.is_short(change.n_items):
            return False
        self._committer.submit(change, settle)
        return True

    async def _mutate(self, change: Change[T]) -> Done[T]:
        """Make a change in its turn, on the loop or aside."""
        self._require_changeable()
        if not change.cost.is_short(change.n_items):
            return await self._workers.finish(self._committer.commit_aside(change))
        settled: asyncio.Future[Done[T]] = asyncio.get_running_loop().create_future()
        self._committer.submit(change, partial(settle_future, settled))
        return await settled

    async def _expire(self, ids: Sequence[str]) -> None:
        request = Request("expiry", ids, "ids", None, self.now_ms)
        await self._mutate(deletion(request, self._live.model, self._delete_cost))

    async def _scrub(self, report: Report) -> dict[str, Any]:
        report(0.1)
        n_pending = len(self._live.pending)
        snapshot = await self._workers.finish(self._upkeep.write_snapshot(erase=True))
        await self._upkeep.wait_for_holders()
        return {"snapshot": snapshot.id, "model_version": snapshot.model_version, "erasures": n_pending}

    async def _predict_long(self, rows: list[Row]) -> Predicted:
        async with self._turns.long_read():
            # A model without tags is only read: nobody's working space is written, so short predictions go on beside.
            slices = TagSlices(TAG_SLICE)
            await self._turns.pass_turnstile()
            while self._live.model.n_lazy_tags_:
                await self._turns.unread()
                slices.step(self._live.model)
                await asyncio.sleep(0)
                await self._turns.pass_turnstile()
            model, version = self._live.model, self._live.version
            with self._turns.reading():
                started = time.perf_counter()
                result = await self._workers.read(partial(model.query, rows, frozen=True))
                self._row_cost.observe(len(rows), time.perf_counter() - started)
            return Predicted(result, version)

    async def _make_ready(self) -> None:
        try:
            # Let go of at once: it knows the first model, which may be replaced.
            warm_up, self._warm_up = self._warm_up, None
            if warm_up is not None:
                await self._workers.save(warm_up)
            del warm_up
        except Exception as error:
            log.error("warming up failed (%s): the first requests will be slow", type(error).__name__)
        self._warm_up = None  # it holds the model of the start, which another one may replace
        if self._idle_resolve:
            self._workers.begin(self._idle.run(), endless=True)
        self._idle.model_changed()
        if self._state == "starting":
            self._state = "ready"

    def _default_expiry(self) -> int | None:
        retention = self.limits.retention
        return None if retention is None else self.now_ms + round(retention * 1000)

    def _fail(self) -> None:
        self._live.halt(StopReason.LEDGER_FAILED)

    def _require_started(self) -> None:
        if self._state == "starting":
            raise UnavailableError("starting")

    def _require_changeable(self) -> None:
        self._require_started()
        if self._live.failed:
            raise UnavailableError("failed")

    def _require_kept(self) -> None:
        if self._keeper.is_ephemeral:
            raise EphemeralError


def _receipt(done: Done[Any]) -> Receipt:
    if done.receipt is None:
        raise RuntimeError("an erasure was made without a receipt")
    return done.receipt


def _added_before(samples: NewSamples, claim: Claim, earlier: IdempotencyRecord) -> Added:
    """Return the answer to samples that were added by the same request before."""
    first = 0 if earlier.first_id is None else earlier.first_id ^ claim.mask
    ids = []
    for name in samples.ids:
        if name is None:
            ids.append(str(first))
            first += 1
        else:
            ids.append(name)
    return Added(ids, earlier.n_new, earlier.n_samples, earlier.model_version)
