"""What all requests of a client share: when to try again, keys of requests, servers, and the newest version seen.

A client may have the addresses of several nodes of a cluster. A request goes to one server, and to the next as long as
that does no harm. A change goes to the leader; another server names it. The leader is followed only to an address that
the caller has given, because the key goes with each request.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import orjson

from oubli.client.errors import ClientError, NoAnswerError, NotLeaderError, ProblemError, problem_of
from oubli.client.messages import JSON_TYPE, Answer, Flow, Request, Send, Sleep

KEY_HEADER = "Idempotency-Key"
VERSION_HEADER = "Min-Version"
_BY_PROXIES = frozenset({502, 503, 504})
# 503s of the server itself that leave in doubt whether a change is on the disk.
_IN_DOUBT = frozenset({"changes-stopped"})
REST_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}
_FAILED_BY = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a request is sent again, and how long the client waits before.

    The wait before the n-th repetition is drawn between 0 and `first_wait` times 2 to the n, at most `longest_wait`
    (exponential backoff with full jitter). A `Retry-After` of the server comes on top.

    A client of several servers has asked all that may answer before it waits: that counts as once.

    Sent again is what was answered 429 or 503 (and 502 or 504 by a proxy), and what had no answer. A request that
    changes something and may have been applied is sent again only with an `Idempotency-Key`.

    Attributes
    ----------
    most
        Repetitions of one request. 0: none, and requests that change something get no `Idempotency-Key` by themselves.
    first_wait, longest_wait
        In seconds.
    longest_retry_after
        In seconds; a server that asks for more is not asked again.
    """

    most: int = 8
    first_wait: float = 0.1
    longest_wait: float = 30.0
    longest_retry_after: float = 60.0

    def wait(
        self, n: int, request: Request, error: ClientError, draw: random.Random, asked: float = 0.0
    ) -> float | None:
        """Return the seconds to wait before a request is sent for the n-th time again; None: raise the error.

        Parameters
        ----------
        n
            From 1.
        request
            With its key, if it has one.
        error
            What came of it.
        draw
            Draws the jitter.
        asked
            Seconds that another server has asked for.
        """
        if n > self.most or not request.is_retried or not _may_try_again(request, error):
            return None
        if isinstance(error, ProblemError):
            asked = max(asked, error.retry_after or 0.0)
        if asked > self.longest_retry_after:
            return None
        return asked + draw.uniform(0.0, min(self.longest_wait, self.first_wait * 2.0 ** (n - 1)))


def _may_try_again(request: Request, error: ClientError) -> bool:
    if isinstance(error, NoAnswerError):
        return request.may_repeat or not error.may_have_been_applied
    if not isinstance(error, ProblemError):
        return False
    if error.status == 429:
        return True
    if isinstance(error, NotLeaderError):
        return error.retry_after is not None
    if error.kind:  # of the server itself, which names a time where a repetition can help
        is_temporary = error.status == 503 and error.retry_after is not None
        return is_temporary and (request.may_repeat or error.kind not in _IN_DOUBT)
    return error.status in _BY_PROXIES and request.may_repeat


def same_address(url: str) -> tuple[str, str, int | None, str] | None:
    """Return what two ways of writing the same address have in common; None when it is no address."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    return parts.scheme, parts.hostname or "", port, parts.path.rstrip("/")


class Servers:
    """The addresses of a client, and what it knows of them; safe for threads.

    Parameters
    ----------
    addresses
        As the transport writes them; empty: the transport's own, whatever it is.
    first
        Number of the one that is asked first.
    """

    def __init__(self, addresses: Sequence[str] = (), first: int = 0) -> None:
        self.addresses: tuple[str | None, ...] = tuple(addresses) or (None,)
        self._by_name = {same_address(url): url for url in addresses}
        self._reader = self.addresses[first % len(self.addresses)]
        self._turn = first
        self._leader: str | None = None
        self._rests_until: dict[str | None, float] = {}
        self._lock = threading.Lock()

    def order(self, request: Request, now: float) -> list[str | None]:
        """Return the servers in the order in which a request goes to them; those that failed a moment ago are last."""
        with self._lock:
            if len(self.addresses) == 1:
                return list(self.addresses)
            if not request.is_safe:
                first = self._reader if self._leader is None else self._leader
            elif request.is_spread:
                self._turn += 1
                first = self.addresses[self._turn % len(self.addresses)]
            else:
                first = self._reader
            start = self.addresses.index(first)
            turned = self.addresses[start:] + self.addresses[:start]
            return sorted(turned, key=lambda server: self._rests_until.get(server, now) > now)

    def answered(self, request: Request, server: str | None) -> None:
        """Remember who has answered: the leader, or whom to read from."""
        with self._lock:
            self._rests_until.pop(server, None)
            if not request.is_safe:
                self._leader = server
            elif not request.is_spread:
                self._reader = server

    def failed(self, server: str | None, now: float) -> None:
        """Leave a server alone for a while, as long as there are others."""
        with self._lock:
            self._rests_until[server] = now + REST_SECONDS

    def leads(self, url: str | None) -> str | None:
        """Remember who leads, and return its address; None when it is none of the caller's."""
        known = None if url is None else self._by_name.get(same_address(url))
        if known is not None:
            with self._lock:
                self._leader = known
        return known


class Round:
    """A request's way from server to server, each of which it reaches at most once.

    Parameters
    ----------
    servers
        What is known of them is kept up to date.
    request
        With its key, if it has one.
    now
        Seconds that never go back.

    Attributes
    ----------
    server : str or None
        The present one.
    """

    def __init__(self, servers: Servers, request: Request, now: float) -> None:
        self._servers, self._request, self._now = servers, request, now
        self._left = servers.order(request, now)
        self._errors: list[ClientError] = []
        self.server = self._left.pop(0)

    def goes_on(self, error: ClientError) -> bool:
        """Go to the next server after an error; False when there is none, or when no other can say anything else."""
        leader: str | None = None
        if isinstance(error, NotLeaderError):
            leader = self._servers.leads(error.leader)
            if leader is not None and error.retry_after is None:
                error.retry_after = 1.0  # when it does not answer, another leads in a moment
        elif _is_failure(self._request, error):
            self._servers.failed(self.server, self._now)
        if not _may_go_elsewhere(self._request, error):
            self._errors = [error]
            return False
        self._errors.append(error)
        if not self._left:
            return False
        self.server = leader if leader in self._left else self._left[0]
        self._left.remove(self.server)
        return True

    def error(self) -> ClientError:
        """Return the error that says most: whether the request may have been applied, then when to try again."""
        return max(reversed(self._errors), key=_weight)

    def asked_to_wait(self) -> float:
        """Return the longest time for which a server has asked, in seconds."""
        return max((one.retry_after or 0.0 for one in self._errors if isinstance(one, ProblemError)), default=0.0)


def _is_failure(request: Request, error: ClientError) -> bool:
    if isinstance(error, NoAnswerError):
        return True
    if not isinstance(error, ProblemError):
        return False
    return error.status in _FAILED_BY or (error.status == 429 and request.is_safe)


def _may_go_elsewhere(request: Request, error: ClientError) -> bool:
    """Whether another server may answer, and asking it does no harm."""
    if isinstance(error, NoAnswerError):
        return request.may_repeat or not error.may_have_been_applied
    if not isinstance(error, ProblemError):
        return False
    if isinstance(error, NotLeaderError) or error.kind == "behind":
        return True
    if error.status == 404:
        return request.is_local
    if error.status == 429:
        return request.is_safe  # changes wait for the leader, and it is the only one
    if error.kind:
        return error.status == 503 and error.retry_after is not None and request.may_repeat
    return error.status in _FAILED_BY and request.may_repeat


def _weight(error: ClientError) -> tuple[bool, bool, bool]:
    is_unanswered = isinstance(error, NoAnswerError)
    in_doubt = isinstance(error, NoAnswerError) and error.may_have_been_applied
    return in_doubt, isinstance(error, ProblemError) and error.retry_after is not None, is_unanswered


@dataclass
class Session:
    """What all requests of a client share; safe for threads.

    Attributes
    ----------
    retries
        When to try again.
    trusted_keys
        Public keys of receipts by id, in base64; None: those that the server publishes.
    servers
        Where requests go.
    draw, clock, now
        Randomness, seconds that never go back, and Unix time; tests replace them.
    """

    retries: Retries = field(default_factory=Retries)
    trusted_keys: Mapping[str, str] | None = None
    servers: Servers = field(default_factory=Servers)
    draw: random.Random = field(default_factory=random.SystemRandom)
    clock: Any = time.monotonic
    now: Any = time.time
    _min_version: int = 0
    _lock: Any = field(default_factory=threading.Lock, repr=False)

    @property
    def min_version(self) -> int:
        """The newest model version in any answer; later requests are answered by this one or a newer."""
        return self._min_version

    def saw(self, content: Any) -> None:
        """Remember the version of an answer."""
        version = content.get("model_version") if isinstance(content, dict) else None
        if type(version) is int:
            with self._lock:
                self._min_version = max(self._min_version, version)

    def forget_version(self) -> None:
        """Forget which version was seen: for a server whose model was put back on purpose."""
        with self._lock:
            self._min_version = 0

    def prepared(self, request: Request) -> Request:
        """Return a request with the headers that make it repeatable and that make it read this client's writes."""
        headers = {"Accept": JSON_TYPE, **request.headers}
        if isinstance(request.body, bytes):
            headers.setdefault("Content-Type", JSON_TYPE)
        if self.min_version:
            headers[VERSION_HEADER] = str(self.min_version)
        if request.takes_key and self.retries.most and KEY_HEADER not in headers:
            headers[KEY_HEADER] = uuid.uuid4().hex
        return replace(request, headers=headers)

    def exchange(self, request: Request) -> Flow[Answer]:
        """Send a request until it is answered as asked, or until trying again is over.

        Raises
        ------
        NoAnswerError, ProblemError
            What came of the last time.
        """
        request = self.prepared(request)
        n = 0
        while True:
            way = Round(self.servers, request, self.clock())
            answer = yield from self._ask_around(request, way)
            if answer is not None:
                return answer
            n += 1
            error = way.error()
            wait = self.retries.wait(n, request, error, self.draw, way.asked_to_wait())
            if wait is None:
                raise error
            yield Sleep(wait)

    def _ask_around(self, request: Request, way: Round) -> Flow[Answer | None]:
        """Send a request to one server, and to the others while that helps; None when none has answered as asked."""
        while True:
            error: ClientError
            try:
                answer: Answer = yield Send(request, way.server)
                if answer.is_success:
                    self.servers.answered(request, way.server)
                    return answer
                error = self._refusal(answer)
            except NoAnswerError as failure:
                error = failure
            if not way.goes_on(error):
                return None

    def ask(self, request: Request) -> Flow[Any]:
        """Exchange a request and return the answer's JSON, whose version is remembered."""
        answer = yield from self.exchange(request)
        content = answer.json()
        self.saw(content)
        return content

    def _refusal(self, answer: Answer) -> ProblemError:
        try:
            content = orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            content = None
        return problem_of(answer.status, content, answer.retry_after(self.now()), answer.headers.get("x-request-id"))
