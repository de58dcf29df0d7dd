"""Times and periods as people and programs write them. Inside they are milliseconds, times since 1970 UTC.

A time is RFC 3339 with its zone and nothing looser: a time whose zone has to be guessed can be off by a day, and a
sample would be kept too long or too short.

The clock gives a time that retention goes by, which never runs backwards and has leaps confirmed, and one for periods.

A clock that is set wrongly must not delete anybody. Set back, time stands still until the clock has caught up. Set
forward by more than a day, time continues at its old pace and `paused` says why, until someone has looked at the clock
and confirms it. What was not confirmed is not given out either: it would be written down, and the next start would
take it for the truth.

    wall clock     10:00  10:01  10:02   +3 days  ...            back to 10:05
    now_ms         10:00  10:01  10:02   10:03    10:04   ...    10:05        paused until `confirm`

A period that has to end, such as the deadline of an erasure, must not wait for a clock that stands still, and must not
end early when the clock is set forward. It goes by `steady_ms`, which does not depend on the clock:

    wall clock     10:00  10:01   9:02    9:03    12:00
    now_ms         10:00  10:01  10:01   10:01    12:00
    steady_ms      10:00  10:01  10:02   10:03    10:04

Durations are counted in histograms, for metrics. How work is done is decided by what there is to count, never by them.
The stages of a request follow one another. They are noted only where traces are read:

    parse -> wait -> plan -> journal -> model -> answer        a change
    parse -> (wait) -> model -> answer                         a prediction; only a long one waits
"""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_TIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt]"
    r"((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(\.\d+)?"
    r"(?P<zone>[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)?",
    re.ASCII,
)
_PERIOD = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)
_LONGEST = 100 * 366 * 86_400_000  # a century: beyond it the unit is probably wrong
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}

LARGEST_LEAP_MS = 86_400_000
LARGEST_LAG_MS = 60_000  # that is not worth telling
_EXAMPLE = "as in 2030-01-31T12:00:00Z or 2030-01-31T12:00:00+01:00"


class TimeError(ValueError):
    """A text that is not what it should be.

    Parameters
    ----------
    rule
        What must hold; it does not repeat the text.
    """

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


def parse_time(value: Any) -> int:
    """Return a time in milliseconds since 1970; what is finer is cut off.

    Parameters
    ----------
    value
        RFC 3339 with zone.

    Raises
    ------
    TimeError
        When it is anything else.
    """
    if not isinstance(value, str):
        raise TimeError(f"must be a text with a time in RFC 3339, {_EXAMPLE}")
    found = _TIME.fullmatch(value)
    if found is None:
        raise TimeError(f"must be a time in RFC 3339, {_EXAMPLE}")
    if found["zone"] is None:
        raise TimeError(f"must say its time zone: end it with Z for UTC or with an offset, {_EXAMPLE}")
    day, hour, fraction = found[1], found[2], found[3] or "."
    zone = "+00:00" if found["zone"] in "Zz" else found["zone"]
    try:
        found_moment = datetime.fromisoformat(f"{day}T{hour}{zone}").astimezone(UTC)
    except (ValueError, OverflowError):
        raise TimeError("must be a day that exists, in the years 1 to 9999 of UTC") from None
    return (found_moment - _EPOCH) // _MILLISECOND + int(f"{fraction[1:4]:0<3}")


def parse_future(value: Any, now_ms: int) -> int:
    """Return a time that is yet to come; see `parse_time`.

    Raises
    ------
    TimeError
        When it is none, or not later than now.
    """
    moment_ms = parse_time(value)
    if moment_ms <= now_ms:
        raise TimeError("must be in the future: what has expired is not learned")
    return moment_ms


def parse_period(text: str) -> int:
    """Return a period such as ``90d`` or ``12h`` in milliseconds.

    Raises
    ------
    TimeError
        When it is none, or longer than a century.
    """
    found = _PERIOD.fullmatch(text.strip())
    period = int(found[1]) * _UNITS[found[2]] if found is not None else 0
    if not 0 < period <= _LONGEST:
        raise TimeError("must be a number above 0 and a unit (s, m, h, d or w), as in 90d, and at most a century")
    return period


def moment(moment_ms: int) -> datetime:
    """Return a time that is given in milliseconds since 1970."""
    return _EPOCH + moment_ms * _MILLISECOND


def to_text(moment_ms: int) -> str:
    """Return a time as RFC 3339 in UTC, to the millisecond."""
    return moment(moment_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- the clock


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


# Where there is one, a clock that counts while the machine sleeps, so that a night is not a jump.
_ELAPSED: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Return the seconds since some start: they cannot be set, and they count while process or machine sleeps."""
    return time.clock_gettime(_ELAPSED)


def _elapsed_ms() -> int:
    return time.clock_gettime_ns(_ELAPSED) // 1_000_000


class Clock:
    """Milliseconds since 1970 that can be trusted. It belongs to the event loop.

    Parameters
    ----------
    highest_ms
        The highest time that was written down before; None when nothing was.
    wall_ms
        What the machine takes for the time.
    elapsed_ms
        Milliseconds since some start; setting the clock does not change them.
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

    @property
    def behind(self) -> str | None:
        """What to say of a clock that is behind the time that was written down here; None when it is not, or by less.

        Time stands still then, so that nothing expires, and what is written down has the time before.
        """
        lag = self.now_ms() - self._wall_ms()
        if lag <= LARGEST_LAG_MS:
            return None
        return (
            f"the clock of this machine is {_days(lag)} behind the time that was written down here, so that "
            "time stands still until it has caught up: set the clock if it is wrong. If it was wrong before, wait"
        )

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
    return f"{period_ms / 86_400_000:.1f} days" if period_ms >= 86_400_000 else f"{period_ms / 3_600_000:.1f} hours"


# --- durations


Name = Literal["parse", "wait", "plan", "journal", "model", "answer"]


class Stage(NamedTuple):
    """A part of the time of a request; both ends as `time.monotonic` tells them."""

    name: Name
    started: float
    ended: float


class Stages:
    """The stages of one request.

    Parameters
    ----------
    started
        When the first one began.

    Attributes
    ----------
    found
        Those that have ended, in their order.
    """

    __slots__ = ("_since", "found")

    def __init__(self, started: float) -> None:
        self.found: list[Stage] = []
        self._since = started

    def end(self, name: Name) -> None:
        """Note that a stage has ended, and that the next one begins."""
        now = time.monotonic()
        self.found.append(Stage(name, self._since, now))
        self._since = now


stages: ContextVar[Stages | None] = ContextVar("stages", default=None)
"""Of the request that is being answered; None when they are not read."""


def end_stage(name: Name) -> None:
    """Note that a stage of the request that is being answered has ended."""
    noted = stages.get()
    if noted is not None:
        noted.end(name)


BOUNDS = (50e-6, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper ends of the buckets that durations are counted in, in seconds; one without an end follows."""


class Histogram:
    """Counts durations in buckets. One thread observes; any thread may read.

    Attributes
    ----------
    counts
        Durations in each bucket of `BOUNDS`, and above.
    total
        Sum of all durations, in seconds.
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def copy(self) -> Histogram:
        """Return it as it is now."""
        other = Histogram()
        other.counts, other.total = self.counts.copy(), self.total
        return other


LONGEST_PAUSE = 0.050  # seconds that a change may spend on the event loop in one piece
LOOP_BUDGET = 0.010  # seconds of other work that may run there in one piece, and of changes that wait for each other
