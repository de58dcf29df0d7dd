"""What every journal does, whatever it is kept in."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oubli.app.errors import JournalDamagedError, JournalError
from oubli.app.storage.journal import Journal, Record
from oubli.app.storage.segment_keys import SegmentKeys
from tests.closing import closed_at_the_end
from tests.postgres import Server
from tests.unit.app.storage.support import batch, journal_in, record, refused

Open = Callable[[], Journal]
"""Opens a journal, or opens it again."""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "sqlite":
        return lambda: journal_in(tmp_path / "data")
    server: Server = request.getfixturevalue("postgres")
    url = server.url(server.new_schema())

    def open_in_postgres() -> Journal:
        from oubli.app.storage.postgres.journal import SoleJournal

        return closed_at_the_end(SoleJournal(url, SegmentKeys(tmp_path / "keys"), name="test"))

    return open_in_postgres


def facts(journal: Journal) -> tuple[int, int, int, int | None]:
    return journal.n_records, journal.n_bytes, journal.last_seq, journal.first_seq


def size(first: int, last: int) -> int:
    return sum(len(one.body) + len(one.notes) for one in batch(first, last))


def check_counts(journal: Journal, *, keeps: bool) -> None:
    before, first = time.time(), 1 if keeps else None
    assert (journal.is_durable, journal.failed, journal.oldest_at) == (keeps, False, None)
    journal.append([])
    assert (facts(journal), journal.oldest_at) == ((0, 0, 0, first), None)
    journal.append(batch(1, 3))
    journal.append(batch(4, 4), reserve=True)
    journal.probe()
    assert facts(journal) == (4, size(1, 4), 4, first)
    assert journal.oldest_at == pytest.approx(before, abs=5)
    for wrong in (batch(6, 7), batch(4, 5)):
        refused(journal, ValueError, wrong, "was given where")
    with pytest.raises(ValueError, match="record 4 is written"):
        journal.rotate(4)
    assert (journal.failed, facts(journal)) == (False, (4, size(1, 4), 4, first))
    journal.rotate(5)
    assert (facts(journal), journal.oldest_at) == ((0, 0, 4, first), None)
    journal.append(batch(5, 5))
    journal.close()
    journal.close()
    assert facts(journal) == (1, size(5, 5), 5, first)


def test_counts_what_is_appended_and_refuses_numbers_that_would_lose_records(opened: Open) -> None:
    check_counts(opened(), keeps=True)


def test_one_that_keeps_nothing_counts_all_the_same() -> None:
    journal = Journal()
    check_counts(journal, keeps=False)
    journal.rotate(10)
    journal.append(batch(10, 12))
    journal.drop_before(11)
    assert (journal.first_seq, journal.last_seq, list(journal.records(9))) == (None, 12, [])


def test_gives_back_what_was_appended(opened: Open) -> None:
    journal = opened()
    journal.append(batch(1, 100))  # more than is read in one piece
    journal.rotate(101)
    assert list(journal.records(100)) == []
    journal.append([record(101)])
    journal.append(batch(102, 130))
    for after in (0, 63, 64, 99, 100, 101, 129, 130):
        assert list(journal.records(after)) == batch(after + 1, 130)
    journal.close()
    refused(journal, JournalError, batch(131, 131))
    again = opened()
    assert list(again.records(98)) == batch(99, 130)
    long = [Record(seq, 1, bytes([seq]) * 3_000_000, b"n") for seq in (131, 132, 133)]
    again.append(long)
    assert list(again.records(130)) == long


def test_numbers_may_be_passed_over_for_what_a_snapshot_has(opened: Open) -> None:
    journal = opened()
    journal.append(batch(1, 3))
    journal.rotate(10)  # nothing is in it, so that only its number tells what is missing
    assert journal.last_seq == 9
    for _ in range(2):
        with pytest.raises(JournalDamagedError, match="record 4 of the journal"):
            list(journal.records(0))
        journal.append(batch(journal.last_seq + 1, 12))
    assert list(journal.records(9)) == batch(10, 12)
