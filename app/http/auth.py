"""The access rules of all requests: known host, key, origin, type and size of the body, version.

Plain functions of method, path and headers, without ASGI. The middleware and the fast path use the same rules.
"""

from __future__ import annotations

import hmac
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from oubli.app.access.keys import AccessKey, AccessKeys, hashed
from oubli.app.access.origins import ANY_ORIGIN, Host, Origin, origin_of, parse_host, parse_origin
from oubli.app.access.scopes import ADMIN, ALL_SCOPES, ANY_KEY, METRICS_EVENTS, SCOPES, needed_scopes
from oubli.app.http.console_files import CONSOLE_PATHS
from oubli.app.http.formats import BULK_PATHS, Format, body_format
from oubli.app.http.problems import ProblemError, body_too_large, is_inference
from oubli.app.settings import Settings

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
# Probes use whatever address the server has at the time, and the answers hold no data.
HEALTH_PATHS = frozenset({"/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"})
DOCS_PATHS = frozenset(
    {"/docs", "/docs/page.js", "/docs/page.css", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"}
)
# Receivers of OpenDSR callbacks check signatures with the certificate.
OPENDSR_PATHS = frozenset({"/opendsr/v2/discovery", "/opendsr/v2/certificate"})
# Checking a proof needs no key. Receipts have random ids, and their proofs hold no names.
PROOF_PATHS = frozenset({"/ledger/keys", "/keys", "/log/checkpoint"})
OPEN_PATHS = HEALTH_PATHS | DOCS_PATHS | OPENDSR_PATHS | CONSOLE_PATHS | PROOF_PATHS
# Answers that hold nothing of the samples: a node that may have missed an erasure still gives them.
_SAMPLELESS = OPEN_PATHS | {
    "/access",
    "/cluster",
    "/erasures",
    "/ledger",
    "/metrics",
    METRICS_EVENTS,
    "/model/kinds",
}
_SAMPLELESS_FOLDERS = ("/cluster/nodes/", "/erasures/", "/ledger/", "/log/")
_COMPUTED = {"/model/importances", "/snapshot/file"}
UPLOAD_PATH = "/snapshot/file"
# Between nodes, which share a secret and may use any name of each other.
NODE_PATHS = "/cluster/node/"
MIN_VERSION = b"min-version"
_MOST_VERSION_DIGITS = 15
_OTHER_TYPES = (
    "Send the body as JSON, with 'Content-Type: application/json', or as a table in UTF-8: 'text/csv', "
    "'application/x-ndjson' or 'application/vnd.apache.arrow.stream'."
)
_BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# With two of them, the server and a proxy in front of it could each use another one.
_ONCE = frozenset({b"host", b"origin", b"sec-fetch-site"})
_CHANGING = frozenset({"write", "erase", ADMIN})
_FOREIGN_SITES = frozenset({b"cross-site", b"same-site"})  # same-site: another port, or a name beside this one

Headers = Mapping[bytes, bytes]
"""The first value of each header, by its name in lower case."""


class Caller(NamedTuple):
    """A key that callers may send, or who asks with it; times are milliseconds since 1970.

    Attributes
    ----------
    id, name
        Of the key; None where there is none.
    scopes
        Everything that it allows.
    """

    id: str | None
    name: str | None
    scopes: frozenset[str]
    created_ms: int | None = None
    expires_ms: int | None = None
    revoked_ms: int | None = None


def is_open(path: str) -> bool:
    """Whether a path needs no key."""
    return path in OPEN_PATHS or (path.startswith("/erasures/") and path.endswith("/proof"))


def depends_on_samples(path: str) -> bool:
    """Whether the answer may hold something of the samples."""
    return path not in _SAMPLELESS and not path.startswith(_SAMPLELESS_FOLDERS)


def runs_kernels(method: str, path: str) -> bool:
    """Whether a request runs compiled code that predictions do not run."""
    if method in _SAFE_METHODS:
        return path in _COMPUTED or path.startswith("/model/trees/")
    return depends_on_samples(path) and path != "/predict" and not path.startswith("/v2/")


def is_change(method: str, path: str) -> bool:
    """Whether a request changes something; its answer then says what the journal has taken."""
    needed = needed_scopes(method, path)
    return bool(needed) and needed <= _CHANGING


class AccessRules:
    """The rules for all requests.

    Parameters
    ----------
    allowed_hosts
        Names that `Host` may carry, without port; ``*`` admits all.
    allowed_origins
        Origins of pages that may change something and ask for samples, besides those of the request's own.
    api_key
        A key that allows everything; None when there is none. Callers must send a key when there is this one or others.
    access_keys
        Further keys, each with its scopes.
    cors_origins
        Origins of pages that may send requests; ``*`` admits all, as long as a key is asked for.
    max_body_bytes, max_bulk_bytes, max_snapshot_bytes
        Largest body, largest one of samples in bulk, and largest upload of a snapshot file. What is to be predicted in
        bulk may be of any size.

    Attributes
    ----------
    max_body_bytes
        Largest body.
    access_keys
        The further keys.
    """

    def __init__(
        self,
        *,
        allowed_hosts: Iterable[str],
        api_key: str | None,
        max_body_bytes: int,
        max_bulk_bytes: int,
        max_snapshot_bytes: int,
        access_keys: AccessKeys,
        allowed_origins: Iterable[str] = (),
        cors_origins: Iterable[str] = (),
    ) -> None:
        hosts = [host.lower() for host in allowed_hosts]
        self._any_host = "*" in hosts
        self._hosts = frozenset(_name_of(host) for host in hosts)
        cors = frozenset(cors_origins)
        self._any_origin = ANY_ORIGIN in cors
        self._origins = frozenset(parse_origin(origin) for origin in {*allowed_origins, *cors}) - {None}
        self._last_host: tuple[bytes, Host] | None = None
        self._key: bytes | None = None
        self._owner = Caller(None, "api_key", ALL_SCOPES)
        self.access_keys = access_keys
        self.set_api_key(api_key)
        self.max_body_bytes = max_body_bytes
        self._max_upload = max_snapshot_bytes
        self._max_bulk = {"/predict": sys.maxsize, "/samples": max_bulk_bytes}

    def set_api_key(self, key: str | None) -> None:
        """Ask for this key from now on, and forget decisions that were made with the one before."""
        self._key = None if key is None else hashed(key.encode("utf-8"))
        self.access_keys.forget_decisions()

    @property
    def asks_for_key(self) -> bool:
        """Whether requests need a key."""
        return self._key is not None or self.access_keys.asked_for

    def check(self, method: str, path: str, headers: Headers, scheme: str = "http") -> int | None:
        """Check whether a request may pass.

        Parameters
        ----------
        method, path
            Of the request; the path is percent-decoded.
        headers
            First values, by names in lower case.
        scheme
            By which the client sent it, `http` or `https`.

        Returns
        -------
        int or None
            Most bytes that its body may have; None when it has none to be read.

        Raises
        ------
        ProblemError
            When it must not pass.
        """
        is_nodes = path.startswith(NODE_PATHS)
        host = self._check_host(headers, path in HEALTH_PATHS or is_nodes)
        is_guarded = not (is_nodes or is_open(path))
        needed = needed_scopes(method, path) if is_guarded else ANY_KEY
        if is_guarded and self.asks_for_key:
            self._check_key(headers, needed)
        # What takes a scope tells of samples: a page that cannot read an answer still learns whether there is one.
        if method not in _SAFE_METHODS or needed:
            self._check_origin(headers, host, scheme)
        if method not in _BODY_METHODS:
            return None
        upload = path == UPLOAD_PATH
        length = content_length(headers)
        limit = self._max_upload if upload else self.max_body_bytes
        # Clients of the inference protocol say nothing of the type, or that it is bytes; its routes change nothing.
        if not upload and (length != 0 or b"content-type" in headers) and not is_inference(path):
            takes_tables = method == "POST" and path in BULK_PATHS
            if _checked_format(headers, takes_tables=takes_tables) is not Format.JSON:
                limit = self._max_bulk[path]
        if length is not None and length > limit:
            raise body_too_large(limit)
        return limit

    def _check_host(self, headers: Headers, any_host: bool) -> Host | None:
        text = headers.get(b"host")
        if text is None:
            if any_host:  # probes in HTTP/1.0 have none
                return None
            raise ProblemError("unknown-host", "The request has no 'Host' header.")
        last = self._last_host
        if last is not None and text == last[0]:  # nearly every request names the host of the one before
            return last[1]
        host = parse_host(text.decode("latin-1"))
        if host is None:
            raise ProblemError("bad-host")
        if any_host:
            return host
        if not self._any_host and host.name not in self._hosts:
            raise ProblemError("unknown-host")
        self._last_host = (text, host)
        return host

    def _check_origin(self, headers: Headers, host: Host | None, scheme: str) -> None:
        """Browsers say from which page a request comes: a foreign one must not change the model or ask for samples."""
        text = headers.get(b"origin")
        if text is None:
            # Programs send neither. Browsers without `Origin` say at least this.
            if headers.get(b"sec-fetch-site", b"").strip().lower() in _FOREIGN_SITES:
                raise ProblemError("foreign-origin")
            return
        origin: Origin | None = parse_origin(text.decode("latin-1"))
        is_own = host is not None and origin == origin_of(host, scheme)
        is_known = is_own or origin in self._origins or (self._any_origin and self.asks_for_key)
        if origin is None or not is_known:
            raise ProblemError("foreign-origin")

    def require_scope(self, headers: Headers, needed: frozenset[str]) -> None:
        """Refuse a request whose key has none of some scopes; for routes that ask for another one by the body.

        Raises
        ------
        ProblemError
            When it must not pass.
        """
        if self.asks_for_key:
            self._check_key(headers, needed)

    def caller(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """Return who sends a request with these headers.

        Raises
        ------
        ProblemError
            When that takes a key, and none is sent that opens anything.
        """
        if not self.asks_for_key:
            return Caller(None, None, ALL_SCOPES)
        given = _key_in(first_values(headers))
        if self._is_owners(given):
            return self._owner
        key = self.access_keys.find(given)
        if key is None:
            raise ProblemError("key-needed")
        return _caller_of(key)

    def callers(self) -> list[Caller]:
        """Return all keys that there are, the one that allows everything first."""
        return [*([] if self._key is None else [self._owner]), *map(_caller_of, self.access_keys.all())]

    def _is_owners(self, given: bytes) -> bool:
        # Digests have one length, so that the comparison tells nothing about the key's.
        return self._key is not None and hmac.compare_digest(hashed(given), self._key)

    def _check_key(self, headers: Headers, needed: frozenset[str]) -> None:
        given = _key_in(headers)
        if self._is_owners(given):
            return
        granted = self.access_keys.grants(given)
        if granted is None:
            raise ProblemError("key-needed")
        if needed and needed.isdisjoint(granted):
            names = " or ".join(f"'{scope}'" for scope in SCOPES if scope in needed)
            raise ProblemError("scope-needed", f"This takes a key with the scope {names}.")


def _key_in(headers: Headers) -> bytes:
    """Return the key that a request carries."""
    given = headers.get(b"x-api-key")
    if given is not None:
        return given
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _caller_of(key: AccessKey) -> Caller:
    return Caller(key.id, key.name, key.grants, key.created_ms, key.expires_ms, key.revoked_ms)


def require_version(path: str, headers: Headers) -> int:
    """Return which version of the model a request asks for at least, by `Min-Version`; 0 when it does not.

    So a client reads its own writes whichever node it asks, and notices when a server was put back to an older state.
    As versions never go back, a request that may be answered once may always be.

    Raises
    ------
    ProblemError
        When the header is no version.
    """
    text = headers.get(MIN_VERSION)
    if text is None or is_open(path):
        return 0
    if not (text.isdigit() and len(text) <= _MOST_VERSION_DIGITS):
        raise ProblemError(
            "bad-request", "The header 'Min-Version' must be a model version: digits, as in the answers."
        )
    return int(text)


def known_hosts(host: str, further: Iterable[str]) -> list[str]:
    """Return the names that a server on `host` is called by."""
    names = [*LOOPBACK_HOSTS, *further]
    # The wildcard addresses are no names that a caller could use.
    return names if host in ("0.0.0.0", "::", "") else [*names, host]  # noqa: S104


def first_values(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the first value of each header.

    Raises
    ------
    ProblemError
        When one is repeated that decides who is asked, or who asks.
    """
    values: dict[bytes, bytes] = {}
    for name, value in headers:
        if name not in values:
            values[name] = value
        elif name in _ONCE:
            raise ProblemError("bad-host" if name == b"host" else "bad-request")
    return values


def content_length(headers: Headers) -> int | None:
    """Return the announced length, 0 when there is no body, None when it comes in chunks."""
    if b"transfer-encoding" in headers:
        return None
    length = headers.get(b"content-length", b"0")
    return int(length) if length.isdigit() else None


def _checked_format(headers: Headers, *, takes_tables: bool) -> Format:
    """Return the format of a body; which may be another than JSON where tables are taken."""
    kind = headers.get(b"content-type", b"")
    if kind == b"application/json":
        return Format.JSON
    found = body_format(kind.decode("latin-1"))
    if found is Format.JSON or (found is not None and takes_tables):
        return found
    raise ProblemError("not-json", _OTHER_TYPES if takes_tables else None)


def _name_of(host: str) -> str:
    """Return a host of the settings as `Host` headers are compared with it."""
    parsed = parse_host(host) or parse_host(f"[{host}]")
    return host if parsed is None else parsed.name


def rules_of(settings: Settings, now_ms: Callable[[], int]) -> AccessRules:
    """Return the rules that settings ask for.

    Parameters
    ----------
    settings
        Hosts, origins, keys and limits.
    now_ms
        Tells the time by which keys end, in milliseconds since 1970.
    """
    return AccessRules(
        allowed_hosts=known_hosts(settings.host, (*settings.allowed_hosts, *_own_name(settings))),
        api_key=settings.read_api_key(),
        max_body_bytes=settings.max_body_bytes,
        max_bulk_bytes=settings.max_bulk_bytes,
        max_snapshot_bytes=settings.max_snapshot_bytes,
        access_keys=AccessKeys(settings.access_keys_path, now_ms=now_ms),
        allowed_origins=settings.allowed_origins,
        cors_origins=settings.cors_origins,
    )


def _own_name(settings: Settings) -> tuple[str, ...]:
    """Return the name by which other nodes and redirected clients call this one."""
    name = None if settings.node_url is None else urlsplit(settings.node_url).hostname
    return () if name is None else (name,)
