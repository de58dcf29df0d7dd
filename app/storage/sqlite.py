"""Databases of SQLite, as the journal and the ledger need them: one process, a write-ahead log, no traces of rows."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from oubli.app.errors import StartError
from oubli.app.storage.directory import UNOPENED, may_use

SIDE_FILES = ("-wal", "-shm", "-journal")


def create_database(path: Path, application_id: int, version: int, schema: str) -> None:
    """Write a database without rows, for its owner only; it is not flushed.

    Raises
    ------
    sqlite3.Error, OSError
        When it cannot be written.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute(f"PRAGMA application_id={application_id}")
        connection.execute(f"PRAGMA user_version={version}")
        connection.executescript(schema)
        connection.execute("PRAGMA journal_mode=WAL").fetchall()
    finally:
        connection.close()


def connect_database(path: Path, synchronous: str) -> sqlite3.Connection:
    """Open a database that is there, with its log; `lock_database` keeps other programs out.

    The connection may move between threads but belongs to one at a time. `synchronous` is that of the pragma.

    Raises
    ------
    sqlite3.Error
        When it cannot be opened, or is no database.
    """
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, check_same_thread=False
    )
    with closed_on_errors(connection):
        connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute("PRAGMA fullfsync=ON")  # where a plain flush stops in the disk's memory
        connection.execute("PRAGMA checkpoint_fullfsync=ON")
        connection.execute("PRAGMA secure_delete=ON").fetchall()
        connection.execute("PRAGMA temp_store=MEMORY")
    return connection


@contextlib.contextmanager
def closed_on_errors(connection: sqlite3.Connection) -> Iterator[None]:
    """Close a connection when the block fails."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


def format_of(connection: sqlite3.Connection, application_id: int, newest: int, what: str) -> int:
    """Return the format of a database; 0 when another program has written it.

    Raises
    ------
    StartError
        When the format is newer than the newest that this version reads; `what` names the file and its kind.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application == application_id and version > newest:
        raise StartError(
            f"{what} of format {version} was written by a newer version of Oubli (this version reads {newest}): start "
            "that version"
        )
    return int(version) if application == application_id else 0


def lock_database(connection: sqlite3.Connection) -> None:
    """Lock the file until the connection is closed, and make its log."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("COMMIT")


def refusal_of(error: Exception, path: Path, what: str) -> StartError | None:
    """Return the error for a database that cannot be opened; None when it is damaged."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StartError(f"{what} is in use: close the program that has it open")
    if code in UNOPENED or not may_use(path):
        return StartError(f"{what} cannot be opened for writing: check its permissions and the free disk space")
    return None
