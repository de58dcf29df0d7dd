"""Whatever is done to the machine's clock: erasures end in time, receipts tell the truth, nothing is done too often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from oubli.app.errors import StopReason
from oubli.app.ledger.downloads import check_ledger, check_receipt
from oubli.app.service.build import Limits, compose, open_directory
from oubli.app.service.erasure.checkpoint import CheckpointPolicy
from oubli.app.service.service import Service
from oubli.app.times import Clock
from tests.unit.app.support import JSON, forest, samples, served_here

SECOND = 1000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
NOON = 20_000 * DAY
DEADLINE = 60 * SECOND
GRACE = 2 * HOUR


@dataclass
class Machine:
    """A machine whose clock can be set; what has elapsed cannot."""

    wall: int = NOON
    elapsed: int = 5 * SECOND

    def wait(self, ms: int, drift: int = 0) -> None:
        """Let time elapse, and set the clock meanwhile."""
        self.wall += ms + drift
        self.elapsed += ms

    def clock(self, highest: int | None) -> Clock:
        return Clock(highest, wall_ms=lambda: self.wall, elapsed_ms=lambda: self.elapsed)


@dataclass(frozen=True)
class Wrong:
    """How a clock is wrong: set before the first start, set right or wrong before the second, set while it serves."""

    at_first: int = 0
    at_second: int = 0
    meanwhile: int = 0
    stands_still: bool = False

    def wait(self, machine: Machine, ms: int) -> None:
        machine.wait(ms, -ms if self.stands_still else 0)


CLOCKS = {
    "right": Wrong(),
    "an hour back": Wrong(meanwhile=-HOUR),
    "ten years back": Wrong(meanwhile=-3650 * DAY),
    "an hour ahead": Wrong(meanwhile=HOUR),
    "a leap ahead": Wrong(meanwhile=3 * DAY),
    "stands still": Wrong(stands_still=True),
    "was ahead at the start": Wrong(at_first=5 * HOUR, at_second=-5 * HOUR),
    "was ten years ahead at the start": Wrong(at_first=3650 * DAY, at_second=-3650 * DAY),
    "was behind at the start": Wrong(at_first=-5 * HOUR, at_second=5 * HOUR),
    "back between two starts": Wrong(at_second=-DAY),
}


def start(path: Path, machine: Machine, **policy: Any) -> Service:
    opened = open_directory(path, new_clock=machine.clock, now=lambda: machine.wall / 1000)
    if opened.holds_model:
        assert opened.snapshots is not None
        start = opened.recover(opened.snapshots.recover())
    else:
        start = opened.begin(forest())
    limits = Limits(readd_grace=GRACE / 1000)
    chosen = CheckpointPolicy(erasure_deadline=DEADLINE / 1000, **policy)
    return compose(start, limits=limits, policy=chosen, idle_resolve=False)


@asynccontextmanager
async def with_clock(path: Path, wrong: Wrong, **policy: Any) -> Any:
    """Start with a clock, stop, start again; give the second server and its machine."""
    machine = Machine(NOON + wrong.at_first)
    async with served_here(start(path, machine)) as client:
        assert (await client.post("/samples", json=samples(1, "before"), headers=JSON)).status_code == 201
    machine.wait(SECOND, wrong.at_second)
    service = start(path, machine, **policy)
    async with served_here(service) as client:
        yield client, machine, service


async def until(question: Callable[[], Any]) -> Any:
    """Ask until the answer is true; upkeep looks every quarter of a second."""
    for _ in range(400):
        answer = await question()
        if answer:
            return answer
        await asyncio.sleep(0.02)
    raise AssertionError("waited in vain")


async def receipt_of(client: Any, receipt: dict[str, Any]) -> dict[str, Any]:
    found = await client.get(f"/erasures/{receipt['id']}")
    assert found.status_code == 200
    return dict(found.json())


_ORDINARY = ("an hour back", "a leap ahead", "was ahead at the start")


@pytest.fixture(params=[pytest.param(name, marks=() if name in _ORDINARY else pytest.mark.long) for name in CLOCKS])
def wrong(request: pytest.FixtureRequest) -> Iterator[Wrong]:
    return CLOCKS[request.param]


def test_an_erasure_ends_in_time_and_is_not_overdue(wrong, tmp_path):
    async def work() -> None:
        async with with_clock(tmp_path / "data", wrong) as (client, machine, _):
            receipt = (await client.delete("/samples/c0")).json()
            machine.wait(SECOND, wrong.meanwhile)
            await asyncio.sleep(0.6)
            # The first round may begin at once: how long it takes is not known yet.
            assert (await receipt_of(client, receipt))["overdue"] is False
            wrong.wait(machine, DEADLINE // 2)

            async def erased() -> dict[str, Any] | None:
                now = await receipt_of(client, receipt)
                return now if now["status"] == "erased" else None

            assert (await until(erased))["overdue"] is False
            assert (await client.get("/model")).json()["overdue_erasures"] == 0

    asyncio.run(work())


def test_one_that_waits_too_long_is_overdue_everywhere_and_for_ever(wrong, tmp_path, monkeypatch):
    async def work() -> None:
        async with with_clock(tmp_path / "data", wrong) as (client, machine, service):
            with monkeypatch.context() as held:
                held.setattr(service.erasure.checkpointer, "_is_due", lambda: False)  # as on a disk that is full
                receipt = (await client.delete("/samples/c0", params={"ref": str(REF)})).json()
                machine.wait(SECOND, wrong.meanwhile)
                wrong.wait(machine, DEADLINE - 2 * SECOND)
                assert (await receipt_of(client, receipt))["overdue"] is False
                assert (await client.get("/model")).json()["overdue_erasures"] == 0
                wrong.wait(machine, 2 * SECOND)
                assert (await receipt_of(client, receipt))["overdue"] is True
                assert (await client.get(f"/erasures?ref={REF}")).json()["erasures"][0]["overdue"] is True
                assert (await client.delete("/samples/c0")).json()["overdue"] is True, "asked for once more"
                assert (await client.get("/model")).json()["overdue_erasures"] == 1

            async def erased() -> bool:
                return (await receipt_of(client, receipt))["status"] == "erased"

            await until(erased)
            assert (await receipt_of(client, receipt))["overdue"] is True
            assert (await client.get("/model")).json()["overdue_erasures"] == 0
            ledger = check_ledger((await client.get("/ledger?limit=50")).json()["entries"])
            assert check_receipt(await receipt_of(client, receipt), ledger).overdue is True
        async with served_here(start(tmp_path / "data", machine)) as client:
            assert (await receipt_of(client, receipt))["overdue"] is True

    asyncio.run(work())


REF = "00000000-0000-4000-8000-000000000001"


def test_what_an_earlier_process_left_is_erased_at_once(wrong, tmp_path):
    async def work() -> None:
        machine = Machine(NOON + wrong.at_first)
        service = start(tmp_path / "data", machine)
        async with served_here(service) as client:
            receipt = (await client.delete("/samples/c0")).json()
            machine.wait(SECOND, wrong.meanwhile)
            service.model.state.halt(StopReason.DISK_FAILED)  # as after a kill, nothing is written at the end
        machine.wait(SECOND, wrong.at_second)
        async with served_here(start(tmp_path / "data", machine)) as client:

            async def erased() -> bool:
                return (await receipt_of(client, receipt))["status"] == "erased"

            await until(erased)

    asyncio.run(work())


def test_a_long_rest_makes_what_was_left_overdue(tmp_path):
    async def work() -> None:
        machine = Machine()
        service = start(tmp_path / "data", machine)
        async with served_here(service) as client:
            receipt = (await client.delete("/samples/c0")).json()
            service.model.state.halt(StopReason.DISK_FAILED)
        machine.wait(3 * DAY)
        async with served_here(start(tmp_path / "data", machine)) as client:

            async def erased() -> dict[str, Any] | None:
                now = await receipt_of(client, receipt)
                return now if now["status"] == "erased" else None

            assert (await until(erased))["overdue"] is True

    asyncio.run(work())


def test_an_erased_id_comes_back_when_its_grace_is_over_and_not_before(wrong, tmp_path):
    async def work() -> None:
        async with with_clock(tmp_path / "data", wrong) as (client, machine, _):
            assert (await client.post("/samples", json=samples(1, "late"), headers=JSON)).status_code == 201
            await client.delete("/samples/late0")

            async def add() -> int:
                answer = await client.post("/samples", json=samples(1, "late"), headers=JSON)
                return int(answer.status_code)

            machine.wait(SECOND, wrong.meanwhile)
            wrong.wait(machine, GRACE - 2 * SECOND)
            assert await add() == 409
            wrong.wait(machine, 2 * SECOND)
            assert await add() == 201

    asyncio.run(work())


def test_a_repeated_request_is_known_for_a_day_and_no_longer(wrong, tmp_path):
    async def work() -> None:
        async with with_clock(tmp_path / "data", wrong) as (client, machine, service):
            headers = {**JSON, "Idempotency-Key": "again"}
            body = samples(1, "keyed")
            asked = await client.post("/samples", json=body, headers=headers)
            assert asked.status_code == 201
            await client.delete("/samples/keyed0")
            machine.wait(SECOND, wrong.meanwhile)
            wrong.wait(machine, DAY - 2 * SECOND)
            assert (await client.post("/samples", json=body, headers=headers)).json() == asked.json()
            assert not service.model.state.model.samples_.contains("keyed0")
            wrong.wait(machine, 2 * SECOND)
            assert (await client.post("/samples", json=body, headers=headers)).status_code == 201
            assert service.model.state.model.samples_.contains("keyed0")

    asyncio.run(work())


def test_a_hundred_changes_write_no_snapshot_before_the_journal_is_old(wrong, tmp_path):
    async def work() -> None:
        async with with_clock(tmp_path / "data", wrong, snapshot_age=3600.0) as (client, machine, service):
            before = service.disk.storage.snapshots.newest.id
            await asyncio.sleep(0.3)
            machine.wait(2 * HOUR)  # with an empty journal, which does not get old
            n_due = 0
            for i in range(100):
                machine.wait(SECOND, wrong.meanwhile if i == 50 else 0)
                assert (await client.post("/samples", json=samples(1, f"x{i}-"), headers=JSON)).status_code == 201
                n_due += (
                    service.erasure.checkpointer._is_due()
                )  # what the background task asks every quarter of a second
            await asyncio.sleep(0.6)
            assert (n_due, service.disk.storage.snapshots.newest.id) == (0, before)
            wrong.wait(machine, HOUR)

            async def written() -> bool:
                return bool(service.disk.storage.snapshots.newest.id != before)

            await until(written)
            assert not service.erasure.checkpointer._is_due()

    asyncio.run(work())


def test_a_key_ends_when_its_time_has_elapsed():
    machine = Machine()
    clock = machine.clock(None)
    end = NOON + HOUR
    machine.wait(HOUR // 2, -DAY)
    assert clock.latest_ms() < end
    machine.wait(HOUR // 2)
    assert clock.latest_ms() >= end, "the clock is still behind"
    machine.wait(0, 2 * DAY)
    assert clock.latest_ms() == NOON + DAY + HOUR, "a clock that is ahead is believed while it is"
    machine.wait(0, -DAY)
    assert clock.latest_ms() == NOON + HOUR
