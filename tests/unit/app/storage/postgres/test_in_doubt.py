"""Connections that are lost before a statement, in its midst and after it: an answer says what is in the journal."""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oubli.app.errors import DeposedError, JournalError, JournalUnreachableError
from oubli.app.storage.postgres.journal import PostgresJournal
from tests.closing import closed_at_the_end
from tests.postgres import Proxy, Server
from tests.serving import wait_for
from tests.unit.app.storage.postgres.support import Place, new_place
from tests.unit.app.storage.support import batch, refused


@pytest.fixture
def proxy(postgres: Server) -> Proxy:
    return closed_at_the_end(Proxy(postgres.port))


@pytest.fixture
def place(postgres: Server, proxy: Proxy, tmp_path: Path) -> Place:
    return new_place(postgres, tmp_path, port=proxy.port)


def wait_for_waiting(place: Place, n: int) -> None:
    """Return when so many backends wait for a lock."""
    text = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    wait_for(lambda: place.execute(text) == [(n,)], f"{n} to wait")


def appending_to(journal: PostgresJournal, first: int, last: int) -> Future[None]:
    """Append in a thread of its own, as the service does."""
    return ThreadPoolExecutor(1).submit(journal.append, batch(first, last))


@pytest.mark.parametrize("way", ["lose_question", "lose_answer"])
def test_the_question_or_its_answer_is_lost(place: Place, proxy: Proxy, way: str) -> None:
    """It is sent again when nothing of it was there, and only then."""
    journal = place.led(n=2)
    getattr(proxy, way)()
    journal.append(batch(3, 4))
    assert journal.last_seq == 4
    getattr(proxy, way)()
    journal.rotate(5)  # a segment is begun once
    journal.append(batch(5, 5))
    assert place.contents() == batch(1, 5)
    assert [row.first_seq for row in place.cluster().segments()] == [1, 5]
    assert len(place.keys.ids()) == 2


def test_the_question_comes_late(place: Place, proxy: Proxy) -> None:
    journal = place.led(n=2)
    proxy.hold_question()
    journal.append(batch(3, 4))
    journal.append(batch(5, 5))
    late = proxy.send_held()
    assert b"SELECT 1" in late  # it has run, and has counted that it wrote nothing
    assert place.contents() == batch(1, 5)


def test_the_question_comes_late_and_finds_its_number_free(place: Place, proxy: Proxy) -> None:
    """What was refused must not appear later: the number is free, the epoch is the same, the backend is another."""
    journal = place.led(settle_seconds=5, n=2)
    proxy.hold_question()
    place.refuse_inserts()
    refused(journal, JournalError, batch(3, 4))  # lost, and sent again, and refused
    assert not journal.failed
    place.take_inserts()
    assert place.execute("SELECT last_seq FROM oubli_leader") == [(2,)]
    proxy.send_held()
    assert place.contents() == batch(1, 2)
    journal.append(batch(3, 3))
    assert place.contents() == batch(1, 3)


def test_cut_while_the_database_works(place: Place, proxy: Proxy) -> None:
    journal = place.led(n=2)
    with psycopg.connect(place.server.url(place.database)) as other:
        other.execute("SELECT 1 FROM oubli_leader FOR UPDATE")  # so that appends wait in the database
        appending = appending_to(journal, 3, 4)
        wait_for_waiting(place, 1)
        proxy.cut()
        wait_for_waiting(place, 2)  # the old backend, and the new one that wants to know what has become of it
    assert appending.exception(20) is None
    assert place.contents() == batch(1, 4)
    journal.append(batch(5, 5))
    assert place.contents() == batch(1, 5)


def test_not_reached_before_anything_was_sent(place: Place, proxy: Proxy) -> None:
    journal = place.led(n=2)
    proxy.is_away = True
    proxy.cut()
    works: list[Any] = [lambda: journal.append(batch(3, 3)), journal.probe, lambda: list(journal.records(0))]
    works += [lambda: journal.rotate(3), lambda: journal.drop_before(3), lambda: journal.wait(0, 0.01)]
    for work in works:
        with pytest.raises(JournalUnreachableError):
            work()
    assert not journal.failed
    assert place.keys.ids() == [row.key_id for row in place.cluster().segments()]  # that of `rotate` is gone again
    proxy.is_away = False
    journal.probe()
    journal.append(batch(3, 3))
    assert place.contents() == batch(1, 3)


@pytest.mark.parametrize("is_closed", [False, True])
def test_in_doubt_for_too_long(place: Place, proxy: Proxy, is_closed: bool) -> None:
    journal = place.led(settle_seconds=60 if is_closed else 0.5, n=2)
    proxy.lose_answer()
    proxy.is_away = True
    appending = appending_to(journal, 3, 4)
    if is_closed:
        time.sleep(0.3)
        assert not appending.done()  # nothing is said as long as nothing is known
        journal.close()
    error = appending.exception(20)
    assert type(error) is JournalError
    assert journal.failed
    refused(journal, JournalError, batch(5, 5), "failed before")
    proxy.is_away = False
    assert place.contents() == batch(1, 4)


@pytest.mark.parametrize("way", ["hold_question", "lose_answer"])
def test_another_node_leads_before_the_answer_comes(place: Place, proxy: Proxy, way: str) -> None:
    journal, is_committed = place.led(n=2), way == "lose_answer"
    getattr(proxy, way)()
    proxy.is_away = True
    appending = appending_to(journal, 3, 4)
    if is_committed:
        wait_for(lambda: place.execute("SELECT last_seq FROM oubli_leader") == [(4,)], "the commit")
    else:
        time.sleep(0.1)
    assert place.take_over("b") == 2
    proxy.is_away = False
    error = appending.exception(20)
    assert error is None if is_committed else isinstance(error, DeposedError)  # committed is committed
    refused(journal, DeposedError, batch(journal.last_seq + 1, 5))
    assert not journal.failed
    assert place.contents() == batch(1, 4 if is_committed else 2)


def test_the_wait_for_the_standby_is_cut_short(place: Place) -> None:
    """A warning: it is committed on the primary, and perhaps on no standby. It is settled before it is answered."""
    journal = place.led(n=2)
    place.execute(
        "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN RAISE WARNING ''canceling wait for synchronous replication''; RETURN NULL; END'"
    )
    place.execute("CREATE TRIGGER warn AFTER INSERT ON oubli_records EXECUTE FUNCTION warn()")
    before = journal._connection
    journal.append(batch(3, 4))
    assert journal._connection is not before
    place.execute("DROP TRIGGER warn ON oubli_records")
    assert place.contents() == batch(1, 4)
