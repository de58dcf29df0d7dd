"""The fast path: the most frequent requests, answered where their bytes arrive.

    POST /predict        POST /samples        DELETE /samples/{id}        POST /v2/models/{model_name}/infer

Without parser callbacks, ASGI messages, routing and request objects they cost a fraction of what the framework takes.
Only the common case is answered here: a whole small request of the usual form that may pass. A prediction is answered
at once, a change by a task that waits for the disk. Everything else goes to the parser with its first byte and takes
the ordinary path, as if it had not been looked at. Access rules, reader, operations and the content of answers are the
same objects on both paths.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, cast

from starlette.responses import Response

from oubli.app import logs
from oubli.app.http.auth import MIN_VERSION, AccessRules, require_version
from oubli.app.http.bulk.answers import learn
from oubli.app.http.connection.connections import Connections, Exchanges
from oubli.app.http.connection.protocol import MOST_FIELDS, OubliProtocol
from oubli.app.http.formats import LEAST_COMPRESSED, Format, answer_format, body_format
from oubli.app.http.inference import BINARY_TYPE, HEADER_LENGTH, inference_content, read_inference
from oubli.app.http.monitoring.observer import Correlation, Observer, correlation_of, new_request_id
from oubli.app.http.parsing import Context, parse_id
from oubli.app.http.problems import ProblemError, report_mistake, to_problem
from oubli.app.http.responses import (
    NO_STORE,
    addition_content,
    json_answer,
    prediction_content,
    receipt_content,
    to_json,
)
from oubli.app.service.changes.additions import NewSamples
from oubli.app.times import Stages, elapsed, stages

LARGEST_UNCOMPRESSED = 2**12  # bytes, when the client accepts compressed answers: a longer one is worth compressing
LARGEST_BODY = 2**16  # bytes; larger ones are read piece by piece, on the ordinary path
LONGEST_WAIT = 0.001  # seconds that an answer may wait for those of other connections
_LARGEST_HEAD = 2**13
_MOST_PART = 2**10  # bytes of an id in a target
_PREFIX = b"/samples/"
# One request line and fields in the form that every client sends; the parser takes all other forms of HTTP.
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([!-~][ -~]*)(?<! )\r\n")
_HEAD = re.compile(rb"(POST|DELETE) ([!-~]+) HTTP/1\.1\r\n((?:%b){1,%d})\r\n" % (_FIELD.pattern, MOST_FIELDS))
_LENGTH = re.compile(rb"\r\ncontent-length: ?([0-9]{1,5})\r\n", re.IGNORECASE)
_ID = re.compile(rb"[\w.~%:@!$&'()*+,;=/-]+")  # neither query nor fragment
# Bodies in chunks, clients that wait to be asked, other protocols, requests that may have been answered before.
# Pages of browsers and compressed bodies are for the middleware of the ordinary path, conditions for the routes.
_UNCOMMON = frozenset(
    {b"transfer-encoding", b"expect", b"upgrade", b"idempotency-key", b"origin", b"content-encoding", b"if-match"}
)
_INFERENCE_LENGTH = HEADER_LENGTH.lower().encode("ascii")


class Answer(NamedTuple):
    """A whole answer, but for the length of its body and what the server adds to every answer."""

    status: int
    head: bytes  # status line and headers, ready to be written
    body: bytes


Change = Callable[[], Awaitable[Answer]]
"""Makes a change and returns the answer."""


class Route(NamedTuple):
    """A route that is answered here.

    Attributes
    ----------
    method, path
        As the observer gets them.
    begin
        Returns the answer to a prediction, or what makes a change, from the head, its part that varies and the body;
        None for the ordinary path.
    """

    method: str
    path: str
    begin: Callable[[Head, bytes, bytes], Answer | Change | None]


class Head(NamedTuple):
    """The head of a request that was admitted, around the part that varies: the length of a body, or the id.

    Nearly every request of a connection has the head of the one before, but for this part: it is not looked at again.
    """

    before: bytes
    after: bytes
    route: Route
    fields: dict[bytes, bytes]
    caller: str
    epoch: int  # of the keys by which the access rules decided
    correlation: Correlation
    largest_body: int

    def split(self, data: bytes) -> tuple[Head, bytes, int, int] | None:
        """Return this head, the part that varies, and where the body begins and ends; None for other bytes."""
        before, after = self.before, self.after
        start = len(before)
        end = data.find(after[:1], start, start + _MOST_PART)
        if end <= start or not data.startswith(before) or not data.startswith(after, end):
            return None
        part, body = data[start:end], end + len(after)
        if self.route.method == "DELETE":
            return (self, part, body, body) if _ID.fullmatch(part) else None
        length = int(part) if part.isdigit() else LARGEST_BODY + 1
        return (self, part, body, body + length) if length <= self.largest_body else None


def _head(response: Response) -> bytes:
    """Return status line and headers of a response, without its length."""
    line = f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}\r\n"
    fields = [b"%b: %b\r\n" % (name, value) for name, value in response.raw_headers if name != b"content-length"]
    return line.encode("ascii") + b"".join(fields)


_OK, _CREATED = (_head(json_answer(None, status)) for status in (200, 201))
_OK_BINARY = _head(Response(headers=NO_STORE, media_type=BINARY_TYPE))


def _in_json(status: int, head: bytes, content: bytes) -> Answer:
    """Return an answer; a long one says that it would be compressed for a client that asks for that."""
    return Answer(status, head if len(content) < LEAST_COMPRESSED else head + b"vary: Accept-Encoding\r\n", content)


class FastPath:
    """Answers the common case of the most frequent requests.

    Parameters
    ----------
    context
        The service, and the reader of bodies.
    rules
        Say which requests may pass.
    observer
        Called for each request that is answered here.
    reserved
        Names in the folder of samples that are routes, and no ids.
    notes_stages
        Whether the observer reads the stages of requests.
    """

    def __init__(
        self,
        context: Context,
        rules: AccessRules,
        observer: Observer,
        reserved: frozenset[str] = frozenset(),
        *,
        notes_stages: bool = False,
    ) -> None:
        self._context = context
        self.service = context.service
        self.idle = context.service.model.idle
        self._questions = context.service.questions
        self._lifecycle = context.service.lifecycle
        self._rules = rules
        self.observer = observer
        self._reserved = reserved
        self.notes_stages = notes_stages
        infer = Route("POST", "/v2/models/{model_name}/infer", self._infer)
        self._routes = {
            b"/predict": Route("POST", "/predict", self._predict),
            b"/samples": Route("POST", "/samples", self._add),
            f"/v2/models/{context.model_name}/infer".encode("ascii"): infer,
        }
        self._deleting = Route("DELETE", "/samples/{id}", self._delete)

    @property
    def epoch(self) -> int:
        """A number that grows when the access rules may decide otherwise than before."""
        keys = self._rules.access_keys
        if keys.monotonic() >= keys.look_at:
            keys.look()
        return keys.epoch

    def find(self, data: bytes, known: Head | None) -> tuple[Head, bytes, int, int] | None:
        """Return what `split` says of the head that some bytes begin with, often a known one; None: not for here."""
        found = None if known is None or known.epoch != self.epoch else known.split(data)
        if found is None:
            new = self.head_of(data)
            return None if new is None else new.split(data)
        return found

    def head_of(self, data: bytes) -> Head | None:
        """Return the head that some bytes begin with; None when it is not whole, uncommon, or may not pass."""
        end = data.find(b"\r\n\r\n", 0, _LARGEST_HEAD) + 4
        found = _HEAD.fullmatch(data, 0, end)
        if found is None:
            return None
        method, target = found.group(1, 2)
        fields = [(name.lower(), value) for name, value in _FIELD.findall(data, found.start(3), end)]
        values = dict(fields)
        if method == b"POST":
            route, length = self._routes.get(target), _LENGTH.search(data, 0, end)
            start, stop = (0, 0) if length is None else length.span(1)
        else:
            route = self._deleting if target.startswith(_PREFIX) else None
            start, stop = found.start(2) + len(_PREFIX), found.end(2)
            if values.get(b"content-length", b"0") != b"0":
                return None
        if route is None or start >= stop or len(values) != len(fields):
            return None
        epoch = self.epoch
        path = route.path if route is self._deleting else target.decode("ascii")
        if not self._admits(route, path, values):
            return None
        caller = self._rules.caller(fields).id or ""
        most = LARGEST_UNCOMPRESSED if b"accept-encoding" in values else LARGEST_BODY
        most = min(most, self._rules.max_body_bytes)
        return Head(data[:start], data[stop:end], route, values, caller, epoch, correlation_of(fields), most)

    def _admits(self, route: Route, path: str, values: dict[bytes, bytes]) -> bool:
        """Whether a request is of the common kind, and may pass."""
        if not _UNCOMMON.isdisjoint(values) or values.get(b"connection", b"keep-alive").lower() != b"keep-alive":
            return False
        kind, accept = (values.get(name, b"application/json") for name in (b"content-type", b"accept"))
        if body_format(kind.decode("latin-1")) is not Format.JSON:
            return False
        if answer_format([accept.decode("latin-1")]) is not Format.JSON:
            return False
        try:
            self._rules.check(route.method, path, values)
            return require_version(path, values) <= self.service.model.state.version or MIN_VERSION not in values
        except ProblemError:
            return False

    def begin(self, head: Head, part: bytes, body: bytes) -> Answer | Change | None:
        """Return the answer to a request, or what makes a change.

        None, and nothing has changed, when anything is wrong with it: the ordinary path then says what.
        """
        try:
            made = head.route.begin(head, part, body)
        except Exception:
            return None
        return made if self.may_answer() else None

    def may_answer(self) -> bool:
        """Whether the model may be asked now; see `Role.answers_until`."""
        until = self._lifecycle.role.answers_until
        return until == math.inf or elapsed() < until  # a server that is alone asks no clock

    def _predict(self, head: Head, part: bytes, body: bytes) -> Answer | None:
        asked = self._context.reader().prediction(body)
        is_usual = not asked.with_receipt and asked.coverage is None
        predicted = self._questions.predict_now(asked.rows) if is_usual else None
        return None if predicted is None else _in_json(200, _OK, to_json(prediction_content(predicted)))

    def _infer(self, head: Head, part: bytes, body: bytes) -> Answer | None:
        reader, length = self._context.reader(), head.fields.get(_INFERENCE_LENGTH)
        lengths = [] if length is None else [length.decode("latin-1")]
        asked = read_inference(body, lengths, reader.schema, reader.max_rows)
        if asked.min_version is not None and asked.min_version > self.service.model.state.version:
            return None
        predicted = self._questions.predict_now(asked.rows)
        if predicted is None:
            return None
        content, n_json = inference_content(asked, predicted, reader.schema, self._context.model_name)
        if n_json is None:
            return _in_json(200, _OK, content)
        return Answer(200, b"%b%b: %d\r\n" % (_OK_BINARY, _INFERENCE_LENGTH, n_json), content)

    def _add(self, head: Head, part: bytes, body: bytes) -> Change:
        samples, sent = self._context.reader().samples(body)
        return partial(self._added, samples, sent)

    async def _added(self, samples: NewSamples, sent: list[Any]) -> Answer:
        await self._lifecycle.completion()
        added = await learn(self._context, samples, sent)
        content = to_json(addition_content(added, durable=self.service.disk.is_durable))
        return _in_json(201, _CREATED, content) if added.n_new else _in_json(200, _OK, content)

    def _delete(self, head: Head, part: bytes, body: bytes) -> Change | None:
        name = parse_id(part, b"")
        return None if name in self._reserved else partial(self._deleted, name, head.caller)

    async def _deleted(self, name: str, caller: str) -> Answer:
        await self._lifecycle.completion()
        receipt = await self.service.changes.delete(ids=[name], caller=caller)
        return _in_json(200, _OK, to_json(receipt_content(receipt, durable=self.service.disk.is_durable)))


class FastProtocol(OubliProtocol):
    """A connection that asks the fast path first."""

    fast_path: ClassVar[FastPath]
    unsent: ClassVar[list[tuple[FastProtocol, bytes]]] = []  # answers of all connections, the oldest first
    unsent_since: ClassVar[float] = 0.0
    _rendered: ClassVar[tuple[object, bytes]] = (None, b"")  # uvicorn's own headers, and their text

    __slots__ = ("_held", "_known_head")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._known_head: Head | None = None
        self._held = b""  # a request whose body is not whole yet

    @property
    def is_reading(self) -> bool:
        """Whether it is between the first byte of a request and its last."""
        return bool(self._held) or super().is_reading

    def data_received(self, data: bytes) -> None:
        """Answer requests that are whole and common, one after the other; the parser gets what is left."""
        if self._held:
            data, self._held = self._held + data, b""
        while data and self._may_answer_now():
            found = self.fast_path.find(data, self._known_head)
            if found is None:
                break
            head, part, start, end = found
            self._known_head = head
            if len(data) < end:
                self._held = data
                return
            if not self._answer(head, part, data[start:end]):
                break
            data = data[end:]
        if data:
            self.send_all()
            super().data_received(data)

    def eof_received(self) -> None:
        """Write the answers to a client that sends nothing more; the transport is closed next."""
        self.send_all()
        super().eof_received()

    def look(self, now: float, elapsed: float) -> None:
        """Close the connection when it takes too long; what a slow client sends is for the parser."""
        self.send_all()
        self._release()
        super().look(now, elapsed)

    def shutdown(self) -> None:
        """Close the connection after the request that is being read, if there is one."""
        self.send_all()
        self._release()
        super().shutdown()

    def _release(self) -> None:
        """Let a request that was held take the ordinary path."""
        if self._held:
            data, self._held = self._held, b""
            super().data_received(data)

    def _push(self, cycle: Any, chunk: bytes) -> bool:
        # On the ordinary path it is known whether the answer depends on samples.
        return self.fast_path.may_answer() and super()._push(cycle, chunk)

    def _may_answer_now(self) -> bool:
        """Whether an answer written now is the next one due, and will be read."""
        return self._has_answered and not (
            self._reading or self._is_over or self.flow.write_paused or self.transport.is_closing()
        )

    def _answer(self, head: Head, part: bytes, body: bytes) -> bool:
        """Answer a request, now or when its change is made; false: it has to take the ordinary path."""
        path, started = self.fast_path, time.monotonic()
        noted = stages.set(Stages(started)) if path.notes_stages else None
        try:
            made = path.begin(head, part, body)
            if made is None:
                return False
            request_id = head.correlation.request_id or new_request_id()
            if isinstance(made, Answer):
                self.idle_since = now = time.monotonic()
                self.server_state.total_requests += 1
                self._send_soon(self._written(made, request_id), now)
                self._tell(head, made, request_id, started, now)
                return True
            # What uvicorn asks of its record of a request: those behind it wait until it is answered.
            cycle = SimpleNamespace(
                response_complete=False, disconnected=False, keep_alive=True, message_event=asyncio.Event()
            )
            self.cycle = cast("Any", cycle)
            task = self.loop.create_task(self._change(cycle, head, part, made, request_id, started))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
            return True
        finally:
            if noted is not None:
                stages.reset(noted)

    async def _change(
        self, cycle: SimpleNamespace, head: Head, part: bytes, change: Change, request_id: bytes, started: float
    ) -> None:
        """Make a change and answer, in a task."""
        logs.request_id.set(request_id.decode("ascii"))
        try:
            answer = await change()
        except Exception as error:
            target = head.route.path if head.route.method == "POST" else "/samples/" + part.decode("ascii")
            response = (to_problem(error) or report_mistake(error)).response(target=target)
            answer = _in_json(response.status_code, _head(response), bytes(response.body))
        cycle.response_complete = True
        self.send_all()
        if not self.transport.is_closing():
            self.transport.write(self._written(answer, request_id))
        if not cycle.keep_alive:
            self.transport.close()
        self._tell(head, answer, request_id, started, time.monotonic())
        self.on_response_complete()

    def _send_soon(self, data: bytes, now: float) -> None:
        """Write an answer at the end of this step of the loop, with those to requests that came at the same time.

        Each write wakes a client that waits, which can take as long as the answer.
        """
        if len(self.all_open) == 1:
            self.transport.write(data)
            return
        protocol = type(self)
        if not protocol.unsent:
            protocol.unsent_since = now
            self.loop.call_soon(self.send_all)
        protocol.unsent.append((self, data))
        if now - protocol.unsent_since > LONGEST_WAIT:
            self.send_all()

    @classmethod
    def send_all(cls) -> None:
        """Write the answers of all connections, unless the process was stopped for so long that it may not answer."""
        if not cls.unsent:
            return
        unsent, cls.unsent = cls.unsent, []
        may_answer = cls.fast_path.may_answer()
        for connection, data in unsent:
            if not may_answer:
                connection.transport.abort()
            elif not connection.transport.is_closing():
                connection.transport.write(data)

    def _written(self, answer: Answer, request_id: bytes) -> bytes:
        """Return an answer as it is sent."""
        defaults = self.server_state.default_headers
        rendered_from, rendered = self._rendered
        if rendered_from is not defaults:  # a new list each second, for the date
            rendered = b"".join(b"%b: %b\r\n" % header for header in defaults)
            type(self)._rendered = (defaults, rendered)
        _, lines, body = answer
        return b"%b%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n%b" % (
            lines,
            rendered,
            request_id,
            len(body),
            body,
        )

    def _tell(self, head: Head, answer: Answer, request_id: bytes, started: float, now: float) -> None:
        """Tell the observer and the idle work of a request that is answered now."""
        path, (method, template, _) = self.fast_path, head.route
        path.idle.last_request = now
        path.observer(method, template, answer.status, now - started, request_id, head.correlation)


def protocol_for(fast_path: FastPath, connections: Connections) -> type[OubliProtocol]:
    """Return the protocol with the fast path of an application, for the connections of its server."""
    names = {
        "fast_path": fast_path,
        "guard": connections,
        "observer": staticmethod(fast_path.observer),
        "unsent": [],
    }
    protocol: type[FastProtocol] = type("ServerProtocol", (FastProtocol,), names)

    def connections_in_flight() -> set[Any]:
        protocol.send_all()
        return protocol.all_open

    Exchanges(fast_path.service.model.holders, connections_in_flight)
    return protocol
