"""Who is told of every request that was answered: metrics, traces and the access log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from oubli.app import logs
from oubli.app.http.correlation import REQUEST_ID, Correlation, correlation_of, new_request_id
from oubli.app.service.stages import Stages, stages

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class Observed:
    """Names each request, and tells an observer of it: the outermost layer of an application, as plain ASGI.

    Parameters
    ----------
    app
        The application inside.
    observer
        Told of each request that was answered; None: nobody.
    notes_stages
        Whether the observer reads the stages of requests.
    """

    def __init__(self, app: ASGIApp, observer: Observer | None = None, *, notes_stages: bool = False) -> None:
        self._app = app
        self._observer = observer
        self._notes_stages = notes_stages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on, and put its id into the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        status = NOT_ANSWERED
        correlation = correlation_of(scope["headers"])
        request_id = correlation.request_id or new_request_id()
        # Log lines of this request have it, and those of what it begins in the background.
        logs.request_id.set(request_id.decode("ascii"))
        if self._notes_stages:
            stages.set(Stages(started))

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), (REQUEST_ID, request_id)]}
            await send(message)

        try:
            await self._app(scope, receive, named)
        finally:
            if self._observer is not None:
                method = scope["method"] if scope["method"] in METHODS else OTHER_METHOD
                route = getattr(scope.get("route"), "path_format", UNKNOWN_ROUTE)
                self._observer(method, route, status, time.monotonic() - started, request_id, correlation)
