"""Slots: where a sample lives while it is held, and the ids that lead to it.

    slot         0       1       2       3       4 ...  capacity (doubles)
    held       True    False    True    True   False
    ids         "7"     None     "0"    "bob"   None
    id_hashes   h("7")   0      h("0")  h("bob")  0      what randomness is drawn from
    cells     [3, 1]   [0, 0]  [5, nan] [2, 0]  [0, 0]   float32/64[capacity, d]; categories: codes
    origins      0       0        2       0       0      a number that the caller keeps with a sample
    targets      1       0        0       1       0      class codes, or y of a regression

A sample keeps its slot. A slot that is freed is overwritten at once and reused before a new one is
taken; slots from `top` on have never been used.

The index of a DataFrame gives ids:

| label of an index                        | id                                      |
|------------------------------------------|-----------------------------------------|
| text, integer                            | as everywhere                           |
| date, time                               | its ISO text, as everywhere in `core`   |
| all of them together 0, 1, ..., n - 1    | none: they only count the rows          |
| missing, repeated, of any other type     | none for any row, and a warning         |
"""

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count, islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from oubli.core.array_types import Array, Bools, Hashes, Ints, Reals
from oubli.core.data.values import ID_LENGTH, RefusedError, Task, id_text, normalise_id
from oubli.core.errors import CapacityError, DuplicateIdError, IndexWarning, InputError, UnknownIdError
from oubli.core.samples.lazy import MadeOf
from oubli.core.slices import copied_list, cut, integers

if TYPE_CHECKING:
    from oubli.core.data.schema import Schema

_SMALLEST = 16
# Kernels keep slots in int32.
MAX_SLOTS = 2**31 - 1


class _Arrays(NamedTuple):
    """What is kept by slot; see the top of this file."""

    cells: Array
    class_codes: Ints
    y: Reals
    id_hashes: Hashes
    origins: Ints
    held: Bools


def _no_order() -> Ints:
    return np.zeros(0, np.int64)


def _slots_by_id(table: "SlotTable", order: Ints) -> dict[str, int]:
    slot_of: dict[str, int] = {}
    ids = cast("list[str]", table.id_at)  # of slots that are held
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
    slot_of: dict[str, int] = MadeOf("unindexed", _slots_by_id, _no_order)  # type: ignore[assignment]

    def __init__(self, schema: "Schema") -> None:
        self.schema = schema
        self._classification = schema.task is Task.CLASSIFICATION
        self.slot_of = {}
        self.unindexed = _no_order()  # of a copy, until its ids are indexed: the slots in the order of the ids
        self.id_at: list[str | None] = []
        self.free: list[int] = []
        self.top = 0
        self.next_id = 0
        self.set_arrays(self._empty_arrays(0))

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

    def set_arrays(self, arrays: _Arrays) -> None:
        """Take over other arrays, in one step."""
        ids = self.id_at + [None] * (len(arrays.held) - len(self.id_at))
        # One statement: no exception comes between its parts.
        self.cells, self.class_codes, self.y, self.id_hashes, self.origins, self.held, self.id_at = *arrays, ids

    def _arrays(self) -> _Arrays:
        return _Arrays(self.cells, self.class_codes, self.y, self.id_hashes, self.origins, self.held)

    def _copied_arrays(self, capacity: int) -> _Arrays:
        arrays = self._empty_arrays(capacity)
        top = self.top
        for old, new in zip(self._arrays(), arrays, strict=True):
            new[:top] = old[:top]
        return arrays

    def grow(self, capacity: int) -> None:
        """Make room for so many slots."""
        self.set_arrays(self._copied_arrays(capacity))

    @property
    def _is_indexed(self) -> bool:
        return "slot_of" in self.__dict__

    def _containers_nbytes(self) -> int:
        order = self.unindexed
        index = self.slot_of if self._is_indexed else order
        return sum(map(sys.getsizeof, (index, self.id_at, self.free)))

    def __len__(self) -> int:
        return self.top - len(self.free)

    def __contains__(self, sample_id: object) -> bool:
        return self.contains(sample_id)

    @property
    def capacity(self) -> int:
        """Number of slots, in use or free."""
        return len(self.held)

    @property
    def n_slots(self) -> int:
        """Number of slots that have ever been used; those that are free are used again first."""
        return self.top

    def slots(self) -> Ints:
        """Return the slots in use, ascending."""
        return np.flatnonzero(self.held[: self.top])

    def slots_in_order(self) -> Ints:
        """Return the slots in use, in the order in which their samples were added."""
        order = self.unindexed
        return integers(self.slot_of.values(), len(self)) if self._is_indexed else order.copy()

    def ids(self) -> list[str]:
        """Return the ids held, in the order in which they were added."""
        order = self.unindexed
        return list(self.slot_of) if self._is_indexed else list(self.names(order))

    def names(self, slots: Ints) -> Iterator[str]:
        """Yield the ids of the samples in slots."""
        for part in cut(len(slots)):
            yield from map(self.id_of, slots[part].tolist())

    def contains(self, sample_id: object) -> bool:
        """Tell whether an id is held."""
        held = self.slot_of
        # What is held is an id; everything else is looked at more closely.
        return (type(sample_id) is str and sample_id in held) or normalise_id(sample_id) in held

    def id_of(self, slot: int) -> str:
        """Return the id of the sample in a slot."""
        name = self.id_at[slot]
        if name is None:
            raise IndexError(f"slot {slot} is free")
        return name

    def find(self, ids: Iterable[object]) -> Ints:
        """Return the slots of ids, in their order.

        Raises
        ------
        UnknownIdError
            When some are not held; it lists them.
        DuplicateIdError
            When one is named twice.
        """
        held = self.slot_of
        if type(ids) is list and len(ids) == 1 and type(ids[0]) is str and (slot := held.get(ids[0])) is not None:
            return np.array((slot,), np.int64)  # mostly; what is held is an id
        names = read_ids(ids)
        try:
            slots = np.fromiter(map(held.__getitem__, names), np.int64, len(names))
        except KeyError:
            raise UnknownIdError(dict.fromkeys(name for name in names if name not in held)) from None
        ordered = np.sort(slots)
        if (ordered[1:] == ordered[:-1]).any():
            refuse_repeated(names)
        return slots

    def _slot(self, sample_id: object) -> int:
        held = self.slot_of
        slot = held.get(sample_id) if type(sample_id) is str else None
        if slot is None:
            name = normalise_id(sample_id)
            slot = held.get(name)
            if slot is None:
                raise UnknownIdError([name])
        return slot

    def _refuse_held(self, names: Sequence[str]) -> None:
        held = self.slot_of
        if not held or (len(names) > 1 and held.keys().isdisjoint(names)):
            return
        for row, name in enumerate(names):
            if name in held:
                raise DuplicateIdError(
                    "is held already: delete or replace that sample, or use another id", row=row, field="id", value=name
                )

    def next_ids(self, n: int) -> list[str]:
        """Return the ids that `commit` would generate for `n` rows now.

        A journal can record them and `prepare` again with them: the counter moves all the same.
        """
        if n == 1 and (name := str(self.next_id)) not in self.slot_of:
            return [name]
        names = list(map(str, range(self.next_id, self.next_id + n)))
        if not self.slot_of or self.slot_of.keys().isdisjoint(names):
            return names
        return list(islice((name for name in map(str, count(self.next_id)) if name not in self.slot_of), n))

    def _reserve_slots(self, n: int) -> None:
        """Make room for `n` further samples."""
        needed = self.top + max(0, n - len(self.free))
        if needed > self.capacity:
            if needed > MAX_SLOTS:
                raise CapacityError(f"more than {MAX_SLOTS} samples cannot be held at a time")
            self.grow(min(max(needed, 2 * self.capacity, _SMALLEST), MAX_SLOTS))

    def _next_slots(self, n: int) -> Ints:
        """Return the slots that the next `n` samples will take."""
        reused = min(n, len(self.free))
        slots = np.empty(n, np.int64)
        if reused:
            slots[:reused] = self.free[-1 : -reused - 1 : -1]
        slots[reused:] = np.arange(self.top, self.top + n - reused)
        return slots

    def _take_slots(self, n: int) -> None:
        """Take those out of what is free."""
        reused = min(n, len(self.free))
        if reused:
            del self.free[-reused:]
        self.top += n - reused

    def pass_numbers(self, names: Sequence[str]) -> None:
        """Move the counter past every number among given ids, so that it is never generated."""
        self.next_id = max(self.next_id, end_of_numbers(names))

    def _ids_without(self, gone: Bools) -> tuple[dict[str, int], list[str | None]]:
        """Slots by id, and ids by slot, without some slots; faster than one by one when they are many."""
        slots = np.fromiter(self.slot_of.values(), np.int64, len(self.slot_of))
        kept = slots[~gone[slots]].tolist()
        held = cast("list[str]", self.id_at)
        names = [held[slot] for slot in kept]
        ids: list[str | None] = [None] * self.capacity
        for slot, name in zip(kept, names, strict=True):
            ids[slot] = name
        return dict(zip(names, kept, strict=True)), ids

    def _copy_slots_to(self, other: "SlotTable") -> None:
        """Make another table, of the same schema, an independent copy of this one."""
        del other.slot_of
        other.unindexed = self.slots_in_order()
        other.id_at = copied_list(self.id_at)
        other.free = copied_list(self.free)
        other.top = self.top
        other.next_id = self.next_id
        other.set_arrays(self._copied_arrays(self.capacity))


# -- ids ---------------------------------------------------------------------------------------------

# Numbers from here on are not exact in JavaScript, nor needed: the counter never gets there.
COUNTER_LIMIT = 2**53
_COUNTER_DIGITS = len(str(COUNTER_LIMIT))


def read_ids(ids: Any) -> list[str]:
    """Return ids as texts.

    Raises
    ------
    InputError
        For a single text (a list of ids is meant), and with the row for what is not an id.
    """
    if type(ids) is list:
        values = ids.copy()
    elif isinstance(ids, (str, bytes, dict)) or not isinstance(ids, Iterable):
        raise InputError("ids must be a list: pass [id] for a single one", field="id")
    elif isinstance(ids, np.ndarray) and ids.ndim != 1:
        raise InputError("ids must be a 1d array or a list", field="id")
    else:
        values = ids.tolist() if isinstance(ids, np.ndarray) and ids.dtype.kind not in "mM" else list(ids)
    if _are_plain(values):
        return values
    names: list[str] = []
    for row, value in enumerate(values):
        try:
            names.append(id_text(value))
        except RefusedError as refused:
            raise InputError(refused.rule, row=row, field="id", value=value) from None
    return names


def _are_plain(values: list[Any]) -> bool:
    """Whether all are texts that need no closer look to be ids."""
    if len(values) == 1:
        (value,) = values
        return type(value) is str and 0 < len(value) <= ID_LENGTH and value.isascii()
    if set(map(type, values)) != {str}:
        return not values
    lengths = set(map(len, values))
    return min(lengths) > 0 and max(lengths) <= ID_LENGTH and "".join(values).isascii()


def refuse_repeated(names: Sequence[str]) -> None:
    """Raise DuplicateIdError for the first id that occurs a second time, if any."""
    seen: set[str] = set()
    for row, name in enumerate(names):
        if name in seen:
            raise DuplicateIdError("is repeated in this call: name every id once", row=row, field="id", value=name)
        seen.add(name)


def ids_of_index(X: Any) -> list[str] | None:
    """Return the labels of a DataFrame's index as ids, None when ids are to be generated; see the top of this file."""
    if not (hasattr(X, "columns") and hasattr(X, "index")):
        return None
    values = np.asarray(X.index)
    n = len(values)
    if values.dtype.kind in "iu" and np.array_equal(values, np.arange(n)):
        return None
    labels = list(X.index)
    names: list[str] = []
    for label in labels:
        with suppress(RefusedError):
            names.append(id_text(label))
    n_unusable = n - len(set(names))
    if n_unusable:
        warnings.warn(
            f"{n_unusable} of the {n} labels of X's index are repeated, missing, or neither text nor integers nor "
            "dates: ids are generated for all rows. Pass ids= to name the samples",
            IndexWarning,
            stacklevel=3,  # who called `fit` or `add`
        )
        return None
    return None if labels == list(range(n)) else names


def end_of_numbers(names: Sequence[str]) -> int:
    """Return one more than the largest number that the counter could reach and whose decimal text is among ids.

    0 when there is none.
    """
    together = "".join(names)
    if together.isdecimal() and together.isascii():
        longest = max(map(len, names))
        largest = max(name for name in names if len(name) == longest)
        # If it is a number without zeros in front, all others are smaller.
        if longest < _COUNTER_DIGITS and largest[0] != "0":
            return int(largest) + 1
    texts = [name for name in names if name.isdecimal() and len(name) <= _COUNTER_DIGITS]
    if not "".join(texts).isascii():
        texts = [text for text in texts if text.isascii()]
    texts = [text for text in texts if text[0] != "0" or text == "0"]
    longest = max(map(len, texts), default=0)
    if 0 < longest < _COUNTER_DIGITS:  # of as many digits the largest is the last in the order of texts
        return int(max(text for text in texts if len(text) == longest)) + 1
    numbers = list(map(int, texts))
    return max((number for number in numbers if number < COUNTER_LIMIT), default=-1) + 1


def canonical_number(name: str) -> int | None:
    """Return the number whose decimal text an id is, when the counter could reach it."""
    end = end_of_numbers([name])
    return end - 1 if end else None
