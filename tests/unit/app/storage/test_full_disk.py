"""A disk that is really full, or really read-only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oubli.app.errors import JournalFullError, StartError
from oubli.app.storage.journal import MARK_NAME, RESERVE_NAME, Record, SqliteJournal
from tests.unit.app.storage.support import batch, closed, contents, journal_in, names, seqs

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
    for n in range(most):
        try:
            journal.append([big(journal.last_seq + 1)], reserve=reserve)
        except JournalFullError:
            return n
    return most


def use_up(path: Path) -> None:
    """Fill what is left with a file."""
    with path.open("wb", buffering=0) as file:
        for piece in (MIB // 8, 4096, 1):
            try:
                while file.write(bytes(piece)):
                    pass
            except OSError:
                continue


def test_erasures_fit_on_a_full_disk(small_disk: Path) -> None:
    journal = SqliteJournal(small_disk, MIB // 4)
    journal.append(batch(1, 3))
    filler = small_disk / "other"
    use_up(filler)
    fill(journal)
    refused_from = journal.last_seq + 1
    for seq in range(refused_from, refused_from + 10):
        journal.append(batch(seq, seq), reserve=True)
        # What the reserve has freed is not for others, though it would fit.
        with pytest.raises(JournalFullError):
            journal.append(batch(seq + 1, seq + 1))
    assert RESERVE_NAME not in names(small_disk)
    assert not journal.failed
    last = journal.last_seq
    journal.close()
    journal = SqliteJournal(small_disk, MIB // 4)  # a restart on the full disk is no way to it either
    assert seqs(journal.records(0)) == list(range(1, last + 1))
    with pytest.raises(JournalFullError):
        journal.append(batch(last + 1, last + 1))
    journal.append(batch(last + 1, last + 1), reserve=True)
    filler.unlink()
    journal.append(batch(last + 2, last + 2))
    assert RESERVE_NAME in names(small_disk)
    assert seqs(closed(journal, small_disk)) == list(range(1, last + 3))


def test_segments_go_from_a_full_disk_and_even_the_reserve_has_an_end(small_disk: Path) -> None:
    journal = SqliteJournal(small_disk, MIB // 4)
    fill(journal, most=30)
    journal.rotate(journal.last_seq + 1)
    use_up(small_disk / "other")
    fill(journal)
    assert 5 < fill(journal, reserve=True) < 1000
    assert RESERVE_NAME not in names(small_disk)
    with pytest.raises(JournalFullError):
        journal.rotate(journal.last_seq + 1)
    assert not journal.failed
    last = journal.last_seq
    assert seqs(journal.records(0)) == list(range(1, last + 1))
    journal.drop_before(last + 1)
    assert journal.first_seq == 31
    (small_disk / "other").unlink()
    journal.append(batch(last + 1, last + 1))
    journal.rotate(last + 2)
    assert RESERVE_NAME in names(small_disk)
    assert seqs(closed(journal, small_disk)) == list(range(31, last + 2))
    assert not [name for name in names(small_disk) if name.startswith(".")]


def test_a_first_start_on_a_full_disk_says_what_is_missing(small_disk: Path) -> None:
    use_up(small_disk / "other")
    with pytest.raises(StartError, match=r"cannot be opened .*free disk space"):
        SqliteJournal(small_disk)
    assert names(small_disk) <= {"other", MARK_NAME}


def test_a_read_only_directory_says_what_to_do(small_disk: Path) -> None:
    journal = journal_in(small_disk, 3)
    journal.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StartError, match=r"cannot be opened \(Read-only file system\): check its permissions"):
        journal_in(small_disk)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert contents(small_disk) == batch(1, 3)
