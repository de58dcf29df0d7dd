"""What every request must pass before a route sees it: known host, key, origin, content type, announced size.

Plain functions of method, path and headers, no ASGI: `guards` asks before it hands a request to the application, `hot`
before it answers one without it. There is one gate, so that the short way in is no easier than the long one.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from app.access.keys import AccessKeys
from app.access.scopes import SCOPES, needed_scopes
from app.problems import ProblemError

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
# Asked by machines that know the server by its address of the day; they tell nobody anything.
HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
OPEN_PATHS = HEALTH_PATHS | {"/docs", "/openapi.json"}
UPLOAD_PATH = "/snapshot/file"
JSON_TYPE = b"application/json"
_BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

Headers = Mapping[bytes, bytes]
"""The first value of each header, by its name in lower case."""


class Gate:
    """The rules for all requests.

    Parameters
    ----------
    allowed_hosts
        Names that `Host` and `Origin` may carry, without port; ``*`` admits all.
    api_key
        A key that allows everything; None when there is none. Callers must send a key when there is this one or others.
    access_keys
        Further keys, each with its scopes.
    max_body_bytes, max_snapshot_bytes
        Largest body, and largest upload of a snapshot file.

    Attributes
    ----------
    max_body_bytes
        Largest body.
    """

    def __init__(
        self,
        *,
        allowed_hosts: Iterable[str],
        api_key: str | None,
        max_body_bytes: int,
        max_snapshot_bytes: int,
        access_keys: AccessKeys | None = None,
    ) -> None:
        self._hosts = frozenset(host.strip("[]").lower() for host in allowed_hosts)
        self._any_host = "*" in self._hosts
        self._last_host: bytes | None = None
        self._key = None if api_key is None else _hashed(api_key.encode("utf-8"))
        self._access_keys = AccessKeys(None) if access_keys is None else access_keys
        self.max_body_bytes = max_body_bytes
        self._max_upload = max_snapshot_bytes

    @property
    def epoch(self) -> int:
        """A number that grows when a request that passed before may not pass any more, or the other way round."""
        return self._access_keys.epoch

    def check(self, method: str, path: str, headers: Headers) -> int | None:
        """Let a request pass, or not.

        Returns
        -------
        int or None
            Most bytes that its body may have; None when it has none to be read.

        Raises
        ------
        ProblemError
            When it must not pass.
        """
        if path not in HEALTH_PATHS:
            self._check_host(headers)
        if path not in OPEN_PATHS and (self._key is not None or self._access_keys.asked_for):
            self._check_key(method, path, headers)
        if method not in _SAFE_METHODS:
            self._check_origin(headers)
        if method not in _BODY_METHODS:
            return None
        upload = path == UPLOAD_PATH
        length = content_length(headers)
        if not upload and (length != 0 or b"content-type" in headers):
            _check_content_type(headers)
        limit = self._max_upload if upload else self.max_body_bytes
        if length is not None and length > limit:
            raise body_too_large(limit)
        return limit

    def _check_host(self, headers: Headers) -> None:
        host = headers.get(b"host")
        if host is None:
            raise ProblemError("unknown-host", "The request has no 'Host' header.")
        if host == self._last_host:  # nearly every request names the host of the one before
            return
        if not self._any_host and _host_name(host.decode("latin-1")) not in self._hosts:
            raise ProblemError("unknown-host")
        self._last_host = host

    def _check_origin(self, headers: Headers) -> None:
        """Browsers send `Origin` with whatever a page posts: a foreign page must not change the model."""
        origin = headers.get(b"origin")
        if origin is None or self._any_host:
            return
        try:
            name = urlsplit(origin.decode("latin-1")).hostname
        except ValueError:
            name = None
        if name not in self._hosts:
            raise ProblemError("foreign-origin")

    def _check_key(self, method: str, path: str, headers: Headers) -> None:
        given = headers.get(b"x-api-key")
        if given is None:
            scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
            given = token.strip() if scheme.lower() == b"bearer" else b""
        # Digests have one length, so that the comparison tells nothing about the key's.
        if self._key is not None and hmac.compare_digest(_hashed(given), self._key):
            return
        granted = self._access_keys.grants(given)
        if granted is None:
            raise ProblemError("key-needed")
        needed = needed_scopes(method, path)
        if needed and needed.isdisjoint(granted):
            names = " or ".join(f"'{scope}'" for scope in SCOPES if scope in needed)
            raise ProblemError("scope-needed", f"This takes a key with the scope {names}.")


def known_hosts(host: str, further: Iterable[str]) -> list[str]:
    """Return the names that a server on `host` is called by."""
    names = [*LOOPBACK_HOSTS, *further]
    # The wildcard addresses are no names that a caller could use.
    return names if host in ("0.0.0.0", "::", "") else [*names, host]  # noqa: S104


def first_values(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the first value of each header."""
    values: dict[bytes, bytes] = {}
    for name, value in headers:
        values.setdefault(name, value)
    return values


def content_length(headers: Headers) -> int | None:
    """Return the announced length, 0 when there is no body, None when it comes in chunks."""
    if b"transfer-encoding" in headers:
        return None
    length = headers.get(b"content-length", b"0")
    return int(length) if length.isdigit() else None


def body_too_large(limit: int) -> ProblemError:
    """Return the problem of a body above the limit; the rest of it is not read, so the connection ends."""
    size = f"{limit / 2**20:g} MiB" if limit >= 2**20 else f"{limit} bytes"
    detail = f"The body is larger than {size}: send less in one request, or raise the limit in the settings."
    return ProblemError("body-too-large", detail, headers={"Connection": "close"})


def _check_content_type(headers: Headers) -> None:
    kind = headers.get(b"content-type", b"")
    if kind != JSON_TYPE and kind.partition(b";")[0].strip().lower() != JSON_TYPE:
        raise ProblemError("not-json")


def _host_name(host: str) -> str:
    """Return the name in a `Host` header, in lower case, without port and brackets."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.rpartition(":")[0] if ":" in name else name


def _hashed(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
