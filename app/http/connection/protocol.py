"""uvicorn's HTTP/1.1 protocol with limits: of the size of heads, of the time of heads and bodies, of slow clients.

Requests of one connection are answered in their order, and so is what cannot be read to its end. One timer looks at all
connections; see `connections`.
"""

import time
from functools import partial
from http import HTTPStatus
from typing import Any, ClassVar, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oubli.app.http.connection.connections import PUSH, UNSENT, Connections, address_of
from oubli.app.http.monitoring.observer import (
    ALONE,
    OTHER_METHOD,
    REQUEST_ID,
    UNKNOWN_ROUTE,
    Observer,
    correlation_of,
    new_request_id,
)
from oubli.app.http.problems import ProblemError

MOST_HEAD_BYTES = 64 * 1024
MOST_FIELDS = 100
LEAST_BODY_RATE = 8192  # bytes a second of a body that is longer under way than `body_timeout`
_LINGER = 2.0  # seconds in which a refused client may still send, so that it reads the refusal
_NOW: Final = 0.0  # stands for the time of the next look
# What of a request is being read; plain numbers, because members of an Enum take longer to find.
NOTHING: Final = 0
HEAD: Final = 1
BODY: Final = 2


class _HeadTooLargeError(Exception):
    """Stops the parser: a head, or its trailers, have more bytes or fields than they may."""


class _OverError(Exception):
    """Stops the parser: what follows a request that was the last of its connection."""


class OubliProtocol(HttpToolsProtocol):
    """One connection, on which every request takes the ordinary path.

    Attributes
    ----------
    guard
        All connections of the server.
    observer
        Gets the requests that the application does not see, when there is one.
    address
        Of the client; the network of an IPv6 address, because a client with one of its addresses has all of them.
    idle_since
        When the newest answer was written, or the connection was made.
    """

    guard: ClassVar[Connections]
    observer: ClassVar[Observer | None] = None
    all_open: ClassVar[set[Any]] = set()  # as the server has them
    is_stopping: ClassVar[bool] = False  # then a new connection closes itself

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
        type(self).all_open = self.connections
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

    # --- called before an erasure is finished

    @property
    def is_reading(self) -> bool:
        """Whether it is between the first byte of a request and its last."""
        return bool(self._reading)

    def forget(self) -> None:
        """Forget the last request when it was answered: its body or its target may name a sample."""
        if not self.is_idle:
            return
        if self.cycle is not None and not self.cycle.keep_alive:
            return  # it is closed as soon as the client has taken in the answer
        self.url = b""
        self.cycle = self.scope = cast("Any", None)

    # --- called by the loop

    def connection_made(self, transport: Any) -> None:
        """Let the connection in, or not."""
        super().connection_made(transport)
        self.address = "" if self.client is None else address_of(self.client[0])
        self.idle_since = time.monotonic()
        if not self.guard.admit(self, self.address):
            self._is_over = True
            transport.write(self._words(ProblemError("too-many-connections", headers={"Connection": "close"})))
            transport.close()
        elif self.is_stopping:  # its handshake began before the sockets were closed
            self._is_over = True
            stopping = ProblemError("not-ready", "The server is stopping.", headers={"Connection": "close"})
            self._say(self._words(stopping))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.guard.leave(self, self.address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came in, as long as it keeps to the limits."""
        if self._is_over:
            return
        was_reading, n_body_bytes = self._reading, self._body_bytes
        self._n_begun = 0
        try:
            self._parse(data)
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
        if self.cycle is not None and not self.cycle.keep_alive:
            raise _OverError
        self._reading = HEAD
        self._began = _NOW
        self._n_begun += 1
        self._n_fields = self._head_bytes = self._unseen_bytes = self._body_bytes = 0
        super().on_message_begin()
        cast("dict[str, Any]", self.scope)[UNSENT] = self._n_unsent

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
        """Start the request."""
        if self._is_read_twice:
            return
        super().on_headers_complete()
        cast("dict[str, Any]", self.scope)[PUSH] = partial(self._push, self.cycle)
        self._reading = BODY
        self._began = _NOW
        self._unseen_bytes = 0

    def on_body(self, body: bytes) -> None:
        """Take in a part of the body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is whole."""
        if self._is_read_twice:
            return
        self._reading = NOTHING
        super().on_message_complete()

    # --- called by the server

    def on_response_complete(self) -> None:
        """Start the request behind the one that was answered; uvicorn would start a timer here."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.idle_since = time.monotonic()
        self._go_on()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being read or answered."""
        return not self.is_reading and self._has_answered

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

    # --- what the application may ask of the connection

    def _n_unsent(self) -> int:
        """Return how many bytes the client has yet to take in."""
        return 0 if self.transport.is_closing() else self.transport.get_write_buffer_size()

    def _push(self, cycle: Any, chunk: bytes) -> bool:
        """Write a chunk of an answer that is sent in chunks; false, and nothing is written, when it cannot be now."""
        if self.flow.write_paused or cycle.disconnected or cycle.response_complete or not cycle.chunked_encoding:
            return False
        self.transport.write(chunk)
        return True

    # --- other protocols

    @property
    def _is_read_twice(self) -> bool:
        """Whether the request asks for another protocol: the parser would take its body for the other protocol's."""
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _parse(self, data: bytes) -> None:
        """Parse what came in. The head of a request that asks for another protocol is read again without that wish."""
        left = memoryview(data)
        while left:
            try:
                self.parser.feed_data(left)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if not self._is_read_twice:
                    self._end_after_answer()
                    return
                left = left[upgrade.args[0] :]
            fields = [b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade"]
            version = self.parser.get_http_version().encode("ascii")
            head = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, version)
            # A parser that takes a request for the last one reads no more; uvicorn makes its parsers like this.
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self.parser.feed_data(b"".join((head, *fields, b"\r\n")))

    # --- the limits

    @property
    def _has_answered(self) -> bool:
        return (self.cycle is None or self.cycle.response_complete) and not self.pipeline

    def _count_unseen(self, n_bytes: int, was_reading: int, body_came: bool) -> None:
        """Refuse a head or a trailer before it is complete: the parser keeps its last field until that has ended."""
        if self._reading == BODY:
            self._unseen_bytes = 0 if body_came or was_reading != BODY else self._unseen_bytes + n_bytes
        elif was_reading == HEAD or (self._n_begun == 1 and not was_reading):
            self._unseen_bytes += n_bytes
        if self._unseen_bytes > MOST_HEAD_BYTES:
            self._refuse(ProblemError("head-too-large", headers={"Connection": "close"}))

    def _end_after_answer(self) -> None:
        """Look at nothing more: what follows a request for a tunnel (`CONNECT`) is no request."""
        self._is_over = True
        if self._has_answered:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def _refuse(self, problem: ProblemError) -> None:
        """Answer a request that cannot be read to its end, after those before it, and close the connection."""
        self._is_over = True
        self.flow.resume_reading()  # what still comes is dropped
        words, cycle = self._words(problem), self.cycle
        if self._reading == BODY:  # it is uvicorn's newest
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
        """Start the next request that waits, or send the last words."""
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
        """Return the answer to what is no whole request; the application sees it only if it has begun with it."""
        # What was read before belongs to another request, or to none.
        response = problem.response(self.url.decode("latin-1").partition("?")[0] if self._reading else "")
        correlation = correlation_of(self.headers) if self._reading else ALONE
        request_id = correlation.request_id or new_request_id()
        if self.observer is not None and self._reading != BODY:
            self.observer(OTHER_METHOD, UNKNOWN_ROUTE, response.status_code, 0.0, request_id, correlation)
        fields = [*self.server_state.default_headers, *response.raw_headers, (REQUEST_ID, request_id)]
        status = HTTPStatus(response.status_code)
        lines = [b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode("ascii"))]
        lines += [b"%b: %b\r\n" % field for field in fields]
        return b"".join(lines) + b"\r\n" + bytes(response.body)
