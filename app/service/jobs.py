"""Jobs: long work, one after the other, that anybody can look up by its id. No HTTP here.

    start --> queued --> running --> succeeded (result)
                |           +------> failed (error)
                +------------------> failed, when the server stops

A job's state is an immutable record that is replaced as a whole, so that whoever looks sees one instant of it.
"""

import asyncio
import logging
import traceback
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from oubli.app.errors import BusyError, JournalError, RepeatedKeyError, ServiceError

log = logging.getLogger("oubli.jobs")

Status = Literal["queued", "running", "succeeded", "failed"]
Report = Callable[[float], None]
"""Takes the share that is done, from 0 to 1; may be called from any thread."""
Work = Callable[[Report], Awaitable[dict[str, Any]]]
"""Does a job and returns its result."""

STOPPED = "the server was stopped before this job had ended"
_LEAST_STEP = 0.005  # progress by less is not worth telling


@dataclass(frozen=True, slots=True)
class Job:
    """A job at one instant."""

    id: str
    kind: str
    status: Status = "queued"
    progress: float = 0.0
    result: dict[str, Any] | None = None
    error: str | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in ("succeeded", "failed")


@dataclass(slots=True)
class _Entry:
    """A job's newest state, and the event that is set when there is a newer one."""

    job: Job
    body: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class JobBoard:
    """All jobs of a server. It belongs to the event loop.

    Parameters
    ----------
    max_queue
        Most jobs that wait for the one that runs.
    max_kept
        Most jobs that are remembered; those that ended first are forgotten first.
    """

    def __init__(self, *, max_queue: int = 8, max_kept: int = 100) -> None:
        self._max_queue = max_queue
        self._max_kept = max_kept
        self._entries: dict[str, _Entry] = {}
        self._turn = asyncio.Lock()
        self._is_closing = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, kind: str, work: Work, job_id: str | None = None, body: str = "") -> Job:
        """Begin a job, or queue it behind the one that runs.

        Parameters
        ----------
        kind
            What sort of job it is.
        work
            Does it.
        job_id
            Of a request that may come again: while its job is known and has not failed, that is returned.
        body
            Stands for what was asked for under this id.

        Raises
        ------
        BusyError
            When too many wait already, or the server is stopping.
        RepeatedKeyError
            When something else was asked for under this id.
        """
        known = None if job_id is None else self._entries.get(job_id)
        if known is not None and known.job.status != "failed":
            if known.body != body:
                raise RepeatedKeyError
            return known.job
        n_open = sum(not entry.job.has_ended for entry in self._entries.values())
        if self._is_closing or n_open > self._max_queue:
            raise BusyError
        self._loop = asyncio.get_running_loop()
        entry = _Entry(Job(job_id or str(uuid.uuid4()), kind), body)
        self._entries[entry.job.id] = entry
        self._forget()
        entry.task = self._loop.create_task(self._run(entry, work))
        return entry.job

    def get(self, job_id: str) -> Job | None:
        """Return a job as it is now, None when there is none of this id."""
        entry = self._entries.get(job_id)
        return None if entry is None else entry.job

    def all(self) -> list[Job]:
        """Return all jobs that are remembered, those that began first first."""
        return [entry.job for entry in self._entries.values()]

    async def watch(self, job_id: str) -> AsyncIterator[Job]:
        """Yield a job as it is, and again when it has changed, until it has ended or the server is stopping.

        Changes that follow one another fast are told as one. An unknown id yields nothing.
        """
        entry = self._entries.get(job_id)
        while entry is not None:
            told, changed = entry.job, entry.changed
            yield told
            if entry.job is told and not told.has_ended and not self._is_closing:
                await changed.wait()
            if entry.job is told:
                return

    def drain(self) -> None:
        """Take no more jobs, and end all watching; may be called by a signal handler.

        Answers that are being watched would keep a stopping server waiting for their job.
        """
        self._is_closing = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_all)

    async def close(self) -> None:
        """Cancel what waits or runs, and return when it has ended. Work that must not be cut shields itself."""
        self._is_closing = True
        tasks = [entry.task for entry in self._entries.values() if entry.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for entry in self._entries.values():
            if not entry.job.has_ended:  # cancelled before its first step
                self._set(entry, status="failed", error=STOPPED)

    async def _run(self, entry: _Entry, work: Work) -> None:
        try:
            async with self._turn:
                self._set(entry, status="running")
                result = await work(self._report_of(entry))
                self._set(entry, status="succeeded", progress=1.0, result=result)
        except asyncio.CancelledError:
            self._set(entry, status="failed", error=STOPPED)
            raise
        except Exception as error:
            log.error("a job of kind %s failed: %s", entry.job.kind, _text_of(error))
            self._set(entry, status="failed", error=_text_of(error))
        finally:
            entry.task = None

    def _report_of(self, entry: _Entry) -> Report:
        loop = asyncio.get_running_loop()
        told = 0.0

        def report(share: float) -> None:
            nonlocal told
            if share - told >= _LEAST_STEP:
                told = share
                loop.call_soon_threadsafe(self._advance, entry, share)

        return report

    def _advance(self, entry: _Entry, share: float) -> None:
        # Reports of a thread may arrive after the end.
        if entry.job.status == "running" and share > entry.job.progress:
            self._set(entry, progress=min(share, 1.0))

    def _set(self, entry: _Entry, **changes: Any) -> None:
        entry.job = replace(entry.job, **changes)
        entry.changed.set()
        entry.changed = asyncio.Event()

    def _wake_all(self) -> None:
        for entry in self._entries.values():
            entry.changed.set()

    def _forget(self) -> None:
        """Forget those that ended first; a job that has not ended is kept whatever the limit is."""
        ended = [job_id for job_id, entry in self._entries.items() if entry.job.has_ended]
        for job_id in ended[: max(0, len(self._entries) - self._max_kept)]:
            del self._entries[job_id]


def _text_of(error: Exception) -> str:
    """Return what may be told of an error: a text that holds no values, else its type and place."""
    if isinstance(error, (ServiceError, JournalError)):
        return ": ".join(filter(None, (type(error).__name__, str(error))))
    frames = traceback.extract_tb(error.__traceback__)[-1:]
    return "".join([type(error).__name__, *(f" at {Path(frame.filename).name}:{frame.lineno}" for frame in frames)])
