"""PostgreSQL is killed, promoted and frozen under writers: what was acknowledged is there, once, and nothing else."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from oubli.app.errors import JournalError, JournalUnreachableError
from oubli.app.storage.postgres.journal import SETTLE_SECONDS, PostgresJournal
from tests.closing import closed_at_the_end
from tests.postgres import Server, needs_postgres, temporary_server
from tests.serving import wait_for
from tests.unit.app.storage.postgres.support import Place, new_place
from tests.unit.app.storage.support import batch


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of its own, which may be killed."""
    needs_postgres()
    with temporary_server() as server:
        yield server


class Writers(threading.Thread):
    """The service's one writing thread: batches of any length, segments now and then, until told to end."""

    def __init__(self, journal: PostgresJournal, seed: int) -> None:
        super().__init__(daemon=True)
        self._journal = journal
        self._random = random.Random(seed)
        self._ending = threading.Event()
        self.acknowledged = journal.last_seq
        self.errors: list[BaseException] = []
        self.start()

    def run(self) -> None:
        while not self._ending.is_set():
            try:
                first = self._journal.last_seq + 1
                if self._random.random() < 0.1 and self._journal.n_records:
                    self._journal.rotate(first)
                last = first + self._random.randrange(20)
                self._journal.append(batch(first, last))
                self.acknowledged = last
            except JournalUnreachableError:
                time.sleep(0.01)
            except JournalError as error:
                self.errors.append(error)
                return

    def end(self) -> None:
        self._ending.set()
        self.join(SETTLE_SECONDS + 30)
        assert not self.is_alive()

    def wait_for(self, n_more: int) -> None:
        # The journal itself finds out for so long what has become of a batch, and fails then.
        wanted = self.acknowledged + n_more
        wait_for(lambda: self.errors or self.acknowledged >= wanted, f"{wanted} records", SETTLE_SECONDS + 30, 0.005)
        assert not self.errors


@pytest.fixture
def replicated(server: Server, tmp_path: Path) -> Iterator[tuple[Place, Server, PostgresJournal]]:
    """A place whose server has a standby for which commits wait, and a journal that leads and knows of both."""
    with closing(server.standby(server.folder / "standby")) as standby:
        place = new_place(server, tmp_path)
        epoch, both = place.take_over(), f":{server.port},127.0.0.1:{standby.port}/"
        journal = PostgresJournal(place.url.replace(f":{server.port}/", both), place.keys)
        journal.lead(epoch)
        yield place, standby, closed_at_the_end(journal)


def test_the_primary_is_killed_and_a_standby_promoted(replicated: tuple[Place, Server, PostgresJournal]) -> None:
    place, standby, journal = replicated
    chance, writers = random.Random(1), Writers(journal, 1)
    for _ in range(20):
        writers.wait_for(20)
        time.sleep(chance.random() * 0.05)
        place.server.kill()
        time.sleep(chance.random() * 0.1)
        place.server.start()
    writers.wait_for(200)
    place.server.kill()
    standby.promote()
    writers.wait_for(200)
    writers.end()
    assert writers.errors == []
    promoted = Place(standby, place.database, place.folder, standby.port)
    assert promoted.contents() == batch(1, writers.acknowledged)
