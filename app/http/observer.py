"""Who is told of every request that was answered: metrics, traces and the access log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from oubli.app.http.correlation import Correlation

UNKNOWN_ROUTE = "unknown"
"""Stands for the route of a request that was refused before it had one."""
OTHER_METHOD = "_OTHER"
"""Stands for a method that HTTP does not know: it could be any text. So does OpenTelemetry name it."""
NOT_ANSWERED = 499
"""Stands for the status of a request whose client has gone."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"})


class Observer(Protocol):
    """Told of each request once, when it is answered, on the fast path and on the ordinary path."""

    def __call__(
        self, method: str, route: str, status: int, seconds: float, request_id: bytes, correlation: Correlation
    ) -> None:
        """Take note of a request; called on the event loop, so it must be short and must not raise.

        Parameters
        ----------
        method
            Of the request, one of `METHODS` or `OTHER_METHOD`.
        route
            Template of its path, such as ``"/samples/{id}"``, or `UNKNOWN_ROUTE`; never the path, which can hold an id.
        status
            Of its answer, or `NOT_ANSWERED`.
        seconds
            From its head, or on the fast path from its last byte, until its answer was made.
        request_id
            The one that its answer carries.
        correlation
            What the request says that joins it with others.
        """
        ...


def all_of(observers: Sequence[Observer]) -> Observer:
    """Return an observer that tells some others, in their order."""
    if len(observers) == 1:
        return observers[0]

    def observe(
        method: str, route: str, status: int, seconds: float, request_id: bytes, correlation: Correlation
    ) -> None:
        for observer in observers:
            observer(method, route, status, seconds, request_id, correlation)

    return observe
