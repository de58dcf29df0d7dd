"""What every journal does, whatever it is kept in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from oubli.app.errors import JournalDamagedError, JournalError
from oubli.app.storage.journal import Journal
from oubli.app.storage.segment_keys import SegmentKeys
from tests.postgres import Server
from tests.unit.app.storage.support import batch, journal_in, record, seqs

KINDS = ("memory", "sqlite", "postgres")


@dataclass
class Kind:
    """A journal, and how it is opened again."""

    name: str
    open: Callable[[], Journal]

    @property
    def keeps(self) -> bool:
        return self.name != "memory"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    if request.param == "memory":
        return Kind("memory", Journal)
    if request.param == "sqlite":
        return Kind("sqlite", lambda: journal_in(tmp_path / "data"))
    server: Server = request.getfixturevalue("postgres")
    url = server.url(server.new_schema())

    def opened() -> Journal:
        from oubli.app.storage.postgres.journal import SoleJournal

        return SoleJournal(url, SegmentKeys(tmp_path / "keys"), name="test")

    return Kind("postgres", opened)


def facts(journal: Journal) -> tuple[int, int, int, int | None]:
    return journal.n_records, journal.n_bytes, journal.last_seq, journal.first_seq


def size(first: int, last: int) -> int:
    return sum(len(one.body) + len(one.notes) for one in batch(first, last))


def test_counts_what_is_appended(kind: Kind) -> None:
    journal, before = kind.open(), time.time()
    first = 1 if kind.keeps else None
    assert (journal.is_durable, journal.failed, journal.oldest_at) == (kind.keeps, False, None)
    journal.append([])
    assert (facts(journal), journal.oldest_at) == ((0, 0, 0, first), None)
    journal.append(batch(1, 3))
    journal.append(batch(4, 4), reserve=True)
    journal.probe()
    assert facts(journal) == (4, size(1, 4), 4, first)
    assert journal.oldest_at == pytest.approx(before, abs=5)
    journal.rotate(5)
    assert (facts(journal), journal.oldest_at) == ((0, 0, 4, first), None)
    journal.append(batch(5, 5))
    journal.close()
    journal.close()
    assert facts(journal) == (1, size(5, 5), 5, first)


def test_gives_back_what_was_appended(kind: Kind) -> None:
    journal = kind.open()
    journal.append(batch(1, 100))  # more than is read in one piece
    journal.rotate(101)
    assert list(journal.records(100)) == []
    journal.append([record(101)])
    journal.append(batch(102, 130))
    for after in (0, 63, 64, 99, 100, 101, 129, 130):
        assert list(journal.records(after)) == (batch(after + 1, 130) if kind.keeps else [])
    journal.close()


def test_goes_on_where_it_was_closed(kind: Kind) -> None:
    if not kind.keeps:
        pytest.skip("it keeps nothing")
    journal = kind.open()
    journal.append(batch(1, 3))
    journal.rotate(4)
    journal.append(batch(4, 9))
    known, oldest = facts(journal), journal.oldest_at
    journal.close()
    journal = kind.open()
    assert (facts(journal), journal.oldest_at) == (known, oldest)
    journal.append(batch(10, 12))
    assert list(journal.records(2)) == batch(3, 12)
    journal.rotate(13)
    journal.close()
    journal = kind.open()  # with an empty segment
    assert facts(journal) == (0, 0, 12, 1)
    journal.rotate(13)  # is the one that it has
    journal.append(batch(13, 13))
    assert list(journal.records(0)) == batch(1, 13)
    journal.close()


def test_drops_whole_segments(kind: Kind) -> None:
    journal = kind.open()
    first = 1 if kind.keeps else None
    for end in (3, 6, 9):
        journal.append(batch(end - 2, end))
        journal.rotate(end + 1)
    journal.drop_before(4 - 1)
    assert journal.first_seq == first
    journal.drop_before(9)  # of the segment from 7 on, one is needed
    assert journal.first_seq == (7 if kind.keeps else None)
    journal.append(batch(10, 11))
    if kind.keeps:
        assert list(journal.records(6)) == batch(7, 11)
        with pytest.raises(JournalDamagedError, match="record 6 of the journal"):
            list(journal.records(5))
    journal.drop_before(1000)  # the one in use stays
    journal.drop_before(1000)
    assert journal.first_seq == (10 if kind.keeps else None)
    journal.append(batch(12, 12))
    journal.close()
    if kind.keeps:
        journal = kind.open()
        assert list(journal.records(9)) == batch(10, 12)
        journal.close()


def test_numbers_that_would_lose_records_are_mistakes(kind: Kind) -> None:
    journal = kind.open()
    journal.append(batch(1, 2))
    for wrong in (batch(4, 5), batch(2, 3)):
        with pytest.raises(ValueError, match="was given where"):
            journal.append(wrong)
    with pytest.raises(ValueError, match="record 2 is written"):
        journal.rotate(2)
    assert (journal.failed, journal.last_seq) == (False, 2)
    journal.append(batch(3, 3))
    journal.close()


def test_numbers_may_be_passed_over_for_what_a_snapshot_has(kind: Kind) -> None:
    journal = kind.open()
    journal.append(batch(1, 3))
    journal.rotate(10)
    assert journal.last_seq == 9
    journal.append(batch(10, 12))
    assert seqs(journal.records(9)) == ([10, 11, 12] if kind.keeps else [])
    if kind.keeps:
        with pytest.raises(JournalDamagedError, match="record 4 of the journal"):
            list(journal.records(0))
    journal.close()


def test_a_missing_end_is_noticed(kind: Kind) -> None:
    if not kind.keeps:
        pytest.skip("it keeps nothing")
    journal = kind.open()
    journal.append(batch(1, 3))
    journal.rotate(10)  # nothing is in it, so that only its number tells what is missing
    with pytest.raises(JournalDamagedError, match="record 4 of the journal"):
        list(journal.records(0))
    journal.close()


def test_a_closed_journal_takes_nothing(kind: Kind) -> None:
    if not kind.keeps:
        pytest.skip("it keeps nothing")
    journal = kind.open()
    journal.append(batch(1, 1))
    journal.close()
    with pytest.raises(JournalError):
        journal.append(batch(2, 2))
    journal = kind.open()
    assert list(journal.records(0)) == batch(1, 1)
    journal.close()


def test_a_record_may_be_long(kind: Kind) -> None:
    journal = kind.open()
    long = [type(record(1))(seq, 1, bytes([seq]) * 3_000_000, b"n") for seq in (1, 2, 3)]
    journal.append(long)
    assert list(journal.records(0)) == (long if kind.keeps else [])
    journal.close()
