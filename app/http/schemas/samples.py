"""The shapes of samples: added, held, looked for and proved absent."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from oubli.app.http.schemas.shapes import Durable, Features, Name, NextCursor, SampleCursor, Scalar, Shape, Version
from oubli.app.times import LONGEST_PERIOD


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


AbsenceRequest = TypeAliasType("AbsenceRequest", AbsentIdRequest | AbsentSubjectRequest)
SearchRequest = TypeAliasType("SearchRequest", SearchIdsRequest | SearchSubjectRequest)
