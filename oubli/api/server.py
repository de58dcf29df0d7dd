"""Messages about the server: health, the caller, nodes of a cluster, and the events that dashboards follow."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from oubli.api.base import Answer, Changes, Durable, Guarantee, Omitted, StopReason, Uuid, Version, later, one_of
from oubli.api.model import Snapshot


class ModelSummary(Answer):
    """The model, in short."""

    kind: str
    task: Annotated[str, one_of("classification", "regression")]
    guarantee: Guarantee
    model_version: Version
    n_samples: int
    n_restricted: int
    lazy_tags: int
    durable: Durable


class ChangesState(Answer):
    """Whether changes are taken."""

    state: Changes
    reason: StopReason | None


class ExpiryState(Answer):
    """Whether samples expire."""

    paused: str | None = Field(description="Why not.")


class PendingState(Answer):
    """Erasures that are not finished."""

    pending: int
    overdue: int
    deadline_s: float = Field(description="Seconds that an erasure may take.")
    next_deadline_at: datetime | None = Field(description="When the oldest that is not finished is due.")


class ErasuresState(PendingState):
    """Erasures that are acknowledged."""

    erased: int = Field(description="Finished since the server started.")
    erased_late: int = Field(description="Those of them that were finished after their deadline.")


class CheckState(Answer):
    """The last comparison with a fresh fit."""

    at: datetime
    model_version: Version = Field(description="The version that was compared; later ones are not verified.")
    ok: bool


class ScrubState(Answer):
    """When all files were last rewritten without anything of what was unlearned."""

    at: datetime | None


class LedgerState(Answer):
    """The newest entry of the ledger."""

    index: int


class JobState(Answer):
    """A job; `GET /jobs/{id}` has its result."""

    id: Uuid
    kind: str
    status: Annotated[str, one_of("queued", "running", "succeeded", "failed")]
    progress: float


class WorkState(Answer):
    """Progress of a long operation that is not a job."""

    kind: Annotated[str, one_of("snapshot", "restore")]
    progress: float


class StateEvent(Answer):
    """The event `hello`: all sections. Every other event is named as a section and has that section, whole."""

    server: str = Field(description="It changes when the server restarts.")
    version: str
    started_at: datetime
    resumed: bool = Field(description="Whether nothing was missed since `Last-Event-ID`.")
    model: ModelSummary
    changes: ChangesState
    expiry: ExpiryState
    erasures: ErasuresState
    snapshot: Snapshot | None
    check: CheckState | None
    scrub: ScrubState | None
    ledger: LedgerState
    jobs: list[JobState]
    work: list[WorkState]


class Rate(Answer):
    """Requests that were answered as asked since the line before. Null in the first line of a stream."""

    per_second: float | None
    p50_ms: float | None = Field(description="Median of the time they took on the server; null without requests.")
    p99_ms: float | None


class JournalState(Answer):
    """What the newest snapshot has not taken in."""

    records: int
    bytes: int
    oldest_at: datetime | None


class SnapshotState(Answer):
    """The newest snapshot."""

    at: datetime | None
    lag_records: int


class MemoryState(Answer):
    """Memory in bytes."""

    model_bytes: int
    process_bytes: int | None


class MetricsEvent(Answer):
    """The event `metrics`: a line a second."""

    at: datetime
    uptime_s: float
    predict: Rate
    add: Rate
    delete: Rate
    resolved_per_second: float | None
    phase: Annotated[str, one_of("starting", "ready", "stopping")]
    model_version: Version
    n_samples: int
    lazy_tags: int
    journal: JournalState
    snapshot: SnapshotState
    scrub: ScrubState
    erasures: PendingState
    waiting: int = Field(description="Requests that wait for the model.")
    waiting_limit: int
    memory: MemoryState


class HealthAnswer(Answer):
    """The process answers."""

    status: Annotated[str, one_of("alive")]


class Readiness(Answer):
    """The server answers predictions."""

    status: Annotated[str, one_of("ready")]
    model_version: Version
    changes: Changes = Field(
        description="Whether samples can be added, rectified and deleted at present; `?for=changes` asks for a 503 "
        "when not."
    )
    reason: StopReason | Omitted = Field(
        None,
        description="Why changes have stopped; left out while they are accepted.",
    )


class AccessKey(Answer):
    """A key that callers may send. Its secret is never returned."""

    id: str | None = Field(description="Null of the key that the setting `api_key` gives.")
    name: str
    scopes: list[str] = Field(description="Everything that it allows.")
    created_at: datetime | None = later(None)
    expires_at: datetime | None = later(None)
    revoked_at: datetime | None = later(None)
    status: Annotated[str, one_of("live", "expired", "revoked")]


class Access(Answer):
    """Who the caller is."""

    asks_for_key: bool = Field(description="Whether requests need a key.")
    id: str | None = Field(
        description="Of the caller's key; null without one, and of the key that the setting `api_key` gives."
    )
    name: str | None
    scopes: list[str] = Field(description="Everything that the caller may do.")
    expires_at: datetime | None = later(None)
    keys: list[AccessKey] | Omitted = Field(
        None,
        description="All keys; left out unless the caller has the scope `admin`.",
    )


Role = Annotated[str, one_of("leader", "follower", "alone")]


class Leader(Answer):
    """The node that takes changes."""

    name: str
    url: str | None = later(None, description="What the other nodes reach it by.")


class ClusterNode(Answer):
    """A node, as the node sees it that was asked."""

    name: str
    url: str | None = later(None, description="What the other nodes reach it by.")
    role: Role
    state: Annotated[str, one_of("in-step", "behind", "silent", "expelled")] = Field(
        description="`silent`: it has not reported lately; `expelled`: it was silent for too long, and has to rejoin."
    )
    applied_seq: int | Omitted = later(
        None,
        description="Number of the last record of the journal that it has applied.",
    )
    model_version: Version | Omitted = later(None)
    lag_versions: int | Omitted = later(None, description="How many versions it is behind the leader.")
    erased_seq: int | Omitted = later(
        None,
        description="Its files hold nothing of what was erased by records up to this number.",
    )
    digests_equal: bool | None = later(
        None,
        description="Whether its model was the leader's when they were compared last; null while that is not known.",
    )
    seen_seconds_ago: float | Omitted = later(None, description="How long ago it has reported.")


class Cluster(Answer):
    """The nodes that serve the model, as the node sees them that was asked."""

    node: str = Field(description="Name of the one that answers.")
    role: Role = Field(description="Of the one that answers: `alone` for a server without others.")
    epoch: int = Field(description="One more whenever another node takes over.")
    leader: Leader | None = later(None, description="Null while none leads, and of a server that is alone.")
    model_version: Version
    seq: int = Field(description="Number of the last record that this node has applied.")
    nodes: list[ClusterNode] = later([], description="All that are known, the one that answers among them.")
