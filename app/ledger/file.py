"""The ledger's file: an SQLite database, the checks when it is opened, and the checksums of its rows.

    entries      index, hash, and the RFC 8785 form that is hashed; never changed, never removed
    keyed        beside entries of erasures: keyed hashes of names, which no entry holds
    tiles        whole tiles of the tree over the entries; see `tree`
    log          origin of the log, the last checkpoint that was signed, and the last that was published
    receipts     each in its newest state, found by id, case number and targets
    signing_keys which were told, and in which entry
    idempotency  requests that may be repeated; they expire
    named        beside them: short keyed hashes of the ids and subjects in their bodies, until one of them is erased
    deliveries   states to deliver to targets, in the order in which they were reached
    requests     those of OpenDSR, without what identifies the person
    state        number of the last journal record that was applied, and the highest time that was written
    model_states beside entries of states of the model: salt and digest until an erasure is finished, and the schema

Constraints refuse what is no hash, UUID or number. Each row has a checksum or a hash; all are compared when the file is
opened, so a flipped bit is found before anything is answered.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from oubli.app.errors import FlushFailedError, StartError, StorageError
from oubli.app.ledger.entries import FIRST_PREVIOUS
from oubli.app.storage.directory import flush_directory, flush_file
from oubli.app.storage.sqlite import (
    SIDE_FILES,
    closed_on_errors,
    connect_database,
    create_database,
    format_of,
    lock_database,
    refusal_of,
)

_CHECKSUM_BYTES = 16
# Of the tables whose rows have a checksum of these columns.
COLUMNS = {
    "receipts": "id, ref, kind, status, targets, n_samples, seq, content",
    "idempotency": "key, body, expires_ms, model_version, n_samples, n_new, first_id, receipt",
    "named": "name, key",
    "deliveries": "target, subject, ref, state, status, reason, at_ms",
    "requests": "id, kind, regulation, body, received_ms, callbacks, receipt, state",
    "state": "applied_seq, witnessed_ms",
    "keyed": "idx, receipt, hashes",
    "log": "origin, signed, published",
    "model_states": "idx, model_version, salt, digest, schema",
}

Cell = str | int | bytes | None


def checksum(*cells: Cell) -> bytes:
    """Return the checksum of a row."""
    digest = hashlib.sha256()
    digest.update(orjson.dumps([cell for cell in cells if not isinstance(cell, bytes)]))
    for cell in cells:
        if isinstance(cell, bytes):
            digest.update(cell)
    return digest.digest()[:_CHECKSUM_BYTES]


def insert(
    connection: sqlite3.Connection, table: str, cells: Sequence[Cell], *, instead: str = "", then: str = ""
) -> None:
    """Write a row with its checksum; `instead` (as in `OR IGNORE`) and `then` are for a row that is there."""
    marks = ", ".join("?" * (len(cells) + 1))
    query = f"INSERT {instead} INTO {table} ({COLUMNS[table]}, checksum) VALUES ({marks}) {then}"  # noqa: S608 - ours
    connection.execute(query, (*cells, checksum(*cells)))


def replace_only(connection: sqlite3.Connection, table: str, cells: Sequence[Cell]) -> None:
    """Replace the cells of the one row of a table."""
    marks = ", ".join("?" * (len(cells) + 1))
    query = f"UPDATE {table} SET ({COLUMNS[table]}, checksum) = ({marks})"  # noqa: S608 - ours
    connection.execute(query, (*cells, checksum(*cells)))


APPLICATION_ID = 0x4F75624C
FORMAT = 5
_FAILED_FLUSHES = frozenset({sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC})
_UUID = "length({0}) = 36 AND {0} NOT GLOB '*[^0-9a-f-]*'"
_HASH = "length({0}) BETWEEN 16 AND 64 AND {0} NOT GLOB '*[^0-9a-f]*'"
_NUMBER = "typeof({0}) = 'integer'"
_BYTES = "typeof({0}) = 'blob'"
# Format 1 has no such tables.
_SINCE_2 = f"""
CREATE TABLE deliveries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given out again: couriers read on from the last
    target TEXT NOT NULL,
    subject TEXT NOT NULL CHECK ({_UUID.format("subject")}),
    ref TEXT CHECK (ref IS NULL OR {_UUID.format("ref")}),
    state TEXT NOT NULL CHECK (state IN ('unlearned', 'overdue', 'erased', 'in_progress', 'completed', 'cancelled')),
    status TEXT NOT NULL CHECK (status IN ('due', 'dead', 'settled')),
    reason TEXT NOT NULL CHECK (reason NOT GLOB '*[^a-z0-9-]*'),
    at_ms INTEGER NOT NULL CHECK ({_NUMBER.format("at_ms")}),
    checksum BLOB NOT NULL CHECK ({_BYTES.format("checksum")}),
    UNIQUE (target, subject, state)
);
CREATE INDEX deliveries_due ON deliveries (target, number) WHERE status = 'due';
CREATE INDEX deliveries_dead ON deliveries (number, target) WHERE status = 'dead';
CREATE TABLE requests (
    id TEXT PRIMARY KEY CHECK ({_UUID.format("id")}),
    kind TEXT NOT NULL CHECK (kind IN ('erasure', 'access', 'portability')),
    regulation TEXT NOT NULL CHECK (regulation IN ('gdpr', 'ccpa')),
    body TEXT NOT NULL CHECK ({_HASH.format("body")}),
    received_ms INTEGER NOT NULL CHECK ({_NUMBER.format("received_ms")}),
    callbacks TEXT NOT NULL,
    receipt TEXT CHECK (receipt IS NULL OR {_UUID.format("receipt")}),
    state TEXT NOT NULL CHECK (state IN ('open', 'completed', 'cancelled')),
    checksum BLOB NOT NULL CHECK ({_BYTES.format("checksum")})
);
CREATE INDEX requests_by_receipt ON requests (receipt) WHERE receipt IS NOT NULL;
"""
# Formats 1 and 2 have no such tables. Tiles have no checksum: they are compared with the entries.
_SINCE_3 = f"""
CREATE TABLE keyed (
    idx INTEGER PRIMARY KEY,
    receipt TEXT NOT NULL UNIQUE CHECK ({_UUID.format("receipt")}),
    hashes BLOB NOT NULL CHECK ({_BYTES.format("hashes")}),
    checksum BLOB NOT NULL CHECK ({_BYTES.format("checksum")})
);
CREATE TABLE tiles (
    level INTEGER NOT NULL,
    number INTEGER NOT NULL,
    hashes BLOB NOT NULL CHECK ({_BYTES.format("hashes")}),
    PRIMARY KEY (level, number)
);
CREATE TABLE log (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    origin TEXT,
    signed TEXT,
    published TEXT,
    checksum BLOB NOT NULL CHECK ({_BYTES.format("checksum")})
);
INSERT INTO log VALUES (1, NULL, NULL, NULL, x'{checksum(None, None, None).hex()}');
"""  # noqa: S608 - ours
# Formats 1 to 3 have no such table.
_SINCE_4 = f"""
CREATE TABLE model_states (
    idx INTEGER PRIMARY KEY,
    model_version INTEGER NOT NULL CHECK ({_NUMBER.format("model_version")}),
    salt TEXT CHECK (salt IS NULL OR {_HASH.format("salt")}),
    digest TEXT CHECK (digest IS NULL OR {_HASH.format("digest")}),
    schema TEXT,
    checksum BLOB NOT NULL CHECK ({_BYTES.format("checksum")})
);
CREATE INDEX model_states_by_version ON model_states (model_version);
"""
# Formats 1 to 4 have no such table, and say nothing of what the bodies of their requests held.
_SINCE_5 = f"""
CREATE TABLE named (
    name TEXT NOT NULL CHECK ({_HASH.format("name")}),
    key TEXT NOT NULL CHECK ({_HASH.format("key")}),
    checksum BLOB NOT NULL CHECK ({_BYTES.format("checksum")}),
    PRIMARY KEY (name, key)
) WITHOUT ROWID;
CREATE INDEX named_by_key ON named (key);
DELETE FROM idempotency;
"""  # noqa: S608 - ours
_SCHEMA = f"""
CREATE TABLE entries (
    idx INTEGER PRIMARY KEY,
    hash TEXT NOT NULL CHECK ({_HASH.format("hash")}),
    content BLOB NOT NULL CHECK ({_BYTES.format("content")})
);
CREATE TABLE receipts (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE CHECK ({_UUID.format("id")}),
    ref TEXT CHECK (ref IS NULL OR {_UUID.format("ref")}),
    kind TEXT NOT NULL CHECK (kind IN ('deletion', 'rectification', 'expiry', 'restore')),
    status TEXT NOT NULL CHECK (status IN ('unlearned', 'erased')),
    targets TEXT NOT NULL CHECK ({_HASH.format("targets")}),
    n_samples INTEGER NOT NULL CHECK ({_NUMBER.format("n_samples")}),
    seq INTEGER NOT NULL CHECK ({_NUMBER.format("seq")}),
    content BLOB NOT NULL CHECK ({_BYTES.format("content")}),
    checksum BLOB NOT NULL CHECK ({_BYTES.format("checksum")})
);
CREATE INDEX receipts_by_ref ON receipts (ref) WHERE ref IS NOT NULL;
CREATE INDEX receipts_by_targets ON receipts (targets);
CREATE INDEX receipts_waiting ON receipts (number) WHERE status = 'unlearned';
CREATE TABLE signing_keys (
    id TEXT PRIMARY KEY CHECK ({_HASH.format("id")}),
    idx INTEGER NOT NULL CHECK ({_NUMBER.format("idx")})
);
CREATE TABLE idempotency (
    key TEXT PRIMARY KEY CHECK ({_HASH.format("key")}),
    body TEXT NOT NULL CHECK ({_HASH.format("body")}),
    expires_ms INTEGER NOT NULL CHECK ({_NUMBER.format("expires_ms")}),
    model_version INTEGER NOT NULL CHECK ({_NUMBER.format("model_version")}),
    n_samples INTEGER NOT NULL CHECK ({_NUMBER.format("n_samples")}),
    n_new INTEGER NOT NULL CHECK ({_NUMBER.format("n_new")}),
    first_id INTEGER CHECK (first_id IS NULL OR {_NUMBER.format("first_id")}),
    receipt TEXT CHECK (receipt IS NULL OR {_UUID.format("receipt")}),
    checksum BLOB NOT NULL CHECK ({_BYTES.format("checksum")})
);
CREATE INDEX idempotency_by_expiry ON idempotency (expires_ms);
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    applied_seq INTEGER NOT NULL CHECK ({_NUMBER.format("applied_seq")}),
    witnessed_ms INTEGER NOT NULL CHECK ({_NUMBER.format("witnessed_ms")}),
    checksum BLOB NOT NULL CHECK ({_BYTES.format("checksum")})
);
INSERT INTO state VALUES (1, 0, 0, x'{checksum(0, 0).hex()}');
"""  # noqa: S608 - ours
_TABLES = _SCHEMA + _SINCE_2 + _SINCE_3 + _SINCE_4 + _SINCE_5


# Entries of erasures that say what they are about by roots alone, and have nothing beside them.
_WITHOUT_KEYED = (
    "SELECT 1 FROM entries LEFT JOIN keyed USING (idx) "
    "WHERE keyed.idx IS NULL AND instr(content, CAST('\"targets_root\":' AS BLOB)) LIMIT 1"
)


class LedgerDamagedError(StartError):
    """The ledger's file is not what was written; the text says what to do."""


def open_memory() -> sqlite3.Connection:
    """Return a ledger that is kept nowhere."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript(_TABLES)
    return connection


def open_file(path: Path) -> sqlite3.Connection:
    """Open a ledger, made when there is none, and check all that it holds.

    Raises
    ------
    StartError
        When it cannot be used, or is damaged.
    """
    try:
        if not path.exists():
            _create(path)
        # The journal can be replayed: only what `flush` has seen must survive a loss of power.
        connection = connect_database(path, "NORMAL")
        with closed_on_errors(connection):
            _upgrade(connection, path.name)
            _check(connection)
    except sqlite3.Error as error:
        raise refusal_of(error, path, f"the ledger {path}") or damaged("is damaged") from None
    except OSError as error:
        raise StartError(
            f"the ledger {path} cannot be written ({error.strerror}): check the permissions of its directory"
        ) from None
    return connection


@contextlib.contextmanager
def file_errors() -> Iterator[None]:
    """Turn SQLite's errors into `StorageError`; their texts may hold paths and values, so they are dropped."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) in _FAILED_FLUSHES:
            raise FlushFailedError("a flush of the ledger's file failed") from None
        raise StorageError("the ledger's file cannot be read or written") from None


def _create(path: Path) -> None:
    """Make an empty ledger, on the disk when this returns."""
    temporary = path.with_name(f".{path.name}.tmp")
    # A log that is left of an earlier ledger would be taken for that of the new one.
    for name in (temporary, path):
        for suffix in SIDE_FILES:
            name.with_name(name.name + suffix).unlink(missing_ok=True)
    create_database(temporary, APPLICATION_ID, FORMAT, _TABLES)
    flush_file(temporary)
    temporary.replace(path)
    flush_directory(path.parent)


def is_newer(path: Path) -> bool:
    """Whether a file is a ledger of a newer version; `False` also when it is none, or cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except OSError:
        return False
    application, version = int.from_bytes(head[68:72]), int.from_bytes(head[60:64])
    return application == APPLICATION_ID and version > FORMAT


def _upgrade(connection: sqlite3.Connection, name: str) -> None:
    """Lock a ledger, and bring it to this version's format."""
    version = format_of(connection, APPLICATION_ID, FORMAT, f"{name}, a ledger")
    if version < 1:
        raise damaged("is not a ledger of Oubli")
    lock_database(connection)  # two programs would make two chains
    if version < FORMAT:
        missing = "".join((_SINCE_2, _SINCE_3, _SINCE_4, _SINCE_5)[version - 1 :])
        connection.executescript(f"BEGIN IMMEDIATE; {missing} PRAGMA user_version={FORMAT}; COMMIT;")


def _check(connection: sqlite3.Connection) -> None:
    """Check every page, every entry, every receipt."""
    with contextlib.closing(open_memory()) as sound:
        if _schema_of(connection) != _schema_of(sound):
            raise damaged("is damaged")
    if connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
        raise damaged("is damaged")
    previous, last = FIRST_PREVIOUS, 0
    for index, known, content in connection.execute("SELECT idx, hash, content FROM entries ORDER BY idx"):
        follows = b'"previous":"%b"' % previous.encode("ascii") in content
        if index != last + 1 or not follows or hashlib.sha256(content).hexdigest() != known:
            raise damaged(f"is damaged at entry {last + 1}")
        previous, last = known, index
    for table, columns in COLUMNS.items():
        n_rows = 0
        for *cells, known in connection.execute(f"SELECT {columns}, checksum FROM {table}"):  # noqa: S608 - ours
            n_rows += 1
            if checksum(*cells) != known:
                raise damaged("is damaged: a receipt or another row was changed")
        if table in ("state", "log") and n_rows != 1:
            raise damaged("is damaged")
    if connection.execute(_WITHOUT_KEYED).fetchone() is not None:
        raise damaged("is damaged: the keyed hashes of an erasure are missing")


def _schema_of(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


def damaged(how: str) -> LedgerDamagedError:
    """Return what is raised when the file is not what was written."""
    return LedgerDamagedError(
        f"the ledger (ledger.sqlite in the data directory) {how}: restore all files of the data directory from one "
        "backup, or remove ledger.sqlite and give a file of `oubli ledger fetch` with --ledger FILE"
    )


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
