"""What of the journal is dropped, and what for; erasures are finished in time, and what is late is told."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from oubli.app.service.erasure.checkpoint import CheckpointPolicy
from oubli.app.service.service import Service
from oubli.app.storage.journal import SqliteJournal
from tests.unit.app.service.test_fitting import finished as ended_job
from tests.unit.app.service.test_rebuild import tree
from tests.unit.app.support import forest, make_service, samples, served, served_here


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
        assert told[1:]
        assert all(told[1:])


async def finished(client: Any, receipts: list[str], seconds: float = 60.0) -> list[dict[str, Any]]:
    """Wait until all of some erasures are finished, and return their receipts."""
    end = time.monotonic() + seconds
    while True:
        found = [(await client.get(f"/erasures/{one}")).json() for one in receipts]
        if all(one["status"] == "erased" for one in found):
            return found
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


def with_deadline(seconds: float, directory: Path) -> Service:
    return make_service(directory=directory, policy=CheckpointPolicy(erasure_deadline=seconds))


def test_the_next_erasures_begin_as_early_as_the_last_ones_took(tmp_path: Path) -> None:
    """What an erasure waits for besides files counts as well."""

    async def work() -> None:
        service = with_deadline(60.0, tmp_path)
        async with served_here(service) as client:
            hold = service.model.holders.hold("states")
            receipt = (await client.delete("/samples/c0")).json()["id"]
            assert (await client.post("/snapshot")).status_code == 201
            await asyncio.sleep(2.0)
            assert (await client.get(f"/erasures/{receipt}")).json()["status"] == "unlearned"
            hold.let_go()
            await finished(client, [receipt])
            assert 2.0 < service.erasure.erasures.lasted < 30.0

    asyncio.run(work())


def test_erasures_that_never_cease_do_not_postpone_one_another(tmp_path: Path) -> None:
    async def work() -> None:
        service = with_deadline(4.0, tmp_path)
        async with served_here(service) as client:
            receipts: list[str] = []
            end = time.monotonic() + 9.0
            while time.monotonic() < end:
                receipts.append((await client.delete(f"/samples/c{len(receipts)}")).json()["id"])
                await asyncio.sleep(0.18)
            n_rounds = len({one["erased_at"] for one in await finished(client, receipts[:10], 0.1)})
            assert n_rounds >= 1  # while others came
            assert not any(one["overdue"] for one in await finished(client, receipts))
            assert service.erasure.erasures.n_late == 0

    asyncio.run(work())


def test_late_erasures_are_told_in_log_and_metrics(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        service = with_deadline(1.0, tmp_path)
        async with served_here(service) as client:

            async def until(text: str, n: int) -> None:
                end = time.monotonic() + 30
                while sum(text in one.getMessage() for one in caplog.records) < n:
                    assert time.monotonic() < end
                    await asyncio.sleep(0.05)

            for episode in (1, 2):
                hold = service.model.holders.hold("states")
                receipts = [(await client.delete(f"/samples/c{episode}{i}")).json()["id"] for i in range(3)]
                await until("erasures take longer than erasure_deadline (1 s): 3 are overdue", episode)
                assert (await client.get("/readyz")).status_code == 200
                assert "\noubli_erasures_overdue 3.0" in (await client.get("/metrics")).text
                hold.let_go()
                assert all(one["overdue"] for one in await finished(client, receipts))
                await until("no erasure is overdue any more", episode)
                assert f"\noubli_erasures_late_total {3 * episode}.0" in (await client.get("/metrics")).text
            assert not any(one in record.getMessage() for record in caplog.records for one in (*receipts, "c11"))

    caplog.set_level(logging.WARNING)
    asyncio.run(work())


@pytest.mark.parametrize("make", [forest, tree])
def test_a_verification_does_not_make_erasures_overdue(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An approximate model is also built again before its erasures are finished, while the verification continues."""
    ended: list[BaseException] = []

    def verify(self: Any, progress: Any = None) -> Any:
        if progress is None:  # of another caller
            return plain(self)
        try:
            for i in range(2000):  # 40 seconds
                time.sleep(0.02)
                progress(i, 2000)
        except BaseException as error:
            ended.append(error)
            raise
        return plain(self)

    model = make()
    plain = type(model).verify

    async def work() -> None:
        monkeypatch.setattr(type(model), "verify", verify)
        service = make_service(model, tmp_path / "data", policy=CheckpointPolicy(erasure_deadline=4.0))
        async with served_here(service) as client:
            job = (await client.post("/model/verify")).json()
            while (await client.get(f"/jobs/{job['id']}")).json()["progress"] <= 0.1:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            receipt = (await client.delete("/samples/c1")).json()
            deadline = time.monotonic() + 4.0
            while receipt["status"] != "erased":
                assert time.monotonic() < deadline
                assert not receipt.get("overdue")
                await asyncio.sleep(0.05)
                receipt = (await client.get(f"/erasures/{receipt['id']}")).json()
            job = await ended_job(client, job)
            assert job["status"] == "failed"
            assert "ask again" in job["error"]
            assert len(ended) == 1

    asyncio.run(asyncio.wait_for(work(), 60))
