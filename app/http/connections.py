"""Connections that are let in, and how long what they send may take.

    limit                          what happens
    -----------------------------  ------------------------------------------------------------------------------------
    connections in all             the one that is idle longest is closed for a new one; when none is idle: 503
    connections of one address     likewise, so that one caller cannot have them all; not for proxies that are trusted
    bytes and fields of a head     431 as soon as they are exceeded, trailers of a body in chunks included
    time for a head, for a body    408; a body that goes on at a modest rate is not cut off
    time without a request         closed
    time without reading answers   closed

One timer looks at all connections every second or so: a timer for each request would cost as much as its routing.
"""

from __future__ import annotations

import ipaddress
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oubli.app.http.protocol import OubliProtocol

_FRESH = 0.5  # seconds for which a connection counts as busy after its last answer
_LONGEST_TICK = 1.0

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What connections may do.

    Attributes
    ----------
    most, most_of_address
        Connections that may be open, in all and of one address.
    trusted
        Networks of proxies, for which the limit of one address does not hold.
    head_seconds, body_seconds, idle_seconds
        For the head of a request; for its body, and more the longer it is; between two requests.
    """

    most: int = 4096
    most_of_address: int = 2048
    trusted: tuple[Network, ...] = ()
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    idle_seconds: float = 75.0


class Connections:
    """All connections of a server.

    Parameters
    ----------
    limits
        What they may do.
    """

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self.limits = limits or ConnectionLimits()
        self._open: set[OubliProtocol] = set()
        self._of_address: dict[str, int] = {}
        self._victims: dict[str | None, _Victims] = {}
        shortest = min(self.limits.head_seconds, self.limits.body_seconds, self.limits.idle_seconds)
        self._tick = max(0.005, min(_LONGEST_TICK, shortest / 4))
        self._is_ticking = False
        self._looked_at = 0.0

    def admit(self, connection: OubliProtocol, address: str) -> bool:
        """Let a connection in; false when there are too many."""
        n_of_address = self._of_address.get(address, 0)
        if n_of_address >= self.limits.most_of_address and not self._is_trusted(connection):
            if not self._make_room(address):
                return False
        elif len(self._open) >= self.limits.most and not self._make_room(None):
            return False
        self._open.add(connection)
        self._of_address[address] = self._of_address.get(address, 0) + 1
        if not self._is_ticking:
            self._is_ticking = True
            self._looked_at = time.monotonic()
            connection.loop.call_later(self._tick, self._look, connection.loop)
        return True

    def leave(self, connection: OubliProtocol, address: str) -> None:
        """Forget a connection; one that was not let in, or has left, is not known."""
        if connection in self._open:
            self._open.remove(connection)
            left = self._of_address[address] - 1
            if left:
                self._of_address[address] = left
            else:
                del self._of_address[address]

    def _make_room(self, address: str | None) -> bool:
        """Close the connection that is idle longest, of one address or of all; false when they are busy."""
        now = time.monotonic()
        found = self._victims.setdefault(address, _Victims())
        if not found.queue:
            if now < found.not_before:
                return False
            # Sorted once for many: each connection that is too much would look at all there are.
            idle = [one for one in self._open if one.is_idle and address in (None, one.address)]
            found.queue.extend(sorted(idle, key=lambda one: one.idle_since))
            found.not_before = now + _FRESH / 4
        while found.queue:
            victim = found.queue.popleft()
            if victim in self._open and victim.is_idle and victim.idle_since < now - _FRESH:
                victim.transport.close()
                self.leave(victim, victim.address)
                return True
        return False

    def _look(self, loop: Any) -> None:
        """Close what takes too long."""
        now = time.monotonic()
        elapsed, self._looked_at = now - self._looked_at, now
        self._victims.clear()
        for connection in tuple(self._open):
            connection.look(now, elapsed)
        self._is_ticking = bool(self._open)
        if self._is_ticking:
            loop.call_later(self._tick, self._look, loop)

    def _is_trusted(self, connection: OubliProtocol) -> bool:
        if not self.limits.trusted or connection.client is None:
            return False
        address = ipaddress.ip_address(connection.client[0].partition("%")[0])
        return any(address in network for network in self.limits.trusted)


class _Victims:
    """Connections that may be closed for new ones, the one that is idle longest first."""

    __slots__ = ("not_before", "queue")

    def __init__(self) -> None:
        self.queue: deque[OubliProtocol] = deque()
        self.not_before = float("-inf")


def parse_networks(names: Iterable[str]) -> tuple[Network, ...]:
    """Return addresses and networks as networks; `ValueError` for what is neither."""
    return tuple(ipaddress.ip_network(name, strict=False) for name in names)


def address_of(host: str) -> str:
    """Return what connections are counted by."""
    if ":" not in host:
        return host
    return str(ipaddress.ip_network(f"{host.partition('%')[0]}/64", strict=False))
