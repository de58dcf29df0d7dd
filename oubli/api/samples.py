"""Messages about samples and their subjects: adding, listing, restriction, retention and export."""

from datetime import datetime
from typing import Annotated

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import TypeAliasType

from oubli.api.base import (
    Answer,
    Durable,
    Features,
    Hash,
    Kept,
    Name,
    Names,
    NextCursor,
    Nonce,
    Omitted,
    Ref,
    Request,
    SampleCursor,
    Scalar,
    Secret,
    Version,
    later,
)
from oubli.api.erasures import Receipt

LONGEST_PERIOD = 100 * 366 * 86_400  # seconds; more than a century is a mistaken unit
Period = Annotated[int, Field(ge=1, le=LONGEST_PERIOD)]
Weight = Annotated[float, Field(ge=1 / 512, lt=2**15)]


class Sample(Request):
    """A sample to learn."""

    id: Name | None = Field(None, description="Generated if left out.")
    subject: Name | None = Field(None, description="The person that the sample is about.")
    features: Features
    label: Scalar
    expires_at: datetime | None = Field(
        None,
        description="Time at which the server unlearns and erases the sample: RFC 3339 with a zone, in the future.",
    )
    restricted_at: None = Field(
        None,
        description="Must be null; it exists so that you can send an answer back. Use `POST /subjects/restrict`.",
    )
    readd: bool = Field(
        False,
        description="Whether a recently erased id may be added again; a late retry does not have it.",
    )
    retention: Period | None = Field(
        None,
        description="Retention period in seconds for all current and future samples of the subject; see `POST "
        "/subjects/retain`. If left out, the subject keeps its period.",
    )
    weight: Weight | None = Field(
        None,
        description="How much the sample counts: 2 counts as two equal samples. Rounded to a multiple of 1/256; 1 if "
        "left out.",
    )


class AddRequest(Request):
    """Samples to learn, all of them or none."""

    samples: Annotated[list[Sample], Field(min_length=1)]


class Added(Answer):
    """The ids of the added samples, and the number of samples held."""

    ids: list[str] = Field(description="The samples' ids, in the order of the request.")
    model_version: Version
    n_samples: int = Field(description="Total number of samples held.")
    durable: Durable


class ReplaceRequest(Request):
    """The new content of a sample. What you leave out of `subject`, `expires_at` and `weight` stays; null clears it."""

    features: Features
    label: Scalar
    subject: Name | None = None
    expires_at: datetime | None = None
    restricted_at: None = Field(
        None, description="Must be null; it exists so that you can send an answer back. A restriction stays."
    )
    id: Name | None = Field(None, description="May repeat the id in the path.")
    weight: Weight | None = Field(None, description="How much the sample counts; null means 1.")


class HeldSample(Answer):
    """A held sample."""

    id: str
    subject: str | None = Field(description="The person that it is about.")
    features: dict[str, Scalar | None] = Field(
        description="By feature name. A number has the shortest form that reads back as the stored value."
    )
    label: Scalar
    expires_at: datetime | None = later(None, description="When the server unlearns and erases it.")
    restricted_at: datetime | None = later(
        None,
        description="Start of the restriction of its subject: the sample is kept, and the model does not learn from "
        "it.",
    )
    weight: float = later(1.0, description="How much it counts: a multiple of 1/256.")
    etag: SkipJsonSchema[str | None] = Field(None, exclude=True, description="For `if_match`; `Client.get` has it.")


class SampleAnswer(HeldSample):
    """A held sample, and the model's version."""

    model_version: Version


class SamplesAnswer(Answer):
    """A page of samples."""

    samples: list[HeldSample]
    next: NextCursor = later(None)
    model_version: Version | Omitted = later(None)


class OpenedSample(HeldSample):
    """A sample with the nonce of its hash."""

    nonce: Nonce | None = Field(description="Null for a restricted sample: it is in no set.")


class OpenedSamplesAnswer(Answer):
    """A page of samples with their openings."""

    samples: list[OpenedSample]
    next: NextCursor
    model_version: Version
    positions_key: Annotated[
        Secret, Field(description="Determines the places of names in the set tree. Do not pass it on.")
    ]


SamplesList = TypeAliasType("SamplesList", SamplesAnswer | OpenedSamplesAnswer)


class SearchIdsRequest(Request):
    """Samples to list; as many as a page may have."""

    ids: Names


class SearchSubjectRequest(Request):
    """The subject whose samples to list."""

    subject: Name
    cursor: SampleCursor | None = None
    limit: Annotated[int, Field(ge=1)] | None = None


SearchRequest = TypeAliasType("SearchRequest", SearchIdsRequest | SearchSubjectRequest)


class RestrictRequest(Request):
    """Subjects to restrict."""

    subjects: Names
    ref: Ref | None = None
    keep_expired: bool = Field(
        False,
        description="Whether expired samples are kept until the release.",
    )


class ReleaseRequest(Request):
    """Restricted subjects to release."""

    subjects: Names
    ref: Ref | None = None


class RetainRequest(Request):
    """Subjects, and the retention period of their samples."""

    subjects: Names
    seconds: Period | None = Field(description="Length from the addition of each sample; null removes the period.")
    ref: Ref | None = None


class Restriction(Answer):
    """The outcome of a restriction, a release or a retention period.

    The ledger has the same.
    """

    ref: Ref | None
    requested: int = Field(description="Named subjects, each counted once.")
    absent: int = Field(
        description="Named subjects without samples or, for a release, subjects that are not restricted."
    )
    samples: int = Field(
        description="Samples that left the trees, are learned from again, or got the retention period."
    )
    expired: int = Field(
        0,
        description="For a release: expired samples; they are not learned from again, but erased.",
    )
    seconds: int | None = Field(
        None,
        description="For a retention period: its length, from the addition of each sample; null: no period.",
    )
    guarantee: str
    model_version: Version
    n_samples: int = Field(description="Number of samples that the model learns from.")
    at: datetime
    ledger_index: int | None = Field(
        description="Of the entry of `GET /ledger` that tells of it; null when nothing had to be changed, and the "
        "caller has asked for more than 1,000 such changes in an hour."
    )
    ledger_head: Hash | None
    durable: Durable


class ExportRequest(Request):
    """The subject whose bundle to make."""

    subject: Name
    influence: bool = Field(
        False,
        description="Whether to compute the effect of the samples on the predictions about the subject.",
    )


class ExportedSample(HeldSample):
    """A held sample, and its origin."""

    added_at: datetime | None = later(
        None,
        description="When it was added; null if unknown, as for the data file that the model began with.",
    )
    request_id: str | None = later(None, description="`X-Request-ID` of the request that added it.")


class Influential(Answer):
    """A sample, and its effect on predictions."""

    id: str
    score: float = Field(
        description="Positive if the sample helps: without it the loss would be higher by this amount."
    )


class ExportedInfluence(Answer):
    """The mean effect of the subject's samples on the predictions for the first 100 of them."""

    scores: list[Influential]
    method: str
    note: str | None
    n_samples: int = Field(description="Number of samples of all subjects that the model learns from.")
    model_version: Version


class Bundle(Kept):
    """Everything that is held about a subject."""

    subject: str
    held: bool = Field(description="Whether anything is held.")
    exported_at: datetime
    model_version: Version
    kind: str = Field(description="Kind of the model that learns from the samples.")
    guarantee: str
    samples: list[ExportedSample]
    receipts: list[Receipt] = Field(
        description="Receipts of erasures and rectifications that named only the subject, or only one of these samples."
    )
    influence: ExportedInfluence | None = later(
        None,
        description="Null if not requested, or if the model learns from no sample.",
    )
