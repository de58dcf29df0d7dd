"""Messages about erasures: requests to delete, receipts, and their delivery to webhooks."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from oubli.api.base import (
    Answer,
    By,
    Disclosure,
    DisclosureLimits,
    Durable,
    Kept,
    ListFound,
    Names,
    NextCursor,
    Omitted,
    Ref,
    Request,
    Uuid,
    Version,
    later,
    one_of,
)


def _was_held(known: Mapping[str, Any]) -> bool:
    requested, absent = known.get("requested"), known.get("absent")
    return requested != absent or not requested


class Receipt(Kept):
    """The receipt of a deletion, a rectification, an expiry or a restore.

    The signature covers the RFC 8785 form of everything except `signature` and `durable`. Receipts of earlier versions
    have no `disclosure` and `disclosure_limits`, or also no `by`, `held` and `deadline`.
    """

    id: Uuid
    ref: Ref | None
    kind: Annotated[str, one_of("deletion", "rectification", "expiry", "restore")]
    status: Literal["unlearned", "erased"] = Field(
        description="`unlearned`: no prediction depends on the samples any more. `erased`: no file in the data "
        "directory holds them either."
    )
    guarantee: str = Field(description="Guarantee of the model.")
    disclosure: Disclosure | Omitted = None
    disclosure_limits: DisclosureLimits | Omitted = None
    by: By | Omitted = Field(None, description="Whether ids or subjects were named.")
    requested: int = Field(description="Named ids or subjects (see `by`), each counted once.")
    unlearned: int = Field(description="Unlearned samples; a subject may have many.")
    absent: int = Field(description="Named ids that were not held, or named subjects without samples (see `by`).")
    held: bool = Field(
        default_factory=_was_held,
        description="Whether any of the names was held. False: the request was valid, and there was nothing to erase.",
    )
    exported_snapshots: int = Field(
        description="Snapshots that were downloaded while one of the samples was held; the copies still contain it."
    )
    model_version: Version = Field(description="Version after the erasure.")
    received_at: datetime
    unlearned_at: datetime
    deadline: datetime | Omitted = Field(
        None,
        description="Time by which no file may hold the samples: `erasure_deadline` after `unlearned_at`.",
    )
    erased_at: datetime | None
    overdue: bool = Field(description="Whether the deadline has passed, or was missed.")
    key_id: str = Field(
        description="Of the key in `GET /ledger/keys` that checks the signature; with --ephemeral it lives as long as "
        "the process."
    )
    ledger_index: int = Field(description="Index of the entry of this status in `GET /ledger`.")
    ledger_head: str = Field(description="Hash of the entry.")
    signature: str = Field(description="Ed25519, in base64.")
    durable: Durable = later(True)


class NothingErased(Kept):
    """The answer to an erasure or a rectification that changed nothing, without a receipt and without a ledger entry.

    What changes nothing gets a receipt too, except for callers with more than 1,000 such requests in an hour. What is
    held when it is asked for is always erased with a receipt.
    """

    id: None
    ref: Ref | None
    kind: Annotated[str, one_of("deletion", "rectification")]
    guarantee: str
    by: Annotated[str, one_of("ids", "subjects")] = Field(description="Whether ids or subjects were named.")
    held: bool = later(False, description="True for a rectification whose sample already has the content.")
    requested: int = Field(description="Named ids or subjects, each counted once.")
    unlearned: Literal[0]
    absent: int = Field(description="Names without samples.")
    model_version: Version = Field(description="Version of the unchanged model.")
    durable: Durable = later(True)


class Found(Answer):
    """A name that was held."""

    position: int = Field(
        description="Its position in the list of the request, from 0; for a repeated name the first one."
    )
    samples: int = Field(description="Number of unlearned samples.")


DeletionOutcome = TypeAliasType("DeletionOutcome", Receipt | NothingErased)


class ListedDeletion(Answer):
    """A receipt, and the names that were held; the list is not signed."""

    receipt: DeletionOutcome
    found: list[Found]


BatchDeletion = TypeAliasType("BatchDeletion", Receipt | NothingErased | ListedDeletion)


class DeleteIdsRequest(Request):
    """Samples to delete."""

    ids: Names
    ref: Ref | None = None
    list_found: ListFound = False


class DeleteSubjectsRequest(Request):
    """Subjects whose samples to delete."""

    subjects: Names
    ref: Ref | None = None
    list_found: ListFound = False


BatchDeleteRequest = TypeAliasType("BatchDeleteRequest", DeleteIdsRequest | DeleteSubjectsRequest)


class ErasuresAnswer(Answer):
    """Receipts, the oldest first."""

    erasures: list[Receipt]
    next: NextCursor = later(None)


class DeadLetter(Answer):
    """A status that could not be delivered to a webhook or a callback."""

    id: Uuid = Field(description="Id of the receipt, or of the OpenDSR request.")
    ref: Ref | None
    status: Annotated[str, one_of("unlearned", "overdue", "erased", "in_progress", "completed")] = Field(
        description="The status."
    )
    target: str = Field(description="`webhook`, or the URL of a callback.")
    since: datetime = Field(description="When the status was reached, or redelivery was requested.")
    reason: str = Field(
        description="Why the last attempt failed: `timeout`, `unreachable`, `unresolved`, `refused-address`, "
        "`untrusted`, `broken-answer`, or `status-` and the status of the answer."
    )


class DeadLettersAnswer(Answer):
    """Dead letters, the oldest first."""

    dead_letters: list[DeadLetter]
    next: NextCursor = later(None)


class RedeliveryAnswer(Answer):
    """The redelivered statuses."""

    id: Uuid
    states: int = Field(description="Number of statuses.")
