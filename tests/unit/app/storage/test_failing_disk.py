"""System calls that fail, and processes that are killed in front of one."""

import errno
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest

from oubli.app.errors import JournalDamagedError, JournalError, JournalFullError, JournalRefusedError
from oubli.app.storage import journal as journal_module
from oubli.app.storage.journal import _BEFORE_FLUSH, Record, SqliteJournal
from tests.unit.app.storage.life import LAST
from tests.unit.app.storage.support import batch, closed, contents, journal_in, refused

ROOT = Path(__file__).resolve().parents[4]
FLUSHES = "fsync,fdatasync"
WRITES = "pwrite64"
NAMES = f"{WRITES},ftruncate,rename,unlink"
ALL = f"{FLUSHES},{WRITES},write,ftruncate,rename,unlink"
ENDS = {0, 2, 3, 4, 8, 20, 29, LAST}  # where the batches of `life` end


def can_trace() -> bool:
    """Whether system calls can be made to fail here."""
    probe = ["strace", "-e", "inject=fsync:error=EIO", "true"]
    return shutil.which("strace") is not None and not subprocess.run(probe, capture_output=True, check=False).returncode


needs_trace = pytest.mark.skipif(not can_trace(), reason="strace is not there, or may not be used")


class Place(NamedTuple):
    """A system call in a life: its name, which of that name it is, and the file it is about, if it has it open."""

    call: str
    when: int
    file: str


class Lived(NamedTuple):
    """What became of a life."""

    place: Place
    code: int
    said: list[str]
    last: int  # the number of the last record that is left


def lived(directory: Path, log: Path, calls: str, fault: str = "") -> tuple[int, list[str]]:
    """Run `life` under a fault; return its exit status and what it said."""
    inject = ["-e", f"inject={calls}:{fault}"] if fault else []
    command = ["strace", "-qq", "-y", "-o", str(log), "-e", f"trace={calls}", *inject]
    command += [sys.executable, "-B", "-m", "tests.unit.app.storage.life", str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout.split("\n")[:-1]


def places_of(tmp_path: Path, calls: str) -> list[Place]:
    """Return the system calls that a whole life makes, in their order."""
    code, said = lived(tmp_path / "whole", tmp_path / "log", calls)
    assert (code, said[-1]) == (0, "end")
    assert len(contents(tmp_path / "whole")) == LAST - 8
    n_seen: Counter[str] = Counter()
    places = []
    for name, path in re.findall(r"^(\w+)\((?:\d+<([^>]*)>)?", (tmp_path / "log").read_text(), re.MULTILINE):
        n_seen[name] += 1
        places.append(Place(name, n_seen[name], Path(path).name))
    return places


def require_nothing_lost(directory: Path, said: list[str]) -> int:
    """Read what is left of a life: all that was acknowledged, and no batch by half. Return its last number."""
    words = [line.split() for line in said]
    acked = max((int(word[1]) for word in words if word[0] == "acked"), default=0)
    dropped = any(word[0] == "dropped" for word in words)
    found = contents(directory)
    last = found[-1].seq if found else 0
    first = found[0].seq if found else 1
    assert found == batch(first, last)
    assert last >= acked
    assert last in ENDS
    assert first in ((1, 4, 9) if dropped else (1,))
    journal = journal_in(directory)  # and it lives on
    journal.append(batch(last + 1, last + 3))
    assert closed(journal, directory) == batch(first, last + 3)
    return last


def sweep(tmp_path: Path, calls: str, fault: str, n: int | None) -> Iterator[Lived]:
    """Live with a fault at each of some system calls, or at n of them, evenly spread: nothing is lost."""
    places = places_of(tmp_path, calls)
    assert len(places) > 20
    if n is not None:
        places = [places[i * (len(places) - 1) // (n - 1)] for i in range(n)]
    for place in places:
        directory = tmp_path / f"{place.call}{place.when}"
        code, said = lived(directory, tmp_path / "log", place.call, f"{fault}:when={place.when}")
        yield Lived(place, code, said, require_nothing_lost(directory, said))
        shutil.rmtree(directory)


def check_kills(tmp_path: Path, n: int | None) -> None:
    lives = list(sweep(tmp_path, ALL, "signal=SIGKILL", n))
    assert {life.code for life in lives} == {-9}
    assert len({life.last for life in lives}) > 3


def check_failing_flushes(tmp_path: Path, n: int | None) -> None:
    """Nothing is acknowledged after a flush that did not work."""
    ends = set()
    for life in sweep(tmp_path, FLUSHES, "error=EIO", n):
        assert life.code == 0
        ends.add(life.said[-1])
        # SQLite flushes the directory with its first commit and passes an error over; that was done before.
        passed_over = life.place.call == "fdatasync" and life.place.file == "whole"
        assert (life.said[-1] == "end") == passed_over
    assert ends >= {"failed", "unstarted"}


def check_refused_once(tmp_path: Path, n: int | None, calls: str, error: str) -> None:
    """A call that fails before anything is flushed: refused, and the next try works."""
    n_refused = 0
    for life in sweep(tmp_path, calls, f"error={error}", n):
        assert life.code == 0
        # What was begun and cannot be removed is in doubt, as after a flush that has failed.
        assert life.said[-1] in ("end", "unstarted") or life.place.call == "unlink"
        n_refused += "full" in life.said
    assert n_refused > 2


CHECKS = (
    ("killed", check_kills, 10),
    ("flushes", check_failing_flushes, 6),
    ("no room", partial(check_refused_once, calls=WRITES, error="ENOSPC"), 5),
    ("writes", partial(check_refused_once, calls=NAMES, error="EIO"), 6),
)


@needs_trace
@pytest.mark.parametrize(("check", "n"), [pytest.param(check, n, id=f"{name}-{n}") for name, check, n in CHECKS])
def test_at_system_calls(tmp_path: Path, check: Callable[[Path, int], None], n: int) -> None:
    check(tmp_path, n)


@needs_trace
@pytest.mark.long
@pytest.mark.parametrize("check", [pytest.param(check, id=name) for name, check, _ in CHECKS])
def test_at_all_system_calls(tmp_path: Path, check: Callable[[Path, int | None], None]) -> None:
    check(tmp_path, None)


def error_of(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error at /secret/path")
    error.sqlite_errorcode = code
    return error


class Faulty:
    """A connection that has an error in store for one statement, before or after it is done."""

    def __init__(self, connection: sqlite3.Connection, statement: str, code: int, *, done: bool = False) -> None:
        self._connection = connection
        self._statement = statement
        self._code = code
        self._done = done

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if not statement.startswith(self._statement):
            return self._connection.execute(statement, *values)
        if self._done:
            self._connection.execute(statement, *values)
        raise self.error()

    def executemany(self, statement: str, rows: Any) -> sqlite3.Cursor:
        if statement.startswith(self._statement):
            raise self.error()
        return self._connection.executemany(statement, rows)

    def error(self) -> BaseException:
        return error_of(self._code)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def break_connection(journal: SqliteJournal, statement: str, code: int, *, done: bool = False) -> sqlite3.Connection:
    """Break a journal's connection; return the sound one."""
    sound = journal._segment._connection
    journal._segment._connection = Faulty(sound, statement, code, done=done)  # type: ignore[assignment]
    return sound


def refuse_for_ever(journal: SqliteJournal, records: list[Record], *, reserve: bool = False) -> None:
    """An append fails so that nobody knows what is on the disk: the journal takes nothing any more."""
    with pytest.raises(JournalError) as caught:
        journal.append(records, reserve=reserve)
    assert not isinstance(caught.value, JournalFullError)
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__
    assert journal.failed


@pytest.mark.parametrize(
    "code", [sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_BUSY]
)
@pytest.mark.parametrize("statement", ["BEGIN", "COMMIT"])
def test_a_failed_flush_is_for_ever(tmp_path: Path, statement: str, code: int) -> None:
    journal = journal_in(tmp_path, 3)
    sound = break_connection(journal, statement, code)
    refuse_for_ever(journal, batch(4, 5), reserve=True)
    journal._segment._connection = sound
    works: list[Any] = [lambda: journal.append(batch(4, 4)), lambda: journal.append([]), journal.probe]
    for work in (*works, lambda: journal.rotate(4), lambda: journal.drop_before(1)):
        with pytest.raises(JournalError, match="has failed before"):
            work()
    assert (journal.last_seq, journal.n_records) == (3, 3)
    assert closed(journal, tmp_path) == batch(1, 3)


@pytest.mark.parametrize("code", sorted(_BEFORE_FLUSH))
@pytest.mark.parametrize("statement", ["BEGIN", "COMMIT", "INSERT"])
def test_what_fails_before_a_flush_is_refused_and_works_again(tmp_path: Path, statement: str, code: int) -> None:
    journal = journal_in(tmp_path, 3)
    for last, reserve in ((3, False), (5, True)):
        break_connection(journal, statement, code)
        with pytest.raises(JournalRefusedError) as caught:
            journal.append(batch(last + 1, last + 2), reserve=reserve)
        assert "secret" not in str(caught.value)
        assert (journal.failed, journal.last_seq, journal.n_records) == (False, last, last)
        journal.append(batch(last + 1, last + 2), reserve=reserve)
    assert closed(journal, tmp_path) == batch(1, 7)


def test_a_segment_that_cannot_be_opened_anew_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = journal_in(tmp_path, 3)
    break_connection(journal, "COMMIT", sqlite3.SQLITE_IOERR_WRITE)
    refused(journal, JournalRefusedError, batch(4, 4))
    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "_connect", Mock(side_effect=error_of(sqlite3.SQLITE_CANTOPEN)))
        works: list[Any] = [lambda: journal.append(batch(4, 4)), lambda: journal.rotate(4), journal.probe]
        for work in works * 2:
            with pytest.raises(JournalRefusedError):
                work()
    journal.probe()
    journal.append(batch(4, 4))
    assert closed(journal, tmp_path) == batch(1, 4)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_FULL])
def test_a_refused_batch_that_is_there_all_the_same_is_not_believed(tmp_path: Path, code: int) -> None:
    """The error came after the flush. Of a full disk that is known at once; else the caller was told otherwise."""
    journal = journal_in(tmp_path)
    break_connection(journal, "COMMIT", code, done=True)
    if code != sqlite3.SQLITE_FULL:
        refused(journal, JournalRefusedError, batch(1, 2))
    refuse_for_ever(journal, batch(1, 2 if code == sqlite3.SQLITE_FULL else 1))


@pytest.mark.parametrize(
    ("code", "error"),
    [(sqlite3.SQLITE_IOERR_WRITE, JournalFullError), (sqlite3.SQLITE_FULL, JournalRefusedError), (0, MemoryError)],
    ids=["a quota is used up", "a second look finds no room either", "it is no error of the disk"],
)
def test_what_was_refused_can_be_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    journal = journal_in(tmp_path)
    sound = break_connection(journal, "COMMIT", code)
    if error is JournalFullError:
        monkeypatch.setattr("oubli.app.storage.journal.lacks_room", lambda directory, n_bytes: True)
    elif error is JournalRefusedError:
        looking = Faulty(sound, "SELECT", sqlite3.SQLITE_IOERR_READ)
        journal._segment._connection._connection = looking  # type: ignore[attr-defined]
    else:
        monkeypatch.setattr(Faulty, "error", MemoryError)
    refused(journal, error, batch(1, 2))
    assert not journal.failed
    if error is not JournalRefusedError:  # after which it has opened its file again
        journal._segment._connection = sound
    journal.append(batch(1, 2))
    break_connection(journal, "SELECT seq", sqlite3.SQLITE_IOERR_READ)
    monkeypatch.undo()
    with pytest.raises(JournalDamagedError, match="record 2 of the journal"):
        list(journal.records(1))
    assert closed(journal, tmp_path) == batch(1, 2)


def test_what_fails_after_a_commit_fails_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_LOG_BYTES", 1)
    journal = journal_in(tmp_path)
    break_connection(journal, "PRAGMA wal_checkpoint", sqlite3.SQLITE_FULL)
    journal.append(batch(1, 2))  # a full disk leaves the log as it is
    assert not journal.failed
    break_connection(journal, "PRAGMA wal_checkpoint", sqlite3.SQLITE_IOERR_FSYNC)
    journal.append(batch(3, 4))  # is on the disk
    assert journal.failed
    refused(journal, JournalError, batch(5, 5), "has failed before")
    assert journal.last_seq == 4
    assert closed(journal, tmp_path) == batch(1, 4)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_flush_that_fails_in_a_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    journal, is_full, flush = journal_in(tmp_path, 3), code == errno.ENOSPC, os.fsync
    failures = iter([False, True])  # of the file; of the directory

    def flush_once_failing(descriptor: int) -> None:
        if next(failures, False):
            raise OSError(code, "")
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", flush_once_failing)
    with pytest.raises(JournalError) as caught:
        journal.rotate(4)
    assert isinstance(caught.value, JournalFullError) == is_full
    assert journal.failed != is_full
    assert len(list(tmp_path.glob("*.sqlite*"))) == 2  # the old segment with its log, nothing else
    if is_full:
        journal.append(batch(4, 4))
        journal.rotate(5)
        journal.append(batch(5, 6))
    assert closed(journal, tmp_path) == batch(1, 6 if is_full else 3)


def test_an_old_log_that_cannot_be_taken_in_is_kept(tmp_path: Path) -> None:
    journal = journal_in(tmp_path, 3)
    break_connection(journal, "PRAGMA wal_checkpoint", sqlite3.SQLITE_FULL)
    journal.rotate(4)
    journal.append(batch(4, 5))
    break_connection(journal, "PRAGMA wal_checkpoint", sqlite3.SQLITE_IOERR_FSYNC)
    with pytest.raises(JournalError):
        journal.rotate(6)
    assert journal.failed
    assert closed(journal, tmp_path) == batch(1, 5)


@pytest.mark.parametrize("suffix", [".sqlite", "-wal"])
def test_segments_that_cannot_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    """They go when it is tried again: also a log whose segment is gone, which may hold what was erased."""
    journal = journal_in(tmp_path, 3)
    journal.rotate(4)
    journal.append(batch(4, 4))
    log = tmp_path / "journal-000000000001.sqlite-wal"
    log.write_bytes(b"left")
    unlink = Path.unlink

    def fail(path: Path, missing_ok: bool = False) -> None:
        if path.name.endswith(suffix):
            raise OSError(errno.EIO, "", str(path))
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", fail)
        with pytest.raises(JournalError) as caught:
            journal.drop_before(4)
    assert str(tmp_path) not in str(caught.value)
    assert (journal.failed, journal.first_seq) == (False, 1 if suffix == ".sqlite" else 4)
    journal.drop_before(4)
    assert not log.exists()
    journal.append(batch(5, 5))
    assert closed(journal, tmp_path) == batch(4, 5)
