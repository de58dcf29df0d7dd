"""The threads of the service, and the work that must not be left half done."""

import asyncio
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

SWITCH_SECONDS = 0.0005  # after which a thread of a server lets another one have the interpreter

T = TypeVar("T")


async def pause(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until an event is set, or for some seconds; None: as long as it takes."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Run(Protocol):
    """Does work in a thread, one piece after the other."""

    async def __call__(self, work: Callable[[], T]) -> T:
        """Return what the work returns."""


class Threads:
    """One thread each for what must not wait for one another.

    Attributes
    ----------
    writer, write
        For the journal, and what changes a copy.
    save
        For what reads a model for long, or writes a snapshot.
    build
        For what fits a model: snapshots and erasures must not wait for that.
    verify
        For what compares a model with a fresh fit: a scrub, which finishes erasures, must not wait for that.
    audit
        For the ledger's database.
    hash
        For the tree over the samples held.
    read
        For long predictions, which only read the model.
    ask
        For questions about influence.
    look
        For people who look: trees, columns, and what would be predicted without some samples.
    compile
        For what gets kernels ready.
    """

    def __init__(self) -> None:
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="oubli-writer")
        self._pools = [self.writer]
        self.write: Run = partial(_run, self.writer)
        self.save = self._thread("saver")
        self.build = self._thread("builder")
        self.verify = self._thread("verifier")
        self.audit = self._thread("auditor")
        self.hash = self._thread("hasher")
        self.read = self._thread("reader")
        self.ask = self._thread("asker")
        self.look = self._thread("looker")
        self.compile = self._thread("compiler")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._endless: set[asyncio.Task[Any]] = set()

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work that runs to its end even if the caller is gone: a thread cannot be called back."""
        return await asyncio.shield(self.begin(work))

    async def uncut(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work of a thread; a caller that is cancelled continues when the thread has ended."""
        task = self.begin(work)
        try:
            return await asyncio.shield(task)
        finally:
            while not task.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([task])

    def begin(self, work: Coroutine[Any, Any, T], *, endless: bool = False) -> asyncio.Task[T]:
        """Start work in the background; endless work is cancelled by `close`, other work awaited."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        if endless:
            self._endless.add(task)
        task.add_done_callback(self._ended)
        return task

    async def settle(self) -> None:
        """Cancel endless work and wait for the rest."""
        for task in self._endless:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def close(self) -> None:
        """End the threads."""
        for pool in self._pools:
            pool.shutdown()

    def _thread(self, name: str) -> Run:
        pool = ThreadPoolExecutor(1, thread_name_prefix=f"oubli-{name}")
        self._pools.append(pool)
        return partial(_run, pool)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._endless.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as seen: asyncio would log its text, which may hold values


async def _run(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, partial(_freeing, work))


def _freeing(work: Callable[[], T]) -> T:
    """Return what work returns; when there is no memory for it, let go of all that it has made.

    A caller that keeps the error keeps its frames, and they keep half-built models in memory.
    """
    try:
        return work()
    except MemoryError as error:
        traceback.clear_frames(error.__traceback__)
        raise
