"""What every request must pass before a route sees it, as plain ASGI: known host, key, origin, content type, size.

Also the last line behind the routes: an exception that nobody expected becomes a 500 here, and its text goes nowhere,
because it could hold what was submitted. The log gets its type and the place in the code.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.problems import ProblemError, to_problem
from app.service import ModelService

log = logging.getLogger("oubli.http")

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
# Asked by machines that know the server by its address of the day; they tell nobody anything.
HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
OPEN_PATHS = HEALTH_PATHS | {"/docs", "/openapi.json"}
UPLOAD_PATH = "/snapshot/file"
_BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Guards:
    """The outermost layer of the application.

    Parameters
    ----------
    app
        The application inside.
    service
        Told when requests begin and end.
    allowed_hosts
        Names that `Host` and `Origin` may carry, without port; ``*`` admits all.
    api_key
        The key that callers must send; None when none is asked for.
    max_body_bytes, max_snapshot_bytes
        Largest body, and largest upload of a snapshot file.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        service: ModelService,
        allowed_hosts: Iterable[str],
        api_key: str | None,
        max_body_bytes: int,
        max_snapshot_bytes: int,
    ) -> None:
        self._app = app
        self._service = service
        self._hosts = frozenset(host.strip("[]").lower() for host in allowed_hosts)
        self._key = None if api_key is None else _hashed(api_key.encode("utf-8"))
        self._max_body = max_body_bytes
        self._max_upload = max_snapshot_bytes

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

        self._service.request_begins()
        try:
            limited = self._check(scope, receive)
            await self._app(scope, limited, watch)
        except ClientDisconnect:
            pass  # half a request, and nobody to answer
        except Exception as error:
            problem = to_problem(error) if isinstance(error, ProblemError) else None
            if problem is None:
                log.error("a request failed: %s", place_of(error))
                problem = ProblemError("internal-error")
            if started:
                raise ConnectionAbortedError from None  # half an answer is out: all that is left is to cut it off
            await problem.response()(scope, receive, send)
        finally:
            self._service.request_ends()

    def _check(self, scope: Scope, receive: Receive) -> Receive:
        path, method = scope["path"], scope["method"]
        headers = _first_values(scope["headers"])
        if path not in HEALTH_PATHS:
            self._check_host(headers)
        if path not in OPEN_PATHS:
            self._check_key(headers)
        if method not in _SAFE_METHODS:
            self._check_origin(headers)
        if method not in _BODY_METHODS:
            return receive
        upload = path == UPLOAD_PATH
        length = _content_length(headers)
        if not upload and (length != 0 or b"content-type" in headers):
            _check_content_type(headers)
        limit = self._max_upload if upload else self._max_body
        if length is not None and length > limit:
            raise _too_large(limit)
        return _limited(receive, limit)

    def _check_host(self, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host")
        if host is None:
            raise ProblemError("unknown-host", "The request has no 'Host' header.")
        if "*" not in self._hosts and _host_name(host.decode("latin-1")) not in self._hosts:
            raise ProblemError("unknown-host")

    def _check_origin(self, headers: Mapping[bytes, bytes]) -> None:
        """Browsers send `Origin` with whatever a page posts: a foreign page must not change the model."""
        origin = headers.get(b"origin")
        if origin is None or "*" in self._hosts:
            return
        try:
            name = urlsplit(origin.decode("latin-1")).hostname
        except ValueError:
            name = None
        if name not in self._hosts:
            raise ProblemError("foreign-origin")

    def _check_key(self, headers: Mapping[bytes, bytes]) -> None:
        if self._key is None:
            return
        given = headers.get(b"x-api-key")
        if given is None:
            scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
            given = token.strip() if scheme.lower() == b"bearer" else b""
        # Digests have one length, so that the comparison tells nothing about the key's.
        if not hmac.compare_digest(_hashed(given), self._key):
            raise ProblemError("key-needed")


def known_hosts(host: str, further: Iterable[str]) -> list[str]:
    """Return the names that a server on `host` is called by."""
    names = [*LOOPBACK_HOSTS, *further]
    # The wildcard addresses are no names that a caller could use.
    return names if host in ("0.0.0.0", "::", "") else [*names, host]  # noqa: S104


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
                raise _too_large(limit)
        return message

    return counted


def _too_large(limit: int) -> ProblemError:
    size = f"{limit / 2**20:g} MiB" if limit >= 2**20 else f"{limit} bytes"
    detail = f"The body is larger than {size}: send less in one request, or raise the limit in the settings."
    return ProblemError("body-too-large", detail, headers={"Connection": "close"})


def _check_content_type(headers: Mapping[bytes, bytes]) -> None:
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise ProblemError("not-json")


def _content_length(headers: Mapping[bytes, bytes]) -> int | None:
    """Return the announced length, 0 when there is no body, None when it comes in chunks."""
    if b"transfer-encoding" in headers:
        return None
    length = headers.get(b"content-length", b"0")
    return int(length) if length.isdigit() else None


def _first_values(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    values: dict[bytes, bytes] = {}
    for name, value in headers:
        values.setdefault(name, value)
    return values


def _host_name(host: str) -> str:
    """Return the name in a `Host` header, in lower case, without port and brackets."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.rpartition(":")[0] if ":" in name else name


def _hashed(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
