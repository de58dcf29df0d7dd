"""Observers of answered requests, the access log, and the ids of a request: `X-Request-ID` and `traceparent`."""

from __future__ import annotations

import itertools
import logging
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oubli.app import logs
from oubli.app.logs import ACCESS_LOG, fields
from oubli.app.times import Stages, stages

UNKNOWN_ROUTE = "unknown"
"""Stands for the route of a request that was refused before it had one."""
OTHER_METHOD = "_OTHER"
"""Stands for a method that HTTP does not know: it could be any text. So does OpenTelemetry name it."""
NOT_ANSWERED = 499
"""Stands for the status of a request whose client has gone."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"})


class Observer(Protocol):
    """Called once for each request when it is answered, on the fast path and on the ordinary path."""

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
    """Return an observer that calls others, in their order."""
    if len(observers) == 1:
        return observers[0]

    def observe(
        method: str, route: str, status: int, seconds: float, request_id: bytes, correlation: Correlation
    ) -> None:
        for observer in observers:
            observer(method, route, status, seconds, request_id, correlation)

    return observe


class Observed:
    """Names each request and calls an observer for it: the outermost layer of an application, as plain ASGI.

    Parameters
    ----------
    app
        The application inside.
    observer
        Called for each request that was answered; None: no observer.
    notes_stages
        Whether the observer reads the stages of requests.
    """

    def __init__(self, app: ASGIApp, observer: Observer | None = None, *, notes_stages: bool = False) -> None:
        self._app = app
        self._observer = observer
        self._notes_stages = notes_stages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, and put its id into the answer."""
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


log = logging.getLogger(ACCESS_LOG)


def log_access(
    method: str, route: str, status: int, seconds: float, request_id: bytes, correlation: Correlation
) -> None:
    """Log a request; an observer."""
    extra = fields(
        method=method, route=route, status=status, seconds=round(seconds, 6), request_id=request_id.decode("ascii")
    )
    log.info("%s %s %d in %.3f ms", method, route, status, 1000 * seconds, extra=extra)


REQUEST_ID = b"x-request-id"
_TRACEPARENT = b"traceparent"
_NAMES = frozenset({REQUEST_ID, _TRACEPARENT})
_ACCEPTED = re.compile(rb"[A-Za-z0-9._-]{1,64}")

_PREFIX = secrets.token_hex(8).encode("ascii")  # tells processes apart
_ENDS = [b"%02x" % i for i in range(256)]


class Correlation(NamedTuple):
    """What a request says that joins it with others.

    Attributes
    ----------
    request_id
        Its `X-Request-ID`; None when it has none that is accepted, so that one is made.
    traceparent
        As it came, not checked; None when it did not come. `tracestate` is not looked at: it would only be passed on.
    """

    request_id: bytes | None = None
    traceparent: bytes | None = None


ALONE = Correlation()
"""Of a request that says nothing."""


def correlation_of(headers: Iterable[tuple[bytes, bytes]]) -> Correlation:
    """Return what the headers of a request say; of a header that is repeated, the first.

    Parameters
    ----------
    headers
        Names in lower case.
    """
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _NAMES:
            found.setdefault(name, value)
    if not found:
        return ALONE
    given = found.get(REQUEST_ID)
    if given is not None and _ACCEPTED.fullmatch(given) is None:
        given = None
    return Correlation(given, found.get(_TRACEPARENT))


def _made_ids() -> Iterator[bytes]:
    """Yield ids; a random number for each request would cost more than its routing."""
    for i in itertools.count():
        start = b"%b-%x" % (_PREFIX, i)
        for end in _ENDS:
            yield start + end


new_request_id = _made_ids().__next__
"""Returns an id that no other request of this process has, and hardly one of another process."""
