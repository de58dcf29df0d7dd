"""The outermost layer of the application, as plain ASGI: checks access, counts and decodes a body, catches what falls.

The last line behind the routes: an exception that nobody expected becomes a 500 here, and its text goes nowhere,
because it could hold what was submitted. The log gets its type and the place in the code.
"""

import time

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oubli.app.http.auth import AccessRules, first_values
from oubli.app.http.encodings import decoded
from oubli.app.http.observer import NOT_ANSWERED, UNKNOWN_ROUTE, Observer
from oubli.app.http.problems import ProblemError, body_too_large, report_mistake
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
        Told of each request that was answered; None: nobody.
    """

    def __init__(
        self, app: ASGIApp, *, idle: IdleResolver, rules: AccessRules, observer: Observer | None = None
    ) -> None:
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

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        # Whoever watches a job asks nothing of the model, for as long as the job takes.
        is_asking = not scope["path"].endswith(_EVENTS)
        if is_asking:
            self._idle.request_begins()
        try:
            headers = first_values(scope["headers"])
            limit = self._rules.check(scope["method"], scope["path"], headers, scope.get("scheme", "http"))
            if limit is not None:
                receive = _limited(receive, limit)
                if b"content-encoding" in headers:
                    receive = decoded(receive, headers[b"content-encoding"], limit)
            await self._app(scope, receive, watch)
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
            if self._observer is not None:
                route = getattr(scope.get("route"), "path_format", UNKNOWN_ROUTE)
                self._observer(scope["method"], route, status or NOT_ANSWERED, time.perf_counter() - started)


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
