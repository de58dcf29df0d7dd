"""How long things take: counted for those who watch the server, and averaged to say how long the next will take."""

from __future__ import annotations

from bisect import bisect_left

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


LONGEST_PAUSE = 0.050  # seconds that a model may spend on the event loop on building parts of itself anew
LOOP_BUDGET = 0.010  # seconds of work that may run on the event loop in one piece
_WEIGHT = 0.1  # of the newest measurement in the moving average


class Cost:
    """A moving average of the time for one item.

    Parameters
    ----------
    seconds
        First guess for one item.
    budget
        Seconds that may be spent on the event loop, while nothing else is answered.
    """

    __slots__ = ("_budget", "_seconds")

    def __init__(self, seconds: float, budget: float = LOOP_BUDGET) -> None:
        self._seconds = seconds
        self._budget = budget

    def is_short(self, n_items: int) -> bool:
        """Whether `n_items` may run on the loop. A single item always may: a thread would not make it shorter."""
        return n_items <= 1 or n_items * self._seconds <= self._budget

    def guess(self, n_items: int) -> float:
        """Return how many seconds `n_items` will take."""
        return n_items * self._seconds

    def observe(self, n_items: int, seconds: float) -> None:
        """Take a measurement into the average."""
        if n_items:
            self._seconds += _WEIGHT * (seconds / n_items - self._seconds)
