"""The shapes of the ledger, its keys and its proofs."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from oubli.app.http.schemas.shapes import Hash, NextCursor, Shape, Uuid


class LedgerEntry(Shape):
    """An entry of the audit ledger. What it has besides these fields goes by its type.

    `hash` is the SHA-256 of the RFC 8785 form of everything else in it. There is no personal data in an entry: ids and
    subjects are in it as one root over hidden names, and as keyed hashes where an earlier version has written it.
    """

    model_config = ConfigDict(extra="allow")

    index: Annotated[int, Field(ge=1)]
    previous: Hash
    """`hash` of the entry before; zeros in the first."""
    type: str
    """`signing-key`, `unlearned`, `erased`, or an event such as `restore` and `export`."""
    at: datetime
    hash: Hash


class KeyedHashes(Shape):
    """Hashes of the names of an erasure, under a key that the server keeps."""

    samples: list[str]
    targets: str
    """Of all that was named."""
    target_leaves: str
    """The leaves below `targets_root` of the entry, base64."""
    sample_leaves: str | None = None
    """The leaves below `samples_root`, base64; left out when they are the same."""
    subjects: list[str] | None = None
    """Of each subject named of whom something was held; left out where ids were named, or nothing was held."""
    subject_samples: list[int] | None = None
    """How many samples of each of these subjects."""


class LedgerAnswer(Shape):
    """A page of the ledger, in order."""

    entries: list[LedgerEntry]
    keyed: dict[str, KeyedHashes]
    """By index: what belongs to entries of the type `unlearned` and is not hashed with them."""
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
    log_key: str | None
    """The key as policies and witnesses take it: `log` and this text is a line of a policy."""


class KeysAnswer(Shape):
    """The public keys, the current one first."""

    keys: list[PublicKey]


class ConsistencyAnswer(Shape):
    """What shows that the log only grew."""

    from_: Annotated[int, Field(alias="from", ge=0)]
    to: Annotated[int, Field(ge=0)]
    proof: list[str]
    """Hashes, base64."""


class OpeningAnswer(Shape):
    """What openings of single names are made from."""

    receipt: Uuid
    opening: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
