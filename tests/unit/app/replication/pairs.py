"""A service that leads, and a node that follows it, in one event loop and without a database."""

import gc
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("psycopg")

from oubli.app.ledger.database import LedgerDatabase
from oubli.app.ledger.ledger import Ledger
from oubli.app.replication.follower import Follower
from oubli.app.service.build import OpenDirectory, Start, compose, open_nothing
from oubli.app.service.model.state import ModelState
from oubli.app.storage import journal
from oubli.app.storage.journal import Record
from oubli.app.storage.postgres.journal import PositionMark
from oubli.app.storage.snapshots import Storage
from oubli.app.times import Clock
from tests.closing import closed_at_the_end
from tests.unit.app.support import forest, served_here


class Journal(journal.Journal):
    """Keeps what is written, for those who follow."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Record] = []
        self.starts: Sequence[int] = (1,)  # with which segments begin
        self.epoch = 1
        self.altered: set[int] = set()  # numbers of records that are others by now
        self.read_after: list[int] = []
        self.mark = PositionMark(None)

    def append(self, records: Any, *, reserve: bool = False) -> None:
        super().append(records, reserve=reserve)
        self.kept += records

    def positioned_records(self, after_seq: int) -> Iterator[tuple[int, int, bytes, Record]]:
        self.read_after.append(after_seq)
        for record in list(self.kept):
            if record.seq > after_seq:
                segment = max(start for start in self.starts if start <= record.seq)
                read = Read(record.seq, record.version, record.body, record.notes)
                yield segment, self.epoch, self._checksum(record.seq), read

    def identity_of(self, seq: int) -> tuple[int, bytes] | None:
        return (self.epoch, self._checksum(seq)) if any(record.seq == seq for record in self.kept) else None

    def _checksum(self, seq: int) -> bytes:
        return bytes([seq % 256, seq in self.altered])

    def wait(self, after_seq: int, timeout: float) -> bool:
        del after_seq, timeout
        return False

    def forget(self) -> None:
        """There are no keys."""


class Read(Record):
    """A record as a follower has it."""


class Boundary:
    """Notes which records are in memory where segments begin."""

    def __init__(self) -> None:
        self.alive: list[Record] = []

    def is_before(self, first_seq: int) -> bool:
        del first_seq
        return False

    async def cross(self, first_seq: int) -> None:
        del first_seq
        self.alive += [one for one in gc.get_objects() if type(one) is Read]


class Pair:
    """A service that leads, and one that follows it, with a client of each."""

    leading: Any
    following: Any

    def __init__(self, model: Any) -> None:
        opened = open_nothing()
        self.journal = opened.storage.journal = Journal()
        start = opened.begin(model)
        closed_at_the_end(opened.database)
        self.leader = compose(start)
        database = closed_at_the_end(LedgerDatabase(None, opened.keys))
        database.fold_many([(record.seq, record.notes) for record in self.journal.kept])
        state = ModelState(model.copy(), 1, start.state.epoch, seq=start.state.seq, following=True)
        state.leader_url = "http://leader"
        clock = Clock(database.highest_ms())
        self.own_journal = Journal()
        other = OpenDirectory(Storage(None, None, self.own_journal), opened.keys, database, None)
        self.node = compose(Start(other, state, Ledger(database, opened.keys, clock.now_ms), clock))
        self.boundary = Boundary()
        self.follower = Follower(self.node.lifecycle, self.journal, self.boundary)  # type: ignore[arg-type]

    async def follow(self) -> None:
        await self.follower.catch_up()

    def require_same(self) -> None:
        leader, node = self.leader.model.state, self.node.model.state
        assert (node.seq, node.version) == (leader.seq, leader.version)
        assert node.model.digest() == leader.model.digest()
        assert set(node.pending) == set(leader.pending)
        assert max(node.next_id, node.model.samples_.next_id) == max(leader.next_id, leader.model.samples_.next_id)


@asynccontextmanager
async def paired() -> AsyncIterator[Pair]:
    """A pair that is served."""
    pair = Pair(forest())
    async with served_here(pair.leader) as pair.leading, served_here(pair.node) as pair.following:
        yield pair
