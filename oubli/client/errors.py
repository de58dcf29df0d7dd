"""Every error that the client raises, as one tree.

ClientError
    DataError                      the caller's data cannot be sent: nothing was
    NoAnswerError                  no whole answer came; says whether the request may have been applied
        TimedOutError
    UnexpectedAnswerError          an answer that this client cannot read
    ProblemError                   the server's refusal: an RFC 9457 document, by its status
        InvalidInputError          400, 415, 422, 431
        AccessError                401, 403, 421
        NotFoundError              404
        ConflictError              409, 412
            EmptyModelError, IdConflictError, ErasedLatelyError, EphemeralError
        TooLargeError              413
        BusyError                  429
        ServerError                500 and above
            UnavailableError       502, 503, 504
        NotLeaderError             another node of the cluster takes changes
    JobFailedError                 a job that was awaited has failed
    ReceiptError                   a receipt is not what it claims to be
    WaitTimeoutError               what was awaited has not happened in time
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from pydantic import ValidationError

from oubli.api.base import Problem

TYPE_PREFIX = "urn:oubli:problem:"
_ROW = re.compile(r"^(/instances/)(\d+)")


class ClientError(Exception):
    """Base of all errors of the client.

    Examples
    --------
    >>> try:
    ...     client.get("unknown")
    ... except ClientError as error:
    ...     print(error.kind)
    not-held
    """


class DataError(ClientError, ValueError):
    """The caller's data cannot be sent; nothing was.

    Attributes
    ----------
    row
        Position of the row, from 0; None when it is not about one row.
    field
        Name or position of the column; None when it is not about one.
    rule
        What must hold.

    Examples
    --------
    >>> try:
    ...     client.predict([[float("inf"), "a", True]])
    ... except DataError as error:
    ...     print(error.row, error.rule)
    0 must be a finite number: remove the infinity, or send None when the value is unknown
    """

    def __init__(self, rule: str, row: int | None = None, field: str | int | None = None) -> None:
        place = ", ".join(f"{name} {value!r}" for name, value in (("row", row), ("field", field)) if value is not None)
        super().__init__(f"{place}: {rule}" if place else rule)
        self.rule, self.row, self.field = rule, row, field

    def further_on(self, n: int) -> Self:
        """Internal: the error of rows of which so many were before those that it counts."""
        return self if self.row is None else type(self)(self.rule, self.row + n, self.field)


class NoAnswerError(ClientError):
    """No whole answer came: the connection failed, broke, or took too long.

    Attributes
    ----------
    may_have_been_applied
        Whether the server may have done what was asked. False when the request was never sent.

    Examples
    --------
    >>> from oubli.client import Client
    >>> try:
    ...     Client("http://127.0.0.1:1", retries=0).model()
    ... except NoAnswerError as error:
    ...     print(error.may_have_been_applied)
    False
    """

    def __init__(self, message: str, *, may_have_been_applied: bool) -> None:
        super().__init__(message)
        self.may_have_been_applied = may_have_been_applied


class TimedOutError(NoAnswerError):
    """The answer took longer than the client's timeout.

    Examples
    --------
    >>> issubclass(TimedOutError, NoAnswerError)  # whose handlers catch it, too
    True
    """


class UnexpectedAnswerError(ClientError):
    """An answer that is not what a server of Oubli sends: a proxy's page, or of a version that differs too much.

    Attributes
    ----------
    status
        Of the answer.

    Examples
    --------
    >>> UnexpectedAnswerError("the answer is no JSON", 200).status
    200
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class InputProblem(NamedTuple):
    """What is wrong at one place of a request.

    Attributes
    ----------
    pointer
        JSON pointer into the body, or a slash and the name of a parameter.
    detail
        What must hold there.

    Examples
    --------
    >>> InputProblem("/instances/0", "must have 3 values").pointer
    '/instances/0'
    """

    pointer: str
    detail: str


class ProblemError(ClientError):
    """The server's refusal. Its texts name positions, names of the schema and rules, never what was sent.

    Attributes
    ----------
    kind
        Which problem, as `docs/reference/problems.md` lists them, such as ``"invalid-input"``; empty when the answer
        came from something else, such as a proxy.
    status, title, detail
        As answered.
    errors
        What is wrong with the input, by place.
    retry_after
        Seconds after which the server asks to try again; None when it does not.
    request_id
        Names the request in the server's log.

    Examples
    --------
    >>> try:
    ...     client.predict([[39, "a"]])
    ... except ProblemError as error:
    ...     print(error.status, error.kind, error.pointers)
    422 invalid-input ('/instances/0',)
    """

    def __init__(
        self,
        status: int,
        *,
        kind: str = "",
        title: str = "",
        detail: str = "",
        errors: Sequence[InputProblem] = (),
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        places = "".join(f" [{place or 'the request'} {rule}]" for place, rule in errors)
        super().__init__(f"{status} {title}: {detail}{places}" if detail else f"{status} {title}{places}")
        self.status, self.kind, self.title, self.detail = status, kind, title, detail
        self.errors = tuple(errors)
        self.retry_after, self.request_id = retry_after, request_id

    def further_on(self, n: int) -> ProblemError:
        """Internal: the error of rows of which so many were before those that it counts."""
        if not n or not self.errors:
            return self
        facts = {name: getattr(self, name) for name in ("kind", "title", "detail", "retry_after", "request_id")}
        places = [_ROW.sub(lambda place: f"{place[1]}{int(place[2]) + n}", one.pointer) for one in self.errors]
        errors = [one._replace(pointer=place) for one, place in zip(self.errors, places, strict=True)]
        return type(self)(self.status, errors=errors, **facts)

    @property
    def pointers(self) -> tuple[str, ...]:
        """The places that are wrong."""
        return tuple(error.pointer for error in self.errors)


class InvalidInputError(ProblemError):
    """The request is not valid; nothing was changed.

    Examples
    --------
    >>> try:
    ...     client.predict([[39, "a"]])
    ... except InvalidInputError as error:
    ...     print(error.errors[0].pointer)
    /instances/0
    """


class AccessError(ProblemError):
    """The key is missing, unknown, or does not have the needed scope; or the host is not one of the server's.

    Examples
    --------
    >>> problem_of(403, {"title": "Forbidden"}, None, None)
    AccessError('403 Forbidden')
    """


class NotFoundError(ProblemError):
    """What was named is not there: a sample, a subject, a receipt, a job, a ranking, a bundle or a snapshot.

    Examples
    --------
    >>> try:
    ...     client.get("unknown")
    ... except NotFoundError as error:
    ...     print(error.status, error.kind)
    404 not-held
    """


class ConflictError(ProblemError):
    """The request does not go with the server's state, such as a sample that was changed; nothing was changed.

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["changed-1"])
    >>> try:
    ...     client.replace("changed-1", [40, "a", True], "yes", if_match='"old"')
    ... except ConflictError as error:
    ...     print(error.kind)
    sample-changed
    """


class EmptyModelError(ConflictError):
    """No samples are held, so there is nothing to predict from.

    Examples
    --------
    >>> problem_of(409, {"type": "urn:oubli:problem:empty-model", "title": "No samples"}, None, None)
    EmptyModelError('409 No samples')
    """


class IdConflictError(ConflictError):
    """Ids are held with other content.

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["twice-1"])
    >>> try:
    ...     client.add([[40, "b", True]], ["no"], ids=["twice-1"])
    ... except IdConflictError as error:
    ...     print(error.pointers)
    ('/samples/0/id',)
    """


class ErasedLatelyError(ConflictError):
    """Ids were erased a short time ago; `readd=True` brings them back on purpose.

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["late-1"])
    >>> receipt = client.delete("late-1")
    >>> try:
    ...     client.add([[39, "a", True]], ["yes"], ids=["late-1"])
    ... except ErasedLatelyError as error:
    ...     print(error.pointers)
    ('/samples/0/id',)
    """


class RestrictedError(ConflictError):
    """The processing of an id or a subject is restricted: nothing is added to it.

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["still-1"], subjects="still")
    >>> restriction = client.restrict("still")
    >>> try:
    ...     client.add([[39, "a", True]], ["yes"], subjects="still")
    ... except RestrictedError as error:
    ...     print(error.pointers)
    ('/samples/0/subject',)
    """


class EphemeralError(ConflictError):
    """The server keeps nothing on disk.

    Examples
    --------
    >>> problem_of(409, {"type": "urn:oubli:problem:ephemeral", "title": "Nothing is kept"}, None, None)
    EphemeralError('409 Nothing is kept')
    """


class TooLargeError(ProblemError):
    """The body is too large, or names too many rows: split it.

    Examples
    --------
    >>> problem_of(413, {"title": "Too large"}, None, None)
    TooLargeError('413 Too large')
    """


class BusyError(ProblemError):
    """As many requests wait as may wait.

    Examples
    --------
    >>> problem_of(429, {"title": "Busy"}, 2.0, None).retry_after
    2.0
    """


class ServerError(ProblemError):
    """The server failed.

    Examples
    --------
    >>> problem_of(500, {"title": "Failed"}, None, "request-7").request_id
    'request-7'
    """


class UnavailableError(ServerError):
    """The server is not ready, accepts no changes, or is behind what this client has seen.

    Examples
    --------
    >>> problem_of(503, {"type": "urn:oubli:problem:behind", "title": "Behind"}, 1.0, None).kind
    'behind'
    """


class NotLeaderError(ProblemError):
    """A node of a cluster that follows was asked for what only the leader does; nothing was changed.

    A client of several addresses asks the leader next when it is among them.

    Attributes
    ----------
    leader
        Address of the leader, as the nodes know it; None while there is none.

    Examples
    --------
    >>> document = {"type": "urn:oubli:problem:not-leader", "title": "Not the leader", "leader": "http://two:8000"}
    >>> problem_of(409, document, None, None).leader
    'http://two:8000'
    """

    def __init__(self, status: int, *, leader: str | None = None, **further: Any) -> None:
        super().__init__(status, **further)
        self.leader = leader


class JobFailedError(ClientError):
    """A job that was awaited has failed.

    Attributes
    ----------
    job_id
        Which.
    reason
        What the server says.

    Examples
    --------
    >>> str(JobFailedError("7", "the disk is full"))
    'the job has failed: the disk is full'
    """

    def __init__(self, job_id: str, reason: str) -> None:
        super().__init__(f"the job has failed: {reason}")
        self.job_id, self.reason = job_id, reason


class ReceiptError(ClientError):
    """A receipt is not what it claims to be; the text names the rule.

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["forged-1"])
    >>> receipt = client.delete("forged-1")
    >>> try:
    ...     client.verify_receipt({**receipt.content, "unlearned": 0})
    ... except ReceiptError as error:
    ...     print(error)
    its signature is not that of its content: something in it was changed
    """


class WaitTimeoutError(ClientError, TimeoutError):
    """What was awaited has not happened in time; it may still happen.

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["slow-1"])
    >>> receipt = client.delete("slow-1")
    >>> try:
    ...     client.wait_erased(receipt, timeout=0)
    ... except WaitTimeoutError as error:
    ...     print(error)
    it is not erased in time; the server continues
    """


_BY_KIND: Mapping[str, type[ProblemError]] = {
    "empty-model": EmptyModelError,
    "id-conflict": IdConflictError,
    "erased-lately": ErasedLatelyError,
    "restricted": RestrictedError,
    "ephemeral": EphemeralError,
}
_BY_STATUS: Mapping[int, type[ProblemError]] = {
    **dict.fromkeys((400, 415, 422, 431), InvalidInputError),
    **dict.fromkeys((401, 403, 421), AccessError),
    404: NotFoundError,
    **dict.fromkeys((409, 412), ConflictError),
    413: TooLargeError,
    429: BusyError,
    **dict.fromkeys((502, 503, 504), UnavailableError),
}


def problem_of(status: int, content: Any, retry_after: float | None, request_id: str | None) -> ProblemError:
    """Internal: the error that an answer means.

    Parameters
    ----------
    status
        At least 300.
    content
        The body's JSON; anything when it is no problem document.
    retry_after, request_id
        As the headers say.
    """
    try:
        document = Problem.model_validate(content)
    except ValidationError:
        document = Problem()
    kind = document.type.removeprefix(TYPE_PREFIX) if document.type.startswith(TYPE_PREFIX) else ""
    further: dict[str, Any] = {
        "kind": kind,
        "title": document.title,
        "detail": document.detail,
        "errors": [InputProblem(one.pointer, one.detail) for one in document.errors],
        "retry_after": retry_after,
        "request_id": request_id,
    }
    if kind == "not-leader":
        return NotLeaderError(status, leader=document.leader, **further)
    default = ServerError if status >= 500 else ProblemError
    return (_BY_KIND.get(kind) or _BY_STATUS.get(status, default))(status, **further)
