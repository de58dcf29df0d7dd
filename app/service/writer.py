"""Mutations on their way into the model: planned, written to the journal, made, answered.

    waiting   1 2 3 4 5 6 ...        requests, in the order in which they came
              +---+ +-----+
    commit      |      next          as many as touch nothing in common
                v
              plan all -> one record each -> journal (one flush to the disk for all) -> make all -> answer all

What was refused by its plan is answered at once. What the disk refuses is answered with that, and is not in the model:
the model changes after the flush, never before it. A flush that fails leaves the disk in doubt; then nothing is changed
any more until a restart reads what is there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from oubli.app.errors import BusyError, ServiceError, StorageError, UnavailableError
from oubli.app.ledger.ledger import Auditor, Unlearned
from oubli.app.ledger.receipts import Receipt
from oubli.app.service.commands import Change, Done, Request, Settle
from oubli.app.service.folding import Folder
from oubli.app.service.lock import Turns
from oubli.app.service.memory import let_go_of
from oubli.app.service.plans import LARGE, Ground, Plan, make_all, overwrite
from oubli.app.service.state import Live, Pending, StopReason
from oubli.app.service.threads import Workers
from oubli.app.service.tombstones import Grace
from oubli.app.service.transaction import Commit, Made, Waiting, with_claim
from oubli.app.storage.journal import (
    Journal,
    JournalError,
    JournalFullError,
    JournalRefusedError,
    NoDescriptorsError,
    Record,
)
from oubli.app.storage.models import ServedModel
from oubli.app.storage.records import encode
from oubli.core.errors import OubliError

log = logging.getLogger("oubli.service")

LOOP_BUDGET = 0.010  # seconds of work that may run on the event loop in one piece
_LONGEST_PAUSE = 0.050  # seconds that a model may spend there on building parts of itself anew
_MOST_AT_ONCE = 256

T = TypeVar("T")


class Committer:
    """The queue of mutations and the one place where the model changes.

    Parameters
    ----------
    live
        What is changed.
    journal
        What makes it durable.
    auditor
        Makes receipts and the entries of the ledger.
    folder
        Brings the ledger's file up to what the journal holds.
    grace
        Which ids were erased lately.
    turns
        Who may touch the model.
    workers
        The threads.
    now_ms
        The time, in milliseconds since 1970; never runs backwards.
    steady_ms
        The time that nobody can set, for periods; see `Clock.steady_ms`.
    default_expiry
        Returns when samples expire that say nothing; None for never.
    changed
        Called after each commit.
    """

    def __init__(
        self,
        live: Live,
        journal: Journal,
        auditor: Auditor,
        folder: Folder,
        grace: Grace,
        turns: Turns,
        workers: Workers,
        *,
        max_queue: int,
        now_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        default_expiry: Callable[[], int | None],
        changed: Callable[[], None],
    ) -> None:
        self._live = live
        self._journal = journal
        self._auditor = auditor
        self._folder = folder
        self._grace = grace
        self._turns = turns
        self._workers = workers
        self._max_queue = max_queue
        self._now_ms = now_ms
        self._steady_ms = steady_ms
        self._default_expiry = default_expiry
        self._changed = changed
        self._waiting: deque[Waiting] = deque()
        self._followers: list[list[Plan[Any]]] = []
        self._use_reserve = False
        self._wake = asyncio.Event()

    @property
    def n_waiting(self) -> int:
        """How many changes wait."""
        return len(self._waiting)

    # --- asking for a change

    def submit(self, change: Change[T], settle: Settle[T]) -> None:
        """Have a short change made; `settle` is called when it is, perhaps before this returns.

        Raises
        ------
        BusyError
            When as many wait as may.
        """
        if not self._journal.is_durable and not self._waiting and self._turns.free:
            # Nothing is written, so nobody has to be waited for.
            self._commit_now(Waiting(change, settle))
            return
        if change.refusable and len(self._waiting) >= self._max_queue:
            raise BusyError
        self._waiting.append(Waiting(change, settle))
        self._wake.set()

    async def run(self) -> None:
        """Commit what waits, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                async with self._turns.mutation(refusable=False):
                    await self._commit_waiting()

    async def commit_aside(self, change: Change[T]) -> Done[T]:
        """Make a long change on a copy in a thread; then the copy replaces the model in one step."""
        async with self._turns.mutation(refusable=change.refusable):
            self._require_sound()
            model, ground = self._live.model, self._ground(Commit(self._auditor.head))
            with self._turns.reading():
                plan, copy = await self._workers.save(partial(_make_on_copy, model, ground, change))
            return await self._commit_one(change, plan, copy)

    async def note(self, notes: Callable[[], bytes]) -> None:
        """Take notes to the journal that change no sample.

        Parameters
        ----------
        notes
            Makes them, in their turn.

        Raises
        ------
        JournalError
            When they are not in the journal.
        """
        async with self._turns.mutation(refusable=False):
            await self.record(notes)

    async def record(
        self,
        notes: Callable[[], bytes],
        *,
        body: bytes = b"",
        changes: int = 0,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Write one record to the journal, inside a mutation's turn.

        Parameters
        ----------
        notes
            Makes the entries of the ledger.
        body
            For the replay.
        changes
            Added to the model's version.
        then
            Changes what is served, in the same step of the loop in which the version goes up.

        Raises
        ------
        JournalError
            When it is not in the journal.
        """
        head, live = self._auditor.head, self._live
        record = Record(live.seq + 1, live.version + changes, body, notes())
        try:
            await self._workers.write(partial(self._journal.append, [record], reserve=True))
        except JournalError:
            self._auditor.rewind(head)
            if self._journal.failed:
                live.halt(StopReason.DISK_FAILED)
            raise
        if then is not None:
            then()
        self.committed([record], changes)

    def follow(self) -> list[Plan[Any]]:
        """Return a list to which every plan that is made from now on is added, for a model that is built aside."""
        followed: list[Plan[Any]] = []
        self._followers.append(followed)
        return followed

    def unfollow(self, followed: list[Plan[Any]]) -> None:
        """Add no more plans to a list."""
        self._followers = [other for other in self._followers if other is not followed]

    async def drain(self) -> None:
        """Commit what waits and return when nothing does."""
        while self._waiting:  # noqa: ASYNC110 - at the end of the server, for a moment
            await asyncio.sleep(0.001)
        async with self._turns.mutation(refusable=False):
            pass  # what was taken from the queue last has been answered

    # --- one commit

    def _commit_now(self, waiting: Waiting) -> None:
        commit = Commit(self._auditor.head)
        if self._take(commit, waiting):
            self._journal.append(commit.records)
            self._make(commit)
        else:
            self._waiting.append(waiting)
            self._wake.set()

    async def _commit_waiting(self) -> None:
        commit = self._plan_waiting()
        if not commit.made:
            if commit.long is not None:
                await self._commit_long(self._waiting.popleft(), commit.long)
            return
        try:
            await self._workers.write(partial(self._journal.append, commit.records, reserve=self._use_reserve))
        except JournalFullError as error:
            self._auditor.rewind(commit.head)
            self._live.hindered = hindrance(error)
            self._give_way(commit)
            return
        except Exception as error:  # also a mistake of ours: what waits must be told, and what comes later be served
            self._auditor.rewind(commit.head)
            self._fail(commit, error)
            return
        if not self._use_reserve:
            self._live.hindered = None
        self._use_reserve = False
        await self._turns.exclusive()
        self._make(commit)

    async def _commit_long(self, waiting: Waiting, plan: Plan[Any]) -> None:
        """Make a change that looked short, and sets off long work in the model, on a copy."""
        try:
            with self._turns.reading():
                copy = await self._workers.save(partial(_copy_with, self._live.model, plan))
            done = await self._commit_one(waiting.change, plan, copy)
        except Exception as error:
            waiting.tell(None, error)
        else:
            waiting.tell(done, None)

    async def _commit_one(self, change: Change[T], plan: Plan[T], copy: ServedModel | None) -> Done[T]:
        """Commit a change that was made on a copy."""
        settled: asyncio.Future[Done[T]] = asyncio.get_running_loop().create_future()
        commit = Commit(self._auditor.head)
        waiting = Waiting(change, partial(settle_future, settled))
        if plan.body is None and change.request is None and change.claim is None:
            return Done(plan.outcome, self._live.model.n_samples_, self._live.version)
        self._record(commit, waiting, plan, b"" if plan.body is None else encode(plan.body))
        try:
            await self._workers.write(partial(self._journal.append, commit.records, reserve=not change.refusable))
        except JournalFullError as error:
            self._auditor.rewind(commit.head)
            self._live.hindered = hindrance(error)
            raise StorageError(str(error)) from None
        except JournalError as error:
            self._auditor.rewind(commit.head)
            self._fail(commit, error)
            return await settled
        old = self._live.model
        if copy is not None:
            self._live.model = copy
        self._answer(commit)
        if copy is not None:
            await self._turns.exclusive()  # whoever reads the old one in a thread has begun before
            await self._workers.save(partial(let_go_of, old))
        return await settled

    def _plan_waiting(self) -> Commit:
        """Plan changes in their order, until two touch the same or making them all would take too long."""
        commit = Commit(self._auditor.head)
        while self._waiting and len(commit.made) < _MOST_AT_ONCE and commit.seconds < LOOP_BUDGET:
            waiting = self._waiting[0]
            if self._use_reserve and waiting.change.refusable:
                if commit.made:
                    break
                self._use_reserve = False  # the erasure that asked for it has been refused meanwhile
            if not self._take(commit, waiting):
                break
            self._waiting.popleft()
        return commit

    def _take(self, commit: Commit, waiting: Waiting) -> bool:
        """Plan a change and take it into a commit; false when it has to wait for the next one."""
        change, live = waiting.change, self._live
        try:
            self._require_sound()
            plan = change.plan(live.model, self._ground(commit))
            body = b"" if plan.body is None else encode(plan.body)
        except (OubliError, ServiceError) as refused:
            waiting.tell(None, refused)
            return True
        except Exception as mistake:  # planning changes nothing, so that only this request is lost
            waiting.tell(None, mistake)
            return True
        if not commit.names.isdisjoint(plan.names):
            return False
        if plan.body is not None and live.model.takes_long(plan.adds, plan.deletes, commit.n_items, _LONGEST_PAUSE):
            if not commit.made:
                commit.long = plan
            return False
        commit.names |= plan.names
        if plan.body is None and change.request is None and change.claim is None:
            waiting.tell(Done(plan.outcome, live.model.n_samples_, live.version), None)
            return True
        self._record(commit, waiting, plan, body)
        return True

    def _record(self, commit: Commit, waiting: Waiting, plan: Plan[Any], body: bytes) -> None:
        """Write the record of a planned change, with its receipt."""
        change, live = waiting.change, self._live
        version = live.version + commit.n_changes + int(plan.body is not None)
        receipt: Receipt | None = None
        hashes: list[str] = []
        notes = b""
        if change.request is not None:
            receipt, notes, hashes = self._receipt(change, change.request, plan, version)
        commit.n_added += (0 if plan.adds is None else plan.adds.n) - len(plan.deletes)
        if change.claim is not None:
            n_samples = live.model.n_samples_ + commit.n_added
            notes = with_claim(
                change.claim, notes, plan, receipt, version=version, n_samples=n_samples, now_ms=self._steady_ms()
            )
        commit.n_changes += int(plan.body is not None)
        commit.next_id = max(commit.next_id, plan.next_id)
        commit.seconds += change.cost.guess(change.n_items)
        commit.n_items += change.n_items
        commit.records.append(Record(live.seq + len(commit.records) + 1, version, body, notes))
        commit.made.append(Made(waiting, plan, version, receipt, hashes))

    def _receipt(self, change: Change[Any], request: Request, plan: Plan[Any], version: int) -> Unlearned:
        if request.kind == "rectification" and plan.body is None:
            unlearned: Sequence[str] = ()
        else:
            unlearned = plan.gone
        return self._auditor.unlearned(
            kind=request.kind,
            guarantee=self._live.model.guarantee,
            requested=len(request.targets),
            unlearned_ids=unlearned,
            targets=request.targets,
            by=request.by,
            absent=0 if change.absent is None else change.absent(plan.outcome),
            ref=request.ref,
            model_version=version,
            received_at=request.received_ms,
            unlearned_at=self._now_ms(),
            exported=self._exported(plan.gone),
        )

    def _exported(self, gone: Sequence[str]) -> int:
        """How many snapshots were handed out while one of some samples was held."""
        total = self._live.exports
        if not total or not gone:
            return 0
        store = self._live.model.samples_
        return total - min(store.origin(name) for name in gone)

    def _ground(self, commit: Commit) -> Ground:
        live = self._live
        return Ground(
            first_id=max(live.next_id, commit.next_id),
            erased_lately=self._grace.holds,
            origin=live.exports,
            default_expiry=self._default_expiry(),
        )

    def _make(self, commit: Commit) -> None:
        """Change the model by what is on the disk now, and answer."""
        live, made = self._live, commit.made
        started = time.perf_counter()
        try:
            make_all(live.model, [one.plan for one in made if one.plan.body is not None])
        except BaseException as mistake:
            # Nobody knows how far it got: a snapshot or a further change could make it worse.
            log.error("a mutation failed inside the model: no further mutation is accepted until a restart")
            self._fail(commit, mistake)
            if not isinstance(mistake, Exception):
                raise
            return
        if len(made) == 1:
            change = made[0].waiting.change
            change.cost.observe(change.n_items, time.perf_counter() - started)
        self._answer(commit)

    def _answer(self, commit: Commit) -> None:
        """Answer what is on the disk and in the model."""
        live = self._live
        self.committed(commit.records, commit.n_changes)
        live.next_id = max(live.next_id, commit.next_id)
        plans = [one.plan for one in commit.made if one.plan.body is not None]
        for followed in self._followers:
            followed.extend(plans)
        if commit.n_items >= LARGE and not self._followers:
            overwrite(plans)
        for one in commit.made:
            self._note_gone(one)
            done = Done(one.plan.outcome, live.model.n_samples_, one.version, one.receipt)
            one.waiting.tell(done, None)

    def committed(self, records: Sequence[Record], n_changes: int) -> None:
        """Note that records are in the journal and the model is as they say."""
        live = self._live
        if records:
            live.seq = records[-1].seq
        live.version += n_changes
        self._folder.fold(records)
        if n_changes:
            self._changed()

    def _note_gone(self, one: Made) -> None:
        receipt, now = one.receipt, self._steady_ms()
        if receipt is None:
            return
        # Also when nothing was held: files from before may hold what an earlier erasure took.
        self._live.pending[receipt.id] = Pending(self._live.seq, now, period=self._live.period)
        if one.waiting.change.request is not None and one.waiting.change.request.kind != "rectification":
            self._grace.add(one.hashes, now)

    def _give_way(self, commit: Commit) -> None:
        """On a full disk: refuse what may be refused, and let erasures try again with the reserve."""
        erasures = [one.waiting for one in commit.made if not one.waiting.change.refusable]
        for one in commit.made:
            if one.waiting.change.refusable or self._use_reserve:
                one.waiting.tell(None, StorageError("no room on the disk"))
        if not self._use_reserve and erasures:
            self._waiting.extendleft(reversed(erasures))
        self._use_reserve = not self._use_reserve and bool(erasures)

    def _fail(self, commit: Commit, error: BaseException) -> None:
        """Nothing is changed from now on: the disk or the model is in doubt until a restart."""
        known = isinstance(error, JournalError)
        self._live.halt(StopReason.DISK_FAILED if known else StopReason.MODEL_UNUSABLE)
        for one in commit.made:
            one.waiting.tell(None, UnavailableError("failed") if known else error)
        if known:
            log.error("the journal could not be written: no mutation is accepted until a restart")

    def _require_sound(self) -> None:
        if self._live.failed or not self._live.model.is_usable:
            raise UnavailableError("failed")


def hindrance(error: JournalFullError) -> StopReason:
    """Return why a change could not be written that may be written later."""
    if isinstance(error, JournalRefusedError):
        return StopReason.DISK_ERRORS
    return StopReason.NO_DESCRIPTORS if isinstance(error, NoDescriptorsError) else StopReason.DISK_FULL


def settle_future(future: asyncio.Future[Done[T]], done: Done[T] | None, error: BaseException | None) -> None:
    """Settle a change whose caller awaits a future; the caller may have gone."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    elif done is not None:
        future.set_result(done)


def _make_on_copy(model: ServedModel, ground: Ground, change: Change[T]) -> tuple[Plan[T], ServedModel | None]:
    """Plan a change and make it on a copy; None where nothing changes."""
    plan = change.plan(model, ground)
    return plan, None if plan.body is None else _copy_with(model, plan)


def _copy_with(model: ServedModel, plan: Plan[Any]) -> ServedModel:
    """Make a change on a copy."""
    copy = model.copy()
    make_all(copy, [plan])
    # Resolved here, or the first predictions would rebuild half the forest on the event loop.
    copy.resolve()
    return copy
