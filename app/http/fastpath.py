"""The fast path: the requests that are asked most, answered in one step between two reads from the socket.

    POST /predict        POST /samples        DELETE /samples/{id}        POST /v2/models/{model_name}/infer

Without ASGI messages, tasks and request objects in between they cost a fraction of what the HTTP framework takes. Only
the common case is answered here: a whole small request that may pass and is right in every respect. A prediction
is answered at once; a mutation when it is on the disk, by `deliver`. For everything else the answer is None, nothing
has changed, and the request takes the ordinary path from its beginning, as if it had not been looked at. So queues,
long work and documentation are in one place only; access rules, reader, service and the content of answers are the same
objects on both paths.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from starlette.responses import Response

from oubli.app import logs
from oubli.app.errors import ServiceError
from oubli.app.http.auth import MIN_VERSION, AccessRules, content_length, require_version
from oubli.app.http.context import Context
from oubli.app.http.correlation import Correlation
from oubli.app.http.encodings import LEAST_COMPRESSED
from oubli.app.http.formats import Format, answer_format, body_format
from oubli.app.http.inference import BINARY_TYPE, HEADER_LENGTH, inference_content, read_inference
from oubli.app.http.observer import Observer
from oubli.app.http.parsing import explain_addition
from oubli.app.http.problems import ProblemError, report_mistake, to_problem
from oubli.app.http.responses import (
    NO_STORE,
    addition_content,
    json_answer,
    prediction_content,
    receipt_content,
    to_json,
)
from oubli.app.service.commands.additions import AddSamples
from oubli.app.service.commands.deletions import DeleteSamples
from oubli.app.service.stages import Stages, stages
from oubli.core.errors import OubliError

if TYPE_CHECKING:
    from oubli.app.http.protocol import OubliProtocol

LARGEST_UNCOMPRESSED = 2**12  # bytes, when the client accepts compressed answers
LARGEST_BODY = 2**16  # bytes; larger ones are read piece by piece, on the ordinary path
JSON, ANYTHING = b"application/json", b"*/*"
_MOST_DIGITS = 8  # of a body's length, and the sign after them
LONGEST_WAIT = 0.001  # seconds that an answer may wait for others
_PREFIX = b"/samples/"
_ONE_SAMPLE = re.compile(rb"/samples/[\w.~%:@!$&'()*+,;=/-]+")  # neither query nor fragment
# Bodies in chunks, clients that wait to be asked, other protocols, requests that may have been answered before.
# Pages of browsers and compressed bodies are for the middleware of the ordinary path.
_UNCOMMON = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"idempotency-key", b"origin", b"content-encoding"})
_REFUSALS = (ProblemError, ServiceError, OubliError)


class Answer(NamedTuple):
    """A whole answer, but for the length of its body and what the server adds to every answer."""

    status: int
    head: bytes  # status line and headers, ready to be written
    body: bytes


class Occasion(NamedTuple):
    """What a decision about the head of a request depends on besides its headers."""

    method: bytes
    path: str  # as the access rules are asked
    epoch: int  # of the keys


Deliver = Callable[[Answer], None]
"""Takes an answer that was not there at once."""


class Handler(NamedTuple):
    """Makes the answer to a request.

    Attributes
    ----------
    method, route
        As an observer is told them.
    make
        Returns the answer from the request's body; `LATER` when it will be delivered; None for the ordinary path.
    """

    method: str
    route: str
    make: Callable[[bytes, Deliver], Answer | Later | None]


class Later(Enum):
    """Says that an answer will be delivered."""

    LATER = "later"


LATER: Final = Later.LATER


def _head(response: Response) -> bytes:
    """Return status line and headers of a response, without its length."""
    line = f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}\r\n"
    fields = [b"%b: %b\r\n" % (name, value) for name, value in response.raw_headers if name != b"content-length"]
    return line.encode("ascii") + b"".join(fields)


_OK, _CREATED = (_head(json_answer(None, status)) for status in (200, 201))
_OK_BINARY = _head(Response(headers=NO_STORE, media_type=BINARY_TYPE))
_HEADER_LENGTH = HEADER_LENGTH.lower().encode("ascii")


def _in_json(status: int, head: bytes, content: bytes) -> Answer:
    """Return an answer that would be compressed, when it is long enough, for whoever asks for that."""
    return Answer(status, head if len(content) < LEAST_COMPRESSED else head + b"vary: Accept-Encoding\r\n", content)


class FastPath:
    """Answers the common case of the routes that are asked most.

    Parameters
    ----------
    context
        The service, and the reader of bodies.
    rules
        Say which requests may pass.
    observer
        Told of each request that was answered here.
    reserved
        Names in the folder of samples that are routes, and no ids.
    notes_stages
        Whether the observer reads the stages of requests.

    Attributes
    ----------
    holders
        The registry of what may hold something of a sample.
    observer
        The same.
    largest_body
        In bytes, of the requests that are answered here.
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
        self._service = service = context.service
        self._idle = service.idle
        self.holders = service.holders
        self._rules = rules
        self._keys = rules.access_keys
        self.observer = observer
        self._reserved = reserved
        self._notes_stages = notes_stages
        self._predicting = Handler("POST", "/predict", self._predict)
        self._infer_target = f"/v2/models/{context.model_name}/infer".encode("ascii")
        self._adding = Handler("POST", "/samples", self._add)
        self.largest_body = min(LARGEST_BODY, rules.max_body_bytes)

    def handler(self, method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> Handler | None:
        """Return what will make the answer, once the body is there; None for the ordinary path.

        Parameters
        ----------
        method, target
            As in the request line.
        headers
            Names in lower case.
        """
        if method == b"POST":
            if target == b"/predict":
                return self._predicting
            if target == self._infer_target:
                lengths = [value.decode("latin-1") for name, value in headers if name == _HEADER_LENGTH]
                return Handler("POST", "/v2/models/{model_name}/infer", partial(self._infer, lengths))
            return self._adding if target == b"/samples" else None
        if method == b"DELETE" and _ONE_SAMPLE.fullmatch(target):
            return Handler("DELETE", "/samples/{id}", partial(self._delete, target))
        return None

    def occasion(self, method: bytes, target: bytes) -> Occasion:
        """Return what `admits` decides about besides the headers; what it said is good for the same occasion."""
        # Additions and deletions differ, to the access rules, in their method only.
        is_named = target in (b"/predict", self._infer_target)
        return Occasion(method, target.decode("ascii") if is_named else "/samples", self.epoch)

    @property
    def epoch(self) -> int:
        """A number that grows when `admits` may decide otherwise than before."""
        keys = self._keys
        if keys.monotonic() >= keys.look_at:
            keys.look()
        return keys.epoch

    def admits(self, occasion: Occasion, headers: list[tuple[bytes, bytes]]) -> bool:
        """Whether a request for a fast route may be answered here: it is of the common kind, and may pass.

        Parameters
        ----------
        occasion
            Of its method and target.
        headers
            Names in lower case.
        """
        values = dict(headers)
        if len(values) != len(headers) or not _UNCOMMON.isdisjoint(values) or _names_table(values):
            return False
        if values.get(b"connection", b"keep-alive").lower() != b"keep-alive":
            return False
        length = content_length(values)
        if (
            length is None
            or length > self.largest_for(b"accept-encoding" in values)
            or (length and occasion.method == b"DELETE")
        ):
            return False
        try:
            self._rules.check(occasion.method.decode("ascii"), occasion.path, values)
            if MIN_VERSION in values and require_version(occasion.path, values) > self._service.state.version:
                return False
        except ProblemError:
            return False
        return True

    def largest_for(self, may_be_compressed: bool) -> int:
        """Return the largest body of a request that is answered here.

        The answer to a larger one of a client that accepts compressed answers is worth compressing.
        """
        return min(self.largest_body, LARGEST_UNCOMPRESSED) if may_be_compressed else self.largest_body

    def answer(
        self, handler: Handler, body: bytes, request_id: bytes, correlation: Correlation, deliver: Deliver
    ) -> Answer | Later | None:
        """Return the answer to a request.

        Returns
        -------
        Answer, Later or None
            `LATER` when `deliver` will be called with it; None, and nothing has changed, for the ordinary path.
        """
        started = time.monotonic()
        named = None
        noted = stages.set(Stages(started)) if self._notes_stages else None
        if handler is not self._predicting:  # predictions do not wait, and have nothing to log
            deliver = partial(self._deliver_later, deliver, handler, started, request_id, correlation)
            named = logs.request_id.set(request_id.decode("ascii"))
        try:
            try:
                answer = handler.make(body, deliver)
            except _REFUSALS:
                return None
            except Exception as error:
                with logs.about(request_id.decode("ascii")):
                    answer = _problem_answer(report_mistake(error))
            self._idle.last_request = now = time.monotonic()
            if type(answer) is Answer:
                method, route, _ = handler
                self.observer(method, route, answer.status, now - started, request_id, correlation)
            return answer
        finally:
            if named is not None:
                logs.request_id.reset(named)
            if noted is not None:
                stages.reset(noted)

    def _deliver_later(
        self,
        deliver: Deliver,
        handler: Handler,
        started: float,
        request_id: bytes,
        correlation: Correlation,
        answer: Answer,
    ) -> None:
        """Deliver an answer that was not there at once, and tell the observer."""
        deliver(answer)
        seconds = time.monotonic() - started
        self.observer(handler.method, handler.route, answer.status, seconds, request_id, correlation)

    def _predict(self, body: bytes, deliver: Deliver) -> Answer | None:
        del deliver  # predictions do not wait
        reader = self._context.reader()
        predicted = self._service.predict_now(reader.rows(reader.instances(body)))
        return None if predicted is None else _in_json(200, _OK, to_json(prediction_content(predicted)))

    def _infer(self, lengths: list[str], body: bytes, deliver: Deliver) -> Answer | None:
        del deliver
        reader = self._context.reader()
        asked = read_inference(body, lengths, reader.schema, reader.max_rows)
        if asked.min_version is not None and asked.min_version > self._service.state.version:
            return None
        predicted = self._service.predict_now(asked.rows)
        if predicted is None:
            return None
        content, length = inference_content(asked, predicted, reader.schema, self._context.model_name)
        if length is None:
            return _in_json(200, _OK, content)
        return Answer(200, b"%b%b: %d\r\n" % (_OK_BINARY, _HEADER_LENGTH, length), content)

    def _add(self, body: bytes, deliver: Deliver) -> Answer | Later | None:
        service = self._service
        if service.phase == "starting":
            return None
        reader = self._context.reader()
        samples, sent = reader.samples(body)
        command, reply = AddSamples(samples), _Reply(deliver)

        def done(error: BaseException | None) -> None:
            if error is not None:
                reply.give(_refusal(explain_addition(error, sent, reader.schema), "/samples"))
                return
            added = command.result()
            content = to_json(addition_content(added, durable=service.is_durable))
            reply.give(_in_json(201, _CREATED, content) if added.n_new else _in_json(200, _OK, content))

        return reply.answer() if service.writer.submit(command, done) else None

    def _delete(self, target: bytes, body: bytes, deliver: Deliver) -> Answer | Later | None:
        del body  # there is none
        service = self._service
        try:
            name = unquote_to_bytes(target[len(_PREFIX) :]).decode("utf-8")
        except UnicodeDecodeError:
            return None
        if service.phase == "starting" or name in self._reserved or not service.state.model.holds(name):
            return None
        command, reply = DeleteSamples([name]), _Reply(deliver)

        def done(error: BaseException | None) -> None:
            if error is not None:
                reply.give(_refusal(error, target.decode("latin-1")))
                return
            reply.give(_in_json(200, _OK, to_json(receipt_content(command.result(), durable=service.is_durable))))

        return reply.answer() if service.writer.submit(command, done) else None


def _names_table(headers: dict[bytes, bytes]) -> bool:
    """Whether body or answer may be in another format than JSON."""
    kind, accept = headers.get(b"content-type", JSON), headers.get(b"accept", ANYTHING)
    return (kind != JSON and body_format(kind.decode("latin-1")) is not Format.JSON) or (
        accept not in (ANYTHING, JSON) and answer_format([accept.decode("latin-1")]) is not Format.JSON
    )


class _Reply:
    """An answer that may be there before it is asked for, or after."""

    __slots__ = ("_answer", "_deliver", "_is_given", "_is_late")

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._answer: Answer | None = None
        self._is_given = False
        self._is_late = False

    def give(self, answer: Answer) -> None:
        """Take the answer; a second one is not heeded."""
        if self._is_given:
            return
        self._is_given = True
        if self._is_late:
            self._deliver(answer)
        else:
            self._answer = answer

    def answer(self) -> Answer | Later:
        """Return the answer, or `LATER` when it will be delivered."""
        if self._answer is not None:
            return self._answer
        self._is_late = True
        return LATER


def _refusal(error: BaseException, target: str) -> Answer:
    """Return the answer to a mutation that was refused."""
    problem = to_problem(error) if isinstance(error, Exception) else None
    if problem is None:
        problem = report_mistake(error)
    return _problem_answer(problem, target)


def _problem_answer(problem: ProblemError, target: str = "") -> Answer:
    response = problem.response(target=target)
    return _in_json(response.status_code, _head(response), bytes(response.body))


# --- what connections keep for it


class Batch:
    """Connections with answers that were not written yet.

    Each write wakes a client that waits for it, which can take longer than the answer. So requests that came together
    are answered together: what was read in one step of the loop is written at its end.
    """

    def __init__(self) -> None:
        self._members: list[OubliProtocol] = []
        self._since = 0.0

    def take(self, member: OubliProtocol, now: float) -> None:
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
            member.send()


class KnownHead(NamedTuple):
    """The head of a request with a body that was parsed, admitted and answered, around the digits of its length.

    Nearly every request of a connection has the head of the one before, but for these digits: whatever a parser and
    the access rules would say of it has been said.
    """

    before: bytes
    after: bytes
    handler: Handler
    epoch: int  # of the keys by which the access rules decided
    correlation: Correlation
    accepts_encodings: bool

    @classmethod
    def of(
        cls, request: bytes, body: bytes, handler: Handler, epoch: int, correlation: Correlation
    ) -> KnownHead | None:
        """Return the head of one whole request; None when it does not say its length, or when there is more."""
        end = len(request) - len(body)
        if not body or request.find(b"\r\n\r\n") != end - 4:
            return None
        name = request[:end].lower().find(b"\r\ncontent-length: ")
        if name < 0:
            return None
        digits = name + len(b"\r\ncontent-length: ")
        accepts_encodings = b"\r\naccept-encoding:" in request[:end].lower()
        after = request[request.find(b"\r", digits) : end]
        return cls(request[:digits], after, handler, epoch, correlation, accepts_encodings)

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


class Awaited:
    """Stands for a request whose answer is not there yet, where uvicorn expects its own record of one."""

    __slots__ = ("_connection", "disconnected", "keep_alive", "request_id", "response_complete")

    message_event = _Nobody()

    def __init__(self, connection: OubliProtocol) -> None:
        self._connection = connection
        self.request_id = b""
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = True

    def deliver(self, answer: Answer) -> None:
        """Take the answer."""
        self._connection.deliver(self, answer)
