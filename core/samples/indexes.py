"""What is kept beside samples, by slot: when they have to go, where they come from, nonces, and their subjects.

    slot        0      1      2       3
    expiries  1700   NEVER  1650   NEVER      milliseconds since 1970 UTC
    additions 1700     0    1650    1650      when they were added; 0: not known
    requests  "r-1"  None   "r-7"   "r-7"     what names the request; the samples of one share its text
    nonces    16 B   zeros  16 B    16 B      a hash of a sample that begins with them confirms no guesses about it

Few samples have one of these, or all of them have. Nothing is kept of a sample that has gone. So what is due is found
by one look over all slots, a fraction of a millisecond for a million of them. The soonest moment is remembered, so that
most calls need no look at all. Subjects are looked up from both sides.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from itertools import chain
from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Bools, Ints
from oubli.core.concurrency.slices import MadeOf, copied_list, cut, integers, lists
from oubli.core.data.values import MOMENTS, NEVER
from oubli.core.errors import InputError, ensure

NONCE_BYTES = 16
_FEW = 8  # NumPy takes longer to begin than so many copies


class SlotColumn:
    """A number of each sample that has one, or a row of numbers, by slot.

    Attributes
    ----------
    values : array[as many slots as there has been need for, ...], blank where a sample has none
    """

    blank: ClassVar[int] = 0
    what: ClassVar[str]  # for the messages of `check_invariants`

    def __init__(self, dtype: npt.DTypeLike = np.int64, *shape: int) -> None:
        self.values: Array = np.full((0, *shape), self.blank, dtype)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.values.nbytes

    def slots(self) -> Ints:
        """Return the slots of samples that have one, ascending."""
        is_set = self.values != self.blank
        return np.flatnonzero(is_set if is_set.ndim == 1 else is_set.any(axis=1))

    def reserve(self, n_slots: int) -> None:
        """Make room for so many slots."""
        n = len(self.values)
        if n_slots > n:
            larger = np.full((max(n_slots, 2 * n), *self.values.shape[1:]), self.blank, self.values.dtype)
            larger[:n] = self.values
            old, self.values = self.values, larger
            old[...] = self.blank  # freed memory must not keep them

    def copy(self) -> Self:
        """Return an independent copy."""
        other = copy(self)
        other.values = self.values.copy()
        return other

    def check_invariants(self, held: Bools) -> None:
        """Check against the slots in use, bool[capacity]; AssertionError names what is broken."""
        slots = self.slots()
        ensure(not len(slots) or (slots[-1] < len(held) and held[slots].all()), f"a free slot has {self.what}")


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


class AdditionIndex(SlotColumn):
    """Additions by slot: when samples were added, 0 where that is not known, and by which request."""

    what = "an addition"

    def __init__(self) -> None:
        super().__init__()
        self._requests: list[str | None] = []

    @property
    def nbytes(self) -> int:
        """Bytes of the array and the list, texts aside."""
        return 2 * self.values.nbytes

    def get(self, slot: int) -> Addition | None:
        """Return where the sample in a slot comes from; None when that is not known."""
        if slot >= len(self._requests) or not self.values[slot]:
            return None
        return Addition(int(self.values[slot]), self._requests[slot])

    def note(self, slots: Sequence[int], addition: Addition) -> None:
        """Say where the samples in slots come from, of which there is one at least."""
        self.reserve(max(slots) + 1)
        requests = self._requests
        for slot in slots:
            self.values[slot] = addition.at_ms
            requests[slot] = addition.request

    def note_many(self, slots: Ints, moments: Ints, requests: Sequence[str | None], rows: Ints) -> None:
        """Say when the samples in slots were added, and by which of some requests."""
        if len(slots):
            self.reserve(int(slots.max()) + 1)
        self.values[slots] = moments
        for part in cut(len(slots)):
            for slot, row in zip(slots[part].tolist(), rows[part].tolist(), strict=True):
                self._requests[slot] = requests[row]

    def forget(self, slots: Iterable[int]) -> None:
        """Forget where the samples in slots come from."""
        requests, n = self._requests, len(self._requests)
        for slot in slots:
            if slot < n:
                self.values[slot] = 0
                requests[slot] = None

    def reserve(self, n_slots: int) -> None:
        """Make room for so many slots."""
        n = len(self._requests)
        if n_slots > n:
            # The list grows first: after a failure in between there is a place for every moment.
            self._requests.extend([None] * (max(n_slots, 2 * n) - n))
            super().reserve(n_slots)

    def items(self) -> tuple[Ints, Ints, list[str], Ints]:
        """Return the slots with an addition, ascending, when it was, the requests, and the position of each's request.

        The position is -1 where there is no request.
        """
        slots = self.slots()
        positions: dict[str, int] = {}
        rows = np.full(len(slots), -1, np.int64)
        for part in cut(len(slots)):
            found = (self._requests[slot] for slot in slots[part].tolist())
            rows[part] = [-1 if name is None else positions.setdefault(name, len(positions)) for name in found]
        return slots, self.values[slots], list(positions), rows

    def copy(self) -> Self:
        """Return an independent copy."""
        other = super().copy()
        other.__dict__.update(_requests=copied_list(self._requests))
        return other

    def check_invariants(self, held: Bools) -> None:
        """Check against the slots in use, bool[capacity]; AssertionError names what is broken."""
        super().check_invariants(held)
        ensure(len(self.values) == len(self._requests), "additions and requests differ in length")
        known = set(self.slots().tolist())
        if any(name is not None and slot not in known for slot, name in enumerate(self._requests)):
            raise AssertionError("a slot without an addition has a request")


class NonceIndex(SlotColumn):
    """Nonces by slot, uint8[16] each."""

    what = "a nonce"

    def __init__(self) -> None:
        super().__init__(np.uint8, NONCE_BYTES)

    def get(self, slot: int) -> bytes | None:
        """Return the nonce of the sample in a slot; None when it has none."""
        if slot >= len(self.values):
            return None
        nonce = self.values[slot].tobytes()
        return nonce if any(nonce) else None

    def note(self, slots: Sequence[int] | Ints, nonces: bytes) -> None:
        """Give the samples in slots, of which there is one at least, nonces: 16 bytes each, one behind the other."""
        if len(slots) > _FEW:
            self.reserve(int(np.max(slots)) + 1)
            self.values[slots] = np.frombuffer(nonces, np.uint8).reshape(-1, NONCE_BYTES)
            return
        self.reserve(int(max(slots)) + 1)
        flat, size = memoryview(self.values.data).cast("B"), NONCE_BYTES
        for row, slot in enumerate(slots):
            flat[size * slot : size * slot + size] = nonces[size * row : size * row + size]

    def forget(self, slots: Sequence[int]) -> None:
        """Overwrite the nonces of the samples in slots."""
        values, n = self.values, len(self.values)
        for slot in slots:
            if slot < n:
                values[slot] = 0


def checked_moment(moment: int | None) -> int | None:
    """Return a moment, or None for never.

    Raises
    ------
    InputError
        When it is not an integer, or before the year 1 or after 9999.
    """
    if moment is not None and (type(moment) is not int or moment not in MOMENTS):
        raise InputError("must be an integer: milliseconds since 1970, in the years 1 to 9999", field="expires")
    return moment


class ExpiryIndex(SlotColumn):
    """Expiries by slot: when samples have to go; NEVER where they need not."""

    blank = NEVER
    what = "an expiry"

    def __init__(self) -> None:
        super().__init__()
        self._n = 0
        self._soonest: int | None = NEVER  # None: to be looked for

    def __len__(self) -> int:
        return self._n

    def get(self, slot: int) -> int | None:
        """Return when the sample in a slot has to go."""
        moment = int(self.values[slot]) if slot < len(self.values) else NEVER
        return None if moment == NEVER else moment

    def set(self, slot: int, moment: int | None) -> None:
        """Say when the sample in a slot has to go; None: never.

        Raises
        ------
        InputError
            When it is not an integer, or before the year 1 or after 9999.
        """
        if checked_moment(moment) is None:
            self.forget([slot])
            return
        self.set_many(np.array([slot]), np.array([moment], np.int64))

    def set_many(self, slots: Ints, moments: Ints) -> None:
        """Say when the samples in slots, each named once, have to go."""
        if len(slots) == 0:
            return
        self.reserve(int(slots.max()) + 1)
        self._let_go(slots)
        self.values[slots] = moments
        self._n += len(slots)
        if self._soonest is not None:
            self._soonest = min(self._soonest, int(moments.min()))

    def forget(self, slots: Sequence[int]) -> None:
        """Forget when the samples in slots, each named once, have to go, if they have to."""
        n = len(self.values)
        self._let_go(np.array([slot for slot in slots if slot < n], np.int64))

    def _let_go(self, slots: Ints) -> None:
        held = self.values[slots]
        held = held[held != NEVER]
        if len(held) == 0:
            return
        self.values[slots] = NEVER
        self._n -= len(held)
        if self._soonest is not None and int(held.min()) == self._soonest:
            self._soonest = None

    def soonest(self) -> int | None:
        """Return when the first sample has to go; None when none has to."""
        soonest = self._soonest
        if soonest is None:
            self._soonest = soonest = int(self.values.min(initial=NEVER))
        return None if soonest == NEVER else soonest

    def due(self, now: int, limit: int) -> list[int]:
        """Return the slots of up to `limit` samples that have to be gone by `now`, the soonest first."""
        soonest = self.soonest()
        if soonest is None or soonest > now:
            return []
        # The largest integer of 64 bits stands for never.
        slots = np.flatnonzero(self.values <= min(now, NEVER - 1))
        due: list[int] = slots[np.argsort(self.values[slots], kind="stable")[:limit]].tolist()
        return due

    def items(self) -> tuple[Ints, Ints]:
        """Return the slots of samples that have to go, ascending, and when."""
        slots = self.slots()
        return slots, self.values[slots]

    def check_invariants(self, held: Bools) -> None:
        """Check against the slots in use, bool[capacity]; AssertionError names what is broken."""
        super().check_invariants(held)
        ensure(len(self.slots()) == self._n, "the number of expiries is wrong")
        ensure(self._soonest in (None, int(self.values.min(initial=NEVER))), "the soonest expiry is wrong")


class _Index(NamedTuple):
    by_slot: dict[int, str]
    slots: dict[str, dict[int, None]]  # in the order in which they were linked

    def link(self, slot: int, subject: str) -> None:
        self.by_slot[slot] = subject
        self.slots.setdefault(subject, {})[slot] = None


_Links = tuple[list[str], Ints]


def _no_links() -> _Links:
    return [], np.zeros(0, np.int64)


def _indexed(_: object, links: _Links) -> _Index:
    index, (subjects, slots) = _Index({}, {}), links
    for part in cut(len(slots)):
        for subject, slot in zip(subjects[part], slots[part].tolist(), strict=True):
            index.link(slot, subject)
    return index


class SubjectIndex:
    """Subjects by slot, and the slots of each subject in the order in which they were linked."""

    # Both sides; of a copy, made when one is first looked at, as `SlotTable` does with ids.
    _index: _Index = MadeOf("_unindexed", _indexed, _no_links)  # type: ignore[assignment]

    def __init__(self) -> None:
        self._index = _Index({}, {})
        self._n = 0
        # Of a copy, until it is indexed: the subjects and slots of its links, in their order.
        self._unindexed = _no_links()

    @property
    def _is_indexed(self) -> bool:
        return "_index" in self.__dict__

    def build_index(self) -> None:
        """Get ready to look up subjects; in a copy the first look-up does this, which takes a while."""
        _ = self._index

    def __len__(self) -> int:
        return self._n

    def __contains__(self, slot: int) -> bool:
        return slot in self._index.by_slot

    def get(self, slot: int) -> str | None:
        """Return the subject of the sample in a slot."""
        return self._index.by_slot.get(slot)

    @property
    def n_subjects(self) -> int:
        """How many different subjects there are."""
        return len(self._index.slots)

    def slots(self, subject: str) -> list[int]:
        """Return the slots of a subject's samples."""
        return list(self._index.slots.get(subject, ()))

    def link(self, slot: int, subject: str) -> None:
        """Set the subject of the sample in a slot, which must have none yet."""
        self._index.link(slot, subject)
        self._n += 1

    def unlink(self, slot: int) -> str | None:
        """Forget the subject of the sample in a slot; return it when this was its last sample."""
        index = self._index
        subject = index.by_slot.pop(slot, None)
        if subject is None:
            return None
        self._n -= 1
        slots = index.slots[subject]
        del slots[slot]
        if slots:
            return None
        del index.slots[subject]
        return subject

    def links(self) -> tuple[list[str], Ints]:
        """Return the subjects and slots of all links, by subject."""
        unindexed = self._unindexed
        if not self._is_indexed:
            return unindexed
        subjects: list[str] = []
        slots = self._index.slots
        for part in lists(slots):
            subjects += [subject for subject in part for _ in slots[subject]]
        return subjects, integers(chain.from_iterable(slots.values()), len(subjects))

    def copy(self) -> "SubjectIndex":
        """Return an independent copy."""
        other = SubjectIndex()
        other.__dict__.pop("_index")
        other.__dict__.update(_unindexed=self.links(), _n=self._n)
        return other

    def check_invariants(self, held: set[int]) -> None:
        """Check against the slots in use; AssertionError names what is broken."""
        subjects, slots = self.links()
        links = list(zip(subjects, slots.tolist(), strict=True))
        expected = {(subject, slot) for slot, subject in self._index.by_slot.items()}
        ensure(len(links) == len(expected) == self._n and set(links) == expected, "subjects and their samples differ")
        ensure(self._index.by_slot.keys() <= held, "a free slot has a subject")
        ensure(all(self._index.slots.values()), "a subject without samples is kept")
