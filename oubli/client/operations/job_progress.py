"""Jobs: long work that goes on in the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as replaced
from typing import Any
from urllib.parse import quote

import orjson

from oubli.client.errors import JobFailedError, NoAnswerError, ProblemError, WaitTimeoutError
from oubli.client.messages import Close, Emit, Emits, Flow, NextEvent, Sleep
from oubli.client.operations.requests import FIRST_POLL, LONGEST_POLL, local, object_of, reading
from oubli.client.results import Job, read
from oubli.client.session import Session


def job(session: Session, job_id: str) -> Flow[Job]:
    """Return where a job is.

    Raises
    ------
    NotFoundError
        When it is not known, or forgotten.
    """
    found = read(Job, (yield from session.ask(local(f"/jobs/{quote(job_id, safe='')}"))))
    session.saw(found.result)
    return found


def jobs(session: Session) -> Flow[list[Job]]:
    """Return the jobs that wait or run, and those that ended a short time ago."""
    content = object_of((yield from session.ask(reading("/jobs"))))
    return [read(Job, one) for one in content.get("jobs", [])]


def watch(session: Session, job: Job | str) -> Emits[Job]:
    """Iterate over the states of a job until it has ended: from the server's events, or by asking again and again.

    Parameters
    ----------
    job : Job or str
        The job or its id.

    Raises
    ------
    NotFoundError
        When it is not known any more, for instance because the server was started anew.
    """
    follower = _Follower(session, job)
    while True:
        state = yield from follower.next()
        yield Emit(state)
        if state.has_ended:
            return


def wait(
    session: Session,
    job: Job | str,
    *,
    progress: Callable[[float], object] | None = None,
    timeout: float | None = None,
) -> Flow[Job]:
    """Wait until a job has succeeded.

    Parameters
    ----------
    job : Job or str
        The job or its id.
    progress : callable, optional
        Called with the share that is done, whenever it has changed.
    timeout : float, optional
        In seconds; by default as long as it takes.

    Returns
    -------
    Job
        With its result.

    Raises
    ------
    JobFailedError
        When it has failed.
    WaitTimeoutError
        When it has not ended in time; it goes on.
    NotFoundError
        When it is not known any more, for instance because the server was started anew.
    """
    # A stream may be silent for long: only asking again keeps to a time.
    follower = _Follower(session, job, may_stream=timeout is None)
    deadline = None if timeout is None else session.clock() + timeout
    while True:
        state = yield from follower.next()
        if progress is not None:
            progress(state.progress)
        if state.status == "failed":
            raise JobFailedError(state.id, state.error or "the server does not say why")
        if state.has_ended:
            return state
        if deadline is not None and session.clock() >= deadline:
            raise WaitTimeoutError("the job has not ended in time; it goes on")


class _Follower:
    """Knows where a job is, from a stream of events where there is one."""

    def __init__(self, session: Session, job: Job | str, *, may_stream: bool = True) -> None:
        self._session = session
        self._id = job if isinstance(job, str) else job.id
        self._may_stream = may_stream
        self._stream: Any = None
        self._pause = FIRST_POLL
        self._last: Job | None = None

    def next(self) -> Flow[Job]:
        """Return the next state: at once at first, then when it has changed, or after a while."""
        if self._may_stream:
            state = yield from self._from_stream()
            if state is not None:
                return state
        if self._last is not None:
            yield Sleep(self._pause)
            self._pause = min(LONGEST_POLL, 1.5 * self._pause)
        self._last = yield from job(self._session, self._id)
        return self._last

    def _from_stream(self) -> Flow[Job | None]:
        """Return the next state of the stream, which is opened if need be; None when there is none."""
        try:
            if self._stream is None:
                request = replaced(
                    local(f"/jobs/{quote(self._id, safe='')}/events"),
                    headers={"Accept": "text/event-stream"},
                    is_streamed=True,
                )
                answer = yield from self._session.exchange(request)
                self._stream = answer.stream
                if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                    self._may_stream = False
                    yield from self._close()
                    return None
            data = yield NextEvent(self._stream)
            if data is None:
                yield from self._close()
                return None
            state = read(Job, orjson.loads(data))
        except ProblemError as error:
            if error.kind == "no-job":
                raise
            self._may_stream = False
            return None
        except (NoAnswerError, orjson.JSONDecodeError):
            yield from self._close()
            return None
        if state.has_ended:
            yield from self._close()
        self._session.saw(state.result)
        self._last = state
        return state

    def _close(self) -> Flow[None]:
        if self._stream is not None:
            yield Close(self._stream)
        self._stream = None
