"""uvicorn's HTTP/1.1 protocol with the fast path, which is asked before a request becomes an ASGI task.

    socket -> httptools -> here -> FastPath -> socket                 common requests of the fast routes
                            |
                            +----> uvicorn -> middleware -> FastAPI   everything else

Most requests of a connection have the head of the one before, byte for byte but for the length of the body; these are
not even parsed. Any other request that may be fast is held back until its body is there: its head was judged, the
parser goes on, nothing has been started. When it turns out that it has to take the ordinary path, uvicorn's own
callbacks are called as the parser would have called them. Requests of one connection are answered in their order:
while one is on the ordinary path, or waits for the disk, those behind it go to uvicorn's queue.
"""

import time
from functools import partial
from http import HTTPStatus
from typing import Any, ClassVar, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oubli.app.http.connections import Connections, address_of
from oubli.app.http.correlation import ALONE, REQUEST_ID, Correlation, correlation_of, new_request_id
from oubli.app.http.exchanges import Exchanges
from oubli.app.http.fastpath import LATER, Answer, Awaited, Batch, FastPath, Handler, KnownHead, Occasion
from oubli.app.http.observer import OTHER_METHOD, UNKNOWN_ROUTE
from oubli.app.http.problems import ProblemError
from oubli.app.http.stream_state import PUSH, UNSENT

MOST_HEAD_BYTES = 64 * 1024
MOST_FIELDS = 100
LEAST_BODY_RATE = 8192  # bytes a second of a body that is longer under way than `body_timeout`
_LINGER = 2.0  # seconds in which a refused client may go on sending, so that it reads why
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
    """One connection. `protocol_for` makes the class that uvicorn is given.

    Attributes
    ----------
    address
        Of the client; the network of an IPv6 address, because whoever has one of them has all.
    idle_since
        When the newest answer was written, or the connection was made.
    """

    fast_path: ClassVar[FastPath]
    guard: ClassVar[Connections]
    all_open: ClassVar[set[Any]] = set()  # as the server has them
    is_stopping: ClassVar[bool] = False  # a connection that is made now is closed by nobody else
    _batch: ClassVar[Batch]
    _rendered: ClassVar[tuple[object, bytes]] = (None, b"")  # uvicorn's own headers, and their text

    # uvicorn's own attributes are more than Python finds quickly in one dictionary.
    __slots__ = (
        "_admitted_for",
        "_admitted_headers",
        "_awaited",
        "_began",
        "_body_bytes",
        "_chunk",
        "_correlation",
        "_ends_at",
        "_handler",
        "_head_bytes",
        "_held_body",
        "_is_over",
        "_known_head",
        "_last_words",
        "_n_begun",
        "_n_fields",
        "_reading",
        "_unread",
        "_unread_since",
        "_unseen_bytes",
        "_unsent",
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
        self._handler: Handler | None = None
        self._held_body = b""
        self._admitted_for = Occasion(b"", "", 0)
        self._admitted_headers: list[tuple[bytes, bytes]] = []
        self._correlation = ALONE  # of the request that is held back
        self._known_head: KnownHead | None = None
        self._awaited = Awaited(self)  # of the next request that has to wait
        self._chunk = b""  # being read, when it begins with a request
        self._unsent: list[bytes] = []

    # --- called before an erasure is finished

    @property
    def is_reading(self) -> bool:
        """Whether it is between the first byte of a request and its last."""
        return bool(self._reading)

    def forget(self) -> None:
        """Forget the last request when it was answered: its body or its target may name a sample."""
        if self._reading or self._unsent or not self._has_answered:
            return
        if self.cycle is not None and not self.cycle.keep_alive:
            return  # it is closed as soon as the client has taken in the answer
        self._held_body = self._chunk = self.url = b""
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
        """Answer a request that is as the one before; else have it parsed, as long as it keeps to the limits."""
        if self._is_over:
            return
        if self._reading:
            self._chunk = b""
        else:
            if self._known_head is not None and self._answer_known(self._known_head, data):
                return
            self._chunk = data
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
        """Begin with a request; the scope is made when it is needed."""
        self._head_begins()
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

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
        """Hold the request back if it may be fast, else start it."""
        if self._may_answer_now() and self._is_fast():
            self._held_body = b""
        else:
            self._handler = None
            self._chunk = b""
            self._begin_ordinary()
        self._head_ends()

    def on_body(self, body: bytes) -> None:
        """Take in a part of the body."""
        self._body_bytes += len(body)
        if self._handler is None:
            super().on_body(body)
        else:
            self._held_body += body

    def on_message_complete(self) -> None:
        """Answer the request if it was held back."""
        self._reading = NOTHING
        handler, self._handler = self._handler, None
        if handler is not None:
            # The client may have stopped reading, or the connection may be closing, since the head was judged.
            correlation = self._correlation
            if self._may_answer_now() and self._ask(handler, self._held_body, correlation):
                epoch = self._admitted_for.epoch
                self._known_head = KnownHead.of(self._chunk, self._held_body, handler, epoch, correlation)
                self._chunk = b""  # what follows in it does not begin it
                return
            self._begin_ordinary()
            super().on_body(self._held_body)
        super().on_message_complete()

    # --- called by the server

    def shutdown(self) -> None:
        """Close the connection after the request that is being read, if there is one."""
        self.send()
        if self._handler is not None:
            self._handler = None
            self._begin_ordinary()
            super().on_body(self._held_body)
        super().shutdown()

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
                self.send()
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

    # --- the two paths

    def _is_fast(self) -> bool:
        """Whether a request may be fast by its head; sets its handler."""
        parser = self.parser
        method = parser.get_method()
        self._handler = self.fast_path.handler(method, self.url, self.headers)
        if self._handler is None or parser.get_http_version() != "1.1":
            return False
        occasion = self.fast_path.occasion(method, self.url)
        if self.headers == self._admitted_headers and occasion == self._admitted_for:
            return True  # what was decided about the same head on this connection
        if not self.fast_path.admits(occasion, self.headers):
            return False
        self._admitted_for, self._admitted_headers = occasion, self.headers
        self._correlation = correlation_of(self.headers)
        return True

    def _answer_known(self, head: KnownHead, data: bytes) -> bool:
        """Answer a request by its known head; false, and nothing has changed, when it has to be parsed."""
        body = head.body_of(data, self.fast_path.largest_for(head.accepts_encodings))
        if body is None or head.epoch != self.fast_path.epoch or not self._may_answer_now():
            return False
        return self._ask(head.handler, body, head.correlation)

    def _ask(self, handler: Handler, body: bytes, correlation: Correlation) -> bool:
        """Write the answer, or await it and queue the requests behind it; false: it has to take the ordinary path."""
        awaited = self._awaited
        request_id = correlation.request_id or new_request_id()
        answer = self.fast_path.answer(handler, body, request_id, correlation, awaited.deliver)
        if answer is None:
            return False
        if answer is LATER:
            awaited.request_id = request_id
            self.cycle = cast("Any", awaited)
            self._awaited = Awaited(self)
        else:
            self._take_in(answer, request_id)
        return True

    def deliver(self, awaited: Awaited, answer: Answer) -> None:
        """Write an answer that was awaited, and begin with the request behind it."""
        awaited.response_complete = True
        if awaited.disconnected or self.transport.is_closing():
            return
        self._take_in(answer, awaited.request_id)
        if not awaited.keep_alive:
            self.send()
            self.transport.close()
        elif self.pipeline or self._last_words is not None:
            self.send()
            self._go_on()

    def _may_answer_now(self) -> bool:
        """Whether an answer written now is the next one due, and will be read."""
        return (
            (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and not self.transport.is_closing()
        )

    def _begin_ordinary(self) -> None:
        """Let uvicorn see the head of the request."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        scope = cast("dict[str, Any]", self.scope)
        scope[UNSENT] = self._n_unsent
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)  # the scope holds this list
        super().on_headers_complete()
        scope[PUSH] = partial(self._push, self.cycle)

    def _n_unsent(self) -> int:
        """Return how many bytes the client has yet to take in."""
        return 0 if self.transport.is_closing() else self.transport.get_write_buffer_size()

    def _push(self, cycle: Any, chunk: bytes) -> bool:
        """Write a chunk of an answer that is sent in chunks; false, and nothing is written, when it cannot be now."""
        if self.flow.write_paused or cycle.disconnected or cycle.response_complete or not cycle.chunked_encoding:
            return False
        self.transport.write(chunk)
        return True

    def _take_in(self, answer: Answer, request_id: bytes) -> None:
        """Write an answer, now or together with those of other connections."""
        defaults = self.server_state.default_headers
        rendered_from, rendered = self._rendered
        if rendered_from is not defaults:  # a new list each second, for the date
            rendered = b"".join(b"%b: %b\r\n" % header for header in defaults)
            type(self)._rendered = (defaults, rendered)
        _, head, body = answer
        self._unsent.append(
            b"%b%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n%b" % (head, rendered, request_id, len(body), body)
        )
        self.server_state.total_requests += 1
        self.idle_since = time.monotonic()
        if len(self.connections) == 1:
            self.send()
        else:
            self._batch.take(self, self.idle_since)

    def send(self) -> None:
        """Write what was answered."""
        if self._unsent:
            if not self.transport.is_closing():
                self.transport.write(b"".join(self._unsent))
            self._unsent.clear()

    # --- the limits

    @property
    def _has_answered(self) -> bool:
        return (self.cycle is None or self.cycle.response_complete) and not self.pipeline

    @property
    def _has_cycle(self) -> bool:
        """Whether the request whose body is being read is uvicorn's current one; one that is held back is not."""
        return self._handler is None and self._reading == BODY

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
            self.send()
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def _refuse(self, problem: ProblemError) -> None:
        """Answer a request that cannot be read to its end, after those before it, and close the connection."""
        self._is_over = True
        self.send()
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
        """Return the answer to what is no whole request; the application sees it only if it has begun with it."""
        # What was read before belongs to another request, or to none.
        response = problem.response(self.url.decode("latin-1").partition("?")[0] if self._reading else "")
        correlation = correlation_of(self.headers) if self._reading else ALONE
        request_id = correlation.request_id or new_request_id()
        if not self._has_cycle:
            self.fast_path.observer(OTHER_METHOD, UNKNOWN_ROUTE, response.status_code, 0.0, request_id, correlation)
        fields = [*self.server_state.default_headers, *response.raw_headers, (REQUEST_ID, request_id)]
        status = HTTPStatus(response.status_code)
        lines = [b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode("ascii"))]
        lines += [b"%b: %b\r\n" % field for field in fields]
        return b"".join(lines) + b"\r\n" + bytes(response.body)


class _NoFastPath:
    """Stands where there is no application."""

    def handler(self, method: bytes, target: bytes, headers: object) -> None:
        """Return None: every request takes the ordinary path."""

    def observer(self, *observed: object) -> None:
        """Do nothing: nobody counts these requests."""


def protocol_for(fast_path: FastPath | None, connections: Connections) -> type[OubliProtocol]:
    """Return the protocol with the fast path of an application, if there is one, for the connections of its server."""
    names = {"fast_path": fast_path or _NoFastPath(), "guard": connections, "_batch": Batch()}
    protocol: type[OubliProtocol] = type("ServerProtocol", (OubliProtocol,), names)
    if fast_path is not None:
        Exchanges(fast_path.holders, lambda: protocol.all_open)
    return protocol
