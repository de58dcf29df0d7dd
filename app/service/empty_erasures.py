"""How many erasures that find nothing are written down: each costs a ledger entry for ever, and erases nothing.

Counted are requests, by the id of the caller's key and by hour, in memory. Nothing of what the requests name is kept,
neither ids nor subjects nor hashes of them. A restart begins to count anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

HOUR_MS = 3_600_000


@dataclass(eq=False, repr=False)
class EmptyErasures:
    """Counts erasures that find nothing. It belongs to the event loop.

    Parameters
    ----------
    most
        How many of each caller are written down in an hour.
    steady_ms
        The time, in milliseconds, that nobody can set.
    """

    _most: int
    _steady_ms: Callable[[], int]
    _counts: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)  # when the hour began, and how many

    def admits(self, caller: str) -> bool:
        """Count an erasure of a caller that has found nothing; whether it is to be written down."""
        now = self._steady_ms()
        begun, n_before = self._counts.get(caller, (now, 0))
        if now - begun >= HOUR_MS or caller not in self._counts:
            # Keys come and go: those that have not been used for an hour are forgotten.
            self._counts = {name: count for name, count in self._counts.items() if now - count[0] < HOUR_MS}
            begun, n_before = now, 0
        self._counts[caller] = begun, n_before + 1
        return n_before < self._most
