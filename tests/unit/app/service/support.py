"""What tests of the service share: starting one, waiting for what must happen, holding a method up, failing."""

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from oubli.app.service.build import OpenDirectory, Start
from oubli.app.service.changes.additions import NewSamples
from oubli.app.service.recovery.start import LedgerChoice
from oubli.app.service.service import Service
from tests.unit.app.support import forest, rows

_PATIENCE = 60.0


def begun(opened: OpenDirectory, model: Any = None, choice: LedgerChoice | None = None) -> Start:
    """Begin with a model in a directory that is empty, or recover what is in it."""
    if opened.holds_model:
        return opened.recover(opened.snapshots.recover(), choice)  # type: ignore[union-attr]
    return opened.begin(model or forest())


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


def new_samples(n: int, prefix: str = "n") -> NewSamples:
    """Samples of no subject and without an expiry."""
    labels, ids = ["yes" if i % 3 else "no" for i in range(n)], [f"{prefix}{i}" for i in range(n)]
    return NewSamples(rows(n), labels, ids, [None] * n, [None] * n, [False] * n)


def raising(error: BaseException) -> Callable[..., Any]:
    """A function that raises an error, whatever it is given."""

    def fails(*_: Any, **__: Any) -> Any:
        raise error

    return fails


def fail_at(
    monkeypatch: pytest.MonkeyPatch, owner: type[Any], name: str, number: int, error: Exception
) -> Iterator[int]:
    """Have a method fail when it is called for the first, second, ... time; return the numbers of later calls."""
    calls, method = itertools.count(1), getattr(owner, name)

    def failing(*arguments: Any, **named: Any) -> Any:
        if next(calls) == number:
            raise error
        return method(*arguments, **named)

    monkeypatch.setattr(owner, name, failing)
    return calls


def copies_of(monkeypatch: pytest.MonkeyPatch, owner: type[Any]) -> list[Any]:
    """All copies that are made of models of a class from now on."""
    made, copy = [], owner.copy

    def noted(model: Any) -> Any:
        made.append(copy(model))
        return made[-1]

    monkeypatch.setattr(owner, "copy", noted)
    return made


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
