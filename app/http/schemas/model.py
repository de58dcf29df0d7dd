"""The shapes of the model, its snapshots, its health and its jobs."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from oubli.app.errors import StopReason
from oubli.app.http.schemas.shapes import Changes, Durable, Kind, Parameter, Scalar, Shape, Uuid, Version


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
