"""The short way in: the requests that are asked most, answered in one step between two reads from the socket.

    POST /predict        POST /samples        DELETE /samples/{id}

Without ASGI messages, tasks and request objects in between they cost a fraction of what the HTTP framework takes. Only
the common case is answered here: a whole small request that passes the gate, is right in every respect, and need not
wait for anybody. For everything else the answer is None, nothing has changed, and the request takes the ordinary way
from its beginning, as if it had not been looked at. So errors, queues, long work and documentation are in one place
only; gate, reader, service and the content of answers are the same objects on both ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import NamedTuple

from starlette.responses import Response

from app.context import Context
from app.errors import ServiceError
from app.gate import Gate, content_length
from app.guards import report_mistake
from app.payloads import parse_id
from app.problems import ProblemError
from app.routes.answers import addition_content, json_answer, prediction_content, receipt_content, to_json
from core.errors import OubliError

LARGEST_BODY = 2**16  # bytes; larger ones are read piece by piece, on the ordinary way
_PREFIX = b"/samples/"
_ANY_PATH = "/predict"  # to the gate the hot routes are all alike
_ONE_SAMPLE = re.compile(rb"/samples/[\w.~%:@!$&'()*+,;=/-]+")  # neither query nor fragment
# Bodies in chunks, clients that wait to be asked, other protocols.
_UNCOMMON = frozenset({b"transfer-encoding", b"expect", b"upgrade"})
_REFUSALS = (ProblemError, ServiceError, OubliError)


class Answer(NamedTuple):
    """A whole answer, but for the length of its body and what the server adds to every answer."""

    head: bytes  # status line and headers, ready to be written
    body: bytes


Handler = Callable[[bytes], Answer | None]
"""Makes the answer from a request's body; None, and nothing has changed, when it has to take the ordinary way."""


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

    def admits(self, method: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
        """Whether a request for a hot route may be answered here: it is of the common kind, and passes the gate.

        Parameters
        ----------
        method
            As in the request line.
        headers
            Names in lower case.
        """
        values = dict(headers)
        if len(values) != len(headers) or not _UNCOMMON.isdisjoint(values):
            return False
        if values.get(b"connection", b"keep-alive").lower() != b"keep-alive":
            return False
        length = content_length(values)
        if length is None or length > self.largest_body or (length and method == b"DELETE"):
            return False
        try:
            self._gate.check(method.decode("ascii"), _ANY_PATH, values)
        except ProblemError:
            return False
        return True

    def answer(self, handler: Handler, body: bytes) -> Answer | None:
        """Return the answer to a request; None, and nothing has changed, for the ordinary way."""
        try:
            answer = handler(body)
        except _REFUSALS:
            return None
        except Exception as error:
            response = report_mistake(error).response()
            return Answer(_head(response), bytes(response.body))
        self._service.request_passed()
        return answer

    def _predict(self, body: bytes) -> Answer | None:
        reader = self._context.reader()
        predicted = self._service.predict_now(reader.rows(reader.instances(body)))
        return None if predicted is None else Answer(_OK, to_json(prediction_content(predicted)))

    def _add(self, body: bytes) -> Answer | None:
        samples, _ = self._context.reader().samples(body)
        added = self._service.add_now(samples)
        if added is None:
            return None
        return Answer(_CREATED if added.n_new else _OK, to_json(addition_content(added)))

    def _delete(self, target: bytes, body: bytes) -> Answer | None:
        del body  # there is none
        receipt = self._service.delete_now(parse_id(target, _PREFIX))
        return None if receipt is None else Answer(_OK, to_json(receipt_content(receipt)))
