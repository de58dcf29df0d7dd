"""Jobs: long work, one after the other, that callers look up by its id. No HTTP here.

    start --> queued --> running --> succeeded (result)
                |           +------> failed (error)
                +------------------> failed, when it is cancelled, or the server stops

A job's state is an immutable record that is replaced as a whole, so a reader sees one instant of it.

The answers of jobs are kept until they are asked for. They name samples or hold them, so those from before an
erasure are forgotten before it is finished.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from oubli.app.errors import BusyError, RepeatedKeyError, UncancellableJobError
from oubli.app.logs import cause_of
from oubli.app.service.erasure.holders import Hold, Holders

log = logging.getLogger("oubli.jobs")

Status = Literal["queued", "running", "succeeded", "failed"]
Report = Callable[[float], None]
"""Takes the share that is done, from 0 to 1; may be called from any thread."""
Work = Callable[[Report], Awaitable[dict[str, Any]]]
"""Does a job and returns its result."""

STOPPED = "the server was stopped before this job had ended"
CANCELLED = "the job was cancelled"
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
    cancel: Callable[[], object] | None = None
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

    def start(
        self,
        kind: str,
        work: Work,
        job_id: str | None = None,
        body: str = "",
        *,
        cancel: Callable[[], object] | None = None,
    ) -> Job:
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
        cancel
            Has the work end soon and let go of what it holds; None when the job cannot be cancelled.

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
        entry = _Entry(Job(job_id or str(uuid.uuid4()), kind), body, cancel)
        self._entries[entry.job.id] = entry
        entry.task = self._loop.create_task(self._run(entry, work))
        self._forget()
        return entry.job

    def get(self, job_id: str) -> Job | None:
        """Return a job as it is now, None when there is none of this id."""
        entry = self._entries.get(job_id)
        return None if entry is None else entry.job

    def cancel(self, job_id: str) -> Job:
        """Cancel a job that is known, unless it has ended. The next one has its turn when the work has ended.

        Raises
        ------
        UncancellableJobError
            When it changes the model or its files.
        """
        entry = self._entries[job_id]
        if not entry.job.has_ended:
            if entry.cancel is None:
                raise UncancellableJobError
            entry.cancel()
            if entry.job.status == "queued" and entry.task is not None:
                entry.task.cancel()
            self._set(entry, status="failed", error=CANCELLED)
        return entry.job

    def all(self) -> list[Job]:
        """Return all jobs that are remembered, those that began first first."""
        return [entry.job for entry in self._entries.values()]

    async def watch(self, job_id: str) -> AsyncIterator[Job]:
        """Yield a job as it is, and again when it has changed, until it has ended or the server is stopping.

        Changes that follow one another fast are yielded as one. An unknown id yields nothing.
        """
        entry = self._entries.get(job_id)
        while entry is not None:
            shown, changed = entry.job, entry.changed
            yield shown
            if entry.job is shown and not shown.has_ended and not self._is_closing:
                await changed.wait()
            if entry.job is shown:
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
            if not entry.job.has_ended:
                log.error("a job of kind %s failed: %s", entry.job.kind, cause_of(error))
            self._set(entry, status="failed", error=cause_of(error))
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
        if entry.job.has_ended:  # cancelled
            return
        entry.job = replace(entry.job, **changes)
        entry.changed.set()
        entry.changed = asyncio.Event()

    def _wake_all(self) -> None:
        for entry in self._entries.values():
            entry.changed.set()

    def _forget(self) -> None:
        """Forget those that ended first; a job that has not ended is kept whatever the limit is."""
        ended = [job_id for job_id, entry in self._entries.items() if entry.task is None or entry.task.done()]
        for job_id in ended[: max(0, len(self._entries) - self._max_kept)]:
            del self._entries[job_id]


Answer = TypeVar("Answer")


@dataclass(slots=True)
class Asked:
    """A question that is being answered, or is going to be.

    Attributes
    ----------
    hold
        On what it holds of samples.
    name
        Under which the answer is kept; None when it is not.
    report
        Takes in the progress of a job.
    """

    hold: Hold
    name: str | None = None
    report: Report | None = None

    def tell(self, share: float) -> None:
        """Tell how far it is."""
        if self.report is not None:
            self.report(share)


class KeptAnswers(Generic[Answer]):
    """The newest answers of jobs, by name.

    Parameters
    ----------
    kind
        A key of `holders.KINDS`.
    most
        Answers that are kept.
    holders
        Say when to forget.
    """

    def __init__(self, kind: str, most: int, holders: Holders) -> None:
        self._most = most
        self._answers: dict[str, tuple[int, Answer]] = {}  # with the period in which they were asked for
        holders.register(kind, self.forget)

    def keep(self, name: str, period: int, answer: Answer) -> None:
        """Keep an answer to a question of a period."""
        self._answers[name] = period, answer
        for old in list(self._answers)[: -self._most]:
            del self._answers[old]

    def get(self, name: str) -> Answer | None:
        """Return an answer; None when it is not known any more."""
        kept = self._answers.get(name)
        return None if kept is None else kept[1]

    def drop(self, name: str) -> None:
        """Forget one answer."""
        self._answers.pop(name, None)

    def forget(self, period: int) -> None:
        """Forget the answers to questions of a period or before it."""
        self._answers = {name: kept for name, kept in self._answers.items() if kept[0] > period}


async def soon_or_job(
    asked: Asked,
    answering: asyncio.Future[Answer],
    seconds: float,
    jobs: JobBoard,
    kind: str,
    result: Callable[[Asked, Answer], dict[str, Any]],
) -> Answer | Job:
    """Return an answer that comes within some seconds; otherwise a job that continues with it and keeps it."""
    done, _ = await asyncio.wait({answering}, timeout=seconds)
    if done:
        return answering.result()

    async def work(report: Report) -> dict[str, Any]:
        asked.report = report
        return result(asked, await asyncio.shield(answering))

    job = jobs.start(kind, work, cancel=asked.hold.end)
    asked.name = str(uuid.uuid4())
    return job


Question = TypeVar("Question")


def held_job(
    jobs: JobBoard,
    kind: str,
    holders: Holders,
    holder: str,
    question: Question,
    answer: Callable[[Question, Asked], Awaitable[Answer]],
    result: Callable[[Asked, Answer], dict[str, Any]],
) -> Job:
    """Begin a job whose question may name or hold samples: an erasure drops it while it waits for its turn.

    Parameters
    ----------
    jobs, kind
        The board, and what sort of job it is.
    holders, holder
        The registry of what may hold samples, and the question's kind there.
    question
        What is asked.
    answer
        Answers a question and keeps the answer under its name; lets go of the hold.
    result
        Makes the result of the job from the answer.
    """
    waiting = [question]

    def end() -> None:
        if waiting:  # the job has not begun: no other code lets go
            waiting.clear()
            asked.hold.let_go()

    async def work(report: Report) -> dict[str, Any]:
        asked.hold.require()
        asked.name, asked.report = str(uuid.uuid4()), report
        return result(asked, await answer(waiting.pop(), asked))

    asked = Asked(holders.hold(holder, end))
    try:
        return jobs.start(kind, work, cancel=asked.hold.end)
    except BaseException:
        asked.hold.let_go()
        raise
