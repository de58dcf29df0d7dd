"""Requests and answers as plain values, and the steps that a flow asks a transport to take. No I/O here.

A *flow* is a generator that is one operation of the client: it yields steps, is sent what came of each, and returns its
result. So the logic (bodies, retries, pages, jobs) is written once, and a transport that waits or one that awaits
carries it out:

    flow                      transport
    yield Send(request)  ->   sends it             -> Answer, or NoAnswerError is thrown into the flow
    yield Sleep(0.1)     ->   waits
    yield Emit(item)     ->   hands the item to the caller that iterates
    return result        ->   returns it
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import orjson

from oubli.client.errors import UnexpectedAnswerError

T = TypeVar("T")
JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """A request, before retries and keys.

    Attributes
    ----------
    method, path
        The path begins with a slash and is percent-encoded; the transport knows the server.
    query
        Names and values, in order.
    body
        Bytes, a file that is sent piece by piece, or None. Unless the headers say otherwise, bytes are JSON, and a file
        is `application/octet-stream`.
    headers
        Besides those that every request has.
    is_safe
        Whether it changes nothing, so that it may be sent again.
    takes_key
        Whether the route takes an `Idempotency-Key`.
    is_retried
        Whether the client tries again by itself.
    is_streamed
        Whether the answer's body is read piece by piece; of refusals it is always read.
    is_spread
        Whether a client of several servers asks them in turn; others are read from one as long as it answers.
    is_local
        Whether what it asks for may be known to one server alone, such as a job, so that a 404 is asked of the others.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_safe: bool = False
    takes_key: bool = False
    is_retried: bool = True
    is_streamed: bool = False
    is_spread: bool = False
    is_local: bool = False

    @property
    def may_repeat(self) -> bool:
        """Whether it does no harm when the server gets it twice."""
        return self.is_safe or "Idempotency-Key" in self.headers


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, or the head of one whose body is read piece by piece.

    Attributes
    ----------
    status, headers
        Names of headers in lower case.
    body
        Empty when it is streamed.
    stream
        The transport's own; for `NextEvent`, `NextChunk` and `Close`.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    stream: Any = None

    @property
    def is_success(self) -> bool:
        """Whether the request was answered as asked."""
        return 200 <= self.status < 300

    def json(self) -> Any:
        """Return the body as an object.

        Raises
        ------
        UnexpectedAnswerError
            When it is no JSON.
        """
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            raise UnexpectedAnswerError(
                f"the answer ({self.status}) is not JSON: is the address that of a server of Oubli?", self.status
            ) from None

    def retry_after(self, now: float) -> float | None:
        """Return the seconds that `Retry-After` asks for, given the time as a Unix time stamp; None without."""
        text = self.headers.get("retry-after", "").strip()
        if text.isascii() and text.isdecimal() and len(text) < 10:
            return float(text)
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - now)
        except (TypeError, ValueError):
            return None


class Send(NamedTuple):
    """Send a request to a server, by default the transport's first; gives an `Answer`."""

    request: Request
    server: str | None = None


class Sleep(NamedTuple):
    """Wait for some seconds."""

    seconds: float


class NextEvent(NamedTuple):
    """Wait for the data of the next server-sent event of a stream; gives None at the end."""

    stream: Any


class NextChunk(NamedTuple):
    """Wait for the next bytes of a stream; gives None at the end."""

    stream: Any


class Close(NamedTuple):
    """Close a stream before its end."""

    stream: Any


class Work(NamedTuple):
    """Call a function that may block, such as one that writes a file."""

    function: Callable[[], Any]


Step: TypeAlias = Send | Sleep | NextEvent | NextChunk | Close | Work


@dataclass(frozen=True, slots=True)
class Emit(Generic[T]):
    """Hand an item to the caller that iterates over the flow."""

    item: T


Flow: TypeAlias = Generator[Step, Any, T]
"""An operation with one result."""
Emits: TypeAlias = Generator[Step | Emit[T], Any, None]
"""An operation that is iterated over."""


def to_json(content: Any) -> bytes:
    """Return an object as JSON; arrays included."""
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
