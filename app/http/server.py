"""Run the application under uvicorn: one process, one event loop.

On SIGTERM or Ctrl-C the server is not ready at once, goes on answering for a moment in which load balancers can see
that, closes its sockets, answers what is in flight, and writes a snapshot; then the process ends with exit code 0. A
second signal skips the moment, a further Ctrl-C the waiting for connections.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from oubli.app.errors import StartError
from oubli.app.http.app import create_app
from oubli.app.http.protocol import protocol_for
from oubli.app.http.reloading import Reloader
from oubli.app.http.sockets import bind
from oubli.app.http.tls import tls_timeouts
from oubli.app.http.uvicorn_config import connections_of, server_config
from oubli.app.logs import place_of
from oubli.app.service.model_service import ModelService
from oubli.app.settings import Settings
from oubli.app.threads import SWITCH_SECONDS
from oubli.core.slices import begin_to_rest

if TYPE_CHECKING:
    from oubli.app.http.standby import Standby

DRAIN_SECONDS = 0.3

log = logging.getLogger("oubli.server")


class Server(uvicorn.Server):
    """uvicorn's server, except that a signal to stop is answered with exit code 0, after a moment of draining.

    Parameters
    ----------
    config
        For uvicorn.
    service
        Told at once that it is stopping.
    settings
        Limits of connections.
    reload
        Reads again what can change while it serves; called on SIGHUP.
    standby
        Answers health checks while it stops; None: nobody does.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        service: ModelService,
        settings: Settings,
        reload: Callable[[], None],
        standby: Standby | None = None,
    ) -> None:
        super().__init__(config)
        self._service = service
        self._settings = settings
        self._reload = reload
        self._standby = standby
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the service and listen. uvicorn's own method would give a TLS handshake a minute."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_log_mistake)
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        config, self.servers = self.config, []
        for listening in sockets or []:
            host, port = listening.getsockname()[:2]
            server = await self._loop.create_server(
                self._new_connection,
                sock=listening,
                ssl=config.ssl,
                backlog=config.backlog,
                **tls_timeouts(config.ssl, self._settings),
            )
            self.servers.append(server)
            log.info("listening on %s port %d", host, port)
        self.started = True

    def _new_connection(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what is in flight and stop the service; health checks are answered until the end."""
        if self._standby is not None:
            self._standby.start("stopping")
        protocol: Any = self.config.http_protocol_class
        protocol.is_stopping = True
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop. uvicorn's own handler would raise the signal again at the end, and the exit code be its."""
        if self._service.phase != "stopping" and self._loop is not None:
            self._service.drain()
            self._loop.call_soon_threadsafe(self._loop.call_later, DRAIN_SECONDS, self._stop)
            return
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    def _stop(self) -> None:
        self.should_exit = True


def run(
    settings: Settings,
    service: ModelService,
    sockets: list[socket.socket] | None = None,
    tls: ssl.SSLContext | None = None,
    standby: Standby | None = None,
) -> None:
    """Serve until a signal to stop; returns when everything is answered and on the disk.

    Parameters
    ----------
    settings
        Address, limits, hosts and key.
    service
        Not started yet.
    sockets
        What `bind` returned, when it was called earlier to find a taken port before the model is trained.
    tls
        For connections; None for plain HTTP.
    standby
        What has answered on these sockets until now.

    Raises
    ------
    StartError
        When the address cannot be used, or the last snapshot could not be written.
    """
    if sockets is None:
        sockets = bind(settings.host, settings.port)
    app = create_app(settings, service)
    config = server_config(app, protocol_for(app.state.fast_path, connections_of(settings)), tls=tls)
    reload = Reloader(settings, app.state.rules, tls)
    # Threads write snapshots meanwhile: the loop must not wait five milliseconds for its turn at the interpreter.
    sys.setswitchinterval(SWITCH_SECONDS)
    begin_to_rest()
    # What the model and the program are made of stays: the collector need not look at it again, nor now for the
    # thousand objects of garbage among a quarter of a million.
    gc.freeze()
    if standby is not None:
        standby.stop()
    Server(config, service, settings, reload, standby).run(sockets)
    if service.stop_error is not None:
        raise StartError(service.stop_error)
    log.info("stopped")


def _log_mistake(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what fell out of a callback; asyncio's own line shows its arguments, which could hold what was submitted."""
    error = context.get("exception")
    log.error("a callback failed: %s", "no exception" if error is None else place_of(error))
