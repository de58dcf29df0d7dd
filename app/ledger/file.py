"""The ledger's file: an SQLite database, and what has to hold when it is opened.

    entries      index, hash, and the RFC 8785 form that the hash is made of; never changed, never removed
    keyed        beside entries of erasures: keyed hashes of names, which no entry holds
    tiles        whole tiles of the tree over the entries; see `tree`
    log          origin of the log, the last checkpoint that was signed, and the last that was published
    receipts     each in its newest state, found by id, case number and targets
    signing_keys which were told, and in which entry
    idempotency  requests that may be repeated; they expire
    deliveries   states that somebody is to be told of, in the order in which they were reached
    requests     those of OpenDSR, without what identifies the person
    state        number of the last journal record that was taken in, and the highest time that was told
    model_states beside entries of states of the model: salt and digest until an erasure is finished, and the schema

Constraints refuse what is no hash, UUID or number. Each row has a checksum or a hash: at the opening all are compared,
so that a flipped bit is found before anything is answered.
"""

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from oubli.app.errors import FlushFailedError, StartError, StorageError
from oubli.app.ledger.entries import FIRST_PREVIOUS
from oubli.app.ledger.rows import (
    DELIVERY_COLUMNS,
    IDEMPOTENCY_COLUMNS,
    KEYED_COLUMNS,
    LOG_COLUMNS,
    MODEL_STATE_COLUMNS,
    RECEIPT_COLUMNS,
    REQUEST_COLUMNS,
    STATE_COLUMNS,
    checksum,
)
from oubli.app.storage.directory import flush_directory, flush_file

APPLICATION_ID = 0x4F75624C
FORMAT = 4
_FAILED_FLUSHES = frozenset({sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC})
_SIDE_FILES = ("-wal", "-shm", "-journal")
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
"""


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
    _make_tables(connection)
    return connection


def open_file(path: Path) -> sqlite3.Connection:
    """Open a ledger, made when there is none, and check all that it holds.

    Raises
    ------
    StartError
        When it cannot be used, or is damaged.
    """
    connection = None
    try:
        if not path.exists():
            _create(path)
        connection = _connect(path)
        _check(connection)
    except sqlite3.Error as error:
        _close(connection)
        raise _cannot_open(path, error) from None
    except OSError as error:
        raise StartError(f"the ledger {path} cannot be written ({error.strerror}): see to its directory") from None
    except BaseException:
        _close(connection)
        raise
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
        for suffix in _SIDE_FILES:
            name.with_name(name.name + suffix).unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(temporary, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={FORMAT}")
        _make_tables(connection)
        connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
        connection.execute("PRAGMA journal_mode=WAL").fetchall()
    finally:
        connection.close()
    flush_file(temporary)
    temporary.replace(path)
    flush_directory(path.parent)


def _make_tables(connection: sqlite3.Connection) -> None:
    connection.executescript(_SCHEMA + _SINCE_2 + _SINCE_3 + _SINCE_4)
    connection.execute("INSERT INTO state VALUES (1, 0, 0, ?)", (checksum(0, 0),))


def is_newer(path: Path) -> bool:
    """Whether a file is a ledger of a newer version; `False` also when it is none, or cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except OSError:
        return False
    application, version = int.from_bytes(head[68:72]), int.from_bytes(head[60:64])
    return application == APPLICATION_ID and version > FORMAT


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application == APPLICATION_ID and version > FORMAT:
            raise StartError(
                f"{path.name} was written by a newer version of Oubli (ledger format {version}, this version reads "
                f"{FORMAT}): start that version"
            )
        if application != APPLICATION_ID or not 1 <= version <= FORMAT:
            raise damaged("is not a ledger of Oubli")
        # The journal can be replayed: only what `flush` has seen must survive a loss of power.
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA fullfsync=ON")  # where a plain flush stops in the disk's memory
        connection.execute("PRAGMA checkpoint_fullfsync=ON")
        connection.execute("PRAGMA secure_delete=ON").fetchall()
        connection.execute("PRAGMA temp_store=MEMORY")
        # Locks the file: two programs would make two chains.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
        if version < FORMAT:
            missing = "".join((_SINCE_2, _SINCE_3, _SINCE_4)[version - 1 :])
            connection.executescript(f"BEGIN IMMEDIATE; {missing} PRAGMA user_version={FORMAT}; COMMIT;")
    except BaseException:
        connection.close()
        raise
    return connection


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
    for table, columns in (
        ("receipts", RECEIPT_COLUMNS),
        ("idempotency", IDEMPOTENCY_COLUMNS),
        ("deliveries", DELIVERY_COLUMNS),
        ("requests", REQUEST_COLUMNS),
        ("state", STATE_COLUMNS),
        ("keyed", KEYED_COLUMNS),
        ("log", LOG_COLUMNS),
        ("model_states", MODEL_STATE_COLUMNS),
    ):
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
        "backup; or, with a download of GET /ledger, remove ledger.sqlite and give the download with --ledger FILE"
    )


def _cannot_open(path: Path, error: sqlite3.Error) -> StartError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StartError(f"the ledger {path} is in use: close the program that has it open")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_FULL):
        return StartError(
            f"the ledger {path} cannot be opened for writing: see to its owner, its permissions and to room on the disk"
        )
    return damaged("is damaged")


def _close(connection: sqlite3.Connection | None) -> None:
    if connection is not None:
        with contextlib.suppress(sqlite3.Error):
            connection.close()
