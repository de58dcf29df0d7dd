"""A service whose time is the test's: what waits for a time continues when everybody waits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oubli.app.service.build import Means, compose, open_directory
from oubli.app.service.erasure.checkpoint import CheckpointPolicy
from oubli.app.service.outbox.deliveries import Push
from oubli.app.service.outbox.subject_requests import Processor
from oubli.app.service.service import Service
from oubli.app.times import Clock
from tests.unit.app.service.support import until
from tests.unit.app.support import forest

START_MS = 1_763_700_000_000
DAY = 86_400_000
NOON = 20_000 * DAY


@dataclass
class Machine:
    """A machine whose clock can be set; what has elapsed cannot."""

    wall: int = NOON
    elapsed: int = 5_000

    def wait(self, ms: int, drift: int = 0) -> None:
        """Let time elapse, and set the clock meanwhile."""
        self.wall += ms + drift
        self.elapsed += ms

    def clock(self, highest: int | None = None) -> Clock:
        return Clock(highest, wall_ms=lambda: self.wall, elapsed_ms=lambda: self.elapsed)


@dataclass(eq=False)
class Sleeper:
    """Somebody who waits."""

    until_ms: float
    woken: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Time:
    """Simulated time; `pause` is what couriers wait with."""

    now_ms: float = 0.0
    sleepers: list[Sleeper] = field(default_factory=list)
    n_tasks: int = 0

    async def pause(self, event: asyncio.Event, seconds: float | None) -> None:
        one = Sleeper(float("inf") if seconds is None else self.now_ms + 1000 * seconds)
        self.sleepers.append(one)
        waits = [asyncio.ensure_future(awaited.wait()) for awaited in (event, one.woken)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            if one in self.sleepers:
                self.sleepers.remove(one)

    async def everybody_waits(self) -> None:
        """Return when no one is at work; work takes real time."""
        quiet = 0
        while quiet < 3:
            await asyncio.sleep(0.001)
            quiet = quiet + 1 if len(self.sleepers) >= self.n_tasks else 0

    async def advance(self, seconds: float) -> None:
        """Let time pass."""
        end_ms = self.now_ms + 1000 * seconds
        while True:
            await self.everybody_waits()
            first = min(self.sleepers, key=lambda one: one.until_ms, default=None)
            if first is None or first.until_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, first.until_ms)
            first.woken.set()
            self.sleepers.remove(first)
        self.now_ms = end_ms

    def clock(self, highest_ms: int | None) -> Clock:
        return Clock(highest_ms, wall_ms=lambda: START_MS + int(self.now_ms), elapsed_ms=lambda: int(self.now_ms))


async def started(
    directory: Path,
    time: Time,
    push: Push,
    model: Any = None,
    deadline: float = 60.0,
    processor: Processor | None = None,
) -> Service:
    """Begin in an empty directory, or continue in one; return a service that runs."""
    opened = open_directory(directory, new_clock=time.clock)
    if opened.snapshots is not None and opened.holds_model:
        start = opened.recover(opened.snapshots.recover())
    else:
        start = opened.begin(model or forest(200))
    policy = CheckpointPolicy(erasure_deadline=deadline)
    service = compose(start, policy=policy, means=Means(push=push, processor=processor), idle_resolve=False)
    service.lifecycle.start()
    await until(lambda: service.model.state.phase == "ready")
    return service
