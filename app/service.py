"""The one writer: every request that reads or changes the model goes through `ModelService`. No HTTP here.

Short work runs on the event loop as it comes, long work in threads; `turns` says who waits for whom. A long mutation
changes a copy, which then replaces the live model in one step, so that predictions go on meanwhile and see all of it
or nothing.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from app.changes import end_of_ids
from app.costs import Cost
from app.erased import ErasedIds
from app.errors import EphemeralError, ServiceError, StaleCursorError, StorageError, UnavailableError
from app.idle import IdleResolver, TagSlices
from app.model import ServedModel
from app.mutations import Change, Done, added, addition, deletion, deletion_of_subjects, replacement
from app.outcomes import Added, Description, Keep, NewSamples, Page, Predicted, Receipt, Restored, Row
from app.store.keeper import Keeper
from app.store.reservations import Marks
from app.store.snapshots import Snapshot
from app.turns import Turns
from app.views import describe, one_sample, page_of_samples
from app.workers import Workers
from core.errors import OubliError
from core.samples import HeldSample
from core.schema import Schema

log = logging.getLogger("oubli.service")

LOOP_BUDGET = 0.010  # seconds of work that may run on the event loop in one piece
TAG_SLICE = 0.002  # seconds of one piece of the work before a snapshot; requests are answered in between

State = Literal["starting", "ready", "stopping"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """What the service refuses to exceed.

    `max_queue` requests wait at most; a page lists at most `page_size_max` samples.
    """

    max_queue: int = 1024
    page_size_max: int = 1000


class ModelService:
    """One model, its version, and everything that may be done with it.

    Parameters
    ----------
    model
        Trained, started empty, or recovered. It belongs to the service from now on.
    keeper
        What keeps it on disk, or keeps nothing.
    model_version
        Version of the samples that the model holds.
    epoch
        Names the order in which samples are listed, as it was written with the model; None for a new model.
    warm_up
        Compiles what the first requests would otherwise wait for; called in a thread by `start`.
    """

    def __init__(
        self,
        model: ServedModel,
        keeper: Keeper,
        *,
        model_version: int,
        epoch: int | None = None,
        limits: Limits | None = None,
        idle_resolve: bool = True,
        warm_up: Callable[[], object] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.stop_error: str | None = None
        self._model = model
        self._keeper = keeper
        self._version = model_version
        self._epoch = new_epoch() if epoch is None else epoch
        self._state: State = "starting"
        self._failed = False
        self._warm_up = warm_up
        self._turns = Turns(self.limits.max_queue)
        self._idle = IdleResolver(lambda: self._model, self._turns)
        self._idle_resolve = idle_resolve
        self._erased = ErasedIds()
        self._row_cost = Cost(50e-6, LOOP_BUDGET)
        self._add_cost = Cost(200e-6, LOOP_BUDGET)
        self._delete_cost = Cost(200e-6, LOOP_BUDGET)
        self._workers = Workers()

    # --- life

    @property
    def state(self) -> State:
        """Whether the service is starting, ready or stopping."""
        return self._state

    @property
    def failed(self) -> bool:
        """Whether an error left the model in doubt, so that it does not change any more."""
        return self._failed

    @property
    def model_version(self) -> int:
        """Version of the samples held."""
        return self._version

    def start(self) -> None:
        """Begin in the background to make the service ready; call it on the event loop."""
        self._workers.begin(self._make_ready())

    def drain(self) -> None:
        """Say no to readiness from now on; requests are answered as before."""
        self._state = "stopping"

    async def stop(self) -> None:
        """Finish what runs, write a snapshot when something changed since the last, and release the directory.

        What cannot be written is told in `stop_error`: nothing can be done about it any more.
        """
        self.drain()
        await self._workers.settle()
        try:
            async with self._turns.mutation(refusable=False):
                if self._keeper.is_current(self._version):
                    return
                if self._failed:
                    self.stop_error = "an error left the model in doubt: its last changes were not written to the disk"
                    return
                await self._write_snapshot()
                log.info("snapshot written at model version %d", self._version)
        except StorageError:
            self.stop_error = "the last snapshot could not be written: changes since the one before are lost"
        finally:
            self._workers.close()
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
        if len(rows) == 1:  # always short, and no measure of a row among many
            return Predicted(self._model.query(rows, frozen=self._turns.frozen), self._version)
        started = time.perf_counter()
        result = self._model.query(rows, frozen=self._turns.frozen)
        self._row_cost.observe(len(rows), time.perf_counter() - started)
        return Predicted(result, self._version)

    async def predict(self, rows: list[Row]) -> Predicted:
        """Predict for some rows."""
        predicted = self.predict_now(rows)
        return predicted if predicted is not None else await self._workers.finish(self._predict_long(rows))

    def get(self, sample_id: str) -> tuple[HeldSample, int]:
        """Return one sample as held, and the model version; see `views.one_sample`."""
        self._require_started()
        return one_sample(self._model, sample_id), self._version

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
        if after is not None and after[0] != self._epoch:
            raise StaleCursorError
        return page_of_samples(
            self._model,
            subject=subject,
            after_slot=None if after is None else after[1],
            limit=limit,
            epoch=self._epoch,
            model_version=self._version,
        )

    def describe(self) -> Description:
        """Return what is known of the model as a whole."""
        self._require_started()
        return describe(self._model, self._version)

    @property
    def schema(self) -> Schema:
        """The schema of the model, for parsing."""
        return self._model.schema_

    @property
    def newest_snapshot(self) -> Snapshot:
        """The newest snapshot; raises `NoSnapshotError` or `EphemeralError`."""
        return self._keeper.newest

    @property
    def upload_directory(self) -> Path | None:
        """Where an uploaded file may be kept until it is restored; None: anywhere temporary."""
        return self._keeper.path

    # --- changing

    def add_now(self, samples: NewSamples) -> Added | None:
        """Add samples if that can be done at once; None, and nothing changed, when it has to wait: see `add`."""
        done = self._mutate_now(addition(samples, self._keeper.id_floor, self._add_cost))
        return None if done is None else added(done)

    async def add(self, samples: NewSamples) -> Added:
        """Add samples; see `changes.add_samples`."""
        return added(await self._mutate(addition(samples, self._keeper.id_floor, self._add_cost)))

    async def replace(
        self, sample_id: str, row: Row, label: object, subject: str | Keep | None, ref: str | None = None
    ) -> Receipt:
        """Rectify one held sample; see `changes.replace_sample`."""
        received_at = datetime.now(UTC)
        done = await self._mutate(replacement(sample_id, row, label, subject, self._add_cost))
        relearned, _ = done.outcome
        return self._receipt(ref, "rectification", 1, int(relearned), 0, done.model_version, received_at)

    def delete_now(self, sample_id: str) -> Receipt | None:
        """Delete one sample if that can be done at once; None, and nothing changed, when it has to wait."""
        received_at = datetime.now(UTC)
        done = self._mutate_now(deletion([sample_id], self._delete_cost))
        return None if done is None else self._deleted(done, None, 1, received_at)

    async def delete(
        self, *, ids: Sequence[str] | None = None, subjects: Sequence[str] | None = None, ref: str | None = None
    ) -> Receipt:
        """Delete what is held under ids, or of subjects; names that are repeated count once, absent ones are counted.

        A full queue does not refuse it.
        """
        received_at = datetime.now(UTC)
        if ids is not None:
            names = list(dict.fromkeys(ids))
            change = deletion(names, self._delete_cost)
        else:
            self._require_changeable()
            names = list(dict.fromkeys(subjects or ()))
            change = deletion_of_subjects(names, self._model, self._delete_cost)
        return self._deleted(await self._mutate(change), ref, len(names), received_at)

    def _deleted(
        self, done: Done[tuple[list[str], int]], ref: str | None, n_named: int, received_at: datetime
    ) -> Receipt:
        deleted, absent = done.outcome
        return self._receipt(ref, "deletion", n_named, len(deleted), absent, done.model_version, received_at)

    async def snapshot(self) -> Snapshot:
        """Write a snapshot of the model as it is when its turn comes."""
        self._require_changeable()
        if self._keeper.is_ephemeral:
            raise EphemeralError
        return await self._workers.finish(self._snapshot())

    async def restore(self, path: Path) -> Restored:
        """Replace the model by that of a snapshot file, less what was erased or rectified since.

        Raises
        ------
        FileError
            When the file is not a sound model file; nothing has changed.
        """
        self._require_changeable()
        return await self._workers.finish(self._restore(path))

    # --- how work gets done

    def _mutate_now(self, change: Change[T]) -> Done[T] | None:
        """Run a short change if its turn is now and nothing must be written before; None when it has to wait."""
        self._require_changeable()
        if not (change.cost.is_short(change.n_items) and self._turns.free and self._is_reserved(change.new_ids)):
            return None
        return self._run(change)

    async def _mutate(self, change: Change[T]) -> Done[T]:
        """Run a change in its turn, on the loop or aside."""
        done = self._mutate_now(change)
        if done is not None:
            return done
        if not change.cost.is_short(change.n_items):
            return await self._workers.finish(self._mutate_aside(change))
        async with self._turns.mutation(refusable=change.refusable):
            self._require_changeable()
            await self._reserve(change.new_ids)
            await self._turns.exclusive()
            return self._run(change)

    def _run(self, change: Change[T]) -> Done[T]:
        """Change the live model here and now; it must be ours alone."""
        started = time.perf_counter()
        outcome = self._apply(change.apply)
        change.cost.observe(change.n_items, time.perf_counter() - started)
        return self._commit(change, outcome)

    def _commit(self, change: Change[T], outcome: T) -> Done[T]:
        """Count the version up if anything has changed, and note what was erased."""
        if change.changed(outcome):
            self._version += 1
            self._idle.model_changed()
            if change.erased is not None:
                ids, kind = change.erased(outcome)
                self._erased.add(ids, self._version, kind)
        return Done(outcome, self._model.n_samples_, self._version)

    def _apply(self, change: Callable[[ServedModel], T]) -> T:
        try:
            return change(self._model)
        except (OubliError, ServiceError):
            raise  # refused; nothing has changed
        except BaseException:
            # Nobody knows how far it got: a snapshot or a further change could make it worse.
            self._failed = True
            log.error("a mutation failed inside the model: no further mutation is accepted until a restart")
            raise

    async def _mutate_aside(self, change: Change[T]) -> Done[T]:
        async with self._turns.mutation(refusable=change.refusable):
            self._require_changeable()
            await self._reserve(change.new_ids)

            with self._turns.reading():
                copy = await self._workers.write(self._model.copy)

            def work() -> T:
                outcome = change.apply(copy)
                # Resolved here, or the first predictions would rebuild half the forest on the event loop.
                copy.resolve()
                return outcome

            outcome = await self._workers.write(work)
            self._model = copy
            return self._commit(change, outcome)

    async def _predict_long(self, rows: list[Row]) -> Predicted:
        async with self._turns.long_read():
            # A model without tags is only read: nobody's working space is written, so short predictions go on beside.
            slices = TagSlices(TAG_SLICE)
            await self._turns.pass_turnstile()
            while self._model.n_lazy_tags_:
                await self._turns.unread()
                slices.step(self._model)
                await asyncio.sleep(0)
                await self._turns.pass_turnstile()
            model, version = self._model, self._version
            with self._turns.reading():
                started = time.perf_counter()
                result = await self._workers.read(partial(model.query, rows, frozen=True))
                self._row_cost.observe(len(rows), time.perf_counter() - started)
            return Predicted(result, version)

    async def _snapshot(self) -> Snapshot:
        async with self._turns.mutation():
            self._require_changeable()
            return await self._write_snapshot()

    async def _write_snapshot(self) -> Snapshot:
        """Write the model in its turn: tags are resolved in slices on the loop, then a thread reads and writes."""
        slices = TagSlices(TAG_SLICE)
        await self._turns.exclusive()
        while self._model.n_lazy_tags_ and slices.step(self._model):
            await asyncio.sleep(0)
            await self._turns.exclusive()
        with self._turns.reading():
            return await self._workers.write(partial(self._keeper.write, self._model, self._version, self._epoch))

    async def _restore(self, path: Path) -> Restored:
        async with self._turns.mutation():
            self._require_changeable()
            version, epoch = self._version + 1, new_epoch()
            await self._reserve(())
            with self._turns.reading():
                model, restored = await self._workers.write(
                    partial(self._keeper.restore, path, self._model, self._erased, version, epoch)
                )
            self._model, self._version, self._epoch = model, version, epoch
            self._idle.model_changed()
            return restored

    def _needed_marks(self, new_ids: Sequence[str | None]) -> Marks:
        """What a change may give out: the next version, and the ids to be generated."""
        next_id = end_of_ids(new_ids, self._first_free_id()) if None in new_ids else 0
        return Marks(next_id, self._version + 1)

    def _is_reserved(self, new_ids: Sequence[str | None]) -> bool:
        return self._keeper.reservations.covers(self._needed_marks(new_ids))

    async def _reserve(self, new_ids: Sequence[str | None]) -> None:
        """Make sure that the next version and the ids to be generated can be given out."""
        needed = self._needed_marks(new_ids)
        if not self._keeper.reservations.covers(needed):
            await self._workers.write(partial(self._keeper.reserve, needed))

    def _first_free_id(self) -> int:
        return max(self._model.samples_.next_id, self._keeper.id_floor)

    async def _make_ready(self) -> None:
        try:
            if self._warm_up is not None:
                await self._workers.write(self._warm_up)
        except Exception as error:
            log.error("warming up failed (%s): the first requests will be slow", type(error).__name__)
        if self._idle_resolve:
            self._workers.begin(self._idle.run(), endless=True)
        self._idle.model_changed()
        if self._state == "starting":
            self._state = "ready"

    def _receipt(
        self,
        ref: str | None,
        kind: Literal["deletion", "rectification"],
        requested: int,
        unlearned: int,
        absent: int,
        model_version: int,
        received_at: datetime,
    ) -> Receipt:
        return Receipt(
            ref=ref,
            kind=kind,
            guarantee=self._model.guarantee,
            requested=requested,
            unlearned=unlearned,
            absent=absent,
            model_version=model_version,
            received_at=received_at,
            unlearned_at=datetime.now(UTC),
        )

    def _require_started(self) -> None:
        if self._state == "starting":
            raise UnavailableError("starting")

    def _require_changeable(self) -> None:
        self._require_started()
        if self._failed:
            raise UnavailableError("failed")


def new_epoch() -> int:
    """Name an order of samples; cursors of another order are refused."""
    return secrets.randbits(48)
