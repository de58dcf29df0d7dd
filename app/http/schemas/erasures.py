"""The shapes of deletions, their receipts and what is delivered of them."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from oubli.app.http.schemas.shapes import LATER, By, Durable, ListFound, Name, NextCursor, Ref, Shape, Uuid, Version


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
    by: Annotated[By, LATER] = "ids"
    """What was named."""
    held: Annotated[bool, LATER] = True
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
    deadline: Annotated[datetime, LATER] = datetime(1970, 1, 1, tzinfo=UTC)
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


BatchDeleteRequest = TypeAliasType("BatchDeleteRequest", DeleteIdsRequest | DeleteSubjectsRequest)


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
