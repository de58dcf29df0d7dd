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
    """Base of all errors of the client."""


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
    """

    def __init__(self, rule: str, row: int | None = None, field: str | int | None = None) -> None:
        place = ", ".join(f"{name} {value!r}" for name, value in (("row", row), ("field", field)) if value is not None)
        super().__init__(f"{place}: {rule}" if place else rule)
        self.rule, self.row, self.field = rule, row, field

    def further_on(self, n: int) -> Self:
        """Return the error of rows of which so many were before those that it counts."""
        return self if self.row is None else type(self)(self.rule, self.row + n, self.field)


class NoAnswerError(ClientError):
    """No whole answer came: the connection failed, broke, or took too long.

    Attributes
    ----------
    may_have_been_applied
        Whether the server may have done what was asked. False when the request was never sent.
    """

    def __init__(self, message: str, *, may_have_been_applied: bool) -> None:
        super().__init__(message)
        self.may_have_been_applied = may_have_been_applied


class TimedOutError(NoAnswerError):
    """The answer took longer than the client's timeout."""


class UnexpectedAnswerError(ClientError):
    """An answer that is not what a server of Oubli sends: a proxy's page, or of a version that differs too much.

    Attributes
    ----------
    status
        Of the answer.
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
        """Return the error of rows of which so many were before those that it counts."""
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
    """The request is not valid; nothing was changed."""


class AccessError(ProblemError):
    """The key is missing, unknown, or does not have the needed scope; or the host is not one of the server's."""


class NotFoundError(ProblemError):
    """What was named is not there: a sample, a subject, a receipt, a job, a ranking, a bundle or a snapshot."""


class ConflictError(ProblemError):
    """The request does not go with the server's state, such as a sample that was changed; nothing was changed."""


class EmptyModelError(ConflictError):
    """No samples are held, so there is nothing to predict from."""


class IdConflictError(ConflictError):
    """Ids are held with other content."""


class ErasedLatelyError(ConflictError):
    """Ids were erased a short time ago; `readd=True` brings them back on purpose."""


class RestrictedError(ConflictError):
    """The processing of an id or a subject is restricted: nothing is added to it."""


class EphemeralError(ConflictError):
    """The server keeps nothing on disk."""


class TooLargeError(ProblemError):
    """The body is too large, or names too many rows: split it."""


class BusyError(ProblemError):
    """As many requests wait as may wait."""


class ServerError(ProblemError):
    """The server failed."""


class UnavailableError(ServerError):
    """The server is not ready, accepts no changes, or is behind what this client has seen."""


class NotLeaderError(ProblemError):
    """A node of a cluster that follows was asked for what only the leader does; nothing was changed.

    A client of several addresses asks the leader next when it is among them.

    Attributes
    ----------
    leader
        Address of the leader, as the nodes know it; None while there is none.
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
    """

    def __init__(self, job_id: str, reason: str) -> None:
        super().__init__(f"the job has failed: {reason}")
        self.job_id, self.reason = job_id, reason


class ReceiptError(ClientError):
    """A receipt is not what it claims to be; the text names the rule."""


class WaitTimeoutError(ClientError, TimeoutError):
    """What was awaited has not happened in time; it may still happen."""


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
    """Return the error that an answer means.

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
