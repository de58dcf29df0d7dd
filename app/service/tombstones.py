"""Which ids were erased so lately that a late retry could bring a person back; known by keyed hashes only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence


class Grace:
    """The ids erased within a period.

    Parameters
    ----------
    period_ms
        How long an id is remembered; 0 remembers nothing.
    hashes
        Returns the keyed hashes of an id: one for each key that is known, the current one first.
    now_ms
        The steady time: a clock that is set must neither end the period nor prolong it.
    erased
        Hash and steady time of what was erased before, oldest first.
    """

    def __init__(
        self,
        period_ms: int,
        hashes: Callable[[str], Sequence[str]],
        now_ms: Callable[[], int],
        erased: Iterable[tuple[str, int]] = (),
    ) -> None:
        self._period_ms = period_ms
        self._hashes = hashes
        self._now_ms = now_ms
        self._times: dict[str, int] = {}
        self._order: deque[tuple[int, str]] = deque()
        for known, at in erased:
            self._remember(known, at)

    def add(self, hashes: Iterable[str], at_ms: int) -> None:
        """Note that ids were erased, by their hashes under the current key."""
        if self._period_ms:
            for known in hashes:
                self._remember(known, at_ms)

    def holds(self, sample_id: str) -> bool:
        """Whether an id was erased within the period."""
        self._forget()
        return bool(self._times) and any(known in self._times for known in self._hashes(sample_id))

    def _remember(self, known: str, at_ms: int) -> None:
        self._times[known] = at_ms
        self._order.append((at_ms, known))

    def _forget(self) -> None:
        end = self._now_ms() - self._period_ms
        while self._order and self._order[0][0] <= end:
            at, known = self._order.popleft()
            if self._times.get(known) == at:  # it may have been erased again since
                del self._times[known]
