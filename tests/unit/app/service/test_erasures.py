"""What of the journal is dropped, and what for; what keeps erasures from their end, and how many may expire at once."""

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oubli.app.errors import StorageError
from oubli.app.service.erasure.checkpoint import CheckpointPolicy
from oubli.app.service.erasure.erasures import RETRY, refuses
from oubli.app.service.evidence.receipts import HOUR_MS, EmptyErasures
from oubli.app.storage.journal import SqliteJournal
from tests.unit.app.service.support import ended_here, erased, until
from tests.unit.app.service.test_rebuild import tree
from tests.unit.app.support import make_service, samples, served, served_here


def test_the_journal_is_told_what_is_dropped_for_an_erasure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    plain = SqliteJournal.drop_before

    def drop_before(journal: SqliteJournal, seq: int, **options: Any) -> None:
        told.append(options["erases"])
        plain(journal, seq, **options)

    monkeypatch.setattr(SqliteJournal, "drop_before", drop_before)
    with served(make_service(directory=tmp_path)) as client:
        assert client.post("/samples", json=samples(2)).status_code == 201
        told.clear()
        assert client.post("/snapshot").status_code == 201
        assert told == [False]
        assert client.delete("/samples/n0").status_code == 200
        assert client.post("/snapshot").status_code == 201
        assert set(told[1:]) == {True}


@pytest.mark.anyio
@pytest.mark.usefixtures("_soon")
async def test_a_verification_does_not_make_erasures_overdue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An approximate model is also built again before its erasures are finished, while the verification continues."""
    told, ended = 0, 0

    def verify(self: Any, progress: Any = None) -> Any:
        nonlocal told, ended
        if progress is None:  # of another caller
            return plain(self)
        try:
            for told in range(2000):  # 40 seconds
                time.sleep(0.02)
                progress(told, 2000)
        except BaseException:
            ended += 1
            raise
        return plain(self)

    model = tree()
    plain = type(model).verify
    monkeypatch.setattr(type(model), "verify", verify)
    service = make_service(model, tmp_path / "data", policy=CheckpointPolicy(erasure_deadline=4.0))
    async with served_here(service) as client:
        job = (await client.post("/model/verify")).json()
        await until(lambda: told > 10)
        (receipt,) = await erased(client, (await client.delete("/samples/c1")).json()["id"])
        assert not receipt["overdue"]
        assert (await client.get("/model")).json()["mutations_since_scrub"] == 0, "it was built again"
        job = await ended_here(client, job)
        assert (job["status"], "ask again" in job["error"], ended) == ("failed", True, 1)


@pytest.mark.anyio
@pytest.mark.usefixtures("_soon")
async def test_a_snapshot_that_cannot_be_written_is_tried_again_later(tmp_path, monkeypatch):
    """Not at once: that would fill the log, and changes would wait for one copy of the model after the other."""
    seen = list[str]()

    def look() -> float:
        seen.append("clock")
        return 0.0

    def refuse(*_: Any, **__: Any) -> Any:
        seen.append("write")
        raise StorageError("full")

    monkeypatch.setattr("oubli.app.service.erasure.checkpoint.time", clock := SimpleNamespace(monotonic=look))
    service = make_service(directory=tmp_path, policy=CheckpointPolicy(erasure_deadline=0.01))
    async with served_here(service) as client:
        with monkeypatch.context() as failing:
            failing.setattr(type(service.disk.storage), "write", refuse)
            receipt = (await client.delete("/samples/c1")).json()["id"]
            await until(lambda: "write" in seen and len(seen) > seen.index("write") + 20)
            assert seen.count("write") == 1
        clock.monotonic = lambda: RETRY
        await erased(client, receipt)


# --- how many may expire at once


@pytest.mark.parametrize(
    ("n_held", "max_share", "allowed"),
    [
        *((100, 0.1, 10), (1000, 0.0001, 1), (3, 0.1, 1), (1, 0.1, 1), (0, 0.1, 0), (0, 0.0, 0), (60, 1.0, 60)),
        *((100, 0.0, 0), (60, 0.99, 59), (500_000, 0.1, 50_000)),
    ],
)
def test_a_share_may_go_and_more_has_to_be_confirmed(n_held, max_share, allowed):
    assert refuses(n_held=n_held, n_due=allowed, max_share=max_share) is None
    if allowed < n_held:
        reason = str(refuses(n_held=n_held, n_due=allowed + 1, max_share=max_share))
        assert re.match(rf"{allowed + 1} of {n_held} samples.* lets {allowed} go", reason)


# --- erasures that find nothing


def test_each_caller_has_so_many_an_hour_and_is_forgotten_afterwards():
    now = 1000
    empty = EmptyErasures(3, lambda: now)
    assert [empty.admits("a") for _ in range(5)] == [True, True, True, False, False]
    assert empty.admits("b")
    now += HOUR_MS - 1
    assert not empty.admits("a")
    now += 1
    assert [empty.admits("a") for _ in range(4)] == [True, True, True, False]
    assert len(empty._counts) == 1
    assert not EmptyErasures(0, lambda: 0).admits("a"), "none may be admitted"
