"""The bins of all features, and the samples as codes of bins.

    numeric       number of edges below the value: the candidate `x <= edges[c]` sends codes up to c left
    missing       one code behind those, len(edges) + 1
    categorical   rank of the category among the column's: missing values first, then by hash

Rows of bins leave out the commonest bin of every feature when that makes them much shorter, as it does for columns that
are mostly zero. That is only a matter of layout: no decision depends on it.

The edges of numeric columns are a function of the set of samples held that hardly ever moves. Every sample has a
level, drawn from a hash of its id: half of the samples are of level 0, a quarter of level 1, and so on. The edges of a
column are the distinct values of the samples of at least some level, the lowest with less than `max_bins` such values;
at the least level of all columns the largest is left out. So where there are many values the edges are those of a
random choice of the samples, which parts them about evenly, as quantiles do; and a sample that comes or goes moves an
edge only when it is among the chosen few, and alone with its value. The values of the level below, of which there are
about twice as many, are counted so that it is known when the level falls.

The least level grows with the number of samples, to 4 from some 2^14 on. With 0 alone, every sample that had a value of
its own would move an edge of a column of few values, and all trees would be grown again.
"""

from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Bools
from oubli.core.boosting.quantised.state import Bins
from oubli.core.boosting.rows import cut, n_blocks
from oubli.core.concurrency import threads
from oubli.core.concurrency.threads import is_long, run
from oubli.core.jit.policy import inner, kernel
from oubli.core.rng import MISSING_CATEGORY, combine, mix
from oubli.core.samples.arrays import Data

_BLOCK = 512
_CELLS_TO_ENCODE = 10  # that looking up the bin of a value is worth, in cells that are summed
_DENSE_SHARE = 0.8  # rows nearly as long as there are features leave nothing out


class Features(NamedTuple):
    """The bins of all features, as numbers; a function of the samples held."""

    edges: npt.NDArray[np.float64]  # of all numeric columns
    first_edge: npt.NDArray[np.int64]  # int64[d + 1]
    categories: npt.NDArray[np.uint64]  # hashes, of all categorical columns, by rank
    first_category: npt.NDArray[np.int64]  # int64[d + 1]
    categorical: npt.NDArray[np.bool_]  # bool[d]

    @property
    def n_codes(self) -> npt.NDArray[np.int64]:
        """Codes of each feature."""
        return np.where(self.categorical, np.diff(self.first_category), np.diff(self.first_edge) + 2)


@inner
def _rank_of(hashes, first, last, key):
    """Place of a category's hash among a column's, missing values being first if there are any; -1: not there."""
    if first < last and hashes[first] == MISSING_CATEGORY:
        if key == MISSING_CATEGORY:
            return np.int64(0)
        low = first + 1
    else:
        low = first
    high = last
    while low < high:
        middle = (low + high) >> 1
        if hashes[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low - first if low < last and hashes[low] == key else np.int64(-1)


@inner
def _count_below(edges, first, last, x):
    """Number of edges below a value; no branches."""
    base = np.uint64(first)
    length = np.uint64(last - first)
    one = np.uint64(1)
    while length > np.uint64(0):
        half = (length + one) >> one
        base += half * np.uint64(edges[base + half - one] < x)
        length -= half
    return np.int64(base) - first


@kernel
def encode(features, data, slots, codes):
    """Write the codes of some samples; returns False at a category that has no rank."""
    d = codes.shape[0]
    n = slots.shape[0]
    for start in range(0, n, _BLOCK):
        end = min(start + _BLOCK, n)
        for column in range(d):
            first, last = features.first_edge[column], features.first_edge[column + 1]
            if features.categorical[column]:
                first, last = features.first_category[column], features.first_category[column + 1]
            for i in range(start, end):
                slot = np.uint64(slots[i])
                x = np.float64(data.cells[slot, column])
                if features.categorical[column]:
                    key = MISSING_CATEGORY if np.isnan(x) else data.category_hashes[np.int64(x)]
                    code = _rank_of(features.categories, first, last, key)
                    if code < 0:
                        return False
                elif np.isnan(x):
                    code = last - first + 1
                else:
                    code = _count_below(features.edges, first, last, x)
                codes[column, slot] = code
    return True


@kernel
def longest_row(codes, common_code, slots, lengths):
    """The most bins that a sample's row names; lengths: int64[block], working space."""
    longest = np.int64(0)
    for start in range(0, slots.shape[0], lengths.shape[0]):
        end = min(start + lengths.shape[0], slots.shape[0])
        for i in range(end - start):
            lengths[i] = 0
        for column in range(codes.shape[0]):
            common = common_code[column]
            for i in range(start, end):
                lengths[i - start] += np.int64(codes[column, np.uint64(slots[i])]) != common
        for i in range(end - start):
            longest = max(longest, lengths[i])
    return longest


@kernel
def write_rows(codes, first_bin, common_bin, slots, rows, lengths):
    """Write the rows of some samples, none of which is too long; lengths: int64[block], working space."""
    d = codes.shape[0]
    width = rows.shape[1]
    for start in range(0, slots.shape[0], lengths.shape[0]):
        end = min(start + lengths.shape[0], slots.shape[0])
        for i in range(end - start):
            lengths[i] = 0
        for column in range(d):
            for i in range(start, end):
                slot = np.uint64(slots[i])
                place = np.int64(codes[column, slot]) + first_bin[column]
                if place != common_bin[column]:
                    rows[slot, lengths[i - start]] = place
                    lengths[i - start] += 1
        for i in range(start, end):
            slot = np.uint64(slots[i])
            for column in range(lengths[i - start], width):
                rows[slot, column] = first_bin[d]


@kernel
def count_codes(codes, slots, counts):
    """Count the codes of some samples in one column."""
    for i in range(slots.shape[0]):
        counts[np.int64(codes[np.uint64(slots[i])])] += 1


def find_categories(data: Data, slots: npt.NDArray[np.int64]) -> list[npt.NDArray[np.uint64]]:
    """The hashes of the categories held, by column and rank; empty for numeric columns."""
    result = []
    for column in range(data.cells.shape[1]):
        hashes = np.zeros(0, np.uint64)
        if data.categorical[column]:
            cells = data.cells[slots, column]
            is_missing = np.isnan(cells)
            present = np.zeros(len(data.category_hashes), np.bool_)
            present[cells[~is_missing].astype(np.int64)] = True
            hashes = np.unique(data.category_hashes[present])
            if is_missing.any():
                hashes = np.concatenate([np.array([MISSING_CATEGORY]), hashes])
        result.append(hashes)
    return result


def _starts(parts: list[npt.NDArray[np.generic]]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum([len(part) for part in parts], dtype=np.int64)])


def make_features(
    edges: list[npt.NDArray[np.float64]], categories: list[npt.NDArray[np.uint64]], categorical: npt.NDArray[np.bool_]
) -> Features:
    """Put the edges and categories of all columns one behind the other."""
    return Features(
        edges=np.concatenate([np.zeros(0), *edges]),
        first_edge=_starts(list(edges)),
        categories=np.concatenate([np.zeros(0, np.uint64), *categories]),
        first_category=_starts(list(categories)),
        categorical=categorical,
    )


def make_bins(features: Features, data: Data, slots: npt.NDArray[np.int64], n_threads: int = 1) -> Bins:
    """Encode all samples."""
    n_codes = features.n_codes
    d, capacity = len(n_codes), len(data.cells)
    first_bin = np.concatenate([np.zeros(1, np.int64), np.cumsum(n_codes)]).astype(np.int32)
    codes = np.zeros((d, capacity), np.min_scalar_type(int(n_codes.max(initial=1)) - 1))
    n = n_blocks(len(slots), _CELLS_TO_ENCODE * d, n_threads)
    blocks = [slots[begin:end] for begin, end in pairwise(cut(len(slots), n))]
    if not all(threads.run([partial(encode, features, data, some, codes) for some in blocks], n)):
        raise ValueError("a category has no rank")
    common_code = np.full(d, -1, np.int32)
    for column in range(d):
        counts = np.zeros(n_codes[column], np.int64)
        count_codes(codes[column], slots, counts)
        common_code[column] = counts.argmax()
    lengths = np.zeros((n, _BLOCK), np.int64)
    width = max(
        threads.run([partial(longest_row, codes, common_code, some, lengths[i]) for i, some in enumerate(blocks)], n)
    )
    if width > _DENSE_SHARE * d:
        width, common_code[:] = d, -1
    common_bin = np.where(common_code < 0, -1, first_bin[:-1] + common_code).astype(np.int32)
    rows = np.full((capacity, max(width, 1)), first_bin[-1], np.uint16 if first_bin[-1] < 2**16 else np.uint32)
    threads.run(
        [partial(write_rows, codes, first_bin, common_bin, some, rows, lengths[i]) for i, some in enumerate(blocks)],
        n,
    )
    return Bins(codes, rows, first_bin, np.where(features.categorical, -1, n_codes - 1).astype(np.int32), common_bin)


def live_bins(features: Features, live_edges: Bools, live_categories: Bools, *, others: bool) -> Bools:
    """Which bins are live, over all features; `others`: whether those above the last edge and of no value are."""
    parts = [np.zeros(0, np.bool_)]
    for column, is_categorical in enumerate(features.categorical.tolist()):
        if is_categorical:
            first, last = features.first_category[column : column + 2].tolist()
            parts.append(live_categories[first:last])
        else:
            first, last = features.first_edge[column : column + 2].tolist()
            parts += [live_edges[first:last], np.full(2, others)]
    return np.concatenate(parts)


def count_categories(
    features: Features, bins: Bins, categorical: npt.NDArray[np.bool_], slots: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Count the samples of some slots by category."""
    counts = np.zeros(len(features.categories), np.int64)
    for column in np.flatnonzero(categorical).tolist():
        first, last = features.first_category[column : column + 2].tolist()
        counts[first:last] = np.bincount(bins.codes[column, slots], minlength=last - first)
    return counts


# -- edges ------------------------------------------------------------------------------------------

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
def find_level(column, order, ends, least, max_edges, bits, values, counts):
    """Find the level of a column, and count its values.

    column          float32/64[n_slots]
    least           the least level
    bits            float64[1] and its uint64 view, to read bits by
    values, counts  float64[1024], int64[1024]: written, the values of at least that level where counts are positive
    """
    counts[:] = 0
    n_values = 0
    for level in range(_N_LEVELS - 1, least - 1, -1):
        begin, end = ends[level + 1], ends[level]
        n_values += _count_values(column, order, begin, end, bits, max_edges - n_values, values, counts)
        if n_values > max_edges:
            counts[:] = 0
            _count_values(column, order, 0, begin, bits, max_edges, values, counts)
            return level + 1
    return least


class ColumnEdges:
    """The edges of one column.

    Parameters
    ----------
    level : of the edges.
    held : number of samples of at least that level, by value.
    below : the same one level lower; empty at the least level.
    least : the least level of all columns.
    max_edges : of the column.

    Attributes
    ----------
    edges : float64[], rising.
    """

    def __init__(self, level: int, held: dict[float, int], below: dict[float, int], least: int, max_edges: int) -> None:
        self.level = level
        self.least = least
        self.max_edges = max_edges
        self.held = held
        self.below = below
        self.edges = self._list_edges()

    def _list_edges(self) -> npt.NDArray[np.float64]:
        values = np.sort(np.fromiter(self.held, np.float64, len(self.held)))
        return values if self.level > self.least else values[:-1]

    def count(self, values: npt.NDArray[Any], levels: npt.NDArray[np.uint8], sign: int) -> bool:
        """Take in (sign 1) or let go of (-1) samples of at least the level below; False when the level moves."""
        if self.level > self.least:
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
        return ColumnEdges(self.level, self.held.copy(), self.below.copy(), self.least, self.max_edges)


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
    least : the least level.
    seed : what the levels of samples are drawn from.
    """

    def __init__(self, is_numeric: npt.NDArray[np.bool_], max_edges: int, least: int, seed: int) -> None:
        self.is_numeric = is_numeric
        self.max_edges = max_edges
        self.least = least
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
                level = int(find_level(column, order, ends, self.least, self.max_edges, bits, values, counts))
                used = counts > 0
                held = dict(zip(values[used].tolist(), counts[used].tolist(), strict=True))
                below = dict(_counted(column[order[: ends[level - 1]]] + 0.0)) if level > self.least else {}
                self.columns[index] = ColumnEdges(level, held, below, self.least, self.max_edges)

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
        the columns whose edges have changed, and whether the edges are known: if not, all have to be collected again.
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
        other = EdgeTable(self.is_numeric, self.max_edges, self.least, int(self.seed))
        other.columns = [None if column is None else column.copy() for column in self.columns]
        return other
