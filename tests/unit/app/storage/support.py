"""Records whose content follows from their number, and ways to look at a journal that was killed."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from oubli.app.storage.journal import Journal, Record, SqliteJournal
from tests.closing import closed_at_the_end

RESERVE_BYTES = 2**16  # enough for what the tests write, and quick to make


def record(seq: int) -> Record:
    """Some are longer than a page, some have no body, some no notes."""
    body = b"" if seq % 7 == 0 else b'{"body":%d}' % seq * (900 if seq % 5 == 0 else 3)
    notes = b"" if seq % 3 == 0 else b'{"notes":%d}' % seq
    return Record(seq, seq // 2 + 1, body, notes)


def batch(first: int, last: int) -> list[Record]:
    return [record(seq) for seq in range(first, last + 1)]


def journal_in(directory: Path, n: int = 0) -> SqliteJournal:
    """Open a journal, which is closed at the end of the test at the latest; a new one gets so many records."""
    directory.mkdir(exist_ok=True)
    journal = closed_at_the_end(SqliteJournal(directory, reserve_bytes=RESERVE_BYTES))
    journal.append(batch(1, n))
    return journal


def refused(journal: Journal, error: type[Exception], records: list[Record], words: str | None = None) -> None:
    """Have a journal refuse records."""
    with pytest.raises(error, match=words):
        journal.append(records)


def killed(directory: Path, copy: Path) -> Path:
    """Return what the disk would hold if the process were killed now."""
    shutil.copytree(directory, copy)
    return copy


def contents(directory: Path) -> list[Record]:
    """Return all records of a journal that no one has open."""
    with closing(journal_in(directory)) as journal:
        found = list(journal.records(journal.first_seq - 1))
        assert journal.last_seq == (found[-1].seq if found else journal.first_seq - 1)
        return found


def closed(journal: SqliteJournal, directory: Path) -> list[Record]:
    """Close a journal, and return all records that are in its directory."""
    journal.close()
    return contents(directory)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}
