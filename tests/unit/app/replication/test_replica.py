"""Until when a node may be asked, and what it says when it is cut off, behind, or cannot write its files."""

import asyncio
import logging
import math
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("psycopg")

from oubli.app.errors import StorageError
from oubli.app.replication import follower
from oubli.app.replication.lease import Lease, Node, View
from oubli.app.replication.replica import Replica
from oubli.app.service.service import Service
from oubli.app.storage.segment_keys import SegmentKeys
from oubli.app.storage.snapshots import Storage
from oubli.app.times import elapsed
from tests.unit.app.replication.pairs import Journal, Pair
from tests.unit.app.replication.tables import Tables
from tests.unit.app.support import make_service, samples

pytestmark = pytest.mark.anyio
UNUSED: Any = None


def node(service: Service, directory: Path) -> tuple[Replica, Lease]:
    """A node whose lease is not looked after."""
    lease = Lease(Tables(), Node("a", "http://a"), 3.0, 30.0)
    replica = Replica(lease, UNUSED, UNUSED, UNUSED, directory)
    replica._host = service.lifecycle
    return replica, lease


@pytest.mark.parametrize("following", [False, True])
def test_a_node_that_is_cut_off_or_has_another_model_is_not_asked(following: bool, tmp_path: Path) -> None:
    service = make_service()
    service.model.state.following = following
    replica, lease = node(service, tmp_path)
    assert replica.answers_until == -math.inf  # before its first report
    lease.answers_until = elapsed()
    assert "has not reached PostgreSQL" in (replica.unready() or "")
    lease.answers_until = elapsed() + 60
    assert replica.answers_until == lease.answers_until
    assert "PostgreSQL" not in (replica.unready() or "")
    service.model.state.is_withdrawn = True
    assert replica.answers_until == -math.inf
    assert "not the leader's" in (replica.unready() or "")


async def holds(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.02)


def ask(_: Any) -> Future[list[Any]]:
    """Ask the database for segments, of which there are none."""
    answer: Future[list[Any]] = Future()
    answer.set_result([])
    return answer


async def test_a_follower_with_a_full_disk_says_so(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_full, n_tried = True, 0

    def write(*_: Any, **__: Any) -> Any:
        nonlocal n_tried
        n_tried += 1
        if is_full:
            raise StorageError("No space left on device")
        return SimpleNamespace(digest="d")

    monkeypatch.setattr(follower, "_RETRY", 0.05)
    monkeypatch.setattr(Storage, "write", write)
    monkeypatch.setattr(Storage, "snapshots", SimpleNamespace(keep_newest=lambda: 0))
    journal = Journal()
    journal.starts = range(1, 1000)  # every record begins a segment
    journal.kept = pair.journal.kept  # what the leader writes
    lease: Any = SimpleNamespace(epoch=None, view=View(), member_timeout=0.3, answers_until=math.inf, ask=ask)
    lease.resign = lambda: None
    replica = Replica(lease, journal, SegmentKeys(tmp_path / "keys"), SimpleNamespace(), tmp_path)  # type: ignore[arg-type]
    replica.start(pair.node.lifecycle)
    for i in range(3):
        assert (await pair.leading.post("/samples", json=samples(1, f"n{i}-"))).status_code == 201
    try:
        await holds(lambda: "behind" in (replica.unready() or ""))
        assert "No space left on device" in str(replica.unready())
        assert pair.node.model.state.seq < pair.leader.model.state.seq
        await holds(lambda: n_tried > 3)
        (line,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
        said = ("the snapshot of this node cannot be written", "No space left on device", "StorageError")
        assert [text in line for text in said] == [True, True, False]
    finally:
        is_full = False  # else it could not end
    await holds(lambda: pair.node.model.state.seq == pair.leader.model.state.seq)
    await holds(lambda: any("can be written again" in one.getMessage() for one in caplog.records))
    assert "behind" not in (replica.unready() or "")
    await replica.resign()


async def test_a_follower_of_a_leader_that_never_pauses_is_in_step(pair: Pair) -> None:
    """Each time it waits, something comes: it was at the end before that."""
    loop = asyncio.get_running_loop()

    def wait(*_: Any) -> bool:
        adding = pair.leading.post("/samples", json=samples(1, f"w{len(pair.journal.kept)}-"))
        asyncio.run_coroutine_threadsafe(adding, loop).result(10)
        return True

    pair.journal.wait = wait  # type: ignore[method-assign]
    following = asyncio.create_task(pair.follower.run())
    await holds(lambda: len(pair.journal.kept) > 4)
    assert pair.follower.is_caught_up
    pair.follower.end()
    await following
