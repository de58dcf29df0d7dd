"""What is read from and written to the tables of `ledger_file`; the SQL is here and only here."""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import astuple

import orjson

from oubli.app.ledger.entries import EMPTY, UNLEARNED, Entry, Head, IdempotencyRecord, Receipt, original_of
from oubli.app.ledger.file import IDEMPOTENCY_COLUMNS, RECEIPT_COLUMNS, STATE_COLUMNS, checksum

_AT_ONCE = 256  # rows that are read in one piece
_MODEL_VERSION = re.compile(rb'"model_version":([0-9]+)')
_HASHING_KEY = re.compile(rb'"hashing_key_id":"([0-9a-f]+)"')  # in the RFC 8785 form


def head(connection: sqlite3.Connection) -> Head:
    """Return the newest entry."""
    row = connection.execute("SELECT idx, hash FROM entries ORDER BY idx DESC LIMIT 1").fetchone()
    return EMPTY if row is None else Head(*row)


def state(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the number of the last journal record that was taken in, and the highest time that was told."""
    seq, witnessed_ms = connection.execute(f"SELECT {STATE_COLUMNS} FROM state").fetchone()  # noqa: S608 - ours
    return seq, witnessed_ms


def put_state(connection: sqlite3.Connection, seq: int, witnessed_ms: int) -> None:
    """Write down both."""
    query = "UPDATE state SET applied_seq = ?, witnessed_ms = ?, checksum = ?"
    connection.execute(query, (seq, witnessed_ms, checksum(seq, witnessed_ms)))


def flush(connection: sqlite3.Connection) -> None:
    """Bring everything to the disk."""
    row = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if row is not None and row[0]:
        raise sqlite3.OperationalError("the log could not be taken in")


# --- entries


def put_entry(connection: sqlite3.Connection, entry: Entry, body: bytes) -> None:
    """Write an entry."""
    connection.execute(
        "INSERT INTO entries (idx, hash, content) VALUES (?, ?, ?)", (entry["index"], entry["hash"], body)
    )


def hash_at(connection: sqlite3.Connection, index: int) -> str | None:
    """Return the hash of an entry; None when there is none."""
    row = connection.execute("SELECT hash FROM entries WHERE idx = ?", (index,)).fetchone()
    return None if row is None else str(row[0])


def entries(connection: sqlite3.Connection, after_index: int, limit: int) -> list[Entry]:
    """Return the entries after one, in order."""
    query = "SELECT hash, content FROM entries WHERE idx > ? ORDER BY idx LIMIT ?"
    return [_entry(*row) for row in connection.execute(query, (after_index, limit))]


def newest_first(connection: sqlite3.Connection) -> Iterator[Entry]:
    """Return all entries, the newest first."""
    last = head(connection).index + 1
    query = "SELECT hash, content FROM entries WHERE idx < ? ORDER BY idx DESC LIMIT ?"
    while last > 1:
        for row in connection.execute(query, (last, _AT_ONCE)).fetchall():
            yield _entry(*row)
        last -= _AT_ONCE


def of_type(connection: sqlite3.Connection, kind: str) -> Iterator[Entry]:
    """Return the entries of a type, and those that carry one over."""
    mark = b'"type":"%b"' % kind.encode("ascii")
    query = "SELECT hash, content FROM entries WHERE instr(content, ?) ORDER BY idx"
    for row in connection.execute(query, (mark,)):
        yield _entry(*row)


def erasures(connection: sqlite3.Connection) -> Iterator[Entry]:
    """Return the entries of erasures, as they were written first."""
    for entry in of_type(connection, UNLEARNED):
        original = original_of(entry)
        if original["type"] == UNLEARNED:
            yield original


def hashing_keys(connection: sqlite3.Connection) -> set[str]:
    """Return the ids of the hashing keys that entries name, whatever their type."""
    found: set[str] = set()
    for (content,) in connection.execute(
        "SELECT content FROM entries WHERE instr(content, ?)", (b'"hashing_key_id":',)
    ):
        found.update(name.decode("ascii") for name in _HASHING_KEY.findall(content))
    return found


def signing_keys(connection: sqlite3.Connection) -> set[str]:
    """Return the ids of the signing keys that entries have told."""
    return {name for (name,) in connection.execute("SELECT id FROM signing_keys")}


def last_model_version(connection: sqlite3.Connection) -> int:
    """Return the highest version that an entry tells."""
    highest = 0
    for (content,) in connection.execute("SELECT content FROM entries WHERE instr(content, ?)", (b'"model_version":',)):
        highest = max(highest, *map(int, _MODEL_VERSION.findall(content)))
    return highest


def count_of_type(connection: sqlite3.Connection, kind: str) -> int:
    """Return how many entries are of a type, or carry one over."""
    mark = b'"type":"%b"' % kind.encode("ascii")
    (count,) = connection.execute("SELECT count(*) FROM entries WHERE instr(content, ?)", (mark,)).fetchone()
    return int(count)


def put_signing_key(connection: sqlite3.Connection, key_id: str, index: int) -> None:
    """Note that an entry has told a signing key."""
    connection.execute("INSERT INTO signing_keys (id, idx) VALUES (?, ?) ON CONFLICT (id) DO NOTHING", (key_id, index))


def knows_signing_key(connection: sqlite3.Connection, key_id: str) -> bool:
    """Whether an entry has told a signing key."""
    return connection.execute("SELECT 1 FROM signing_keys WHERE id = ?", (key_id,)).fetchone() is not None


def _entry(known: str, body: bytes) -> Entry:
    entry: Entry = orjson.loads(body)
    entry["hash"] = known
    return entry


# --- receipts


def put_receipt(connection: sqlite3.Connection, receipt: Receipt, targets: str, seq: int) -> None:
    """Write a new receipt; one that is there stays as it is."""
    cells = _receipt_cells(receipt, targets, seq)
    connection.execute(
        f"INSERT INTO receipts ({RECEIPT_COLUMNS}, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "  # noqa: S608 - ours
        "ON CONFLICT (id) DO NOTHING",
        (*cells, checksum(*cells)),
    )


def update_receipt(connection: sqlite3.Connection, receipt: Receipt) -> None:
    """Write a receipt's next state."""
    query = "SELECT targets, seq FROM receipts WHERE id = ?"
    cells = _receipt_cells(receipt, *connection.execute(query, (receipt.id,)).fetchone())
    connection.execute(
        "UPDATE receipts SET status = ?, content = ?, checksum = ? WHERE id = ?",
        (receipt.status, cells[-1], checksum(*cells), receipt.id),
    )


def receipt(connection: sqlite3.Connection, receipt_id: str) -> Receipt | None:
    """Return a receipt."""
    return _one(connection.execute("SELECT content FROM receipts WHERE id = ?", (receipt_id,)).fetchone())


def receipts_of(connection: sqlite3.Connection, ref: str) -> list[Receipt]:
    """Return the receipts of a case number, the oldest first."""
    found = connection.execute("SELECT content FROM receipts WHERE ref = ? ORDER BY number", (ref,))
    return [_receipt(content) for (content,) in found]


def last_receipt_of(connection: sqlite3.Connection, targets: Sequence[str], kinds: Sequence[str]) -> Receipt | None:
    """Return the newest receipt of some kinds that found something under one of the hashes of its targets."""
    query = (
        f"SELECT content FROM receipts WHERE targets IN ({_marks(targets)}) AND kind IN ({_marks(kinds)}) "  # noqa: S608 - marks only
        "AND n_samples > 0 ORDER BY number DESC LIMIT 1"
    )
    return _one(connection.execute(query, (*targets, *kinds)).fetchone())


def waiting(connection: sqlite3.Connection) -> list[tuple[Receipt, int]]:
    """Return the receipts that are not erased with the numbers of their journal records, the oldest first."""
    found = connection.execute("SELECT content, seq FROM receipts WHERE status = 'unlearned' ORDER BY number")
    return [(_receipt(content), seq) for content, seq in found]


def _receipt_cells(receipt: Receipt, targets: str, seq: int) -> tuple[str | int | bytes | None, ...]:
    content = orjson.dumps(receipt.content())
    return (receipt.id, receipt.ref, receipt.kind, receipt.status, targets, receipt.unlearned, seq, content)


def _one(row: tuple[bytes] | None) -> Receipt | None:
    return None if row is None else _receipt(row[0])


def _receipt(content: bytes) -> Receipt:
    return Receipt.from_content(orjson.loads(content))


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


# --- repeated requests


def put_repeatable(connection: sqlite3.Connection, record: IdempotencyRecord) -> None:
    """Write a request that may be repeated."""
    cells = astuple(record)
    connection.execute(
        f"INSERT OR REPLACE INTO idempotency ({IDEMPOTENCY_COLUMNS}, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - ours
        (*cells, checksum(*cells)),
    )


def forget_repeatable(connection: sqlite3.Connection, now_ms: int) -> None:
    """Forget requests whose time is over."""
    connection.execute("DELETE FROM idempotency WHERE expires_ms <= ?", (now_ms,))


def repeatable(connection: sqlite3.Connection, key: str) -> IdempotencyRecord | None:
    """Return what is known of a repeated request."""
    query = f"SELECT {IDEMPOTENCY_COLUMNS} FROM idempotency WHERE key = ?"  # noqa: S608 - ours
    row = connection.execute(query, (key,)).fetchone()
    return None if row is None else IdempotencyRecord(*row)
