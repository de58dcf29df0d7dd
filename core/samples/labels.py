"""The classes that are held.

    codes      0     1     2     3        capacity 4
    values    "no"  None  "yes" "maybe"   None: the code is free
    counts     14    0     3     1        samples of the class
    order     [3, 0, 2]                   codes of the held classes in canonical order

Codes depend on history and are reused; nothing that reaches a prediction or a digest may depend on
them except through `order`. The canonical order is by (name of the value's type, value). A class
leaves with its last sample: its value is overwritten at once.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Arrays, Ints
from oubli.core.bounds import parse_json
from oubli.core.data.values import Label, LabelType, canonical_label
from oubli.core.errors import CapacityError, FileError, ensure

_MAX_CLASSES = 2**31 - 1
# What labels of these types are held as; a label of this type is itself.
_PLAIN_TYPES = {LabelType.STRING: str, LabelType.INTEGER: int, LabelType.BOOLEAN: bool}


class Moving(NamedTuple):
    """How the table changes when some samples are added or removed."""

    changed: list[tuple[int, Label]]  # codes with their values that come, or go
    codes: Ints  # int64[n], of each sample
    counts: Ints  # int64[capacity] samples of each code among them
    order: Ints  # as it will be


class ClassTable:
    """The classes held, with their codes and numbers of samples.

    Parameters
    ----------
    label_type : LabelType
        Type of the labels; values are expected to be canonical.
    """

    def __init__(self, label_type: LabelType) -> None:
        self.label_type = label_type
        self.counts = np.zeros(2, np.int64)
        self._values: list[Label | None] = [None, None]
        self._codes: dict[Any, int] = {}
        self._free = [1, 0]
        self._order = np.zeros(0, np.int64)
        self._array: Array | None = None
        self.ranking: tuple[npt.NDArray[np.int32], int] | None = None  # see `rank`; None: out of date
        self._plain_type = _PLAIN_TYPES.get(label_type)
        # 1, 1.0 and True are different classes, but equal as keys.
        self._typed = label_type is LabelType.SCALAR

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def capacity(self) -> int:
        """Number of codes, in use or free; at least 2."""
        return len(self._values)

    @property
    def n_free(self) -> int:
        """Number of codes that are free: as many classes can come without asking for more memory."""
        return len(self._free)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.counts.nbytes + self._order.nbytes + (0 if self._array is None else self._array.nbytes)

    def _key(self, value: Label) -> Any:
        return (type(value).__name__, value) if self._typed else value

    def code(self, value: Label) -> int | None:
        """Return the code of a class, None when it is not held."""
        return self._codes.get(self._key(value))

    def plain_code(self, label: Any) -> int | None:
        """Return the code of a label that is seen at once to be the value of a class that is held; else None."""
        return self._codes.get(label) if type(label) is self._plain_type else None

    def value(self, code: int) -> Label:
        """Return the value of a held class."""
        value = self._values[code]
        if value is None:
            raise IndexError(f"code {code} is free")
        return value

    def values(self, codes: Iterable[int] | Array) -> list[Label]:
        """Return the values of held classes."""
        if isinstance(codes, np.ndarray):
            known = {code: self.value(code) for code in np.unique(codes).tolist()}
            return list(map(known.__getitem__, codes.tolist()))
        return list(map(self.value, codes))

    def order(self) -> Ints:
        """Return the codes of the held classes in canonical order; not to be written to."""
        return self._order

    def rank(self) -> tuple[npt.NDArray[np.int32], int]:
        """Return the place of each code in the order, -1 for free ones, int32[capacity]; and the number of classes."""
        ranks = np.full(self.capacity, -1, np.int32)
        ranks[self._order] = np.arange(len(self._order), dtype=np.int32)
        ranking = self.ranking = ranks, len(self._order)  # only now: another thread may take it at once
        return ranking

    def classes_array(self) -> Array:
        """Return the held classes in canonical order, in the array that np.unique would make of them.

        It cannot be written to; there is one until the classes change.
        """
        array = self._array
        if array is None:
            array = self.as_array(self.values(self._order))
            array.flags.writeable = False
            self._array = array  # only now: another thread may take it at once
        return array

    def as_array(self, values: Sequence[Label]) -> Array:
        """Return labels as an array of the label type's dtype."""
        if self.label_type is LabelType.INTEGER:
            return np.array(values, dtype=np.int64)
        if self.label_type is LabelType.NUMBER:
            return np.array(values, dtype=np.float64)
        if self.label_type is LabelType.BOOLEAN:
            return np.array(values, dtype=np.bool_)
        if self.label_type is LabelType.STRING and not any(str(value).endswith("\0") for value in values):
            return np.array(values, dtype=np.str_)
        # NumPy's text arrays would drop trailing zero characters.
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array

    def has_room_for(self, value: Label) -> bool:
        """Tell whether a sample of a class can be held without asking for more memory."""
        return bool(self._free) or self.code(value) is not None

    def new_rows(self, values: Sequence[Label]) -> list[int]:
        """Return the position of the first label of each class that is not held."""
        keys = list(map(self._key, values)) if self._typed else values
        new = set(keys).difference(self._codes)
        first = []
        for row, key in enumerate(keys if new else ()):
            if key in new:
                first.append(row)
                new.remove(key)
                if not new:
                    break
        return first

    def reserve(self, values: Iterable[Label]) -> None:
        """Make room for the classes of these values, so that `acquire` cannot fail."""
        keys = map(self._key, values) if self._typed else values
        new = sum(key not in self._codes for key in dict.fromkeys(keys))
        missing = new - len(self._free)
        if missing > 0:
            self._grow(max(2 * self.capacity, self.capacity + missing))

    def _grow(self, capacity: int) -> None:
        if capacity > _MAX_CLASSES:
            raise CapacityError(f"more than {_MAX_CLASSES} classes cannot be held at a time")
        counts = np.zeros(capacity, np.int64)
        counts[: self.capacity] = self.counts
        free = [*range(capacity - 1, self.capacity - 1, -1), *self._free]
        values = self._values + [None] * (capacity - self.capacity)
        # One statement: no exception comes between its parts.
        self.counts, self._free, self._values, self.ranking = counts, free, values, None

    def plan(self, values: Sequence[Label]) -> Moving:
        """Say what counting one more sample for each value will do; `reserve` first. Changes nothing."""
        keys: Sequence[Any] = list(map(self._key, values)) if self._typed else values
        new = [key for key in dict.fromkeys(keys) if key not in self._codes]
        known, order, changed = self._codes, self._order, []
        if new:
            coming = dict(zip(new, reversed(self._free[-len(new) :]), strict=True))
            known = {**known, **coming}
            changed = [(code, key[1] if self._typed else key) for key, code in coming.items()]
            order = self._sorted([*changed, *((code, self.value(code)) for code in self._codes.values())])
        codes = np.fromiter(map(known.__getitem__, keys), np.int64, len(keys))
        return Moving(changed, codes, np.bincount(codes, minlength=self.capacity), order)

    def take_in(self, moving: Moving) -> None:
        """Do what `plan` said, about the table as it is; asks NumPy for no memory."""
        for code, value in moving.changed:
            self._values[code] = value
            self._codes[self._key(value)] = code
        if moving.changed:
            del self._free[-len(moving.changed) :]
            self._order, self._array, self.ranking = moving.order, None, None
        self.counts += moving.counts

    def acquire(self, values: Sequence[Label]) -> Ints:
        """Count one more sample for each value and return their codes; `reserve` first."""
        moving = self.plan(values)
        self.take_in(moving)
        return moving.codes

    def acquire_one(self, value: Label) -> int:
        """Count one more sample for a value and return its code; `reserve` first."""
        code = self.code(value)
        if code is None:
            return int(self.acquire([value])[0])
        self.counts[code] += 1
        return code

    @staticmethod
    def _sorted(held: Iterable[tuple[int, Label]]) -> Ints:
        """Codes in the canonical order of their values."""
        ranked = sorted(held, key=lambda entry: (type(entry[1]).__name__, entry[1]))
        return np.array([code for code, _ in ranked], np.int64)

    def plan_release(self, codes: Ints) -> Moving:
        """Say what counting one sample less for each code will do. Changes nothing."""
        counts = np.bincount(codes, minlength=self.capacity)
        emptied = np.flatnonzero((counts > 0) & (counts == self.counts)).tolist()
        order = self._order if not emptied else self._order[~np.isin(self._order, emptied)]
        return Moving([(code, self.value(code)) for code in emptied], codes, counts, order)

    def let_go(self, moving: Moving) -> None:
        """Do what `plan_release` said, about the table as it is; asks NumPy for no memory."""
        self.counts -= moving.counts
        for code, value in moving.changed:
            del self._codes[self._key(value)]
            self._values[code] = None
            self._free.append(code)
        if moving.changed:
            # A dictionary keeps the hash of a number, which is the number, where an entry was.
            self._codes = {key: code for key, code in self._codes.items()}  # noqa: C416 - a copy would copy that too
            self._order, self._array, self.ranking = moving.order, None, None

    def release(self, codes: Ints) -> None:
        """Count one sample less for each code; classes without samples are overwritten and freed."""
        self.let_go(self.plan_release(codes))

    def copy(self) -> "ClassTable":
        """Return an independent copy."""
        other = ClassTable(self.label_type)
        for name in ("counts", "_values", "_codes", "_free", "_order"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def state(self) -> Arrays:
        """Return the held classes as arrays."""
        held = sorted(self._codes.values())
        text = json.dumps([self._values[code] for code in held], ensure_ascii=True, allow_nan=False)
        return {
            "class_table.codes": np.array(held, np.int64),
            "class_table.values": np.frombuffer(text.encode("ascii"), np.uint8).copy(),
        }

    @classmethod
    def from_state(cls, label_type: LabelType, arrays: Mapping[str, Array], codes: Ints) -> "ClassTable":
        """Rebuild the table from `state` and the class codes of all samples held.

        Raises
        ------
        FileError
            When the arrays do not fit each other.
        """
        table = cls(label_type)
        table.fill(arrays, codes)
        return table

    def fill(self, arrays: Mapping[str, Array], codes: Ints) -> None:
        """Put what `state` gave into an empty table; see `from_state`."""
        held = arrays["class_table.codes"].tolist()
        values = parse_json(arrays["class_table.values"].tobytes(), "the table of classes")
        sound = isinstance(values, list) and len(values) == len(held) == len(set(held))
        sound = sound and all(0 <= code < _MAX_CLASSES for code in held)
        if sound:
            sound = all(type(v) is not list and _same(canonical_label(v, self.label_type), v) for v in values)
        # Counted, not sorted, for there are many samples; the largest code first, for a count is as long.
        sound = sound and (not len(codes) or (codes.min() >= 0 and codes.max() <= max(held, default=-1)))
        if not sound or np.flatnonzero(np.bincount(codes)).tolist() != sorted(held):
            raise FileError("the table of classes does not fit the samples: restore another file")
        capacity = max([2, *(code + 1 for code in held)])
        self._values = [None] * capacity
        for code, value in zip(held, values, strict=True):
            self._values[code] = value
            self._codes[self._key(value)] = code
        if len(self._codes) != len(held):
            raise FileError("the table of classes holds a class twice: restore another file")
        self.counts = np.bincount(codes, minlength=capacity).astype(np.int64)
        self._free = [code for code in range(capacity - 1, -1, -1) if self._values[code] is None]
        self._order = self._sorted((code, self.value(code)) for code in self._codes.values())
        self._array = self.ranking = None

    def check_invariants(self, codes: Ints) -> None:
        """Check the table against the class codes of all samples held; AssertionError names what is broken."""
        counts = np.bincount(codes, minlength=self.capacity)
        ensure(np.array_equal(counts, self.counts), "class counts differ from the samples")
        held = {code for code, value in enumerate(self._values) if value is not None}
        ensure(held == set(np.flatnonzero(counts).tolist()), "a class without samples has a value, or the reverse")
        ensure(sorted(self._free) == sorted(set(range(self.capacity)) - held), "free class codes are wrong")
        ensure(self._codes == {self._key(self.value(code)): code for code in held}, "class codes are wrong")
        order = self._sorted((code, self.value(code)) for code in held)
        ensure(np.array_equal(self._order, order), "the order of classes is wrong")


def _same(label: Label | None, value: Any) -> bool:
    return label is not None and type(label) is type(value) and repr(label) == repr(value)  # 0.0 is not -0.0
