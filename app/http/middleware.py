"""The outermost layer of the application, as plain ASGI: asks the gate, counts the bytes of a body, catches what falls.

The last line behind the routes: an exception that nobody expected becomes a 500 here, and its text goes nowhere,
because it could hold what was submitted. The log gets its type and the place in the code.
"""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oubli.app.http.auth import Gate, body_too_large, first_values
from oubli.app.http.problems import ProblemError
from oubli.app.service.model_service import ModelService

log = logging.getLogger("oubli.http")

_EVENTS = "/events"


class Guards:
    """The outermost layer of the application.

    Parameters
    ----------
    app
        The application inside.
    service
        Told when requests begin and end.
    gate
        Says which requests may pass.
    """

    def __init__(self, app: ASGIApp, *, service: ModelService, gate: Gate) -> None:
        self._app = app
        self._service = service
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, hand it on, and catch what comes out of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        # Whoever watches a job asks nothing of the model, for as long as the job takes.
        is_asking = not scope["path"].endswith(_EVENTS)
        if is_asking:
            self._service.request_begins()
        try:
            limit = self._gate.check(scope["method"], scope["path"], first_values(scope["headers"]))
            await self._app(scope, receive if limit is None else _limited(receive, limit), watch)
        except ClientDisconnect:
            pass  # half a request, and nobody to answer
        except Exception as error:
            problem = error if isinstance(error, ProblemError) else report_mistake(error)
            if started:
                raise ConnectionAbortedError from None  # half an answer is out: all that is left is to cut it off
            await problem.response()(scope, receive, send)
        finally:
            if is_asking:
                self._service.request_ends()


def report_mistake(error: BaseException) -> ProblemError:
    """Log an exception that nobody expected, and return the problem that it is answered with."""
    log.error("a request failed: %s", place_of(error))
    return ProblemError("internal-error")


def place_of(error: BaseException) -> str:
    """Return type and place of an exception, without its text."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(error).__name__} at {places}"


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
