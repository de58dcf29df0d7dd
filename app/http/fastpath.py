"""The short way in: the requests that are asked most, answered in one step between two reads from the socket.

    POST /predict        POST /samples        DELETE /samples/{id}

Without ASGI messages, tasks and request objects in between they cost a fraction of what the HTTP framework takes. Only
the common case is answered here: a whole small request that passes the gate and is right in every respect. A prediction
is answered at once; a mutation when it is on the disk, by `deliver`. For everything else the answer is None, nothing
has changed, and the request takes the ordinary way from its beginning, as if it had not been looked at. So queues, long
work and documentation are in one place only; gate, reader, service and the content of answers are the same objects on
both ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple

from starlette.responses import Response

from oubli.app.errors import ServiceError
from oubli.app.http.auth import Gate, content_length
from oubli.app.http.context import Context
from oubli.app.http.middleware import report_mistake
from oubli.app.http.parsing import explain_addition, parse_id
from oubli.app.http.problems import ProblemError, to_problem
from oubli.app.http.responses import addition_content, json_answer, prediction_content, receipt_content, to_json
from oubli.app.ledger.receipts import Receipt
from oubli.app.service.holders import Holders
from oubli.app.service.results import Added
from oubli.core.errors import OubliError

LARGEST_BODY = 2**16  # bytes; larger ones are read piece by piece, on the ordinary way
_PREFIX = b"/samples/"
_ONE_SAMPLE = re.compile(rb"/samples/[\w.~%:@!$&'()*+,;=/-]+")  # neither query nor fragment
# Bodies in chunks, clients that wait to be asked, other protocols, requests that may have been answered before.
_UNCOMMON = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"idempotency-key"})
_REFUSALS = (ProblemError, ServiceError, OubliError)


class Answer(NamedTuple):
    """A whole answer, but for the length of its body and what the server adds to every answer."""

    head: bytes  # status line and headers, ready to be written
    body: bytes


class Occasion(NamedTuple):
    """What a decision about the head of a request depends on besides its headers."""

    method: bytes
    path: str  # as the gate is asked
    epoch: int  # of the keys


Deliver = Callable[[Answer], None]
"""Takes an answer that was not there at once."""

Handler = Callable[[bytes, Deliver], "Answer | Later | None"]
"""Makes the answer from a request's body; `LATER` when it will be delivered; None for the ordinary way."""


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


class HotRoutes:
    """Answers the common case of the routes that are asked most.

    Parameters
    ----------
    context
        The service, and the reader of bodies.
    gate
        Says which requests may pass.

    Attributes
    ----------
    largest_body
        In bytes, of the requests that are answered here.
    """

    def __init__(self, context: Context, gate: Gate) -> None:
        self._context = context
        self._service = context.service
        self._gate = gate
        self.largest_body = min(LARGEST_BODY, gate.max_body_bytes)

    def handler(self, method: bytes, target: bytes) -> Handler | None:
        """Return what will make the answer, once the body is there; None for the ordinary way.

        Parameters
        ----------
        method, target
            As in the request line.
        """
        if method == b"POST":
            if target == b"/predict":
                return self._predict
            return self._add if target == b"/samples" else None
        if method == b"DELETE" and _ONE_SAMPLE.fullmatch(target):
            return partial(self._delete, target)
        return None

    def occasion(self, method: bytes, target: bytes) -> Occasion:
        """Return what `admits` decides about besides the headers; what it said is good for the same occasion."""
        # The other hot routes differ, to the gate, in their method only.
        return Occasion(method, "/predict" if target == b"/predict" else "/samples", self._gate.epoch)

    @property
    def holders(self) -> Holders:
        """The registry of what may hold something of a sample."""
        return self._service.holders

    @property
    def epoch(self) -> int:
        """A number that grows when `admits` may decide otherwise than before."""
        return self._gate.epoch

    def admits(self, occasion: Occasion, headers: list[tuple[bytes, bytes]]) -> bool:
        """Whether a request for a hot route may be answered here: it is of the common kind, and passes the gate.

        Parameters
        ----------
        occasion
            Of its method and target.
        headers
            Names in lower case.
        """
        values = dict(headers)
        if len(values) != len(headers) or not _UNCOMMON.isdisjoint(values):
            return False
        if values.get(b"connection", b"keep-alive").lower() != b"keep-alive":
            return False
        length = content_length(values)
        if length is None or length > self.largest_body or (length and occasion.method == b"DELETE"):
            return False
        try:
            self._gate.check(occasion.method.decode("ascii"), occasion.path, values)
        except ProblemError:
            return False
        return True

    def answer(self, handler: Handler, body: bytes, deliver: Deliver) -> Answer | Later | None:
        """Return the answer to a request.

        Returns
        -------
        Answer, Later or None
            `LATER` when `deliver` will be called with it; None, and nothing has changed, for the ordinary way.
        """
        try:
            answer = handler(body, deliver)
        except _REFUSALS:
            return None
        except Exception as error:
            return _problem_answer(report_mistake(error))
        self._service.request_passed()
        return answer

    def _predict(self, body: bytes, deliver: Deliver) -> Answer | None:
        del deliver  # predictions do not wait
        reader = self._context.reader()
        predicted = self._service.predict_now(reader.rows(reader.instances(body)))
        return None if predicted is None else Answer(_OK, to_json(prediction_content(predicted)))

    def _add(self, body: bytes, deliver: Deliver) -> Answer | Later | None:
        reader = self._context.reader()
        samples, sent = reader.samples(body)
        service, reply = self._service, _Reply(deliver)

        def settle(added: Added | None, error: BaseException | None) -> None:
            if added is None:
                reply.give(_refusal(explain_addition(error, sent, reader.schema)))
            else:
                reply.give(
                    Answer(
                        _CREATED if added.n_new else _OK, to_json(addition_content(added, durable=service.is_durable))
                    )
                )

        return reply.answer() if service.submit_addition(samples, settle) else None

    def _delete(self, target: bytes, body: bytes, deliver: Deliver) -> Answer | Later | None:
        del body  # there is none
        service, reply = self._service, _Reply(deliver)

        def settle(receipt: Receipt | None, error: BaseException | None) -> None:
            if receipt is None:
                reply.give(_refusal(error))
            else:
                reply.give(Answer(_OK, to_json(receipt_content(receipt, durable=service.is_durable))))

        return reply.answer() if service.submit_deletion(parse_id(target, _PREFIX), settle) else None


class _Reply:
    """An answer that may be there before it is asked for, or after."""

    __slots__ = ("_answer", "_deliver", "_is_late")

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._answer: Answer | None = None
        self._is_late = False

    def give(self, answer: Answer) -> None:
        """Take the answer, once."""
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


def _refusal(error: BaseException | None) -> Answer:
    """Return the answer to a mutation that was refused."""
    problem = to_problem(error) if isinstance(error, Exception) else None
    if problem is None:
        problem = report_mistake(error or RuntimeError("a change was settled without a result"))
    return _problem_answer(problem)


def _problem_answer(problem: ProblemError) -> Answer:
    response = problem.response()
    return Answer(_head(response), bytes(response.body))
