"""A delivery that fails at any step is tried again: all are made in the end, in order, and changes continue."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import oubli.app.outgoing.sender
from oubli.app.errors import JournalFullError, ServiceError, StorageError
from oubli.app.ledger import ledger as ledger_module
from oubli.app.ledger.database import LedgerDatabase
from oubli.app.ledger.deliveries import DeliveryTable
from oubli.app.outgoing.addresses import AddressRules, parse_endpoint
from oubli.app.outgoing.sender import ProcessorSigner, Sender, WebhookSigner, read_processor
from oubli.app.service.outbox import deliveries
from oubli.app.service.outbox.deliveries import Push, WebhookChannel
from oubli.app.service.outbox.subject_requests import Asked, Processor
from oubli.app.service.service import Service
from oubli.app.storage.journal import SqliteJournal
from tests.histories.controller import CALLBACKS, HOOKS, SECRET, Controller
from tests.unit.app.outgoing.certificates import authority, certificate
from tests.unit.app.outgoing.receiver import answer
from tests.unit.app.service.simulated import Time, started

DOMAIN = "opendsr.processor.example"
CALLBACK = "http://controller.example/opendsr/callbacks"
# What is called on the way of a state from the journal to the receiver, and how it fails.
STEPS: tuple[tuple[type, str, type[Exception]], ...] = (
    (SqliteJournal, "append", JournalFullError),
    (LedgerDatabase, "fold_many", StorageError),
    (DeliveryTable, "due", StorageError),
    (DeliveryTable, "due_of", StorageError),
    (DeliveryTable, "counts", StorageError),
    (DeliveryTable, "request", StorageError),
    (DeliveryTable, "open_requests", StorageError),
    (WebhookChannel, "message", RuntimeError),
    (ProcessorSigner, "headers", RuntimeError),
    (AddressRules, "addresses", RuntimeError),
    (Sender, "post", RuntimeError),
)


RARE = ("DeliveryTable.due_of", "Sender.post")


class Faults:
    """Counts the calls of all steps, and has one of them fail: by its number, or the first of a step by its name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int | str) -> None:
        self.n_calls = 0
        self.failed: str | None = None
        self.is_on = False
        self._at = at
        monkeypatch.setattr(oubli.app.outgoing.sender, "_KEPT", 0.0)  # each attempt asks for addresses
        for owner, name, error in STEPS:
            monkeypatch.setattr(owner, name, self._counted(owner, name, error))

    def _counted(self, owner: type, name: str, error: type[Exception]) -> Callable[..., Any]:
        function = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            if self.is_on:
                self.n_calls += 1
                step = f"{owner.__name__}.{name}"
                if self.failed is None and self._at in (self.n_calls, step):
                    self.failed = step
                    raise error("as it happens")
            return function(*arguments, **named)

        return counted


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def asked(kind: str, subject: str) -> Asked:
    name = str(uuid.uuid4())
    return Asked(name, kind, "gdpr", [subject], "subjects", [CALLBACK], name.encode())


async def again(work: Callable[[], Any]) -> Any:
    """Ask as a client does: again after an error."""
    for _ in range(3):
        with suppress(ServiceError, JournalFullError):
            return await work()
    raise AssertionError("it fails again and again")


def live(folder: Path, monkeypatch: pytest.MonkeyPatch, at: int | str) -> tuple[int, str | None]:
    """Have one call fail; return how many there were, and which it was."""
    monkeypatch.setattr(deliveries, "_RETRY_NOTES", 0.001)
    monkeypatch.setattr(ledger_module, "_RETRY", 0.001)
    faults = Faults(monkeypatch, at)
    folder.mkdir()
    signer = read_processor(DOMAIN, *certificate(folder, authority(), DOMAIN))
    controller, time = Controller(0), Time()
    controller.refuses, refused = False, iter([True])
    take = controller.receiver.answers
    controller.receiver.answers = lambda request: answer(500) if next(refused, False) else take(request)

    async def begin() -> Service:
        time.n_tasks = 3  # two couriers, and the watch over deadlines
        port = controller.receiver.port
        hooks, callbacks = (
            parse_endpoint(f"http://controller.example:{port}{path}", plain_http=True) for path in (HOOKS, CALLBACKS)
        )
        sender = Sender(AddressRules(("127.0.0.1",), loopback), 30.0)
        push = Push(sender, (hooks, WebhookSigner([SECRET])), pause=time.pause)
        return await started(folder / "data", time, push, processor=Processor(signer, callbacks={CALLBACK: callbacks}))

    async def script() -> None:
        async with controller.receiver.listening():
            service = await begin()
            faults.is_on = True
            requests = service.outbox.requests
            erasure, access = asked("erasure", "s1"), asked("access", "s2")
            receipt = await again(lambda: service.changes.delete(ids=["c0"]))
            await again(lambda: requests.take(erasure))
            await again(lambda: requests.take(access))
            await time.advance(61)  # both erasures are overdue
            await again(service.erasure.checkpointer.snapshot)
            await time.advance(7 * 3600)
            faults.is_on = False
            await again(service.erasure.checkpointer.snapshot)
            await time.advance(7 * 3600)
            assert service.model.state.halted is None
            assert (await service.changes.delete(ids=["c5"])).unlearned == 1
            await service.lifecycle.stop()
            time.n_tasks = 0
            service = await begin()
            await time.advance(7 * 3600)
            assert controller.told[HOOKS, receipt.id][-1] == "erased"
            receipts, _ = await service.evidence.receipts.listed(0, 100)
            for one in receipts:
                assert {"unlearned", one.status} <= set(controller.told[HOOKS, one.id])
            status = {one.id: (await service.outbox.requests.progress(one.id)).status for one in (erasure, access)}
            assert status[erasure.id] == "completed"
            assert status[access.id] in ("completed", "cancelled")  # an error may have ended the job
            for name, last in status.items():
                assert set(controller.told[CALLBACKS, name]) == {"in_progress", last}
            assert not controller.faults
            assert not await service.outbox.deliveries.dead_letters(0, 10)
            await service.lifecycle.stop()

    asyncio.run(script())
    return faults.n_calls, faults.failed


@pytest.fixture
def n_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    with monkeypatch.context() as patched:
        n, failed = live(tmp_path / "dry", patched, 0)
    assert failed is None
    return n


def fail_at_each(folder: Path, monkeypatch: pytest.MonkeyPatch, calls: Iterable[int | str]) -> set[str]:
    """Have each of some calls fail, in a history of its own; return which sorts of calls that were."""
    failed = set()
    for at in calls:
        with monkeypatch.context() as patched:
            _, which = live(folder / str(at), patched, at)
        failed.add(str(which))
    return failed


def test_some_calls_fail(tmp_path, monkeypatch, n_calls):
    calls = [n_calls // 3, *RARE[:1]]
    assert len(fail_at_each(tmp_path, monkeypatch, calls)) == 2


@pytest.mark.long
def test_every_call_fails(tmp_path, monkeypatch, n_calls):
    failed = fail_at_each(tmp_path, monkeypatch, range(1, n_calls + 1))
    # The number of a call moves with the time, so that a rare one may be missed: it fails by its name then.
    missed = {f"{owner.__name__}.{name}" for owner, name, _ in STEPS} - failed - {"DeliveryTable.open_requests"}
    assert fail_at_each(tmp_path, monkeypatch, sorted(missed)) == missed
