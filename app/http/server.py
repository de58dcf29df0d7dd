"""Run the application under uvicorn: one process, one event loop.

On SIGTERM or Ctrl-C the server is not ready at once. It still answers for a moment, in which load balancers can see
that. Then it closes its sockets, answers the requests in flight, and writes a snapshot, and the process ends with exit
code 0. A second signal skips the moment, a further Ctrl-C the waiting for connections.

What can change while the server runs: certificates, the key in `api_key_file`, the log level; read on SIGHUP.
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
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from oubli.app.errors import StartError
from oubli.app.http.app import create_app
from oubli.app.http.auth import AccessRules
from oubli.app.http.connection.connections import connections_of, server_config
from oubli.app.http.connection.fastpath import protocol_for
from oubli.app.http.standby import Standby, bind, load_certificate, tls_timeouts
from oubli.app.logs import place_of, set_level
from oubli.app.service.service import Service
from oubli.app.settings import Settings
from oubli.app.threads import SWITCH_SECONDS
from oubli.core.concurrency.slices import begin_to_rest

# The files are read again; the file of `oubli keys` is looked at every second anyway.
RELOADED = frozenset({"api_key_file", "log_level", "tls_cert_file", "tls_key_file"})

log = logging.getLogger("oubli.server")


class Reloader:
    """Reads the settings again, and applies those that can change while the server runs.

    If anything is wrong, the log says so and nothing changes.

    Parameters
    ----------
    settings
        In force.
    rules
        Get the new key.
    tls
        Gets the new certificate; None for plain HTTP.
    """

    def __init__(self, settings: Settings, rules: AccessRules, tls: ssl.SSLContext | None) -> None:
        self._settings = settings
        self._rules = rules
        self._tls = tls

    def __call__(self) -> None:
        """Reload, on the event loop."""
        try:
            found = self._settings.read_again()
            key = found.read_api_key()
            if (key is None) != (self._settings.api_key_file is None):
                raise StartError("api_key_file cannot be set or left out while the server runs: restart it")
            if (found.tls_cert_file is None) != (self._tls is None):
                raise StartError("TLS cannot be switched on or off while the server runs: restart it")
            if self._tls is not None:
                load_certificate(self._tls, found)
        except StartError as error:
            log.error("nothing was reloaded: %s", error)
            return
        self._rules.set_api_key(key)
        set_level(found.log_level)
        changed = [
            name
            for name in type(found).model_fields
            if name not in (*RELOADED, "port") and getattr(found, name) != getattr(self._settings, name)
        ]
        if changed:
            log.warning("these settings have changed and wait for a restart: %s", ", ".join(changed))
        self._settings = self._settings.model_copy(update={name: getattr(found, name) for name in RELOADED})
        log.info("reloaded certificates, keys and log level")


DRAIN_SECONDS = 0.3


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
        Answers health checks while it stops; None: no checks are answered.
    tell
        Called once it listens and is ready.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        settings: Settings,
        reload: Callable[[], None],
        standby: Standby | None = None,
        tell: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(config)
        self._tell = tell
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
        self._service.lifecycle.when_ready(self._tell)

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
        if self._service.model.state.phase != "stopping" and self._loop is not None:
            self._service.lifecycle.drain()
            self._loop.call_soon_threadsafe(self._loop.call_later, DRAIN_SECONDS, self._stop)
            return
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    def _stop(self) -> None:
        self.should_exit = True


def run(
    settings: Settings,
    service: Service,
    sockets: list[socket.socket] | None = None,
    tls: ssl.SSLContext | None = None,
    standby: Standby | None = None,
    tell: Callable[[], object] = lambda: None,
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
    tell
        Called once it listens and is ready.

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
    # Threads write snapshots while the loop runs: it must not wait five milliseconds for the interpreter.
    sys.setswitchinterval(SWITCH_SECONDS)
    begin_to_rest()
    # The objects of the model and the program stay: the collector need not visit a quarter of a million objects again
    # to find a thousand that are garbage.
    gc.freeze()
    if standby is not None:
        standby.stop()
    Server(config, service, settings, reload, standby, tell).run(sockets)
    if service.lifecycle.stop_error is not None:
        raise StartError(service.lifecycle.stop_error)
    log.info("stopped")


def _log_mistake(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what fell out of a callback; asyncio's own line shows its arguments, which could hold what was submitted."""
    error = context.get("exception")
    log.error("something in the background failed: %s", place_of(error or RuntimeError()))
