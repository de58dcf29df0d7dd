"""The shapes of requests and answers, for the OpenAPI page and for the routes that need no speed.

`/predict`, `POST /samples` and the deletions do not build these objects: they parse and answer raw JSON of the same
shape; a test compares the two.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypeAliasType

from oubli.app.errors import StopReason
from oubli.app.times import LONGEST_PERIOD
from oubli.core.registry import PLACES

Changes = Literal["accepted", "stopped"]
# Named types: in the OpenAPI document each is a component of its own.
Scalar = TypeAliasType("Scalar", str | int | float | bool)
FeatureList = TypeAliasType(
    "FeatureList", Annotated[list[Scalar | None], Field(description="In feature order. A missing value is null.")]
)
FeatureObject = TypeAliasType(
    "FeatureObject",
    Annotated[dict[str, Scalar | None], Field(description="By feature name. A missing value is null.")],
)
Features = Annotated[
    FeatureList | FeatureObject,
    Field(description="A list in feature order, or an object by feature name. A missing value is null."),
]
Version = Annotated[
    int,
    Field(
        ge=0,
        description="Increases with each change of the samples held, the parameters or the kind.",
        examples=[32562],
    ),
]
Durable = Annotated[bool, Field(description="Whether it survives a crash. False only with --ephemeral.")]
Text = Annotated[str, Field(min_length=1, max_length=256)]
Integer = Annotated[int, Field(ge=-(2**63), le=2**64 - 1)]  # what a JSON parser reads without loss
Name = TypeAliasType(
    "Name", Annotated[Text | Integer, Field(description="Text of 1 to 256 characters; an integer is its decimal text.")]
)
Uuid = Annotated[str, Field(json_schema_extra={"format": "uuid"})]
Ref = Annotated[Uuid, Field(description="The caller's case number.")]
NextCursor = Annotated[
    str | None, Field(description="Pass it as `cursor` for the next page; null when this is the last.")
]
SampleCursor = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{22}$", description="`next` of the page before, as it is.")]
By = Literal["ids", "subjects"]
ListFound = Annotated[
    bool,
    Field(description="Whether to say of which names something was held: in an object with `receipt` and `found`."),
]


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


# Of a field that is in every answer but those that earlier versions have signed.
_LATER = Field(json_schema_extra=_without_default)
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256 in hexadecimal.")]
if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(PLACES)]
Parameter = str | int | float | bool | list[float] | None


class Shape(BaseModel):
    """Base: closed, so that a misspelt key is not ignored."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class InputProblem(Shape):
    """What is wrong at one place of a request."""

    pointer: str
    """JSON pointer into the body; or a slash and the name of a parameter."""
    detail: str


class Problem(Shape):
    """RFC 9457. Texts name positions, names of the schema and rules, and never repeat what was sent."""

    type: Annotated[str, Field(json_schema_extra={"format": "uri"}, examples=["urn:oubli:problem:invalid-input"])]
    """Tells the kind of problem to a program."""
    title: str
    status: int
    detail: str
    errors: list[InputProblem] = []
    """What is wrong with the input; left out where it is not the input."""
    leader: str | None = None
    """Of `not-leader`: URL of the node that takes changes, null while none does; left out of other problems."""


class InferenceError(Shape):
    """An error of the Open Inference Protocol."""

    error: str
    """Names positions, names of the schema and rules, and never repeats what was sent."""


class PredictRequest(Shape):
    """Rows to predict for."""

    instances: Annotated[list[Features], Field(min_length=1)]
    receipt: bool = False
    """Whether to sign the answer."""


class PredictionReceipt(Shape):
    """Which model has answered, signed; see `oubli.verifier.predictions` for what is signed."""

    nonce: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    """Mixed with what is signed, so that nobody else can test guesses."""
    set_root: Hash
    """Over the samples that the model was a function of; a state of its version has the same."""
    key_id: str
    signature: str
    """Ed25519, in base64."""


class PredictAnswer(Shape):
    """Predictions in the order of the instances. Regression has no classes and probabilities."""

    predictions: list[Scalar]
    classes: list[Scalar] | None = None
    """The classes held, in the order of the probabilities; it can shrink and grow."""
    probabilities: list[list[float]] | None = None
    model_version: Version
    receipt: PredictionReceipt | None = None
    """Left out when it was not asked for."""


class InfluenceRequest(Shape):
    """Rows, and how to ask which samples made their predictions."""

    instances: Annotated[list[Features], Field(min_length=1)]
    labels: list[Scalar] | None = None
    """The true labels of the instances; by default the predicted labels."""
    method: Literal["leaf-influence", "leaf-refit", "leave-one-out"] | None = None
    """By default `leaf-influence` for boosted trees (minus the derivative of the loss by the sample's weight, with the
    leaves refitted), and for the forest `leave-one-out` (the loss without the sample, less that with it)."""
    update_set: Literal["all", "single"] | Annotated[int, Field(ge=1)] = "all"
    """Which samples' changes the leaf methods follow: all, only the one's own, or those in so many leaves a tree."""
    top: Annotated[int, Field(ge=1, le=1000)] = 10
    """Largest number of samples in each list."""


class Influential(Shape):
    """A sample, and what it does."""

    id: str
    score: float


class InfluenceAnswer(Shape):
    """The samples that do most for the predictions of the instances."""

    helpful: list[Influential]
    """Without them the loss would be higher; the most helpful first."""
    harmful: list[Influential]
    """Without them the loss would be lower; the most harmful first, with negative scores."""
    method: str
    note: str | None = None
    """What there is to know about the scores."""
    n_samples: int
    model_version: Version


class Sample(Shape):
    """A sample to learn."""

    id: Name | None = None
    """Generated when left out."""
    subject: Name | None = None
    """Whom the sample is about."""
    features: Features
    label: Scalar
    expires_at: datetime | None = None
    """When the sample is unlearned and erased by itself: RFC 3339 with a zone, in the future."""
    restricted_at: None = None
    """Null, as in an answer that is sent back; a restriction does not come with a sample."""
    readd: bool = False
    """Whether an id that was erased lately may come back: a late retry does not say so."""
    retention: Annotated[int, Field(ge=1, le=LONGEST_PERIOD)] | None = None
    """For how many seconds from their addition all samples of the subject are kept, those held and those to come; see
    `POST /subjects/retain`. Left out, the subject keeps the period that it has."""


class AddRequest(Shape):
    """Samples to learn, all of them or none."""

    samples: Annotated[list[Sample], Field(min_length=1)]


class AddAnswer(Shape):
    """What is held now."""

    ids: list[str]
    """The samples' ids, in the order of the request."""
    model_version: Version
    n_samples: int
    """How many samples are held in all."""
    durable: Durable


class ReplaceRequest(Shape):
    """The new content of a sample. `subject` and `expires_at` stay when left out, and null clears them."""

    features: Features
    label: Scalar
    subject: Name | None = None
    expires_at: datetime | None = None
    restricted_at: None = None
    """Null, as in an answer that is sent back; a restriction stays."""
    id: Name | None = None
    """May repeat the id in the path."""


class Receipt(Shape):
    """What became of a deletion, a rectification or an expiry.

    Signed is the RFC 8785 form of everything but `signature` and `durable`. Receipts that earlier versions have made
    have neither `by` nor `held` nor `deadline`.
    """

    id: Uuid
    ref: Ref | None
    kind: Literal["deletion", "rectification", "expiry", "restore"]
    status: Literal["unlearned", "erased"]
    """`unlearned`: no prediction depends on it any more. `erased`: no file in the data directory holds it either."""
    guarantee: str
    by: Annotated[By, _LATER] = "ids"
    """What was named."""
    held: Annotated[bool, _LATER] = True
    """Whether anything was held of what was named. False: the request was right, and there was nothing to erase."""
    requested: int
    """Ids named, or subjects named, as `by` says; each counted once."""
    unlearned: int
    """Samples that no prediction depends on any more; a subject may have many."""
    absent: int
    """Ids named that were not held, or subjects named of which nothing was held, as `by` says."""
    exported_snapshots: int
    """Snapshots that were handed out while one of the samples was held: they are not erased there."""
    model_version: Version
    received_at: datetime
    unlearned_at: datetime
    deadline: Annotated[datetime, _LATER] = datetime(1970, 1, 1, tzinfo=UTC)
    """Until when no file may hold anything of it: `erasure_deadline` after `unlearned_at`."""
    erased_at: datetime | None
    overdue: bool
    """Whether the deadline for erasing has passed, or was missed."""
    key_id: str
    """Of the key in `GET /keys` that checks the signature; with --ephemeral it lives as long as the process."""
    ledger_index: int
    """Of the entry of `GET /ledger` that this state is written in."""
    ledger_head: str
    """Its hash."""
    signature: str
    """Ed25519, in base64."""
    durable: Durable


class NothingHeld(Shape):
    """The answer to an erasure that found nothing, without a receipt and without an entry of the ledger.

    An erasure that finds nothing gets a receipt too, but for callers with more than `max_empty_erasures` of them in an
    hour. What is held when it is asked for is always erased with a receipt.
    """

    id: None
    ref: Ref | None
    kind: Literal["deletion"]
    guarantee: str
    by: By
    """What was named."""
    held: Literal[False]
    requested: int
    """Ids or subjects named, each counted once."""
    unlearned: Literal[0]
    absent: int
    """All of them."""
    model_version: Version
    durable: Durable


class Found(Shape):
    """A name of which something was held."""

    position: int
    """Where it stands in the list of the request, from 0; of a name that is repeated, the first place."""
    samples: int
    """How many samples were unlearned."""


DeletionOutcome = TypeAliasType("DeletionOutcome", Receipt | NothingHeld)


class ListedDeletion(Shape):
    """A receipt, and of which of the names something was held; the list is not signed."""

    receipt: DeletionOutcome
    found: list[Found]


BatchDeletion = TypeAliasType("BatchDeletion", Receipt | NothingHeld | ListedDeletion)


class HeldSample(Shape):
    """A sample as it is held."""

    id: str
    subject: str | None
    features: dict[str, Scalar | None]
    """By feature name, as held. A number is written in the shortest form that reads back as the one that is held."""
    label: Scalar
    expires_at: datetime | None
    """When it is unlearned and erased by itself."""
    restricted_at: datetime | None
    """Since when its subject is restricted: it is kept, and not learned from."""


class SampleAnswer(HeldSample):
    """A sample as it is held, and the model's version."""

    model_version: Version


class SamplesAnswer(Shape):
    """A page of samples."""

    samples: list[HeldSample]
    next: NextCursor
    model_version: Version


class OpenedSample(HeldSample):
    """A sample with what its hash is made with."""

    nonce: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None
    """Null of a sample that is restricted: it is in no set."""


class OpenedSamplesAnswer(Shape):
    """A page of samples with their openings."""

    samples: list[OpenedSample]
    next: NextCursor
    model_version: Version
    positions_key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """Says where names are in the set tree. Do not hand it on."""


SamplesList = TypeAliasType("SamplesList", SamplesAnswer | OpenedSamplesAnswer)


class AbsentIdRequest(Shape):
    """An id that is to be proved absent."""

    id: Name


class AbsentSubjectRequest(Shape):
    """A subject that is to be proved absent."""

    subject: Name


class AbsenceProof(Shape):
    """A way through the tree over all samples, up to where it leaves the tree."""

    format: Literal["oubli-absence-proof@v1"]
    by: Literal["ids", "subjects"]
    name: str
    model_version: Version
    """Of the state of the model that it is about."""
    way: str
    """Base64 of the position of the name (6 bytes), a bit for each depth with another child on the way (6 bytes; at the
    last the way leaves the tree), and the hashes of these children, from the root down. They lead to the root."""
    state: str | None
    """Proof that the log tells of this state, and of the root; null where it does not."""


class SearchIdsRequest(Shape):
    """Samples to list; as many as a page may have."""

    ids: Annotated[list[Name], Field(min_length=1)]


class SearchSubjectRequest(Shape):
    """Whose samples to list."""

    subject: Name
    cursor: SampleCursor | None = None
    limit: Annotated[int, Field(ge=1)] | None = None


class DeleteIdsRequest(Shape):
    """Samples to delete."""

    ids: Annotated[list[Name], Field(min_length=1)]
    ref: Ref | None = None
    list_found: ListFound = False


class DeleteSubjectsRequest(Shape):
    """Subjects whose samples to delete."""

    subjects: Annotated[list[Name], Field(min_length=1)]
    ref: Ref | None = None
    list_found: ListFound = False


class RestrictRequest(Shape):
    """Subjects whose samples to keep and not to learn from."""

    subjects: Annotated[list[Name], Field(min_length=1)]
    ref: Ref | None = None
    keep_expired: bool = False
    """Whether samples whose time is over are kept until they are released."""


class ReleaseRequest(Shape):
    """Restricted subjects whose samples to learn from again."""

    subjects: Annotated[list[Name], Field(min_length=1)]
    ref: Ref | None = None


class RestrictAnswer(Shape):
    """What became of a request to restrict subjects; the ledger has the same."""

    ref: Ref | None
    requested: int
    """Subjects named, each counted once."""
    absent: int
    """Subjects named of which nothing is held."""
    samples: int
    """Samples that have left the trees."""
    guarantee: str
    model_version: Version
    n_samples: int
    """How many samples are learned from."""
    at: datetime
    ledger_index: int
    """Of the entry of `GET /ledger` that tells of it."""
    ledger_head: Hash
    durable: Durable


class ReleaseAnswer(RestrictAnswer):
    """What became of a request to release subjects; the ledger has the same."""

    absent: int
    """Subjects named that are not restricted."""
    samples: int
    """Samples that are learned from again."""
    expired: int
    """Samples whose time is over: they are not learned from again, and are erased next."""


class RetainRequest(Shape):
    """Subjects whose samples to keep for some time only."""

    subjects: Annotated[list[Name], Field(min_length=1)]
    seconds: Annotated[int, Field(ge=1, le=LONGEST_PERIOD)] | None
    """How long, from the addition of each sample; null takes the period back."""
    ref: Ref | None = None


class RetainAnswer(RestrictAnswer):
    """What became of a request to keep samples for some time only; the ledger has the same."""

    samples: int
    """Samples that are held of the subjects."""
    seconds: int | None
    """How long they are kept, from the addition of each; null: no period."""


class ExportRequest(Shape):
    """Whose bundle to make."""

    subject: Name
    influence: bool = False
    """Whether to tell what the samples do for the predictions about the subject."""


class ExportedSample(HeldSample):
    """A sample as it is held, and where it comes from."""

    added_at: datetime | None
    """When it was added; null where that is not known, as of the data file that the model began with."""
    request_id: str | None
    """`X-Request-ID` of the request that added it."""


class Score(Shape):
    """What a sample does."""

    id: str
    score: float


class ExportedInfluence(Shape):
    """What the subject's samples do for the predictions of the first 100 of them, in the mean."""

    scores: list[Score]
    """A positive score says that the sample helps: without it the loss would be higher."""
    method: str
    note: str | None
    n_samples: int
    """How many samples of all subjects are learned from."""
    model_version: Version


class ExportAnswer(Shape):
    """All that is held about a subject."""

    subject: str
    held: bool
    """Whether anything is held."""
    exported_at: datetime
    model_version: Version
    kind: str
    """Of the model that learns from the samples."""
    guarantee: str
    samples: list[ExportedSample]
    receipts: list[Receipt]
    """Of erasures and rectifications that named the subject, or one of these samples, and nothing else."""
    influence: ExportedInfluence | None
    """Null when it was not asked for, or no sample is learned from."""


AbsenceRequest = TypeAliasType("AbsenceRequest", AbsentIdRequest | AbsentSubjectRequest)
SearchRequest = TypeAliasType("SearchRequest", SearchIdsRequest | SearchSubjectRequest)
BatchDeleteRequest = TypeAliasType("BatchDeleteRequest", DeleteIdsRequest | DeleteSubjectsRequest)


class SnapshotAnswer(Shape):
    """A snapshot on disk."""

    id: str
    model_version: Version
    digest: str
    """Of the trees: two models with the same digest predict the same, bit for bit."""
    bytes: int
    created_at: datetime


class Dropped(Shape):
    """Samples of the file that were left out, by reason."""

    erased: int
    rectified: int
    expired: int


class RestoreAnswer(Shape):
    """What a restore did."""

    model_version: Version
    snapshot_model_version: int
    """Version at which the file was written."""
    n_samples: int
    n_restricted: int
    """How many samples are restricted afterwards; `n_samples` does not count them."""
    dropped: Dropped
    """What was erased, rectified or expired after the file was written; the ledger says so."""
    no_longer_held: int
    """Samples that were held before the restore and are not any more."""
    verified: Literal["verified", "checked", "grown-anew"]
    """`verified`: the file's trees were compared with a fresh fit on its samples, and are the same. `checked`: that
    would have taken long; all that can be checked while the file is read was, and POST /model/verify does the rest.
    `grown-anew`: the trees were grown from the file's samples, because the file is of an older format or holds numbers
    in another form."""
    durable: Durable


class Feature(Shape):
    """A column that predictions are made from."""

    name: str
    type: Literal["numeric", "categorical", "boolean"]
    dtype: Literal["float32", "float64"]


class Label(Shape):
    """What is predicted."""

    name: str
    type: Literal["string", "integer", "number", "boolean", "scalar"]


class ModelAnswer(Shape):
    """The model as a whole."""

    kind: str
    guarantee: Literal["exact", "epsilon-feasible", "approximate"]
    task: Literal["classification", "regression"]
    parameters: dict[str, Any]
    features: list[Feature]
    """In feature order."""
    label: Label
    classes: list[Scalar] | None
    """The classes held; null for regression."""
    n_samples: int
    n_restricted: int
    """Samples that are kept and not learned from; `n_samples` does not count them."""
    model_version: Version
    durable: Durable
    lazy_tags: int
    """Parts of trees that the next prediction through them will rebuild."""
    mutations_since_scrub: int | None
    """Samples added and deleted since the model was last built anew; null for one that is exact."""
    pending_erasures: int
    """Erasures that are unlearned and not yet erased from all files."""
    overdue_erasures: int
    """Those of them whose deadline has passed."""
    expiry_paused: str | None
    """Why no sample expires at present; POST /expiry/confirm lets it go on."""
    changes: Changes
    """Whether samples can be added, rectified and deleted at present."""
    changes_stopped: StopReason | None
    """Why not; null while they can. `disk-full`, `disk-errors`, `no-descriptors` and `journal-unreachable` pass by
    themselves, the others with a restart."""
    memory_bytes: int


class HealthAnswer(Shape):
    """The process answers."""

    status: Literal["alive"]


class ReadyAnswer(Shape):
    """The server answers predictions."""

    status: Literal["ready"]
    model_version: Version
    changes: Changes
    """Whether samples can be added, rectified and deleted at present; `?for=changes` asks for a 503 when not."""
    reason: StopReason | None = None
    """Why changes have stopped; left out while they are accepted."""


class FitRequest(Shape):
    """How to fit anew. What is left out stays as it is."""

    kind: Kind | None = None
    """The kind of model."""
    parameters: dict[str, Parameter] | None = None
    """As `GET /model` lists them."""
    score: bool = True
    """Whether to score the model before and after."""


class JobAnswer(Shape):
    """A job as it is now."""

    id: Uuid
    kind: Literal["verify", "scrub", "fit", "influence", "export", "without"]
    status: Literal["queued", "running", "succeeded", "failed"]
    progress: Annotated[float, Field(ge=0, le=1)]
    """The share that is done."""
    result: dict[str, Any] | None = None
    """When it has succeeded. Of `verify`: `ok` with the digests compared, and of online boosting how far its answers
    are from a fresh fit's; of `fit`: the new `model_version`, and the `score` before and after; of `influence`: the id
    of the ranking; of `export`: that of the bundle; of `without`: that of the comparison. Digests, distance and score
    are null once a sample was erased that they depend on."""
    error: str | None = None
    """When it has failed."""


class JobsAnswer(Shape):
    """Jobs that wait, run, or ended a short time ago, the oldest first."""

    jobs: list[JobAnswer]


class ErasuresAnswer(Shape):
    """Receipts, the oldest first."""

    erasures: list[Receipt]
    next: NextCursor


class DeadLetter(Shape):
    """A state that somebody could not be told of."""

    id: Uuid
    """Of the receipt, or of the OpenDSR request."""
    ref: Ref | None
    status: Literal["unlearned", "overdue", "erased", "in_progress", "completed"]
    """The state."""
    target: str
    """`webhook`, or the URL of a callback."""
    since: datetime
    """When the state was reached, or redelivery was asked for."""
    reason: str
    """Why the last attempt failed: `timeout`, `unreachable`, `unresolved`, `refused-address`, `untrusted`,
    `broken-answer`, or `status-` and the status of the answer."""


class DeadLettersAnswer(Shape):
    """States that were given up, the oldest first."""

    dead_letters: list[DeadLetter]
    next: NextCursor


class RedeliveryAnswer(Shape):
    """What is tried again."""

    id: Uuid
    states: int
    """How many states of it."""


class OpendsrIdentity(BaseModel):
    """Whom a request is about."""

    identity_type: str
    """`GET /opendsr/v2/discovery` lists those that are known; others are passed over."""
    identity_value: str
    identity_format: Literal["raw", "sha1", "md5", "sha256"]
    """`raw`; others are passed over."""


class OpendsrRequest(BaseModel):
    """A request of OpenDSR 2.0. Keys that are not known are passed over."""

    regulation: Literal["gdpr", "ccpa"]
    subject_request_id: Uuid
    """Version 4, in lower case, made by the controller."""
    subject_request_type: Literal["erasure", "access", "portability"]
    submitted_time: datetime
    subject_identities: list[OpendsrIdentity] | None = None
    api_version: str | None = None
    status_callback_urls: list[str] | None = None
    """URLs that `opendsr_callbacks` in the settings names, told when the status changes."""
    extensions: dict[str, Any] | None = None
    """By domain; below that of this server `sample_ids` names samples to erase instead of identities."""


class OpendsrReply(Shape):
    """A request that was taken. `X-OpenDSR-Signature` signs the body."""

    controller_id: str
    expected_completion_time: datetime
    received_time: datetime
    encoded_request: str
    """The body of the request in base64: do not log it."""
    subject_request_id: Uuid
    api_version: str


class OpendsrStatus(Shape):
    """How far a request is."""

    controller_id: str
    expected_completion_time: datetime
    subject_request_id: Uuid
    request_status: Literal["pending", "in_progress", "completed", "cancelled"]
    """An erasure is `in_progress` when it is unlearned, and `completed` when it is erased from all files."""
    api_version: str
    results_url: str | None = None
    """Of access and portability: where the bundle is, as long as it is kept."""
    results_count: int | None = None


class OpendsrCancellation(Shape):
    """A request that was cancelled."""

    controller_id: str
    received_time: datetime
    subject_request_id: Uuid
    api_version: str


class OpendsrSupported(Shape):
    """A type of identities that are subjects."""

    identity_type: str
    identity_format: Literal["raw"]


class OpendsrDiscovery(Shape):
    """What the server takes."""

    api_version: str
    supported_identities: list[OpendsrSupported]
    supported_subject_request_types: list[Literal["erasure", "access", "portability"]]
    processor_certificate: str
    """URL of the certificate."""


class OpendsrErrorDetail(Shape):
    """One thing that is wrong."""

    domain: str
    reason: str
    """A slug of our problems."""
    message: str


class OpendsrErrorContent(Shape):
    """What is wrong."""

    code: int
    message: str
    errors: list[OpendsrErrorDetail]


class OpendsrError(Shape):
    """An error of OpenDSR."""

    error: OpendsrErrorContent


class LedgerEntry(Shape):
    """An entry of the audit ledger. What it has besides these fields goes by its type.

    `hash` is the SHA-256 of the RFC 8785 form of everything else in it. There is no personal data in an entry: ids and
    subjects are in it as one root over hidden names, and as keyed hashes where an earlier version has written it.
    """

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    index: Annotated[int, Field(ge=1)]
    previous: Hash
    """`hash` of the entry before; zeros in the first."""
    type: str
    """`signing-key`, `unlearned`, `erased`, or an event such as `restore` and `export`."""
    at: datetime
    hash: Hash


class KeyedHashes(Shape):
    """Hashes of the names of an erasure, under a key that the server keeps."""

    samples: list[str]
    targets: str
    """Of all that was named."""
    target_leaves: str
    """The leaves below `targets_root` of the entry, base64."""
    sample_leaves: str | None = None
    """The leaves below `samples_root`, base64; left out when they are the same."""
    subjects: list[str] | None = None
    """Of each subject named of whom something was held; left out where ids were named, or nothing was held."""
    subject_samples: list[int] | None = None
    """How many samples of each of these subjects."""


class LedgerAnswer(Shape):
    """A page of the ledger, in order."""

    entries: list[LedgerEntry]
    keyed: dict[str, KeyedHashes]
    """By index: what belongs to entries of the type `unlearned` and is not hashed with them."""
    next: NextCursor


class PublicKey(Shape):
    """A key that receipts are signed with."""

    key_id: str
    algorithm: Literal["Ed25519"]
    public_key: str
    """32 bytes, in base64."""
    status: Literal["current", "retired"]
    created_at: datetime
    retired_at: datetime | None
    """Receipts that were signed before stay good."""
    log_key: str | None
    """The key as policies and witnesses take it: `log` and this text is a line of a policy."""


class KeysAnswer(Shape):
    """The public keys, the current one first."""

    keys: list[PublicKey]


class ConsistencyAnswer(Shape):
    """What shows that the log only grew."""

    from_: Annotated[int, Field(alias="from", ge=0)]
    to: Annotated[int, Field(ge=0)]
    proof: list[str]
    """Hashes, base64."""


class OpeningAnswer(Shape):
    """What openings of single names are made from."""

    receipt: Uuid
    opening: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
