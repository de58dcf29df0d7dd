"""The time: one that retention goes by, which never runs backwards and has leaps confirmed, and one for periods.

A clock that is set wrongly must not delete anybody. Set back, time stands still until the clock has caught up. Set
forward by more than a day, time goes on at its old pace and `paused` says why, until someone has looked at the clock
and confirms it. What was not confirmed is not given out either: it would be written down, and the next start would
take it for the truth.

    wall clock     10:00  10:01  10:02   +3 days  ...            back to 10:05
    now_ms         10:00  10:01  10:02   10:03    10:04   ...    10:05        paused until `confirm`

A period that has to end, such as the deadline of an erasure, must not wait for a clock that stands still, and must not
end early when the clock is set forward. It goes by `steady_ms`, which nobody can set:

    wall clock     10:00  10:01   9:02    9:03    12:00
    now_ms         10:00  10:01  10:01   10:01    12:00
    steady_ms      10:00  10:01  10:02   10:03    10:04
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
        self._steady_start = self._start
        self._wall_start = wall - elapsed

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

    def steady_ms(self) -> int:
        """Return the time at the start plus what has elapsed since: for periods within the process."""
        return self._steady_start + self._elapsed_ms()

    def steady_since(self, moment_ms: int) -> int:
        """Return the steady time of something that an earlier process did at a time it took from `now_ms`."""
        return self.steady_ms() - max(0, self.now_ms() - moment_ms)

    def steady_since_wall(self, moment_ms: int) -> int:
        """Return the steady time of something that was done at a time of the machine's clock."""
        return self.steady_ms() - max(0, self._wall_ms() - moment_ms)

    def latest_ms(self) -> int:
        """Return the machine's time, which a clock that is set back while the process runs does not make earlier."""
        return max(self._wall_ms(), self._wall_start + self._elapsed_ms())

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
