"""Whom samples belong to: few samples or all of them, looked up from both sides."""

from itertools import chain
from typing import NamedTuple

import numpy as np

from oubli.core.array_types import Ints
from oubli.core.samples.lazy import MadeOf
from oubli.core.slices import cut, integers, lists


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

    def slots(self, subject: str) -> list[int]:
        """Return the slots of a subject's samples."""
        return list(self._index.slots.get(subject, ()))

    def link(self, slot: int, subject: str) -> None:
        """Say whom the sample in a slot belongs to; it must not be linked yet."""
        self._index.link(slot, subject)
        self._n += 1

    def unlink(self, slot: int) -> None:
        """Forget whom the sample in a slot belongs to, and the subject with its last sample."""
        index = self._index
        subject = index.by_slot.pop(slot, None)
        if subject is None:
            return
        self._n -= 1
        slots = index.slots[subject]
        del slots[slot]
        if not slots:
            del index.slots[subject]

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
        if not len(links) == len(expected) == self._n or set(links) != expected:
            raise AssertionError("subjects and their samples differ")
        if not self._index.by_slot.keys() <= held:
            raise AssertionError("a free slot has a subject")
        if not all(self._index.slots.values()):
            raise AssertionError("a subject without samples is kept")
