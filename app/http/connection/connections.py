"""The connections of a server: how many there may be, how long requests may take, and what they hold of samples.

    limit                          what happens
    -----------------------------  ------------------------------------------------------------------------------------
    connections in all             the one that is idle longest is closed for a new one; when none is idle: 503
    connections of one address     likewise, so that one client cannot have all; not for trusted proxies
    bytes and fields of a head     431 as soon as they are exceeded, trailers of a body in chunks included
    time for a head, for a body    408; a body that keeps a modest rate is not cut off
    time without a request         closed
    time without reading answers   closed

One timer checks all connections every second or so: a timer for each request would cost as much as its routing.

An idle connection keeps its last request until the next one, or until it is closed. A request that came in half, or an
answer that the client does not read, can stay as long as the client likes. So connections are a holder of samples:
`Exchanges` registers them, and before an erasure is finished they forget, or are cut.
"""

from __future__ import annotations

import ipaddress
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import uvicorn

from oubli.app.service.erasure.holders import Holders
from oubli.app.settings import Settings
from oubli.app.storage.directory import connections_allowed

_FRESH = 0.5  # seconds for which a connection counts as busy after its last answer
_LONGEST_TICK = 1.0

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What connections may do.

    Attributes
    ----------
    most, most_of_address
        Connections that may be open, in all and of one address.
    trusted
        Networks of proxies, for which the limit of one address does not hold.
    head_seconds, body_seconds, idle_seconds
        For the head of a request; for its body, and more the longer it is; between two requests.
    """

    most: int = 4096
    most_of_address: int = 2048
    trusted: tuple[Network, ...] = ()
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    idle_seconds: float = 75.0


class Connection(Protocol):
    """What is asked of an open connection, here; see `OubliProtocol`."""

    loop: Any
    transport: Any
    cycle: Any  # uvicorn's record of the newest request
    client: tuple[str, int] | None
    address: str
    idle_since: float

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being read or answered."""

    @property
    def is_reading(self) -> bool:
        """Whether it is between the first byte of a request and its last."""

    def look(self, now: float, elapsed: float) -> None:
        """Close it when it takes too long."""

    def forget(self) -> None:
        """Forget the last request if it was answered."""


class Connections:
    """All connections of a server.

    Parameters
    ----------
    limits
        What they may do.
    """

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self.limits = limits or ConnectionLimits()
        self._open: set[Connection] = set()
        self._of_address: dict[str, int] = {}
        self._victims: dict[str | None, _Victims] = {}
        shortest = min(self.limits.head_seconds, self.limits.body_seconds, self.limits.idle_seconds)
        self._tick = max(0.005, min(_LONGEST_TICK, shortest / 4))
        self._is_ticking = False
        self._looked_at = 0.0

    def admit(self, connection: Connection, address: str) -> bool:
        """Let a connection in; false when there are too many."""
        n_of_address = self._of_address.get(address, 0)
        if n_of_address >= self.limits.most_of_address and not self._is_trusted(connection):
            if not self._make_room(address):
                return False
        elif len(self._open) >= self.limits.most and not self._make_room(None):
            return False
        self._open.add(connection)
        self._of_address[address] = self._of_address.get(address, 0) + 1
        if not self._is_ticking:
            self._is_ticking = True
            self._looked_at = time.monotonic()
            connection.loop.call_later(self._tick, self._look, connection.loop)
        return True

    def leave(self, connection: Connection, address: str) -> None:
        """Forget a connection; ignore one that was not admitted or has left."""
        if connection in self._open:
            self._open.remove(connection)
            left = self._of_address[address] - 1
            if left:
                self._of_address[address] = left
            else:
                del self._of_address[address]

    def _make_room(self, address: str | None) -> bool:
        """Close the connection that is idle longest, of one address or of all; false when they are busy."""
        now = time.monotonic()
        found = self._victims.setdefault(address, _Victims())
        if not found.queue:
            if now < found.not_before:
                return False
            # Sorted once for many: each connection that is too much would look at all there are.
            idle = [one for one in self._open if one.is_idle and address in (None, one.address)]
            found.queue.extend(sorted(idle, key=lambda one: one.idle_since))
            found.not_before = now + _FRESH / 4
        while found.queue:
            victim = found.queue.popleft()
            if victim in self._open and victim.is_idle and victim.idle_since < now - _FRESH:
                victim.transport.close()
                self.leave(victim, victim.address)
                return True
        return False

    def _look(self, loop: Any) -> None:
        """Close what takes too long."""
        now = time.monotonic()
        elapsed, self._looked_at = now - self._looked_at, now
        self._victims.clear()
        for connection in tuple(self._open):
            connection.look(now, elapsed)
        self._is_ticking = bool(self._open)
        if self._is_ticking:
            loop.call_later(self._tick, self._look, loop)

    def _is_trusted(self, connection: Connection) -> bool:
        if not self.limits.trusted or connection.client is None:
            return False
        address = ipaddress.ip_address(connection.client[0].partition("%")[0])
        return any(address in network for network in self.limits.trusted)


class _Victims:
    """Connections that may be closed for new ones, the one that is idle longest first."""

    __slots__ = ("not_before", "queue")

    def __init__(self) -> None:
        self.queue: deque[Connection] = deque()
        self.not_before = float("-inf")


def parse_networks(names: Iterable[str]) -> tuple[Network, ...]:
    """Return addresses and networks as networks; `ValueError` for what is neither."""
    return tuple(ipaddress.ip_network(name, strict=False) for name in names)


def address_of(host: str) -> str:
    """Return what connections are counted by."""
    if ":" not in host:
        return host
    return str(ipaddress.ip_network(f"{host.partition('%')[0]}/64", strict=False))


# Of every answer, on the fast path as well: no page of another origin embeds it or frames it.
_HEADERS = [("Cross-Origin-Resource-Policy", "same-origin"), ("X-Frame-Options", "DENY")]


def server_config(
    app: Any, protocol: Any = "auto", *, tls: ssl.SSLContext | None = None, lifespan: Literal["on", "off"] = "on"
) -> uvicorn.Config:
    """Return uvicorn's settings: uvloop and httptools where they run, and nothing said or asked beyond need."""
    return uvicorn.Config(
        app,
        http=protocol,
        workers=1,
        access_log=False,  # its lines hold paths, and paths hold ids
        log_config=None,
        server_header=False,
        headers=_HEADERS,
        proxy_headers=False,  # the application knows whom to trust
        ssl_context_factory=None if tls is None else lambda *_: tls,
        interface="asgi3",
        ws="none",
        lifespan=lifespan,
    )


def connections_of(settings: Settings) -> Connections:
    """Return the connections of a server, as many as the process may have descriptors for."""
    most = connections_allowed(settings.max_connections)
    return Connections(
        ConnectionLimits(
            most=most,
            most_of_address=max(1, most // 2),
            trusted=parse_networks(settings.trusted_proxies),
            head_seconds=settings.head_timeout,
            body_seconds=settings.body_timeout,
            idle_seconds=settings.idle_timeout,
        )
    )


STREAM = "oubli.stream"
"""Key of a `Stream`; requests that are answered in pieces while their body comes in have one."""
UNSENT = "oubli.unsent"
"""Key of a function that returns how many bytes were written and not taken in by the client."""
PUSH = "oubli.push"
"""Key of a function that writes a chunk, its length before it, of an answer that has begun; false when it cannot."""


@dataclass(slots=True)
class Stream:
    """How far an answer in pieces is.

    Attributes
    ----------
    n_blocks
        Blocks of the body that were begun; the answer to the one before was taken in by the client.
    keeps_all
        Whether something of the first block is kept until the end.
    """

    n_blocks: int = 0
    keeps_all: bool = False

    def begin_block(self, *, keeps: bool) -> None:
        """Note that a block is begun; whether something of it is kept for later ones."""
        self.n_blocks += 1
        self.keeps_all = self.keeps_all or keeps


_EVENTS = "/events"
_READS, _BLOCKS = 2, 2  # of a stream, after which nothing is kept of what had come
_UPLOAD = "/snapshot/file"
# Requests that hold nothing of any sample; the first waits for what is finished here.
_SAFE = frozenset({"/snapshot", "/model/fit", "/model/scrub", "/model/verify"})


class Exchanges:
    """What is in flight on the connections of a server, registered with what may hold samples.

    Parameters
    ----------
    holders
        The registry.
    found
        Returns the connections there are.
    """

    def __init__(self, holders: Holders, found: Callable[[], Iterable[Connection]]) -> None:
        self._found = found
        holders.register("connections", self._forget, self._in_flight)

    def _forget(self, period: int) -> None:
        del period  # an idle connection needs its last request no more, however old it is
        for connection in list(self._found()):
            connection.forget()

    def _in_flight(self) -> Iterator[_Exchange]:
        for connection in list(self._found()):
            exchange = _Exchange(connection)
            if not exchange.is_over:
                yield exchange


class _Exchange:
    """A request with its answer, from its first byte until the client has taken in the last.

    Of a stream it is what had come when it was looked at: that is over when what came then was read, and when two more
    blocks were begun, the first of which may have begun before.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cycle = connection.cycle
        self._was_reading = connection.is_reading
        self._has_begun = self._cycle is not None and not self._cycle.response_complete
        self._buffer: Any = getattr(self._cycle, "body", None)
        self._n_reads = 0
        self._n_blocks: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        connection = self._connection
        if self._was_reading and not self._has_begun and connection.cycle is not self._cycle:
            # What was being read is a request by now.
            self._has_begun, self._cycle = True, connection.cycle
            self._buffer = getattr(self._cycle, "body", None)
        stream = self._stream
        if stream is not None:
            return self._is_past(stream)
        if _is_unsent(connection):
            return False
        if self._was_reading and connection.is_reading and connection.cycle is self._cycle:
            return connection.transport.is_closing() or _is_safe(self._cycle)
        self._was_reading = False
        cycle = self._cycle
        return cycle is None or cycle.response_complete or connection.transport.is_closing() or _is_safe(cycle)

    def end(self) -> None:
        """Cut the connection when it is the client that is waited for, or a stream."""
        if (
            self._stream is not None
            or _is_unsent(self._connection)
            or (self._was_reading and self._connection.is_reading)
        ):
            self._connection.transport.abort()

    @property
    def _stream(self) -> Stream | None:
        """The stream, until it ends."""
        cycle = self._cycle
        if cycle is None or cycle is not self._connection.cycle or cycle.response_complete:
            return None
        if self._connection.transport.is_closing():
            return None
        found: Stream | None = (getattr(cycle, "scope", None) or {}).get(STREAM)
        return found

    def _is_past(self, stream: Stream) -> bool:
        buffer = self._cycle.body
        if buffer is not self._buffer:  # uvicorn begins a new one when the application has read
            self._buffer = buffer
            self._n_reads += 1
        if self._n_reads < _READS:
            return False
        if self._n_blocks is None:
            self._n_blocks = stream.n_blocks
        return stream.n_blocks >= self._n_blocks + _BLOCKS and not stream.keeps_all


def _is_unsent(connection: Connection) -> bool:
    return bool(connection.transport.get_write_buffer_size())


def _is_safe(cycle: Any) -> bool:
    """Whether a request on the ordinary way holds nothing of any sample."""
    scope = getattr(cycle, "scope", None)
    if scope is None or cycle.response_complete:
        return False
    path = scope.get("path", "")
    if path == _UPLOAD:
        return bool(scope.get("method") == "PUT")  # it has a hold of its own
    return path in _SAFE or path.endswith(_EVENTS)
