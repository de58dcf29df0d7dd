"""The live model, who may use it and where it is kept.

Long reads run in a thread, without tags, while changes wait and short predictions continue. Copies for snapshots and
long work are made in the turn of a mutation, without what the model keeps of samples that have left.

Tagged subtrees are rebuilt while nothing else is to do, so that later requests do not wait for it. With a core to spare
a thread does it whenever the event loop is about to wait, see `tag_thread`; the next request that needs the trees takes
them back. Without one the loop does it itself, in slices, when no request has come for a moment.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from oubli.app.ledger.ledger import Ledger, LedgerWorker
from oubli.app.logs import cause_of
from oubli.app.service.erasure.holders import Holders
from oubli.app.service.memory import let_go_of
from oubli.app.service.model.state import ModelLock, ModelState
from oubli.app.storage.snapshots import Facts, Snapshot, Storage
from oubli.app.threads import Run, Threads
from oubli.app.times import Clock, end_stage
from oubli.core.errors import UnusableModelError
from oubli.core.model import Model, QueryResult
from oubli.core.planning import Plan

T = TypeVar("T")

log = logging.getLogger("oubli.service")
TAGS_AT_ONCE = 256  # that one piece of long work resolves, some milliseconds; requests are answered in between
QUIET_SECONDS = 0.005  # without a request before idle work begins
IDLE_TAGS_AT_ONCE = 64  # that idle work resolves; a request that arrives waits for the rest of them

# From so many queries on since the last change, which may have met tags, the next change waits for tags to be resolved
# for so many seconds at most. Longer waits make changes much slower and queries hardly any faster.
MANY_QUERIES = 4
LONGEST_WAIT = 0.005
_SHORT_LOAN = 0.0003  # seconds; after a loan that was shorter ...
_PAUSE = 0.001  # ... so many must have passed without a request before the next one ...
_HELD_BACK = 16  # ... for so many times


class Predicted(NamedTuple):
    """Predictions and the version of the model that made them."""

    result: QueryResult
    model_version: int


class TagSlices:
    """Resolve some tags at a time, in a piece of work that is short whatever is below them, if the kind can do that.

    Parameters
    ----------
    n_tags
        How many at most. Where a single tag can take long it is one.
    count
        Takes the number of tags that a slice has resolved.
    """

    def __init__(self, n_tags: int, count: Callable[[int], object]) -> None:
        self._n_tags = n_tags
        self._count = count

    def step(self, model: Model) -> bool:
        """Resolve one slice; return whether tags are left."""
        try:
            self._count(model.resolve(max_tags=self._n_tags if model.yields_ else 1))
        except UnusableModelError:
            return False
        return model.n_lazy_tags_ > 0


class IdleResolver:
    """The background task that resolves tags between requests.

    Parameters
    ----------
    state
        Has the live model.
    lock
        Says whether anyone is using the model, and lends it.
    has_core
        Whether a thread may use another core for it.

    Attributes
    ----------
    last_request
        When a request was answered, in seconds of `time.monotonic`.
    tagged
        Set when there may be tags, and whenever the model is lent.
    n_queries
        That were answered since the last change while there were tags.
    """

    def __init__(self, state: ModelState, lock: ModelLock, *, has_core: bool = False) -> None:
        self._state = state
        self._lock = lock
        self._has_core = has_core
        self._slices = TagSlices(IDLE_TAGS_AT_ONCE, state.count_resolved)
        self.tagged = state.tagged
        self.last_request = 0.0
        self.n_queries = 0
        self._in_flight = 0
        self._n_held_back = 0

    def request_begins(self) -> None:
        """Note that a request is being handled: idle work on the loop stops."""
        self._in_flight += 1

    def request_ends(self) -> None:
        """Note that a request was answered."""
        self._in_flight -= 1
        self.last_request = time.monotonic()

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                await self.tagged.wait()
                model = self._state.model
                if self._has_core and model.is_usable and model.yields_:
                    await self._lend()
                else:
                    await self._take_slice()
        finally:
            self._lock.tag_thread.close()

    async def _lend(self) -> None:
        """Lend the model when the loop is about to wait, until a request needs it or nothing is left to do.

        Taking it back costs some tens of microseconds. Where requests follow one another so closely that nothing is
        gained for that, it is lent in longer pauses only, and now and then tried again.
        """
        await self._lock.unread()
        answered, model = self.last_request, self._state.model
        self._n_held_back -= self._n_held_back > 0
        await asyncio.sleep(_PAUSE if self._n_held_back else 0)  # requests that have arrived come first
        has_changed = self.last_request != answered or self._state.model is not model
        if has_changed or self._lock.frozen or not self.tagged.is_set():
            return
        thread = self._lock.tag_thread
        try:
            lent = thread.lend(model)
        except RuntimeError:  # the system has no more threads
            self._has_core = False
            return
        begun = time.monotonic()
        self._state.count_resolved(await lent)
        if self._has_tags() and time.monotonic() - begun < _SHORT_LOAN:
            self._n_held_back = _HELD_BACK
        if thread.error is not None:
            _tell(thread.error)
            self.tagged.clear()
        elif not self._has_tags():
            self.tagged.clear()

    def _has_tags(self) -> bool:
        model = self._state.model  # it may be another one by now
        return model.is_usable and model.n_lazy_tags_ > 0

    async def _take_slice(self) -> None:
        """Resolve some tags here, if nothing else is to do; a change that waits for the disk is nothing to do."""
        if self._in_flight or self._quiet_for() < QUIET_SECONDS or self._lock.frozen:
            await asyncio.sleep(QUIET_SECONDS)
        elif not self._step():
            self.tagged.clear()
        else:
            await asyncio.sleep(0)

    def _step(self) -> bool:
        """Resolve one slice here; whether tags are left, and can be resolved."""
        try:
            return self._slices.step(self._state.model)
        except Exception as error:
            _tell(error)
            return False

    def is_idle(self) -> bool:
        """Whether there has been no request for a moment, and no work on the model is in progress."""
        return not self._in_flight and self._quiet_for() >= QUIET_SECONDS and self._lock.quiet

    def _quiet_for(self) -> float:
        return time.monotonic() - self.last_request

    async def keep_up(self) -> None:
        """Before a change is made: have the tags of earlier ones resolved if many queries would meet them.

        In slices, between requests, and not for long. Otherwise changes that come one after the other leave more tags
        than queries resolve, and each query that meets them keeps all others waiting.
        """
        n_queries, self.n_queries = self.n_queries, 0
        end = time.monotonic() + LONGEST_WAIT
        while n_queries >= MANY_QUERIES and self._has_tags() and time.monotonic() < end:
            if self._lock.frozen:
                return
            self._lock.own()
            if not self._step():
                return
            await asyncio.sleep(0)


def _tell(error: BaseException) -> None:
    """Log what ended work in the background: queries resolve the tags that they meet, and say what they cannot do."""
    log.error("nodes that wait to be rebuilt could not be, so predictions rebuild them: %s", cause_of(error))


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class LiveModel:
    """What all parts of the service share. It belongs to the event loop.

    Attributes
    ----------
    state
        The model with its place in its history.
    lock, threads
        Who may touch the model, and the threads.
    idle
        Resolves tags between requests; it counts the requests in flight.
    holders
        Everything that may hold something of a sample.
    clock
        Tells the time.
    """

    state: ModelState
    lock: ModelLock
    threads: Threads
    idle: IdleResolver
    holders: Holders
    clock: Clock

    async def read(
        self, work: Callable[[Model], T], run: Run, *, refusable: bool = True, predicts: bool = False
    ) -> tuple[T, int]:
        """Call a function with the live model when all its tags are resolved; return its result and the model version.

        It runs to its end even if the caller is cancelled.

        Parameters
        ----------
        work
            Only reads the model.
        run
            Calls it in a thread.
        refusable
            Whether a full queue raises `BusyError`.
        predicts
            Whether it does nothing but predict.
        """
        return await self.threads.finish(self._read(work, run, refusable, predicts))

    async def _read(self, work: Callable[[Model], T], run: Run, refusable: bool, predicts: bool) -> tuple[T, int]:
        async with self.lock.long_read(refusable=refusable):
            # A model without tags is only read: no working space is written, so short predictions can run beside it.
            slices = TagSlices(TAGS_AT_ONCE, self.state.count_resolved)
            await self.lock.pass_turnstile(predicts=predicts)
            while self.state.model.n_lazy_tags_:
                await self.lock.unread()
                slices.step(self.state.model)
                await asyncio.sleep(0)
                await self.lock.pass_turnstile(predicts=predicts)
            model, version = self.state.model, self.state.version
            end_stage("wait")
            with self.lock.reading():
                return await run(partial(work, model)), version

    async def copied(self) -> Model:
        """Return a copy of the live model without tags, and without anything of what has left.

        Like `cleaned` and `let_go` it is called in the turn of a mutation.
        """
        return await self.cleaned(lambda model: model.copy())

    async def cleaned(self, read: Callable[[Model], T]) -> T:
        """Rid the live model of tags and of what it keeps of samples that have left.

        It runs to its end even if the caller is cancelled: the thread reads the model until then.

        Parameters
        ----------
        read
            Reads the model then; called in a thread.
        """
        await self.resolve()
        with self.lock.reading():
            found = await self.threads.uncut(self.threads.save(partial(_wiped, read, self.state.model)))
        self.state.period += 1
        return found

    async def resolve(self) -> None:
        """Resolve all tags, in slices between requests; in the turn of a mutation."""
        state, slices = self.state, TagSlices(TAGS_AT_ONCE, self.state.count_resolved)
        await self.lock.exclusive()
        while state.model.n_lazy_tags_ and slices.step(state.model):
            await asyncio.sleep(0)
            await self.lock.exclusive()

    async def change_in_slices(self, plan: Plan) -> None:
        """Make a planned change in slices between requests; in the turn of a mutation, and without tags.

        Until the last one is made, predictions and all that reads samples have the model as it was before. Other reads
        of trees wait.
        """
        state = self.state
        async with self.lock.slices():
            model = state.model
            state.tagged.clear()
            try:
                with closing(model.change_in_slices(plan)) as slices:
                    for before in slices:
                        state.model = before
                        await self.lock.pause()
            finally:
                state.model = model

    async def let_go(self, old: Model) -> None:
        """Overwrite a model that another one has replaced."""
        await self.lock.exclusive()  # a thread that reads it has begun before
        await self.threads.save(partial(let_go_of, old))


def _wiped(read: Callable[[Model], T], model: Model) -> T:
    """Overwrite what the model keeps of samples that have left, then read it."""
    model.wipe()
    return read(model)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Disk:
    """Where changes are kept.

    Attributes
    ----------
    storage
        Snapshots and journal.
    ledger, database
        Make the entries of the ledger, and keep them.
    is_durable
        Whether what was acknowledged survives the process.
    """

    storage: Storage
    ledger: Ledger
    database: LedgerWorker
    is_durable: bool

    @property
    def newest_snapshot(self) -> Snapshot | None:
        """What is known of the newest snapshot; None when there is none."""
        return None if self.storage.is_ephemeral else self.storage.snapshots.newest_or_none

    def facts(self, state: ModelState) -> Facts:
        """Return what a snapshot says of a model besides itself."""
        return facts_of(state, self.storage, self.ledger)


def facts_of(state: ModelState, storage: Storage, ledger: Ledger) -> Facts:
    """Return what a snapshot says of a model besides itself."""
    head = ledger.head
    return Facts(
        model_version=state.version,
        next_id=max(state.next_id, state.model.samples_.next_id),
        lineage=storage.lineage,
        epoch=state.epoch,
        seq=state.seq,
        exports=state.exports,
        ledger_index=head.index,
        ledger_hash=head.hash,
    )
