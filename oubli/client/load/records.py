"""What was measured in a stretch of time, by one process or by several."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from oubli.client.load.histogram import Histogram

REFUSED = (429, 503)  # come back later
# Promises that a server can break.
STALE = "an answer was older than a change that was acknowledged before it was asked"
INVISIBLE = "a sample was not there after its addition was acknowledged"
STILL_THERE = "a sample was there after its deletion was acknowledged"
LOST = "a sample that was added was gone when it was to be deleted"


@dataclass
class Operation:
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
    n_retry_after, longest_retry_after
        Answers that said when to come back, and the most seconds that one named.
    """

    durations: Histogram = field(default_factory=Histogram)
    statuses: Counter[int] = field(default_factory=Counter)
    unanswered: int = 0
    n_retry_after: int = 0
    longest_retry_after: float = 0.0

    @property
    def n_requests(self) -> int:
        """All requests."""
        return sum(self.statuses.values()) + self.unanswered

    @property
    def n_successes(self) -> int:
        """Requests that were answered as they should be."""
        return sum(n for status, n in self.statuses.items() if 200 <= status < 300)

    @property
    def n_refused(self) -> int:
        """Requests that were told to come back later."""
        return sum(self.statuses[status] for status in REFUSED)

    @property
    def n_errors(self) -> int:
        """Requests that were neither successes nor told to come back later."""
        return self.n_requests - self.n_successes - self.n_refused

    def add(self, other: Operation) -> None:
        """Take in the requests of another record."""
        self.durations.add(other.durations)
        self.statuses.update(other.statuses)
        self.unanswered += other.unanswered
        self.n_retry_after += other.n_retry_after
        self.longest_retry_after = max(self.longest_retry_after, other.longest_retry_after)

    def to_json(self) -> dict[str, Any]:
        """Return something that JSON can hold."""
        return {
            "durations": self.durations.to_json(),
            "statuses": list(self.statuses.items()),
            "unanswered": self.unanswered,
            "n_retry_after": self.n_retry_after,
            "longest_retry_after": self.longest_retry_after,
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Operation:
        """Return what `to_json` was called on."""
        durations, statuses = Histogram.from_json(content["durations"]), Counter(dict(content["statuses"]))
        return cls(**{**content, "durations": durations, "statuses": statuses})


@dataclass
class Effort:
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

    def add(self, other: Effort) -> None:
        """Take in a later stretch of the same process."""
        self.wall += other.wall
        self.cpu += other.cpu
        self.waited += other.waited
        self.send_lag.add(other.send_lag)
        self.loop_lag.add(other.loop_lag)

    @property
    def busy_share(self) -> float:
        """The share of the time in which it worked, or would have if there had been a processor."""
        return (self.cpu + self.waited) / self.wall if self.wall else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return something that JSON can hold."""
        lags = {"send_lag": self.send_lag.to_json(), "loop_lag": self.loop_lag.to_json()}
        return {"wall": self.wall, "cpu": self.cpu, "waited": self.waited, **lags}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Effort:
        """Return what `to_json` was called on."""
        lags = {name: Histogram.from_json(content[name]) for name in ("send_lag", "loop_lag")}
        return cls(content["wall"], content["cpu"], content["waited"], **lags)


@dataclass
class Record:
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

    operations: dict[str, Operation] = field(default_factory=dict)
    n_compared: int = 0
    n_read_back: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    n_held_up: int = 0
    n_substituted: int = 0

    def of(self, name: str) -> Operation:
        """The record of an operation."""
        found = self.operations.get(name)
        if found is None:
            found = self.operations[name] = Operation()
        return found

    def add(self, other: Record) -> None:
        """Take in another record."""
        for name, operation in other.operations.items():
            self.of(name).add(operation)
        self.n_compared += other.n_compared
        self.n_read_back += other.n_read_back
        self.violations.update(other.violations)
        self.n_held_up += other.n_held_up
        self.n_substituted += other.n_substituted

    def all(self, *without: str) -> Operation:
        """All operations but some as one."""
        together = Operation()
        for name, operation in self.operations.items():
            if name not in without:
                together.add(operation)
        return together

    def to_json(self) -> dict[str, Any]:
        """Return something that JSON can hold."""
        operations = {name: operation.to_json() for name, operation in self.operations.items()}
        return {**vars(self), "operations": operations, "violations": dict(self.violations)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Record:
        """Return what `to_json` was called on."""
        operations = {name: Operation.from_json(one) for name, one in content["operations"].items()}
        return cls(**{**content, "operations": operations, "violations": Counter(content["violations"])})
