"""Streams of events that many may listen to: an event is made and encoded once, whoever and however many listen.

    Source     makes events: looks at something now and then
    Feed       one task that has the source look while anyone listens, and none when nobody does
    listener   where bytes that all share are written at once; while its client does not read, they wait in a short
               queue, and who does not read in time is dropped

`events.py` and `metrics_events.py` are the two sources.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import orjson
from starlette.responses import StreamingResponse
from starlette.types import Scope

from oubli.app.http.stream_state import PUSH
from oubli.app.logs import place_of

log = logging.getLogger("oubli.http")

TICK = 0.5  # seconds between two looks: each costs a write for everybody who listens
HEARTBEAT = 15.0  # seconds without an event after which a comment is sent
MOST_WAITING = 64  # pieces that a listener may leave lying
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
        """Return what a new listener is told first, right after a look.

        Parameters
        ----------
        last_id
            Of the last event that it got before; None when it is new.
        """


class _Listener:
    """What is told and not yet sent.

    Parameters
    ----------
    push
        Writes a chunk past the layers of the application, which see only the first one: they would cost more than all
        the rest of telling. None where that cannot be done.
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
    """Tells events to all who listen. It belongs to the event loop.

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
        """How many listen."""
        return len(self._listeners)

    @property
    def is_running(self) -> bool:
        """Whether anything is looked at."""
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
            When too many were not taken in: the listener is dropped.
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
        except Exception as error:  # whatever it was: they listen anew
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
    return b"%sdata: %s\n\n" % (head.encode("ascii"), orjson.dumps(content, option=orjson.OPT_UTC_Z))


def stream_of(feed: Feed, scope: Scope, last_id: str | None = None) -> EventStream:
    """Return the answer to who listens."""
    # A proxy that collects an answer before it passes it on would keep events back.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return EventStream(feed.listen(last_id, scope.get(PUSH)), headers=headers)
