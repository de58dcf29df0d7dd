"""Who is told of every request that was answered: the place for metrics and traces."""

from typing import Protocol

UNKNOWN_ROUTE = "unknown"
"""Stands for the route of a request that was refused before it had one."""
NOT_ANSWERED = 499
"""Stands for the status of a request whose client has gone."""


class Observer(Protocol):
    """Told of each request once, when it is answered, on the fast path and on the ordinary path."""

    def __call__(self, method: str, route: str, status: int, seconds: float) -> None:
        """Take note of a request; called on the event loop, so it must be short and must not raise.

        Parameters
        ----------
        method
            Of the request.
        route
            Template of its path, such as ``"/samples/{id}"``, or `UNKNOWN_ROUTE`; never the path, which can hold an id.
        status
            Of its answer, or `NOT_ANSWERED`.
        seconds
            From its head, or on the fast path from its last byte, until its answer was made.
        """
        ...
