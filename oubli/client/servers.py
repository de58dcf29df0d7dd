"""Which of several servers a request goes to, and where it goes next: the nodes of a cluster by the caller's addresses.

A request goes to one server, and on to the next as long as that does no harm. A change goes to the leader; whoever is
asked instead names it. The leader is followed only to an address that the caller has given, because the key goes with
each request.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from oubli.client.errors import ClientError, NoAnswerError, NotLeaderError, ProblemError

if TYPE_CHECKING:
    from oubli.client.messages import Request

REST_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}
_FAILED_BY = frozenset({502, 503, 504})


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
