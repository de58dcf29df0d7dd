"""Jobs: long work of the server."""

from __future__ import annotations

from dataclasses import replace as replaced
from typing import Any
from urllib.parse import quote

import orjson

from oubli.api.model import Job, JobsAnswer
from oubli.client.errors import JobFailedError, NoAnswerError, ProblemError, WaitTimeoutError
from oubli.client.messages import Close, Emit, Emits, Flow, NextEvent, Sleep
from oubli.client.operations.requests import FIRST_POLL, LONGEST_POLL, Progress, local, reading, reporting
from oubli.client.results import read
from oubli.client.session import Session


def job(session: Session, job_id: str) -> Flow[Job]:
    """Return where a job is.

    Raises
    ------
    NotFoundError
        When it is not known, or forgotten.

    Examples
    --------
    >>> client.job(client.verify().id).kind
    'verify'
    """
    found = read(Job, (yield from session.ask(local(f"/jobs/{quote(job_id, safe='')}"))))
    session.saw(found.result)
    return found


def jobs(session: Session) -> Flow[list[Job]]:
    """Return the jobs that wait or run, and those that ended a short time ago.

    Examples
    --------
    >>> started = client.verify()
    >>> started.id in [job.id for job in client.jobs()]
    True
    """
    return read(JobsAnswer, (yield from session.ask(reading("/jobs")))).jobs


def cancel(session: Session, job_id: str) -> Flow[Job]:
    """Cancel a job that answers a question or makes a bundle, and return it; one that has ended stays as it is.

    Raises
    ------
    ConflictError
        When it changes the model or its files.
    NotFoundError
        When it is not known, or forgotten.

    Examples
    --------
    >>> job = client.wait(client.verify())
    >>> client.cancel(job.id).status  # it has ended
    'succeeded'
    """
    asked = replaced(local(f"/jobs/{quote(job_id, safe='')}"), method="DELETE")
    return read(Job, (yield from session.ask(asked)))


def watch(session: Session, job: Job | str) -> Emits[Job]:
    """Iterate over the states of a job until it has ended: from the server's events, or by asking again and again.

    Parameters
    ----------
    job : Job or str
        The job or its id.

    Raises
    ------
    NotFoundError
        When it is not known any more, for instance because the server was restarted.

    Examples
    --------
    >>> [job.status for job in client.watch(client.verify())][-1]
    'succeeded'
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
    progress: Progress | None = None,
    timeout: float | None = None,
) -> Flow[Job]:
    """Wait until a job has succeeded.

    Parameters
    ----------
    job : Job or str
        The job or its id.
    progress : bool or callable, optional
        True shows a bar with tqdm, or rich if that is not installed. A function is called with the share that is done,
        whenever it has changed.
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
        When it has not ended in time; it keeps running.
    NotFoundError
        When it is not known any more, for instance because the server was restarted.

    Examples
    --------
    >>> client.wait(client.verify(), progress=lambda share: None, timeout=60).result["ok"]
    True
    """
    # A stream may be silent for long: only asking again keeps to a time.
    follower = _Follower(session, job, may_stream=timeout is None)
    deadline = None if timeout is None else session.clock() + timeout
    with reporting(progress, "waiting") as report:
        while True:
            state = yield from follower.next()
            report(state.progress)
            if state.status == "failed":
                raise JobFailedError(state.id, state.error or "the server does not say why")
            if state.has_ended:
                return state
            if deadline is not None and session.clock() >= deadline:
                raise WaitTimeoutError("the job has not ended in time; it keeps running")


def result_of(
    session: Session,
    content: Any,
    *,
    progress: Progress | None = None,
    timeout: float | None = None,
) -> Flow[Any]:
    """Internal: wait for the job that a request has begun, and return its result as the server sends it; see `wait`.

    Parameters
    ----------
    content : object
        The job as the server has sent it.
    """
    ended = yield from wait(session, read(Job, content), progress=progress, timeout=timeout)
    return (yield from session.ask(local(f"/jobs/{quote(ended.id, safe='')}/result")))


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
