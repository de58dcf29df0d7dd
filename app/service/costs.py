"""How long work will take, guessed from how long it took: what decides whether it may run on the event loop."""

from __future__ import annotations

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

    def __init__(self, seconds: float, budget: float) -> None:
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
