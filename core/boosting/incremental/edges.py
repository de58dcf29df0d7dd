"""Edges of numeric columns: a function of the set of values held that hardly ever moves.

Every value has a hash of (column, value). The edges of a column are the distinct values held whose hash is below
2^(64 - level), the level being the smallest with less than `max_bins` such values; at level 0, when every value is an
edge, the largest is left out. So a sample that comes or goes moves an edge only when it holds a value among the
chosen few, and alone; and the values of level - 1, of which there are about twice as many, are counted so that this
is known at once.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from core._jit import inner, kernel
from core.rng import combine, mix

EDGES = np.uint64(5)
_TABLE = 4096  # places of a hash table; half of them are used at most
_COLUMNS_AT_ONCE = 64
_BLOCK = 512  # rows that are looked at column by column, while they are in cache
_ZERO = np.uint64(0)
_ONE = np.uint64(1)


@inner
def column_key(column):
    """What the hashes of a column's values are drawn from; the same under every seed."""
    return combine(mix(EDGES), np.uint64(column))


@kernel
def hash_values(values, column, hashes):
    """Hash float64 values, given as their bits (uint64), of a column."""
    key = column_key(column)
    for i in range(values.shape[0]):
        hashes[i] = combine(key, values[i])


@inner
def _insert(values, hashes, counts, column, bits, key, count):
    """Count a value in the table of a column; returns whether it is new there."""
    mask = np.uint64(_TABLE - 1)
    place = key & mask
    while counts[column, place] != 0:
        if values[column, place] == bits:
            counts[column, place] += count
            return False
        place = (place + _ONE) & mask
    values[column, place], hashes[column, place], counts[column, place] = bits, key, count
    return True


@inner
def _raise_level(values, hashes, counts, column, level, spare):
    """Throw out of a table what is no value of a level; returns how many are left."""
    n_kept = 0
    for place in range(_TABLE):
        if counts[column, place] != 0:
            if hashes[column, place] >> np.uint64(64 - level) == _ZERO:
                spare[0, n_kept], spare[1, n_kept] = values[column, place], hashes[column, place]
                spare[2, n_kept] = np.uint64(counts[column, place])
                n_kept += 1
            counts[column, place] = 0
    for i in range(n_kept):
        _insert(values, hashes, counts, column, spare[0, i], spare[1, i], np.int64(spare[2, i]))
    return n_kept


@kernel
def collect(cells, first_column, bits, is_numeric, slots, values, hashes, counts, sizes, levels, spare):
    """Count the values of the numeric columns by the tables' levels, which rise as the tables fill.

    cells, bits     float32/64[n_slots, d]; float64[1] and its uint64 view, to read bits by
    first_column    number of the first of the columns
    values, hashes  uint64[d, table], counts int64[d, table], zero at the beginning
    sizes, levels   int64[d], zero at the beginning
    spare           uint64[3, table]
    """
    as_float, as_bits = bits
    n = slots.shape[0]
    for start in range(0, n, _BLOCK):
        end = min(start + _BLOCK, n)
        for column in range(cells.shape[1]):
            if not is_numeric[column]:
                continue
            key = column_key(first_column + column)
            for i in range(start, end):
                x = np.float64(cells[np.uint64(slots[i]), column])
                if np.isnan(x):
                    continue
                as_float[0] = x
                hashed = combine(key, as_bits[0])
                level = levels[column]
                if level > 0 and hashed >> np.uint64(64 - level) != _ZERO:
                    continue
                if _insert(values, hashes, counts, column, as_bits[0], hashed, 1):
                    sizes[column] += 1
                    while sizes[column] > _TABLE // 2:
                        levels[column] += 1
                        sizes[column] = _raise_level(values, hashes, counts, column, levels[column], spare)


@kernel
def select_known(cells, bits, is_numeric, slots, known, columns, values):
    """List the values of some samples that are of the levels known; returns how many.

    columns int32[], values float64[]: written
    """
    as_float, as_bits = bits
    n_found = 0
    for column in range(cells.shape[1]):
        if not is_numeric[column]:
            continue
        key = column_key(column)
        for i in range(slots.shape[0]):
            x = np.float64(cells[np.uint64(slots[i]), column])
            if np.isnan(x):
                continue
            as_float[0] = x
            if known[column] == 0 or combine(key, as_bits[0]) >> np.uint64(64 - known[column]) == _ZERO:
                columns[n_found], values[n_found] = column, x
                n_found += 1
    return n_found


class ColumnEdges:
    """The values of one column that are edges, or nearly.

    Attributes
    ----------
    edges : float64[], rising.
    level : of the edges.
    known : the level of the values that are counted; below `level` unless that is 0.
    counts : samples held, by value.
    """

    def __init__(self, column: int, max_edges: int, known: int, counts: dict[float, int]) -> None:
        self.column = column
        self.max_edges = max_edges
        self.known = known
        self.counts = counts
        self.level, self.edges = self._choose()
        self._forget()

    def _choose(self) -> tuple[int, npt.NDArray[np.float64]]:
        values = np.sort(np.fromiter(self.counts, np.float64, len(self.counts)))
        if self.known == 0 and len(values) <= self.max_edges:
            return 0, values[:-1]
        hashes = value_hashes(values, self.column)
        level = max(self.known, 1)
        while True:
            chosen = values[hashes >> np.uint64(64 - level) == 0]
            if len(chosen) <= self.max_edges:
                return level, chosen
            level += 1

    def _forget(self) -> None:
        """Keep the values of the level below that of the edges, no others."""
        lowest = max(self.level - 1, 0)
        if lowest > self.known:
            values = np.fromiter(self.counts, np.float64, len(self.counts))
            kept = values[value_hashes(values, self.column) >> np.uint64(64 - lowest) == 0]
            self.counts = {value: self.counts[value] for value in kept.tolist()}
            self.known = lowest

    def renew(self) -> bool:
        """Choose the edges anew after values have come or gone; False when more values have to be known for that."""
        self.level, self.edges = self._choose()
        if self.known > 0 and self.level == self.known:
            return False
        self._forget()
        return True

    def is_like(self, other: "ColumnEdges") -> bool:
        """Whether the edges are the same, and the counts of the values of the levels that both know."""
        if self.level != other.level or not np.array_equal(self.edges, other.edges):
            return False
        known = max(self.known, other.known)
        return self._counts_of(known) == other._counts_of(known)

    def _counts_of(self, level: int) -> dict[float, int]:
        if level == 0:
            return self.counts
        values = np.fromiter(self.counts, np.float64, len(self.counts))
        chosen = values[value_hashes(values, self.column) >> np.uint64(64 - level) == 0]
        return {value: self.counts[value] for value in chosen.tolist()}

    def copy(self) -> "ColumnEdges":
        """An independent copy."""
        other = object.__new__(ColumnEdges)
        other.__dict__.update(self.__dict__)
        other.counts = self.counts.copy()
        return other


def value_hashes(values: npt.NDArray[np.float64], column: int) -> npt.NDArray[np.uint64]:
    """Hash values of a column."""
    hashes = np.zeros(len(values), np.uint64)
    hash_values(values.view(np.uint64), column, hashes)
    return hashes


class EdgeTable:
    """The edges of all numeric columns, kept up to date.

    Parameters
    ----------
    is_numeric : bool[d]
    max_edges : of one column.
    """

    def __init__(self, is_numeric: npt.NDArray[np.bool_], max_edges: int) -> None:
        self.is_numeric = is_numeric
        self.max_edges = max_edges
        self.columns: list[ColumnEdges | None] = [None] * len(is_numeric)
        self._known = np.zeros(len(is_numeric), np.int64)
        self._float = np.zeros(1)

    @property
    def edges(self) -> list[npt.NDArray[np.float64]]:
        """The edges of every column; none of categorical ones."""
        return [np.zeros(0) if column is None else column.edges for column in self.columns]

    def collect(self, cells: npt.NDArray[Any], slots: npt.NDArray[np.int64]) -> None:
        """Find the edges of some samples, forgetting all others."""
        for first in range(0, len(self.columns), _COLUMNS_AT_ONCE):
            self._collect_some(cells[:, first : first + _COLUMNS_AT_ONCE], slots, first)
        self._known[:] = [0 if column is None else column.known for column in self.columns]

    def _collect_some(self, cells: npt.NDArray[Any], slots: npt.NDArray[np.int64], first: int) -> None:
        d = cells.shape[1]
        is_numeric = self.is_numeric[first : first + d]
        values, hashes = np.zeros((d, _TABLE), np.uint64), np.zeros((d, _TABLE), np.uint64)
        counts, spare = np.zeros((d, _TABLE), np.int64), np.zeros((3, _TABLE), np.uint64)
        sizes, levels = np.zeros(d, np.int64), np.zeros(d, np.int64)
        collect(cells, first, self._bits(), is_numeric, slots, values, hashes, counts, sizes, levels, spare)
        for column in range(d):
            if is_numeric[column]:
                used = counts[column] > 0
                found = values[column, used].view(np.float64).tolist()
                held = dict(zip(found, counts[column, used].tolist(), strict=True))
                edges = ColumnEdges(first + column, self.max_edges, int(levels[column]), held)
                self.columns[first + column] = edges

    def _bits(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.uint64]]:
        return self._float, self._float.view(np.uint64)

    def count(self, cells: npt.NDArray[Any], slots: npt.NDArray[np.int64], sign: int) -> tuple[list[int], bool]:
        """Take samples in (sign 1) or let go of them (-1).

        Returns
        -------
        the columns whose edges have changed, and whether the edges are known: if not, all have to be collected anew.
        """
        room = len(slots) * len(self.columns)
        columns, values = np.zeros(room, np.int32), np.zeros(room)
        n_found = select_known(cells, self._bits(), self.is_numeric, slots, self._known, columns, values)
        moved = set()
        for index, value in zip(columns[:n_found].tolist(), values[:n_found].tolist(), strict=True):
            counts = self._column(index).counts
            number = counts.get(value, 0) + sign
            if number:
                counts[value] = number
            else:
                del counts[value]
            if number == (sign > 0):
                moved.add(index)
        changed: list[int] = []
        for index in sorted(moved):
            column = self._column(index)
            before = column.edges
            if not column.renew():
                return changed, False
            self._known[index] = column.known
            if not np.array_equal(before, column.edges):
                changed.append(index)
        return changed, True

    def _column(self, index: int) -> ColumnEdges:
        column = self.columns[index]
        if column is None:
            raise IndexError(f"column {index} is categorical")
        return column

    def copy(self) -> "EdgeTable":
        """An independent copy."""
        other = EdgeTable(self.is_numeric, self.max_edges)
        other.columns = [None if column is None else column.copy() for column in self.columns]
        other._known[:] = self._known
        return other
