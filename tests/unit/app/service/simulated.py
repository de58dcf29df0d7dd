"""Time that is the test's: what waits for a time continues when everybody waits."""

import asyncio
from dataclasses import dataclass, field

from oubli.app.times import Clock

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
