"""Numbers in the results of jobs that depend on every sample: digests, scores, distances.

Whoever has all other samples could test guesses about one that was erased since, against such a number: only the right
guess gives it again. So a result that is kept loses them before an erasure says `erased`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from oubli.app.service.holders import Holders

_MOST_KEPT = 200  # results; a job board keeps fewer


class Fingerprints:
    """The results that hold such numbers. It belongs to the event loop.

    Parameters
    ----------
    holders
        Told of them.
    """

    def __init__(self, holders: Holders) -> None:
        self._kept: deque[tuple[int, dict[str, Any], Sequence[str]]] = deque(maxlen=_MOST_KEPT)
        self._forgotten = -1  # all of this period and before it
        holders.register("fingerprints", self._forget)

    def keep(self, period: int, result: dict[str, Any], names: Sequence[str]) -> None:
        """Take in the result of a job.

        Parameters
        ----------
        period
            In which the samples were read, or one before.
        result
            Of the job. Its numbers are set to None when they are to be forgotten.
        names
            Of the numbers, as far as the result has them.
        """
        self._kept.append((period, result, names))
        self._forget(self._forgotten)

    def _forget(self, period: int) -> None:
        self._forgotten = max(period, self._forgotten)
        for made, result, names in self._kept:
            if made <= period:
                result.update(dict.fromkeys(result.keys() & names))
        self._kept = deque((one for one in self._kept if one[0] > period), _MOST_KEPT)
