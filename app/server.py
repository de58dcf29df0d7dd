"""Run the application under uvicorn: one process, one event loop, no access log.

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
import sys
from types import FrameType, TracebackType

import uvicorn

from app.errors import StartError
from app.guards import place_of
from app.main import create_app
from app.service import ModelService
from app.settings import Settings

DRAIN_SECONDS = 0.3
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
        await super().startup(sockets)
        for listening in sockets or []:
            host, port = listening.getsockname()[:2]
            log.info("listening on %s port %d", host, port)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop. uvicorn's own handler would raise the signal again at the end, and the exit code be its."""
        if self._service.state != "stopping" and self._loop is not None:
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
    configure_logging()
    config = uvicorn.Config(
        create_app(settings, service),
        workers=1,
        backlog=BACKLOG,
        access_log=False,  # its lines hold paths, and paths hold ids
        log_config=None,
        server_header=False,
        ws="none",
        lifespan="on",
    )
    # What the model is made of stays: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    Server(config, service).run(sockets)
    if service.stop_error is not None:
        raise StartError(service.stop_error)
    log.info("stopped")


def bind(host: str, port: int) -> list[socket.socket]:
    """Return bound sockets for every address of a host; port 0 takes a free one.

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
    except OSError as error:
        for bound in sockets:
            bound.close()
        raise StartError(
            f"cannot listen on {host} port {port}: {error.strerror or error}. Stop the program that uses it, or choose "
            "another with --port or --host"
        ) from None
    return sockets


class SparingFormatter(logging.Formatter):
    """Formats exceptions as type and place: their text and their traceback could hold what was submitted."""

    def formatException(  # noqa: N802 - logging's name
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        """Return one line for an exception."""
        return place_of(ei[1]) if ei[1] is not None else ""


def configure_logging() -> None:
    """Send what the server and uvicorn have to say to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SparingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for name, level in (("oubli", logging.INFO), ("uvicorn", logging.WARNING), ("asyncio", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False
