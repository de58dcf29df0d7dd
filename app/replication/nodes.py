"""What is known of the nodes: as the database has told it last, and as people are told."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oubli.app.storage.postgres.cluster import Leader, Member, SegmentRow

NodeState = Literal["in-step", "behind", "silent", "expelled"]
NODE_STATES: tuple[NodeState, ...] = ("in-step", "behind", "silent", "expelled")


@dataclass(frozen=True, slots=True)
class Node:
    """Name and place of a node.

    Attributes
    ----------
    name
        No other node has it.
    url
        Where others reach it.
    """

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class View:
    """What the database has told at one instant.

    Attributes
    ----------
    leader
        Who led last; None when nobody ever did.
    members, segments
        All nodes, and the segments of the journal.
    in_step_from
        The record that a node must have taken in to be in step: the newest of some seconds ago.
    applied_seq
        What this node had made or taken in before it asked; the journal has at least that.
    at
        When, in seconds of `time.monotonic`.
    """

    leader: Leader | None = None
    members: Sequence[Member] = ()
    segments: Sequence[SegmentRow] = ()
    in_step_from: int = 0
    applied_seq: int = 0
    at: float = field(default_factory=time.monotonic)

    @property
    def last_seq(self) -> int:
        """Number of the newest record."""
        return 0 if self.leader is None else self.leader.last_seq

    @property
    def is_set_back(self) -> bool:
        """Whether the journal ends before what this node has."""
        return self.last_seq < self.applied_seq

    @property
    def leader_url(self) -> str | None:
        """Where the node is reached that leads; None when none does."""
        return self.leader.url if self.leader is not None and self.leader.seconds_left > 0 else None

    def member(self, name: str) -> Member | None:
        """Return a node; None when it is no member."""
        return next((one for one in self.members if one.name == name), None)

    def others(self, name: str) -> list[Member]:
        """Return the nodes besides one that are not expelled."""
        return [one for one in self.members if one.name != name and not one.expelled]

    def is_new(self, name: str) -> bool:
        """Whether there is nothing that a node without files could lose by beginning the cluster.

        Nothing was ever written; or this node was killed while it began, before any other has come.
        """
        if self.last_seq == 0:
            return True
        is_own = self.leader is not None and self.leader.holder == name
        is_whole = bool(self.segments) and self.segments[0].first_seq == 1
        return is_own and is_whole and all(one.name == name for one in self.members)

    def keys_before(self, seq: int) -> list[str]:
        """Return the keys of the segments that only hold records up to this number."""
        pairs = itertools.pairwise(self.segments)
        return [row.key_id for row, later in pairs if later.first_seq <= seq + 1]

    def state_of(self, member: Member, silent_after: float) -> NodeState:
        """Return in a word how a node is."""
        if member.expelled:
            return "expelled"
        if self.seen_ago(member) > silent_after:
            return "silent"
        return "in-step" if member.applied_seq >= self.in_step_from else "behind"

    def seen_ago(self, member: Member) -> float:
        """Return how many seconds ago a node has reported."""
        return member.seen_seconds_ago + time.monotonic() - self.at
