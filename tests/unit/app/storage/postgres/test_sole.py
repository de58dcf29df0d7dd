from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oubli.app.errors import DeposedError, StartError
from oubli.app.storage.postgres.journal import SoleJournal
from oubli.app.storage.segment_keys import SegmentKeys
from tests.postgres import Server
from tests.serving import free_port
from tests.unit.app.storage.postgres.support import Place, new_place
from tests.unit.app.storage.support import batch


@pytest.fixture
def place(postgres: Server, tmp_path: Path) -> Iterator[Place]:
    with new_place(postgres, tmp_path) as place:
        yield place


def sole(place: Place, name: str = "a", lease: float = 3.0) -> SoleJournal:
    journal = SoleJournal(place.url, place.keys, name=name, lease=lease)
    place.opened.callback(journal.close)
    return journal


def test_refuses_to_start_beside_another(place: Place) -> None:
    journal = sole(place, lease=0.4)
    journal.append(batch(1, 1))
    started = time.monotonic()
    with pytest.raises(StartError, match="another server writes the journal"):
        sole(place, "b", lease=0.4)
    assert time.monotonic() - started < 5
    journal.append(batch(2, 2))  # the lease was renewed meanwhile
    journal.close()
    sole(place, "b").append(batch(3, 3))


def test_goes_on_at_once_after_a_kill(place: Place) -> None:
    cluster = place.cluster()
    assert cluster.take_over("a", None, 60.0) == 1
    started = time.monotonic()
    sole(place, "a").append(batch(1, 1))
    assert time.monotonic() - started < 3


def test_waits_for_the_lease_of_another_that_was_killed(place: Place) -> None:
    cluster = place.cluster()
    assert cluster.take_over("a", None, 1.0) == 1
    sole(place, "b", lease=1.0).append(batch(1, 1))


def test_ends_its_lease_when_it_is_closed(place: Place) -> None:
    journal = sole(place)
    journal.close()
    journal.close()
    leader = place.cluster().leader()
    assert leader is not None
    assert leader.seconds_left <= 0
    assert place.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'oubli'") == [(1,)]


def test_a_server_that_was_deposed(place: Place) -> None:
    journal = sole(place, lease=0.4)
    journal.append(batch(1, 1))
    place.take_over("b")
    with pytest.raises(DeposedError):
        journal.append(batch(2, 2))
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
