"""The shapes of the rights of subjects: restriction, release, retention and export."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from oubli.app.http.schemas.erasures import Receipt
from oubli.app.http.schemas.samples import HeldSample
from oubli.app.http.schemas.shapes import Durable, Hash, Name, Ref, Shape, Version
from oubli.app.times import LONGEST_PERIOD


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
