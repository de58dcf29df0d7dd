"""Connections without sockets: a protocol of uvicorn's kind over a transport that keeps what is written."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from uvicorn.server import ServerState

from oubli.app.access.keys import FILE_NAME, AccessKeys, create_key
from oubli.app.http.app import create_app
from oubli.app.http.auth import AccessRules
from oubli.app.http.connection.connections import ConnectionLimits, Connections, server_config
from oubli.app.http.connection.fastpath import protocol_for
from oubli.app.http.monitoring.observer import Observer
from oubli.app.service.service import Service
from tests.unit.app.support import make_settings

_MADE = re.compile(rb'(x-request-id: |etag: ")(?:[0-9a-f]{16}-)?[0-9a-f]+')  # made by the server
# What two servers may say differently about the same request: when it was, and what follows from that and from chance.
_TIMES = re.compile(
    rb'"(received_at|unlearned_at|deadline|key_id|public_key|log_key|ledger_head|signature)":"[^"]+"'
    rb'|"id":"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"'
)


class Transport(asyncio.Transport):
    """Keeps what is written; can stop taking more, as a client does that does not read."""

    def __init__(self, peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer})
        self.written = b""
        self.writes = 0
        self.unread = 0
        self.closed = False

    def write(self, data: Any) -> None:
        if not self.closed:
            self.written += data
            self.writes += 1

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Host:
    """A server without a socket, with or without the short way in."""

    def __init__(
        self,
        service: Service,
        *,
        hot: bool = True,
        limits: Any = None,
        observer: Observer | None = None,
        **settings: Any,
    ) -> None:
        self.service = service
        self.app = create_app(make_settings(**settings), service, observer)
        self.hot = self.app.state.fast_path
        if not hot:
            self.hot.find = lambda *found: None
        self.guard = Connections(limits)
        self.config = server_config(self.app, protocol_for(self.hot, self.guard), lifespan="off")
        self.config.load()
        self.state = ServerState()
        self.state.default_headers = [(b"date", b"today")]
        self._connections: list[Connection] = []

    def connect(self, peer: tuple[str, int] = ("127.0.0.1", 1)) -> Connection:
        transport = Transport(peer)
        protocol: Any = self.config.http_protocol_class(config=self.config, server_state=self.state, app_state={})
        protocol.connection_made(transport)
        self._connections.append(Connection(protocol, transport))
        return self._connections[-1]

    async def ask(self, *sent: bytes) -> Connection:
        """Send requests on a new connection, each when the one before is answered."""
        connection = self.connect()
        for data in sent:
            connection.send(data)
            await self.settle()
        return connection

    def count_hot(self) -> list[bool]:
        """Note from now on which requests were answered on the short way."""
        noted: list[bool] = []
        begin = self.hot.begin

        def noting(*arguments: Any) -> Any:
            found = begin(*arguments)
            noted.append(found is not None)
            return found

        self.hot.begin = noting
        return noted

    def forget(self, connection: Connection) -> None:
        """Keep no connection that is over."""
        self._connections.remove(connection)

    async def settle(self, most: int | None = None) -> None:
        """Wait until everything asked for is answered, or for so many steps of the loop.

        A request whose body has not come is waited for in vain; so is no longer than seconds.
        """
        until = asyncio.get_running_loop().time() + 120  # kernels may be compiled meanwhile
        while (self.state.tasks or any(each.is_awaiting for each in self._connections)) and most != 0:
            assert asyncio.get_running_loop().time() < until, "a request is not answered"
            await asyncio.sleep(0)
            most = None if most is None else most - 1
        for _ in range(3):
            await asyncio.sleep(0)


@dataclass(eq=False)
class Connection:
    protocol: Any
    transport: Transport
    sent: bytes = b""

    def send(self, data: bytes) -> None:
        self.sent += data
        if not self.transport.closed:
            self.protocol.data_received(data)

    @property
    def is_awaiting(self) -> bool:
        """Whether an answer is due that no task will bring."""
        cycle = self.protocol.cycle
        return cycle is not None and not cycle.response_complete and not self.transport.closed

    @property
    def statuses(self) -> list[int]:
        return [int(answer.status[9:12]) for answer in self.answers]

    @property
    def answers(self) -> list[Answered]:
        return split_answers(self.transport.written, may_lack_bodies=bool(re.search(rb"HEAD +/", self.sent)))


@dataclass(frozen=True)
class Answered:
    """An answer as a client sees it."""

    status: bytes
    headers: tuple[bytes, ...]
    body: bytes


def split_answers(data: bytes, *, may_lack_bodies: bool = False) -> list[Answered]:
    """The answers that were written, one after the other; their headers in no order, as HTTP sees them.

    Those to HEAD tell the length of a body that does not come.
    """
    answers = []
    while data:
        head, end, data = data.partition(b"\r\n\r\n")
        assert end, "half an answer"
        status, *headers = _MADE.sub(rb"\1made", head).split(b"\r\n")
        if b"transfer-encoding: chunked" in head:
            body, data = _unchunked(data)
        else:
            found = re.search(rb"\r\ncontent-length: (\d+)", head)
            length = int(found[1]) if found else 0
            if may_lack_bodies and (not data or data.startswith(b"HTTP/1.1 ")):
                length = 0
            assert len(data) >= length, "half a body"
            body, data = data[:length], data[length:]
        answers.append(Answered(status, tuple(sorted(headers)), _TIMES.sub(rb'"\1":"then"', body)))
    return answers


def _unchunked(data: bytes) -> tuple[bytes, bytes]:
    """A body in chunks, and what follows it; nothing does when it was cut off."""
    body = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        n = int(size, 16)
        body, data = body + rest[:n], rest[n + 2 :]
        if not n:
            break
    return body, data


@asynccontextmanager
async def hosting(service: Service, *, start: bool = True, **settings: Any) -> AsyncIterator[Host]:
    """A server that is ready, unless it is not to be started."""
    host = Host(service, **settings)
    if start:
        service.lifecycle.start()
        while service.model.state.phase == "starting":  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)
    yield host
    await host.settle()
    await service.lifecycle.stop()


Fields = tuple[tuple[str, str], ...]


def request(
    method: str = "POST",
    target: str = "/predict",
    body: bytes = b"",
    *,
    headers: Fields | None = None,
    more: Any = None,
) -> bytes:
    """A request as bytes, with the usual headers unless others are given, and more behind them."""
    if headers is None:
        headers = (("Host", "127.0.0.1"), ("Content-Type", "application/json"), ("Content-Length", str(len(body))))
    fields = (*headers, *(more or {}).items())
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
    return "\r\n".join(lines).encode("utf-8") + b"\r\n\r\n" + body


PREDICT = request(body=b'{"instances": [[1, "a", true]]}')
ADD = request(target="/samples", body=b'{"samples": [{"id": "n", "features": [1, "a", true], "label": "yes"}]}')
PLAIN: Fields = (("Host", "127.0.0.1"),)
DELETE = request("DELETE", "/samples/c1", headers=PLAIN)
MODEL = request("GET", "/model", headers=PLAIN)

KEY = "0123456789abcdef-key"
both_ways = pytest.mark.parametrize("hot", [True, False])


def with_limits(**limits: Any) -> pytest.MarkDecorator:
    """Have the fixture `host` limit its connections."""
    return pytest.mark.parametrize("options", [{"limits": ConnectionLimits(**limits)}])


def asgi_scope(method: str, path: str, **headers: str) -> dict[str, Any]:
    """What an ASGI server gives an application of a request."""
    named = {"host": "127.0.0.1", **headers}
    fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()]
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": fields,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip


def access_rules(*, limit: int = 1000, **given: Any) -> AccessRules:
    """Rules of a server on this machine; without keys unless some are given."""
    limits = {f"max_{name}_bytes": limit for name in ("body", "bulk", "snapshot")}
    usual: dict[str, Any] = {"allowed_hosts": ["127.0.0.1"], "api_key": None, "access_keys": AccessKeys(None)}
    return AccessRules(**{**usual, **limits, **given})


def make_key(directory: Path, *scopes: str, expires_ms: int | None = None) -> str:
    """Make a key of a server with this data directory."""
    return create_key(directory / FILE_NAME, name="n", scopes=scopes, expires_ms=expires_ms)[1]
