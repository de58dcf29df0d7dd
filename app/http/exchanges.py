"""What connections may hold of samples: the last request of one that is idle, and what is in flight.

An idle connection keeps the request that it was asked last, until it is asked something else or closed. A request that
came in half, or an answer that is not taken in, can lie for as long as the client likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from oubli.app.service.holders import Holders

if TYPE_CHECKING:
    from oubli.app.http.protocol import OubliProtocol

_EVENTS = "/events"
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
    """A request with its answer, from its first byte until the client has taken in the last."""

    def __init__(self, connection: OubliProtocol) -> None:
        self._connection = connection
        self._cycle = connection.cycle
        self._was_reading = connection.is_reading

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        connection = self._connection
        if _is_unsent(connection):
            return False
        if self._was_reading and connection.is_reading and connection.cycle is self._cycle:
            return connection.transport.is_closing() or _is_safe(self._cycle)
        self._was_reading = False
        cycle = self._cycle
        return cycle is None or cycle.response_complete or connection.transport.is_closing() or _is_safe(cycle)

    def end(self) -> None:
        """Cut the connection when it is the client that is waited for."""
        if _is_unsent(self._connection) or (self._was_reading and self._connection.is_reading):
            self._connection.transport.abort()


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
