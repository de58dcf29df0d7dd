"""uvicorn's HTTP/1.1 protocol with the short way in: `hot` is asked before a request becomes an ASGI task.

    socket -> httptools -> here -> HotRoutes -> socket            common requests of the hot routes
                            |
                            +----> uvicorn -> guards -> FastAPI   everything else

Most requests of a connection have the head of the one before, byte for byte but for the length of the body; these are
not even parsed. Any other request that may be hot is held back until its body is there: its head was judged, the parser
goes on, nothing has been started. When it turns out that it has to take the ordinary way, uvicorn's own callbacks are
called as the parser would have called them. Requests of one connection are answered in their order: while one is on the
ordinary way, or waits for the disk, those behind it go to uvicorn's queue.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar, NamedTuple, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oubli.app.http.connections import NOTHING, Connections, GuardedProtocol
from oubli.app.http.exchanges import Exchanges
from oubli.app.http.fastpath import LATER, Answer, Handler, HotRoutes, Later, Occasion

_MOST_DIGITS = 8  # of a body's length, and the sign after them
LONGEST_WAIT = 0.001  # seconds that an answer may wait for others


class _Batch:
    """Connections with answers that were not written yet.

    Each write wakes a client that waits for it, which can take longer than the answer. So requests that came together
    are answered together: what was read in one step of the loop is written at its end.
    """

    def __init__(self) -> None:
        self._members: list[HotProtocol] = []
        self._since = 0.0

    def take(self, member: HotProtocol, now: float) -> None:
        """Add a connection; it may be in the batch already."""
        if not self._members:
            self._since = now
            member.loop.call_soon(self.send)
        self._members.append(member)
        if now - self._since > LONGEST_WAIT:
            self.send()

    def send(self) -> None:
        """Write all there is."""
        members, self._members = self._members, []
        for member in members:
            member._send()


class _KnownHead(NamedTuple):
    """The head of a request with a body that was parsed, admitted and answered, around the digits of its length.

    Nearly every request of a connection has the head of the one before, but for these digits: whatever a parser and
    the gate would say of it has been said.
    """

    before: bytes
    after: bytes
    handler: Handler
    epoch: int  # of the keys by which the gate decided

    @classmethod
    def of(cls, request: bytes, body: bytes, handler: Handler, epoch: int) -> _KnownHead | None:
        """Return the head of one whole request; None when it does not say its length, or when there is more."""
        end = len(request) - len(body)
        if not body or request.find(b"\r\n\r\n") != end - 4:
            return None
        name = request[:end].lower().find(b"\r\ncontent-length: ")
        if name < 0:
            return None
        digits = name + len(b"\r\ncontent-length: ")
        return cls(request[:digits], request[request.find(b"\r", digits) : end], handler, epoch)

    def body_of(self, data: bytes, most: int) -> bytes | None:
        """Return the body when `data` is this head, with any length up to `most`, and just as long a body."""
        before, after = self.before, self.after
        digits = len(before)
        end = data.find(b"\r", digits, digits + _MOST_DIGITS)
        if end < 0 or not data.startswith(before) or not data.startswith(after, end):
            return None
        length = data[digits:end]
        body = data[end + len(after) :]
        return body if length.isdigit() and int(length) == len(body) <= most else None


class _Nobody:
    """Stands where uvicorn wakes up whoever waits for a body."""

    def set(self) -> None:
        """Do nothing."""


class _Awaited:
    """Stands for a request whose answer is not there yet, where uvicorn expects its own record of one."""

    __slots__ = ("_connection", "disconnected", "keep_alive", "response_complete")

    message_event = _Nobody()

    def __init__(self, connection: HotProtocol) -> None:
        self._connection = connection
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = True

    def deliver(self, answer: Answer) -> None:
        """Take the answer."""
        self._connection._deliver(self, answer)


class HotProtocol(GuardedProtocol):
    """One connection. `protocol_for` makes the class that uvicorn is given."""

    __slots__ = (
        "_admitted_for",
        "_admitted_headers",
        "_awaited",
        "_chunk",
        "_handler",
        "_held_body",
        "_known_head",
        "_unsent",
    )

    hot: ClassVar[HotRoutes]
    all_open: ClassVar[set[Any]] = set()  # as the server has them
    _batch: ClassVar[_Batch]
    _rendered: ClassVar[tuple[object, bytes]] = (None, b"")  # uvicorn's own headers, and their text

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        type(self).all_open = self.connections
        self._handler: Handler | None = None
        self._held_body = b""
        self._admitted_for = Occasion(b"", "", 0)
        self._admitted_headers: list[tuple[bytes, bytes]] = []
        self._known_head: _KnownHead | None = None
        self._awaited = _Awaited(self)  # of the next request that has to wait
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

    def data_received(self, data: bytes) -> None:
        """Answer a request that is as the one before; else have it parsed."""
        if self._reading:
            self._chunk = b""
        else:
            if self._known_head is not None and self._answer_known(self._known_head, data):
                return
            self._chunk = data
        super().data_received(data)

    # --- called by the parser

    def on_message_begin(self) -> None:
        """Start anew; the scope is made when it is needed."""
        self._head_begins()
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        """Hold the request back if it may be hot, else start it."""
        if self._may_answer_now() and self._is_hot():
            self._held_body = b""
        else:
            self._handler = None
            self._chunk = b""
            self._begin_ordinary()
        self._head_ends()

    def on_body(self, body: bytes) -> None:
        """Take in a part of the body."""
        if self._handler is None:
            super().on_body(body)
        else:
            self._body_bytes += len(body)
            self._held_body += body

    def on_message_complete(self) -> None:
        """Answer the request if it was held back."""
        self._reading = NOTHING
        handler, self._handler = self._handler, None
        if handler is not None:
            # The client may have stopped reading, or the connection may be closing, since the head was judged.
            answer = self._ask(handler, self._held_body) if self._may_answer_now() else None
            if answer is not None:
                self._known_head = _KnownHead.of(self._chunk, self._held_body, handler, self._admitted_for.epoch)
                self._chunk = b""  # what follows in it does not begin it
                if answer is not LATER:
                    self._take_in(answer)
                return
            self._begin_ordinary()
            HttpToolsProtocol.on_body(self, self._held_body)
        super().on_message_complete()

    # --- called by the server

    def shutdown(self) -> None:
        """Close the connection after the request that is being read, if there is one."""
        self._send()
        if self._handler is not None:
            self._handler = None
            self._begin_ordinary()
            HttpToolsProtocol.on_body(self, self._held_body)
        super().shutdown()

    # --- the two ways

    def _is_hot(self) -> bool:
        """Whether a request may be hot by its head; sets its handler."""
        parser = self.parser
        method = parser.get_method()
        self._handler = self.hot.handler(method, self.url)
        if self._handler is None or parser.get_http_version() != "1.1":
            return False
        occasion = self.hot.occasion(method, self.url)
        if self.headers == self._admitted_headers and occasion == self._admitted_for:
            return True  # what was decided about the same head on this connection
        if not self.hot.admits(occasion, self.headers):
            return False
        self._admitted_for, self._admitted_headers = occasion, self.headers
        return True

    def _answer_known(self, head: _KnownHead, data: bytes) -> bool:
        """Answer a request by its known head; false, and nothing has changed, when it has to be parsed."""
        body = head.body_of(data, self.hot.largest_body)
        if body is None or head.epoch != self.hot.epoch or not self._may_answer_now():
            return False
        answer = self._ask(head.handler, body)
        if answer is None:
            return False
        if answer is not LATER:
            self._take_in(answer)
        return True

    def _ask(self, handler: Handler, body: bytes) -> Answer | Later | None:
        """Ask for an answer; while it is awaited, requests behind it are queued."""
        awaited = self._awaited
        answer = self.hot.answer(handler, body, awaited.deliver)
        if answer is LATER:
            self.cycle = cast("Any", awaited)
            self._awaited = _Awaited(self)
        return answer

    def _deliver(self, awaited: _Awaited, answer: Answer) -> None:
        """Write an answer that was awaited, and begin with the request behind it."""
        awaited.response_complete = True
        if awaited.disconnected or self.transport.is_closing():
            return
        self._take_in(answer)
        if not awaited.keep_alive:
            self._send()
            self.transport.close()
        elif self.pipeline or self._last_words is not None:
            self._send()
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
        HttpToolsProtocol.on_message_begin(self)
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)  # the scope holds this list
        HttpToolsProtocol.on_headers_complete(self)

    def _take_in(self, answer: Answer) -> None:
        """Write an answer, now or together with those of other connections."""
        defaults = self.server_state.default_headers
        rendered_from, rendered = self._rendered
        if rendered_from is not defaults:  # a new list each second, for the date
            rendered = b"".join(b"%b: %b\r\n" % header for header in defaults)
            type(self)._rendered = (defaults, rendered)
        head, body = answer
        self._unsent.append(b"%b%bcontent-length: %d\r\n\r\n%b" % (head, rendered, len(body), body))
        self.server_state.total_requests += 1
        self.idle_since = time.monotonic()
        if len(self.connections) == 1:
            self._send()
        else:
            self._batch.take(self, self.idle_since)

    def _send(self) -> None:
        """Write what was answered."""
        if self._unsent:
            if not self.transport.is_closing():
                self.transport.write(b"".join(self._unsent))
            self._unsent.clear()

    def _flush(self) -> None:
        """Write what was answered and not written yet."""
        self._send()

    @property
    def _has_cycle(self) -> bool:
        """Whether the request whose body is being read is uvicorn's current one; one that is held back is not."""
        return self._handler is None and super()._has_cycle


def protocol_for(hot: HotRoutes, connections: Connections) -> type[HotProtocol]:
    """Return the protocol with the hot routes of an application, for the connections of its server."""
    names = {"hot": hot, "guard": connections, "_batch": _Batch()}
    protocol: type[HotProtocol] = type("OubliProtocol", (HotProtocol,), names)
    Exchanges(hot.holders, lambda: protocol.all_open)
    return protocol
