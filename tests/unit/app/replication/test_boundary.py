"""A node that follows and cannot write its files says so: in its log, and to anyone who asks whether it is ready."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("psycopg")

from oubli.app.errors import StorageError
from oubli.app.replication.lease import View
from oubli.app.replication.replica import Replica
from oubli.app.storage.journal import Record
from oubli.app.storage.segment_keys import SegmentKeys
from oubli.app.storage.snapshots import Storage
from tests.unit.app.replication.test_follower import Journal, Pair
from tests.unit.app.support import forest, samples, served_here


class Segments(Journal):
    """Every record begins a segment."""

    def positioned_records(self, after_seq: int) -> Iterator[tuple[int, int, bytes, Record]]:
        for _, epoch, checksum, record in super().positioned_records(after_seq):
            yield record.seq, epoch, checksum, record


def ask(_: Any) -> Future[list[Any]]:
    answer: Future[list[Any]] = Future()
    answer.set_result([])
    return answer


async def until(is_so: Any) -> None:
    async with asyncio.timeout(8):
        while not is_so():  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.02)


def test_a_follower_with_a_full_disk_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_full = True

    def write(*_: Any, **__: Any) -> Any:
        if is_full:
            raise StorageError("No space left on device")
        return SimpleNamespace(digest="d")

    async def play() -> None:
        nonlocal is_full
        pair = Pair(forest())
        journal = Segments()
        lease: Any = SimpleNamespace(
            epoch=None, view=View(), member_timeout=0.3, answers_until=math.inf, ask=ask, resign=lambda: None
        )
        replica = Replica(lease, journal, SegmentKeys(tmp_path / "keys"), SimpleNamespace(), tmp_path)  # type: ignore[arg-type]
        async with served_here(pair.leader) as client, served_here(pair.node):
            journal.kept = pair.journal.kept  # what the leader writes
            monkeypatch.setattr(Storage, "write", write)
            monkeypatch.setattr(Storage, "snapshots", SimpleNamespace(keep_newest=lambda: 0))
            replica.start(pair.node.lifecycle)
            for i in range(3):
                assert (await client.post("/samples", json=samples(1, f"n{i}-"))).status_code == 201
            try:
                await until(lambda: "behind" in (replica.unready() or ""))
                assert "No space left on device" in str(replica.unready())
                assert pair.node.model.state.seq < pair.leader.model.state.seq
                await asyncio.sleep(1.5)  # it is tried again meanwhile
                (line,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
                assert "the snapshot of this node cannot be written" in line
                assert "No space left on device" in line
                assert "StorageError" not in line
            finally:
                is_full = False  # else it could not end
            await until(lambda: pair.node.model.state.seq == pair.leader.model.state.seq)
            await until(lambda: any("can be written again" in one.getMessage() for one in caplog.records))
            assert "behind" not in (replica.unready() or "")
            await replica.resign()

    asyncio.run(asyncio.wait_for(play(), 25))


def test_a_follower_of_a_leader_that_never_pauses_is_in_step() -> None:
    """Each time it waits, something comes: it was at the end before that."""

    async def play() -> None:
        pair = Pair(forest())
        async with served_here(pair.leader) as client, served_here(pair.node):

            def wait(*_: Any) -> bool:
                asyncio.run_coroutine_threadsafe(
                    client.post("/samples", json=samples(1, f"w{len(pair.journal.kept)}-")), loop
                ).result(10)
                return True

            loop = asyncio.get_running_loop()
            pair.journal.wait = wait  # type: ignore[method-assign]
            following = asyncio.create_task(pair.follower.run())
            await until(lambda: len(pair.journal.kept) > 4)
            assert pair.follower.is_caught_up
            pair.follower.end()
            await following

    asyncio.run(asyncio.wait_for(play(), 25))
