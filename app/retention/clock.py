"""The time that retention goes by: it never runs backwards, and a leap has to be confirmed.

A clock that is set wrongly must not delete anybody. Set back, time stands still until the clock has caught up. Set
forward by more than a day, time goes on at its old pace and `paused` says why, until someone has looked at the clock
and confirms it. What was not confirmed is not given out either: it would be written down, and the next start would
take it for the truth.

    wall clock     10:00  10:01  10:02   +3 days  ...            back to 10:05
    now_ms         10:00  10:01  10:02   10:03    10:04   ...    10:05        paused until `confirm`
"""

from __future__ import annotations

import time
from collections.abc import Callable

LARGEST_LEAP_MS = 86_400_000


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _elapsed_ms() -> int:
    # Where there is one, a clock that goes on while the machine sleeps: a night's sleep is no leap.
    source = getattr(time, "CLOCK_BOOTTIME", None)
    return (time.monotonic_ns() if source is None else time.clock_gettime_ns(source)) // 1_000_000


class Clock:
    """Milliseconds since 1970 that can be trusted. It belongs to the event loop.

    Parameters
    ----------
    highest_ms
        The highest time that was written down before; None when nothing was.
    wall_ms
        What the machine takes for the time.
    elapsed_ms
        Milliseconds since some start, that nobody can set.
    """

    def __init__(
        self,
        highest_ms: int | None = None,
        *,
        wall_ms: Callable[[], int] = _wall_ms,
        elapsed_ms: Callable[[], int] = _elapsed_ms,
    ) -> None:
        self._wall_ms = wall_ms
        self._elapsed_ms = elapsed_ms
        self._reason: str | None = None
        wall, elapsed = wall_ms(), elapsed_ms()
        leap = 0 if highest_ms is None else wall - highest_ms
        if leap > LARGEST_LEAP_MS:
            self._reason = (
                f"the clock is {_days(leap)} ahead of the last time that was written down here: check it, and confirm"
            )
        self._highest = wall if highest_ms is None else highest_ms
        # Trusted time minus elapsed time.
        self._start = (self._highest if self._reason else max(wall, self._highest)) - elapsed

    @property
    def paused(self) -> str | None:
        """Why nothing may expire at present; None when it may."""
        self.now_ms()
        return self._reason

    def now_ms(self) -> int:
        """Return the time; never less than before, nor less than `witness` was told."""
        expected = self._start + self._elapsed_ms()
        wall = self._wall_ms()
        if self._reason is None and wall - expected > LARGEST_LEAP_MS:
            self._reason = f"the clock was set forward by {_days(wall - expected)}: check it, and confirm"
        now = wall if self._reason is None else expected
        self._highest = max(self._highest, now)
        return self._highest

    def witness(self, moment_ms: int) -> None:
        """Take note of a time that was written down by someone who can be trusted."""
        self._highest = max(self._highest, moment_ms)
        self._start = max(self._start, moment_ms - self._elapsed_ms())

    def confirm(self) -> None:
        """Believe what the machine takes for the time now."""
        self._reason = None
        self._start = max(self._highest, self._wall_ms()) - self._elapsed_ms()


def _days(period_ms: int) -> str:
    return f"{period_ms / 86_400_000:.1f} days"
