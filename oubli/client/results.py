"""What the client returns: frozen dataclasses, checked when they are read. Fields that are new to them are left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from oubli.client.errors import UnexpectedAnswerError

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Predictions in the order of the rows.

    Attributes
    ----------
    predictions : ndarray, shape (n,)
        A class or a number for each row.
    classes : ndarray, shape (k,), or None
        The classes held, in the order of the probabilities; None for regression.
    probabilities : ndarray of float64, shape (n, k), or None
        None for regression.
    model_version : int
        Of the model that predicted.
    index : pandas Index, or None
        Of the DataFrame that was asked about.
    """

    predictions: np.ndarray[Any, Any]
    classes: np.ndarray[Any, Any] | None
    probabilities: np.ndarray[Any, Any] | None
    model_version: int
    index: Any = None

    def to_frame(self) -> pd.DataFrame:
        """Return a DataFrame with the index of the one asked about: `prediction`, and a column for each class."""
        import pandas as pd

        frame = pd.DataFrame({"prediction": self.predictions}, index=self.index)
        if self.classes is None or self.probabilities is None:
            return frame
        shares = pd.DataFrame(self.probabilities, index=frame.index, columns=list(self.classes))
        return pd.concat([frame, shares], axis=1)


@dataclass(frozen=True, slots=True)
class Added:
    """What became of samples that were sent.

    Attributes
    ----------
    ids
        Of the samples, in the order in which they were sent.
    model_version, n_samples
        After the addition.
    durable
        Whether it survives a crash of the server.
    """

    ids: list[str]
    model_version: int
    n_samples: int
    durable: bool


@dataclass(frozen=True, slots=True)
class HeldSample:
    """A sample as the server holds it.

    Attributes
    ----------
    id, subject
        Its name, and whom it is about.
    features
        By feature name; a missing value is None.
    label
        Class or number.
    expires_at
        When it is unlearned by itself; None: never.
    restricted_at
        Since when its subject is restricted: it is kept, and not learned from; None: it is not.
    """

    id: str
    subject: str | None
    features: dict[str, Scalar | None]
    label: Scalar
    expires_at: datetime | None = None
    restricted_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Restriction:
    """What became of a request to restrict subjects, to release them, or to keep their samples for some time only.

    Attributes
    ----------
    ref
        The caller's case number.
    requested, absent
        Subjects named, and those of them of which nothing is held, or which are not restricted.
    samples
        How many left the model, are learned from again, or are kept for some time only.
    expired
        Samples that were released too late: they are erased instead.
    seconds
        How long samples are kept from their addition; None: no period.
    guarantee
        Of the model.
    model_version, n_samples
        After it.
    at
        When.
    ledger_index, ledger_head
        The ledger's entry that tells of it, and its hash.
    durable
        Whether it survives a crash of the server.
    """

    ref: str | None
    requested: int
    absent: int
    samples: int
    guarantee: str
    model_version: int
    n_samples: int
    at: datetime
    ledger_index: int
    ledger_head: str
    durable: bool
    expired: int = 0
    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class ExportedSample:
    """A sample of a bundle, and where it comes from.

    Attributes
    ----------
    id, subject, features, label, expires_at, restricted_at
        As of a `HeldSample`.
    added_at, request_id
        When it was added, and the `X-Request-ID` of the request; None where that is not known.
    """

    id: str
    subject: str | None
    features: dict[str, Scalar | None]
    label: Scalar
    expires_at: datetime | None = None
    restricted_at: datetime | None = None
    added_at: datetime | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """All that is held about a subject.

    Attributes
    ----------
    subject, held
        Whom it is about, and whether anything is held.
    exported_at, model_version, kind, guarantee
        When it was made, and of which model.
    samples
        What is held.
    receipts
        Of erasures and rectifications that named the subject, or one of these samples, and nothing else.
    influence
        What the samples do for the predictions about the subject; None when it was not asked for, or none is learned
        from.
    content
        As the server answered it.
    """

    subject: str
    held: bool
    exported_at: datetime
    model_version: int
    kind: str
    guarantee: str
    samples: list[ExportedSample]
    receipts: list[Receipt]
    influence: dict[str, Any] | None = None
    content: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a deletion, a rectification, an expiry or a restore; see `docs/how-to/erasure.md`.

    Attributes
    ----------
    id, ref
        Of the receipt, and the caller's case number.
    kind
        `deletion`, `rectification`, `expiry` or `restore`.
    status
        `unlearned`: no prediction depends on it any more. `erased`: no file of the server holds it either.
    guarantee
        Of the model that unlearned.
    requested, absent
        How many ids or subjects were named, and of how many of them nothing was held.
    unlearned
        How many samples were unlearned.
    exported_snapshots
        Snapshots that were handed out before, and hold the samples.
    model_version
        After the erasure.
    received_at, unlearned_at, erased_at
        When.
    overdue
        Whether the deadline for erasing has passed, or was missed.
    key_id, signature
        Whose signature it is, and the signature in base64.
    ledger_index, ledger_head
        The ledger's entry that this state is written in, and its hash.
    durable
        Whether it survives a crash of the server.
    by
        What was named, `ids` or `subjects`; None in receipts of earlier versions.
    held
        Whether anything was held of what was named.
    deadline
        Until when no file of the server may hold it; None in receipts of earlier versions.
    content
        As the server answered it: what to keep, and what is signed.
    """

    id: str
    ref: str | None
    kind: str
    status: Literal["unlearned", "erased"]
    guarantee: str
    requested: int
    unlearned: int
    absent: int
    exported_snapshots: int
    model_version: int
    received_at: datetime
    unlearned_at: datetime
    erased_at: datetime | None
    overdue: bool
    key_id: str
    signature: str
    ledger_index: int
    ledger_head: str
    durable: bool = True
    by: str | None = None
    held: bool = True
    deadline: datetime | None = None
    content: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class NothingHeld:
    """The answer to an erasure that found nothing, from a server that writes no more of these down for now.

    There is no receipt, and nothing to wait for.

    Attributes
    ----------
    ref
        The caller's case number.
    kind, guarantee, by
        As of a `Receipt`.
    requested, absent
        How many ids or subjects were named: nothing was held of any of them.
    model_version
        Of the model, which has not changed.
    id, held, unlearned
        None, False and 0.
    durable
        Whether changes survive a crash of the server.
    content
        As the server answered it.
    """

    ref: str | None
    kind: str
    guarantee: str
    by: str
    requested: int
    absent: int
    model_version: int
    id: None = None
    held: Literal[False] = False
    unlearned: Literal[0] = 0
    durable: bool = True
    content: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ListedDeletion:
    """What became of each name of a deletion.

    Attributes
    ----------
    receipt
        Of all of them.
    found
        How many samples were unlearned, by the position of a name in the request, from 0; without names of which
        nothing was held.
    """

    receipt: Receipt | NothingHeld
    found: dict[int, int]


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that receipts are signed with.

    Attributes
    ----------
    key_id
        Comes from the key itself.
    algorithm
        `Ed25519`.
    public_key
        32 bytes, in base64.
    status
        `current` or `retired`.
    created_at, retired_at
        From when to when it signed.
    log_key
        The key as policies and witnesses of the log take it.
    """

    key_id: str
    public_key: str
    algorithm: str = "Ed25519"
    status: str = "current"
    created_at: datetime | None = None
    retired_at: datetime | None = None
    log_key: str | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A state of a receipt that a webhook or a callback could not tell of.

    Attributes
    ----------
    id, ref
        Of the receipt, or of the OpenDSR request; the case number.
    status
        The state.
    target
        ``"webhook"``, or the URL of a callback.
    since
        When the state was reached, or redelivery was asked for.
    reason
        Why the last attempt failed.
    """

    id: str
    ref: str | None
    status: str
    target: str
    since: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """An entry of the audit ledger.

    Attributes
    ----------
    index, type, at
        Its place, from 1; what it is about; when it was made.
    previous, hash
        Hash of the entry before, and its own.
    content
        Everything in it, as the server answered it: what the hash is made of, `hash` besides.
    """

    index: int
    previous: str
    type: str
    at: datetime
    hash: str
    content: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Feature:
    """A column that predictions are made from.

    Attributes
    ----------
    name
        Of the column.
    type
        `numeric`, `categorical` or `boolean`.
    dtype
        `float32` or `float64`: how numbers are held.
    """

    name: str
    type: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Label:
    """What is predicted.

    Attributes
    ----------
    name, type
        Of the column; `string`, `integer`, `number`, `boolean` or `scalar`.
    """

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns and label of the samples.

    Attributes
    ----------
    features
        In feature order.
    label
        What is predicted.
    task
        `classification` or `regression`.
    classes
        The classes held; None for regression.
    """

    features: list[Feature]
    label: Label
    task: str
    classes: list[Scalar] | None

    @property
    def names(self) -> list[str]:
        """The features' names, in order."""
        return [feature.name for feature in self.features]


@dataclass(frozen=True, slots=True)
class Model:
    """The model as a whole.

    Attributes
    ----------
    kind, guarantee, task, parameters
        What it is.
    features, label, classes
        What it is made from; see `Schema`.
    n_samples, n_restricted, model_version
        How many samples are learned from, how many are restricted, and the version.
    durable
        Whether changes survive a crash of the server.
    lazy_tags
        Parts of trees that the next prediction through them rebuilds.
    mutations_since_scrub
        None for a model that is exact.
    pending_erasures, overdue_erasures
        Erasures that are not finished in all files, and those of them that are late.
    changes, changes_stopped
        `accepted` or `stopped`, and why.
    expiry_paused
        Why no sample expires at present; None while samples do.
    memory_bytes
        Of the model.
    """

    kind: str
    guarantee: str
    task: str
    parameters: dict[str, Any]
    features: list[Feature]
    label: Label
    classes: list[Scalar] | None
    n_samples: int
    model_version: int
    durable: bool
    lazy_tags: int
    pending_erasures: int
    overdue_erasures: int
    memory_bytes: int
    changes: str = "accepted"
    changes_stopped: str | None = None
    expiry_paused: str | None = None
    mutations_since_scrub: int | None = None
    n_restricted: int = 0

    @property
    def schema(self) -> Schema:
        """Columns and label."""
        return Schema(self.features, self.label, self.task, self.classes)


@dataclass(frozen=True, slots=True)
class Job:
    """A job at one instant.

    Attributes
    ----------
    id, kind
        Its name; `verify`, `scrub`, `fit`, `influence` or `export`.
    status
        `queued`, `running`, `succeeded` or `failed`.
    progress
        The share that is done.
    result, error
        What it gave, or why it failed.
    """

    id: str
    kind: str
    status: str
    progress: float
    result: dict[str, Any] | None = None
    error: str | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in ("succeeded", "failed")


@dataclass(frozen=True, slots=True)
class Influential:
    """A sample, and what it does for some predictions.

    Attributes
    ----------
    id, score
        Without the sample the loss would be higher by as much, or lower when the score is negative.
    """

    id: str
    score: float


@dataclass(frozen=True, slots=True)
class Influence:
    """The samples that do most for the predictions of some rows.

    Attributes
    ----------
    helpful, harmful
        The strongest first.
    method, note
        How it was found, and what there is to know about the scores.
    n_samples, model_version
        Of the model that was asked.
    """

    helpful: list[Influential]
    harmful: list[Influential]
    method: str
    n_samples: int
    model_version: int
    note: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Without:
    """Predictions as they are, and as they would be without some samples.

    Attributes
    ----------
    before, after
        As they are, and as they would be; `after` is None when no sample would be left.
    removed, absent
        Samples that were left out, and names of which the model has learned nothing.
    n_samples, model_version
        Samples that would be left, and the version of the model that was asked.
    """

    before: Predictions
    after: Predictions | None
    removed: int
    absent: int
    n_samples: int
    model_version: int


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A key of the server; what it is made of is told nobody.

    Attributes
    ----------
    id, name, scopes
        What it is called, and everything that it allows; the id of the one in the settings is None.
    status
        `live`, `expired` or `revoked`.
    created_at, expires_at, revoked_at
        When.
    """

    id: str | None
    name: str
    scopes: list[str]
    status: str
    created_at: datetime | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """What the client may do.

    Attributes
    ----------
    asks_for_key
        Whether the server asks for a key.
    id, name, expires_at
        Of the client's key.
    scopes
        Everything that it may do.
    keys
        All keys; None unless it has the scope `admin`.
    """

    asks_for_key: bool
    id: str | None
    name: str | None
    scopes: list[str]
    expires_at: datetime | None = None
    keys: list[AccessKey] | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot on the server's disk.

    Attributes
    ----------
    id, model_version
        Its name, and the version that it holds.
    digest
        Of the trees: two models with the same digest predict the same, bit for bit.
    bytes, created_at
        Its size, and when it was written.
    """

    id: str
    model_version: int
    digest: str
    bytes: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Dropped:
    """Samples of a restored file that were left out.

    Attributes
    ----------
    erased, rectified, expired
        How many, by reason.
    """

    erased: int
    rectified: int
    expired: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did.

    Attributes
    ----------
    model_version, snapshot_model_version
        The new version, and the one at which the file was written.
    n_samples, n_restricted, no_longer_held
        Samples learned from now, restricted ones, and samples held before that are not any more.
    dropped
        Samples of the file that were erased, rectified or expired since.
    verified
        How far the file's trees were checked: `verified`, `checked` or `grown-anew`.
    durable
        Whether it survives a crash of the server.
    """

    model_version: int
    snapshot_model_version: int
    n_samples: int
    dropped: Dropped
    no_longer_held: int
    verified: str
    durable: bool
    n_restricted: int = 0


@dataclass(frozen=True, slots=True)
class Readiness:
    """A server that answers predictions.

    Attributes
    ----------
    status, model_version
        `ready`, and the version served.
    changes, reason
        `accepted` or `stopped`, and why.
    """

    status: str
    model_version: int
    changes: str
    reason: str | None = None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read(kind: type[T], content: Any) -> T:
    """Return an answer's JSON as a result.

    Raises
    ------
    UnexpectedAnswerError
        When it is none.
    """
    hashable: Any = kind
    try:
        found: T = _adapter(hashable).validate_python(content)
    except ValidationError as error:
        # The text of a validation error repeats what was answered.
        places = ", ".join(".".join(map(str, one["loc"])) or "the whole" for one in error.errors()[:5])
        raise UnexpectedAnswerError(
            f"the answer is no {kind.__name__} of a server that this client knows (wrong: {places})", 200
        ) from None
    return found


def read_receipt(content: Any) -> Receipt:
    """Return a receipt, which keeps its content as answered: that is what is signed."""
    if not isinstance(content, dict):
        return read(Receipt, content)
    requested, absent = content.get("requested"), content.get("absent")
    # A receipt of an earlier version does not say whether anything was held.
    return read(Receipt, {"held": requested != absent or not requested, **content, "content": content})


def read_outcome(content: Any) -> Receipt | NothingHeld:
    """Return what became of a deletion."""
    if isinstance(content, dict) and "id" in content and content["id"] is None:
        return read(NothingHeld, {**content, "content": content})
    return read_receipt(content)


def read_bundle(content: Any) -> Bundle:
    """Return a bundle, which keeps its content as answered."""
    if not isinstance(content, dict) or not isinstance(content.get("receipts"), list):
        return read(Bundle, content)
    receipts = [read_receipt(one) for one in content["receipts"]]
    return read(Bundle, {**content, "receipts": receipts, "content": content})


def read_entry(content: Any) -> LedgerEntry:
    """Return an entry of the ledger, which keeps its content as answered: that is what is hashed."""
    return read(LedgerEntry, {**content, "content": content} if isinstance(content, dict) else content)


def read_predictions(content: Any, index: Any) -> Predictions:
    """Return predictions as arrays."""
    try:
        classes, probabilities = content.get("classes"), content.get("probabilities")
        return Predictions(
            _vector(content["predictions"]),
            None if classes is None else _vector(classes),
            None if probabilities is None else np.array(probabilities, np.float64).reshape(-1, len(classes)),
            int(content["model_version"]),
            index,
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UnexpectedAnswerError("the answer holds no predictions that this client knows", 200) from None


def read_without(content: Any, index: Any) -> Without:
    """Return predictions with and without some samples."""
    try:
        version = {"model_version": content["model_version"]}
        before, after = content["with"], content["without"]
        return Without(
            read_predictions({**before, **version}, index),
            None if after is None else read_predictions({**after, **version}, index),
            *(int(content[name]) for name in ("removed", "absent", "n_samples", "model_version")),
        )
    except (KeyError, TypeError, ValueError):
        raise UnexpectedAnswerError("the answer is no comparison that this client knows", 200) from None


def _vector(values: list[Any]) -> np.ndarray[Any, Any]:
    """Return values of one type as an array of it, others as an array of objects."""
    kinds = set(map(type, values))
    if kinds <= {int, float} or kinds == {bool}:
        return np.array(values)
    vector = np.empty(len(values), dtype=object)
    vector[:] = values
    return vector
