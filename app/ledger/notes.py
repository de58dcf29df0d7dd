"""Notes: what a journal record says to the ledger. The ledger's file can be made from them again.

    {"entries": [...],                        new entries of the chain, whole
     "signatures": {"<index>": "..."},        of the receipts that entries of the type `unlearned` are about
     "idempotency": {...}}                    how a request was answered that may come again

They hold keyed hashes, counts and references; no id, no subject, no value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from oubli.app.ledger.chain import Entry


@dataclass(frozen=True, slots=True)
class IdempotencyRecord:
    """How a request was answered that may come again.

    Attributes
    ----------
    key, body
        Keyed hashes of the caller's key with the route, and of the body.
    expires_ms
        When it is forgotten.
    model_version, n_samples, n_new
        Of the answer.
    first_id
        The first id that was generated, hidden by what only the caller knows; None when none was.
    receipt
        Id of the receipt, of a deletion.
    """

    key: str
    body: str
    expires_ms: int
    model_version: int
    n_samples: int
    n_new: int
    first_id: int | None
    receipt: str | None


@dataclass(frozen=True, slots=True)
class ReadNotes:
    """Notes as objects."""

    entries: list[Entry]
    signatures: dict[str, str]
    idempotency: IdempotencyRecord | None


def entry_notes(entries: Sequence[Entry], signatures: Mapping[str, str] | None = None) -> bytes:
    """Return the notes of new entries, with the signatures of their receipts by index."""
    notes: dict[str, Any] = {"entries": entries}
    if signatures is not None:
        notes["signatures"] = signatures
    return orjson.dumps(notes)


def with_idempotency(notes: bytes, record: IdempotencyRecord) -> bytes:
    """Return notes, or none, with the record of a request that may come again."""
    content = orjson.loads(notes) if notes else {}
    return orjson.dumps({**content, "idempotency": record})


def read_notes(notes: bytes) -> ReadNotes:
    """Return notes as objects."""
    content = orjson.loads(notes)
    record = content.get("idempotency")
    return ReadNotes(
        content.get("entries", []),
        content.get("signatures", {}),
        None if record is None else IdempotencyRecord(**record),
    )
