"""What goes into the service and what comes out: plain records, no HTTP."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from oubli.core.model import QueryResult
from oubli.core.samples.store import HeldSample


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
    that an id may come back although it was erased lately.
    """

    rows: list[Row]
    labels: list[Any]
    ids: list[str | None]
    subjects: list[str | None]
    expires: list[int | None]
    readd: list[bool]

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


class Added(NamedTuple):
    """Ids in the order of the request; `n_new` of them were not held before."""

    ids: list[str]
    n_new: int
    n_samples: int
    model_version: int


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the samples held, in the order of their slots; `next_slot` continues, None when there are no more."""

    samples: list[HeldSample]
    next_slot: int | None
    epoch: int
    model_version: int
