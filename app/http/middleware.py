"""The innermost middleware, as plain ASGI: checks access, counts and decodes the body, catches exceptions.

An unexpected exception becomes a 500 here. Its text is dropped, because it could hold submitted values. The log gets
its type and the place in the code.

Cross-origin requests of browsers: which pages may send requests and read the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from starlette.datastructures import Headers as RequestHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oubli.app.access.scopes import resource_of
from oubli.app.http.auth import (
    MIN_VERSION,
    AccessRules,
    Headers,
    depends_on_samples,
    first_values,
    is_change,
    require_version,
    runs_kernels,
)
from oubli.app.http.formats import decoded
from oubli.app.http.problems import ProblemError, body_too_large, report_mistake, to_problem
from oubli.app.service.model.live import IdleResolver
from oubli.app.service.roles import Role
from oubli.app.times import elapsed

_EVENTS = "/events"
_LOOK = 0.25  # seconds between two looks whether the key of a stream has ended


class _CutOffError(Exception):
    """An answer must not be given any more."""


@dataclass(eq=False, repr=False)
class Middleware:
    """The innermost middleware, between the framework and the routes.

    Parameters
    ----------
    app
        The application inside.
    idle
        Gets the beginning and end of requests.
    rules
        Say which requests may pass.
    role
        Knows until when the model may be asked.
    version
        Returns the model's.
    reach
        Waits for a moment until the model has a version.
    completion
        Waits until the kernels are there that predictions do not run.
    """

    app: ASGIApp
    idle: IdleResolver
    rules: AccessRules
    role: Role
    version: Callable[[], int]
    reach: Callable[[int], Awaitable[None]]
    completion: Callable[[], Awaitable[None]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, pass it to the application, and answer its exceptions."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        has_started = False
        method, path = scope["method"], scope["path"]
        resource = resource_of(path, scope.get("query_string", b""))
        depends = depends_on_samples(resource)
        # A committed change is always answered: the journal took it, so the node led.
        may_turn = depends and not is_change(method, path)

        async def watch(message: Message) -> None:
            nonlocal has_started
            if may_turn and self._is_cut_off():
                raise _CutOffError
            has_started = True
            await send(message)

        # A stream of events does not use the model, and can last for long.
        is_asking = not path.endswith(_EVENTS)
        if is_asking:
            self.idle.request_begins()
        try:
            headers = first_values(scope["headers"])
            limit = self.rules.check(method, resource, headers, scope.get("scheme", "http"))
            if depends and self._is_cut_off():
                raise _CutOffError
            if runs_kernels(method, resource):
                await self.completion()
            if MIN_VERSION in headers:
                await self._require_version(path, headers)
            if limit is not None:
                receive = _limited(receive, limit)
                if b"content-encoding" in headers:
                    receive = decoded(receive, headers[b"content-encoding"], limit)
            if is_asking:
                await self.app(scope, receive, watch)
            else:
                await self._listen(scope, receive, watch, resource, headers)
        except ClientDisconnect:
            pass  # half a request, and no client left to answer
        except ConnectionAbortedError:
            raise  # the answer has said why, or cannot
        except Exception as error:
            if isinstance(error, _CutOffError):
                error = ProblemError("not-ready", self.role.unready())
            problem = error if isinstance(error, ProblemError) else to_problem(error) or report_mistake(error)
            if has_started:
                raise ConnectionAbortedError from None  # half an answer is out: all that is left is to cut it off
            await problem.response(path)(scope, receive, send)
        finally:
            if is_asking:
                self.idle.request_ends()

    async def _listen(self, scope: Scope, receive: Receive, send: Send, resource: str, headers: Headers) -> None:
        """Hand on a request for a stream. It ends when the access rules would refuse the request: keys expire."""
        loop, keys, epoch = asyncio.get_running_loop(), self.rules.access_keys, -1
        timer: asyncio.Handle
        task = cast("asyncio.Task[None]", asyncio.current_task())
        refusal: ProblemError | None = None

        def look() -> None:
            nonlocal epoch, refusal, timer
            keys.look()
            if epoch != keys.epoch:
                epoch = keys.epoch
                try:
                    self.rules.check(scope["method"], resource, headers, scope.get("scheme", "http"))
                except ProblemError as error:
                    refusal = error
                    task.cancel()
                    return
            timer = loop.call_later(_LOOK, look)

        timer = loop.call_soon(look)
        try:
            await self.app(scope, receive, send)
        except asyncio.CancelledError:
            if refusal is None:
                raise
            task.uncancel()
            raise refusal from None
        finally:
            timer.cancel()

    def _is_cut_off(self) -> bool:
        return elapsed() >= self.role.answers_until

    async def _require_version(self, path: str, headers: Headers) -> None:
        """Refuse a request for a version that the model does not reach soon."""
        asked = require_version(path, headers)
        if asked > self.version():
            await self.reach(asked)
        if asked > self.version():
            raise ProblemError("behind")


def _limited(receive: Receive, limit: int) -> Receive:
    """Count the bytes of a body: one without a length could be endless."""
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


METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")
_LENGTH = "Inference-Header-Content-Length"
REQUEST_HEADERS = (
    "Authorization",
    "X-API-Key",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "Min-Version",
    "X-Request-ID",
    "traceparent",
    "tracestate",
    _LENGTH,
)
ANSWER_HEADERS = ("X-Request-ID", "Retry-After", "Location", "Content-Disposition", "ETag", "Next-Cursor", _LENGTH)
_SECONDS = 600  # that a browser may remember the answer to a preflight request


class CrossOrigin(CORSMiddleware):
    """Starlette's middleware, with refusals in the one shape of errors.

    Keys are sent as headers, never as cookies, so no page needs credentials of the browser.

    Parameters
    ----------
    app
        The application inside.
    origins
        Of the pages; ``*`` for all.
    """

    def __init__(self, app: ASGIApp, *, origins: tuple[str, ...]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=METHODS,
            allow_headers=REQUEST_HEADERS,
            expose_headers=ANSWER_HEADERS,
            max_age=_SECONDS,
        )

    def preflight_response(self, request_headers: RequestHeaders) -> Response:
        """Answer a preflight request."""
        response = super().preflight_response(request_headers)
        if response.status_code == 200:
            return response
        named = {"access-control-allow-origin", "vary"}
        kept = {name: value for name, value in response.headers.items() if name in named}
        return ProblemError("foreign-origin", headers=kept).response()
