"""What the ledger answers to those who check it: proofs of entries and of erasures. It runs in the ledger's thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oubli.app.ledger.entries import Entry, body_of, keyed_of
from oubli.app.ledger.signed_notes import hash_lines, proof_text
from oubli.app.ledger.tree import TILE

if TYPE_CHECKING:
    from oubli.app.ledger.database import LedgerDatabase


@dataclass(frozen=True, slots=True)
class NotPublished:
    """What is asked for is not below a published checkpoint yet.

    Attributes
    ----------
    size
        That the log must be published with.
    """

    size: int


def entry_proof(database: LedgerDatabase, index: int) -> str | NotPublished | None:
    """Return a proof that an entry is in the log; None when there is no such entry."""
    found = database.entries(index - 1, 1) if index > 0 else []
    return _proof(database, found[0], [], {}) if found else None


def erasure_proof(
    database: LedgerDatabase, receipt_id: str, is_overdue: Callable[[str], bool], *, durable: bool
) -> str | NotPublished | None:
    """Return a proof that the entries of an erasure are in the log, with its receipt; None: there is no such receipt.

    Parameters
    ----------
    database
        The ledger's.
    receipt_id
        Of the erasure.
    is_overdue
        Whether an erasure that is not finished should be.
    durable
        Whether what the receipt says survives the process, as answers say it.
    """
    receipt = database.receipt(receipt_id, is_overdue)
    if receipt is None:
        return None
    begun, *finished = database.entries_of(receipt)
    keyed = keyed_of(begun)
    extra: dict[str, Any] = {"receipt": {**receipt.content(), "durable": durable}}
    extra |= {name: keyed[name] for name in ("target_leaves", "sample_leaves") if name in keyed}
    return _proof(database, begun, finished, extra)


def entry_bundle(database: LedgerDatabase, number: int, width: int) -> bytes | None:
    """Return the entries below the first hashes of a tile, each behind its length; None when there are not so many."""
    if number * TILE + width > database.log.tree.size:
        return None
    bodies = [body_of(entry) for entry in database.entries(number * TILE, width)]
    return b"".join(len(body).to_bytes(2, "big") + body for body in bodies)


def consistency(database: LedgerDatabase, old: int, new: int | None) -> dict[str, Any] | NotPublished:
    """Return what shows that the log of `new` entries goes on from that of `old`; None: the published one."""
    published = database.log.published
    size = 0 if published is None else published.size
    new = max(old, size) if new is None else new
    if new > size:
        return NotPublished(new)
    return {"from": old, "to": new, "proof": hash_lines(database.log.tree.consistency(old, new))}


def _proof(database: LedgerDatabase, entry: Entry, finished: list[Entry], extra: dict[str, Any]) -> str | NotPublished:
    published, tree = database.log.published, database.log.tree
    last = max(one["index"] for one in (entry, *finished))
    if published is None or published.size < last:
        return NotPublished(last)
    for one in finished:
        path = hash_lines(tree.inclusion(one["index"] - 1, published.size))
        extra["erased"] = {"entry": body_of(one).decode(), "index": one["index"] - 1, "path": path}
    extra["entry"] = body_of(entry).decode()
    path_of_entry = tree.inclusion(entry["index"] - 1, published.size)
    return proof_text(extra, entry["index"] - 1, path_of_entry, published)
