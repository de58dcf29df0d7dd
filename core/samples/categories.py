"""The category values that are held.

A cell of a categorical column holds a code, as a float; NaN when the value is missing. One code
space serves all columns: a code stands for one (column, value).

    code      0            1       2            3
    value    "red"        None   "square"      "red"     None: the code is free
    column    0            -1      1            2
    hash     h("red")      0     h("square")   h("red")
    count     5            0       2            1        cells that hold the code

Codes depend on history and are reused, so the algorithms decide by `hashes`, never by codes. A value
leaves with the last cell that holds it: text, hash and column are overwritten at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Arrays, Hashes, Ints, Reals
from oubli.core.concurrency.slices import copied_dict, copied_list, cut, lists
from oubli.core.data.values import FLOAT32_EXACT, MISSING, Distinct, LookUp
from oubli.core.errors import CapacityError, FileError, ensure
from oubli.core.rng import MISSING_CATEGORY, hash_text

__all__ = ["MISSING_CATEGORY", "CategoryTable", "hash_text"]

_SMALLEST = 8


class Arriving(NamedTuple):
    """What cells of some samples will do to the table when these are held."""

    new: list[tuple[int, int, str, int]]  # code, column, value, hash
    cells: dict[int, Reals]  # by column
    counts: Ints  # int64[capacity] cells more of each code


class Leaving(NamedTuple):
    """What cells of some samples will do to the table when these are gone."""

    counts: Ints  # int64[capacity] cells less of each code
    emptied: list[int]  # codes that will have none


class CategoryTable:
    """Codes, hashes and counts of the category values held.

    Parameters
    ----------
    columns : sequence of int
        Positions of the categorical columns.

    Attributes
    ----------
    codes : the code of each value held, by column; to be read only
    """

    def __init__(self, columns: Sequence[int]) -> None:
        capacity = _SMALLEST if columns else 0
        self.hashes = np.zeros(capacity, np.uint64)
        self.counts = np.zeros(capacity, np.int64)
        self.columns = np.full(capacity, -1, np.int32)
        self._values: list[str | None] = [None] * capacity
        self.codes: dict[int, dict[str, int]] = {column: {} for column in columns}
        self._free = list(range(capacity - 1, -1, -1))

    def __len__(self) -> int:
        return len(self._values) - len(self._free)

    @property
    def capacity(self) -> int:
        """Number of codes, in use or free."""
        return len(self._values)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.hashes.nbytes + self.counts.nbytes + self.columns.nbytes

    def value(self, code: int) -> str:
        """Return the value of a code in use."""
        value = self._values[code]
        if value is None:
            raise IndexError(f"code {code} is free")
        return value

    def values_of(self, cells: Array) -> list[str | None]:
        """Return the values of the cells of a categorical column, None where one is missing.

        Raises
        ------
        IndexError
            When a code is free.
        """
        known = ~np.isnan(cells)
        values, table = np.full(len(cells), None, object), np.full(self.capacity, None, object)
        codes = cells[known].astype(np.int64)
        for code in np.unique(codes).tolist():
            table[code] = self.value(code)
        values[known] = table[codes]
        texts: list[str | None] = values.tolist()
        return texts

    def new_values(self, texts: Mapping[int, Sequence[str | None]]) -> int:
        """Count the (column, value) pairs in `texts` that are not held."""
        new = 0
        for column, values in texts.items():
            held = self.codes[column]
            if len(values) == 1:
                new += values[0] is not None and values[0] not in held
            else:
                distinct = set(values)
                distinct.discard(None)
                new += len(distinct.difference(held))
        return new

    def check_room_for(self, texts: Mapping[int, Sequence[str | None]]) -> None:
        """`check_room` for the values that are not held, which are counted only where there may be too many."""
        if len(self) + sum(map(len, texts.values())) > FLOAT32_EXACT:
            self.check_room(self.new_values(texts))

    def check_room(self, new: int) -> None:
        """Raise CapacityError when so many further values cannot be held."""
        if len(self) + new > FLOAT32_EXACT:
            raise CapacityError(
                f"more than {FLOAT32_EXACT} category values cannot be held at a time: declare columns of unique "
                "values numeric, or drop them"
            )

    def has_room(self, most: int) -> bool:
        """Tell whether up to `most` further values can be held without asking for more memory."""
        return most <= len(self._free)

    def reserve(self, new: int) -> None:
        """Make room for `new` further values, so that `acquire` cannot fail."""
        missing = new - len(self._free)
        if missing <= 0:
            return
        self.check_room(new)
        old = self.capacity
        capacity = min(max(2 * old, old + missing), FLOAT32_EXACT)
        hashes = np.zeros(capacity, np.uint64)
        counts = np.zeros(capacity, np.int64)
        columns = np.full(capacity, -1, np.int32)
        hashes[:old], counts[:old], columns[:old] = self.hashes, self.counts, self.columns
        free = [*range(capacity - 1, old - 1, -1), *self._free]
        values = self._values + [None] * (capacity - old)
        # One statement: no exception comes between its parts.
        self.hashes, self.counts, self.columns, self._free, self._values = hashes, counts, columns, free, values

    def plan(self, texts: Mapping[int, Sequence[str | None]]) -> Arriving:
        """Say what counting one more cell for each value of some columns will do; `reserve` first. Changes nothing."""
        free, n_left = self._free, len(self._free)
        new: list[tuple[int, int, str, int]] = []
        cells: dict[int, Reals] = {}
        counts = np.zeros(self.capacity, np.int64)

        def code_of(column: int, value: str | None) -> float:
            nonlocal n_left
            if value is None:
                return MISSING
            code = self.codes[column].get(value)
            if code is None:
                n_left -= 1
                code = free[n_left]
                new.append((code, column, value, hash_text(value)))
            return code

        for column, values in texts.items():
            codes = Distinct(partial(code_of, column))
            found = np.fromiter(map(codes.__getitem__, values), np.float64, len(values))
            cells[column] = found
            counts += np.bincount(found[~np.isnan(found)].astype(np.int64), minlength=self.capacity)
        return Arriving(new, cells, counts)

    def take_in(self, arriving: Arriving) -> None:
        """Do what `plan` said, about the table as it is; asks NumPy for no memory."""
        for code, column, value, hashed in arriving.new:
            self.codes[column][value] = code
            self._values[code] = value
            self.columns[code] = column
            self.hashes[code] = hashed
        if arriving.new:
            del self._free[-len(arriving.new) :]
        self.counts += arriving.counts

    def acquire_row(self, texts: Mapping[int, Sequence[str | None]]) -> list[float]:
        """Count one more cell for the one value of each column and return the cells; `reserve` first."""
        cells = []
        counts = self.counts
        for column, (value,) in texts.items():
            if value is None:
                cells.append(MISSING)
                continue
            code = self.codes[column].get(value)
            if code is None:
                code = self._take(column, value)
            counts[code] += 1
            cells.append(code)
        return cells

    def _take(self, column: int, value: str) -> int:
        """Give a free code to a value that is not held."""
        code = self._free.pop()
        self.codes[column][value] = code
        self._values[code] = value
        self.columns[code] = column
        self.hashes[code] = hash_text(value)
        return code

    def plan_release(self, cells: Array) -> Leaving:
        """Say what counting one cell less for each cell will do. Changes nothing."""
        codes = cells[~np.isnan(cells)].astype(np.int64)
        counts = np.bincount(codes, minlength=self.capacity)
        emptied = np.flatnonzero((counts > 0) & (counts == self.counts)).tolist()
        return Leaving(counts, emptied)

    def let_go(self, leaving: Leaving) -> None:
        """Do what `plan_release` said, about the table as it is; asks NumPy for no memory."""
        self.counts -= leaving.counts
        for code in leaving.emptied:
            self._wipe(code)

    def release_row(self, cells: Iterable[float]) -> None:
        """Count one cell less for each of a few cells; values without cells are overwritten and freed."""
        counts = self.counts
        for cell in cells:
            if cell == cell:
                code = int(cell)
                counts[code] -= 1
                if counts[code] == 0:
                    self._wipe(code)

    def _wipe(self, code: int) -> None:
        del self.codes[int(self.columns[code])][self.value(code)]
        self._values[code] = None
        self.hashes[code] = 0
        self.columns[code] = -1
        self._free.append(code)

    def look_ups(self, unseen: dict[str, int]) -> dict[int, LookUp]:
        """By column, what gives the codes of the categories of queries.

        Values that are not held get codes beyond the table, which are noted in `unseen`.
        """
        capacity = self.capacity

        def look_up_in(held: Mapping[str, int]) -> LookUp:
            def look_up(value: str) -> int:
                code = held.get(value)
                # A hash does not know its column, so one temporary code serves them all.
                return unseen.setdefault(value, capacity + len(unseen)) if code is None else code

            return look_up

        return {column: look_up_in(held) for column, held in self.codes.items()}

    def query_hashes(self, unseen: Mapping[str, int]) -> Hashes:
        """Hashes by code: the table's own, or a longer copy with those of the temporary codes in `unseen`."""
        if not unseen:
            return self.hashes
        capacity = self.capacity
        if capacity + len(unseen) > FLOAT32_EXACT:
            raise CapacityError("too many unknown categories in one call: ask for fewer rows at a time")
        extended = np.empty(capacity + len(unseen), np.uint64)
        extended[:capacity] = self.hashes
        extended[capacity:] = list(map(hash_text, unseen))
        return extended

    def copy(self) -> "CategoryTable":
        """Return an independent copy."""
        other = CategoryTable(())
        other.hashes = self.hashes.copy()
        other.counts = self.counts.copy()
        other.columns = self.columns.copy()
        other.__dict__.update(
            _values=copied_list(self._values),
            codes={column: copied_dict(codes) for column, codes in self.codes.items()},
            _free=copied_list(self._free),
        )
        return other

    def state(self) -> Arrays:
        """Return the held values as arrays."""
        held = np.flatnonzero(self.columns >= 0)
        texts, offsets = pack_texts(map(self.value, held.tolist()))
        return {
            "categories.codes": held.astype(np.int64),
            "categories.columns": self.columns[held],
            "categories.values": texts,
            "categories.offsets": offsets,
        }

    @classmethod
    def from_state(cls, columns: Sequence[int], arrays: Mapping[str, Array], cells: Array) -> "CategoryTable":
        """Rebuild the table from `state` and the cells of all samples held.

        Raises
        ------
        FileError
            When the arrays do not fit each other.
        """
        table = cls(columns)
        table.fill(columns, arrays, cells)
        return table

    def fill(self, columns: Sequence[int], arrays: Mapping[str, Array], cells: Array) -> None:
        """Put what `state` gave into an empty table; see `from_state`."""
        damaged = FileError("the table of categories does not fit the samples: restore another file")
        codes = arrays["categories.codes"]
        owners = arrays["categories.columns"]
        values = unpack_texts(arrays["categories.values"], arrays["categories.offsets"], "category values")
        if not len(codes) == len(owners) == len(values) == len(set(codes.tolist())):
            raise damaged
        if len(codes) and (codes.min() < 0 or codes.max() >= FLOAT32_EXACT or not set(owners.tolist()) <= set(columns)):
            raise damaged
        capacity = max(self.capacity, int(codes.max()) + 1 if len(codes) else 0)
        self.hashes = np.zeros(capacity, np.uint64)
        self.columns = np.full(capacity, -1, np.int32)
        self._values = [None] * capacity
        for code, column, value in zip(codes.tolist(), owners.tolist(), values, strict=True):
            self._values[code] = value
            self.codes[column][value] = code
            self.columns[code] = column
            self.hashes[code] = hash_text(value)
        self._free = [code for code in range(capacity - 1, -1, -1) if self._values[code] is None]
        self.counts = np.zeros(capacity, np.int64)
        for column in columns:
            present = cells[:, column][~np.isnan(cells[:, column])]
            if (present >= capacity).any():
                raise damaged
            used = present.astype(np.int64)
            if (used != present).any() or (used < 0).any() or (used >= capacity).any():
                raise damaged
            if (self.columns[used] != column).any():
                raise damaged
            self.counts += np.bincount(used, minlength=capacity)
        if sum(map(len, self.codes.values())) != len(codes) or (self.counts[codes] == 0).any():
            raise damaged

    def check_invariants(self, cells: Array) -> None:
        """Check the table against the cells of all samples held; AssertionError names what is broken."""
        counts = np.zeros(self.capacity, np.int64)
        for column in self.codes:
            present = cells[:, column][~np.isnan(cells[:, column])].astype(np.int64)
            ensure((self.columns[present] == column).all(), f"column {column} holds a code of another column")
            counts += np.bincount(present, minlength=self.capacity)
        ensure(np.array_equal(counts, self.counts), "category counts differ from the cells")
        held = set(np.flatnonzero(counts).tolist())
        for code, value in enumerate(self._values):
            if code in held:
                ensure(value is not None, f"category {code} has cells but no value")
                ensure(int(self.hashes[code]) == hash_text(self.value(code)), f"hash of category {code} is wrong")
            else:
                free = value is None and self.hashes[code] == 0 and self.columns[code] == -1
                ensure(bool(free), f"category {code} has no cells but was not overwritten")
        ensure(sorted(self._free) == sorted(set(range(self.capacity)) - held), "free category codes are wrong")
        expected = {(int(self.columns[code]), self.value(code)): code for code in held}
        actual = {(column, value): code for column, codes in self.codes.items() for value, code in codes.items()}
        ensure(actual == expected, "category codes are wrong")


def write_codes(cells: Array, texts: Mapping[int, Sequence[str | None]], look_ups: Mapping[int, LookUp]) -> None:
    """Write the codes of `texts` into their columns of `cells`."""
    for column, values in texts.items():
        look_up = look_ups[column]
        if len(values) == 1:
            cells[0, column] = MISSING if values[0] is None else look_up(values[0])
        else:
            cells[:, column] = list(map(Distinct(partial(_code_by, look_up)).__getitem__, values))


def _code_by(look_up: LookUp, value: str | None) -> float:
    return MISSING if value is None else look_up(value)


def pack_texts(texts: Iterable[str]) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Return texts as one array of UTF-8 bytes and the offsets of their ends, starting with 0."""
    data = [np.zeros(0, np.uint8)]
    lengths = [np.zeros(1, np.int64)]
    for part in lists(texts):
        encoded = [text.encode("utf-8") for text in part]
        data.append(np.frombuffer(b"".join(encoded), np.uint8))
        lengths.append(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    return np.concatenate(data), np.cumsum(np.concatenate(lengths))


def unpack_texts(data: npt.NDArray[np.uint8], offsets: Ints, what: str) -> list[str]:
    """Undo `pack_texts`.

    Raises
    ------
    FileError
        When the offsets do not fit the bytes, or the bytes are not UTF-8.
    """
    raw = data.tobytes()
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(raw) or (offsets[1:] < offsets[:-1]).any():
        raise FileError(f"the {what} are damaged: restore another file")
    texts: list[str] = []
    try:
        for part in cut(len(offsets) - 1):
            ends = offsets[part.start : part.stop + 1].tolist()
            texts += [raw[start:end].decode("utf-8") for start, end in pairwise(ends)]
        return texts
    except UnicodeDecodeError:
        raise FileError(f"the {what} are not UTF-8: restore another file") from None
