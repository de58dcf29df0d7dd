"""What only the journal in PostgreSQL does; what every journal does is in `tests/unit/app/storage/test_journal.py`."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from unittest.mock import Mock

import psycopg
import pytest

from oubli.app import errors
from oubli.app.errors import DeposedError, JournalError, JournalRefusedError, JournalUnreachableError
from oubli.app.storage.postgres import records
from oubli.app.storage.postgres.database import Cluster
from oubli.app.storage.postgres.journal import SoleJournal
from oubli.app.storage.segment_keys import SegmentKey, SegmentKeys
from tests.closing import closed_at_the_end
from tests.serving import wait_for
from tests.unit.app.storage.postgres.support import Place
from tests.unit.app.storage.support import batch, refused

# --- who writes


def test_appends_are_refused_before_it_leads_and_when_it_follows_again(place: Place) -> None:
    journal = place.journal()
    for work in (lambda: journal.append(batch(1, 1)), lambda: journal.rotate(1), lambda: journal.drop_before(1)):
        with pytest.raises(DeposedError):
            work()
    assert not journal.failed
    journal.lead(place.take_over())
    journal.append(batch(1, 1))
    journal.follow()
    refused(journal, DeposedError, batch(2, 2))
    assert place.contents() == batch(1, 1)


def test_a_deposed_node_writes_nothing_and_its_backend_is_ended(place: Place) -> None:
    old = place.led("a", n=3)
    ((pid,),) = place.execute("SELECT pid FROM oubli_leader")
    place.led("b").append(batch(4, 6))
    backend = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
    wait_for(lambda: not place.execute(backend, (pid,)), "the backend to end")
    for _ in range(2):
        refused(old, DeposedError, batch(4, 4))
    assert (old.failed, old.last_seq) == (False, 3)
    assert place.contents() == batch(1, 6)
    old.lead(place.take_over("a"))
    assert (old.last_seq, old.n_records) == (6, 6)
    old.append(batch(7, 7))
    assert place.contents() == batch(1, 7)


@pytest.mark.parametrize(
    ("work", "is_led"), [("probe", True), *product(("append", "rotate", "drop_before"), (True, False))]
)
def test_a_node_that_leads_no_more_changes_no_segment(place: Place, work: str, is_led: bool) -> None:
    """Another node leads; or none does yet, and it is still at something when it has given up its lease."""
    old = place.led("a", n=3)
    old.rotate(4)
    old.append(batch(4, 4))
    if is_led:
        place.take_over("b")
    else:
        place.cluster().resign(1)
    ids = place.keys.ids()
    works = {"append": lambda: old.append(batch(5, 5)), "probe": old.probe}
    with pytest.raises(DeposedError):
        works.get(work, lambda: getattr(old, work)(5))()
    assert not old.failed
    assert place.contents() == batch(1, 4)
    assert place.keys.ids() == ids


@pytest.mark.parametrize("change", ["last_seq = 7", "last_seq = 2", "epoch = 0"])
def test_another_state_of_the_database_is_not_written_to(place: Place, change: str) -> None:
    """Another program has written, or a standby was promoted that had not got everything: that is said loudly."""
    journal = place.led(n=3)
    place.execute(f"UPDATE oubli_leader SET {change}")  # noqa: S608 - a text of this test
    place.end_backends()
    with pytest.raises(JournalError) as error:
        journal.append(batch(4, 4))
    assert (type(error.value), journal.failed) == (JournalError, True)
    with pytest.raises(JournalError, match="failed before"):
        journal.lead(1)


# --- refused by the database


def test_a_full_disk_of_the_database(place: Place) -> None:
    journal = place.led(n=2)
    place.refuse_inserts()
    with pytest.raises(errors.JournalFullError) as error:
        journal.append(batch(3, 4))
    assert not isinstance(error.value, JournalRefusedError)
    place.take_inserts()
    journal.append(batch(3, 3))
    assert place.contents() == batch(1, 3)


def test_a_database_that_takes_no_writes(alone: Place) -> None:
    journal = alone.led(n=2)
    alone.execute(f"ALTER DATABASE {alone.database} SET default_transaction_read_only = on")
    alone.end_backends()
    refused(journal, JournalUnreachableError, batch(3, 3))
    alone.server.execute(f"ALTER DATABASE {alone.database} SET default_transaction_read_only = off")
    journal.append(batch(3, 3))
    assert alone.contents() == batch(1, 3)


def test_what_the_database_sets_for_all_is_overruled(alone: Place) -> None:
    journal, epoch = alone.journal(), alone.take_over()
    wanted = (
        *(("synchronous_commit", "off", "on"), ("statement_timeout", "1000", "0"), ("lock_timeout", "1000", "0")),
        ("default_transaction_isolation", "serializable", "read committed"),
    )
    for name, value, _ in wanted:
        alone.server.execute(f"ALTER DATABASE {alone.database} SET {name} = '{value}'")
    alone.end_backends()
    journal.lead(epoch)
    journal.append(batch(1, 3))
    connection = journal._connection
    assert connection is not None
    for name, _, expected in wanted:
        assert connection.execute(f"SHOW {name}").fetchone() == (expected,), name


# --- segments


def test_a_segment_is_a_partition_with_a_key_of_its_own(place: Place) -> None:
    journal = place.led(n=3)
    journal.rotate(4)
    journal.append(batch(4, 5))
    segments = place.cluster().segments()
    assert [row.first_seq for row in segments] == [1, 4]
    assert place.tables() == ["oubli_records_1", "oubli_records_4"]
    assert sorted(row.key_id for row in segments) == place.keys.ids()
    assert place.execute("SELECT seq FROM oubli_records_4 ORDER BY seq") == [(4,), (5,)]
    place.keys.new()  # of a rotation that was killed
    journal.drop_before(4)
    assert place.tables() == ["oubli_records_4"]
    assert place.keys.ids() == [segments[1].key_id]
    assert place.contents(3) == batch(4, 5)


def test_a_key_is_handed_over_before_anything_is_written_under_it(place: Place) -> None:
    seen: list[str] = []

    def hand_over(key: SegmentKey) -> None:
        assert key.id in place.keys.ids()  # it is on the disk here
        assert len(place.cluster().segments()) == len(seen)
        seen.append(key.id)

    journal = place.led(n=1, hand_over=hand_over)
    journal.rotate(2)
    assert [row.key_id for row in place.cluster().segments()] == seen
    assert len(seen) == 2

    def refuse(key: SegmentKey) -> None:
        raise JournalRefusedError("no other node has flushed the key")

    journal._hand_over = refuse
    with pytest.raises(JournalRefusedError):
        journal.rotate(3)
    assert place.keys.ids() == sorted(row.key_id for row in place.cluster().segments()), "it begins no segment"
    journal.append(batch(2, 2))
    assert place.contents() == batch(1, 2)


@pytest.mark.parametrize("left", ["pending", "detached", "attached"])
def test_what_a_crash_left_of_a_removal_is_removed(place: Place, left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_LOCK_MS", 200)
    journal = place.led(n=3)
    journal.rotate(4)
    if left == "detached":
        place.execute("ALTER TABLE oubli_records DETACH PARTITION oubli_records_1 CONCURRENTLY")
    if left != "pending":
        place.execute("DELETE FROM oubli_segments WHERE first_seq = 1")
    else:
        with psycopg.connect(place.url) as reader:
            reader.execute("SELECT count(*) FROM oubli_records")  # and its transaction continues
            with pytest.raises(JournalUnreachableError):
                journal.drop_before(4)
            assert not journal.failed
            journal.append(batch(4, 4))  # no one waits for the reader
            ((pending,),) = place.execute("SELECT count(*) FROM pg_inherits WHERE inhdetachpending")
            assert pending == 1
            assert place.cluster().segments()[0].first_seq == 4
    journal.drop_before(4)
    assert place.tables() == ["oubli_records_4"]
    assert len(place.keys.ids()) == 1
    journal.append(batch(journal.last_seq + 1, 6))
    assert place.contents(3) == batch(4, 6)


def test_nothing_that_opens_a_dropped_segment_stays_in_memory(place: Place) -> None:
    journal = place.led(n=2)
    journal.lead(place.take_over("a"))  # which reads the key of the newest segment
    opens = weakref.ref(journal._sealer)
    journal.rotate(3)
    journal.drop_before(3)
    gc.collect()
    assert opens() is None


def test_a_key_that_cannot_be_written_or_destroyed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = place.led(n=1)
    fail = Mock(side_effect=OSError(5, "no"))
    with monkeypatch.context() as broken:
        broken.setattr(SegmentKeys, "add", fail)
        with pytest.raises(JournalRefusedError, match="could not be written"):
            journal.rotate(2)
    journal.rotate(2)
    with monkeypatch.context() as broken:
        broken.setattr(SegmentKeys, "destroy", fail)
        with pytest.raises(JournalRefusedError, match="could not be destroyed"):
            journal.drop_before(2)
    assert len(place.keys.ids()) == 2
    journal.drop_before(2)  # it is tried again
    assert len(place.keys.ids()) == 1


# --- reading


@pytest.mark.parametrize(
    "change",
    [
        *("checksum = 'x'", "version = version + 1", "epoch = 7", "at = 7", "sealed = ''", None),
        "sealed = set_byte(sealed, 30, get_byte(sealed, 30) # 1)",
    ],
)
def test_what_was_changed_or_deleted_is_damaged(place: Place, change: str | None) -> None:
    journal = place.led(n=9)
    what = "DELETE FROM oubli_records" if change is None else f"UPDATE oubli_records SET {change}"  # noqa: S608
    place.execute(f"{what} WHERE seq = 4")
    with pytest.raises(errors.JournalDamagedError, match="record 4 of the journal"):
        list(journal.records(0))
    assert list(journal.records(4)) == batch(5, 9)


def test_a_key_is_fetched_from_another_node_once(place: Place) -> None:
    place.led().append(batch(1, 3))
    keys = place.keys
    asked: list[str] = []

    def fetch(key_id: str) -> bytes | None:
        asked.append(key_id)
        key = keys.get(key_id)
        return None if key is None else key.secret

    other = Place(place.server, place.database, place.folder / "other", place.port)
    with pytest.raises(errors.JournalDamagedError, match="not in the key directory"):
        list(other.journal().records(0))
    follower = other.journal(fetch_key=fetch)
    assert list(follower.records(0)) == batch(1, 3)
    assert asked == keys.ids() == other.keys.ids()
    assert list(other.journal().records(0)) == batch(1, 3)


def test_a_record_is_compared_without_the_key_of_its_segment(place: Place) -> None:
    """Who has destroyed a key must not get it from others again: nothing would destroy it once more."""
    journal = place.led(n=2)
    journal.lead(place.take_over("a"))
    journal.rotate(3)
    journal.append(batch(3, 3))
    other = Place(place.server, place.database, place.folder / "other", place.port)
    asked: list[str] = []
    follower = other.journal(fetch_key=asked.append)
    known = place.execute("SELECT epoch, checksum FROM oubli_records ORDER BY seq")
    assert [follower.identity_of(seq) for seq in range(1, 5)] == [*known, None]
    assert [epoch for epoch, _ in known] == [1, 1, 2]
    assert asked == other.keys.ids() == []


# --- the tables


def test_nodes_that_start_together_make_the_tables_once(place: Place) -> None:
    with ThreadPoolExecutor(6) as pool:
        assert len(list(pool.map(lambda _: place.cluster(), range(6)))) == 6
    assert place.execute("SELECT format FROM oubli_cluster") == [(1,)]


def test_nobody_leads_when_a_newer_version_has_changed_the_format(place: Place) -> None:
    journal = place.journal()
    epoch = place.take_over()
    place.execute("UPDATE oubli_cluster SET format = 2")
    newer = r"journal format 2, this version reads 1.*start that version"
    with pytest.raises(errors.StartError, match=newer):
        journal.lead(epoch)
    with pytest.raises(errors.StartError, match=newer):
        place.journal()
    refused(journal, DeposedError, batch(1, 1))
    assert place.execute("SELECT count(*) FROM oubli_records") == [(0,)]


def test_a_role_without_any_power(alone: Place) -> None:
    role = f"r{alone.database}"
    alone.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'not-a-secret'")
    alone.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    url = alone.url.replace("oubli:", f"{role}:")
    with pytest.raises(errors.StartError, match="may not create or read tables"):
        Cluster(url)
    alone.execute(f"CREATE SCHEMA {role} AUTHORIZATION {role}")  # which `search_path` names first
    for last in (0, 3):  # the second ends the backend of the first
        journal = closed_at_the_end(SoleJournal(url, alone.keys, name="a"))
        assert journal.last_seq == last
        journal.append(batch(last + 1, last + 3))
        journal.rotate(last + 4)
        journal.drop_before(last + 4)  # it may neither switch the log nor ask for a checkpoint
        assert (journal.first_seq, len(alone.keys.ids())) == (last + 4, 1)


def test_the_write_ahead_log_is_cycled_for_erasures_only(place: Place) -> None:
    journal = place.led(n=3)
    journal.rotate(4)
    journal.drop_before(4)
    before = wal_file(place)
    journal.append(batch(4, 6))
    journal.rotate(7)
    journal.drop_before(7, erases=False)
    assert (journal.first_seq, wal_file(place)) == (7, before)
    journal.drop_before(7)  # an erasure whose records went with the segment that was dropped before
    cycled = wal_file(place)
    assert cycled != before
    journal.drop_before(7)
    assert wal_file(place) == cycled  # nothing was dropped since


def wal_file(place: Place) -> str:
    ((name,),) = place.execute("SELECT pg_walfile_name(pg_current_wal_insert_lsn())")
    return str(name)
