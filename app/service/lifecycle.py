"""The life of a service: it starts, leads or follows other nodes, drains, and stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from oubli.app.errors import JournalError, ServiceError, StopReason, UnavailableError
from oubli.app.ledger.database import LedgerDatabase
from oubli.app.ledger.entries import NODE_REMOVED
from oubli.app.ledger.ledger import Tombstones
from oubli.app.logs import cause_of
from oubli.app.service.changes.writer import Writer
from oubli.app.service.erasure.checkpoint import Erasing
from oubli.app.service.evidence.receipts import inherited
from oubli.app.service.evidence.states import Evidence
from oubli.app.service.jobs.jobs import JobBoard
from oubli.app.service.model.live import Disk, LiveModel
from oubli.app.service.outbox.subject_requests import Outbox
from oubli.app.service.roles import Role
from oubli.core.concurrency.threads import set_default
from oubli.core.jit.compilation import Compilation

log = logging.getLogger("oubli.service")

_LOOK = 0.05  # seconds between two looks whether the kernels are compiled
_REACHING = 1.0  # seconds for which a request waits for a version that another node has made


def no_compilation() -> Compilation | None:
    """Return None."""
    return None


@dataclass(slots=True)
class StartOptions:
    """How a service gets ready.

    Attributes
    ----------
    idle_resolve
        Whether tags are resolved when nothing is asked.
    warm_up
        Compiles what predictions would otherwise wait for; called in a thread once, and forgotten.
    complete
        Does the same for everything else, once `compiling` returns None.
    compiling
        Returns the processes that compile for that, None when there are none.
    n_threads
        For long work; once the service is ready, one of them is left to requests.
    grace_ms
        For how many milliseconds erased ids may not come back unless it is meant.
    """

    idle_resolve: bool = True
    warm_up: Callable[[], object] | None = None
    complete: Callable[[], object] | None = None
    compiling: Callable[[], Compilation | None] = no_compilation
    n_threads: int = 1
    grace_ms: int = 0


@dataclass(eq=False, repr=False)
class Lifecycle:
    """Starts and stops a service. It belongs to the event loop, and is what a `Role` knows of the service.

    Parameters
    ----------
    writer, erasing, evidence, outbox, jobs
        What runs in the background.
    tombstones
        The ids that were erased lately.
    options
        How the service gets ready.

    Attributes
    ----------
    live
        The live model and who may use it.
    disk
        Where changes are kept.
    role
        Knows other nodes.
    stop_error
        What could not be written at the end.
    is_complete
        Whether the kernels are there for everything; before, predictions are answered and the rest waits.
    """

    live: LiveModel
    disk: Disk
    role: Role
    _writer: Writer
    _erasing: Erasing
    _evidence: Evidence
    _outbox: Outbox
    _jobs: JobBoard
    _tombstones: Tombstones
    _options: StartOptions
    stop_error: str | None = field(default=None, init=False)
    is_complete: bool = field(default=False, init=False)
    _when_ready: Callable[[], object] | None = field(default=None, init=False)
    _keeping: list[asyncio.Task[None]] = field(default_factory=list, init=False)
    _moved: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _completed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def completion(self) -> None:
        """Wait until more than predictions can be answered; raises `UnavailableError` when the server stops instead."""
        if self.live.state.phase == "ready" and not self.is_complete:
            await self._completed.wait()
            if not self.is_complete:
                raise UnavailableError("stopping")

    def missing(self) -> str | None:
        """Return what changes wait for, None when they do not wait."""
        if self.is_complete:
            return None
        compilation = self._options.compiling()
        if compilation is None or not compilation.n_kernels:
            return "their kernels are being compiled or loaded"
        return f"{compilation.n_done} of {compilation.n_kernels} kernels are compiled"

    def when_ready(self, call: Callable[[], object]) -> None:
        """Call a function once, just before the service is ready, or now if it is."""
        if self.live.state.phase == "ready":
            call()
        else:
            self._when_ready = call

    def start(self) -> None:
        """Begin in the background to make the service ready; call it on the event loop."""
        self.live.threads.begin(self._writer.run(), endless=True)
        self.live.threads.begin(self.disk.database.run(), endless=True)
        if not self.live.state.following:
            self._begin_to_keep()
        self.live.threads.begin(self._make_ready())
        self.role.start(self)

    async def lead(self) -> None:
        """Take changes from now on; everything that the node has changed that led before was taken in."""
        state, since_ms = self.live.state, self.live.clock.now_ms() - self._options.grace_ms
        signing_id = self.disk.ledger.signing_id

        def read(database: LedgerDatabase) -> tuple[Any, ...]:
            erased = database.recently_erased(since_ms) if self._options.grace_ms else []
            is_introduced = database.introduces(signing_id)
            return database.head(), database.highest_ms() or 0, is_introduced, erased, database.pending()

        head, highest_ms, is_introduced, erased, pending = await self.disk.database.read(read)
        self.live.clock.witness(highest_ms)
        self.disk.ledger.resume(head, highest_ms, is_introduced=is_introduced)
        self._tombstones.replace([(known, self.live.clock.steady_since(at_ms)) for known, at_ms in erased])
        known = state.pending
        state.pending = inherited(pending, self.live.clock)
        for name, one in state.pending.items():
            one.period = known[name].period if name in known else state.period
        state.following, state.leader_url = False, None
        self._begin_to_keep()
        self._keep_at(self._compare_log())
        self._keep_at(self._erasing.retention.run())

    async def follow(self) -> None:
        """Take no changes any more, until `lead` is called: another node does, as `state.following` says already.

        Returns when nothing is under way that only a node that leads may do.
        """
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        self._keeping.clear()
        await self._outbox.deliveries.pause()
        await self._erasing.erasures.abandon()
        await self._writer.drain()  # what waits is refused: another node takes it
        await self._erasing.checkpointer.settle()
        async with self.live.lock.mutation(refusable=False):
            self.live.state.hindered = None

    def drain(self) -> None:
        """Say no to readiness from now on; requests are answered as before."""
        self.live.state.phase = "stopping"
        self._completed.set()
        self._jobs.drain()

    async def stop(self) -> None:
        """Finish what runs, write a snapshot when something changed since the last, and release the directory.

        `stop_error` says what cannot be written: nothing can be done about it any more. What was acknowledged
        is in the journal all the same.
        """
        state = self.live.state
        self.drain()
        try:
            await self._jobs.close()
            await self._outbox.deliveries.stop()
            await self._writer.drain()
            if self._needs_snapshot:
                await self._erasing.checkpointer.write_snapshot()
                log.info("snapshot written at model version %d", state.version)
            await self.role.resign()
            now = self.live.clock.now_ms()
            await self.disk.database.read(lambda database: database.witness(now))
            await self.disk.database.flush()
        except (ServiceError, JournalError):
            self.stop_error = "the last snapshot could not be written; what was acknowledged is in the journal"
        finally:
            await self.live.threads.settle()
            self.role.close()
            self._evidence.publisher.close()
            self.live.threads.close()
            self.close()

    @property
    def _needs_snapshot(self) -> bool:
        """Whether a snapshot is written at the end; where other nodes take over, they must not wait for it."""
        state = self.live.state
        if state.failed or state.following or self.role.is_shared:
            return False
        return bool(state.pending) or not self.disk.storage.is_current(state.seq)

    def close(self) -> None:
        """Let go of the files, without a last snapshot."""
        self.disk.database.close()
        self.disk.storage.close()
        set_default(1)

    def moved(self) -> None:
        """Tell who waits that changes of the node that leads were taken in."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def reach(self, version: int) -> None:
        """Wait for a moment until the model has a version, where it follows that of another node."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_REACHING):
                while self.live.state.following and self.live.state.version < version:
                    await self._moved.wait()

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
        self.live.state.require_open()
        await self.live.threads.finish(self._remove_node(name))

    async def _remove_node(self, name: str) -> None:
        await self.role.require_expelled(name)
        await self._writer.note(partial(self.disk.ledger.event, NODE_REMOVED, {"node": name}))
        await self.role.remove(name)

    async def _make_ready(self) -> None:
        state = self.live.state
        # Forgotten at once: it holds the first model, which another one may replace.
        warm_up, self._options.warm_up = self._options.warm_up, None
        await self._call(warm_up)
        del warm_up
        if state.following or state.model.n_lazy_tags_:
            await self._complete()  # predictions need it as well
        else:
            self.live.threads.begin(self._complete(), endless=True)
        set_default(max(1, self._options.n_threads - 1))
        state.model.take_threads()
        if not self.live.state.following:
            await self._compare_log()
        if not self.disk.storage.is_unchecked:
            self._begin_to_serve()
            return
        # A change needs what it is made to: it waits until the first snapshot is read back, and predictions do not.
        async with self.live.lock.mutation(refusable=False):
            self._begin_to_serve()
            await self._check_first_snapshot()

    async def _complete(self) -> None:
        """Get everything ready that waits for kernels."""
        complete, self._options.complete = self._options.complete, None
        while self._options.compiling() is not None:
            if self.live.state.phase == "stopping":
                return
            await asyncio.sleep(_LOOK)
        await self._call(complete)
        del complete
        self._options.compiling = no_compilation
        if self._options.idle_resolve:
            self.live.threads.begin(self.live.idle.run(), endless=True)
        self.live.idle.tagged.set()
        self.live.threads.begin(self._evidence.sample_set.run(), endless=True)
        self.is_complete = True
        self._completed.set()

    async def _call(self, warm_up: Callable[[], object] | None) -> None:
        try:
            if warm_up is not None:
                await self.live.threads.save(warm_up)
        except Exception as error:
            log.error("warming up failed, so the first requests are slow: %s", cause_of(error))

    def _begin_to_serve(self) -> None:
        if self.live.state.phase == "starting":
            if self._when_ready is not None:
                self._when_ready()  # before anybody is answered
            self.live.state.phase = "ready"
            if not self.live.state.following:
                self._keep_at(self._erasing.retention.run())

    def _begin_to_keep(self) -> None:
        """Begin what keeps the disk in order and tells others: only the node that leads does that."""
        if not self.disk.storage.is_ephemeral:
            self._keep_at(self._erasing.checkpointer.run())
            self._keep_at(self._erasing.erasures.watch())
        self._outbox.deliveries.start()
        self._keep_at(self._outbox.requests.run())

    def _keep_at(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin work that ends when another node leads."""
        self._keeping.append(self.live.threads.begin(work, endless=True))

    async def _check_first_snapshot(self) -> None:
        try:
            await self.live.threads.save(self.disk.storage.snapshots.check)
        except Exception as error:  # whatever it was: the snapshot is not known to be sound
            log.error("the first snapshot could not be read back: %s", cause_of(error))
            self.live.state.halt(StopReason.DISK_FAILED)

    async def _compare_log(self) -> None:
        """Ask witnesses what they have seen of the log, before anything is changed; then begin to publish it."""
        try:
            await self._evidence.publisher.compare()
        except (ServiceError, JournalError) as error:
            log.error("the log could not be compared with its witnesses: %s", cause_of(error))
        self._keep_at(self._evidence.publisher.run())
