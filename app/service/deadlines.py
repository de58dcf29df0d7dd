"""The deadline of erasures, by elapsed time: setting a clock neither stops them nor hides that they are late."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oubli.app.service.state import Live


class Deadline:
    """How long erasures have waited, and which of them are overdue. It may be asked from any thread.

    Parameters
    ----------
    live
        Knows the erasures that are not finished.
    steady_ms
        The time, in milliseconds, that nobody can set; see `Clock.steady_ms`.
    seconds
        How long an erasure may take from its acknowledgement.
    """

    def __init__(self, live: Live, steady_ms: Callable[[], int], seconds: float) -> None:
        self._live = live
        self._steady_ms = steady_ms
        self._seconds = seconds
        self.ms = round(seconds * 1000)

    def is_overdue(self, receipt_id: str) -> bool:
        """Whether an erasure should be finished and is not."""
        pending = self._live.pending.get(receipt_id)
        return pending is not None and self._steady_ms() - pending.since_ms > self.ms

    def overdue_of(self, receipt_ids: Iterable[str]) -> list[str]:
        """Return those of some erasures that are overdue."""
        return [name for name in receipt_ids if self.is_overdue(name)]

    def n_overdue(self) -> int:
        """Return how many erasures are overdue."""
        end = self._steady_ms() - self.ms
        return sum(pending.since_ms < end for pending in self._live.pending.values())

    def is_due(self, receipt_ids: Iterable[str], lasts: float) -> bool:
        """Whether one of some erasures has to be finished now, when that lasts so many seconds.

        Half of the deadline is left, or thrice the time that it takes; or an earlier process has left it.
        """
        waiting = [self._live.pending[name] for name in receipt_ids]
        if not waiting:
            return False
        if any(pending.is_inherited for pending in waiting):
            return True
        waited = self._steady_ms() - min(pending.since_ms for pending in waiting)
        return waited / 1000 >= min(self._seconds / 2, self._seconds - 3 * lasts)
