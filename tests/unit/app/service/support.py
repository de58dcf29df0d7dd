"""What tests of the service share: starting and reopening one, waiting for what must happen, holding a method up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from oubli.app.service.changes.additions import NewSamples
from oubli.app.service.service import Service
from oubli.core.data.schema import Schema
from tests.unit.app.support import CLASSES, rows

_PATIENCE = 60.0


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[Service]:
    """A service that is ready, without HTTP; it is stopped at the end."""
    service.lifecycle.start()
    await until(lambda: service.model.state.phase == "ready")
    try:
        yield service
    finally:
        await service.lifecycle.stop()


async def until(happens: Callable[[], Any]) -> Any:
    """Ask until the answer is true, and return it; the answer may have to be awaited."""
    end = time.monotonic() + _PATIENCE
    while True:
        answer = happens()
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer:
            return answer
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.002)


async def erased(client: Any, *receipts: str) -> list[dict[str, Any]]:
    """Wait until erasures are finished; return their receipts."""

    async def found() -> list[dict[str, Any]] | None:
        now = [(await client.get(f"/erasures/{one}")).json() for one in receipts]
        return now if all(one["status"] == "erased" for one in now) else None

    return list(await until(found))


async def ended_here(client: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Wait for the end of a job, with a client in this event loop."""
    while job["status"] in ("queued", "running"):
        await asyncio.sleep(0.002)
        job = (await client.get(f"/jobs/{job['id']}")).json()
    return dict(job)


def new_samples(n: int, prefix: str | None = "n", schema: Schema = CLASSES) -> NewSamples:
    """Samples of no subject and without an expiry."""
    labels: list[Any] = [("yes" if i % 3 else "no") if schema is CLASSES else float(i) for i in range(n)]
    ids = [None if prefix is None else f"{prefix}{i}" for i in range(n)]
    return NewSamples(rows(n), labels, ids, [None] * n, [None] * n, [False] * n)


class Gate:
    """Holds a method up in a thread until it is opened."""

    def __init__(self, owner: Any, method: str) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        original = getattr(owner, method)

        def held(*arguments: Any, **named: Any) -> Any:
            self.entered.set()
            assert self.opened.wait(30)
            return original(*arguments, **named)

        setattr(owner, method, held)

    async def reached(self) -> None:
        await until(self.entered.is_set)
