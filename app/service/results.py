"""What goes into the service and what comes out: plain records, no HTTP."""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from oubli.core.model import QueryResult
from oubli.core.samples.additions import Addition
from oubli.core.samples.store import HeldSample

if TYPE_CHECKING:
    from oubli.app.ledger.entries import By, Entry, Receipt


class Keep(Enum):
    """Says that a field was left out and stays as it is; None would clear it."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP

Row = list[Any]
"""The cells of one sample or instance, in feature order."""


@dataclass(slots=True)
class NewSamples:
    """The samples of one request, column by column.

    An id that is None is generated. `expires` are milliseconds since 1970, None where none was given; `readd` says
    that an id may come back although it was erased lately; `retentions` how long samples of subjects are kept, in
    milliseconds.
    """

    rows: list[Row]
    labels: list[Any]
    ids: list[str | None]
    subjects: list[str | None]
    expires: list[int | None]
    readd: list[bool]
    retentions: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, positions: list[int]) -> "NewSamples":
        """Return some of the samples."""
        return NewSamples(
            [self.rows[i] for i in positions],
            [self.labels[i] for i in positions],
            [self.ids[i] for i in positions],
            [self.subjects[i] for i in positions],
            [self.expires[i] for i in positions],
            [self.readd[i] for i in positions],
            self.retentions,
        )


@dataclass(frozen=True, slots=True)
class Replacement:
    """The new content of one sample; `subject` and `expires` stay as they are with `KEEP`."""

    sample_id: str
    row: Row
    label: Any
    subject: str | Keep | None = KEEP
    expires: int | Keep | None = KEEP


class Predicted(NamedTuple):
    """Predictions and the version of the model that made them."""

    result: QueryResult
    model_version: int


class PredictionReceipt(NamedTuple):
    """The signed receipt of predictions.

    Attributes
    ----------
    nonce
        Hashed with what is signed.
    set_root
        Over the samples that the model was a function of.
    key_id, signature
        Of the key, and Ed25519 in base64.
    """

    nonce: str
    set_root: str
    key_id: str
    signature: str


class Added(NamedTuple):
    """Ids in the order of the request; `n_new` of them were not held before."""

    ids: list[str]
    n_new: int
    n_samples: int
    model_version: int


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the samples held, in the order of their slots; `next_slot` continues, None when there are no more.

    `nonces` and `positions_key` are what hashes of the samples and their places in the set tree are made with; None
    when nobody has asked for them, and of samples that are in no set.
    """

    samples: list[HeldSample]
    next_slot: int | None
    epoch: int
    model_version: int
    nonces: list[bytes | None] | None = None
    positions_key: bytes | None = None


@dataclass(frozen=True, slots=True)
class NothingHeld:
    """The answer to an erasure that found nothing and was not written down; see `empty_erasures`.

    Attributes
    ----------
    ref
        The caller's case number.
    guarantee
        Of the model.
    by, requested
        What was named, and how many.
    model_version
        Of the model, which has not changed.
    """

    ref: str | None
    guarantee: str
    by: "By"
    requested: int
    model_version: int

    def content(self) -> dict[str, Any]:
        """Return it as an object, with the fields of a receipt as far as there is something to say."""
        return {
            "id": None,
            "ref": self.ref,
            "kind": "deletion",
            "guarantee": self.guarantee,
            "by": self.by,
            "held": False,
            "requested": self.requested,
            "unlearned": 0,
            "absent": self.requested,
            "model_version": self.model_version,
        }


class Deleted(NamedTuple):
    """What became of a deletion.

    Attributes
    ----------
    outcome
        What is answered.
    found
        Of the names of which something was held, the position in the request and how many samples; in their order.
    """

    outcome: "Receipt | NothingHeld"
    found: list[tuple[int, int]]


RestrictionKind = Literal["restricted", "released", "retained"]


@dataclass(frozen=True, slots=True)
class Restricted:
    """What became of a request to restrict subjects, to release them, or to keep their samples for some time only.

    Attributes
    ----------
    kind
        Which of the three.
    ref
        The caller's case number.
    requested, absent
        Subjects named, and those of them of which nothing is held, or nothing is restricted.
    samples
        How many left the trees, were learned again, or are kept for some time only.
    expired
        Samples that were released too late: their time is over, and they are erased instead.
    seconds
        How long samples are kept from their addition; None: nothing is said.
    guarantee
        Of the model.
    model_version, n_samples
        Of the model after it.
    at
        When, in RFC 3339.
    ledger_index, ledger_head
        Index and hash of the ledger's entry.
    """

    kind: RestrictionKind
    ref: str | None
    requested: int
    absent: int
    samples: int
    expired: int
    guarantee: str
    model_version: int
    n_samples: int
    at: str
    ledger_index: int
    ledger_head: str
    seconds: int | None = None

    @classmethod
    def of_entry(cls, entry: "Entry", n_samples: int) -> "Restricted":
        """Return what an entry of the ledger says."""
        return cls(
            kind=entry["type"],
            ref=entry["ref"],
            requested=entry["requested"],
            absent=entry["absent"],
            samples=entry["n_samples"],
            expired=entry.get("expired", 0),
            guarantee=entry["guarantee"],
            model_version=entry["model_version"],
            n_samples=n_samples,
            at=entry["at"],
            ledger_index=entry["index"],
            ledger_head=entry["hash"],
            seconds=entry.get("seconds"),
        )


class Exported(NamedTuple):
    """A sample of a bundle, and where it comes from; `addition` is None when that is not known."""

    sample: HeldSample
    addition: Addition | None


@dataclass(frozen=True, slots=True)
class Bundle:
    """All that is held about a subject.

    Attributes
    ----------
    subject
        Whom it is about.
    exported_ms
        When it was made, in milliseconds since 1970.
    model_version, kind, guarantee
        Of the model then.
    samples
        What is held, restricted or not, in the order in which it came to the subject.
    receipts
        Of erasures and rectifications that named the subject, or one of these samples, and nothing else.
    influence
        What the samples do for the predictions about the subject; None when it was not asked for, or none is learned
        from.
    """

    subject: str
    exported_ms: int
    model_version: int
    kind: str
    guarantee: str
    samples: list[Exported]
    receipts: "list[Receipt]"
    influence: dict[str, Any] | None
