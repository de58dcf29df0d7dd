"""A disk that is really full, or really read-only; a process that may open no more files."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from oubli.app.errors import JournalFullError, NoDescriptorsError, StartError
from oubli.app.storage import reserve as module
from oubli.app.storage.journal import MARK_NAME, RESERVE_NAME, Record, SqliteJournal
from oubli.app.storage.reserve import Reserve, lacks_room
from tests.unit.app.storage.support import batch, closed, contents, journal_in, names, refused

MIB = 2**20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(path)]
    if sys.platform != "linux" or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a disk can only be mounted by root on Linux")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def big(seq: int) -> Record:
    return Record(seq, seq, b"x" * 6000, b"")


def fill(journal: SqliteJournal, *, reserve: bool = False, most: int = 10_000) -> int:
    """Append until the disk is full; return how many records it took."""
    before = journal.last_seq
    with suppress(JournalFullError):
        while journal.last_seq < before + most:
            journal.append([big(journal.last_seq + 1)], reserve=reserve)
    return journal.last_seq - before


def use_up(path: Path) -> None:
    """Fill what is left with a file."""
    with path.open("wb", buffering=0) as file:
        for piece in (MIB // 8, 4096, 1):
            with suppress(OSError):
                while file.write(bytes(piece)):
                    pass


def test_erasures_fit_on_a_full_disk_until_the_reserve_ends_and_segments_go_from_it(small_disk: Path) -> None:
    journal = SqliteJournal(small_disk, MIB // 4)
    fill(journal, most=30)
    journal.rotate(31)
    filler = small_disk / "other"
    use_up(filler)
    fill(journal)
    refused_from = journal.last_seq + 1
    for seq in range(refused_from, refused_from + 5):
        journal.append(batch(seq, seq), reserve=True)
        # What the reserve has freed is not for others, though it would fit.
        refused(journal, JournalFullError, batch(seq + 1, seq + 1))
    assert RESERVE_NAME not in names(small_disk)
    last = journal.last_seq
    journal.close()
    journal = SqliteJournal(small_disk, MIB // 4)  # a restart on the full disk is no way to it either
    assert [one.seq for one in journal.records(0)] == list(range(1, last + 1))
    refused(journal, JournalFullError, batch(last + 1, last + 1))
    assert 5 < fill(journal, reserve=True) < 1000, "the reserve has an end"
    with pytest.raises(JournalFullError):
        journal.rotate(journal.last_seq + 1)
    assert not journal.failed
    last = journal.last_seq
    journal.drop_before(last + 1)
    assert journal.first_seq == 31
    filler.unlink()
    journal.append(batch(last + 1, last + 1))
    journal.rotate(last + 2)
    assert RESERVE_NAME in names(small_disk)
    assert [one.seq for one in closed(journal, small_disk)] == list(range(31, last + 2))
    assert not [name for name in names(small_disk) if name.startswith(".")]


def test_a_first_start_on_a_full_disk_says_what_is_missing(small_disk: Path) -> None:
    use_up(small_disk / "other")
    with pytest.raises(StartError, match=r"cannot be opened .*free disk space"):
        SqliteJournal(small_disk)
    assert names(small_disk) <= {"other", MARK_NAME}


def test_a_read_only_directory_says_what_to_do(small_disk: Path) -> None:
    journal_in(small_disk, 3).close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StartError, match=r"cannot be opened \(Read-only file system\): check its permissions"):
        journal_in(small_disk)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert contents(small_disk) == batch(1, 3)


@contextmanager
def descriptors_left(n: int) -> Iterator[None]:
    """Let the process open so many more files and no other."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept_free = [os.open(os.devnull, os.O_RDONLY) for _ in range(n)]
    highest = max(int(name) for name in os.listdir("/dev/fd"))  # noqa: PTH208 - no files, numbers
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        while kept_free:
            os.close(kept_free.pop())
        yield
    finally:
        for descriptor in (*kept_free, *taken):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("n", range(8))
def test_a_rotation_without_descriptors_is_tried_again(tmp_path: Path, n: int) -> None:
    journal = journal_in(tmp_path, 3)
    with descriptors_left(n):
        try:
            journal.rotate(4)
        except NoDescriptorsError:
            assert n < 6, "a rotation needs no more than that"
            n_files = 2  # the old segment with its log, nothing else
        else:
            n_files = 3
        journal.append(batch(4, 5))  # the files that are open are enough
        assert not journal.failed
    assert len(list(tmp_path.glob("*.sqlite*"))) == n_files
    journal.rotate(6)
    journal.append(batch(6, 7))
    assert closed(journal, tmp_path) == batch(1, 7)


@pytest.mark.parametrize("n", range(4))
def test_other_work_without_descriptors_is_tried_again(tmp_path: Path, n: int) -> None:
    journal = journal_in(tmp_path, 3)
    journal.rotate(4)
    journal.append(batch(4, 4))
    journal._reserve.give_up()
    with descriptors_left(n):
        for work in (journal.probe, lambda: journal.drop_before(4), lambda: journal.append(batch(5, 5))):
            with suppress(JournalFullError):
                work()
            assert not journal.failed
    journal.probe()
    journal.drop_before(4)
    first = journal.last_seq + 1
    journal.append(batch(first, first))
    assert closed(journal, tmp_path) == batch(4, first)


SIZE = 200_000


def test_occupies_its_room_where_it_fits_until_it_is_given_up(tmp_path: Path) -> None:
    assert not Reserve(tmp_path, 2**60).ensure()
    assert names(tmp_path) == set()
    with (tmp_path / RESERVE_NAME).open("wb") as sparse:  # which occupies less, and is made again
        os.truncate(sparse.fileno(), SIZE)
    reserve = Reserve(tmp_path, SIZE)
    assert (reserve.give_up(), reserve.ensure(), reserve.ensure()) == (False, True, True)
    status = (tmp_path / RESERVE_NAME).stat()
    assert status.st_blocks * 512 >= status.st_size == SIZE
    assert names(tmp_path) == {RESERVE_NAME}
    assert Reserve(tmp_path, SIZE).give_up()
    assert names(tmp_path) == set()


def failing(code: int) -> Mock:
    return Mock(side_effect=OSError(code, os.strerror(code)))


@pytest.mark.parametrize("call", [(module.os, "write"), (module, "_allocate")])  # of which one has no room for a name
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Any, code: int) -> None:
    monkeypatch.setattr(call[0], call[1], failing(code))
    assert not Reserve(tmp_path, SIZE).ensure()
    assert lacks_room(tmp_path, 10)
    assert names(tmp_path) == set()


def test_a_disk_that_fails_is_not_a_full_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", failing(errno.EROFS))
        assert not lacks_room(tmp_path, 10)
    (tmp_path / "own").mkdir()
    reserve = Reserve(tmp_path / "own", SIZE)
    assert reserve.ensure()
    monkeypatch.setattr(module.os, "fsync", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        reserve.give_up()
    (tmp_path / "other").mkdir()
    with pytest.raises(OSError, match="Input/output"):
        Reserve(tmp_path / "other", SIZE).ensure()
    assert not lacks_room(tmp_path / "other", 10)
    assert names(tmp_path / "other") == set()
