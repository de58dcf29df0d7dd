"""A server that is no node: it is alone, and does not continue a journal that lacks what it has acknowledged."""

import time
from pathlib import Path

import pytest

from oubli.app.errors import DeposedError, JournalDamagedError, JournalError, StartError
from oubli.app.storage.postgres.journal import MARK_NAME, PositionMark, SoleJournal
from oubli.app.storage.segment_keys import SegmentKeys
from tests.postgres import Server
from tests.serving import free_port
from tests.unit.app.storage.postgres.support import Place
from tests.unit.app.storage.support import batch, refused


def test_refuses_to_start_beside_another(place: Place) -> None:
    journal = place.sole(lease=0.4)
    journal.append(batch(1, 1))
    started = time.monotonic()
    with pytest.raises(StartError, match="another server writes the journal"):
        place.sole("b", lease=0.4)
    assert time.monotonic() - started < 5
    journal.append(batch(2, 2))  # the lease was renewed meanwhile
    journal.close()
    place.sole("b").append(batch(3, 3))


def test_ends_its_lease_when_it_is_closed(place: Place) -> None:
    journal = place.sole()
    journal.close()
    journal.close()
    leader = place.cluster().leader()
    assert leader is not None
    assert leader.seconds_left <= 0
    assert place.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'oubli'") == [(1,)]


def test_a_server_that_was_deposed(place: Place) -> None:
    journal = place.sole(lease=0.4)
    journal.append(batch(1, 1))
    place.take_over("b")
    refused(journal, DeposedError, batch(2, 2))
    time.sleep(0.3)  # it learns that from renewing as well
    journal.close()
    assert place.cluster().renew(2, 3.0)  # the lease of the other is not ended


def test_a_database_that_cannot_be_reached(tmp_path: Path, postgres: Server) -> None:
    keys = SegmentKeys(tmp_path)
    wrong = postgres.url().replace("not-a-secret", "not-the-password")
    for url in (postgres.url(port=free_port()), wrong, "postgresql://[", postgres.url("nowhere")):
        with pytest.raises(StartError, match="PostgreSQL cannot be reached") as error:
            SoleJournal(url, keys, name="a")
        assert "not-" not in str(error.value)
    assert keys.ids() == []


def marked(place: Place, n: int = 0) -> SoleJournal:
    """Open a journal that notes in the folder what it has acknowledged; append so many records."""
    journal = place.sole(directory=place.folder)
    journal.append(batch(1, n))
    return journal


def test_a_journal_that_ends_earlier_is_refused_and_gone_on_with_when_it_is_back(alone: Place) -> None:
    marked(alone, 5).close()
    records = alone.execute("SELECT * FROM oubli_records WHERE seq > 3")
    alone.set_back(3)
    for _ in range(2):
        with pytest.raises(JournalDamagedError, match=r"ends with record 3, and record 5.*Restore a state"):
            marked(alone)
    assert alone.execute("SELECT max(seq), count(*) FROM oubli_records") == [(3, 3)]
    for row in records:
        alone.execute("INSERT INTO oubli_records VALUES (%s, %s, %s, %s, %s, %s, %s)", row)
    alone.execute("UPDATE oubli_leader SET last_seq = 5")
    again = marked(alone)
    assert again.last_seq == 5
    again.append(batch(6, 6))


def test_other_records_under_the_same_numbers_are_refused(alone: Place) -> None:
    marked(alone, 5).close()
    alone.set_back(3)
    (alone.folder / "other").mkdir()
    other = alone.sole("b", directory=alone.folder / "other")
    other.append(batch(4, 9))
    other.close()
    with pytest.raises(JournalDamagedError, match="has another record 5 than"):
        marked(alone)
    follower = alone.journal(directory=alone.folder)
    with pytest.raises(JournalDamagedError, match="has another record 5 than"):
        follower.require_marked()


def test_a_leader_that_appends_after_a_loss_does_not_go_on_at_the_next_start(alone: Place) -> None:
    journal = marked(alone, 5)
    alone.set_back(3)
    alone.end_backends()
    refused(journal, JournalError, batch(6, 6), "lost")
    assert journal.failed
    journal.close()
    with pytest.raises(JournalDamagedError, match="ends with record 3"):
        marked(alone)


def test_a_mark_that_makes_no_sense_says_nothing(tmp_path: Path) -> None:
    mark = PositionMark(tmp_path)
    assert (mark.seq, list(tmp_path.iterdir())) == (0, [])
    mark.write(7, b"x" * 16)
    assert PositionMark(tmp_path).seq == 7
    (tmp_path / MARK_NAME).write_bytes((tmp_path / MARK_NAME).read_bytes()[:-3])
    assert PositionMark(tmp_path).seq == 0
    mark.forget()
    assert list(tmp_path.iterdir()) == []
