"""A journal that does not have what this machine has acknowledged is not gone on with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oubli.app.errors import JournalDamagedError, JournalError
from oubli.app.storage.postgres.journal import MARK_NAME, PositionMark, SoleJournal
from tests.postgres import Server
from tests.unit.app.storage.postgres.support import Place, new_place
from tests.unit.app.storage.support import batch


@pytest.fixture
def place(postgres: Server, tmp_path: Path) -> Iterator[Place]:
    with new_place(postgres, tmp_path, own_database=True) as place:
        yield place


def led(place: Place, name: str = "a") -> SoleJournal:
    journal = SoleJournal(place.url, place.keys, name=name, directory=place.folder)
    place.opened.callback(journal.close)
    return journal


def set_back(place: Place, last_seq: int) -> None:
    """Put the database to where it was after a record."""
    place.execute("DELETE FROM oubli_records WHERE seq > %s", (last_seq,))
    place.execute("UPDATE oubli_leader SET last_seq = %s", (last_seq,))


def test_a_journal_that_ends_earlier_is_refused_and_gone_on_with_when_it_is_back(place: Place) -> None:
    journal = led(place)
    journal.append(batch(1, 5))
    journal.close()
    records = place.execute("SELECT * FROM oubli_records WHERE seq > 3")
    set_back(place, 3)
    for _ in range(2):
        with pytest.raises(JournalDamagedError, match=r"ends with record 3, and record 5.*Restore a state"):
            led(place)
    assert place.execute("SELECT max(seq), count(*) FROM oubli_records") == [(3, 3)]
    for row in records:
        place.execute("INSERT INTO oubli_records VALUES (%s, %s, %s, %s, %s, %s, %s)", row)
    place.execute("UPDATE oubli_leader SET last_seq = 5")
    again = led(place)
    assert again.last_seq == 5
    again.append(batch(6, 6))


def test_other_records_under_the_same_numbers_are_refused(place: Place) -> None:
    journal = led(place)
    journal.append(batch(1, 5))
    journal.close()
    set_back(place, 3)
    (place.folder / "other").mkdir()
    other = SoleJournal(place.url, place.keys, name="b", directory=place.folder / "other")
    other.append(batch(4, 9))
    other.close()
    with pytest.raises(JournalDamagedError, match="has another record 5 than"):
        led(place)
    follower = place.journal(directory=place.folder)
    with pytest.raises(JournalDamagedError, match="has another record 5 than"):
        follower.require_marked()


def test_a_segment_that_was_dropped_is_no_loss(place: Place) -> None:
    journal = led(place)
    journal.append(batch(1, 5))
    journal.rotate(6)
    journal.drop_before(6)
    journal.close()
    again = led(place)
    again.append(batch(6, 6))
    assert PositionMark(place.folder).seq == 6


def test_a_leader_that_appends_after_a_loss_does_not_go_on_at_the_next_start(place: Place) -> None:
    journal = led(place)
    journal.append(batch(1, 5))
    set_back(place, 3)
    place.end_backends()
    with pytest.raises(JournalError, match="lost"):
        journal.append(batch(6, 6))
    assert journal.failed
    journal.close()
    with pytest.raises(JournalDamagedError, match="ends with record 3"):
        led(place)


def test_a_mark_that_makes_no_sense_says_nothing(tmp_path: Path) -> None:
    mark = PositionMark(tmp_path)
    assert (mark.seq, list(tmp_path.iterdir())) == (0, [])
    mark.write(7, b"x" * 16)
    assert PositionMark(tmp_path).seq == 7
    (tmp_path / MARK_NAME).write_bytes((tmp_path / MARK_NAME).read_bytes()[:-3])
    assert PositionMark(tmp_path).seq == 0
    mark.forget()
    assert list(tmp_path.iterdir()) == []
