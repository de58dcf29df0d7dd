"""One file of the journal: an SQLite database with one table.

    header    application_id says whose it is, user_version the format
    records   seq (the key), version, at (milliseconds since 1970), body, notes, checksum (over all of them)

A segment gets its name when it is whole, so that a file with that name is either sound or damaged, never unfinished.
It is locked by the process that has it open; that spares the shared-memory file beside it.
"""

import contextlib
import hashlib
import os
import re
import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from oubli.app.errors import JournalDamagedError, StartError
from oubli.app.storage.directory import FlushError, flush_directory, flush_file, opened_directory
from oubli.app.storage.journal import Record

APPLICATION_ID = 0x4F75626C
FORMAT = 1
SIDE_FILES = ("-wal", "-shm", "-journal")
RESTORE = "restore all files of the data directory from one backup"

_NAME = re.compile(r"journal-(\d{12,})\.sqlite")
_SCHEMA = (
    "CREATE TABLE records (seq INTEGER PRIMARY KEY, version INTEGER NOT NULL, at INTEGER NOT NULL, "
    "body BLOB NOT NULL, notes BLOB NOT NULL, checksum BLOB NOT NULL)"
)
_INSERT = "INSERT INTO records (seq, version, at, body, notes, checksum) VALUES (?, ?, ?, ?, ?, ?)"
_SELECT = "SELECT seq, version, at, body, notes, checksum FROM records WHERE seq > ? ORDER BY seq LIMIT ?"
_AT_ONCE = 64  # rows that are read in one piece; bodies can be long
_FACTS = struct.Struct("<qqqQ")
_DIGEST_BYTES = 16

# In a damaged file SQLite's messages can quote names that are no text.
_UNREADABLE = (sqlite3.Error, UnicodeError)

Row = tuple[int, int, int, bytes, bytes, bytes]


class Segment:
    """An open segment; use `create` or `open`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.first_seq = number_of(path)
        self._connection = connection

    @classmethod
    def create(cls, directory: Path, first_seq: int) -> "Segment":
        """Make a new segment, on the disk when this returns.

        Raises
        ------
        sqlite3.Error, OSError
            When that fails; the segment is not there then.
        FlushError
            When a flush fails, or removing the segment as well: it may be there then.
        """
        path = directory / f"journal-{first_seq:012d}.sqlite"
        temporary = directory / f".{path.name}.tmp"
        # Open from the beginning: what is removed after a lack of descriptors must be flushed all the same.
        with opened_directory(directory) as flush:
            try:
                remove(temporary)  # of an earlier attempt
                _build(temporary)
                flush_file(temporary)
                temporary.rename(path)
                flush()
                return cls(path, _connect(path, flush))
            except (sqlite3.Error, OSError):
                with contextlib.suppress(OSError):  # nobody reads it
                    remove(temporary)
                if path.exists():
                    # Left there it would hide what goes to the segment before it from now on.
                    try:
                        remove(path)
                        flush()
                    except OSError as error:
                        raise FlushError(error.errno, error.strerror) from None
                raise

    @classmethod
    def open(cls, path: Path) -> "Segment":
        """Open a segment that is there; SQLite finishes or undoes what a killed process has begun.

        Raises
        ------
        JournalDamagedError
            When it is no sound segment.
        StartError
            When it cannot be opened, or is of a newer format.
        """
        with contextlib.ExitStack() as opened:
            try:
                connection = _connect(path, partial(flush_directory, path.parent))
                opened.callback(connection.close)
                _require_readable(path, connection)
            except _UNREADABLE as error:
                raise _cannot_open(path, error) from None
            opened.pop_all()
        return cls(path, connection)

    def reopened(self) -> "Segment":
        """Close the segment and open it anew, without what was begun and not committed.

        Raises
        ------
        sqlite3.Error, OSError
            When it cannot be opened; it can be tried again.
        """
        self.close()
        return Segment(self.path, _connect(self.path, partial(flush_directory, self.path.parent)))

    def append(self, rows: Sequence[Row]) -> None:
        """Write rows, on the disk when this returns.

        Raises
        ------
        sqlite3.Error
            When that fails; what was begun is rolled back as far as the disk lets it.
        """
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_INSERT, rows)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def last_seq(self) -> int:
        """Return the number of the last record, or of the one before the segment when it is empty.

        Raises
        ------
        sqlite3.Error
            When it cannot be read.
        """
        (last,) = self._connection.execute("SELECT max(seq) FROM records").fetchone()
        return self.first_seq - 1 if last is None else int(last)

    def summary(self) -> tuple[int, int, float | None, int]:
        """Return how many records and bytes the segment holds, when its first was written, and its last's number.

        Raises
        ------
        JournalDamagedError
            When it cannot be read.
        """
        try:
            n_records, n_bytes, oldest = self._connection.execute(
                "SELECT count(*), coalesce(sum(length(body) + length(notes)), 0), min(at) FROM records"
            ).fetchone()
            return n_records, int(n_bytes), None if oldest is None else oldest / 1000, self.last_seq()
        except (*_UNREADABLE, TypeError, ValueError):
            raise JournalDamagedError(f"{self.path.name} in the data directory is damaged: {RESTORE}") from None

    def read(self, after_seq: int) -> Iterator[Record]:
        """Return the records with higher numbers, each as it was written.

        Raises
        ------
        JournalDamagedError
            When one is not, or is missing.
        """
        last = max(after_seq, self.first_seq - 1)
        while True:
            try:
                rows = self._connection.execute(_SELECT, (last, _AT_ONCE)).fetchall()
            except _UNREADABLE:
                raise damaged(self.path, last + 1) from None
            for row in rows:
                if row[0] != last + 1 or not _is_sound(row):
                    raise damaged(self.path, last + 1)
                last += 1
                yield Record(row[0], row[1], row[3], row[4])
            if len(rows) < _AT_ONCE:
                return

    def fold_log(self, *, truncate: bool) -> None:
        """Take what is in the log (the -wal file) into the database, so that the log begins anew.

        Parameters
        ----------
        truncate
            Whether to empty the file as well; otherwise its room is used again, which is faster.

        Raises
        ------
        sqlite3.Error
            When that fails; nothing is lost.
        """
        self._connection.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if truncate else 'PASSIVE'})").fetchall()

    def close(self) -> None:
        """Close the files; the log is taken into the database if that is possible."""
        self._connection.close()


def number_of(path: Path) -> int:
    """Return the number of the first record of a segment."""
    return int(path.stem.removeprefix("journal-"))


def segments_in(directory: Path) -> list[Path]:
    """Return the segments of a directory, oldest first."""
    return sorted((path for path in directory.iterdir() if _NAME.fullmatch(path.name)), key=number_of)


def remove(path: Path) -> None:
    """Remove a segment, the database first: without it, what a crash leaves is known to be of no use."""
    path.unlink(missing_ok=True)
    for suffix in SIDE_FILES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def remove_leftovers(directory: Path) -> None:
    """Remove what a killed process left unfinished: unnamed segments, and side files without their segment."""
    paths = list(directory.glob(".journal-*"))
    for suffix in SIDE_FILES:
        sides = directory.glob(f"journal-*.sqlite{suffix}")
        paths.extend(path for path in sides if not path.with_name(path.name.removesuffix(suffix)).exists())
    for path in paths:
        path.unlink(missing_ok=True)
    if paths:
        flush_directory(directory)


def rows_of(records: Sequence[Record], last_seq: int, at_ms: int) -> list[Row]:
    """Return the rows of records that go on after a number; other numbers are a mistake that would lose records."""
    rows = []
    for expected, record in enumerate(records, last_seq + 1):
        seq, version, body, notes = record.seq, record.version, record.body, record.notes
        if seq != expected:
            raise ValueError(f"record {seq} was given where {expected} is next")
        rows.append((seq, version, at_ms, body, notes, _checksum(seq, version, at_ms, body, notes)))
    return rows


def damaged(path: Path, seq: int) -> JournalDamagedError:
    """Return the error that says which record is not what was written."""
    return JournalDamagedError(
        f"record {seq} of the journal, in {path.name}, is damaged or missing, and it is in no snapshot that can be "
        f"read: {RESTORE}"
    )


def _checksum(seq: int, version: int, at_ms: int, body: bytes, notes: bytes) -> bytes:
    digest = hashlib.sha256(_FACTS.pack(seq, version, at_ms, len(body)))
    digest.update(body)
    digest.update(notes)
    return digest.digest()[:_DIGEST_BYTES]


def _is_sound(row: tuple[object, ...]) -> bool:
    """Whether a row is what was written; in a damaged file anything may be in it."""
    seq, version, at_ms, body, notes, checksum = row
    if not (isinstance(seq, int) and isinstance(version, int) and isinstance(at_ms, int)):
        return False
    if not (isinstance(body, bytes) and isinstance(notes, bytes)):
        return False
    return _checksum(seq, version, at_ms, body, notes) == checksum


def _build(path: Path) -> None:
    """Write an empty segment, not flushed."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={FORMAT}")
        connection.execute(_SCHEMA)
        connection.execute("PRAGMA journal_mode=WAL").fetchall()
    finally:
        connection.close()


def _connect(path: Path, flush: Callable[[], None]) -> sqlite3.Connection:
    """Open a database that is there, with its log.

    The connection may move between threads but belongs to one at a time: it is opened where the service starts, and
    used by the one that writes.
    """
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, check_same_thread=False
    )
    try:
        connection.text_factory = bytes  # a damaged row may say that it holds text
        connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA fullfsync=ON")  # where a plain flush stops in the disk's memory
        connection.execute("PRAGMA checkpoint_fullfsync=ON")
        connection.execute("PRAGMA secure_delete=ON").fetchall()
        connection.execute("PRAGMA temp_store=MEMORY")
        # Its errors would be passed over; see `fold_log`.
        connection.execute("PRAGMA wal_autocheckpoint=0").fetchall()
        # Locks the file and makes the log, whose name has to be on the disk before the first commit is.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
        flush()
    except BaseException:
        connection.close()
        raise
    return connection


def _require_readable(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a database that is no segment, or one of a later format."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if application == APPLICATION_ID and version > FORMAT:
        raise StartError(
            f"{path.name} in the data directory was written by a newer version of Oubli (journal format {version}, "
            f"this version reads {FORMAT}): start that version"
        )
    if application != APPLICATION_ID or version != FORMAT or mode != b"wal":
        raise JournalDamagedError(f"{path.name} in the data directory is not a journal of Oubli: {RESTORE}")


def _cannot_open(path: Path, error: Exception) -> StartError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StartError(f"{path.name} in the data directory is in use: close the program that has it open")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_FULL):
        return StartError(
            f"{path.name} in the data directory cannot be opened for writing: see to its owner, its permissions and "
            "to room on the disk"
        )
    return JournalDamagedError(f"{path.name} in the data directory is damaged: {RESTORE}")
