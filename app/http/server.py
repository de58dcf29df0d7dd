"""Run the application under uvicorn: one process, one event loop.

On SIGTERM or Ctrl-C the server is not ready at once, goes on answering for a moment in which load balancers can see
that, closes its sockets, answers what is in flight, and writes a snapshot; then the process ends with exit code 0. A
second signal skips the moment, a further Ctrl-C the waiting for connections.
"""

import asyncio
import gc
import logging
import signal
import socket
import sys
from types import FrameType
from typing import Any

import uvicorn

from oubli.app.errors import StartError
from oubli.app.http.app import create_app
from oubli.app.http.connections import ConnectionLimits, Connections, parse_networks
from oubli.app.http.protocol import protocol_for
from oubli.app.http.sockets import bind
from oubli.app.logs import place_of
from oubli.app.service.model_service import ModelService
from oubli.app.settings import Settings
from oubli.app.storage.descriptors import connections_allowed

DRAIN_SECONDS = 0.3
SWITCH_SECONDS = 0.0005
BACKLOG = 2048

log = logging.getLogger("oubli.server")


class Server(uvicorn.Server):
    """uvicorn's server, except that a signal to stop is answered with exit code 0, after a moment of draining.

    Parameters
    ----------
    config
        For uvicorn.
    service
        Told at once that it is stopping.
    """

    def __init__(self, config: uvicorn.Config, service: ModelService) -> None:
        super().__init__(config)
        self._service = service
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the sockets."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_log_mistake)
        await super().startup(sockets)
        for listening in sockets or []:
            host, port = listening.getsockname()[:2]
            log.info("listening on %s port %d", host, port)

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


def run(settings: Settings, service: ModelService, sockets: list[socket.socket] | None = None) -> None:
    """Serve until a signal to stop; returns when everything is answered and on the disk.

    Parameters
    ----------
    settings
        Address, limits, hosts and key.
    service
        Not started yet.
    sockets
        What `bind` returned, when it was called earlier to find a taken port before the model is trained.

    Raises
    ------
    StartError
        When the address cannot be used, or the last snapshot could not be written.
    """
    if sockets is None:
        sockets = bind(settings.host, settings.port)
    app = create_app(settings, service)
    config = server_config(app, protocol_for(app.state.fast_path, _connections(settings)))
    # Threads write snapshots meanwhile: the loop must not wait five milliseconds for its turn at the interpreter.
    sys.setswitchinterval(SWITCH_SECONDS)
    # What the model is made of stays: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    Server(config, service).run(sockets)
    if service.stop_error is not None:
        raise StartError(service.stop_error)
    log.info("stopped")


def _log_mistake(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what fell out of a callback; asyncio's own line shows its arguments, which could hold what was submitted."""
    error = context.get("exception")
    log.error("a callback failed: %s", "no exception" if error is None else place_of(error))


def server_config(app: Any, protocol: Any = "auto") -> uvicorn.Config:
    """Return uvicorn's settings: uvloop and httptools where they run, and nothing said or asked beyond need."""
    return uvicorn.Config(
        app,
        http=protocol,
        workers=1,
        backlog=BACKLOG,
        access_log=False,  # its lines hold paths, and paths hold ids
        log_config=None,
        server_header=False,
        proxy_headers=False,  # nobody asks for the client's address
        ws="none",
        lifespan="on",
    )


def _connections(settings: Settings) -> Connections:
    """Return the connections of a server, as many as the process may have descriptors for."""
    most = connections_allowed(settings.max_connections)
    return Connections(
        ConnectionLimits(
            most=most,
            most_of_address=settings.max_connections_per_address or max(1, most // 2),
            trusted=parse_networks(settings.trusted_proxies),
            head_seconds=settings.head_timeout,
            body_seconds=settings.body_timeout,
            idle_seconds=settings.idle_timeout,
        )
    )
