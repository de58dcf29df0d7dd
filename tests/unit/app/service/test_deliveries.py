"""Every state of every receipt is delivered at least once, in order, to no one else, whatever the receiver does."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from oubli.app.errors import JournalFullError, NoLetterError, ServiceError, StorageError
from oubli.app.ledger import ledger
from oubli.app.ledger.database import LedgerDatabase
from oubli.app.ledger.deliveries import DeliveryTable
from oubli.app.outgoing import sender
from oubli.app.outgoing.addresses import AddressRules, parse_endpoint
from oubli.app.outgoing.sender import Sender, WebhookSigner
from oubli.app.service.build import Means, compose, open_directory
from oubli.app.service.erasure.checkpoint import CheckpointPolicy
from oubli.app.service.outbox import deliveries
from oubli.app.service.outbox.deliveries import Push, WebhookChannel
from oubli.app.service.service import Service
from oubli.app.storage.journal import SqliteJournal
from tests.tiers import ordinary
from tests.unit.app.outgoing.receiver import ACCEPT, HANG_UP, Receiver, Request, answer
from tests.unit.app.service.simulated import Time
from tests.unit.app.service.support import begun, fail_at, until
from tests.unit.app.support import forest

pytestmark = pytest.mark.anyio
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HOUR = 3600.0
RANK = {"unlearned": 0, "overdue": 1, "erased": 2}


# What is called on the way of a state from the journal to the receiver, and how it fails.
STEPS: tuple[tuple[type, str, type[Exception]], ...] = (
    (SqliteJournal, "append", JournalFullError),
    (LedgerDatabase, "fold_many", StorageError),
    *((DeliveryTable, name, StorageError) for name in ("due", "due_of", "counts")),
    *((WebhookChannel, "message", RuntimeError), (AddressRules, "addresses", RuntimeError)),
    (Sender, "post", RuntimeError),
)


@dataclass
class World:
    """A service, and the receiver that it tells."""

    directory: Path
    time: Time = field(default_factory=Time)
    receiver: Receiver = field(default_factory=Receiver)
    give_up_after: float = 3 * 24 * HOUR
    service: Service | None = None

    async def resolve(self, host: str, port: int) -> list[str]:
        assert host == "privacy.example"
        return ["127.0.0.1"]

    def push(self) -> Push:
        endpoint = parse_endpoint(f"http://privacy.example:{self.receiver.port}/hooks", plain_http=True)
        sends = Sender(AddressRules(("127.0.0.1",), self.resolve), 30.0)
        return Push(sends, (endpoint, WebhookSigner([SECRET])), give_up_after=self.give_up_after, pause=self.time.pause)

    async def start(self) -> Service:
        self.time.n_tasks = 2  # a courier, and the watch over deadlines
        start = begun(open_directory(self.directory, new_clock=self.time.clock), forest(200))
        policy, means = CheckpointPolicy(erasure_deadline=60.0), Means(push=self.push())
        self.service = service = compose(start, policy=policy, means=means, idle_resolve=False)
        service.lifecycle.start()
        await until(lambda: service.model.state.phase == "ready")
        return service

    async def stop(self) -> None:
        await self.service.lifecycle.stop()  # type: ignore[union-attr]
        self.service, self.time.n_tasks = None, 0

    async def restart(self) -> Service:
        await self.stop()
        return await self.start()

    @property
    def told(self) -> list[str]:
        """The states that the receiver has accepted."""
        return [one.content["data"]["status"] for one in self.receiver.accepted]

    def check(self, receipts: dict[str, set[str]], *, whole: bool = True) -> None:
        """Check all that was accepted: form, signature, order, and that nothing is missing."""
        told: dict[str, list[str]] = {name: [] for name in receipts}
        for request in self.receiver.accepted:
            data, headers = request.content["data"], request.headers
            assert request.content == {"type": f"erasure.{data['status']}", "data": data}
            assert data.keys() == {"id", "ref", "status"}
            name = f"{data['id']}-{data['status']}"
            moment = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
            signature = Webhook(SECRET).sign(name, moment, request.body.decode())
            assert (headers["webhook-id"], headers["webhook-signature"]) == (name, signature)
            told[data["id"]].append(data["status"])
        for name, states in told.items():
            assert states == sorted(states, key=RANK.__getitem__), f"{name}: {states}"
            assert not whole or set(states) >= receipts[name], f"{name}: {states}"


async def all_states(service: Service) -> dict[str, set[str]]:
    """The states that each receipt has been through; those that were overdue for a moment only may be told or not."""
    page, _ = await service.evidence.receipts.listed(0, 10_000)
    return {one.id: {"unlearned", one.status} for one in page}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path / "data")
    async with world.receiver.listening():
        yield world
        if world.service is not None:
            await world.stop()


async def test_what_cannot_be_told_becomes_a_dead_letter_and_holds_up_nothing_else(world):
    bad: list[str] = []
    world.receiver.answers = lambda request: answer(400) if request.content["data"]["id"] in bad else ACCEPT
    world.give_up_after = 2 * HOUR
    service = await world.start()
    dead = (await service.changes.delete(ids=["c1"])).id
    bad.append(dead)
    good = [(await service.changes.delete(ids=[f"c{i}"])).id for i in range(2, 6)]
    expected = {name: {"unlearned", "erased"} for name in good}
    await service.erasure.checkpointer.snapshot()
    await world.time.advance(10)
    world.check({dead: set(), **expected})
    await world.time.advance(3 * HOUR)
    letters = await service.outbox.deliveries.dead_letters(0, 10)
    found = [(one.subject, one.state, one.reason) for one in letters]
    assert found == [(dead, state, "status-400") for state in ("unlearned", "erased")]
    assert service.measure().deliveries_dead == 2
    # They stay dead, also across a restart.
    n_requests = len(world.receiver.requests)
    service = await world.restart()
    await world.time.advance(5 * HOUR)
    assert len(world.receiver.requests) == n_requests
    with pytest.raises(NoLetterError):
        await service.outbox.deliveries.redeliver(good[0])
    bad.clear()
    assert await service.outbox.deliveries.redeliver(dead) == 2
    await world.time.advance(1)
    world.check({dead: {"unlearned", "erased"}, **expected})
    assert service.outbox.deliveries.n_delivered == 2
    read = service.disk.database.read
    assert await read(lambda database: database.deliveries.counts("webhook")) == (0, 0, None)
    rows = await read(lambda database: database._all("SELECT count(*) FROM deliveries"))
    assert rows == [(0,)], "nothing is left of receipts whose last states have arrived"
    assert not await service.outbox.deliveries.dead_letters(0, 10)
    with pytest.raises(NoLetterError):
        await service.outbox.deliveries.redeliver(dead)


async def test_more_failing_receipts_than_are_remembered_are_all_told_in_the_end(world, monkeypatch):
    monkeypatch.setattr("oubli.app.service.outbox.deliveries._MOST_FAILING", 3)
    monkeypatch.setattr("oubli.app.service.outbox.deliveries._PAGE", 2)
    is_down = [True]
    draw = random.Random(4)

    def answers(request: Request) -> str:
        redirect = answer(307, "Location: http://127.0.0.1/")
        wrong = (answer(503), answer(429, "Retry-After: 7"), redirect, HANG_UP, "x\r\n\r\n")
        return draw.choice(wrong) if is_down else draw.choice([ACCEPT, ACCEPT, HANG_UP])

    world.receiver.answers = answers
    service = await world.start()
    for i in range(12):
        await service.changes.delete(ids=[f"c{i}"])
    await world.time.advance(5 * HOUR)
    assert service.outbox.deliveries.n_failed < 400, "a receiver that fails is not tried for ever"
    is_down.clear()
    await service.erasure.checkpointer.snapshot()
    await world.time.advance(7 * HOUR)
    world.check(await all_states(service))
    assert service.outbox.deliveries.counts == (0, 0, None)


async def test_a_receiver_can_ask_to_be_left_alone(world):
    times: list[float] = []

    def answers(request: Request) -> str:
        times.append(world.time.now_ms / 1000)
        return answer(503, "Retry-After: 5000") if len(times) == 1 else ACCEPT

    world.receiver.answers = answers
    service = await world.start()
    await service.changes.delete(ids=["c1"])
    await world.time.advance(10)
    await service.changes.delete(ids=["c2"])
    await world.time.advance(6000)
    assert times[1] - times[0] >= 5000
    world.check(await all_states(service), whole=False)


async def test_what_is_not_noted_as_arrived_is_told_again_and_in_order(world):
    """As after a kill: the process ends before the arrival is in the journal."""
    service = await world.start()
    noting = asyncio.Event()

    async def never(notes: Any) -> None:
        noting.set()
        await asyncio.Event().wait()

    (courier,) = service.outbox.deliveries._couriers
    noted, courier._note = courier._note, never
    ref = "123e4567-e89b-12d3-a456-426614174000"
    receipt = await service.changes.delete(ids=["c1"], ref=ref)
    await noting.wait()
    await service.erasure.checkpointer.snapshot()
    assert world.told == ["unlearned"], "the next state waits until the one before is noted"
    for task in service.outbox.deliveries._tasks:
        task.cancel()
    courier._note = noted
    courier._arrived.clear()
    await world.restart()
    await world.time.advance(1)
    assert world.told == ["unlearned", "unlearned", "erased"]
    assert {one.content["data"]["ref"] for one in world.receiver.accepted} == {ref}
    world.check({receipt.id: {"unlearned", "erased"}})


async def again(work: Callable[[], Any]) -> Any:
    """Ask as a client does: again after an error."""
    for _ in range(3):
        with suppress(ServiceError, JournalFullError):
            return await work()
    raise AssertionError("it fails again and again")


@pytest.mark.parametrize(("owner", "name", "error"), STEPS)
@pytest.mark.parametrize("number", ordinary([1, 2], 1))
async def test_a_step_that_fails_is_tried_again(world, monkeypatch, owner, name, error, number):
    """Whichever it is: all receipts are sent in the end, and changes continue."""
    monkeypatch.setattr(deliveries, "_RETRY_NOTES", 0.001)
    monkeypatch.setattr(ledger, "_RETRY", 0.001)
    monkeypatch.setattr(sender, "_KEPT", 0.0)  # each attempt asks for addresses
    refused = iter([True])
    world.receiver.answers = lambda request: answer(500) if next(refused, False) else ACCEPT
    service = await world.start()
    calls = fail_at(monkeypatch, owner, name, number, error("as it happens"))
    receipt = await again(lambda: service.changes.delete(ids=["c1"]))
    await world.time.advance(61)  # it is overdue
    await again(service.erasure.checkpointer.snapshot)
    await world.time.advance(7 * HOUR)
    assert next(calls) > number, "it did not fail"
    await again(service.erasure.checkpointer.snapshot)
    await world.time.advance(7 * HOUR)
    world.check({receipt.id: {"unlearned", "erased"}})
    assert not await service.outbox.deliveries.dead_letters(0, 10)
    assert (await service.changes.delete(ids=["c5"])).unlearned == 1
