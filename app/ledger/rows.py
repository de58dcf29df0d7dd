"""Rows of the tables in the ledger's file: their columns, and the checksum that each has."""

import hashlib
import sqlite3
from collections.abc import Sequence

import orjson

_CHECKSUM_BYTES = 16
RECEIPT_COLUMNS = "id, ref, kind, status, targets, n_samples, seq, content"
IDEMPOTENCY_COLUMNS = "key, body, expires_ms, model_version, n_samples, n_new, first_id, receipt"
STATE_COLUMNS = "applied_seq, witnessed_ms"
KEYED_COLUMNS = "idx, receipt, hashes"
LOG_COLUMNS = "origin, signed, published"
MODEL_STATE_COLUMNS = "idx, model_version, salt, digest, schema"
DELIVERY_COLUMNS = "target, subject, ref, state, status, reason, at_ms"
REQUEST_COLUMNS = "id, kind, regulation, body, received_ms, callbacks, receipt, state"

Cell = str | int | bytes | None


def checksum(*cells: Cell) -> bytes:
    """Return the checksum of a row."""
    digest = hashlib.sha256()
    digest.update(orjson.dumps([cell for cell in cells if not isinstance(cell, bytes)]))
    for cell in cells:
        if isinstance(cell, bytes):
            digest.update(cell)
    return digest.digest()[:_CHECKSUM_BYTES]


def insert(connection: sqlite3.Connection, into: str, columns: str, cells: Sequence[Cell], then: str = "") -> None:
    """Write a row with its checksum; `into` begins the statement, and `then` is for a row that is there."""
    marks = ", ".join("?" * (len(cells) + 1))
    connection.execute(f"{into} ({columns}, checksum) VALUES ({marks}) {then}", (*cells, checksum(*cells)))
