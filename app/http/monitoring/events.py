"""Streams of `GET /events`: an event is made and encoded once, for all listeners.

    Source     makes events: reads the service every half second
    Feed       one task that calls the source while there are listeners
    listener   gets bytes that all listeners share; they wait in a short queue while its client does not read, and a
               client that does not read in time is cut off

There are two sources. `StateEvents` sends a section of the server's state whole when it changes. `MetricsEvents` sends
the metrics of the last second.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import orjson
from starlette.responses import StreamingResponse
from starlette.types import Scope

from oubli.app.http.connection.connections import PUSH
from oubli.app.http.monitoring.metrics import Request as Counted
from oubli.app.http.monitoring.metrics import RequestMetrics
from oubli.app.logs import place_of
from oubli.app.service.measurements import Measurements
from oubli.app.service.service import Service
from oubli.app.times import BOUNDS, to_text
from oubli.app.version import VERSION

MOST_JOBS = 20


class StateEvents:
    """Makes the events of changes of a service's state, without anything of a sample.

    Parameters
    ----------
    service
        Is read.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._server = secrets.token_hex(4)
        self._started_at = to_text(time.time_ns() // 1_000_000)
        self._n_told = 0
        self._deadline = NextDeadline(service)
        self._told: dict[str, Any] = {}
        service.model.holders.register("events", self._forget)

    def _forget(self, period: int) -> None:
        """Forget the last snapshot that was sent: without listeners it may be from before an erasure."""
        del period
        self._told.pop("snapshot", None)

    def look(self) -> bytes:
        """Return an event for each section that has changed."""
        now, before = self._sections(), self._told
        changed = [name for name, section in now.items() if section != before.get(name)]
        self._told = now
        pieces = []
        for name in changed:
            self._n_told += 1
            pieces.append(encode_event(name, now[name], self._last_id))
        return b"".join(pieces)

    def hello(self, last_id: str | None) -> bytes:
        """Return all sections, and whether nothing has changed since an event."""
        about = {"server": self._server, "version": VERSION, "started_at": self._started_at}
        content = {**about, "resumed": last_id == self._last_id, **self._told}
        return encode_event("hello", content, self._last_id)

    @property
    def _last_id(self) -> str:
        return f"{self._server}.{self._n_told}"

    def _sections(self) -> dict[str, Any]:
        service, state = self._service, self._service.model.state
        model = state.model
        measured = service.measure()
        check, newest = measured.check, service.disk.newest_snapshot
        return {
            "model": {
                "kind": model.kind,
                "task": str(model.task),
                "guarantee": model.guarantee,
                "model_version": state.version,
                "n_samples": measured.n_samples,
                "n_restricted": len(model.samples_.restricted) if model.is_usable else 0,
                "lazy_tags": measured.lazy_tags,
                "durable": service.disk.is_durable,
            },
            "changes": {"state": "accepted" if state.stopped is None else "stopped", "reason": state.stopped},
            "expiry": {"paused": service.erasure.retention.paused},
            "erasures": {
                **_pending(measured, self._deadline),
                "erased": service.erasure.erasures.n_erased,
                "erased_late": service.erasure.erasures.n_late,
            },
            "snapshot": None
            if newest is None
            else {
                "id": newest.id,
                "model_version": newest.model_version,
                "created_at": time_text(newest.created_at.timestamp()),
                "bytes": newest.bytes,
                "digest": newest.digest,
            },
            "check": None
            if check is None
            else {"at": time_text(check.at), "model_version": check.model_version, "ok": check.is_ok},
            "scrub": None if measured.scrubbed_at is None else {"at": time_text(measured.scrubbed_at)},
            "ledger": {"index": service.disk.ledger.head.index},
            "jobs": [
                {"id": job.id, "kind": job.kind, "status": job.status, "progress": round(job.progress, 3)}
                for job in service.jobs.board.all()[-MOST_JOBS:]
            ],
            "work": [{"kind": one.kind, "progress": round(one.progress, 3)} for one in service.jobs.activities],
        }


class NextDeadline:
    """When the oldest erasure is due, as a time that stays the same as long as it is the oldest.

    Parameters
    ----------
    service
        Knows the erasures.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: tuple[str, str] | None = None

    def text(self) -> str | None:
        """Return it in RFC 3339; None when no erasure waits."""
        found = self._service.erasure.erasures.deadline.next_in()
        if found is None:
            self._known = None
            return None
        name, seconds = found
        if self._known is None or self._known[0] != name:
            self._known = name, to_text(self._service.model.clock.latest_ms() + round(1000 * seconds))
        return self._known[1]


def _pending(measured: Measurements, deadline: NextDeadline) -> dict[str, Any]:
    """Return the erasures that are not finished, as an object."""
    return {
        "pending": measured.pending_erasures,
        "overdue": measured.overdue_erasures,
        "deadline_s": measured.erasure_deadline,
        "next_deadline_at": deadline.text(),
    }


def time_text(seconds: float) -> str:
    """Return a time in seconds since 1970 as text."""
    return to_text(round(1000 * seconds))


_SECOND = 1.0
_TOLERANCE = 0.05  # a call that comes a little early is in time
_STALE = 2.5  # seconds after which the line before is too old for rates
_PREDICT, _ADD, _DELETE = "predict", "add", "delete"
_GROUPS = {
    ("POST", "/predict"): _PREDICT,
    ("POST", "/v2/models/{model_name}/infer"): _PREDICT,
    ("POST", "/v2/models/{model_name}/versions/{model_version}/infer"): _PREDICT,
    ("POST", "/samples"): _ADD,
    ("DELETE", "/samples"): _DELETE,
    ("DELETE", "/samples/{id}"): _DELETE,
    ("POST", "/samples/batch-delete"): _DELETE,
}
Counts = dict[str, list[int]]


class MetricsEvents:
    """Makes the lines; rates are over the time since the line before.

    Parameters
    ----------
    service
        Is measured.
    metrics
        Has counted its requests.
    """

    def __init__(self, service: Service, metrics: RequestMetrics) -> None:
        self._service = service
        self._metrics = metrics
        self._started = time.monotonic()
        self._deadline = NextDeadline(service)
        self._at = float("-inf")
        self._counts: Counts = {}
        self._n_resolved = 0
        self._line = b""

    def look(self) -> bytes:
        """Return the next line; empty while it is not time for one."""
        now = time.monotonic()
        seconds = now - self._at
        if seconds < _SECOND - _TOLERANCE:
            return b""
        counts, resolved = counts_of(self._metrics.copy()), self._service.model.state.n_resolved
        is_fresh = seconds < _STALE
        before = self._counts if is_fresh else None
        content = {
            "at": to_text(self._service.model.clock.latest_ms()),
            "uptime_s": round(now - self._started, 1),
            **{group: _rate(group, counts, before, seconds) for group in (_PREDICT, _ADD, _DELETE)},
            "resolved_per_second": round((resolved - self._n_resolved) / seconds, 1) if is_fresh else None,
            **self._state(),
        }
        self._at, self._counts, self._n_resolved = now, counts, resolved
        self._line = encode_event("metrics", content)
        return self._line

    def hello(self, last_id: str | None) -> bytes:
        """Return the newest line."""
        del last_id
        return self._line

    def _state(self) -> dict[str, Any]:
        measured = self._service.measure()
        return {
            "phase": measured.phase,
            "model_version": measured.model_version,
            "n_samples": measured.n_samples,
            "lazy_tags": measured.lazy_tags,
            "journal": {
                "records": measured.journal_records,
                "bytes": measured.journal_bytes,
                "oldest_at": _moment(measured.journal_oldest_at),
            },
            "snapshot": {"at": _moment(measured.snapshot_at), "lag_records": measured.snapshot_lag},
            "scrub": {"at": _moment(measured.scrubbed_at)},
            "erasures": _pending(measured, self._deadline),
            "waiting": measured.waiting,
            "waiting_limit": measured.most_waiting,
            "memory": {"model_bytes": measured.model_bytes, "process_bytes": _resident_bytes()},
        }


def counts_of(durations: dict[Counted, Any]) -> Counts:
    """Return how many requests that were answered as asked took how long, by group and bucket of `BOUNDS`."""
    counts: Counts = {}
    for (method, route, status), histogram in durations.items():
        group = _GROUPS.get((method, route))
        if group is not None and 200 <= status < 300:
            known = counts.get(group)
            counts[group] = (
                histogram.counts if known is None else [a + b for a, b in zip(known, histogram.counts, strict=True)]
            )
    return counts


def quantile_ms(counts: list[int], share: float) -> float | None:
    """Return the duration, in milliseconds, that a share of requests stays below; None without requests.

    Within a bucket durations are taken as spread evenly; beyond the last bound it is that bound.
    """
    wanted = share * sum(counts)
    if not wanted:
        return None
    up_to_each = list(accumulate(counts))
    bucket = bisect_left(up_to_each, wanted)
    if bucket == len(BOUNDS):
        return 1000 * BOUNDS[-1]
    low, high = (BOUNDS[bucket - 1] if bucket else 0.0), BOUNDS[bucket]
    return round(1000 * (high - (high - low) * (up_to_each[bucket] - wanted) / counts[bucket]), 4)


def _rate(group: str, counts: Counts, before: Counts | None, seconds: float) -> dict[str, float | None]:
    if before is None:
        return {"per_second": None, "p50_ms": None, "p99_ms": None}
    now = counts.get(group, [0] * (len(BOUNDS) + 1))
    earlier = before.get(group, [0] * len(now))
    new = [a - b for a, b in zip(now, earlier, strict=True)]
    return {
        "per_second": round(sum(new) / seconds, 1),
        "p50_ms": quantile_ms(new, 0.5),
        "p99_ms": quantile_ms(new, 0.99),
    }


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else time_text(seconds)


def _resident_bytes() -> int | None:
    """Return how much memory the process has; None where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


log = logging.getLogger("oubli.http")

TICK = 0.5  # seconds between two reads of the source: each costs a write for each listener
HEARTBEAT = 15.0  # seconds without an event after which a comment is sent
MOST_WAITING = 64  # pieces that may wait for a listener
COMMENT = b":\n\n"
BYE = b"event: bye\ndata: {}\n\n"
Push = Callable[[bytes], bool]
"""Writes a chunk; see `PUSH`."""


class EventStream(StreamingResponse):
    """Server-sent events as they are; FastAPI's own response encodes them for each listener."""

    media_type = "text/event-stream"


class Source(Protocol):
    """Makes the events of a feed; called on the event loop, so it must be short."""

    def look(self) -> bytes:
        """Return the events since the last look, encoded; empty when there are none."""

    def hello(self, last_id: str | None) -> bytes:
        """Return the first bytes for a new listener, right after `look`.

        Parameters
        ----------
        last_id
            Of the last event that it got before; None when it is new.
        """


class _Listener:
    """The bytes for one listener that are not sent yet.

    Parameters
    ----------
    push
        Writes a chunk past the layers of the application, which see only the first chunk: they would cost more than
        everything else here. None where that cannot be done.
    """

    __slots__ = ("_push", "has_begun", "is_late", "is_over", "waiting", "woken")

    def __init__(self, push: Push | None) -> None:
        self._push = push
        self.has_begun = False
        self.waiting: deque[bytes] = deque()
        self.woken = asyncio.Event()
        self.is_late = False
        self.is_over = False

    def tell(self, piece: bytes, chunk: bytes) -> None:
        if self._push is not None and self.has_begun and not self.waiting and self._push(chunk):
            return
        if len(self.waiting) >= MOST_WAITING:
            self.is_late = True
            self.waiting.clear()
        elif not self.is_late:
            self.waiting.append(piece)
        self.woken.set()

    def end(self) -> None:
        self.is_over = True
        self.woken.set()

    def take(self) -> bytes:
        told = b"".join(self.waiting)
        self.waiting.clear()
        self.woken.clear()
        return told


class Feed:
    """Sends events to all listeners. It belongs to the event loop.

    Parameters
    ----------
    source
        Makes them.
    is_ending
        Says whether the server is stopping: then all streams end.
    """

    def __init__(self, source: Source, is_ending: Callable[[], bool]) -> None:
        self._source = source
        self._is_ending = is_ending
        self._listeners: set[_Listener] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def n_listeners(self) -> int:
        """The number of listeners."""
        return len(self._listeners)

    @property
    def is_running(self) -> bool:
        """Whether the source is read."""
        return self._task is not None

    async def listen(self, last_id: str | None = None, push: Push | None = None) -> AsyncIterator[bytes]:
        """Yield events that were not pushed, several of them at once when that is faster, until the server stops.

        Parameters
        ----------
        last_id
            See `Source`.
        push
            Writes a chunk of the answer, once it has begun; false when it cannot at the moment.

        Raises
        ------
        ConnectionAbortedError
            When too many pieces wait: the listener is dropped.
        """
        self._tell(self._source.look())
        listener, first = _Listener(push), self._source.hello(last_id)
        self._listeners.add(listener)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            yield first
            listener.has_begun = True
            while True:
                await listener.woken.wait()
                if listener.is_late:
                    raise ConnectionAbortedError
                told = listener.take()
                if told:
                    yield told
                if listener.is_over and not listener.waiting:
                    return
        finally:
            self._listeners.discard(listener)

    async def _run(self) -> None:
        quiet_since = time.monotonic()
        try:
            while self._listeners and not self._is_ending():
                await asyncio.sleep(TICK)
                told = self._source.look()
                now = time.monotonic()
                if not told and now - quiet_since >= HEARTBEAT:
                    told = COMMENT
                if told:
                    quiet_since = now
                    self._tell(told)
        except Exception as error:  # the listeners connect again
            log.error("a stream of events has failed: %s", place_of(error))
        finally:
            self._task = None
            self._tell(BYE)
            for listener in self._listeners:
                listener.end()

    def _tell(self, told: bytes) -> None:
        if told:
            chunk = b"%x\r\n%b\r\n" % (len(told), told)
            for listener in self._listeners:
                listener.tell(told, chunk)


def encode_event(name: str, content: object, event_id: str | None = None) -> bytes:
    """Return a server-sent event."""
    head = f"event: {name}\n" if event_id is None else f"event: {name}\nid: {event_id}\n"
    return b"%sdata: %s\n\n" % (head.encode("ascii"), orjson.dumps(content))


def stream_of(feed: Feed, scope: Scope, last_id: str | None = None) -> EventStream:
    """Return the answer with a stream."""
    # A proxy that collects an answer before it passes it on would keep events back.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return EventStream(feed.listen(last_id, scope.get(PUSH)), headers=headers)
