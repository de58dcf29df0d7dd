"""The nodes of a cluster, as `cluster` returns them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Leader:
    """The node that takes changes.

    Attributes
    ----------
    name, url
        As it calls itself, and what the other nodes reach it by.
    """

    name: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node of a cluster, as the one sees it that was asked.

    Attributes
    ----------
    name, url
        As it calls itself, and what the others reach it by.
    role
        `leader`, `follower` or `alone`.
    state
        `in-step`, `behind`, `silent` or `expelled`.
    applied_seq, model_version
        The last record of the journal that it has applied, and its model's version then.
    lag_versions
        How many versions it is behind the leader.
    erased_seq
        Up to which record its files hold nothing any more that was unlearned.
    digests_equal
        Whether its model has the leader's digest at the same version; None: not compared yet.
    seen_seconds_ago
        Since it was heard of.
    """

    name: str
    role: str
    state: str
    url: str | None = None
    applied_seq: int | None = None
    model_version: int | None = None
    lag_versions: int | None = None
    erased_seq: int | None = None
    digests_equal: bool | None = None
    seen_seconds_ago: float | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster, as the node sees it that was asked.

    Attributes
    ----------
    node, role
        The node that has answered, and what it is: `leader`, `follower`, or `alone` for a server without others.
    epoch
        How often the lead was taken over, from 1.
    leader
        None while there is none.
    model_version, seq
        Of the node that has answered, and the last record that it has applied.
    nodes
        All that are known, the one that has answered among them.
    """

    node: str
    role: str
    epoch: int
    model_version: int
    seq: int
    leader: Leader | None = None
    nodes: list[ClusterNode] = field(default_factory=list)
