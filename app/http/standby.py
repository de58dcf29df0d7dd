"""The sockets of a server, TLS, and the answers while there is no application.

Training and recovery take minutes, and so may the last snapshot. During this time a thread with a loop of its own
serves the sockets with the same limits of connections: health checks, metrics, the console, and "not ready" for other
requests. Metrics need a key where the server asks for keys.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Self, TypedDict

from oubli.app.errors import StartError
from oubli.app.logs import cause_of
from oubli.app.settings import Settings, SettingsError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from oubli.app.http.auth import AccessRules
    from oubli.app.service.model.state import Phase

_SETTLE = 0.05  # seconds in which accepted connections become known, and closed ones close
_PATIENCE = 1.0  # seconds for requests that are being answered
_ALIVE: dict[str, dict[str, Any]] = {"/healthz": {"status": "alive"}, "/v2/health/live": {"live": True}}
_SAFE = ("GET", "HEAD")

log = logging.getLogger("oubli.server")


class Standby:
    """Answers in a thread from `start` until `stop`; may start again. As a context it closes the sockets at its end.

    Parameters
    ----------
    sockets
        Bound to the addresses of the server.
    settings
        Limits of connections, and keys for metrics.
    tls
        For connections; None for plain HTTP.

    Attributes
    ----------
    sockets
        As given.
    """

    def __init__(self, sockets: list[socket.socket], settings: Settings, tls: ssl.SSLContext | None = None) -> None:
        self.sockets = sockets
        self._copies = [one.dup() for one in sockets]  # a server closes those that it is given
        self._settings = settings
        self._tls = tls
        self._rules = cache(partial(_rules, settings))  # rules that have seen a key ask for keys from then on
        self._answering: _Answering | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for one in (*self.sockets, *self._copies):
            one.close()

    @property
    def port(self) -> int:
        """The port that the sockets are bound to."""
        return int(self._copies[0].getsockname()[1])

    def start(self, phase: Phase, *, delay: float = 0.0) -> None:
        """Begin to answer, as soon as the HTTP layer is imported; `/readyz` and `/metrics` tell the phase.

        With a delay that begins after so many seconds, or when `hurry` is called.
        """
        self.stop()
        self._answering = answering = _Answering(self._copies, self._settings, self._tls, phase, self._rules)
        threading.Thread(target=answering.run, args=(delay,), name="standby", daemon=True).start()

    def hurry(self) -> None:
        """Begin to answer now, if `start` was called with a delay."""
        if self._answering is not None:
            self._answering.begin()

    def stop(self) -> None:
        """Accept no more connections. Requests that are being answered end by themselves."""
        if self._answering is not None:
            self._answering.stop()


def _rules(settings: Settings) -> AccessRules:
    from oubli.app.http.auth import rules_of

    return rules_of(settings, lambda: time.time_ns() // 1_000_000)


@dataclass(eq=False, repr=False)
class _Answering:
    """Answers in a thread, once.

    Parameters
    ----------
    sockets, settings, tls, phase
        As `Standby` has them.
    rules
        Returns the rules for metrics; called at the first request for them.
    """

    _sockets: list[socket.socket]
    _settings: Settings
    _tls: ssl.SSLContext | None
    _phase: Phase
    _rules: Callable[[], AccessRules]
    _is_over: threading.Event = field(default_factory=threading.Event, init=False)
    _may_begin: threading.Event = field(default_factory=threading.Event, init=False)
    _stop: asyncio.Event | None = field(default=None, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)

    def begin(self) -> None:
        """Let it begin; from any thread, at any time."""
        self._may_begin.set()

    def stop(self) -> None:
        """End it; from any thread, at any time."""
        self._is_over.set()
        self.begin()
        if self._loop is not None and self._stop is not None:
            try:
                self._loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                log.debug("the loop has ended")

    def run(self, delay: float = 0.0) -> None:
        """Answer until `stop` is called, after some seconds or when `begin` is."""
        if delay:
            self._may_begin.wait(delay)
        if self._is_over.is_set():
            return
        try:
            asyncio.run(self._serve())
        except Exception as error:  # nothing depends on it
            log.warning("no health checks are answered while the server is %s: %s", self._phase, cause_of(error))

    async def _serve(self) -> None:
        from uvicorn.server import ServerState

        from oubli.app.http.connection.connections import connections_of, server_config
        from oubli.app.http.connection.protocol import OubliProtocol
        from oubli.app.http.monitoring.observer import Observed
        from oubli.app.http.standby import BACKLOG, tls_timeouts

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        guard = connections_of(self._settings)
        config = server_config(
            Observed(self._answer), type("StandbyProtocol", (OubliProtocol,), {"guard": guard}), lifespan="off"
        )
        config.load()
        state = ServerState()

        def new_connection() -> Any:
            make: Any = config.http_protocol_class
            return make(config=config, server_state=state, app_state={})

        sockets = [] if self._is_over.is_set() else [one.dup() for one in self._sockets]
        servers = [
            await self._loop.create_server(
                new_connection, sock=one, ssl=self._tls, backlog=BACKLOG, **tls_timeouts(self._tls, self._settings)
            )
            for one in sockets
        ]
        if not self._is_over.is_set():
            await self._stop.wait()
        # A server that is closed between the acceptance of a connection and its first step would lose it.
        for one in sockets:
            self._loop.remove_reader(one)
        await asyncio.sleep(_SETTLE)
        for server in servers:
            server.close()
        # Each connection that was accepted is answered and closed, if it asks soon. Handshakes are not known before
        # they have ended.
        deadline = self._loop.time() + _PATIENCE
        while (state.connections or self._tls is not None) and self._loop.time() < deadline:  # noqa: ASYNC110 - no event
            await asyncio.sleep(_SETTLE)
        for connection in list(state.connections):
            connection.shutdown()
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=_PATIENCE)
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.sleep(_SETTLE)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        from oubli.app.http.problems import ProblemError

        try:
            response = self._response(scope)
        except ProblemError as error:
            response = error.response(scope["path"])
        # The next request of this client is for the application.
        response.headers["Connection"] = "close"
        await response(scope, receive, send)

    def _response(self, scope: Scope) -> Any:
        from starlette.responses import JSONResponse, Response

        from oubli.app.http.auth import first_values
        from oubli.app.http.console_files import CONSOLE_PATHS, file_answer
        from oubli.app.http.monitoring.metrics import BareExposition, encode
        from oubli.app.http.problems import ProblemError

        method, path, no_store = scope["method"], scope["path"], {"Cache-Control": "no-store"}
        if path in _ALIVE and method in _SAFE:
            return JSONResponse(_ALIVE[path], headers=no_store)
        if path in CONSOLE_PATHS and method in _SAFE:  # the page says itself that the server is not ready
            return file_answer(path, first_values(scope["headers"]).get(b"if-none-match", b"").decode("latin-1"))
        if path == "/metrics" and method in _SAFE:
            headers = first_values(scope["headers"])
            try:
                rules = self._rules()
                rules.set_api_key(self._settings.read_api_key())  # it may have been changed since the last phase
                rules.check(method, path, headers, scope["scheme"])
            except SettingsError as error:  # the start will fail for it, and say so
                log.debug("metrics are not answered: %s", cause_of(error))
            else:
                accepted = headers.get(b"accept", b"").decode("latin-1")
                content, media_type = encode(BareExposition(self._phase), accepted)
                return Response(content, headers={**no_store, "Content-Type": media_type})
        raise ProblemError("not-ready", f"The server is {self._phase}.")


BACKLOG = 2048
"""Connections that may wait to be accepted."""


def bind(host: str, port: int) -> list[socket.socket]:
    """Return listening sockets for every address of a host; port 0 takes a free one.

    Raises
    ------
    StartError
        When the address is taken or not of this machine.
    """
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            bound = socket.socket(family, kind, protocol)
            sockets.append(bound)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind(address)
            # Before that, another program that reuses addresses could bind it as well.
            bound.listen(BACKLOG)
    except OSError as error:
        for bound in sockets:
            bound.close()
        raise StartError(
            f"cannot listen on {host} port {port}: {error.strerror or error}. Stop the program that uses it, or choose "
            "another with --port or --host"
        ) from None
    return sockets


_SHUTDOWN_SECONDS = 2.0  # for a client to end TLS, too


class TlsTimeouts(TypedDict, total=False):
    """Seconds, named as `create_server` has them."""

    ssl_handshake_timeout: float
    ssl_shutdown_timeout: float


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the context for the certificate in the settings; None when the server speaks plain HTTP.

    Raises
    ------
    StartError
        When a file cannot be read, or certificate and key do not belong together.
    """
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Read certificate and key into a context; connections made from now on get them.

    Raises
    ------
    StartError
        When they cannot be used; the context is as before then.
    """
    if settings.tls_cert_file is None:
        return
    try:
        for each in (ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), context):  # first an unused context
            each.load_cert_chain(settings.tls_cert_file, settings.tls_key_file, password=_refuse)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "it is no PEM file"
        raise StartError(
            f"tls_cert_file {settings.tls_cert_file} and tls_key_file {settings.tls_key_file} cannot be used "
            f"({reason}): give a certificate chain and its key without a passphrase, both in PEM"
        ) from None


def _refuse() -> str:
    """OpenSSL would ask for a passphrase at the terminal."""
    raise ValueError("the key has a passphrase")


def tls_timeouts(tls: ssl.SSLContext | None, settings: Settings) -> TlsTimeouts:
    """Return how long the two ends of a TLS connection may take, as `create_server` has them.

    By default a client that does not answer the end of its connection would hold up the end of the server for half a
    minute.
    """
    if tls is None:
        return {}
    return {"ssl_handshake_timeout": settings.head_timeout, "ssl_shutdown_timeout": _SHUTDOWN_SECONDS}
