"""States of the model as the ledger tells them: what it was at a version, for an audit.

    entry        version, root over the samples held, what the model is made by, SHA-256(salt | digest)
    beside it    salt and digest, until the next erasure is finished; the schema, of which the entry has the hash

A digest is a function of all samples: whoever has the others could test guesses about one that was erased since. So no
entry holds it, and the salt is erased with the first erasure that is finished after the state. Whether the state was
told before or after is seen by its version: versions never go back.
"""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Any, NamedTuple

from oubli.app.ledger.entries import Entry
from oubli.app.ledger.rows import MODEL_STATE_COLUMNS, insert

SALT_BYTES = 32


class Opening(NamedTuple):
    """What belongs to the entry of a state and is not hashed with it.

    Attributes
    ----------
    salt, digest
        In hexadecimal. None once an erasure was finished after it, and where the model is not exact.
    schema
        Of the samples, in the RFC 8785 form; None in a ledger that was downloaded.
    """

    salt: str | None = None
    digest: str | None = None
    schema: str | None = None


def hash_digest(salt: str, digest: str) -> str:
    """Return what an entry holds in place of a digest; all in hexadecimal."""
    return hashlib.sha256(bytes.fromhex(salt) + bytes.fromhex(digest)).hexdigest()


class StateTable:
    """What belongs to the entries of states; writes are inside of a transaction of the ledger's database.

    Parameters
    ----------
    connection
        Of the ledger's file.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, index: int, entry: Entry, opening: dict[str, Any] | None) -> None:
        """Take in what belongs to an entry; None where nothing came with it."""
        self._write(index, entry["model_version"], Opening(**(opening or {})))

    def forget_before(self, model_version: int) -> None:
        """Forget salt and digest of all states of earlier versions."""
        query = "SELECT idx, model_version, schema FROM model_states WHERE salt IS NOT NULL AND model_version < ?"
        for index, version, schema in self._connection.execute(query, (model_version,)).fetchall():
            self._write(index, version, Opening(schema=schema))

    def opening(self, index: int) -> Opening | None:
        """Return what belongs to an entry; None when it is not that of a state."""
        query = "SELECT salt, digest, schema FROM model_states WHERE idx = ?"
        row = self._connection.execute(query, (index,)).fetchone()
        return None if row is None else Opening(*row)

    def of_version(self, model_version: int) -> list[int]:
        """Return the entries of a version, the newest first."""
        query = "SELECT idx FROM model_states WHERE model_version = ? ORDER BY idx DESC"
        return [index for (index,) in self._connection.execute(query, (model_version,))]

    def page(self, after: int, limit: int) -> list[int]:
        """Return entries of states after one, in order."""
        query = "SELECT idx FROM model_states WHERE idx > ? ORDER BY idx LIMIT ?"
        return [index for (index,) in self._connection.execute(query, (after, limit))]

    def _write(self, index: int, model_version: int, opening: Opening) -> None:
        cells = (index, model_version, *opening)
        insert(self._connection, "INSERT OR REPLACE INTO model_states", MODEL_STATE_COLUMNS, cells)
