"""The outermost layer of the application, as plain ASGI: checks access, counts bytes, names requests, catches errors.

The last line behind the routes: an exception that nobody expected becomes a 500 here, and its text goes nowhere,
because it could hold what was submitted. The log gets its type and the place in the code.
"""

import time

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oubli.app import logs
from oubli.app.http.auth import AccessRules, body_too_large, first_values
from oubli.app.http.correlation import REQUEST_ID, correlation_of, new_request_id
from oubli.app.http.observer import METHODS, NOT_ANSWERED, OTHER_METHOD, UNKNOWN_ROUTE, Observer
from oubli.app.http.problems import ProblemError, report_mistake
from oubli.app.service.background import IdleResolver

_EVENTS = "/events"


class Middleware:
    """The outermost layer of the application.

    Parameters
    ----------
    app
        The application inside.
    idle
        Told when requests begin and end.
    rules
        Say which requests may pass.
    observer
        Told of each request that was answered.
    """

    def __init__(self, app: ASGIApp, *, idle: IdleResolver, rules: AccessRules, observer: Observer) -> None:
        self._app = app
        self._idle = idle
        self._rules = rules
        self._observer = observer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, hand it on, and catch what comes out of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0
        correlation = correlation_of(scope["headers"])
        request_id = correlation.request_id or new_request_id()
        # Log lines of this request have it, and those of what it begins in the background.
        logs.request_id.set(request_id.decode("ascii"))

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), (REQUEST_ID, request_id)]}
            await send(message)

        # Whoever watches a job asks nothing of the model, for as long as the job takes.
        is_asking = not scope["path"].endswith(_EVENTS)
        if is_asking:
            self._idle.request_begins()
        try:
            limit = self._rules.check(scope["method"], scope["path"], first_values(scope["headers"]))
            await self._app(scope, receive if limit is None else _limited(receive, limit), watch)
        except ClientDisconnect:
            pass  # half a request, and nobody to answer
        except Exception as error:
            problem = error if isinstance(error, ProblemError) else report_mistake(error)
            if status:
                raise ConnectionAbortedError from None  # half an answer is out: all that is left is to cut it off
            await problem.response()(scope, receive, watch)
        finally:
            if is_asking:
                self._idle.request_ends()
            method = scope["method"] if scope["method"] in METHODS else OTHER_METHOD
            route = getattr(scope.get("route"), "path_format", UNKNOWN_ROUTE)
            seconds = time.perf_counter() - started
            self._observer(method, route, status or NOT_ANSWERED, seconds, request_id, correlation)


def _limited(receive: Receive, limit: int) -> Receive:
    """Count what arrives: a body without a length could go on for ever."""
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await receive()
        if message["type"] == "http.request":
            received += len(message.get("body", b""))
            if received > limit:
                raise body_too_large(limit)
        return message

    return counted
