"""A server with sockets in a thread of this process, so that a test can look at what it holds in memory."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn

from oubli.app.http.app import create_app
from oubli.app.http.connection.connections import Connections, server_config
from oubli.app.http.connection.fastpath import protocol_for
from oubli.app.service.service import Service
from tests.unit.app.support import make_settings

_SECONDS = 240  # kernels may have to be compiled


@dataclass
class Hosted:
    """A server that is ready."""

    port: int
    app: Any
    service: Service
    server: uvicorn.Server

    @property
    def everything(self) -> list[Any]:
        """What memory is searched from."""
        return [self.app, self.server.server_state]

    def ask(self, method: str, path: str, content: Any = None, **headers: str) -> tuple[int, Any]:
        """Ask on a connection of its own."""
        sent = None if content is None else json.dumps(content).encode()
        status, body = self.ask_bytes(method, path, sent, **headers)
        return status, json.loads(body)

    def ask_bytes(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def connect(self, receive_buffer: int | None = None) -> socket.socket:
        """Open a connection for a client that does as it likes."""
        client = socket.socket()
        client.settimeout(_SECONDS)
        if receive_buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.connect(("127.0.0.1", self.port))
        return client


@contextmanager
def hosted(service: Service, **settings: Any) -> Iterator[Hosted]:
    """Serve on a free port until the end of the block."""
    app = create_app(make_settings(**settings), service)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(app, protocol_for(app.state.fast_path, Connections())))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    running = Hosted(listening.getsockname()[1], app, service, server)
    try:
        wait_until(lambda: server.started and running.ask("GET", "/readyz")[0] == 200)
        yield running
    finally:
        server.should_exit = True
        thread.join()


def wait_until(happens: Any) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + _SECONDS
    while not happens():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.01)
