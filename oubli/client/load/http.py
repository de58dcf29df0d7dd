"""HTTP/1.1 as a load test needs it: a connection with one request at a time, and requests as bytes.

A test of a server's speed must need less CPU time for a request than the server does. httpx2 needs
many times as much as the server, and would measure itself. A protocol of asyncio with httptools
on uvloop needs about half as much as the server. `httptools` parses the answers, as it parses requests in the server.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

from oubli.client.load.plan import LoadTestError


class Target:
    """A server's address, and what every request to it has.

    Parameters
    ----------
    url
        Address, with a path when the server is below one.
    key
        The key that is sent; None for none.
    ca_file
        Certificates to trust in place of those of the system.

    Raises
    ------
    LoadTestError
        When it is no address, or the certificates cannot be read.
    """

    def __init__(self, url: str, key: str | None = None, ca_file: Path | None = None) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise LoadTestError("the server's address cannot be read: write it as http://127.0.0.1:8000") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise LoadTestError("the server's address must begin with http:// or https://, as in http://127.0.0.1:8000")
        if parts.username is not None:
            raise LoadTestError("the server's address must not hold a user or a password, which would be shown")
        self.url = url.rstrip("/")
        self.host = parts.hostname
        self.port = port or (443 if parts.scheme == "https" else 80)
        self._path = parts.path.rstrip("/")
        self._head = f"Host: {parts.netloc}\r\nUser-Agent: oubli-load-test\r\n"
        if key is not None:
            self._head += f"Authorization: Bearer {key}\r\n"
        self.tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            try:
                self.tls = ssl.create_default_context(cafile=ca_file)
            except (OSError, ssl.SSLError) as error:
                raise LoadTestError(f"the certificates in {ca_file} cannot be read: {error}") from None

    def request(self, method: str, path: str, content: bytes | None = None) -> bytes:
        """Return a request; content is JSON."""
        head = f"{method} {self._path}{path} HTTP/1.1\r\n{self._head}"
        if content is None:
            return f"{head}\r\n".encode("latin-1")
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        return head.encode("latin-1") + content


class Connection(asyncio.Protocol):
    """A connection that waits for one answer at a time.

    Parameters
    ----------
    on_answer
        Called with the connection when a whole answer is there: `status`, `body` and `retry_after` are its.
    on_end
        Called with the connection when it is closed, by whomever; `is_waiting` says whether an answer was due.
    """

    def __init__(
        self, on_answer: Callable[[Connection], None], on_end: Callable[[Connection], None] = lambda _: None
    ) -> None:
        self._on_answer = on_answer
        self._on_end = on_end
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._is_whole = False
        self.is_waiting = False
        self.is_open = False
        self.status = 0
        self.retry_after = ""
        # Whose request it is, for its owner: a name, when it was due and sent, what it must not be older than.
        self.operation = ""
        self.sample = ""
        self.due = 0.0
        self.sent = 0.0
        self.floor = 0

    def send(self, request: bytes) -> None:
        """Send a request; the one before must have been answered."""
        assert self._transport is not None  # noqa: S101 - who has a connection has opened it
        self._parts = []
        self.retry_after = ""
        self.is_waiting = True
        self._transport.write(request)

    def abort(self) -> None:
        """Close it at once."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def body(self) -> bytes:
        """What the answer brought."""
        return b"".join(self._parts)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102 - asyncio's
        self._transport = cast("asyncio.Transport", transport)  # those of uvloop are no subclass
        self.is_open = True

    def data_received(self, data: bytes) -> None:  # noqa: D102 - asyncio's
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.abort()
        if self._is_whole:  # not inside of the parser, which would take a mistake of the owner for one of the server
            self._is_whole = False
            self._on_answer(self)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: D102 - asyncio's
        self.is_open = False
        self._on_end(self)

    def on_header(self, name: bytes, value: bytes) -> None:  # noqa: D102 - the parser's
        if name.lower() == b"retry-after":
            self.retry_after = value.decode("latin-1")

    def on_body(self, part: bytes) -> None:  # noqa: D102 - the parser's
        self._parts.append(part)

    def on_message_complete(self) -> None:  # noqa: D102 - the parser's
        self.status = self._parser.get_status_code()
        self.is_waiting = False
        self._is_whole = True
        if not self._parser.should_keep_alive():
            self.is_open = False
            self.abort()


async def connect(target: Target, connection: Connection) -> None:
    """Open a connection.

    Raises
    ------
    OSError
        When the server cannot be reached, its certificate included.
    """
    await asyncio.get_running_loop().create_connection(
        lambda: connection, target.host, target.port, ssl=target.tls, ssl_handshake_timeout=10 if target.tls else None
    )


async def ask(
    target: Target, method: str, path: str, content: Any = None, *, seconds: float = 60.0
) -> tuple[int, Any, str]:
    """Send one request by a connection of its own; return status, content and `Retry-After`.

    Raises
    ------
    LoadTestError
        When there is no answer, or one that is not JSON.
    """
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish(_: Connection) -> None:
        if not done.done():
            done.set_result(None)

    connection = Connection(finish, finish)
    try:
        async with asyncio.timeout(seconds):
            await connect(target, connection)
            connection.send(target.request(method, path, None if content is None else json.dumps(content).encode()))
            await done
    except OSError as error:  # TimeoutError is one
        reason = str(error) or f"nothing within {seconds:g} s"
        raise LoadTestError(f"no server answers at {target.url} ({reason})") from None
    finally:
        connection.abort()
    if connection.is_waiting:
        raise LoadTestError(f"the server at {target.url} closed the connection without an answer")
    try:
        return connection.status, json.loads(connection.body or b"null"), connection.retry_after
    except ValueError:
        raise LoadTestError(f"{target.url}{path} answered {connection.status} and no JSON: is it a server?") from None


def explain(path: str, status: int, content: Any) -> str:
    """A refusal in words, with the server's own."""
    detail = content.get("detail") or content.get("title") if isinstance(content, dict) else None
    return f"{path} answered {status}{f': {detail}' if detail else ''}"
