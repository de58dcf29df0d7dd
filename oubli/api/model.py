"""Messages about the model, its trees and columns, jobs and snapshots."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer

from oubli.api.base import (
    Answer,
    Changes,
    Disclosure,
    DisclosureLimits,
    Durable,
    Guarantee,
    Omitted,
    Parameter,
    Request,
    Scalar,
    StopReason,
    Uuid,
    Version,
    later,
    one_of,
)


class Feature(Answer):
    """A column that predictions are made from."""

    name: str
    type: Annotated[str, one_of("numeric", "categorical", "boolean")]
    dtype: Annotated[str, one_of("float32", "float64")]
    unit: str | Omitted = Field(
        None,
        description="Of a numeric column that has one. `days` and `seconds` (since 1970-01-01, UTC), `seconds of the "
        "day`, `day of the week` (0: Monday) and `day of the year` (from 1): a value may also be a date or time in "
        "ISO 8601, as text. Others say what the numbers mean.",
    )


class Label(Answer):
    """The label."""

    name: str
    type: Annotated[str, one_of("string", "integer", "number", "boolean", "scalar")]


class Schema(Answer):
    """Columns and label of the samples."""

    features: list[Feature] = Field(description="In feature order.")
    label: Label
    task: Annotated[str, one_of("classification", "regression")]
    classes: list[Scalar] | None = Field(description="The classes held; null for regression.")

    @property
    def names(self) -> list[str]:
        """The features' names, in order."""
        return [feature.name for feature in self.features]


class Quality(Answer):
    """How well a model predicts samples that it has not learned."""

    metric: Literal["accuracy", "r2"]
    value: float
    method: Annotated[str, one_of("out-of-bag", "held-out")] = Field(
        description="`out-of-bag`: by trees that have not learned a sample. `held-out`: of samples that none has."
    )
    n_samples: int = Field(description="How many samples were predicted.")
    model_version: Version = Field(description="Of the model that predicted.")
    log_loss: float | Omitted = None
    auc: float | None = Field(None, description="Mean over the classes, each against the others.")
    calibration_error: float | Omitted = Field(
        None,
        description="Mean distance of the share of right answers from the probability of the predicted class.",
    )
    rmse: float | Omitted = Field(None, description="For regression: the root of the mean squared error.")


class ColumnRole(Answer):
    """A column of a data file that is not learned from."""

    name: str
    role: str


class ColumnRemark(Answer):
    """Something that looks odd in a column of a data file."""

    name: str
    remark: Annotated[str, one_of("id", "constant", "many", "leak")]


class LeftOut(Answer):
    """Rows of a data file that are not learned from."""

    reason: str
    rows: int


class Understood(Answer):
    """What was understood of the data file that the first model was trained on."""

    read: list[str] = Field(description="Format, and as `KEY=VALUE` how the file is read; see `--read`.")
    roles: list[ColumnRole] = Field(description="Columns that are not learned from.")
    remarks: list[ColumnRemark] | None = Field(
        description="`id`: a different value in nearly every row. `constant`: one value. `many`: more than 1,000 "
        "categories. `leak`: each value goes with one label. Null once a sample was erased."
    )
    left_out: list[LeftOut] | None = Field(description="Null once a sample was erased.")


class Model(Schema):
    """The model as a whole."""

    kind: str
    guarantee: Guarantee
    disclosure: Disclosure = later("standard", "`low`: the answer for a row does not depend on samples equal to it.")
    disclosure_limits: DisclosureLimits = later("", "What this mode does not hide, in a sentence.")
    parameters: dict[str, Any] = Field(description="With low disclosure `random_state` is null: the seed is secret.")
    closed_classes: list[Scalar] | None = later(
        None,
        description="The only allowed classes; null if any label is accepted.",
    )
    max_classes: int | None = later(None, description="Maximum number of classes; null for regression.")
    extra_columns: Annotated[str, one_of("refuse", "ignore")] = later(
        "refuse", "What is done with named features of rows that the model does not have, unless a request says."
    )
    missing_columns: Annotated[str, one_of("refuse", "missing")] = later(
        "refuse", "What is done where rows lack named features: they may be missing values."
    )
    n_samples: int
    n_restricted: int = later(
        0,
        description="Restricted samples; `n_samples` does not count them.",
    )
    model_version: Version
    durable: Durable
    lazy_tags: int = Field(description="Nodes whose splits the next prediction through them checks.")
    mutations_since_scrub: int | None = later(
        None,
        description="Samples added and deleted since the model was last rebuilt; null if it is exact.",
    )
    pending_erasures: int = Field(description="Erasures that are not yet erased from all files.")
    overdue_erasures: int = Field(description="Of these, the ones whose deadline has passed.")
    expiry_paused: str | None = later(
        None,
        description="Why no sample expires at present; POST /expiry/confirm resumes expiry.",
    )
    changes: Changes = later("accepted", description="Whether samples can be added, rectified and deleted at present.")
    changes_stopped: StopReason | None = later(
        None,
        description="Why changes have stopped; null while they are accepted. `disk-full`, `disk-errors`, "
        "`no-descriptors` and `journal-unreachable` end by themselves, the others with a restart.",
    )
    memory_bytes: int
    understood: Understood | None = later(
        None, "Null unless the server has read a data file since it was started: a restart reads the data directory."
    )
    score: Quality | None = Field(
        None, description="Left out unless requested; null when too few samples tell, or all trees learn all samples."
    )

    @property
    def schema(self) -> Schema:  # type: ignore[override]
        """Columns and label of the samples."""
        return Schema(features=self.features, label=self.label, task=self.task, classes=self.classes)


class FitRequest(Request):
    """A new fit. Parameters that are left out keep their values."""

    kind: str | None = Field(None, description="The kind of model.")
    parameters: dict[str, Parameter] | None = Field(None, description="Parameters as in `GET /model`.")
    score: bool = Field(True, description="Whether to score the old and the new model.")
    classes: Literal["open", "closed"] | None = Field(
        None,
        description="`closed`: labels of other classes are refused from then on. `open`: any label is accepted.",
    )
    max_classes: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Maximum number of classes; at least as many as the model has.",
    )


class Job(Answer):
    """The state of a job."""

    id: Uuid
    kind: Annotated[str, one_of("verify", "scrub", "fit", "influence", "export", "without")]
    status: Annotated[str, one_of("queued", "running", "succeeded", "failed")]
    progress: Annotated[float, Field(json_schema_extra={"minimum": 0, "maximum": 1})] = Field(
        description="The finished share."
    )
    result: dict[str, Any] | None = Field(
        None,
        description="When it has succeeded. Of `verify`: `ok` with the digests compared; if it is false, what is "
        "`wrong` (counters, their places, and the numbers kept and recounted); and of online boosting how far its "
        "answers are from a fresh fit's. Of `fit`: the new `model_version`, and the `score` before and after. Of "
        "`influence`, `export` and `without`: the `url` of the answer, `/jobs/{id}/result`. Digests, distance, score "
        "and what is wrong are null once a sample was erased that they depend on.",
    )
    error: str | None = Field(None, description="The reason of a failure.")

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended."""
        return self.status in ("succeeded", "failed")


class JobsAnswer(Answer):
    """Jobs that wait, run, or ended recently, the oldest first."""

    jobs: list[Job]


def _time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Snapshot(Answer):
    """A snapshot on disk."""

    id: str
    model_version: Version
    digest: str = Field(
        description="Digest of the trees: two models with the same digest predict the same, bit for bit."
    )
    bytes: int
    created_at: Annotated[datetime, PlainSerializer(_time_text, when_used="json")]


class Dropped(Answer):
    """Samples of the file that were left out, by reason."""

    erased: int
    rectified: int
    expired: int


class Restored(Answer):
    """The outcome of a restore."""

    model_version: Version
    snapshot_model_version: int = Field(description="Model version of the file.")
    n_samples: int
    n_restricted: int = later(
        0,
        description="Restricted samples after the restore; `n_samples` does not count them.",
    )
    dropped: Dropped = Field(
        description="Samples that were erased, rectified or expired after the file was written, according to the "
        "ledger."
    )
    no_longer_held: int = Field(description="Samples that were held before the restore and are not held any more.")
    verified: Annotated[str, one_of("verified", "checked", "grown-anew")] = Field(
        description="`verified`: the file's trees equal those of a fresh fit on its samples. `checked`: that "
        "comparison would have taken long; all other checks passed, and POST /model/verify does the rest. "
        "`grown-anew`: the trees were rebuilt from the file's samples, because the file has an older format or "
        "numbers in another form."
    )
    durable: Durable


class Importance(Answer):
    """A column's share of the total gain of all splits."""

    name: str
    type: str
    importance: float


class ImportancesAnswer(Answer):
    """Importances of the columns."""

    kind: str
    n_samples: int
    measure: Annotated[str, one_of("impurity", "gain")]
    features: list[Importance] = Field(
        description="In feature order; the shares add up to 1, or are all 0 if no tree has a split."
    )
    model_version: Version


class TreeSplit(Answer):
    """The question of an inner node; samples that fulfil it go left."""

    type: Annotated[
        str,
        one_of("number", "known", "boolean", "category", "missing", "categories", "statistic", "rare"),
    ] = Field(
        description="`number`: at most `threshold`; `known`: has a value; `boolean`: is false; `category`: equals "
        "`category`; `missing`: has no value; `categories`: is one of these; `statistic`: the statistic of the labels "
        "of the category's samples is at most `threshold`; `rare`: is a category of few samples."
    )
    feature: str
    threshold: float | None = None
    missing: Annotated[str, one_of("left", "right")] | None = Field(
        None,
        description="Where samples without a value go.",
    )
    category: str | None = Field(None, description="Null if no sample has it any more.")
    categories: list[str] | None = Field(None, description="At most 50 of those held.")
    n_categories: int | None = None
    statistic: int | None = Field(None, description="Number of the statistic, where the column has several.")


class TreeNode(Answer):
    """A node of a tree."""

    path: str = Field(description="The path from the root: `l` and `r`.")
    depth: int
    n_samples: int = Field(description="Samples in the node, of those that this tree learns.")
    counts: list[float] | None = Field(description="Samples of each class, by weight, if `says` is `classes`.")
    value: float | None
    text: str | None = Field(description="The question of an inner node as text; null at a leaf.")
    split: TreeSplit | None
    left: "TreeNode | None"
    right: "TreeNode | None" = Field(description="Null at a leaf, and at the last requested level.")


class TreeAnswer(Answer):
    """A node of a tree, and some levels below it."""

    kind: str
    n_trees: int
    tree: int
    iteration: int | None = Field(description="Boosting iteration of the tree.")
    class_: Annotated[Scalar | None, Field(alias="class")] = Field(
        description="For boosting with three classes or more: the class whose score the tree adds to."
    )
    says: Annotated[str, one_of("classes", "mean", "score")] = Field(
        description="`classes`: nodes have the samples of each class; `mean`: the mean of their labels; `score`: what "
        "a leaf adds to the raw score."
    )
    classes: list[Scalar] | None
    node: TreeNode
    model_version: Version


class ColumnAnswer(Answer):
    """Values of a column."""

    name: str
    type: Annotated[str, one_of("numeric", "categorical", "boolean")]
    missing: int = Field(description="Samples without a value.")
    dtype: str | None = None
    least: float | None = None
    greatest: float | None = None
    categories: list[str] | None = Field(None, description="The 200 most frequent categories, the most frequent first.")
    n_categories: int | None = None
    statistic: int | None = Field(None, description="Number of the statistic, where the column has several.")


class ColumnsAnswer(Answer):
    """The columns of the samples that the model learns from, in feature order."""

    columns: list[ColumnAnswer]
    model_version: Version


class ParameterAnswer(Answer):
    """A parameter of a kind of model."""

    name: str
    text: str
    types: list[Annotated[str, one_of("integer", "number", "text", "boolean", "list")]]
    default: Any
    value: Any = Field(description="The current value; for other kinds the default.")
    least: float | None
    greatest: float | None
    choices: list[str] | None
    optional: bool = Field(description="Whether it may be null.")
    none_word: str | None = Field(description="The word for null.")


class KindAnswer(Answer):
    """A kind of model."""

    kind: str
    guarantee: Guarantee
    in_force: bool
    parameters: list[ParameterAnswer]


class KindsAnswer(Answer):
    """The kinds of models for the current task."""

    kinds: list[KindAnswer]
