"""The journal in SQLite files; what `__init__` draws.

Nothing is tried again after a flush that did not work: nobody knows what the disk holds. A full disk, and a read or a
write that fails, are different: the batch is refused before any flush and rolled back, and the next one may be
written. After an error other than a lack of room the segment is opened anew first, and must hold what was
acknowledged and nothing else.
"""

import contextlib
import itertools
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from oubli.app.errors import (
    JournalDamagedError,
    JournalError,
    JournalFullError,
    JournalRefusedError,
    NoDescriptorsError,
    StartError,
)
from oubli.app.storage.descriptors import is_unopened, lacks_descriptors
from oubli.app.storage.directory import FlushError, flushed
from oubli.app.storage.journal import Record, require_later
from oubli.app.storage.reserve import RESERVE_BYTES, Reserve, is_no_room, lacks_room, probe_room
from oubli.app.storage.segment import (
    RESTORE,
    Row,
    Segment,
    damaged,
    number_of,
    remove,
    remove_leftovers,
    rows_of,
    segments_in,
)

MARK_NAME = "journal-mark"
_DIGITS = 20
_MARK_BYTES = _DIGITS + 1 + 8 + 1
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


class SqliteJournal:
    """A journal in the files of a directory, which nobody else may have open.

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
        self._directory = directory
        self._now = now
        self.failed = False
        self._is_broken = False  # the open segment has to be opened anew
        self.first_seq: int | None = 1
        self.last_seq = 0
        self.n_records = 0
        self.n_bytes = 0
        self.oldest_at: float | None = None
        self._log_bytes = 0
        with contextlib.ExitStack() as opened, _start_errors(directory):
            remove_leftovers(directory)
            self._mark = Mark(directory)
            opened.callback(self._mark.close)
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
        now = self._now()
        at_ms = round(now * 1000)
        rows = rows_of(records, self.last_seq, at_ms)
        n_bytes = sum(len(record.body) + len(record.notes) for record in records)
        with self._disk_errors():
            self._mend()
            # What a given-up reserve has freed is for erasures only.
            if not (reserve or self._reserve.is_there or self._reserve.ensure()):
                raise JournalFullError("no room on the disk")
            if not self._write(rows, n_bytes) and not (
                reserve and self._reserve.give_up() and self._write(rows, n_bytes)
            ):
                raise JournalFullError("no room on the disk")
        self.last_seq = records[-1].seq
        self.n_records += len(records)
        self.n_bytes += n_bytes
        if self.oldest_at is None:
            self.oldest_at = at_ms / 1000
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
        require_later(first_seq, self.last_seq)
        with self._disk_errors():
            self._mend()
        old = self._segment
        if old.first_seq == first_seq:
            with self._disk_errors():
                old.fold_log(truncate=True)  # what was rolled back may still be in the log
            return
        with self._disk_errors(creating=True):
            self._segment = Segment.create(self._directory, first_seq)
        self.last_seq = first_seq - 1
        self.n_records = self.n_bytes = self._log_bytes = 0
        self.oldest_at = None
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
        with contextlib.suppress(OSError):  # it may lag behind, and the next commit writes it again
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
        """Open the segment anew after an error of the disk; it must hold what was acknowledged and nothing else."""
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
        raise JournalError("the journal could not be written; what the disk holds is read at the next start") from None

    def _require_sound(self) -> None:
        if self.failed:
            raise JournalError("the journal has failed before")


def is_before_flush(error: sqlite3.Error | OSError) -> bool:
    """Whether nothing can have been flushed that an error leaves in doubt: it is of a read, a write or a name."""
    if isinstance(error, OSError):
        return not isinstance(error, FlushError)
    return getattr(error, "sqlite_errorcode", 0) in _BEFORE_FLUSH


def _lost(seq: int) -> JournalDamagedError:
    return JournalDamagedError(
        f"record {seq} of the journal was acknowledged and is missing: {RESTORE}; removing {MARK_NAME} from it "
        "goes on without what is missing"
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
        f"the journal in the data directory {directory} cannot be opened ({reason}): see to its owner, its "
        "permissions and to room on the disk, or give --data-dir another directory"
    )


class Mark:
    """The file with the number of the newest acknowledged record, outside of the segments.

    SQLite takes a damaged end of its log for one that was never finished, and drops it in silence. The mark tells the
    two apart: it is written after a commit has reached the disk, and not flushed itself, so that it costs a system
    call. After a crash of the process it is exact; after a power loss it may lag behind; it is never ahead of what was
    flushed.

    Parameters
    ----------
    directory
        Where it is.

    Attributes
    ----------
    seq
        What was found when it was opened; 0 when there was nothing, or nothing that makes sense.

    Raises
    ------
    OSError
        When it cannot be opened.
    """

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(directory / MARK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.seq = _mark_of(os.pread(self._descriptor, _MARK_BYTES, 0))

    def write(self, seq: int) -> None:
        """Note a number.

        Raises
        ------
        OSError
            When the disk fails or is full.
        """
        os.pwrite(self._descriptor, _mark_text(seq), 0)

    def close(self) -> None:
        """Close the file; calling it again does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _mark_text(seq: int) -> bytes:
    digits = b"%0*d" % (_DIGITS, seq)
    return b"%s %08x\n" % (digits, zlib.crc32(digits))


def _mark_of(text: bytes) -> int:
    digits = text[:_DIGITS]
    return int(digits) if digits.isdigit() and text == _mark_text(int(digits)) else 0
