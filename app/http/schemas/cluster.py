"""The shape of what is told of nodes."""

from typing import Literal

from oubli.app.http.schemas.shapes import Shape, Version


class LeaderAnswer(Shape):
    """The node that takes changes."""

    name: str
    url: str | None


class NodeAnswer(Shape):
    """A node."""

    name: str
    url: str | None
    role: Literal["leader", "follower", "alone"]
    state: Literal["in-step", "behind", "silent", "expelled"]
    """`silent`: it has not reported lately; `expelled`: it was silent for too long, and has to rejoin."""
    applied_seq: int
    """Number of the last record of the journal that it has taken in."""
    model_version: Version
    lag_versions: int
    """By how many versions it is behind the leader."""
    erased_seq: int
    """Nothing there holds what was erased by records up to this number."""
    digests_equal: bool | None
    """Whether its model was the leader's when they were compared last; null while that is not known."""
    seen_seconds_ago: float
    """How long ago it has reported."""


class ClusterAnswer(Shape):
    """The nodes that serve the model."""

    node: str
    """Name of the one that answers."""
    role: Literal["leader", "follower", "alone"]
    """Of the one that answers."""
    epoch: int
    """One more whenever another node takes over."""
    leader: LeaderAnswer | None
    """Null while none leads, and of a server that is alone."""
    model_version: Version
    seq: int
    """Number of the last record that this node has taken in."""
    nodes: list[NodeAnswer]
