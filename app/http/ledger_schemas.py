"""The shapes of receipts' lists, of the ledger and of the public keys, for the OpenAPI page."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from oubli.app.http.schemas import NextCursor, Receipt, Shape

Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256 in hexadecimal.")]


class ErasuresAnswer(Shape):
    """The receipts of a case number, the oldest first."""

    erasures: list[Receipt]


class LedgerEntry(Shape):
    """An entry of the audit ledger. What it has besides these fields goes by its type.

    `hash` is the SHA-256 of the RFC 8785 form of everything else in it. There is no personal data in an entry: ids and
    subjects are keyed hashes.
    """

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    index: Annotated[int, Field(ge=1)]
    previous: Hash
    """`hash` of the entry before; zeros in the first."""
    type: str
    """`signing-key`, `unlearned`, `erased`, or an event such as `restore` and `export`."""
    at: datetime
    hash: Hash


class LedgerAnswer(Shape):
    """A page of the ledger, in order."""

    entries: list[LedgerEntry]
    next: NextCursor


class PublicKey(Shape):
    """A key that receipts are signed with."""

    key_id: str
    algorithm: Literal["Ed25519"]
    public_key: str
    """32 bytes, in base64."""
    status: Literal["current", "retired"]
    created_at: datetime
    retired_at: datetime | None
    """Receipts that were signed before stay good."""


class KeysAnswer(Shape):
    """The public keys, the current one first."""

    keys: list[PublicKey]
