"""Receipts: what became of one erasure, signed.

Each state of a receipt is signed over the RFC 8785 form of everything in it but the signature, `overdue` included. So a
signature fits exactly what was answered, whenever that was: a receipt that becomes overdue while it waits is another
state, and is signed anew when it is read. `receipt_of` makes a receipt from the ledger's entry; the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from oubli.app.ledger.canonical import canonical
from oubli.app.ledger.chain import Entry
from oubli.app.ledger.keys import AuditKeys
from oubli.app.times import parse_time, to_text

ReceiptKind = Literal["deletion", "rectification", "expiry", "restore"]
Status = Literal["unlearned", "erased"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Receipt(NamedTuple):
    """What became of one erasure. Times are RFC 3339 in UTC with milliseconds.

    Attributes
    ----------
    id
        A random UUID.
    ref
        The caller's case number, a UUID.
    kind
        What was asked for.
    status
        How far it is.
    guarantee
        Of the model that unlearned.
    requested, unlearned, absent
        Ids or subjects named, samples unlearned, names that were not held.
    exported_snapshots
        Snapshots that were handed out while one of the samples was held.
    model_version
        After the erasure.
    received_at, unlearned_at, erased_at
        When.
    overdue
        Whether it was erased too late, or is not erased although it should be.
    key_id
        Of the key that signed.
    ledger_index, ledger_head
        Index and hash of the entry of this state.
    signature
        Ed25519, in base64.
    """

    id: str
    ref: str | None
    kind: ReceiptKind
    status: Status
    guarantee: str
    requested: int
    unlearned: int
    absent: int
    exported_snapshots: int
    model_version: int
    received_at: str
    unlearned_at: str
    erased_at: str | None
    overdue: bool
    key_id: str
    ledger_index: int
    ledger_head: str
    signature: str

    def content(self) -> dict[str, Any]:
        """Return it as an object, in the order in which it is answered."""
        return dict(zip(FIELDS, self, strict=True))

    def signed_form(self) -> bytes:
        """Return what is signed."""
        return canonical(dict(zip(_SIGNED, self[:-1], strict=True)))

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Receipt:
        """Return the receipt with this content.

        Raises
        ------
        KeyError
            When a field is missing.
        """
        return cls(**{name: content[name] for name in FIELDS})


FIELDS = Receipt._fields
_SIGNED = FIELDS[:-1]  # all but the signature


def receipt_of(entry: Entry, signature: str = "") -> Receipt:
    """Return the receipt, in its first state, that an entry of the type `unlearned` is about."""
    return Receipt(
        entry["receipt"],
        entry["ref"],
        entry["kind"],
        "unlearned",
        entry["guarantee"],
        entry["requested"],
        entry["unlearned"],
        entry["absent"],
        entry["exported_snapshots"],
        entry["model_version"],
        entry["received_at"],
        entry["unlearned_at"],
        None,
        False,
        entry["key_id"],
        entry["index"],
        entry["hash"],
        signature,
    )


def erased_state(receipt: Receipt, entry: Entry) -> Receipt:
    """Return a receipt, not signed, as an entry of the type `erased` leaves it."""
    return receipt._replace(
        status="erased",
        erased_at=entry["erased_at"],
        overdue=_was_overdue(receipt, entry),
        key_id=entry["key_id"],
        ledger_index=entry["index"],
        ledger_head=entry["hash"],
        signature="",
    )


def state_now(receipt: Receipt, is_overdue: Callable[[str], bool], keys: AuditKeys) -> Receipt:
    """Return a stored receipt as it is to be answered now: one that waits too long is overdue, and signed as such."""
    if receipt.status == "erased" or not is_overdue(receipt.id):
        return receipt
    return signed(receipt._replace(overdue=True), keys)


def _was_overdue(receipt: Receipt, entry: Entry) -> bool:
    """Whether an erasure was finished too late, as the entry says that finished it.

    Times cannot tell: they are of a clock that may have been set in between. Entries of earlier versions have nothing
    else.
    """
    if "overdue" in entry:
        return receipt.id in entry["overdue"]
    return parse_time(entry["erased_at"]) > parse_time(receipt.unlearned_at) + int(entry["deadline_ms"])


def signed(receipt: Receipt, keys: AuditKeys) -> Receipt:
    """Return a receipt with its signature, by the key that it names.

    A key that was retired signs nothing any more: then the current one does, and the receipt names that.
    """
    key = keys.signer(receipt.key_id)
    if key.id != receipt.key_id:
        receipt = receipt._replace(key_id=key.id)
    return receipt._replace(signature=key.sign(receipt.signed_form()))


def to_ms(moment: datetime | int) -> int:
    """Return a moment in milliseconds since 1970."""
    return moment if isinstance(moment, int) else (moment - _EPOCH) // _MILLISECOND


def to_time(moment: datetime | int) -> str:
    """Return a moment as it is signed."""
    return to_text(to_ms(moment))
