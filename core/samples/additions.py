"""When samples were added and by which request, and all that is kept beside a sample.

    slot        0      1      2       3
    moments   1700     0    1650    1650      milliseconds since 1970 UTC; 0: not known
    requests  "r-1"  None   "r-7"   "r-7"     what names the request; the samples of one share its text

Nothing is kept of a sample that has gone.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from oubli.core.array_types import Bools, Ints
from oubli.core.errors import ensure
from oubli.core.slices import copied_list, cut


class Addition(NamedTuple):
    """Where a sample comes from.

    Attributes
    ----------
    at_ms : int
        When it was added, in milliseconds since 1970 UTC.
    request : str or None
        What names the request that added it.
    """

    at_ms: int
    request: str | None


class Retention(NamedTuple):
    """How long samples of a subject are kept.

    Attributes
    ----------
    period_ms : int
        In milliseconds, from the addition of each sample.
    since_ms : int
        When that was first said, in milliseconds since 1970 UTC: from then on the period counts of samples whose
        addition is not known.
    """

    period_ms: int
    since_ms: int


class Belongings(NamedTuple):
    """What is kept beside a sample.

    Attributes
    ----------
    subject : str or None
        Whom it is about.
    expires_ms : int or None
        When it has to go by itself.
    origin : int
        A number of the caller's.
    addition : Addition or None
        Where it comes from.
    retention : Retention or None
        How long samples of the subject are kept.
    nonce : bytes or None
        What a hash of the sample begins with; of this content alone.
    """

    subject: str | None
    expires_ms: int | None
    origin: int
    addition: Addition | None
    retention: Retention | None = None
    nonce: bytes | None = None


class AdditionIndex:
    """Additions by slot.

    Attributes
    ----------
    moments : int64[as many slots as there has been need for], when the sample in each was added; 0: not known
    """

    def __init__(self) -> None:
        self.moments = np.zeros(0, np.int64)
        self._requests: list[str | None] = []

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def nbytes(self) -> int:
        """Bytes of the array and the list, texts aside."""
        return 2 * self.moments.nbytes

    def get(self, slot: int) -> Addition | None:
        """Return where the sample in a slot comes from; None when that is not known."""
        if slot >= len(self._requests) or not self.moments[slot]:
            return None
        return Addition(int(self.moments[slot]), self._requests[slot])

    def note(self, slots: Sequence[int], addition: Addition) -> None:
        """Say where the samples in slots come from, of which there is one at least."""
        self._reserve(max(slots) + 1)
        requests = self._requests
        for slot in slots:
            self.moments[slot] = addition.at_ms
            requests[slot] = addition.request

    def note_many(self, slots: Ints, moments: Ints, requests: Sequence[str | None], rows: Ints) -> None:
        """Say when the samples in slots were added, and by which of some requests."""
        if len(slots):
            self._reserve(int(slots.max()) + 1)
        self.moments[slots] = moments
        for part in cut(len(slots)):
            for slot, row in zip(slots[part].tolist(), rows[part].tolist(), strict=True):
                self._requests[slot] = requests[row]

    def forget(self, slots: Iterable[int]) -> None:
        """Forget where the samples in slots come from."""
        requests, n = self._requests, len(self._requests)
        for slot in slots:
            if slot < n:
                self.moments[slot] = 0
                requests[slot] = None

    def _reserve(self, n_slots: int) -> None:
        n = len(self._requests)
        if n_slots > n:
            capacity = max(n_slots, 2 * n)
            moments = np.pad(self.moments, (0, capacity - n))
            # The list is longer first: whoever fails in between finds a place for every moment.
            self._requests.extend([None] * (capacity - n))
            self.moments = moments

    def items(self) -> tuple[Ints, Ints, list[str], Ints]:
        """Return the slots with an addition, ascending, when it was, the requests, and the position of each's request.

        The position is -1 where there is no request.
        """
        slots = np.flatnonzero(self.moments)
        positions: dict[str, int] = {}
        rows = np.full(len(slots), -1, np.int64)
        for part in cut(len(slots)):
            found = (self._requests[slot] for slot in slots[part].tolist())
            rows[part] = [-1 if name is None else positions.setdefault(name, len(positions)) for name in found]
        return slots, self.moments[slots], list(positions), rows

    def copy(self) -> "AdditionIndex":
        """Return an independent copy."""
        other = AdditionIndex()
        other.__dict__.update(_requests=copied_list(self._requests), moments=self.moments.copy())
        return other

    def check_invariants(self, held: Bools) -> None:
        """Check against the slots in use, bool[capacity]; AssertionError names what is broken."""
        ensure(len(self.moments) == len(self._requests), "additions and requests differ in length")
        slots = np.flatnonzero(self.moments)
        ensure(not len(slots) or (slots[-1] < len(held) and held[slots].all()), "a free slot has an addition")
        known = set(slots.tolist())
        if any(name is not None and slot not in known for slot, name in enumerate(self._requests)):
            raise AssertionError("a slot without an addition has a request")
