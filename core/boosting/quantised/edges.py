"""Edges of numeric columns: a function of the set of samples held that hardly ever moves.

Every sample has a level, drawn from a hash of its id: half of the samples are of level 0, a quarter of level 1, and so
on. The edges of a column are the distinct values of the samples of at least some level, the lowest with less than
`max_bins` such values; at level 0, when every value is an edge, the largest is left out. So where there are many
values the edges are those of a random choice of the samples, which parts them about evenly, as quantiles do; and a
sample that comes or goes moves an edge only when it is among the chosen few, and alone with its value. The values of
the level below, of which there are about twice as many, are counted so that it is known when the level falls.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from oubli.core.jit.policy import inner, kernel
from oubli.core.rng import combine, mix
from oubli.core.threads import is_long, run

EDGES = np.uint64(5)
_N_LEVELS = 64
_TABLE = 1024  # places of a hash table; the values are at most a fourth of that
_FINDING = 5e-9  # seconds that counting a value takes, roughly
_HIGHEST = np.uint64(1 << 63)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)


@kernel
def draw_levels(id_hashes, slots, seed, levels):
    """Write the level of each sample: the zeros that its hash begins with."""
    key = combine(mix(seed), EDGES)
    for i in range(slots.shape[0]):
        hashed = combine(key, id_hashes[slots[i]])
        level = 0
        while level < _N_LEVELS - 1 and hashed & _HIGHEST == _ZERO:
            hashed <<= _ONE
            level += 1
        levels[i] = level


@kernel
def sort_by_level(slots, levels, order, ends, places):
    """Order samples by falling level, and as they were within one.

    order         int64[n]: written, slots
    ends, places  int64[65], zero at the beginning: written, `ends[level]` samples are of at least that level
    """
    for i in range(levels.shape[0]):
        ends[levels[i]] += 1
    for level in range(_N_LEVELS - 1, -1, -1):
        ends[level] += ends[level + 1]
        places[level] = ends[level + 1]
    for i in range(levels.shape[0]):
        order[places[levels[i]]] = slots[i]
        places[levels[i]] += 1


@inner
def _insert(values, counts, value, as_bits):
    """Count a value, whose bits are `as_bits`; returns whether it is new."""
    mask = np.uint64(_TABLE - 1)
    place = mix(as_bits) & mask
    while counts[place] != 0:
        if values[place] == value:
            counts[place] += 1
            return False
        place = (place + _ONE) & mask
    values[place], counts[place] = value, 1
    return True


@inner
def _count_values(column, order, begin, end, bits, room, values, counts):
    """Count the values of some samples, NaN left out; returns how many are new, or `room` + 1 when there are more."""
    as_float, as_bits = bits
    n_new = 0
    for i in range(begin, end):
        x = np.float64(column[order[i]])
        if np.isnan(x):
            continue
        as_float[0] = x + 0.0  # of two zeros one
        if _insert(values, counts, as_float[0], as_bits[0]):
            n_new += 1
            if n_new > room:
                break
    return n_new


@kernel
def find_level(column, order, ends, max_edges, bits, values, counts):
    """Find the level of a column, and count its values.

    column          float32/64[n_slots]
    bits            float64[1] and its uint64 view, to read bits by
    values, counts  float64[1024], int64[1024]: written, the values of at least that level where counts are positive
    """
    counts[:] = 0
    n_values = 0
    for level in range(_N_LEVELS - 1, -1, -1):
        begin, end = ends[level + 1], ends[level]
        n_values += _count_values(column, order, begin, end, bits, max_edges - n_values, values, counts)
        if n_values > max_edges:
            counts[:] = 0
            _count_values(column, order, 0, begin, bits, max_edges, values, counts)
            return level + 1
    return 0


class ColumnEdges:
    """The edges of one column.

    Parameters
    ----------
    level : of the edges.
    held : number of samples of at least that level, by value.
    below : the same one level lower; empty at level 0.
    max_edges : of the column.

    Attributes
    ----------
    edges : float64[], rising.
    """

    def __init__(self, level: int, held: dict[float, int], below: dict[float, int], max_edges: int) -> None:
        self.level = level
        self.max_edges = max_edges
        self.held = held
        self.below = below
        self.edges = self._list_edges()

    def _list_edges(self) -> npt.NDArray[np.float64]:
        values = np.sort(np.fromiter(self.held, np.float64, len(self.held)))
        return values if self.level else values[:-1]

    def count(self, values: npt.NDArray[Any], levels: npt.NDArray[np.uint8], sign: int) -> bool:
        """Take in (sign 1) or let go of (-1) samples of at least the level below; False when the level moves."""
        if self.level:
            _move(self.below, values, sign)
            if len(self.below) <= self.max_edges:
                return False
        if _move(self.held, values[levels >= self.level], sign):
            if len(self.held) > self.max_edges:
                return False
            self.edges = self._list_edges()
        return True

    def is_like(self, other: "ColumnEdges") -> bool:
        """Whether level, edges and all counts are the same."""
        ours, theirs = (self.level, self.held, self.below), (other.level, other.held, other.below)
        return ours == theirs and np.array_equal(self.edges, other.edges)

    def copy(self) -> "ColumnEdges":
        """An independent copy."""
        return ColumnEdges(self.level, self.held.copy(), self.below.copy(), self.max_edges)


def _move(counts: dict[float, int], values: npt.NDArray[Any], sign: int) -> bool:
    """Count values, or count them no more; returns whether any has come or gone."""
    n_before, n_gone = len(counts), 0
    for value, number in _counted(values):
        left = counts.get(value, 0) + sign * number
        if left:
            counts[value] = left
        else:
            del counts[value]
            n_gone += 1
    return n_gone > 0 or len(counts) > n_before


def _counted(values: npt.NDArray[Any]) -> Iterable[tuple[float, int]]:
    """Values and how often each is there; NaN left out."""
    present = values[~np.isnan(values)]
    if len(present) == 1:
        return ((float(present[0]), 1),)
    distinct, numbers = np.unique(present, return_counts=True)
    return zip(distinct.tolist(), numbers.tolist(), strict=True)


class EdgeTable:
    """The edges of all numeric columns, kept up to date.

    Parameters
    ----------
    is_numeric : bool[d]
    max_edges : of one column.
    seed : what the levels of samples are drawn from.
    """

    def __init__(self, is_numeric: npt.NDArray[np.bool_], max_edges: int, seed: int) -> None:
        self.is_numeric = is_numeric
        self.max_edges = max_edges
        self.seed = np.uint64(seed)
        self.columns: list[ColumnEdges | None] = [None] * len(is_numeric)

    @property
    def edges(self) -> list[npt.NDArray[np.float64]]:
        """The edges of every column; none of categorical ones."""
        return [np.zeros(0) if column is None else column.edges for column in self.columns]

    def collect(
        self,
        cells: npt.NDArray[Any],
        id_hashes: npt.NDArray[np.uint64],
        slots: npt.NDArray[np.int64],
        n_threads: int = 1,
    ) -> None:
        """Find the edges of some samples, forgetting all others."""
        order = np.zeros(len(slots), np.int64)
        ends, places = np.zeros(_N_LEVELS + 1, np.int64), np.zeros(_N_LEVELS + 1, np.int64)
        sort_by_level(slots, self._levels(id_hashes, slots), order, ends, places)

        def find(indices: list[int]) -> None:
            as_float = np.zeros(1)
            bits = (as_float, as_float.view(np.uint64))
            values, counts = np.zeros(_TABLE), np.zeros(_TABLE, np.int64)
            for index in indices:
                column = cells[:, index]
                level = int(find_level(column, order, ends, self.max_edges, bits, values, counts))
                used = counts > 0
                held = dict(zip(values[used].tolist(), counts[used].tolist(), strict=True))
                below = dict(_counted(column[order[: ends[level - 1]]] + 0.0)) if level else {}
                self.columns[index] = ColumnEdges(level, held, below, self.max_edges)

        numeric = np.flatnonzero(self.is_numeric).tolist()
        n = n_threads if is_long(_FINDING * len(numeric) * len(slots)) else 1
        run([partial(find, numeric[first::n]) for first in range(n)], n)

    def _levels(self, id_hashes: npt.NDArray[np.uint64], slots: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        levels = np.zeros(len(slots), np.uint8)
        draw_levels(id_hashes, slots, self.seed, levels)
        return levels

    def count(
        self, cells: npt.NDArray[Any], id_hashes: npt.NDArray[np.uint64], slots: npt.NDArray[np.int64], sign: int
    ) -> tuple[list[int], bool]:
        """Take samples in (sign 1) or let go of them (-1).

        Returns
        -------
        the columns whose edges have changed, and whether the edges are known: if not, all have to be collected anew.
        """
        levels = self._levels(id_hashes, slots)
        highest = int(levels.max(initial=0))
        changed: list[int] = []
        for index, column in enumerate(self.columns):
            if column is None or highest < column.level - 1:
                continue
            before = column.edges
            near = levels + 1 >= column.level
            if not column.count(cells[slots[near], index] + 0.0, levels[near], sign):
                return changed, False
            if column.edges is not before and not np.array_equal(before, column.edges):
                changed.append(index)
        return changed, True

    def copy(self) -> "EdgeTable":
        """An independent copy."""
        other = EdgeTable(self.is_numeric, self.max_edges, int(self.seed))
        other.columns = [None if column is None else column.copy() for column in self.columns]
        return other
