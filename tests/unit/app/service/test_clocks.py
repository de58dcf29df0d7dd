"""Whatever is done to the machine's clock: erasures end in time, receipts tell the truth, nothing is done too often."""

from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oubli.app.errors import StopReason
from oubli.app.ledger.downloads import check_ledger, check_receipt
from oubli.app.service.build import Limits, compose, open_directory
from oubli.app.service.erasure.checkpoint import CheckpointPolicy
from oubli.app.service.service import Service
from tests.tiers import ordinary
from tests.unit.app.service.simulated import DAY, NOON, Machine
from tests.unit.app.service.support import begun, erased, until
from tests.unit.app.support import JSON, samples, served_here

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("_soon")]
SECOND, DEADLINE, HOUR, GRACE = 1000, 60_000, 3_600_000, 7_200_000
REF = "00000000-0000-4000-8000-000000000001"


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
    start = begun(open_directory(path, new_clock=machine.clock, now=lambda: machine.wall / 1000))
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
    async with served_here(service := start(path, machine, **policy)) as client:
        yield client, machine, service


@pytest.fixture(params=ordinary(CLOCKS, "an hour back", "a leap ahead"))
def wrong(request: pytest.FixtureRequest) -> Iterator[Wrong]:
    return CLOCKS[request.param]


async def get(client: Any, path: str) -> Any:
    found = await client.get(path)
    assert found.status_code == 200
    return found.json()


async def test_an_erasure_ends_in_time_and_is_not_overdue(wrong, tmp_path):
    async with with_clock(tmp_path / "data", wrong) as (client, machine, _):
        receipt = (await client.delete("/samples/c0")).json()["id"]
        machine.wait(SECOND, wrong.meanwhile)
        # The first round may begin at once: how long it takes is not known yet.
        assert (await get(client, f"/erasures/{receipt}"))["overdue"] is False
        wrong.wait(machine, DEADLINE // 2)
        (finished,) = await erased(client, receipt)
        assert (finished["overdue"], (await get(client, "/model"))["overdue_erasures"]) == (False, 0)


async def test_one_that_waits_too_long_is_overdue_everywhere_and_for_ever(wrong, tmp_path, monkeypatch):
    async with with_clock(tmp_path / "data", wrong) as (client, machine, service):
        with monkeypatch.context() as held:
            held.setattr(service.erasure.checkpointer, "_is_due", lambda: False)  # as on a disk that is full
            receipt = (await client.delete("/samples/c0", params={"ref": REF})).json()["id"]

            async def overdue() -> list[Any]:
                of_id, of_ref = [await get(client, f"/erasures{one}") for one in (f"/{receipt}", f"?ref={REF}")]
                count = (await get(client, "/model"))["overdue_erasures"]
                return [of_id["overdue"], of_ref["erasures"][0]["overdue"], count]

            next_in = service.erasure.erasures.deadline.next_in
            assert next_in() == (receipt, DEADLINE / SECOND)
            machine.wait(SECOND, wrong.meanwhile)
            wrong.wait(machine, DEADLINE - 2 * SECOND)
            assert (await overdue(), next_in()) == ([False, False, 0], (receipt, 1.0))
            wrong.wait(machine, 2 * SECOND)
            assert (await overdue(), next_in()) == ([True, True, 1], (receipt, -1.0))
            assert (await client.delete("/samples/c0")).json()["overdue"] is True, "asked for once more"
        (finished,) = await erased(client, receipt)
        assert [finished["overdue"], *await overdue()] == [True, True, True, 0]
        assert check_receipt(finished, check_ledger((await get(client, "/ledger?limit=50"))["entries"])).overdue is True
    async with served_here(start(tmp_path / "data", machine)) as client:
        assert (await get(client, f"/erasures/{receipt}"))["overdue"] is True


async def left_by_an_earlier_process(directory: Path, wrong: Wrong, rest: int) -> bool:
    """Erase, and be killed before that is finished; return whether it is overdue when the next process finishes it."""
    machine = Machine(NOON + wrong.at_first)
    async with served_here(service := start(directory, machine)) as client:
        receipt = (await client.delete("/samples/c0")).json()
        machine.wait(SECOND, wrong.meanwhile)
        service.model.state.halt(StopReason.DISK_FAILED)  # as after a kill, nothing is written at the end
    machine.wait(rest, wrong.at_second)
    async with served_here(start(directory, machine)) as client:
        (finished,) = await erased(client, receipt["id"])
        return bool(finished["overdue"])


async def test_what_an_earlier_process_left_is_erased_at_once_and_overdue_after_a_long_rest(wrong, tmp_path):
    await left_by_an_earlier_process(tmp_path / "data", wrong, SECOND)
    assert await left_by_an_earlier_process(tmp_path / "rested", Wrong(), 3 * DAY)


async def test_an_erased_id_comes_back_when_its_grace_is_over_and_not_before(wrong, tmp_path):
    async with with_clock(tmp_path / "data", wrong) as (client, machine, _):

        async def add() -> int:
            return int((await client.post("/samples", json=samples(1, "late"), headers=JSON)).status_code)

        assert await add() == 201
        await client.delete("/samples/late0")
        machine.wait(SECOND, wrong.meanwhile)
        wrong.wait(machine, GRACE - 2 * SECOND)
        assert await add() == 409
        wrong.wait(machine, 2 * SECOND)
        assert await add() == 201


async def test_a_repeated_request_is_known_for_a_day_and_no_longer(wrong, tmp_path):
    async with with_clock(tmp_path / "data", wrong) as (client, machine, service):

        async def add() -> Any:
            return await client.post("/samples", json=samples(1, "keyed"), headers={**JSON, "Idempotency-Key": "again"})

        asked, contains = await add(), service.model.state.model.samples_.contains
        assert asked.status_code == 201
        await client.delete("/samples/keyed0")
        machine.wait(SECOND, wrong.meanwhile)
        wrong.wait(machine, DAY - 2 * SECOND)
        assert ((await add()).json(), contains("keyed0")) == (asked.json(), False)
        wrong.wait(machine, 2 * SECOND)
        assert ((await add()).status_code, contains("keyed0")) == (201, True)


async def test_many_changes_write_no_snapshot_before_the_journal_is_old(wrong, tmp_path):
    async with with_clock(tmp_path / "data", wrong, snapshot_age=3600.0) as (client, machine, service):
        checkpointer, snapshots = service.erasure.checkpointer, service.disk.storage.snapshots
        before = snapshots.newest.id
        machine.wait(2 * HOUR)  # with an empty journal, which does not get old
        assert not checkpointer._is_due()
        for i in range(30):
            machine.wait(SECOND, wrong.meanwhile if i == 15 else 0)
            assert (await client.post("/samples", json=samples(1, f"x{i}-"), headers=JSON)).status_code == 201
            assert not checkpointer._is_due()  # what the background task asks
        assert snapshots.newest.id == before
        wrong.wait(machine, HOUR)
        await until(lambda: snapshots.newest.id != before)
        assert not checkpointer._is_due()


# --- a deadline that is short, or far away


async def test_the_next_erasures_begin_as_early_as_the_last_ones_took(tmp_path, monkeypatch):
    """What an erasure waits for besides files counts as well."""
    steady = SimpleNamespace(monotonic=lambda: 0.0)
    for name in ("erasures", "checkpoint"):
        monkeypatch.setattr(f"oubli.app.service.erasure.{name}.time", steady)
    async with served_here(service := start(tmp_path / "data", Machine())) as client:
        hold = service.model.holders.hold("states")
        receipt = (await client.delete("/samples/c0")).json()["id"]
        assert (await client.post("/snapshot")).status_code == 201
        steady.monotonic = lambda: 7.0
        assert (await get(client, f"/erasures/{receipt}"))["status"] == "unlearned"
        hold.let_go()
        await erased(client, receipt)
        assert service.erasure.erasures.lasted == 7.0


async def test_erasures_that_never_cease_do_not_postpone_one_another(tmp_path):
    machine = Machine()
    async with served_here(service := start(tmp_path / "data", machine)) as client:
        is_due, receipts = service.erasure.checkpointer._is_due, []
        for i in range(120):
            if i < 60:
                receipts.append((await client.delete(f"/samples/c{i}")).json()["id"])
            machine.wait(SECOND)
            await until(lambda: not is_due())  # no time goes by while it writes
        assert not any(one["overdue"] for one in await erased(client, *receipts))
        assert service.erasure.erasures.n_late == 0
