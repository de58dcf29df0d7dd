"""The threads of the service, and the work that must not be left half done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Workers:
    """One thread each for what must not wait for one another.

    The writer has the journal and long mutations, the saver snapshot files, the builder models that are fitted aside,
    the auditor the ledger's file, the reader long predictions, the asker questions about influence, the compiler waits
    for kernels.
    """

    def __init__(self) -> None:
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="oubli-writer")
        self._saver = ThreadPoolExecutor(1, thread_name_prefix="oubli-saver")
        self._builder = ThreadPoolExecutor(1, thread_name_prefix="oubli-builder")
        self._auditor = ThreadPoolExecutor(1, thread_name_prefix="oubli-auditor")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="oubli-reader")
        self._asker = ThreadPoolExecutor(1, thread_name_prefix="oubli-asker")
        self._compiler = ThreadPoolExecutor(1, thread_name_prefix="oubli-compiler")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._endless: set[asyncio.Task[Any]] = set()

    async def write(self, work: Callable[[], T]) -> T:
        """Do what changes a copy or the journal, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)

    async def save(self, work: Callable[[], T]) -> T:
        """Do what reads a model for long or writes a snapshot, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._saver, work)

    async def build(self, work: Callable[[], T]) -> T:
        """Do what fits a model, in its thread: snapshots and erasures must not wait for that."""
        return await asyncio.get_running_loop().run_in_executor(self._builder, work)

    async def audit(self, work: Callable[[], T]) -> T:
        """Do what reads or writes the ledger's file, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._auditor, work)

    async def read(self, work: Callable[[], T]) -> T:
        """Do what only reads the model, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._reader, work)

    async def ask(self, work: Callable[[], T]) -> T:
        """Do what answers a question about influence, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._asker, work)

    async def compile(self, work: Callable[[], T]) -> T:
        """Do what gets kernels ready, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._compiler, work)

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work that runs to its end even if whoever asked for it is gone: a thread cannot be called back."""
        return await asyncio.shield(self.begin(work))

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
        pools = (self._writer, self._saver, self._builder, self._auditor, self._reader, self._asker, self._compiler)
        for pool in pools:
            pool.shutdown()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._endless.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as seen: asyncio would log its text, which may hold values
