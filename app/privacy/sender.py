"""A request to somebody else's server: one attempt, on the event loop, over a connection to a checked address.

    resolve -> check -> connect to that address -> TLS for the host's name -> request -> status

There is no redirect that is followed, no proxy, no cookie. Of the answer its status is read, how long to wait, and a
short body, which webhooks do not look at. A connection is kept for the next request to the same endpoint for a while: a
handshake takes the loop longer than a request. It is made of asyncio's streams and h11, which the server has already:
an HTTP client resolves names itself, and would have to be kept from proxies and redirects.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import h11

from oubli.app.privacy.addresses import AddressRules, Endpoint, RefusedAddressError, UnresolvedError
from oubli.app.version import VERSION

Failure = Literal["refused-address", "unresolved", "unreachable", "untrusted", "timeout", "broken-answer", "status"]
Headers = Sequence[tuple[str, str]]

_LARGEST_HEAD = 16 * 1024
_LARGEST_BODY = 64 * 1024  # of an answer; of a larger one the connection is closed
_PIECE = 16 * 1024
_KEPT = 30.0  # seconds for which a connection may wait for the next request
_LONGEST = 300.0  # seconds after which the name is resolved again
_REST = 1.0  # seconds for the rest of an answer whose status is known
_MOST_ADDRESSES = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one attempt.

    Attributes
    ----------
    failure
        Why it is not delivered; None when it is.
    status
        Of the answer, when there was one.
    retry_after
        Seconds for which the receiver asks to be left alone.
    body
        Of the answer; empty when it was too long or did not come in time.
    """

    failure: Failure | None
    status: int | None = None
    retry_after: float = 0.0
    body: bytes = b""


class _ClosedError(Exception):
    """The other side has closed the connection before it said anything."""


class _Connection:
    """One connection to one address."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.CLIENT, _LARGEST_HEAD)
        self._opened = self._used = time.monotonic()

    @property
    def is_fresh(self) -> bool:
        """Whether it may be used again."""
        now = time.monotonic()
        is_young = now - self._used < _KEPT and now - self._opened < _LONGEST
        return is_young and not self._reader.at_eof() and not self._writer.is_closing()

    async def exchange(self, method: str, endpoint: Endpoint, headers: Headers, body: bytes) -> tuple[Outcome, bool]:
        """Send a request and read the answer; also return whether the connection can be kept.

        Raises
        ------
        _ClosedError
            When the other side has gone without a word.
        h11.RemoteProtocolError, OSError
            When it is not HTTP, or breaks off.
        """
        protocol = self._protocol
        request = h11.Request(method=method, target=endpoint.target, headers=list(headers))
        data = (protocol.send(request), protocol.send(h11.Data(data=body)), protocol.send(h11.EndOfMessage()))
        self._writer.write(b"".join(part for part in data if part))
        await self._writer.drain()
        response = await self._event()
        while not isinstance(response, h11.Response):
            response = await self._event()
        outcome = _outcome(response)
        with contextlib.suppress(TimeoutError, OSError, h11.RemoteProtocolError, _ClosedError):
            async with asyncio.timeout(_REST):
                outcome = replace(outcome, body=await self._read_body())
        if protocol.our_state is not h11.DONE or protocol.their_state is not h11.DONE:
            return outcome, False
        protocol.start_next_cycle()
        self._used = time.monotonic()
        return outcome, True

    def close(self) -> None:
        """Close it at once: there is nothing to wait for."""
        self._writer.transport.abort()

    async def _event(self) -> h11.Event:
        """Return the next piece of the answer."""
        while True:
            event = self._protocol.next_event()
            if event is h11.NEED_DATA:
                data = await self._reader.read(_PIECE)
                if not data and self._protocol.their_state is h11.SEND_RESPONSE and not self._protocol.trailing_data[0]:
                    raise _ClosedError
                self._protocol.receive_data(data)
            elif isinstance(event, h11.Event):
                return event
            else:  # h11.PAUSED: never before the answer is whole
                raise _ClosedError

    async def _read_body(self) -> bytes:
        body = bytearray()
        while len(body) <= _LARGEST_BODY:
            event = await self._event()
            if not isinstance(event, h11.Data):
                return bytes(body)
            body += event.data
        return b""


class Sender:
    """Sends requests, one attempt each.

    Parameters
    ----------
    rules
        Which addresses may be connected to.
    timeout
        Seconds that an attempt may take, from the resolving of the name to the status.
    tls
        Checks certificates and names; by default against the system's authorities.
    """

    def __init__(self, rules: AddressRules, timeout: float, tls: ssl.SSLContext | None = None) -> None:
        self._rules = rules
        self._timeout = timeout
        self._tls = ssl.create_default_context() if tls is None else tls
        self._kept: dict[Endpoint, _Connection] = {}

    async def post(self, endpoint: Endpoint, headers: Headers, body: bytes) -> Outcome:
        """Make one attempt to send JSON; see `request`. The body of the answer is not kept."""
        outcome = await self.request("POST", endpoint, (("Content-Type", "application/json"), *headers), body)
        return replace(outcome, body=b"")

    async def request(self, method: str, endpoint: Endpoint, headers: Headers = (), body: bytes = b"") -> Outcome:
        """Make one attempt; whatever happens is told in the outcome.

        Parameters
        ----------
        method
            `GET` or `POST`.
        endpoint
            Where to.
        headers
            Besides those that every request has.
        body
            What is sent.
        """
        whole = (
            ("Host", endpoint.authority),
            ("User-Agent", f"Oubli/{VERSION}"),
            ("Content-Length", str(len(body))),
            *headers,
        )
        try:
            async with asyncio.timeout(self._timeout):
                return await self._request(method, endpoint, whole, body)
        except TimeoutError:
            return Outcome("timeout")
        except UnresolvedError:
            return Outcome("unresolved")
        except RefusedAddressError:
            return Outcome("refused-address")
        except ssl.SSLError:
            return Outcome("untrusted")
        except (h11.RemoteProtocolError, _ClosedError):
            return Outcome("broken-answer")
        except OSError:
            return Outcome("unreachable")

    def close(self) -> None:
        """Close what is kept."""
        while self._kept:
            self._kept.popitem()[1].close()

    async def _request(self, method: str, endpoint: Endpoint, headers: Headers, body: bytes) -> Outcome:
        kept = self._kept.pop(endpoint, None)
        if kept is not None and kept.is_fresh:
            # The other side may close it at the very moment of the request: then a new one is made.
            with contextlib.suppress(_ClosedError, OSError):
                return await self._exchange(kept, method, endpoint, headers, body)
        elif kept is not None:
            kept.close()
        connection = await self._connect(endpoint)
        return await self._exchange(connection, method, endpoint, headers, body)

    async def _exchange(
        self, connection: _Connection, method: str, endpoint: Endpoint, headers: Headers, body: bytes
    ) -> Outcome:
        is_kept = False
        try:
            outcome, can_be_kept = await connection.exchange(method, endpoint, headers, body)
            # Of requests that were under way at the same time, the first to end leaves its connection.
            is_kept = can_be_kept and self._kept.setdefault(endpoint, connection) is connection
        finally:
            if not is_kept:
                connection.close()
        return outcome

    async def _connect(self, endpoint: Endpoint) -> _Connection:
        """Connect to one of the addresses of the host: the first that answers."""
        failed: OSError | None = None
        for address in (await self._rules.addresses(endpoint))[:_MOST_ADDRESSES]:
            try:
                reader, writer = await asyncio.open_connection(
                    str(address),
                    endpoint.port,
                    limit=_PIECE,
                    ssl=self._tls if endpoint.is_tls else None,
                    server_hostname=endpoint.host if endpoint.is_tls else None,
                )
            except ssl.SSLError:
                raise
            except OSError as error:
                failed = error
            else:
                return _Connection(reader, writer)
        raise failed or UnresolvedError


def _outcome(response: h11.Response) -> Outcome:
    status = response.status_code
    if 200 <= status < 300:
        return Outcome(None, status)
    after = next((value for name, value in response.headers if name == b"retry-after"), b"")
    return Outcome("status", status, float(after) if after.isdigit() and len(after) < 7 else 0.0)
