"""Cross-origin requests of browsers: which pages may send requests and read the answers."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from oubli.app.http.problems import ProblemError

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")
_LENGTH = "Inference-Header-Content-Length"
REQUEST_HEADERS = (
    "Authorization",
    "X-API-Key",
    "Idempotency-Key",
    "Min-Version",
    "X-Request-ID",
    "traceparent",
    "tracestate",
    _LENGTH,
)
ANSWER_HEADERS = ("X-Request-ID", "Retry-After", "Location", "Content-Disposition", "Next-Cursor", _LENGTH)
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

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer a preflight request."""
        response = super().preflight_response(request_headers)
        if response.status_code == 200:
            return response
        named = {"access-control-allow-origin", "vary"}
        kept = {name: value for name, value in response.headers.items() if name in named}
        return ProblemError("foreign-origin", headers=kept).response()
