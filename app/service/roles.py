"""What a server is among others: alone, or one of several nodes of which one leads and the others follow."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from oubli.app.errors import NodeAliveError, NoNodeError

if TYPE_CHECKING:
    from oubli.app.service.model_service import ModelService


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


class Role(Protocol):
    """What the service asks of the part of it that knows other nodes. It belongs to the event loop.

    Attributes
    ----------
    is_shared
        Whether other nodes may take over, so that an end need not be waited for.
    door
        What other nodes may ask for; None where there are none.
    """

    is_shared: bool
    door: Door | None

    def start(self, service: ModelService) -> None:
        """Begin, on the event loop of the service."""

    async def resign(self) -> None:
        """Let another node lead, once nothing is changed here any more; follow no longer."""

    def close(self) -> None:
        """End threads and connections."""

    def describe(self, service: ModelService) -> dict[str, Any]:
        """Return what `GET /cluster` answers."""

    def measure(self, service: ModelService) -> Standing | None:
        """Return how the node stands; None for a server that is alone."""

    def unready(self) -> str | None:
        """Return why predictions should be asked elsewhere; None when they need not."""

    def kept_from(self, seq: int) -> int:
        """Return the first record that other nodes still need, `seq` or an earlier one."""

    def is_rid(self, seq: int) -> bool:
        """Whether no other node holds anything of what was erased by records up to this number."""

    async def rid(self, seq: int) -> None:
        """Return when that is so; nodes that are silent for too long are expelled meanwhile."""

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

    async def remove(self, name: str) -> None:
        """Forget a node that is expelled; raises as `require_expelled`."""


class Alone:
    """A server that no other one follows.

    Parameters
    ----------
    name
        Of the server; None: the machine's.
    """

    is_shared = False
    door: Door | None = None

    def __init__(self, name: str | None = None) -> None:
        self._name = name

    def start(self, service: ModelService) -> None:
        """Do nothing."""

    async def resign(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def describe(self, service: ModelService) -> dict[str, Any]:
        """Return what `GET /cluster` answers."""
        state, name = service.state, self._name or socket.gethostname()
        node = {
            "name": name,
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
            "node": name,
            "role": "alone",
            "epoch": 1,
            "leader": None,
            "model_version": state.version,
            "seq": state.seq,
            "nodes": [node],
        }

    def measure(self, service: ModelService) -> Standing | None:
        """Return None."""
        del service
        return None

    def unready(self) -> str | None:
        """Return None."""
        return None

    def kept_from(self, seq: int) -> int:
        """Return the same number: nobody else reads the journal."""
        return seq

    def is_rid(self, seq: int) -> bool:
        """Say yes: there is nobody else."""
        del seq
        return True

    async def rid(self, seq: int) -> None:
        """Return at once."""
        del seq

    def tell_digest(self, first_seq: int, digest: str) -> None:
        """Do nothing."""
        del first_seq, digest

    async def require_expelled(self, name: str) -> None:
        """Refuse: this server is the only node."""
        if name == (self._name or socket.gethostname()):
            raise NodeAliveError(leads=True)
        raise NoNodeError

    async def remove(self, name: str) -> None:
        """Refuse, see `require_expelled`."""
        await self.require_expelled(name)
