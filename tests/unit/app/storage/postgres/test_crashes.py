"""PostgreSQL is killed, promoted and frozen under writers: what was acknowledged is there, once, and nothing else."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oubli.app.errors import DeposedError, JournalError, JournalUnreachableError
from oubli.app.storage.postgres.journal import SETTLE_SECONDS, PostgresJournal
from tests.postgres import Server, needs_postgres, temporary_server
from tests.serving import environment
from tests.unit.app.storage.postgres.support import Place, new_place
from tests.unit.app.storage.support import batch

pytestmark = pytest.mark.long


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
        self.n_refused = 0
        self.errors: list[BaseException] = []
        self.start()

    def run(self) -> None:
        journal = self._journal
        while not self._ending.is_set():
            try:
                if self._random.random() < 0.1 and journal.n_records:
                    journal.rotate(journal.last_seq + 1)
                first = journal.last_seq + 1
                last = first + self._random.randrange(20)
                journal.append(batch(first, last))
                self.acknowledged = last
            except JournalUnreachableError:
                self.n_refused += 1
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
        wanted, end = self.acknowledged + n_more, time.monotonic() + SETTLE_SECONDS + 30
        while self.acknowledged < wanted:
            assert not self.errors
            assert time.monotonic() < end, f"{self.acknowledged} acknowledged, {self.n_refused} refused"
            time.sleep(0.005)


@pytest.mark.parametrize("n_kills", [4, 60])
def test_the_primary_is_killed_under_writers(server: Server, tmp_path: Path, n_kills: int) -> None:
    chance = random.Random(n_kills)
    with new_place(server, tmp_path) as place:
        writers = Writers(place.led(), n_kills)
        for _ in range(n_kills):
            writers.wait_for(20)
            time.sleep(chance.random() * 0.05)
            server.kill()
            time.sleep(chance.random() * 0.1)
            server.start()
        writers.wait_for(20)
        writers.end()
        assert writers.errors == []
        assert place.contents() == batch(1, writers.acknowledged)


@pytest.fixture
def replicated(server: Server, tmp_path: Path) -> Iterator[tuple[Place, Server, PostgresJournal]]:
    """A place whose server has a standby for which commits wait, and a journal that leads and knows of both."""
    standby = server.standby(server.folder / "standby")
    try:
        with new_place(server, tmp_path) as place:
            epoch, both = place.take_over(), f":{server.port},127.0.0.1:{standby.port}/"
            journal = PostgresJournal(place.url.replace(f":{server.port}/", both), place.keys)
            place.opened.callback(journal.close)
            journal.lead(epoch)
            yield place, standby, journal
    finally:
        standby.close()


def test_a_standby_is_promoted_under_writers(replicated: tuple[Place, Server, PostgresJournal]) -> None:
    place, standby, journal = replicated
    writers = Writers(journal, 1)
    writers.wait_for(200)
    place.server.kill()
    standby.promote()
    writers.wait_for(200)
    writers.end()
    assert writers.errors == []
    promoted = Place(standby, place.database, place.folder, standby.port, place.opened)
    assert promoted.contents() == batch(1, writers.acknowledged)


def test_a_standby_without_what_was_acknowledged_is_not_written_to(
    replicated: tuple[Place, Server, PostgresJournal],
) -> None:
    """Replication was not synchronous: an operator's mistake, which must not pass in silence."""
    place, standby, journal = replicated
    journal.append(batch(1, 3))
    place.server.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
    place.server.execute("SELECT pg_reload_conf()")
    time.sleep(0.3)
    standby.stop()
    journal.append(batch(4, 5))
    place.server.kill()
    standby.start_promoted()
    with pytest.raises(JournalError, match="lost acknowledged records"):
        append_when_reached(journal, 6)
    assert journal.failed


def append_when_reached(journal: PostgresJournal, seq: int) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            journal.append(batch(seq, seq))
        except JournalUnreachableError:
            time.sleep(0.05)
        else:
            return


LEADER = """
import sys, time
from pathlib import Path
from oubli.app.errors import DeposedError
from oubli.app.storage.postgres.database import Cluster
from oubli.app.storage.postgres.journal import PostgresJournal
from oubli.app.storage.segment_keys import SegmentKeys
from tests.unit.app.storage.support import batch
url, folder = sys.argv[1:]
journal = PostgresJournal(url, SegmentKeys(Path(folder)), lease=0.5)
journal.lead(Cluster(url).take_over("frozen", None, 0.5))
try:
    while True:
        journal.append(batch(journal.last_seq + 1, journal.last_seq + 3))
        print(journal.last_seq, flush=True)
except DeposedError:
    print("deposed", journal.failed, flush=True)
"""


def test_a_frozen_leader_writes_nothing_more(postgres: Server, tmp_path: Path) -> None:
    with new_place(postgres, tmp_path) as place:
        command = [sys.executable, "-c", LEADER, place.url, str(place.folder / "segments")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
        try:
            assert process.stdout is not None
            while int(process.stdout.readline()) < 30:
                pass
            os.kill(process.pid, signal.SIGSTOP)
            cluster, end = place.cluster(), time.monotonic() + 20
            while (epoch := cluster.take_over("b", None, 60.0)) is None:
                assert time.monotonic() < end
                time.sleep(0.02)
            journal = place.journal()
            journal.lead(epoch)
            first = journal.last_seq
            journal.append(batch(first + 1, first + 5))
            os.kill(process.pid, signal.SIGCONT)
            *told, last = process.stdout.read().split("\n")[:-1]
            assert last == "deposed False"
            assert all(int(number) <= first for number in told)
            assert place.contents() == batch(1, first + 5)
            with pytest.raises(DeposedError):
                place.journal().lead(epoch - 1)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
