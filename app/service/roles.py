"""What a server is among others: alone, or one of several nodes of which one leads and the others follow.

What a journal outside of the data directory needs of it: a place for keys, and a name.
"""

from __future__ import annotations

import math
import socket
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from oubli.app.errors import NodeAliveError, NoNodeError
from oubli.app.ledger.keys import KEYS_NAME
from oubli.app.service.model.live import Disk, LiveModel
from oubli.app.service.model.state import ModelState
from oubli.app.settings import Settings
from oubli.app.storage.segment_keys import SEGMENT_KEYS_NAME, SegmentKeys


class Standing(NamedTuple):
    """How a node stands to the others.

    Attributes
    ----------
    is_leader
        Whether it leads.
    epoch
        One more whenever another node takes over.
    lag_versions, lag_seconds
        By how many versions it is behind the leader, and since when.
    members
        How many nodes are in each state.
    digests_equal
        Whether its digest was the leader's when they were compared last; None while that is not known.
    """

    is_leader: bool
    epoch: int
    lag_versions: int
    lag_seconds: float
    members: dict[str, int]
    digests_equal: bool | None


class Door(Protocol):
    """What a node gives other nodes; its methods but the first take long, so they are for threads."""

    def admits(self, authorization: str) -> bool:
        """Whether a request comes from a node of this cluster."""

    def keys(self) -> bytes:
        """Return all keys, sealed."""

    def take_key(self, sealed: bytes) -> bool:
        """Keep the key of a new segment; false when it is not one of this cluster."""


class Host(Protocol):
    """What a role knows of the service of its node; `Lifecycle` is one."""

    live: LiveModel
    disk: Disk

    async def lead(self) -> None:
        """Take changes from now on."""

    async def follow(self) -> None:
        """Take no changes any more."""

    def moved(self) -> None:
        """Note that changes of the node that leads were taken in."""


class Role:
    """What the service asks of the part of it that knows other nodes: here the answers of a server that is alone.

    It belongs to the event loop.

    Parameters
    ----------
    name
        Of the server; None: the machine's.

    Attributes
    ----------
    is_shared
        Whether other nodes may take over, so that an end need not be waited for.
    door
        What other nodes may ask for; None where there are none.
    answers_until
        Until when the model may be asked, by `times.elapsed`: later others may have called `erased` what it still
        holds. It is to be compared when an answer is given, because a timer may be late.
    """

    is_shared = False
    door: Door | None = None
    answers_until = math.inf

    def __init__(self, name: str | None = None) -> None:
        self._name = name or socket.gethostname()

    def start(self, host: Host) -> None:
        """Begin, on the event loop of the service."""

    async def resign(self) -> None:
        """Let another node lead, once nothing is changed here any more; follow no longer."""

    def close(self) -> None:
        """End threads and connections."""

    def describe(self, state: ModelState) -> dict[str, Any]:
        """Return what `GET /cluster` answers."""
        node = {
            "name": self._name,
            "url": None,
            "role": "alone",
            "state": "in-step",
            "applied_seq": state.seq,
            "model_version": state.version,
            "lag_versions": 0,
            "erased_seq": state.seq if not state.pending else min(one.seq for one in state.pending.values()) - 1,
            "digests_equal": None,
            "seen_seconds_ago": 0.0,
        }
        return {
            "node": self._name,
            "role": "alone",
            "epoch": 1,
            "leader": None,
            "model_version": state.version,
            "seq": state.seq,
            "nodes": [node],
        }

    def measure(self, state: ModelState) -> Standing | None:
        """Return how the node stands; None for a server that is alone."""
        return None

    def unready(self) -> str | None:
        """Return why predictions should be asked elsewhere; None when they need not."""
        return None

    def kept_from(self, seq: int) -> int:
        """Return the first record that other nodes still need, `seq` or an earlier one."""
        return seq

    def is_rid(self, seq: int) -> bool:
        """Whether no other node holds anything of what was erased by records up to this number."""
        return True

    async def rid(self, seq: int) -> None:
        """Return when that is so; nodes that are silent for too long are expelled in the meantime."""

    def tell_digest(self, first_seq: int, digest: str) -> None:
        """Have others compare the digest of the model before a record, which begins a segment."""

    async def require_expelled(self, name: str) -> None:
        """Return when a node is expelled, so that it may be removed.

        Raises
        ------
        NoNodeError
            When there is none of this name.
        NodeAliveError
            When it is not expelled, or leads.
        JournalError
            When that cannot be asked.
        """
        if name == self._name:
            raise NodeAliveError(leads=True)
        raise NoNodeError

    async def remove(self, name: str) -> None:
        """Forget a node that is expelled; raises as `require_expelled`."""
        await self.require_expelled(name)


def segment_keys_of(settings: Settings) -> SegmentKeys:
    """Return the keys of the journal's segments.

    Raises
    ------
    StartError
        When their directory cannot be used.
    """
    return SegmentKeys((settings.key_dir or settings.data_dir / KEYS_NAME) / SEGMENT_KEYS_NAME)


def server_name(directory: Path) -> str:
    """Return a name that no other running server has: one directory belongs to one server."""
    return f"{socket.gethostname()}:{directory.resolve()}"
