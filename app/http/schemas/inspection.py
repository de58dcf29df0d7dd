"""The shapes of what people look at: events, keys, trees, columns, kinds, and predictions without some samples."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from oubli.app.errors import StopReason
from oubli.app.http.schemas.model import SnapshotAnswer
from oubli.app.http.schemas.shapes import Changes, Durable, Features, Name, Scalar, Shape, Uuid, Version

Guarantee = Literal["exact", "epsilon-feasible", "approximate"]
_Instances = Annotated[list[Features], Field(min_length=1, max_length=100)]


class AccessKeyAnswer(Shape):
    """A key that callers may send; what it is made of is told nobody."""

    id: str | None
    """Null of the key that the setting `api_key` gives."""
    name: str
    scopes: list[str]
    created_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None
    status: Literal["live", "expired", "revoked"]


class AccessAnswer(Shape):
    """Who the caller is."""

    asks_for_key: bool
    """Whether requests need a key."""
    id: str | None
    """Of the caller's key; null without one, and of the key that the setting `api_key` gives."""
    name: str | None
    scopes: list[str]
    """Everything that the caller may do."""
    expires_at: datetime | None
    keys: list[AccessKeyAnswer] | None = None
    """All keys; left out unless the caller has the scope `admin`."""


class ModelState(Shape):
    """The model, in short."""

    kind: str
    task: Literal["classification", "regression"]
    guarantee: Guarantee
    model_version: Version
    n_samples: int
    n_restricted: int
    lazy_tags: int
    durable: Durable


class ChangesState(Shape):
    """Whether changes are taken."""

    state: Changes
    reason: StopReason | None


class ExpiryState(Shape):
    """Whether samples expire."""

    paused: str | None
    """Why not."""


class ErasuresState(Shape):
    """Erasures that are acknowledged."""

    pending: int
    overdue: int
    erased: int
    """Finished since the server started."""
    deadline_s: float
    """Seconds that an erasure may take."""
    next_deadline_at: datetime | None
    """When the oldest that is not finished is due."""


class CheckState(Shape):
    """The last comparison with a fresh fit."""

    at: datetime
    ok: bool


class ScrubState(Shape):
    """When all files were last rewritten without anything of what was unlearned."""

    at: datetime | None


class LedgerState(Shape):
    """The newest entry of the ledger."""

    index: int


class JobState(Shape):
    """A job; `GET /jobs/{id}` has its result."""

    id: Uuid
    kind: str
    status: Literal["queued", "running", "succeeded", "failed"]
    progress: float


class WorkState(Shape):
    """Something that goes on and is no job."""

    kind: Literal["snapshot", "restore"]
    progress: float


class StateEvent(Shape):
    """The event `hello`: all sections. Every other event is named as a section and has that section, whole."""

    server: str
    """Another one when the server was started anew."""
    version: str
    started_at: datetime
    resumed: bool
    """Whether nothing was missed since `Last-Event-ID`."""
    model: ModelState
    changes: ChangesState
    expiry: ExpiryState
    erasures: ErasuresState
    snapshot: SnapshotAnswer | None
    check: CheckState | None
    scrub: ScrubState | None
    ledger: LedgerState
    jobs: list[JobState]
    work: list[WorkState]


class Rate(Shape):
    """Requests that were answered as asked since the line before. Null in the first line of a stream."""

    per_second: float | None
    p50_ms: float | None
    """Median of the time they took on the server; null without requests."""
    p99_ms: float | None


class JournalState(Shape):
    """What the newest snapshot has not taken in."""

    records: int
    bytes: int
    oldest_at: datetime | None


class SnapshotState(Shape):
    """The newest snapshot."""

    at: datetime | None
    lag_records: int


class PendingState(Shape):
    """Erasures that are not finished."""

    pending: int
    overdue: int
    deadline_s: float
    next_deadline_at: datetime | None


class MemoryState(Shape):
    """Memory in bytes."""

    model_bytes: int
    process_bytes: int | None


class MetricsEvent(Shape):
    """The event `metrics`: a line a second."""

    at: datetime
    uptime_s: float
    predict: Rate
    add: Rate
    delete: Rate
    resolved_per_second: float | None
    phase: Literal["starting", "ready", "stopping"]
    model_version: Version
    n_samples: int
    lazy_tags: int
    journal: JournalState
    snapshot: SnapshotState
    scrub: ScrubState
    erasures: PendingState
    waiting: int
    """Requests that wait for the model."""
    waiting_limit: int
    memory: MemoryState


class Importance(Shape):
    """A column's share in what all splits gain."""

    name: str
    type: str
    importance: float


class ImportancesAnswer(Shape):
    """What the trees split by."""

    kind: str
    n_samples: int
    measure: Literal["impurity", "gain"]
    features: list[Importance]
    """In feature order; the shares add up to 1, or are all 0 when no tree splits."""
    model_version: Version


class TreeSplit(Shape):
    """What an inner node asks; samples for which it holds go left."""

    type: Literal["number", "known", "boolean", "category", "missing", "categories"]
    """`number`: up to `threshold`; `known`: has a value; `boolean`: is false; `category`: is the one of `category`;
    `missing`: has no value; `categories`: is one of these."""
    feature: str
    threshold: float | None = None
    missing: Literal["left", "right"] | None = None
    """Where samples without a value go."""
    category: str | None = None
    """Null when no sample has it any more."""
    categories: list[str] | None = None
    """At most 50 of those held."""
    n_categories: int | None = None


class TreeNode(Shape):
    """A node of a tree."""

    path: str
    """The way from the root: `l` and `r`."""
    depth: int
    n_samples: int
    """Samples held that come through and that this tree learns."""
    counts: list[int] | None
    """Of each class, where nodes say `classes`."""
    value: float | None
    text: str | None
    """What an inner node asks, for people; null at a leaf."""
    split: TreeSplit | None
    left: "TreeNode | None"
    right: "TreeNode | None"
    """Null at a leaf, and at the last level that was asked for."""


class TreeAnswer(Shape):
    """A node of a tree, and some levels below it."""

    kind: str
    n_trees: int
    tree: int
    iteration: int | None
    """Of boosting, in which the tree was made."""
    class_: Annotated[Scalar | None, Field(alias="class")]
    """Of boosting with three classes or more: whose score the tree adds to."""
    says: Literal["classes", "mean", "score"]
    """`classes`: how many samples of each; `mean`: of their labels; `score`: what a leaf adds to the raw score."""
    classes: list[Scalar] | None
    node: TreeNode
    model_version: Version


class ColumnAnswer(Shape):
    """What a column of the samples holds."""

    name: str
    type: Literal["numeric", "categorical", "boolean"]
    missing: int
    """Samples without a value."""
    dtype: str | None = None
    least: float | None = None
    greatest: float | None = None
    categories: list[str] | None = None
    """The 200 that most samples have, the most frequent first."""
    n_categories: int | None = None


class ColumnsAnswer(Shape):
    """The columns of the samples that the model learns from, in feature order."""

    columns: list[ColumnAnswer]
    model_version: Version


class ParameterAnswer(Shape):
    """A parameter of a kind of model."""

    name: str
    text: str
    types: list[Literal["integer", "number", "text", "boolean", "list"]]
    default: Any
    value: Any
    """In force; of a kind that is not in force the default."""
    least: float | None
    greatest: float | None
    choices: list[str] | None
    optional: bool
    """Whether it may be null."""
    none_word: str | None
    """What null means."""


class KindAnswer(Shape):
    """A kind of model."""

    kind: str
    guarantee: Guarantee
    in_force: bool
    parameters: list[ParameterAnswer]


class KindsAnswer(Shape):
    """The kinds of models there are for the task in force."""

    kinds: list[KindAnswer]


class WithoutIdsRequest(Shape):
    """Rows, and the samples to leave out."""

    instances: _Instances
    ids: Annotated[list[Name], Field(min_length=1)]


class WithoutSubjectsRequest(Shape):
    """Rows, and the subjects whose samples to leave out."""

    instances: _Instances
    subjects: Annotated[list[Name], Field(min_length=1)]


WithoutRequest = TypeAliasType("WithoutRequest", WithoutIdsRequest | WithoutSubjectsRequest)


class Predictions(Shape):
    """Predictions in the order of the instances. Regression has no classes and probabilities."""

    predictions: list[Scalar]
    classes: list[Scalar] | None = None
    probabilities: list[list[float]] | None = None


class WithoutAnswer(Shape):
    """Predictions as they are, and as they would be."""

    with_: Annotated[Predictions, Field(alias="with")]
    without: Predictions | None
    """Null when no sample is left."""
    removed: int
    """Samples that were left out."""
    absent: int
    """Ids or subjects named that the model has learned nothing of."""
    n_samples: int
    """Samples that are left."""
    model_version: Version
