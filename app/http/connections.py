"""Connections that are let in, and how long and how large what they send may be; the part below the short way in.

    limit                          what happens
    -----------------------------  ------------------------------------------------------------------------------------
    connections in all             the one that is idle longest is closed for a new one; when none is idle: 503
    connections of one address     likewise, so that one caller cannot have them all; not for proxies that are trusted
    bytes and fields of a head     431 as soon as they are exceeded, trailers of a body in chunks included
    time for a head, for a body    408; a body that goes on at a modest rate is not cut off
    time without a request         closed
    time without reading answers   closed

One timer looks at all connections every second or so: a timer for each request would cost as much as its routing.
"""

from __future__ import annotations

import ipaddress
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oubli.app.http.problems import ProblemError

MOST_HEAD_BYTES = 64 * 1024
MOST_FIELDS = 100
LEAST_BODY_RATE = 8192  # bytes a second of a body that is longer under way than `body_timeout`
_LINGER = 2.0  # seconds in which a refused client may go on sending, so that it reads why
_FRESH = 0.5  # seconds for which a connection counts as busy after its last answer
_LONGEST_TICK = 1.0
_NOW: Final = 0.0  # stands for the time of the next look

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


# What of a request is being read; plain numbers, because members of an Enum take longer to find.
NOTHING: Final = 0
HEAD: Final = 1
BODY: Final = 2


class Connections:
    """All connections of a server.

    Parameters
    ----------
    limits
        What they may do.
    """

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self.limits = limits or ConnectionLimits()
        self._open: set[GuardedProtocol] = set()
        self._of_address: dict[str, int] = {}
        self._victims: dict[str | None, _Victims] = {}
        shortest = min(self.limits.head_seconds, self.limits.body_seconds, self.limits.idle_seconds)
        self._tick = max(0.005, min(_LONGEST_TICK, shortest / 4))
        self._is_ticking = False
        self._looked_at = 0.0

    def admit(self, connection: GuardedProtocol, address: str) -> bool:
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

    def leave(self, connection: GuardedProtocol, address: str) -> None:
        """Forget a connection; one that was not let in, or has left, is not known."""
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

    def _is_trusted(self, connection: GuardedProtocol) -> bool:
        if not self.limits.trusted or connection.client is None:
            return False
        address = ipaddress.ip_address(connection.client[0].partition("%")[0])
        return any(address in network for network in self.limits.trusted)


class _Victims:
    """Connections that may be closed for new ones, the one that is idle longest first."""

    __slots__ = ("not_before", "queue")

    def __init__(self) -> None:
        self.queue: deque[GuardedProtocol] = deque()
        self.not_before = float("-inf")


class _HeadTooLargeError(Exception):
    """Stops the parser: a head, or its trailers, have more bytes or fields than they may."""


class _OverError(Exception):
    """Stops the parser: what follows a request that was the last of its connection."""


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol with limits; `guarded_for` makes the class for a server.

    Attributes
    ----------
    address
        Of the client; the network of an IPv6 address, because whoever has one of them has all.
    idle_since
        When the newest answer was written, or the connection was made.
    """

    guard: ClassVar[Connections]

    # uvicorn's own attributes are more than Python finds quickly in one dictionary.
    __slots__ = (
        "_began",
        "_body_bytes",
        "_ends_at",
        "_head_bytes",
        "_is_over",
        "_last_words",
        "_n_begun",
        "_n_fields",
        "_reading",
        "_unread",
        "_unread_since",
        "_unseen_bytes",
        "address",
        "idle_since",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.address = ""
        self.idle_since = 0.0
        self._reading: int = NOTHING
        self._began = _NOW  # the head or the body that is being read
        self._n_begun = 0  # requests, in the bytes that are being parsed
        self._n_fields = 0
        self._head_bytes = 0  # of complete parts
        self._unseen_bytes = 0  # that the parser keeps to itself
        self._body_bytes = 0
        self._is_over = False  # what comes now is not looked at
        self._last_words: bytes | None = None  # to be written after the answers that are due
        self._ends_at = float("inf")
        self._unread = 0  # bytes that the client has not taken at the last look
        self._unread_since = 0.0

    # --- called by the loop

    def connection_made(self, transport: Any) -> None:
        """Let the connection in, or not."""
        super().connection_made(transport)
        self.address = "" if self.client is None else _address_of(self.client[0])
        self.idle_since = time.monotonic()
        if not self.guard.admit(self, self.address):
            self._is_over = True
            transport.write(self._words(ProblemError("too-many-connections", headers={"Connection": "close"})))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.guard.leave(self, self.address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Have bytes parsed, as long as they keep to the limits."""
        if self._is_over:
            return
        was_reading, n_body_bytes = self._reading, self._body_bytes
        self._n_begun = 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._end_after_answer()
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _HeadTooLargeError):
                self._refuse(ProblemError("head-too-large", headers={"Connection": "close"}))
            elif isinstance(error.__context__, _OverError):
                self._is_over = True
            else:
                self._refuse(ProblemError("bad-request", headers={"Connection": "close"}))
            return
        if self._reading:
            self._count_unseen(len(data), was_reading, self._body_bytes != n_body_bytes)

    # --- called by the parser

    def on_message_begin(self) -> None:
        """Begin with a request."""
        self._head_begins()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take in a part of the target."""
        self._head_bytes += len(url)
        if self._head_bytes > MOST_HEAD_BYTES:
            raise _HeadTooLargeError
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take in a field of the head; those of a trailer say nothing that is asked for."""
        self._n_fields = n_fields = self._n_fields + 1
        self._head_bytes = n_bytes = self._head_bytes + len(name) + len(value) + 4
        if n_fields > MOST_FIELDS or n_bytes > MOST_HEAD_BYTES:
            raise _HeadTooLargeError
        if self._reading == HEAD:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin with the body."""
        super().on_headers_complete()  # refuses targets that are none
        self._head_ends()

    def on_body(self, body: bytes) -> None:
        """Take in a part of the body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._reading = NOTHING
        super().on_message_complete()

    # --- called by the server

    def on_response_complete(self) -> None:
        """Go on with the request behind the one that was answered; uvicorn would start a timer here."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.idle_since = time.monotonic()
        self._go_on()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being read or answered."""
        return not self._reading and self._has_answered

    def look(self, now: float, elapsed: float) -> None:
        """Close the connection when it takes too long.

        Parameters
        ----------
        now
            The time.
        elapsed
            Seconds since the last look.
        """
        limits, transport = self.guard.limits, self.transport
        if now >= self._ends_at:
            transport.abort()
            return
        n_unread = transport.get_write_buffer_size()
        if n_unread:
            self.idle_since = now
        if n_unread and n_unread == self._unread:
            if now - self._unread_since > limits.body_seconds:
                transport.abort()
                return
        else:
            self._unread, self._unread_since = n_unread, now
        if self._is_over or transport.is_closing():
            return
        if not self._reading:
            if self._has_answered and now - self.idle_since > limits.idle_seconds:
                self._flush()
                transport.close()
        elif self._began == _NOW:
            self._began = now  # noted here, once in a while, and not with each request
        elif self.flow.read_paused:
            self._began += elapsed  # it is the server that takes its time
        else:
            is_head = self._reading == HEAD
            allowed = limits.head_seconds if is_head else limits.body_seconds + self._body_bytes / LEAST_BODY_RATE
            if now - self._began > allowed:
                self._refuse(ProblemError("too-slow", headers={"Connection": "close"}))

    # --- the parts

    @property
    def _has_answered(self) -> bool:
        return (self.cycle is None or self.cycle.response_complete) and not self.pipeline

    @property
    def _has_cycle(self) -> bool:
        """Whether the request whose body is being read is uvicorn's current one."""
        return self._reading == BODY

    def _flush(self) -> None:
        """Write what was answered and not written yet."""

    def _head_begins(self) -> None:
        if self.cycle is not None and not self.cycle.keep_alive:
            raise _OverError
        self._reading = HEAD
        self._began = _NOW
        self._n_begun += 1
        self._n_fields = self._head_bytes = self._unseen_bytes = self._body_bytes = 0

    def _head_ends(self) -> None:
        self._reading = BODY
        self._began = _NOW
        self._unseen_bytes = 0

    def _count_unseen(self, n_bytes: int, was_reading: int, body_came: bool) -> None:
        """Refuse a head or a trailer before it is complete: the parser keeps its last field until that has ended."""
        if self._reading == BODY:
            self._unseen_bytes = 0 if body_came or was_reading != BODY else self._unseen_bytes + n_bytes
        elif was_reading == HEAD or (self._n_begun == 1 and not was_reading):
            self._unseen_bytes += n_bytes
        if self._unseen_bytes > MOST_HEAD_BYTES:
            self._refuse(ProblemError("head-too-large", headers={"Connection": "close"}))

    def _end_after_answer(self) -> None:
        """Look at nothing more: a request that asks for another protocol is answered in this one, as the last."""
        self._is_over = True
        if self._has_answered:
            self._flush()
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def _refuse(self, problem: ProblemError) -> None:
        """Answer a request that cannot be read to its end, after those before it, and close the connection."""
        self._is_over = True
        self._flush()
        self.flow.resume_reading()  # what still comes is dropped
        words, cycle = self._words(problem), self.cycle
        if self._has_cycle:
            if self.pipeline and self.pipeline[0][0] is cycle:
                self.pipeline.popleft()
                cycle.response_complete = True
                self._last_words = words
                return
            if cycle.response_started:
                self.transport.close()
                return
            cycle.disconnected = cycle.response_complete = True
            cycle.message_event.set()
        elif not self._has_answered:
            self._last_words = words
            return
        self._say(words)

    def _go_on(self) -> None:
        """Begin with the next request that waits, or say the last words."""
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            task = self.loop.create_task(cycle.run_asgi(app))
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)
        elif self._last_words is not None:
            self._say(self._last_words)

    def _say(self, words: bytes) -> None:
        """Write the last answer. The client may still be sending: closed at once, it might never read it."""
        self._last_words = None
        if self.transport.is_closing():
            return
        self.transport.write(words)
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._ends_at = time.monotonic() + _LINGER
        else:
            self.transport.close()

    def _words(self, problem: ProblemError) -> bytes:
        response = problem.response()
        fields = [*self.server_state.default_headers, *response.raw_headers]
        status = HTTPStatus(response.status_code)
        lines = [b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode("ascii"))]
        lines += [b"%b: %b\r\n" % field for field in fields]
        return b"".join(lines) + b"\r\n" + bytes(response.body)


def guarded_for(connections: Connections) -> type[GuardedProtocol]:
    """Return the protocol for the connections of a server."""
    return type("OubliGuardedProtocol", (GuardedProtocol,), {"guard": connections})


def parse_networks(names: Iterable[str]) -> tuple[Network, ...]:
    """Return addresses and networks as networks; `ValueError` for what is neither."""
    return tuple(ipaddress.ip_network(name, strict=False) for name in names)


def _address_of(host: str) -> str:
    """Return what connections are counted by."""
    if ":" not in host:
        return host
    return str(ipaddress.ip_network(f"{host.partition('%')[0]}/64", strict=False))
