"""Slots: where a sample lives while it is held, and the ids that lead to it.

    slot         0       1       2       3       4 ...  capacity (doubles)
    held       True    False    True    True   False
    ids         "7"     None     "0"    "bob"   None
    id_hashes   h("7")   0      h("0")  h("bob")  0      what randomness is drawn from
    cells     [3, 1]   [0, 0]  [5, nan] [2, 0]  [0, 0]   float32/64[capacity, d]; categories: codes
    origins      0       0        2       0       0      a number that the caller keeps with a sample
    targets      1       0        0       1       0      class codes, or y of a regression

A sample keeps its slot. A slot that is freed is overwritten at once and reused before a new one is
taken; slots from `_top` on have never been used.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from oubli.core.data.types import Task
from oubli.core.data.values import normalise_id
from oubli.core.errors import CapacityError, DuplicateIdError, UnknownIdError
from oubli.core.samples.ids import end_of_numbers, read_ids
from oubli.core.samples.lazy import MadeOf
from oubli.core.slices import copied_list, cut, integers

if TYPE_CHECKING:
    from oubli.core.data.schema import Schema

_SMALLEST = 16
# Kernels keep slots in int32.
MAX_SLOTS = 2**31 - 1


class _Arrays(NamedTuple):
    """What is kept by slot; see the top of this file."""

    cells: npt.NDArray[Any]
    class_codes: npt.NDArray[np.int64]
    y: npt.NDArray[np.float64]
    id_hashes: npt.NDArray[np.uint64]
    origins: npt.NDArray[np.int64]
    held: npt.NDArray[np.bool_]


def _no_order() -> npt.NDArray[np.int64]:
    return np.zeros(0, np.int64)


def _slots_by_id(table: "SlotTable", order: npt.NDArray[np.int64]) -> dict[str, int]:
    slot_of: dict[str, int] = {}
    ids = cast("list[str]", table._ids)  # of slots that are held
    for part in cut(len(order)):
        numbers = order[part].tolist()
        slot_of.update(zip([ids[slot] for slot in numbers], numbers, strict=True))
    return slot_of


class SlotTable:
    """Arrays by slot, and slots by id.

    Parameters
    ----------
    schema : Schema
        Decides the shapes and types of the arrays.
    """

    # Slots by id, in the order of the ids; of a copy, made when an id is first looked up. A dictionary of many entries
    # cannot be copied, nor let go of, without keeping other threads waiting; and many copies only go to a file.
    _slot_of: dict[str, int] = MadeOf("_order", _slots_by_id, _no_order)  # type: ignore[assignment]

    def __init__(self, schema: "Schema") -> None:
        self.schema = schema
        self._classification = schema.task is Task.CLASSIFICATION
        self._slot_of = {}
        self._order = _no_order()  # of a copy, until its ids are indexed: the slots in the order of the ids
        self._ids: list[str | None] = []
        self._free: list[int] = []
        self._top = 0
        self._next_id = 0
        self._set_arrays(self._empty_arrays(0))

    def _empty_arrays(self, capacity: int) -> _Arrays:
        labelled, targets = (capacity, 0) if self._classification else (0, capacity)
        return _Arrays(
            cells=np.zeros((capacity, self.schema.n_features), self.schema.cell_dtype),
            class_codes=np.zeros(labelled, np.int64),
            y=np.zeros(targets, np.float64),
            id_hashes=np.zeros(capacity, np.uint64),
            origins=np.zeros(capacity, np.int64),
            held=np.zeros(capacity, np.bool_),
        )

    def _set_arrays(self, arrays: _Arrays) -> None:
        ids = self._ids + [None] * (len(arrays.held) - len(self._ids))
        # One statement: no exception comes between its parts.
        self.cells, self.class_codes, self.y, self.id_hashes, self.origins, self.held, self._ids = *arrays, ids

    def _arrays(self) -> _Arrays:
        return _Arrays(self.cells, self.class_codes, self.y, self.id_hashes, self.origins, self.held)

    def _copied_arrays(self, capacity: int) -> _Arrays:
        arrays = self._empty_arrays(capacity)
        top = self._top
        for old, new in zip(self._arrays(), arrays, strict=True):
            new[:top] = old[:top]
        return arrays

    def _grow(self, capacity: int) -> None:
        self._set_arrays(self._copied_arrays(capacity))

    @property
    def _is_indexed(self) -> bool:
        return "_slot_of" in self.__dict__

    def _containers_nbytes(self) -> int:
        order = self._order
        index = self._slot_of if self._is_indexed else order
        return sum(map(sys.getsizeof, (index, self._ids, self._free)))

    def __len__(self) -> int:
        return self._top - len(self._free)

    def __contains__(self, sample_id: object) -> bool:
        return self.contains(sample_id)

    @property
    def capacity(self) -> int:
        """Number of slots, in use or free."""
        return len(self.held)

    @property
    def n_slots(self) -> int:
        """Number of slots that have ever been used; those that are free are used again first."""
        return self._top

    @property
    def next_id(self) -> int:
        """The counter behind generated ids; only grows."""
        return self._next_id

    def slots(self) -> npt.NDArray[np.int64]:
        """Return the slots in use, ascending."""
        return np.flatnonzero(self.held[: self._top])

    def slots_in_order(self) -> npt.NDArray[np.int64]:
        """Return the slots in use, in the order in which their samples were added."""
        order = self._order
        return integers(self._slot_of.values(), len(self)) if self._is_indexed else order.copy()

    def ids(self) -> list[str]:
        """Return the ids held, in the order in which they were added."""
        order = self._order
        return list(self._slot_of) if self._is_indexed else list(self.names(order))

    def names(self, slots: npt.NDArray[np.int64]) -> Iterator[str]:
        """Yield the ids of the samples in slots."""
        for part in cut(len(slots)):
            yield from map(self.id_of, slots[part].tolist())

    def contains(self, sample_id: object) -> bool:
        """Tell whether an id is held."""
        return normalise_id(sample_id) in self._slot_of

    def id_of(self, slot: int) -> str:
        """Return the id of the sample in a slot."""
        name = self._ids[slot]
        if name is None:
            raise IndexError(f"slot {slot} is free")
        return name

    def find(self, ids: Iterable[object]) -> npt.NDArray[np.int64]:
        """Return the slots of ids, in their order.

        Raises
        ------
        UnknownIdError
            When some are not held; it lists them.
        DuplicateIdError
            When one is named twice.
        """
        held = self._slot_of
        if type(ids) is list and len(ids) == 1 and type(ids[0]) is str and (slot := held.get(ids[0])) is not None:
            return np.array((slot,), np.int64)  # mostly; what is held is an id
        names = read_ids(ids)
        slots = list(map(held.get, names))
        if None in slots:
            raise UnknownIdError(dict.fromkeys(name for name in names if name not in held))
        if len(slots) > 1 and len(set(slots)) != len(slots):
            refuse_repeated(names)
        return np.array(slots, np.int64)

    def _slot(self, sample_id: object) -> int:
        name = normalise_id(sample_id)
        slot = self._slot_of.get(name)
        if slot is None:
            raise UnknownIdError([name])
        return slot

    def _refuse_held(self, names: Sequence[str]) -> None:
        held = self._slot_of
        for row, name in enumerate(names):
            if name in held:
                raise DuplicateIdError(
                    "is held already: delete or replace that sample, or use another id", row=row, field="id", value=name
                )

    def next_ids(self, n: int) -> list[str]:
        """Return the ids that `commit` would generate for `n` rows now.

        A journal can record them and `prepare` again with them: the counter moves all the same.
        """
        if n == 1 and (name := str(self._next_id)) not in self._slot_of:
            return [name]
        names = list(map(str, range(self._next_id, self._next_id + n)))
        if not self._slot_of or self._slot_of.keys().isdisjoint(names):
            return names
        names = []
        candidate = self._next_id
        while len(names) < n:
            name = str(candidate)
            if name not in self._slot_of:
                names.append(name)
            candidate += 1
        return names

    def _reserve_slots(self, n: int) -> None:
        """Make room for `n` further samples."""
        needed = self._top + max(0, n - len(self._free))
        if needed > self.capacity:
            if needed > MAX_SLOTS:
                raise CapacityError(f"more than {MAX_SLOTS} samples cannot be held at a time")
            self._grow(min(max(needed, 2 * self.capacity, _SMALLEST), MAX_SLOTS))

    def _next_slots(self, n: int) -> npt.NDArray[np.int64]:
        """Return the slots that the next `n` samples will take."""
        reused = min(n, len(self._free))
        slots = np.empty(n, np.int64)
        if reused:
            slots[:reused] = self._free[-1 : -reused - 1 : -1]
        slots[reused:] = np.arange(self._top, self._top + n - reused)
        return slots

    def _take_slots(self, n: int) -> None:
        """Take those out of what is free."""
        reused = min(n, len(self._free))
        if reused:
            del self._free[-reused:]
        self._top += n - reused

    def _pass_numbers(self, names: Sequence[str]) -> None:
        """Move the counter past every number among given ids, so that it is never generated."""
        self._next_id = max(self._next_id, end_of_numbers(names))

    def _ids_without(self, gone: npt.NDArray[np.bool_]) -> tuple[dict[str, int], list[str | None]]:
        """Slots by id, and ids by slot, without some slots; faster than one by one when they are many."""
        slots = np.fromiter(self._slot_of.values(), np.int64, len(self._slot_of))
        kept = slots[~gone[slots]].tolist()
        names = list(map(self.id_of, kept))
        ids: list[str | None] = [None] * self.capacity
        for slot, name in zip(kept, names, strict=True):
            ids[slot] = name
        return dict(zip(names, kept, strict=True)), ids

    def _copy_slots_to(self, other: "SlotTable") -> None:
        """Make another table, of the same schema, an independent copy of this one."""
        del other._slot_of
        other._order = self.slots_in_order()
        other._ids = copied_list(self._ids)
        other._free = copied_list(self._free)
        other._top = self._top
        other._next_id = self._next_id
        other._set_arrays(self._copied_arrays(self.capacity))


def refuse_repeated(names: Sequence[str]) -> None:
    """Raise DuplicateIdError for the first id that occurs a second time, if any."""
    seen: set[str] = set()
    for row, name in enumerate(names):
        if name in seen:
            raise DuplicateIdError("is repeated in this call: name every id once", row=row, field="id", value=name)
        seen.add(name)
