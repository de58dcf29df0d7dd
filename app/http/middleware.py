"""The innermost middleware, as plain ASGI: checks access, counts and decodes a body, catches what falls.

The last line behind the routes: an exception that nobody expected becomes a 500 here, and its text goes nowhere,
because it could hold what was submitted. The log gets its type and the place in the code.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oubli.app.http.auth import MIN_VERSION, AccessRules, Headers, first_values, require_version
from oubli.app.http.encodings import decoded
from oubli.app.http.problems import ProblemError, body_too_large, report_mistake
from oubli.app.service.background import IdleResolver

_EVENTS = "/events"


@dataclass(eq=False, repr=False)
class Middleware:
    """The innermost middleware: what stands between the framework and the routes.

    Parameters
    ----------
    app
        The application inside.
    idle
        Told when requests begin and end.
    rules
        Say which requests may pass.
    version
        Returns the model's.
    reach
        Waits for a moment until the model has a version.
    """

    app: ASGIApp
    idle: IdleResolver
    rules: AccessRules
    version: Callable[[], int]
    reach: Callable[[int], Awaitable[None]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, hand it on, and catch what comes out of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        has_started = False

        async def watch(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        # Whoever watches a job asks nothing of the model, for as long as the job takes.
        is_asking = not scope["path"].endswith(_EVENTS)
        if is_asking:
            self.idle.request_begins()
        try:
            headers = first_values(scope["headers"])
            limit = self.rules.check(scope["method"], scope["path"], headers, scope.get("scheme", "http"))
            if MIN_VERSION in headers:
                await self._require_version(scope["path"], headers)
            if limit is not None:
                receive = _limited(receive, limit)
                if b"content-encoding" in headers:
                    receive = decoded(receive, headers[b"content-encoding"], limit)
            await self.app(scope, receive, watch)
        except ClientDisconnect:
            pass  # half a request, and nobody to answer
        except ConnectionAbortedError:
            raise  # the answer has said why, or cannot
        except Exception as error:
            problem = error if isinstance(error, ProblemError) else report_mistake(error)
            if has_started:
                raise ConnectionAbortedError from None  # half an answer is out: all that is left is to cut it off
            await problem.response(scope["path"])(scope, receive, watch)
        finally:
            if is_asking:
                self.idle.request_ends()

    async def _require_version(self, path: str, headers: Headers) -> None:
        """Refuse what asks for a version that the model does not have soon."""
        asked = require_version(path, headers)
        if asked > self.version():
            await self.reach(asked)
        if asked > self.version():
            raise ProblemError("behind")


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
