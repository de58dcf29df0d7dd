"""A sliding window: the samples in the order of their arrival, so that the oldest can leave."""

from collections import OrderedDict
from collections.abc import Iterable
from itertools import chain, islice


class Window:
    """Slots in the order of arrival; every method takes constant time a slot.

    Parameters
    ----------
    size : samples held at most.
    slots : those held, the oldest first.
    """

    def __init__(self, size: int, slots: Iterable[int] = ()) -> None:
        self.size = size
        # Unlike those of a dict, the entries that have left cost nothing when the first one is asked for.
        self._slots: OrderedDict[int, None] = OrderedDict.fromkeys(slots)

    def __len__(self) -> int:
        return len(self._slots)

    def slots(self) -> list[int]:
        """Return the slots, the oldest first."""
        return list(self._slots)

    def leaving(self, n_new: int, slots: Iterable[int] = ()) -> list[int]:
        """Return the slots that have to leave when so many come; `slots`: those that come, which may leave at once."""
        return list(islice(chain(self._slots, slots), max(0, len(self._slots) + n_new - self.size)))

    def append(self, slot: int) -> int | None:
        """Take in the newest sample, and return the slot of the one that has to leave, if any."""
        self._slots[slot] = None
        return self._slots.popitem(last=False)[0] if len(self._slots) > self.size else None

    def remove(self, slots: Iterable[int]) -> None:
        """Take out samples that leave by themselves."""
        for slot in slots:
            del self._slots[slot]
