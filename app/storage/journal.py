"""The journal: what the service needs of one, and the default, in SQLite files; the package's docstring draws these.

    append   durable when it returns, all records or none
    refused  JournalFullError: nothing of the batch is there, later ones may fit
             NoDescriptorsError: the same, because no file could be opened
             JournalRefusedError: the same, because a write failed before anything was flushed
    failed   JournalError: the disk's state is not known, and nothing is written any more

A restart reads what is there. Nothing is tried again after a failed flush, because the state of the disk is unknown. A
full disk, and a failed read or write, are different: the batch is refused before any flush and rolled back, and the
next one may be written. After an error other than a full disk the segment is opened again first, and must hold exactly
what was acknowledged.

A segment is an SQLite database with one table:

    header    application_id says whose it is, user_version the format
    records   seq (the key), version, at (milliseconds since 1970), body, notes, checksum (over all of them)

It gets its name when it is whole, so that a file with that name is either sound or damaged, never unfinished. It is
locked by the process that has it open; that spares the shared-memory file beside it.

`move_journal` hands the records to another journal and then removes the files. It can be killed at any step: as long as
a segment is there, it holds what the other journal does not have yet.
"""

import contextlib
import hashlib
import itertools
import os
import re
import sqlite3
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from oubli.app.errors import (
    JournalDamagedError,
    JournalError,
    JournalFullError,
    JournalRefusedError,
    NoDescriptorsError,
    StartError,
)
from oubli.app.storage.directory import (
    FlushError,
    flush_directory,
    flush_file,
    flushed,
    is_unopened,
    lacks_descriptors,
    opened_directory,
)
from oubli.app.storage.reserve import RESERVE_BYTES, RESERVE_NAME, Reserve, is_no_room, lacks_room, probe_room
from oubli.app.storage.sqlite import (
    SIDE_FILES,
    closed_on_errors,
    connect_database,
    create_database,
    format_of,
    lock_database,
    refusal_of,
)

APPLICATION_ID = 0x4F75626C
FORMAT = 1
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

MARK_NAME = "journal-mark"
# The log grows by the pages that each commit changes, mostly one of 4 KiB. Taken in every so often, it stays in the
# same few blocks of the disk, and a restart has little to read.
_LOG_BYTES = 4 * 2**20
_COMMIT_BYTES = 2 * 4096
# SQLite tells a failed flush by codes of its own. What it cannot tell apart is taken for one.
_BEFORE_FLUSH = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_IOERR_DELETE,
        sqlite3.SQLITE_IOERR_DELETE_NOENT,
        sqlite3.SQLITE_IOERR_FSTAT,
        sqlite3.SQLITE_IOERR_NOMEM,
        sqlite3.SQLITE_IOERR_READ,
        sqlite3.SQLITE_IOERR_SHORT_READ,
        sqlite3.SQLITE_IOERR_TRUNCATE,
        sqlite3.SQLITE_IOERR_WRITE,
    }
)
_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Record:
    """One change.

    Attributes
    ----------
    seq
        1, 2, 3, ... without a gap.
    version
        The model's version after it.
    body
        What to do again, as `oubli.app.service.changes.command` reads it; empty when no sample changes.
    notes
        What the ledger has to note, without personal data; empty when there is nothing.
    """

    seq: int
    version: int
    body: bytes
    notes: bytes


class Journal:
    """Keeps records until the snapshots have them. This one keeps nothing: it counts records and forgets them.

    All methods belong to one thread at a time; the attributes may be read from any.

    Attributes
    ----------
    is_durable
        Whether records survive the process.
    failed
        Whether the state of the disk is in doubt; once true it stays true.
    n_records
        Number of records since the newest rotation.
    n_bytes
        Bytes of bodies and notes since the newest rotation.
    oldest_at
        When the first record since the newest rotation was written, in seconds since 1970; None without one.
    first_seq
        Number with which the oldest segment begins; None when nothing is kept.
    last_seq
        Number of the newest record, or of the one before the newest segment when that is empty.
    """

    is_durable = False

    def __init__(self) -> None:
        self.failed = False
        self.first_seq: int | None = None
        self.last_seq = 0
        self.n_records = 0
        self.n_bytes = 0
        self.oldest_at: float | None = None

    def append(self, records: Sequence[Record], *, reserve: bool = False) -> None:
        """Write records; they are durable when this returns.

        Parameters
        ----------
        records
            Numbered from `last_seq` + 1 on.
        reserve
            Whether they may use the room that is kept for erasures.

        Raises
        ------
        JournalFullError
            When there is no room; none of them is in the journal.
        JournalError
            When it is not known whether they are; or the journal has failed before.
        """
        del reserve
        self._require_next(records)
        self._count(records, time.time())

    def probe(self) -> None:
        """Return when records that may not use the kept room would find room now.

        Raises
        ------
        JournalError
            As `append` does.
        """

    def rotate(self, first_seq: int) -> None:
        """Begin a new segment with a record that is still to come; the numbers up to it are used up.

        Raises
        ------
        JournalError
            As `append` does; the segment in use stays.
        """
        self._require_later(first_seq)
        self._count_from(first_seq)

    def records(self, after_seq: int) -> Iterator[Record]:
        """Return all records with higher numbers, in order.

        Raises
        ------
        JournalDamagedError
            While iterating, when one is missing or not what was written.
        """
        del after_seq
        return iter(())

    def drop_before(self, seq: int, *, erases: bool = True) -> None:
        """Remove the segments that only hold records with lower numbers.

        Parameters
        ----------
        seq
            The first record that is needed.
        erases
            Whether they hold what is to be erased, so that other copies of them must be removed soon.

        Raises
        ------
        JournalError
            When they cannot be removed.
        """

    def close(self) -> None:
        """Close all files; calling it again does nothing."""

    def _require_next(self, records: Sequence[Record]) -> None:
        """Refuse records with other numbers than those that come next: records would be lost."""
        for expected, record in enumerate(records, self.last_seq + 1):
            if record.seq != expected:
                raise ValueError(f"record {record.seq} was given where {expected} is next")

    def _require_later(self, first_seq: int) -> None:
        """Refuse a segment that would begin with a number that is used."""
        if first_seq <= self.last_seq:
            raise ValueError(f"a segment cannot begin with {first_seq}: record {self.last_seq} is written")

    def _require_sound(self) -> None:
        if self.failed:
            raise JournalError("the journal has failed before")

    def _count(self, records: Sequence[Record], at: float) -> None:
        """Count records that were written at a time."""
        if records:
            self.last_seq = records[-1].seq
            self.n_records += len(records)
            self.n_bytes += n_bytes_of(records)
            self.oldest_at = at if self.oldest_at is None else self.oldest_at

    def _count_from(self, first_seq: int) -> None:
        """Count the records of a new segment."""
        self.last_seq = first_seq - 1
        self.n_records = self.n_bytes = 0
        self.oldest_at = None


def n_bytes_of(records: Sequence[Record]) -> int:
    """Return how many bytes the bodies and notes of records have."""
    return sum(len(record.body) + len(record.notes) for record in records)


class Mark:
    """The file with the number of the newest record that is acknowledged here, outside of the journal.

    It tells a journal that has lost its end from one that never had it. It is written after a commit and not flushed,
    so it costs one system call. After a crash of the process it is exact; after a power loss it may lag behind; it is
    never ahead of what was committed. A disk that fails leaves it behind.

    Parameters
    ----------
    path
        Of the file, which `open` or the first `write` makes. None: nothing is kept.

    Attributes
    ----------
    seq, checksum
        Number and checksum of the record; 0 and empty when nothing was found that makes sense.

    Raises
    ------
    OSError
        When the file is there and cannot be read.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._descriptor = -1
        is_there = path is not None and path.exists()
        self.seq, self.checksum = _mark_of(path.read_bytes()) if path is not None and is_there else (0, b"")

    def open(self) -> None:
        """Open the file; raises `OSError`."""
        if self._path is not None and self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, seq: int, checksum: bytes = b"") -> None:
        """Note a record."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self.open()
                os.pwrite(self._descriptor, _mark_text(seq, checksum), 0)
                self.seq, self.checksum = seq, checksum

    def forget(self) -> None:
        """Remove the file: the records of the directory are replaced."""
        self.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        self.seq, self.checksum = 0, b""

    def close(self) -> None:
        """Close the file; calling it again does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _mark_text(seq: int, checksum: bytes) -> bytes:
    line = b"%0*d" % (_DIGITS, seq) + (b" " + checksum.hex().encode() if checksum else b"")
    return b"%s %08x\n" % (line, zlib.crc32(line))


def _mark_of(text: bytes) -> tuple[int, bytes]:
    """Return number and checksum; 0 and nothing when the text is damaged."""
    digits, _, checksum = text.rpartition(b" ")[0].partition(b" ")
    try:
        found = int(digits), bytes.fromhex(checksum.decode())
    except ValueError:
        return 0, b""
    return found if text == _mark_text(*found) else (0, b"")


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
                create_database(temporary, APPLICATION_ID, FORMAT, _SCHEMA)
                flush_file(temporary)
                temporary.rename(path)
                flush()
                return cls(path, _connect(path, flush))
            except (sqlite3.Error, OSError):
                with contextlib.suppress(OSError):  # it is never read
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
        """Close the segment and open it again, without what was begun and not committed.

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
        """Take what is in the log (the -wal file) into the database, so that the log begins again.

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


def _row_of(record: Record, at_ms: int) -> Row:
    cells = record.seq, record.version, at_ms, record.body, record.notes
    return *cells, _checksum(*cells)


def damaged(path: Path, seq: int) -> JournalDamagedError:
    """Return the error that says which record is not what was written."""
    return JournalDamagedError(
        f"record {seq} of the journal, in {path.name}, is damaged or missing, and no readable snapshot has it: "
        f"{RESTORE}"
    )


def _checksum(seq: int, version: int, at_ms: int, body: bytes, notes: bytes) -> bytes:
    digest = hashlib.sha256(_FACTS.pack(seq, version, at_ms, len(body)))
    digest.update(body)
    digest.update(notes)
    return digest.digest()[:_DIGEST_BYTES]


def _is_sound(row: tuple[Any, ...]) -> bool:
    """Whether a row is what was written; a damaged file may hold values of any type."""
    *cells, checksum = row
    try:
        return bool(_checksum(*cells) == checksum)
    except (struct.error, TypeError):
        return False


def _connect(path: Path, flush: Callable[[], None]) -> sqlite3.Connection:
    """Open a segment: where the service starts, for the thread that writes."""
    connection = connect_database(path, "FULL")
    with closed_on_errors(connection):
        connection.text_factory = bytes  # a damaged row may say that it holds text
        # Its errors would be passed over; see `fold_log`.
        connection.execute("PRAGMA wal_autocheckpoint=0").fetchall()
        lock_database(connection)
        flush()  # the name of the log has to be on the disk before the first commit is
    return connection


def _require_readable(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a database that is no segment, or one of a later format."""
    version = format_of(connection, APPLICATION_ID, FORMAT, f"{path.name} in the data directory, a journal")
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if version != FORMAT or mode != b"wal":
        raise JournalDamagedError(f"{path.name} in the data directory is not a journal of Oubli: {RESTORE}")


def _cannot_open(path: Path, error: Exception) -> StartError:
    what = f"{path.name} in the data directory"
    return refusal_of(error, path, what) or JournalDamagedError(f"{what} is damaged: {RESTORE}")


class SqliteJournal(Journal):
    """A journal in the files of a directory, which no other program may have open.

    Parameters
    ----------
    directory
        Where the files are; there already.
    reserve_bytes
        How much room to keep for erasures.
    now
        The time in seconds since 1970.

    For its attributes see `Journal`.

    Raises
    ------
    JournalDamagedError
        When acknowledged records are missing or cannot be read.
    StartError
        When the directory cannot be used, or is of a newer format.
    """

    is_durable = True

    def __init__(
        self, directory: Path, reserve_bytes: int = RESERVE_BYTES, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__()
        self._directory = directory
        self._now = now
        self._is_broken = False  # the open segment has to be opened again
        self.first_seq = 1
        self._log_bytes = 0
        with contextlib.ExitStack() as opened, _start_errors(directory):
            remove_leftovers(directory)
            self._mark = Mark(directory / MARK_NAME)
            opened.callback(self._mark.close)
            self._mark.open()
            self._reserve = Reserve(directory, reserve_bytes)
            self._segment = self._newest()
            opened.callback(self._segment.close)
            self._sum_up()
            self._reserve.ensure()
            opened.pop_all()

    # --- writing

    def append(self, records: Sequence[Record], *, reserve: bool = False) -> None:
        """Write records; they are durable when this returns. See `Journal.append`."""
        self._require_sound()
        if not records:
            return
        self._require_next(records)
        at_ms = round(self._now() * 1000)
        rows = [_row_of(record, at_ms) for record in records]
        n_bytes = n_bytes_of(records)
        with self._disk_errors():
            self._mend()
            # What a given-up reserve has freed is for erasures only.
            if not (reserve or self._reserve.is_there or self._reserve.ensure()):
                raise JournalFullError("no room on the disk")
            if not self._write(rows, n_bytes) and not (
                reserve and self._reserve.give_up() and self._write(rows, n_bytes)
            ):
                raise JournalFullError("no room on the disk")
        self._count(records, at_ms / 1000)
        self._after_commit(n_bytes)

    def probe(self) -> None:
        """Return when ordinary records would find room now. See `Journal.probe`."""
        self._require_sound()
        with self._disk_errors():
            self._mend()
            if not self._reserve.ensure():
                raise JournalFullError("no room on the disk")
            probe_room(self._directory, 2 * _COMMIT_BYTES)

    def rotate(self, first_seq: int) -> None:
        """Begin a new segment. See `Journal.rotate`."""
        self._require_sound()
        self._require_later(first_seq)
        with self._disk_errors():
            self._mend()
        old = self._segment
        if old.first_seq == first_seq:
            with self._disk_errors():
                old.fold_log(truncate=True)  # what was rolled back may still be in the log
            return
        with self._disk_errors(creating=True):
            self._segment = Segment.create(self._directory, first_seq)
        self._count_from(first_seq)
        self._log_bytes = 0
        with self._disk_errors():
            try:
                # A full disk keeps its records in its log.
                with contextlib.suppress(JournalFullError), self._disk_errors():
                    old.fold_log(truncate=True)
            finally:
                old.close()
                self._is_broken = False  # it was said of the old one
            with contextlib.suppress(JournalFullError), self._disk_errors():
                self._reserve.ensure()

    def drop_before(self, seq: int, *, erases: bool = True) -> None:
        """Remove the segments that only hold records with lower numbers. See `Journal.drop_before`."""
        del erases  # there are no copies
        self._require_sound()
        with self._disk_errors():
            remove_leftovers(self._directory)  # of a removal that has failed in its midst
            paths = segments_in(self._directory)
            gone = [path for path, later in itertools.pairwise(paths) if number_of(later) <= seq]
            if not gone:
                return
            try:
                with flushed(self._directory):
                    for path in gone:  # oldest first: a crash in between leaves a journal without a gap
                        remove(path)
            finally:
                self.first_seq = number_of(segments_in(self._directory)[0])
            self._reserve.ensure()

    def close(self) -> None:
        """Close all files; calling it again does nothing.

        SQLite takes the log in if it can, also after a failure; nothing is acknowledged on the strength of that.
        """
        self._segment.close()
        self._mark.close()

    # --- reading

    def records(self, after_seq: int) -> Iterator[Record]:
        """Return all records with higher numbers, in order. See `Journal.records`."""
        paths = segments_in(self._directory)
        last = after_seq
        for path, later in zip(paths, [*paths[1:], None], strict=True):
            end = None if later is None else number_of(later) - 1
            if end is not None and end <= last:
                continue
            if number_of(path) > last + 1:
                raise damaged(path, last + 1)
            for record in self._read(path, last):
                yield record
                last = record.seq
            if end is not None and last != end:
                raise damaged(path, last + 1)
        if last < self.last_seq:
            raise damaged(self._segment.path, last + 1)

    def _read(self, path: Path, after_seq: int) -> Iterator[Record]:
        if path == self._segment.path:
            yield from self._segment.read(after_seq)
            return
        segment = Segment.open(path)
        try:
            yield from segment.read(after_seq)
        finally:
            segment.close()

    # --- the parts

    def _newest(self) -> Segment:
        """Open the newest segment, or make the first."""
        paths = segments_in(self._directory)
        if paths:
            self.first_seq = number_of(paths[0])
            return Segment.open(paths[-1])
        if self._mark.seq:
            raise _lost(self._mark.seq)
        return Segment.create(self._directory, 1)

    def _sum_up(self) -> None:
        """Read what the newest segment holds, and refuse it when it has lost what was acknowledged."""
        self.n_records, self.n_bytes, self.oldest_at, self.last_seq = self._segment.summary()
        if self.last_seq < self._mark.seq:
            raise _lost(self.last_seq + 1)

    def _write(self, rows: Sequence[Row], n_bytes: int) -> bool:
        """Write rows; false when there is no room, and none of them was written."""
        try:
            self._segment.append(rows)
        except sqlite3.Error as error:
            if not self._is_no_room(error, n_bytes):
                raise
            if self._segment.last_seq() != self.last_seq:
                self._fail()
            return False
        return True

    def _after_commit(self, n_bytes: int) -> None:
        """Do what follows a commit. What fails here fails the journal, but not the commit, which is on the disk."""
        self._mark.write(self.last_seq)
        self._log_bytes += n_bytes + _COMMIT_BYTES
        if self._log_bytes < _LOG_BYTES or self.failed:
            return
        self._log_bytes = 0  # a full disk lets it grow; it is tried again after as much once more
        with contextlib.suppress(JournalError), self._disk_errors():
            self._segment.fold_log(truncate=False)

    @contextlib.contextmanager
    def _disk_errors(self, *, creating: bool = False) -> Iterator[None]:
        """Tell a full disk, a lack of descriptors, and what failed before any flush from a disk that has failed.

        A new file that cannot be opened is always the former: nothing was written, whatever was the reason.
        """
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if self._is_no_room(error, 2 * _COMMIT_BYTES):
                raise JournalFullError("no room on the disk") from None
            if lacks_descriptors(error) or (creating and is_unopened(error)):
                raise NoDescriptorsError("no file could be opened") from None
            if is_before_flush(error):
                self._is_broken = True
                raise JournalRefusedError("a file of the journal could not be read or written") from None
            self._fail()

    def _is_no_room(self, error: sqlite3.Error | OSError, n_bytes: int) -> bool:
        if isinstance(error, OSError):
            return is_no_room(error)
        code = getattr(error, "sqlite_errorcode", 0)
        # A quota that is used up looks like any failed write. A failed flush is never asked about.
        return code == sqlite3.SQLITE_FULL or (
            code in (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_CANTOPEN)
            and lacks_room(self._directory, n_bytes + _COMMIT_BYTES)
        )

    def _mend(self) -> None:
        """Open the segment again after an error of the disk; it must hold what was acknowledged and nothing else."""
        if not self._is_broken:
            return
        self._segment = self._segment.reopened()
        try:
            is_sound = self._segment.last_seq() == self.last_seq
            newest = list(self._segment.read(self.last_seq - 1)) if is_sound else []
        except JournalDamagedError:
            is_sound = False
        if not is_sound or len(newest) != int(self.last_seq >= self._segment.first_seq):
            self._fail()
        self._is_broken = False

    def _fail(self) -> NoReturn:
        self.failed = True
        raise JournalError("the journal could not be written; the next start reads what is on the disk") from None


def is_before_flush(error: sqlite3.Error | OSError) -> bool:
    """Whether nothing can have been flushed that an error leaves in doubt: it is of a read, a write or a name."""
    if isinstance(error, OSError):
        return not isinstance(error, FlushError)
    return getattr(error, "sqlite_errorcode", 0) in _BEFORE_FLUSH


def _lost(seq: int) -> JournalDamagedError:
    return JournalDamagedError(
        f"record {seq} of the journal was acknowledged and is missing: {RESTORE}; removing {MARK_NAME} from it "
        "continues without the missing records"
    )


@contextlib.contextmanager
def _start_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or "input/output error"
    except sqlite3.Error:
        reason = "the first file of the journal cannot be written"
    else:
        return
    raise StartError(
        f"the journal in the data directory {directory} cannot be opened ({reason}): check its permissions and the "
        "free disk space, or give --data-dir another directory"
    )


def move_journal(directory: Path, journal: Journal) -> int:
    """Move the records of the journal in a directory to another journal; return how many.

    Raises
    ------
    StartError
        When the other journal has records of its own, or one of them cannot be used.
    JournalError
        When the other journal cannot be written; it can be tried again.
    """
    if not segments_in(directory):
        return 0
    old = SqliteJournal(directory)
    try:
        first, last = old.first_seq or 1, old.last_seq
        if journal.last_seq == 0 and first > 1:
            journal.rotate(first)
        if not first - 1 <= journal.last_seq <= last:
            raise StartError(
                "the data directory has a journal in files, and the database in --journal has another one: give an "
                "empty database, or leave --journal out"
            )
        n_moved = 0
        records = old.records(journal.last_seq)
        while batch := list(itertools.islice(records, _AT_ONCE)):
            journal.append(batch, reserve=True)
            n_moved += len(batch)
        journal.drop_before(first)
    finally:
        old.close()
    try:
        with flushed(directory):
            for path in segments_in(directory):
                remove(path)
            for name in (MARK_NAME, RESERVE_NAME):
                (directory / name).unlink(missing_ok=True)
    except OSError as error:
        raise StartError(
            f"the old files of the journal in {directory} cannot be removed ({error.strerror}): check their permissions"
        ) from None
    return n_moved
