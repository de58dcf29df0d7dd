"""What a load test measured: durations, statuses and broken promises of operations, and what the test itself needed.

Workers measure about a second at a time and send it as a `Part`; the controller adds the parts up.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Self

from oubli.client.load.plan import Step

_BITS = 7  # 2**7 buckets for each power of two
_SHORT = 0.5  # seconds


class Histogram:
    """Durations in nanoseconds, counted in buckets whose width grows with them, as in HdrHistogram.

    A duration below 256 ns has a bucket of its own. Above, each power of two is divided into 128 buckets, so that a
    percentile is at most 1/128 above the true one, and never below. The percentiles of several processes are those of
    all durations together. (`hdrhistogram` does the same, but ships no types, and brings `setuptools` and `pbr` to
    every installation.)
    """

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()  # by the longest duration of each bucket
        self.total = 0
        self.longest = 0

    @property
    def n(self) -> int:
        """How many durations it holds."""
        return self.counts.total()

    def record(self, nanoseconds: int) -> None:
        """Add one duration; a negative one, as clocks may produce it, is zero."""
        nanoseconds = max(nanoseconds, 0)
        shift = max(0, nanoseconds.bit_length() - _BITS - 1)
        self.counts[(((nanoseconds >> shift) + 1) << shift) - 1] += 1
        self.total += nanoseconds
        self.longest = max(self.longest, nanoseconds)

    def add(self, other: Histogram) -> None:
        """Add all durations of another one."""
        self.counts.update(other.counts)
        self.total += other.total
        self.longest = max(self.longest, other.longest)

    def percentile(self, percent: float) -> int:
        """The shortest time within which so many percent of the durations lie; 0 when there are none."""
        rank = max(1, math.ceil(self.n * percent / 100))
        for bucket in sorted(self.counts):
            rank -= self.counts[bucket]
            if rank <= 0:
                return min(bucket, self.longest)
        return self.longest

    @property
    def mean(self) -> float:
        """The mean; 0 when there are none."""
        return self.total / self.n if self.n else 0.0


REFUSED = (429, 503)  # come back later
# Promises that a server can break.
STALE = "an answer was older than a change that was acknowledged before it was asked"
INVISIBLE = "a sample was not there after its addition was acknowledged"
STILL_THERE = "a sample was there after its deletion was acknowledged"
LOST = "a sample that was added was gone when it was to be deleted"


class Sums:
    """Numbers, counters and records that are added up field by field."""

    def add(self, other: Self) -> None:
        """Add the fields of another one."""
        for name, value in vars(other).items():
            mine = getattr(self, name)
            if isinstance(mine, Counter):
                mine.update(value)
            elif isinstance(mine, dict):
                for key, one in value.items():
                    mine[key].add(one)
            elif isinstance(mine, Histogram):
                mine.add(value)
            else:
                setattr(self, name, mine + value)


@dataclass
class Operation(Sums):
    """What became of the requests of one operation.

    Attributes
    ----------
    durations
        Of answers that are successes, and of requests that were never answered, until they were given up: a server
        that stands still must not look fast. Refusals and errors are counted only.
    statuses
        Answers by status.
    unanswered
        Requests whose connection broke or whose time was over.
    retry_after
        Seconds after which answers said to come back, counted.
    """

    durations: Histogram = field(default_factory=Histogram)
    statuses: Counter[int] = field(default_factory=Counter)
    unanswered: int = 0
    retry_after: Counter[float] = field(default_factory=Counter)

    @property
    def n_requests(self) -> int:
        """All requests."""
        return self.statuses.total() + self.unanswered

    @property
    def n_successes(self) -> int:
        """Requests that were answered as they should be."""
        return sum(n for status, n in self.statuses.items() if 200 <= status < 300)

    @property
    def n_refused(self) -> int:
        """Requests that were answered "come back later"."""
        return sum(self.statuses[status] for status in REFUSED)

    @property
    def n_errors(self) -> int:
        """Requests that were neither successes nor refusals."""
        return self.n_requests - self.n_successes - self.n_refused


@dataclass
class Effort(Sums):
    """What a process had to do for it.

    Attributes
    ----------
    wall, cpu
        Seconds that passed, and seconds of a processor that the process used.
    waited
        Seconds that it was ready to run while others had the processors, where the system tells.
    send_lag
        Open loop: from when a request was due until the process looked at it.
    loop_lag
        By how much the event loop was late for a timer.
    """

    wall: float = 0.0
    cpu: float = 0.0
    waited: float = 0.0
    send_lag: Histogram = field(default_factory=Histogram)
    loop_lag: Histogram = field(default_factory=Histogram)

    @property
    def busy_share(self) -> float:
        """The share of the time in which it worked, or would have if there had been a processor."""
        return (self.cpu + self.waited) / self.wall if self.wall else 0.0


@dataclass
class Record(Sums):
    """What was measured in a stretch of time.

    Attributes
    ----------
    operations
        By name.
    n_compared, n_read_back
        Answers whose version was compared with that of the changes acknowledged before, and samples that were read
        after a change of them.
    violations
        Broken promises, counted.
    n_held_up
        Open loop: requests that were due while all connections were busy.
    n_substituted
        Deletions that were additions, because nothing was left to delete.
    """

    operations: defaultdict[str, Operation] = field(default_factory=lambda: defaultdict(Operation))
    n_compared: int = 0
    n_read_back: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    n_held_up: int = 0
    n_substituted: int = 0

    def all(self, *without: str) -> Operation:
        """All operations but some as one."""
        together = Operation()
        for name, operation in self.operations.items():
            if name not in without:
                together.add(operation)
        return together


@dataclass
class Part:
    """What was measured in about a second, by one process or by all; times from the start of the step."""

    begin: float
    end: float
    record: Record = field(default_factory=Record)
    effort: Effort = field(default_factory=Effort)


@dataclass
class Measured:
    """What all processes measured in a step.

    Attributes
    ----------
    step
        The load.
    record
        Everything together.
    efforts
        Of each process.
    parts
        By second.
    seconds
        From the start to the last answer that was waited for.
    """

    step: Step
    record: Record = field(default_factory=Record)
    efforts: list[Effort] = field(default_factory=list)
    parts: dict[int, Part] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, process: int, part: Part) -> None:
        """Add what one process measured in a second; a short rest after the end belongs to the last second."""
        self.record.add(part.record)
        self.efforts[process].add(part.effort)
        self.seconds = max(self.seconds, part.end)
        second = round(part.begin)
        if part.end - part.begin < _SHORT and second - 1 in self.parts:
            second -= 1
        whole = self.parts.setdefault(second, Part(part.begin, part.end))
        whole.record.add(part.record)
        whole.end = max(whole.end, part.end)


@dataclass
class Result:
    """All of a load test.

    Attributes
    ----------
    subject
        Of all samples that were added.
    model
        Answer of `GET /model` at the start.
    steps
        Those that began.
    promises
        Records of all steps, warm-up included: what was compared, and what was broken.
    may_read
        Whether samples could be read back.
    interrupted
        Whether it was stopped before its end.
    failed
        Why it could not be done to its end; empty when it was.
    left_behind
        Why samples that were added may be left; empty when all were deleted.
    """

    subject: str
    model: dict[str, Any] = field(default_factory=dict)
    steps: list[Measured] = field(default_factory=list)
    promises: Record = field(default_factory=Record)
    may_read: bool = True
    interrupted: bool = False
    failed: str = ""
    left_behind: str = ""
