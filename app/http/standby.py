"""What answers while there is no application: health checks, and "not ready" for everything else.

Training and recovery take minutes, and so may the last snapshot. Meanwhile a thread with a loop of its own serves the
same sockets, with the same limits of connections, so that probes learn that the process is alive.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any, Self

from oubli.app.settings import Settings

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_SETTLE = 0.05  # seconds in which accepted connections become known, and closed ones close
_PATIENCE = 1.0  # seconds for requests that are being answered
_ALIVE: dict[str, dict[str, Any]] = {"/healthz": {"status": "alive"}, "/v2/health/live": {"live": True}}

log = logging.getLogger("oubli.server")


class Standby:
    """Answers in a thread from `start` until `stop`; may start again. As a context it closes the sockets at its end.

    Parameters
    ----------
    sockets
        Bound to the addresses of the server.
    settings
        Limits of connections.
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
        self._phase = ""
        self._is_over = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

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

    def start(self, phase: str) -> None:
        """Begin to answer, as soon as the HTTP layer is imported; `/readyz` tells the phase."""
        self._phase = phase
        self._is_over.clear()
        threading.Thread(target=self._run, name="standby", daemon=True).start()

    def stop(self) -> None:
        """Accept no more connections. Requests that are being answered end by themselves."""
        self._is_over.set()
        if self._loop is not None and self._stop is not None:
            try:
                self._loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                log.debug("the loop has ended")

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # nothing depends on it
            log.warning("no health checks are answered while the server is %s: %s", self._phase, type(error).__name__)

    async def _serve(self) -> None:
        from uvicorn.server import ServerState

        from oubli.app.http.observer import Observed
        from oubli.app.http.protocol import protocol_for
        from oubli.app.http.uvicorn_config import BACKLOG, connections_of, server_config

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        guard = connections_of(self._settings)
        config = server_config(Observed(self._answer), protocol_for(None, guard), lifespan="off")
        config.load()
        state = ServerState()

        def new_connection() -> Any:
            make: Any = config.http_protocol_class
            return make(config=config, server_state=state, app_state={})

        timeout = None if self._tls is None else self._settings.head_timeout
        servers = [
            await self._loop.create_server(
                new_connection, sock=one.dup(), ssl=self._tls, backlog=BACKLOG, ssl_handshake_timeout=timeout
            )
            for one in self._copies
            if not self._is_over.is_set()
        ]
        if not self._is_over.is_set():
            await self._stop.wait()
        for server in servers:
            server.close()
        # A connection that was accepted and that nobody closes would keep its client waiting.
        await asyncio.sleep(_SETTLE)
        for connection in list(state.connections):
            connection.shutdown()
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=_PATIENCE)
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.sleep(_SETTLE)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.responses import JSONResponse

        from oubli.app.http.problems import ProblemError

        path = scope["path"]
        if path in _ALIVE and scope["method"] in ("GET", "HEAD"):
            response: Any = JSONResponse(_ALIVE[path], headers={"Cache-Control": "no-store"})
        else:
            response = ProblemError("not-ready", f"The server is {self._phase}.").response(path)
        # The next request of this client is for the application.
        response.headers["Connection"] = "close"
        await response(scope, receive, send)
