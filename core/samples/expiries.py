"""When samples have to go: few samples or all of them, by slot.

    slot        0      1      2       3
    moments   1700   NEVER  1650   NEVER      milliseconds since 1970 UTC

Nothing is kept of a sample that has gone, as a queue from which entries are dropped late would do. What
is due is found by one look over all slots, a fraction of a millisecond for a million of them, and the
soonest moment is remembered, so that there is a look only when something is due, or has left first.
"""

from collections.abc import Sequence

import numpy as np

from oubli.core.array_types import Bools, Ints
from oubli.core.errors import InputError

NEVER = int(np.iinfo(np.int64).max)
_FIRST = int(np.iinfo(np.int64).min)


def checked_moment(moment: int | None) -> int | None:
    """Return a moment, or None for never.

    Raises
    ------
    InputError
        When it is not an integer, or beyond what 64 bits hold.
    """
    if moment is not None and (type(moment) is not int or not _FIRST <= moment < NEVER):
        raise InputError("must be an integer of 64 bits: milliseconds since 1970", field="expires")
    return moment


class ExpiryIndex:
    """Expiries by slot.

    Attributes
    ----------
    moments : int64[as many slots as there has been need for], when the sample in each has to go; NEVER: never
    """

    def __init__(self) -> None:
        self.moments = np.zeros(0, np.int64)
        self._n = 0
        self._soonest: int | None = NEVER  # None: to be looked for

    def __len__(self) -> int:
        return self._n

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.moments.nbytes

    def get(self, slot: int) -> int | None:
        """Return when the sample in a slot has to go."""
        moment = int(self.moments[slot]) if slot < len(self.moments) else NEVER
        return None if moment == NEVER else moment

    def set(self, slot: int, moment: int | None) -> None:
        """Say when the sample in a slot has to go; None: never.

        Raises
        ------
        InputError
            When it is not an integer, or beyond what 64 bits hold.
        """
        if checked_moment(moment) is None:
            self.forget([slot])
            return
        self.set_many(np.array([slot]), np.array([moment], np.int64))

    def set_many(self, slots: Ints, moments: Ints) -> None:
        """Say when the samples in slots, each named once, have to go."""
        if len(slots) == 0:
            return
        self._reserve(int(slots.max()) + 1)
        self._let_go(slots)
        self.moments[slots] = moments
        self._n += len(slots)
        if self._soonest is not None:
            self._soonest = min(self._soonest, int(moments.min()))

    def forget(self, slots: Sequence[int]) -> None:
        """Forget when the samples in slots, each named once, have to go, if they have to."""
        n = len(self.moments)
        self._let_go(np.array([slot for slot in slots if slot < n], np.int64))

    def _let_go(self, slots: Ints) -> None:
        held = self.moments[slots]
        held = held[held != NEVER]
        if len(held) == 0:
            return
        self.moments[slots] = NEVER
        self._n -= len(held)
        if self._soonest is not None and int(held.min()) == self._soonest:
            self._soonest = None

    def _reserve(self, n_slots: int) -> None:
        n = len(self.moments)
        if n_slots > n:
            moments = np.full(max(n_slots, 2 * n), NEVER, np.int64)
            moments[:n] = self.moments
            self.moments = moments

    def soonest(self) -> int | None:
        """Return when the first sample has to go; None when none has to."""
        soonest = self._soonest
        if soonest is None:
            self._soonest = soonest = int(self.moments.min(initial=NEVER))
        return None if soonest == NEVER else soonest

    def due(self, now: int, limit: int) -> list[int]:
        """Return the slots of up to `limit` samples that have to be gone by `now`, the soonest first."""
        soonest = self.soonest()
        if soonest is None or soonest > now:
            return []
        # The largest integer of 64 bits stands for never.
        slots = np.flatnonzero(self.moments <= min(now, NEVER - 1))
        order = np.argsort(self.moments[slots], kind="stable")[:limit]
        due: list[int] = slots[order].tolist()
        return due

    def items(self) -> tuple[Ints, Ints]:
        """Return the slots of samples that have to go, ascending, and when."""
        slots = np.flatnonzero(self.moments != NEVER)
        return slots, self.moments[slots]

    def copy(self) -> "ExpiryIndex":
        """Return an independent copy."""
        other = ExpiryIndex()
        other.__dict__.update(self.__dict__, moments=self.moments.copy())
        return other

    def check_invariants(self, held: Bools) -> None:
        """Check against the slots in use, bool[capacity]; AssertionError names what is broken."""
        slots = np.flatnonzero(self.moments != NEVER)
        if len(slots) != self._n:
            raise AssertionError("the number of expiries is wrong")
        if len(slots) and (slots[-1] >= len(held) or not held[slots].all()):
            raise AssertionError("a free slot has an expiry")
        if self._soonest not in (None, int(self.moments.min(initial=NEVER))):
            raise AssertionError("the soonest expiry is wrong")
