"""The log over the entries: its tree, its origin, and the last checkpoint that was signed and published.

    entries 1 2 3 ...  -->  leaves 0 1 2 ...     leaf = SHA-256(0x00 | what the entry's hash is made of)

Everything is in the ledger's file and belongs to its thread. What is in there came from the journal after its flush, so
that nothing is signed that a crash could take back. An entry with `log_id` begins a log: whoever goes on without
entries that are missing begins another one, so that no two checkpoints of a log ever contradict each other.
"""

from __future__ import annotations

import re
import secrets
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from oubli.app.ledger.entries import CARRIED_OVER, ChainError
from oubli.app.ledger.file import damaged
from oubli.app.ledger.rows import LOG_COLUMNS, checksum
from oubli.app.ledger.signed_notes import Checkpoint, read_checkpoint, sign_checkpoint
from oubli.app.ledger.tree import Mark, Tree, hash_leaf

if TYPE_CHECKING:
    from oubli.app.ledger.key_files import SigningKey

_ID_BYTES = 8
_ORIGIN = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}/[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class _State:
    origin: str | None = None
    signed: str | None = None
    published: str | None = None


class LogTable:
    """The log; writes are inside of a transaction of the ledger's database, whose thread it belongs to.

    Parameters
    ----------
    connection
        Of the ledger's file.
    name
        Of the logs that begin here; the first part of their origins.

    Attributes
    ----------
    tree
        Over all entries.

    Raises
    ------
    LedgerDamagedError
        When the file holds other hashes than those of its entries.
    """

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self.tree = Tree(self._store, self._load)
        (row,) = connection.execute(f"SELECT {LOG_COLUMNS} FROM log").fetchall()  # noqa: S608 - ours
        self._state = _State(*row)
        self._build()
        self._check_signed()

    # --- writing

    def append(self, entry: Mapping[str, Any], body: bytes) -> None:
        """Take in the next entry."""
        self.tree.append(hash_leaf(body))
        if "log_id" in entry:
            origin = f"{entry['log_name']}/{entry['log_id']}"
            if not _ORIGIN.fullmatch(origin):
                raise ChainError(entry["index"], "names a log as no entry does")
            self._write(_State(origin))
        elif entry["type"] == CARRIED_OVER:
            # Entries before it are missing, so that what was signed over them cannot be signed again.
            self._write(replace(self._state, origin=None))

    def sign(self, key: SigningKey) -> Checkpoint | None:
        """Return the signed head of the log; None before there is one. The same head has the same bytes again."""
        if self._state.origin is None:
            return None
        made = sign_checkpoint(self._state.origin, self.tree.size, self.tree.root(), key)
        if made.note != self._state.signed:
            self._write(replace(self._state, signed=made.note))
        return made

    def publish(self, checkpoint: Checkpoint) -> None:
        """Answer a checkpoint from now on, unless another log was begun or a newer one is there."""
        known = self.published
        if checkpoint.origin == self._state.origin and (known is None or known.size <= checkpoint.size):
            self._write(replace(self._state, published=checkpoint.note))

    def new_fields(self) -> dict[str, str | int]:
        """Return the fields of an entry that begins another log, and names the last checkpoint of the one before."""
        fields: dict[str, str | int] = {"log_name": self._name, "log_id": secrets.token_hex(_ID_BYTES)}
        if self._state.signed is not None:
            last = read_checkpoint(self._state.signed)
            name, _, log_id = last.origin.rpartition("/")
            fields |= {"previous_log_name": name, "previous_log_id": log_id}
            fields |= {"previous_size": last.size, "previous_root": last.root.hex()}
        return fields

    def mark(self) -> tuple[Mark, _State]:
        """Return what `rewind` needs."""
        return self.tree.mark(), self._state

    def rewind(self, mark: tuple[Mark, _State]) -> None:
        """Forget what was taken in since a mark, with the transaction."""
        self.tree.rewind(mark[0])
        self._state = mark[1]

    # --- reading

    @property
    def origin(self) -> str | None:
        """The name of the log; None before one has begun."""
        return self._state.origin

    @property
    def signed(self) -> Checkpoint | None:
        """The last checkpoint that was signed."""
        if self._state.origin is None or self._state.signed is None:
            return None
        return read_checkpoint(self._state.signed)

    @property
    def published(self) -> Checkpoint | None:
        """The last checkpoint that was published, with the cosignatures that witnesses gave."""
        if self._state.origin is None or self._state.published is None:
            return None
        return read_checkpoint(self._state.published)

    def _write(self, state: _State) -> None:
        self._state = state
        cells = (state.origin, state.signed, state.published)
        query = "UPDATE log SET origin = ?, signed = ?, published = ?, checksum = ?"
        self._connection.execute(query, (*cells, checksum(*cells)))

    def _store(self, level: int, number: int, hashes: bytes) -> None:
        self._connection.execute("INSERT INTO tiles (level, number, hashes) VALUES (?, ?, ?)", (level, number, hashes))

    def _load(self, level: int, number: int) -> bytes:
        query = "SELECT hashes FROM tiles WHERE level = ? AND number = ?"
        row = self._connection.execute(query, (level, number)).fetchone()
        return b"" if row is None else bytes(row[0])

    def _build(self) -> None:
        """Make the tree from the entries, and compare what is kept of it; an older file has nothing of it yet."""
        ((n_left,),) = self._connection.execute("SELECT count(*) FROM tiles").fetchall()
        is_new = n_left == 0

        def compare(level: int, number: int, hashes: bytes) -> None:
            nonlocal n_left
            if is_new:
                self._store(level, number, hashes)
                return
            n_left -= 1
            if n_left < 0 or self._load(level, number) != hashes:
                raise damaged("is damaged: its tree is not that of its entries")

        tree = Tree(compare, self._load)
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for (body,) in self._connection.execute("SELECT content FROM entries ORDER BY idx"):
                tree.append(hash_leaf(body))
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        if n_left and not is_new:
            raise damaged("is damaged: its tree is not that of its entries")
        self.tree.rewind(tree.mark())

    def _check_signed(self) -> None:
        """Compare the tree with the last checkpoint that was signed."""
        for checkpoint in (self.signed, self.published):
            if checkpoint is None:
                continue
            has_origin = checkpoint.origin == self._state.origin and checkpoint.size <= self.tree.size
            if not has_origin or checkpoint.root != self.tree.root(checkpoint.size):
                raise damaged(f"ends before entry {checkpoint.size}, or holds others than those that were signed")
