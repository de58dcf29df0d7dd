"""What may be done with the model: every request that reads or changes it goes through `ModelService`. No HTTP here.

    reading     here: short predictions on the event loop, long ones in a thread
    changing    `writer`: planned, made durable, applied, answered; long ones on a copy in a thread
    replacing   `rebuild`: restore, fit
    disk        `checkpoint`: snapshots and erasures; `retention`: samples whose time is over

`lock` says who waits for whom; `state` is what they all work on. `build` puts all of them together.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from oubli.app.errors import (
    EphemeralError,
    JournalError,
    NotHeldError,
    NotLoggedError,
    ServiceError,
    StaleCursorError,
    StopReason,
    StorageError,
    UnavailableError,
)
from oubli.app.ledger.entries import NODE_REMOVED, original_of
from oubli.app.service.commands.additions import AddSamples
from oubli.app.service.commands.deletions import DeleteSamples, ReplaceSample
from oubli.app.service.commands.held import held_of, require_unrestricted
from oubli.app.service.commands.restrictions import ReleaseSubjects, RestrictSubjects, RetainSubjects
from oubli.app.service.durations import Cost
from oubli.app.service.jobs import Job
from oubli.app.service.measurements import Check, Measurements, Phase
from oubli.app.service.results import (
    Added,
    Deleted,
    NewSamples,
    NothingHeld,
    Page,
    Predicted,
    Replacement,
    Restricted,
)
from oubli.app.service.roles import Alone
from oubli.app.service.stages import end_stage
from oubli.app.service.state import inherited
from oubli.core.data.schema import Task
from oubli.core.errors import UnknownIdError
from oubli.core.threads import set_default

if TYPE_CHECKING:
    from pathlib import Path

    from oubli.app.ledger.database import LedgerDatabase
    from oubli.app.ledger.entries import By, Entry, IdempotencyRecord, Receipt
    from oubli.app.ledger.ledger import Ledger, LedgerWorker, Tombstones
    from oubli.app.service.activities import Activities
    from oubli.app.service.background import IdleResolver
    from oubli.app.service.checkpoint import Checkpointer
    from oubli.app.service.deliveries import Deliveries
    from oubli.app.service.erasures import Erasures
    from oubli.app.service.export import Exporter
    from oubli.app.service.holders import Holders
    from oubli.app.service.idempotency import IdempotencyKey, IdempotencyKeys
    from oubli.app.service.influence import InfluenceRanker
    from oubli.app.service.inspection import Inspector
    from oubli.app.service.jobs import JobBoard, Report
    from oubli.app.service.lock import ModelLock
    from oubli.app.service.prediction_receipts import PredictionSigner
    from oubli.app.service.publisher import LogPublisher
    from oubli.app.service.reading import LongReader
    from oubli.app.service.rebuild import Rebuilder
    from oubli.app.service.receipts import Receipts
    from oubli.app.service.retention import Retention
    from oubli.app.service.roles import Role
    from oubli.app.service.sample_set import AbsenceProof, SampleSet
    from oubli.app.service.scoring import Scorer
    from oubli.app.service.state import ModelState
    from oubli.app.service.state_entries import StateEntries
    from oubli.app.service.subject_requests import SubjectRequests
    from oubli.app.service.uploads import Uploads
    from oubli.app.service.without import Comparer
    from oubli.app.service.writer import Writer
    from oubli.app.storage.snapshots import Snapshot
    from oubli.app.storage.storage import Storage
    from oubli.app.threads import Threads
    from oubli.app.times import Clock
    from oubli.core.model import Model, QueryResult
    from oubli.core.samples.store import HeldSample

log = logging.getLogger("oubli.service")

_RESTRICTED_FROM = 2**40  # in lists, the places of restricted samples: behind all slots of the others
_ATTEMPTS = 3
_REACHING = 1.0  # seconds for which a request waits for a version that another node has made
_NO_SLOTS = np.zeros(0, np.int64)


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
    max_empty_erasures
        Most erasures an hour and caller that find nothing and get a receipt.
    """

    max_queue: int = 1024
    page_size_max: int = 1000
    readd_grace: float = 86_400.0
    retention: float | None = None
    max_expiry_share: float = 0.1
    max_empty_erasures: int = 1000


@dataclass(eq=False, repr=False, kw_only=True)
class ModelService:
    """One model, its version, and everything that may be done with it; `build.compose` makes one.

    Attributes
    ----------
    state
        The model with its place in its history. It belongs to the service.
    storage
        What keeps it on disk, or keeps nothing.
    clock
        Tells the time.
    ledger, database
        The ledger.
    lock, threads
        Who may touch the model, and the threads.
    writer, checkpointer, rebuilder, retention, erasures
        Change the model, and keep the disk in order.
    receipts
        Reads the ledger.
    idempotency_keys
        Knows requests that are repeated.
    jobs
        Long work.
    influence
        Answers questions about the influence of samples.
    comparer
        Says what would be predicted without some samples.
    inspector, reader
        Describe the model to people, and read it for long.
    scorer
        Says what a fit has made better or worse.
    activities
        What goes on and is no job.
    exporter
        Makes bundles of what is held about a subject.
    uploads
        Keeps files that come in.
    holders
        Everything that may hold something of a sample.
    deliveries
        Tells others of the states of receipts.
    publisher
        Signs the log and publishes it.
    sample_set
        The tree over the samples held, and what it proves.
    subject_requests
        Those of OpenDSR.
    states
        Tells in the ledger what the model was at a version.
    prediction_signer
        Signs predictions.
    tombstones
        The ids that were erased lately.
    idle
        Told of requests, so that idle work stops.
    limits
        What is refused.
    idle_resolve
        Whether tags are resolved when nothing is asked.
    warm_up
        Compiles what the first requests would otherwise wait for; called in a thread by `start`.
    role
        Knows other nodes.
    n_threads
        For long work; once the service is ready, one of them is left to requests.
    phase
        Whether the service is starting, ready or stopping.
    is_durable
        Whether what was acknowledged survives the process.
    stop_error
        What could not be written at the end.
    last_check
        The last comparison with a fresh fit since the start; None when there was none.
    """

    state: ModelState
    storage: Storage
    clock: Clock
    ledger: Ledger
    database: LedgerWorker
    lock: ModelLock
    threads: Threads
    idle: IdleResolver
    writer: Writer
    checkpointer: Checkpointer
    rebuilder: Rebuilder
    retention: Retention
    erasures: Erasures
    receipts: Receipts
    idempotency_keys: IdempotencyKeys
    jobs: JobBoard
    influence: InfluenceRanker
    comparer: Comparer
    inspector: Inspector
    reader: LongReader
    scorer: Scorer
    activities: Activities
    exporter: Exporter
    uploads: Uploads
    holders: Holders
    deliveries: Deliveries
    publisher: LogPublisher
    sample_set: SampleSet
    subject_requests: SubjectRequests
    states: StateEntries
    prediction_signer: PredictionSigner
    tombstones: Tombstones
    limits: Limits
    idle_resolve: bool = True
    warm_up: Callable[[], object] | None = None
    n_threads: int = 1
    role: Role = field(default_factory=Alone)
    phase: Phase = field(default="starting", init=False)
    is_durable: bool = field(init=False)
    stop_error: str | None = field(default=None, init=False)
    last_check: Check | None = field(default=None, init=False)
    _row_cost: Cost = field(default_factory=lambda: Cost(50e-6), init=False)
    _keeping: list[asyncio.Task[None]] = field(default_factory=list, init=False)
    _moved: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        self.is_durable = self.storage.journal.is_durable

    # --- life

    def start(self) -> None:
        """Begin in the background to make the service ready; call it on the event loop."""
        self.threads.begin(self.writer.run(), endless=True)
        self.threads.begin(self.database.run(), endless=True)
        if not self.state.following:
            self._begin_to_keep()
        self.threads.begin(self._make_ready())
        self.role.start(self)

    async def lead(self) -> None:
        """Take changes from now on; everything that the node has changed that led before was taken in."""
        state, since_ms = self.state, self.clock.now_ms() - round(self.limits.readd_grace * 1000)
        signing_id = self.ledger.signing_id

        def read(database: LedgerDatabase) -> tuple[Any, ...]:
            erased = database.recently_erased(since_ms) if self.limits.readd_grace else []
            is_introduced = database.introduces(signing_id)
            return database.head(), database.highest_ms() or 0, is_introduced, erased, database.pending()

        head, highest_ms, is_introduced, erased, pending = await self.database.read(read)
        self.clock.witness(highest_ms)
        self.ledger.resume(head, highest_ms, is_introduced=is_introduced)
        self.tombstones.replace([(known, self.clock.steady_since(at_ms)) for known, at_ms in erased])
        known = state.pending
        state.pending = {one.receipt_id: inherited(one, self.clock) for one in pending}
        for name, one in state.pending.items():
            one.period = known[name].period if name in known else state.period
        state.following, state.leader_url = False, None
        self._begin_to_keep()
        self._keep_at(self._compare_log())
        self._keep_at(self.retention.run())

    async def follow(self) -> None:
        """Take no changes any more, until `lead` is called: another node does, as `state.following` says already.

        Returns when nothing is under way that only a node that leads may do.
        """
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        self._keeping.clear()
        await self.deliveries.pause()
        await self.erasures.abandon()
        await self.writer.drain()  # what waits is told that another node takes it
        await self.checkpointer.settle()
        async with self.lock.mutation(refusable=False):
            self.state.hindered = None

    def drain(self) -> None:
        """Say no to readiness from now on; requests are answered as before."""
        self.phase = "stopping"
        self.jobs.drain()

    async def stop(self) -> None:
        """Finish what runs, write a snapshot when something changed since the last, and release the directory.

        What cannot be written is told in `stop_error`: nothing can be done about it any more. What was acknowledged
        is in the journal all the same.
        """
        state = self.state
        self.drain()
        try:
            await self.jobs.close()
            await self.deliveries.stop()
            await self.writer.drain()
            if self._needs_snapshot:
                await self.checkpointer.write_snapshot()
                log.info("snapshot written at model version %d", state.version)
            await self.role.resign()
            now = self.clock.now_ms()
            await self.database.read(lambda database: database.witness(now))
            await self.database.flush()
        except (ServiceError, JournalError):
            self.stop_error = "the last snapshot could not be written; what was acknowledged is in the journal"
        finally:
            await self.threads.settle()
            self.role.close()
            self.publisher.close()
            self.threads.close()
            self.close()

    @property
    def _needs_snapshot(self) -> bool:
        """Whether a snapshot is written at the end; where other nodes go on, they must not wait for it."""
        state = self.state
        if state.failed or state.following or self.role.is_shared:
            return False
        return bool(state.pending) or not self.storage.is_current(state.seq)

    def close(self) -> None:
        """Let go of the files, without a last snapshot."""
        self.database.close()
        self.storage.close()
        set_default(1)

    # --- among other nodes

    def moved(self) -> None:
        """Tell who waits that changes of the node that leads were taken in."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def reach(self, version: int) -> None:
        """Wait for a moment until the model has a version, where it follows that of another node."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_REACHING):
                while self.state.following and self.state.version < version:
                    await self._moved.wait()

    # --- reading

    def predict_now(self, rows: Sized) -> Predicted | None:
        """Predict for some rows if that is short; None when it takes a thread: see `predict`.

        Resolves the tags it meets unless a thread is reading the model.

        Parameters
        ----------
        rows
            Lists of cells in feature order, a matrix, or columns: what models take as X.
        """
        self._require_started()
        end_stage("parse")
        if not self._row_cost.is_short(len(rows)):
            return None
        state = self.state
        model, n_tags = state.model, 0
        if self.idle.tagged.is_set():  # there may be some
            self.lock.own()
            n_tags = model.n_lazy_tags_
            if n_tags:
                self.idle.n_queries += 1
            else:
                self.idle.tagged.clear()
        if len(rows) == 1:  # always short, and no measure of a row among many
            result = model.query(rows, frozen=self.lock.frozen)
        else:
            started = time.perf_counter()
            result = model.query(rows, frozen=self.lock.frozen)
            self._row_cost.observe(len(rows), time.perf_counter() - started)
        if n_tags:
            state.n_resolved += n_tags - model.n_lazy_tags_
        end_stage("model")
        return Predicted(result, state.version)

    async def predict(self, rows: Sized, *, refusable: bool = True) -> Predicted:
        """Predict for some rows.

        Parameters
        ----------
        rows
            At least one.
        refusable
            Whether a full queue raises `BusyError`; false for what has been begun to be answered.
        """
        predicted = self.predict_now(rows)
        return predicted if predicted is not None else await self._predict_long(rows, refusable)

    def get(self, sample_id: str) -> tuple[HeldSample, int]:
        """Return one sample as held, and the model version.

        Raises
        ------
        NotHeldError
            When it is not held.
        """
        self._require_started()
        store = self.state.model.samples_
        try:
            found = store.restricted.get(sample_id) if store.restricted.holds(sample_id) else store.get(sample_id)
        except UnknownIdError:
            raise NotHeldError from None
        return found, self.state.version

    def find(self, ids: Sequence[str]) -> Page:
        """Return the samples held of some ids, in their order, as a page without a next one.

        Raises
        ------
        NotHeldError
            When none of them is held.
        """
        self._require_started()
        held: list[HeldSample] = []
        for name in dict.fromkeys(ids):
            with suppress(NotHeldError):
                held.append(self.get(name)[0])
        if not held:
            raise NotHeldError
        return Page(held, None, self.state.epoch, self.state.version)

    def page(self, *, subject: str | None, after: tuple[int, int] | None, limit: int, openings: bool = False) -> Page:
        """Return a page of the samples held, or of one subject's, in the order of their slots.

        A sample keeps its slot as long as it is held, so that one that stays is on exactly one page whatever else comes
        and goes between the requests. Restricted samples come last; one that is restricted or released meanwhile may be
        on two pages, or on none.

        Parameters
        ----------
        subject
            Whose samples; None for all.
        after
            Epoch and slot where the page before ended; None for the first page.
        limit
            Most samples on the page.
        openings
            Whether the page has what hashes of samples are made with.

        Raises
        ------
        StaleCursorError
            When a restore replaced the list meanwhile, or the subject was restricted or released.
        NotHeldError
            When nothing is held of the subject.
        """
        self._require_started()
        if after is not None and after[0] != self.state.epoch:
            raise StaleCursorError
        store, restricted = self.state.model.samples_, self.state.model.samples_.restricted
        place = -1 if after is None else after[1]
        if subject is None:
            slots, others = store.slots(), restricted.samples.slots() if len(restricted) else _NO_SLOTS
        else:
            ids, restricted_ids = store.ids_of_subject(subject), restricted.ids_of_subject(subject)
            if not (ids or restricted_ids) and after is None:
                raise NotHeldError
            if (restricted_ids and 0 <= place < _RESTRICTED_FROM) or (ids and place >= _RESTRICTED_FROM):
                raise StaleCursorError
            slots = np.sort(store.find(ids))
            others = np.sort(restricted.samples.find(restricted_ids)) if restricted_ids else _NO_SLOTS
        places = np.concatenate([slots, others + _RESTRICTED_FROM])
        first = int(np.searchsorted(places, place, side="right"))
        chosen = places[first : first + limit].tolist()
        more = first + len(chosen) < len(places)
        samples = [
            store.get(store.id_of(slot))
            if slot < _RESTRICTED_FROM
            else restricted.get(restricted.samples.id_of(slot - _RESTRICTED_FROM))
            for slot in chosen
        ]
        page = Page(samples, chosen[-1] if more else None, self.state.epoch, self.state.version)
        if not openings:
            return page
        nonces = [store.nonces.get(slot) if slot < _RESTRICTED_FROM else None for slot in chosen]
        return replace(page, nonces=nonces, positions_key=self.sample_set.key.secret)

    def describe(self) -> dict[str, Any]:
        """Return what is known of the model as a whole; `ModelAnswer` documents the fields."""
        self._require_started()
        state, model, schema = self.state, self.state.model, self.state.model.schema_
        return {
            "kind": model.kind,
            "guarantee": model.guarantee,
            "task": str(model.task),
            # A seed that was drawn rather than given is part of what decides the predictions.
            "parameters": {**model.parameters_of_model(), "random_state": model.seed_},
            "features": [{"name": c.name, "type": str(c.type), "dtype": str(c.dtype)} for c in schema.columns],
            "label": {"name": schema.label_name, "type": str(schema.label_type)},
            "classes": model.samples_.classes.classes_array().tolist() if model.task == Task.CLASSIFICATION else None,
            "n_samples": model.n_samples_,
            "n_restricted": len(model.samples_.restricted),
            "model_version": state.version,
            "lazy_tags": model.n_lazy_tags_,
            "mutations_since_scrub": None if model.guarantee == "exact" else model.n_mutations_since_scrub_,
            "memory_bytes": model.nbytes_,
            "durable": self.is_durable,
            "pending_erasures": len(state.pending),
            "overdue_erasures": self.erasures.deadline.n_overdue(),
            "expiry_paused": self.retention.paused,
            "changes": "accepted" if state.stopped is None else "stopped",
            "changes_stopped": state.stopped,
        }

    @property
    def newest_snapshot(self) -> Snapshot | None:
        """What is known of the newest snapshot; None when there is none."""
        return None if self.storage.is_ephemeral else self.storage.snapshots.newest_or_none

    def measure(self) -> Measurements:
        """Return what the service can be measured by now; short, and answered in every phase."""
        state, model, journal, deadline = self.state, self.state.model, self.storage.journal, self.erasures.deadline
        is_usable = model.is_usable
        newest = self.newest_snapshot
        counts, now = self.deliveries.counts, self.clock.now_ms()
        return Measurements(
            phase=self.phase,
            kind=model.kind,
            task=str(model.task),
            guarantee=model.guarantee,
            model_version=state.version,
            n_samples=model.n_samples_ if is_usable else 0,
            model_bytes=model.nbytes_ if is_usable else 0,
            lazy_tags=model.n_lazy_tags_ if is_usable else 0,
            resolved_tags=state.n_resolved,
            is_ready=self.phase == "ready" and is_usable,
            is_durable=self.is_durable,
            is_expiry_paused=self.retention.paused is not None,
            stopped=state.stopped,
            waiting=self.writer.n_waiting + self.lock.waiting,
            most_waiting=self.limits.max_queue,
            journal_records=journal.n_records,
            journal_bytes=journal.n_bytes,
            journal_oldest_at=journal.oldest_at,
            commits=self.writer.commits.copy(),
            snapshot_at=None if newest is None else newest.created_at.timestamp(),
            snapshot_lag=0 if newest is None or self.storage.is_current(state.seq) else state.seq - newest.facts.seq,
            ledger_lag=self.database.n_due,
            pending_erasures=len(state.pending),
            overdue_erasures=deadline.n_overdue(),
            oldest_erasure=deadline.longest_wait(),
            erasure_deadline=deadline.seconds,
            scrubbed_at=self.checkpointer.scrubbed_at,
            check=self.last_check,
            deliveries_due=counts.due,
            deliveries_dead=counts.dead,
            deliveries_oldest=0.0 if counts.oldest_ms is None else max(0, now - counts.oldest_ms) / 1000,
            deliveries_arrived=self.deliveries.n_delivered,
            deliveries_failed=self.deliveries.n_failed,
            standing=self.role.measure(self),
        )

    # --- changing

    async def add(self, samples: NewSamples, key: IdempotencyKey | None = None) -> Added:
        """Add samples; see `AddSamples`. What was answered before under the same key is answered again."""
        self.state.require_leading()
        if key is not None and key.earlier is not None:
            added = _added_before(samples, key, key.earlier)
            restricted = self.state.model.samples_.restricted
            if restricted.marks:
                require_unrestricted(restricted, added.ids)
            return added
        self._require_changeable()
        return await self.writer.execute(AddSamples(samples, key))

    async def replace(
        self, asked: Replacement, ref: str | None = None, key: IdempotencyKey | None = None
    ) -> Receipt | NothingHeld:
        """Rectify one held sample; see `ReplaceSample`. What was answered before under the same key is so again."""
        self._require_changeable()
        if key is not None and key.earlier is not None and key.earlier.receipt is not None:
            return await self.receipts.get(key.earlier.receipt)
        return await self.writer.execute(ReplaceSample(asked, ref, key))

    async def delete(
        self,
        *,
        ids: Sequence[str] | None = None,
        subjects: Sequence[str] | None = None,
        ref: str | None = None,
        key: IdempotencyKey | None = None,
        caller: str = "",
    ) -> Receipt | NothingHeld:
        """Delete what is held under ids, or of subjects; see `delete_listing`."""
        return (await self.delete_listing(ids=ids, subjects=subjects, ref=ref, key=key, caller=caller)).outcome

    async def delete_listing(
        self,
        *,
        ids: Sequence[str] | None = None,
        subjects: Sequence[str] | None = None,
        ref: str | None = None,
        key: IdempotencyKey | None = None,
        caller: str = "",
    ) -> Deleted:
        """Delete what is held under ids, or of subjects, and say of which of them something was held.

        Names that are repeated count once, absent ones are counted. When nothing of it is held, the receipt of the last
        erasure of exactly these targets is returned, if there is one. A full queue does not refuse it. `caller` is the
        id of the caller's key; see `EmptyErasures`.
        """
        self._require_changeable()
        by: By = "subjects" if ids is None else "ids"
        sent = (subjects or ()) if ids is None else ids
        positions = {name: position for position, name in reversed(list(enumerate(sent)))}
        names = list(dict.fromkeys(sent))
        earlier: Receipt | None = None
        if key is not None and key.earlier is not None:
            if key.earlier.receipt is None:
                version = key.earlier.model_version
                return Deleted(NothingHeld(ref, self.state.model.guarantee, by, len(names), version), [])
            earlier = await self.receipts.get(key.earlier.receipt)
            counts = await self.receipts.found(earlier.id, names, by)
            return Deleted(earlier, sorted((positions[name], n) for name, n in counts.items()))
        store = self.state.model.samples_
        if key is None and not any(held_of(store, name) if by == "subjects" else store.holding(name) for name in names):
            earlier = await self.receipts.last_of(names, by)
            if earlier is not None:
                return Deleted(earlier, [])
        command = DeleteSamples(names, by, ref, key, caller=caller)
        outcome = await self.writer.execute(command)
        return Deleted(outcome, sorted((positions[name], n) for name, n in command.counts.items()))

    async def restrict(
        self,
        subjects: Sequence[str],
        *,
        keep: bool = False,
        ref: str | None = None,
        key: IdempotencyKey | None = None,
    ) -> Restricted:
        """Keep all samples of some subjects, and learn from them no longer; see `RestrictSubjects`.

        What was answered before under the same key is answered again. A full queue does not refuse it.
        """
        self._require_changeable()
        if key is not None and key.earlier is not None:
            return await self._restricted_before(key, key.earlier)
        names = list(dict.fromkeys(subjects))
        return await self.writer.execute(RestrictSubjects(names, ref, key, keep=keep))

    async def release(
        self, subjects: Sequence[str], *, ref: str | None = None, key: IdempotencyKey | None = None
    ) -> Restricted:
        """Learn from the samples of restricted subjects again; what was answered before under the same key is so again.

        Samples whose time is over are erased first, unless expiry is paused: they are not learned from again.

        Raises
        ------
        CapacityError
            When the model cannot hold so many samples; nothing has changed.
        """
        self._require_changeable()
        if key is not None and key.earlier is not None:
            return await self._restricted_before(key, key.earlier)
        names = list(dict.fromkeys(subjects))
        n_expired = await self.retention.erase_restricted(names)
        return await self.writer.execute(ReleaseSubjects(names, ref, key, n_expired=n_expired))

    async def retain(
        self,
        subjects: Sequence[str],
        seconds: int | None,
        *,
        ref: str | None = None,
        key: IdempotencyKey | None = None,
    ) -> Restricted:
        """Say how long samples of subjects are kept from their addition; see `RetainSubjects`.

        What was answered before under the same key is answered again.
        """
        self._require_changeable()
        if key is not None and key.earlier is not None:
            return await self._restricted_before(key, key.earlier)
        return await self.writer.execute(RetainSubjects(list(dict.fromkeys(subjects)), seconds, ref, key))

    async def snapshot(self) -> Snapshot:
        """Write a snapshot of the model as it is when its turn comes."""
        self._require_kept()
        return await self.threads.finish(self.checkpointer.write_snapshot())

    async def export(self) -> Snapshot:
        """Return the newest snapshot to be handed out, after that has been noted in the ledger."""
        self._require_kept()
        return await self.threads.finish(self.checkpointer.export())

    async def restore(self, path: Path) -> dict[str, Any]:
        """Replace the model by that of a snapshot file, less what was erased, rectified or expired since.

        Raises
        ------
        FileError
            When the file is not a sound model file; nothing has changed.
        """
        self._require_changeable()
        return await self.threads.finish(self.rebuilder.restore(path))

    async def confirm_expiry(self) -> None:
        """Let expiry go on that has been paused; the ledger notes it first.

        Raises
        ------
        JournalError
            When that cannot be noted; expiry stays paused.
        """
        self._require_changeable()
        await self.writer.note(partial(self.ledger.event, "expiry-confirmed", {}), self.retention.confirm)

    async def remove_node(self, name: str) -> None:
        """Forget a node that does not come back; the ledger notes it first.

        Erasures do not wait for an expelled node. Whether its disk still holds what they have erased is not known here.

        Parameters
        ----------
        name
            Of the node.

        Raises
        ------
        NotLeaderError
            When another node leads.
        NoNodeError
            When there is none of this name.
        NodeAliveError
            When it leads, or is not expelled.
        JournalError
            When that cannot be noted; the node stays.
        """
        self._require_changeable()
        await self.threads.finish(self._remove_node(name))

    async def _remove_node(self, name: str) -> None:
        await self.role.require_expelled(name)
        await self.writer.note(partial(self.ledger.event, NODE_REMOVED, {"node": name}))
        await self.role.remove(name)

    async def tell_state(self) -> tuple[Entry, bool]:
        """Return the ledger's entry of what the model is now, and whether it is a new one.

        Raises
        ------
        SupersededError
            When samples were erased meanwhile.
        """
        self._require_changeable()
        return await self.threads.finish(self.states.write_now())

    async def tree_digests(self, version: int, digest: str) -> list[str] | None:
        """Return the digests of the trees of a state; see `StateEntries.tree_digests`."""
        self._require_started()
        return await self.threads.finish(self.states.tree_digests(version, digest))

    async def prove_absence(self, by: By, name: str) -> tuple[AbsenceProof, str | None]:
        """Prove that a name is not in the set of samples, and that the log tells of this set.

        The second proof is None where nothing can be written or signed, or changes come too fast.

        Raises
        ------
        StillHeldError
            When the name is in the set.
        """
        self.state.require_leading()
        for _ in range(_ATTEMPTS):
            found = await self.sample_set.prove_absence(by, name)
            with suppress(JournalError, NotLoggedError, StorageError):
                index = await self.threads.finish(self.states.tell_set(found.state))
                if index is not None:
                    return found, await self.publisher.entry_proof(index)
        return found, None

    # --- jobs

    def verify_job(self) -> Job:
        """Begin to compare the model with a fresh fit."""
        self._require_started()
        return self.jobs.start("verify", self._verify)

    def scrub_job(self) -> Job:
        """Begin to erase from all files what was unlearned."""
        self._require_kept()
        return self.jobs.start("scrub", self._scrub)

    def fit_job(
        self, kind: str, parameters: dict[str, Any], key: IdempotencyKey | None = None, *, scores: bool = True
    ) -> Job:
        """Begin to fit anew, with other parameters, on the samples held; or return the job that the key began.

        Its result has scores before and after unless `scores` is false.
        """
        self._require_changeable()
        work = partial(self.rebuilder.fit, kind, parameters, key=key)
        if scores:
            work = partial(self.scorer.around, work)
        if key is None:
            return self.jobs.start("fit", work)
        job_id = key.as_uuid()
        if key.earlier is None:
            return self.jobs.start("fit", work, job_id, key.body)
        result = {"model_version": key.earlier.model_version, "n_samples": key.earlier.n_samples}
        return self.jobs.get(job_id) or Job(job_id, "fit", "succeeded", 1.0, result)

    # --- how work gets done

    async def _restricted_before(self, key: IdempotencyKey, earlier: IdempotencyRecord) -> Restricted:
        """Return what was answered to the same request before: the ledger tells it."""
        (entry,) = await self.receipts.page(((earlier.first_id or 0) ^ key.mask) - 1, 1)
        return Restricted.of_entry(original_of(entry), earlier.n_samples)

    async def _verify(self, report: Report) -> dict[str, Any]:
        result = await self.rebuilder.verify(report)
        self.last_check = Check(self.clock.latest_ms() / 1000, result["ok"])
        return result

    async def _scrub(self, report: Report) -> dict[str, Any]:
        n_pending = len(self.state.pending)
        snapshot = await self.threads.finish(self.checkpointer.write_snapshot(erase=True, report=report))
        await self.erasures.wait()
        return {"snapshot": snapshot.id, "model_version": snapshot.model_version, "erasures": n_pending}

    async def _predict_long(self, rows: Sized, refusable: bool) -> Predicted:
        def predict(model: Model) -> tuple[QueryResult, float]:
            started = time.perf_counter()
            result = model.query(rows, frozen=True)
            return result, time.perf_counter() - started

        (result, seconds), version = await self.reader.read(predict, self.threads.read, refusable=refusable)
        self._row_cost.observe(len(rows), seconds)
        end_stage("model")
        return Predicted(result, version)

    async def _make_ready(self) -> None:
        try:
            # Let go of at once: it knows the first model, which may be replaced.
            warm_up, self.warm_up = self.warm_up, None
            if warm_up is not None:
                await self.threads.save(warm_up)
            del warm_up
        except Exception as error:
            log.error("warming up failed (%s): the first requests will be slow", type(error).__name__)
        self.warm_up = None  # it holds the model of the start, which another one may replace
        set_default(max(1, self.n_threads - 1))
        self.state.model.take_threads()
        if self.idle_resolve:
            self.threads.begin(self.idle.run(), endless=True)
        self.idle.tagged.set()
        self.threads.begin(self.sample_set.run(), endless=True)
        if not self.state.following:
            await self._compare_log()
        if not self.storage.is_unchecked:
            self._begin_to_serve()
            return
        # A change needs what it is made to: it waits until the first snapshot is read back, and predictions do not.
        async with self.lock.mutation(refusable=False):
            self._begin_to_serve()
            await self._check_first_snapshot()

    def _begin_to_serve(self) -> None:
        if self.phase == "starting":
            self.phase = "ready"
            if not self.state.following:
                self._keep_at(self.retention.run())

    def _begin_to_keep(self) -> None:
        """Begin what keeps the disk in order and tells others: only the node that leads does that."""
        if not self.storage.is_ephemeral:
            self._keep_at(self.checkpointer.run())
        self.deliveries.start()
        self._keep_at(self.subject_requests.run())

    def _keep_at(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin work that ends when another node leads."""
        self._keeping.append(self.threads.begin(work, endless=True))

    async def _check_first_snapshot(self) -> None:
        try:
            await self.threads.save(self.storage.check)
        except Exception as error:  # whatever it was: the snapshot is not known to be sound
            rule = str(error) if isinstance(error, StorageError) else type(error).__name__
            log.error("the first snapshot could not be checked (%s): nothing is changed until a restart", rule)
            self.state.halt(StopReason.DISK_FAILED)

    async def _compare_log(self) -> None:
        """Ask witnesses what they have seen of the log, before anything is changed; then begin to publish it."""
        try:
            await self.publisher.compare()
        except (ServiceError, JournalError) as error:
            log.error("the log could not be compared with its witnesses (%s)", type(error).__name__)
        self._keep_at(self.publisher.run())

    def _require_started(self) -> None:
        if self.phase == "starting":
            raise UnavailableError("starting")
        if self.state.is_withdrawn:
            raise UnavailableError("withdrawn")

    def _require_changeable(self) -> None:
        self._require_started()
        self.state.require_changeable()

    def _require_kept(self) -> None:
        self._require_changeable()
        if self.storage.is_ephemeral:
            raise EphemeralError


def _added_before(samples: NewSamples, key: IdempotencyKey, earlier: IdempotencyRecord) -> Added:
    """Return the answer to samples that were added by the same request before."""
    first = 0 if earlier.first_id is None else earlier.first_id ^ key.mask
    ids = []
    for name in samples.ids:
        if name is None:
            ids.append(str(first))
            first += 1
        else:
            ids.append(name)
    return Added(ids, earlier.n_new, earlier.n_samples, earlier.model_version)
