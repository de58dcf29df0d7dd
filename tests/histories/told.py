"""Random histories of what people may ask for, with webhooks and requests of OpenDSR beside them.

Every state of every receipt, and of every request, is told at least once and in order, whatever the receiver refuses
and however often the service is stopped or killed; a body holds a receipt's id, its case number and its state.
"""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oubli.app.errors import RepeatedRequestError
from oubli.app.outgoing.addresses import AddressRules, parse_endpoint
from oubli.app.outgoing.sender import Sender, WebhookSigner, read_processor
from oubli.app.service.build import Means
from oubli.app.service.outbox.deliveries import Push
from oubli.app.service.outbox.subject_requests import Asked, Processor, Progress
from tests.histories.controller import CALLBACKS, HOOKS, SECRET, Controller
from tests.histories.privacy import PrivacyPlayer
from tests.unit.app.outgoing.certificates import authority, certificate

_DOMAIN = "opendsr.processor.example"
_CALLBACK = "http://controller.example/opendsr/callbacks"
_N_TASKS = 3  # couriers to both, and the watch over deadlines
_HOURS = 3_600_000


@dataclass(frozen=True)
class Bundled:
    """A request for a bundle, and what was held when it was made."""

    id: str
    subject: str
    names: frozenset[str]


async def _loopback(host: str, port: int) -> list[str]:
    assert host.endswith(".example")
    return ["127.0.0.1"]


class ToldPlayer(PrivacyPlayer):
    """A service under test that tells a controller; see `PrivacyPlayer`."""

    def __init__(self, kind: str, folder: Path, seed: int) -> None:
        super().__init__(kind, folder, seed)
        self.controller = Controller(seed)
        self.erasures: list[str] = []  # requests
        self.repeated: list[str] = []  # those that have the receipt of an earlier one
        self.bundles: list[Bundled] = []
        self._n_waiting = 0
        self._signer = read_processor(_DOMAIN, *certificate(folder, authority(), _DOMAIN))

    def means(self) -> Means:
        port = self.controller.receiver.port
        hooks, callbacks = (
            parse_endpoint(f"http://controller.example:{port}{path}", plain_http=True) for path in (HOOKS, CALLBACKS)
        )
        sender = Sender(AddressRules(("127.0.0.1",), _loopback), 60.0)
        push = Push(sender, (hooks, WebhookSigner([SECRET])), pause=self._pause)
        return Means(push=push, processor=Processor(self._signer, callbacks={_CALLBACK: callbacks}))

    async def _pause(self, event: asyncio.Event, seconds: float | None) -> None:
        """What has to wait for a time is woken whenever time passes."""
        del seconds
        self._n_waiting += 1
        try:
            await event.wait()
        finally:
            self._n_waiting -= 1

    def let_pass(self, milliseconds: int) -> None:
        super().let_pass(milliseconds)
        for bell in self._bells():
            bell.set()

    def _bells(self) -> list[asyncio.Event]:
        """What wakes those who tell others."""
        deliveries = self.service.outbox.deliveries
        return [deliveries._bell, *(courier._bell for courier in deliveries._couriers)]

    # --- operations -------------------------------------------------------------------------------

    def asked(self, kind: str, subjects: list[str]) -> Asked:
        name = str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        urls = [_CALLBACK] if self.rng.random() < 0.8 else []
        return Asked(name, kind, "gdpr", subjects, "subjects", urls, f"{kind} {name}".encode())

    async def request_erasure(self) -> None:
        """Have a controller ask for an erasure, more than once."""
        subjects, requests = self.some_subjects(), self.service.outbox.requests
        asked = self.asked("erasure", subjects)
        taken = await requests.take(asked)
        # Perhaps that of an earlier erasure of exactly these, of which nothing was left.
        receipt = await self.service.evidence.receipts.get(str((await requests.progress(asked.id)).request.receipt))
        absent = sum(not self.truth.of(subject) for subject in subjects)
        self.gone([name for subject in subjects for name in self.truth.of(subject)], receipt, len(subjects), absent)
        assert (await requests.take(asked)).received_ms == taken.received_ms
        await self.refused(requests.take(replace(asked, body=b"another")), RepeatedRequestError)
        (self.erasures if receipt.ref == asked.id else self.repeated).append(asked.id)

    async def kill(self) -> None:
        """Kill the service, now and then while a bundle is asked for that is never made."""
        if self.rng.random() < 0.5:
            async with self.service.jobs.board._turn:
                await self.request_bundle(1.0)
                await super().kill()
        else:
            await super().kill()

    async def request_bundle(self, impatience: float = 0.3) -> None:
        """Have a controller ask for a bundle, and wait for it or not."""
        subject, requests = str(self.subject(certain=True)), self.service.outbox.requests
        asked = self.asked(self.rng.choice(["access", "portability"]), [subject])
        names = frozenset(self.truth.of(subject))
        await requests.take(asked)
        self.bundles.append(Bundled(asked.id, subject, names))
        if self.rng.random() >= impatience:
            found = await self._made(asked.id)
            job = self.service.jobs.board.get(found.job or "")
            bundle = (
                None if job is None or job.result is None else self.service.jobs.exporter.kept(job.result["export"])
            )
            assert bundle is not None
            assert {one.sample.id for one in bundle.samples} == names
            self.tally["bundles"] += 1

    async def _made(self, request: str) -> Progress:
        """Wait until a bundle is made, or given up."""
        while (found := await self.service.outbox.requests.progress(request)).status == "in_progress":  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        return found

    async def redeliver(self) -> None:
        """Have something told again that was given up."""
        letters = await self.service.outbox.deliveries.dead_letters(0, 20)
        if letters:
            await self.service.outbox.deliveries.redeliver(self.rng.choice(letters).subject)
            self.tally["redelivered"] += 1

    def operations(self) -> tuple[tuple[int, Callable[[], Coroutine[Any, Any, None]]], ...]:
        is_full = len(self.truth.held) > 60
        more = ((4 if is_full else 1, self.request_erasure), (2, self.request_bundle), (2, self.redeliver))
        return (*super().operations(), *more)

    # --- comparing --------------------------------------------------------------------------------

    def check(self) -> None:
        super().check()
        assert not self.controller.faults, self.controller.faults

    async def check_bundles(self) -> None:
        """No bundle is given out of which a sample is gone."""
        for one in self.bundles[-10:]:
            found = await self.service.outbox.requests.progress(one.id)
            if found.job is not None:
                assert one.names <= set(self.truth.of(one.subject))
                self.tally["bundles looked up"] += 1

    async def deliver(self) -> None:
        """Have everything told that is not told yet, also what was given up."""
        deliveries, self.controller.refuses = self.service.outbox.deliveries, False
        for one in self.bundles:
            await self._made(one.id)
        for letter in {one.subject for one in await deliveries.dead_letters(0, 10_000)}:
            await deliveries.redeliver(letter)
        while True:
            await self._everybody_waits()
            if (
                sum([(await self.service.disk.database.read(_counts(target))).due for target in ("webhook", _CALLBACK)])
                == 0
            ):
                break
            self.let_pass(7 * _HOURS)
        self.controller.refuses = True
        assert not await deliveries.dead_letters(0, 10)

    async def _everybody_waits(self) -> None:
        """Return when all that was noted has been looked at: anyone who works does so after the bell."""
        n_quiet = 0
        while n_quiet < 3:
            await asyncio.sleep(0.001)
            is_quiet = self._n_waiting == _N_TASKS and not any(bell.is_set() for bell in self._bells())
            n_quiet = n_quiet + 1 if is_quiet else 0

    async def check_told(self) -> None:
        """Every state has been told, and nothing of anybody else."""
        after, told = 0, self.controller.told
        known = set()
        while True:
            page, end = await self.service.evidence.receipts.listed(after, 1000)
            for one in page:
                known.add((HOOKS, one.id))
                states = set(told.get((HOOKS, one.id), ()))
                assert {"unlearned", one.status} <= states, (one, states)
                assert self.controller.refs[one.id] == one.ref
            if end is None:
                break
            after = end
        known |= {(CALLBACKS, name) for name in self.repeated}
        for name in (*self.erasures, *(one.id for one in self.bundles)):
            known.add((CALLBACKS, name))
            found = await self.service.outbox.requests.progress(name)
            states = set(told.get((CALLBACKS, name), ()))
            if found.request.callbacks:
                assert {"in_progress", found.status} <= states, (found, states)
            else:
                assert not states
        assert told.keys() <= known, "something was told of nobody"
        self.tally["all told"] += 1

    async def search_files(self) -> None:
        await self.check_bundles()
        await super().search_files()
        await self.deliver()
        await self.check_told()
        for name in self.erasures:
            assert (await self.service.outbox.requests.progress(name)).status == "completed"

    async def play(self, n: int) -> None:
        async with self.controller.receiver.listening():
            await super().play(n)
        self.tally.update(self.controller.tally)


def _counts(target: str) -> Callable[[Any], Any]:
    return lambda database: database.deliveries.counts(target)


play = ToldPlayer.history
