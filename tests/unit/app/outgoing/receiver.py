"""A receiver of webhooks that does as a test tells it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

ACCEPT = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
HANG = "hang"
"""Answer never."""
HANG_UP = "hang up"
"""Close the connection without a word."""


def answer(status: int, *headers: str) -> str:
    return "\r\n".join((f"HTTP/1.1 {status} Word", *headers, "Content-Length: 2", "", "ok"))


@dataclass
class Request:
    """One that came."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """Where requests arrive; `answers` says what becomes of each, at once or later: text, `HANG`, or `HANG_UP`."""

    answers: Callable[[Request], str | Awaitable[str]] = lambda request: ACCEPT
    requests: list[Request] = field(default_factory=list)
    accepted: list[Request] = field(default_factory=list)
    n_connections: int = 0
    port: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_connections += 1
        self._writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            while True:
                line, *rest = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in rest)}
                request = Request(line, headers, await reader.readexactly(int(headers.get("content-length", 0))))
                self.requests.append(request)
                answer = self.answers(request)
                said = answer if isinstance(answer, str) else await answer
                if said == HANG:
                    continue
                if said == HANG_UP:
                    break
                if said[9:12] in ("200", "202", "204"):
                    self.accepted.append(request)
                writer.write(said.encode("latin-1"))
                await writer.drain()
                if "Connection: close" in said:
                    break
        writer.close()

    @asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.sleep(0.01)
