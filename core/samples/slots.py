"""Slots: where a sample lives while it is held, and the ids that lead to it.

    slot         0       1       2       3       4 ...  capacity (doubles)
    held       True    False    True    True   False
    ids         "7"     None     "0"    "bob"   None
    id_hashes   h("7")   0      h("0")  h("bob")  0      what randomness is drawn from
    cells     [3, 1]   [0, 0]  [5, nan] [2, 0]  [0, 0]   float32/64[capacity, d]; categories: codes
    origins      0       0        2       0       0      a number that the caller keeps with a sample
    codes        1       0        0       1       0      class codes; or y of a regression
    weights     256      0      128     256       0      in units of 1/256; there once a weight other than 1 has come

A sample keeps its slot. A slot that is freed is overwritten at once and reused before a new one is
taken; slots from `top` on have never been used.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import count, islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from oubli.core.array_types import Array, Bools, Hashes, Ints, Reals
from oubli.core.bounds import LARGEST_COUNTER
from oubli.core.concurrency.slices import MadeOf, copied_list, cut, integers
from oubli.core.data.values import ID_LENGTH, RefusedError, Task, id_text, normalise_id
from oubli.core.errors import CapacityError, DuplicateIdError, InputError, UnknownIdError
from oubli.core.jit.targets import Units

if TYPE_CHECKING:
    from oubli.core.data.schema import Schema

_SMALLEST = 16
# Kernels keep slots in int32.
MAX_SLOTS = 2**31 - 1


class IdSource(IntEnum):
    """Where the ids of a model come from: of its first samples, but from an index as soon as any do."""

    GENERATED = 0
    GIVEN = 1
    INDEX = 2


class _Arrays(NamedTuple):
    """What is kept by slot; see the top of this file."""

    cells: Array
    class_codes: Ints
    y: Reals
    id_hashes: Hashes
    origins: Ints
    held: Bools
    weights: Units  # own weights in units
    units: Units  # what samples count for: their weights, times those of their classes
    targets: Ints  # of a classification: see `weights.py`


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

    # Slots by id, in the order of the ids; of a copy or of the first samples, made when an id is first looked up. A
    # dictionary of many entries can be neither copied nor freed without keeping other threads waiting; and many copies
    # only go to a file. That of the first samples takes as long as growing some of the trees, and needs no kernel.
    slot_of: dict[str, int] = MadeOf("unindexed", _slots_by_id, _no_order)  # type: ignore[assignment]

    # As `_Arrays` has them.
    cells: Array
    class_codes: Ints
    y: Reals
    id_hashes: Hashes
    origins: Ints
    held: Bools
    weights: Units
    units: Units
    targets: Ints

    def __init__(self, schema: "Schema") -> None:
        self.schema = schema
        self._classification = schema.task is Task.CLASSIFICATION
        self.slot_of = {}
        self.unindexed = _no_order()  # until the ids are indexed: the slots in the order of the ids
        self.id_at: list[str | None] = []
        self.free: list[int] = []
        self.top = 0
        self.next_id = 0
        self.id_source = IdSource.GENERATED
        self.set_arrays(self._empty_arrays(0, has_weights=False))

    @property
    def has_weights(self) -> bool:
        """Whether there are weights, because one other than 1 has come."""
        return len(self.weights) > 0

    def _empty_arrays(self, capacity: int, *, has_weights: bool) -> _Arrays:
        labelled, targets = (capacity, 0) if self._classification else (0, capacity)
        return _Arrays(
            cells=np.zeros((capacity, self.schema.n_features), self.schema.cell_dtype),
            class_codes=np.zeros(labelled, np.int64),
            y=np.zeros(targets, np.float64),
            id_hashes=np.zeros(capacity, np.uint64),
            origins=np.zeros(capacity, np.int64),
            held=np.zeros(capacity, np.bool_),
            weights=np.zeros(capacity if has_weights else 0, np.int32),
            units=np.zeros(capacity if has_weights else 0, np.int32),
            targets=np.zeros(labelled if has_weights else 0, np.int64),
        )

    def set_arrays(self, arrays: _Arrays) -> None:
        """Take over other arrays, in one step."""
        ids = self.id_at + [None] * (len(arrays.held) - len(self.id_at))
        # One call: no exception comes between its parts.
        self.__dict__.update(arrays._asdict(), id_at=ids)

    def _arrays(self) -> _Arrays:
        return _Arrays(*(getattr(self, name) for name in _Arrays._fields))

    def _copied_arrays(self, capacity: int, *, has_weights: bool | None = None) -> _Arrays:
        arrays = self._empty_arrays(capacity, has_weights=self.has_weights if has_weights is None else has_weights)
        top = self.top
        pairs: Iterator[tuple[Array, Array]] = zip(self._arrays(), arrays, strict=True)
        for old, new in pairs:
            new[: min(top, len(old))] = old[:top]
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

        Raises
        ------
        CapacityError
            When the counter has reached its end, which takes a file that says so.
        """
        require_counter(self.next_id + n + len(self))
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

    def take_id_source(self, source: IdSource) -> None:
        """Note where the ids come from."""
        self.id_source = source

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
        other.id_source = self.id_source
        other.set_arrays(self._copied_arrays(self.capacity))


# -- ids ---------------------------------------------------------------------------------------------

# Numbers from here on are not exact in JavaScript, nor needed: the counter never gets there.
COUNTER_LIMIT = 2**53
_COUNTER_DIGITS = len(str(COUNTER_LIMIT))


def values_of(values: Any, what: str) -> list[Any]:
    """Return a sequence of a caller, of ids or what else they say of rows, as a list of Python's objects.

    Raises
    ------
    InputError
        For a single value (a list is meant), for bytes, which are integers one by one, and for a table.
    """
    if type(values) is list:
        return values.copy()
    field = what.removesuffix("s")
    if hasattr(type(values), "columns") or getattr(values, "ndim", 1) != 1:
        raise InputError(f"{what} must be a 1d array or a list, not a table: pass a column, or X.index", field=field)
    if isinstance(values, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(values, Iterable):
        raise InputError(f"{what} must be a list: pass [{field}] for a single one", field=field)
    if hasattr(values, "to_pylist"):
        return list(values.to_pylist())
    return values.tolist() if isinstance(values, np.ndarray) and values.dtype.kind not in "mM" else list(values)


def read_ids(ids: Any) -> list[str]:
    """Return ids as texts.

    Raises
    ------
    InputError
        For a single text (a list of ids is meant), and with the row for what is not an id.
    """
    values = values_of(ids, "ids")
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


def require_counter(end: int) -> None:
    """Refuse to generate ids up to a number that model files do not hold.

    Raises
    ------
    CapacityError
        Only after a file has said that the counter is there.
    """
    if end > LARGEST_COUNTER:
        raise CapacityError("no more ids can be generated: give each sample an id")


def with_generated(ids: Sequence[str | None], first: int) -> tuple[list[str], int]:
    """Return ids with a generated one for each None, and the number above all that this may give out.

    Generated ids are numbers from `first` on, above all numbers among the others.
    """
    given = [name for name in ids if name is not None]
    number = max(first, end_of_numbers(given))
    if len(given) == len(ids):
        return given, number
    end = number + len(ids) - len(given)
    require_counter(end)
    numbers = map(str, range(number, end))
    return [next(numbers) if name is None else name for name in ids], end
