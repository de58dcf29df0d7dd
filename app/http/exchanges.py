"""What connections may hold of samples: the last request of one that is idle, and what is in flight.

An idle connection keeps the request that it was asked last, until it is asked something else or closed. A request that
came in half, or an answer that is not taken in, can lie for as long as the client likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from oubli.app.http.stream_state import STREAM, Stream
from oubli.app.service.holders import Holders

if TYPE_CHECKING:
    from oubli.app.http.protocol import OubliProtocol

_EVENTS = "/events"
_READS, _BLOCKS = 2, 2  # of a stream, after which nothing is kept of what had come
_UPLOAD = "/snapshot/file"
# Requests that hold nothing of any sample; the first waits for what is finished here.
_SAFE = frozenset({"/snapshot", "/model/fit", "/model/scrub", "/model/verify"})


class Exchanges:
    """What is in flight on the connections of a server, registered with what may hold samples.

    Parameters
    ----------
    holders
        The registry.
    found
        Returns the connections there are.
    """

    def __init__(self, holders: Holders, found: Callable[[], Iterable[OubliProtocol]]) -> None:
        self._found = found
        holders.register("connections", self._forget, self._in_flight)

    def _forget(self, period: int) -> None:
        del period  # what an idle connection keeps is of no use to anybody, whenever it came
        for connection in list(self._found()):
            connection.forget()

    def _in_flight(self) -> Iterator[_Exchange]:
        for connection in list(self._found()):
            exchange = _Exchange(connection)
            if not exchange.is_over:
                yield exchange


class _Exchange:
    """A request with its answer, from its first byte until the client has taken in the last.

    Of a stream it is what had come when it was looked at: that is over when what came then was read, and when two more
    blocks were begun, the first of which may have begun before.
    """

    def __init__(self, connection: OubliProtocol) -> None:
        self._connection = connection
        self._cycle = connection.cycle
        self._was_reading = connection.is_reading
        self._buffer: Any = getattr(self._cycle, "body", None)
        self._n_reads = 0
        self._n_blocks: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        connection = self._connection
        stream = self._stream
        if stream is not None:
            return self._is_past(stream)
        if _is_unsent(connection):
            return False
        if self._was_reading and connection.is_reading and connection.cycle is self._cycle:
            return connection.transport.is_closing() or _is_safe(self._cycle)
        self._was_reading = False
        cycle = self._cycle
        return cycle is None or cycle.response_complete or connection.transport.is_closing() or _is_safe(cycle)

    def end(self) -> None:
        """Cut the connection when it is the client that is waited for, or a stream."""
        if (
            self._stream is not None
            or _is_unsent(self._connection)
            or (self._was_reading and self._connection.is_reading)
        ):
            self._connection.transport.abort()

    @property
    def _stream(self) -> Stream | None:
        """The stream that this is as long as it goes on."""
        cycle = self._cycle
        if cycle is None or cycle is not self._connection.cycle or cycle.response_complete:
            return None
        if self._connection.transport.is_closing():
            return None
        found: Stream | None = (getattr(cycle, "scope", None) or {}).get(STREAM)
        return found

    def _is_past(self, stream: Stream) -> bool:
        buffer = self._cycle.body
        if buffer is not self._buffer:  # uvicorn begins a new one when the application has read
            self._buffer = buffer
            self._n_reads += 1
        if self._n_reads < _READS:
            return False
        if self._n_blocks is None:
            self._n_blocks = stream.n_blocks
        return stream.n_blocks >= self._n_blocks + _BLOCKS and not stream.keeps_all


def _is_unsent(connection: OubliProtocol) -> bool:
    return bool(connection.transport.get_write_buffer_size())


def _is_safe(cycle: Any) -> bool:
    """Whether a request on the ordinary way holds nothing of any sample."""
    scope = getattr(cycle, "scope", None)
    if scope is None or cycle.response_complete:
        return False
    path = scope.get("path", "")
    if path == _UPLOAD:
        return bool(scope.get("method") == "PUT")  # it has a hold of its own
    return path in _SAFE or path.endswith(_EVENTS)
