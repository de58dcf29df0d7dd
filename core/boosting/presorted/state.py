"""The presorted columns, and the table that the split search reads of them.

    rows      0 1 2 ... n-1                   the samples held, in no order that matters
    slots     int64[n]                        slot of each row
    order     int32[d, n]                     rows by rising value; missing values last
                                              categorical: missing values first, then by hash

Samples that join are sorted among themselves and merged into each column (sort-merge, section 4.2); samples that
leave are taken out of it in one pass (remove-merge, which the paper does not have). No column is ever sorted again.
Rows of one value are in no order that matters: every reader of the columns treats them as one group.

The table is prepared once an update. A column with few distinct values is *narrow*: a node's derivatives are added up
by the rank of the value. That is the same exact search as a pass over the sorted column, at a fraction of its price.
Any other column is *wide*: its sorted list of rows is divided among the nodes on the way down and never sorted again.
(One pass over the undivided list with running sums for each node costs half as much again and more, measured for 1,000
to 30,000 samples.)

    codes     uint16[n, narrow]      rank of each row's value in each narrow column; missing values have the last one
                                     (of a categorical column the first one, as in the presorted column)
    offsets   uint32[narrow + 1]     where a narrow column's bins begin
    values    float64[bins]          value of each bin; NaN: missing
    hashes    uint64[bins]           of a categorical column: hash of each bin's category
    lists     int32[wide, n]         row << 1 | (the value differs from the one before)
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.rows import cut, n_blocks
from oubli.core.concurrency import threads
from oubli.core.jit.policy import inner, kernel
from oubli.core.rng import MISSING_CATEGORY
from oubli.core.samples.arrays import Data

# A column is narrow up to so many values in any case, and up to a share of the samples that falls with the depth: every
# node is searched bin by bin.
_FEW_BINS = 256
_BINS_OF_ALL_NODES = 2  # by sample
MOST_BINS = 4096

_GONE = -1
_CELLS_TO_SORT = 50  # what sorting a row into a column is worth, in cells that are summed
_CELLS_TO_READ = 4  # and reading it in its order


def by_columns(work: Callable[[int, int], object], n_columns: int, n_rows: int, n_threads: int) -> None:
    """Have columns first to last - 1 worked on in each thread: work(first, last)."""
    n = max(1, min(n_columns, n_blocks(n_rows, _CELLS_TO_READ * n_columns, n_threads)))
    threads.run([partial(work, first, last) for first, last in pairwise(cut(n_columns, n))], n)


# -- the columns ------------------------------------------------------------------------------------


class Orders(NamedTuple):
    """Presorted columns; every update makes new ones."""

    slots: npt.NDArray[np.int64]  # int64[n]
    order: npt.NDArray[np.int32]  # int32[d, n]

    @property
    def n_samples(self) -> int:
        """Rows."""
        return len(self.slots)


@inner
def compare_rows(cells, category_hashes, column, is_categorical, slot, other):
    """Order of two samples in a column: -1, 0 or 1. Two categories with one hash are one, as to a prediction."""
    x, y = cells[slot, column], cells[other, column]
    x_is_missing, y_is_missing = x != x, y != y
    if x_is_missing or y_is_missing:
        if x_is_missing and y_is_missing:
            return 0
        return -1 if x_is_missing == is_categorical else 1
    if is_categorical:
        h, i = category_hashes[np.int64(x)], category_hashes[np.int64(y)]
        return np.int64(h > i) - np.int64(h < i)
    return np.int64(x > y) - np.int64(x < y)


@inner
def _is_before(cells, category_hashes, column, is_categorical, slot, other):
    """Whether a sample comes before another one in a column."""
    if is_categorical:
        return compare_rows(cells, category_hashes, column, True, slot, other) < 0
    x, y = cells[np.uint64(slot), np.uint64(column)], cells[np.uint64(other), np.uint64(column)]
    return x < y or (y != y and x == x)


@kernel
def _merge(cells, category_hashes, categorical, slots, old, new, merged, first, last):
    """Sort-merge of columns first to last - 1 (section 4.2); int32[d, n_old], int32[d, n_new] to int32[d, n].

    Of equal values the old ones come first.
    """
    for column in range(first, last):
        is_categorical, order, target = categorical[column], old[column], merged[column]
        i, at = 0, 0
        for j in range(new.shape[1]):
            slot = slots[new[column, j]]
            while i < order.shape[0]:
                other = slots[np.uint64(order[np.uint64(i)])]
                if _is_before(cells, category_hashes, column, is_categorical, slot, other):
                    break
                target[np.uint64(at)] = order[np.uint64(i)]
                i += 1
                at += 1
            target[at] = new[column, j]
            at += 1
        while i < order.shape[0]:
            target[at] = order[i]
            i += 1
            at += 1


@kernel
def _remove(old, row_now, kept, first, last):
    """Remove-merge of columns first to last - 1: rows that stay get new numbers, the others are left out."""
    for column in range(first, last):
        order, target, at = old[column], kept[column], 0
        for i in range(order.shape[0]):
            row = row_now[np.uint64(order[np.uint64(i)])]
            if row != _GONE:
                target[np.uint64(at)] = row
                at += 1


def _sorted_rows(data: Data, slots: npt.NDArray[np.int64], first_row: int, n_threads: int) -> npt.NDArray[np.int32]:
    """Sort samples by each column; they are the rows from `first_row` on. int32[d, len(slots)]."""
    n_columns = data.cells.shape[1]
    order = np.empty((n_columns, len(slots)), np.int32)

    def sort(column: int) -> None:
        values = data.cells[slots, column]
        if data.categorical[column]:
            is_present = ~np.isnan(values)
            hashes = np.zeros(len(slots), np.uint64)
            hashes[is_present] = data.category_hashes[values[is_present].astype(np.int64)]
            order[column] = np.lexsort((hashes, is_present))
        else:
            order[column] = np.argsort(values)

    n = n_blocks(n_columns, _CELLS_TO_SORT * len(slots), n_threads)
    threads.run([partial(sort, column) for column in range(n_columns)], n)
    order += np.int32(first_row)
    return order


def sort_columns(data: Data, slots: npt.NDArray[np.int64], n_threads: int = 1) -> Orders:
    """Sort samples by every column."""
    slots = np.array(slots, np.int64)
    return Orders(slots, _sorted_rows(data, slots, 0, n_threads))


def merge_samples(orders: Orders, data: Data, slots: npt.NDArray[np.int64], n_threads: int = 1) -> Orders:
    """Sort-merge: presorted columns with the samples of `slots` as well."""
    new = _sorted_rows(data, slots, orders.n_samples, n_threads)
    both = np.concatenate([orders.slots, np.asarray(slots, np.int64)])
    merged = np.empty((len(new), len(both)), np.int32)
    merge = partial(_merge, data.cells, data.category_hashes, data.categorical, both, orders.order, new, merged)
    by_columns(merge, len(merged), len(both), n_threads)
    return Orders(both, merged)


def remove_samples(orders: Orders, slots: npt.NDArray[np.int64], n_threads: int = 1) -> Orders:
    """Remove-merge: presorted columns without the samples of `slots`, which are in them."""
    stays = ~is_among(orders.slots, slots)
    row_now = np.where(stays, np.cumsum(stays) - 1, _GONE).astype(np.int32)
    kept = np.empty((len(orders.order), int(stays.sum())), np.int32)
    by_columns(partial(_remove, orders.order, row_now, kept), len(kept), orders.n_samples, n_threads)
    return Orders(orders.slots[stays], kept)


def is_among(slots: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether each slot is one of some others."""
    marks = np.zeros(1 + max(slots.max(initial=0), others.max(initial=0)), np.bool_)
    marks[others] = True
    return marks[slots]


def check_orders(orders: Orders, data: Data, slots: npt.NDArray[np.int64]) -> list[str]:
    """Name the columns that are not the samples of `slots` in order."""
    if not np.array_equal(np.sort(orders.slots), np.sort(slots)):
        return ["the presorted columns are of other samples"]
    wrong = []
    rows = np.arange(orders.n_samples)
    for column, order in enumerate(orders.order):
        if not np.array_equal(np.sort(order), rows):
            wrong.append(f"column {column}: not every sample is in the presorted column once")
        elif not _is_sorted(
            data.cells, data.category_hashes, column, bool(data.categorical[column]), orders.slots[order]
        ):
            wrong.append(f"column {column}: the presorted column is out of order")
    return wrong


@kernel
def _is_sorted(cells, category_hashes, column, is_categorical, slots):
    for i in range(1, slots.shape[0]):
        if compare_rows(cells, category_hashes, column, is_categorical, slots[i - 1], slots[i]) > 0:
            return False
    return True


# -- the table --------------------------------------------------------------------------------------


class Table(NamedTuple):
    """The columns of the samples held; kernels only read it."""

    cells: Any  # float32/64[S, d]: of all samples, by slot
    category_hashes: npt.NDArray[np.uint64]
    slots: npt.NDArray[np.int64]  # int64[n]: slot of each row
    codes: npt.NDArray[np.uint16]  # uint16[n, narrow]
    offsets: npt.NDArray[np.uint32]  # uint32[narrow + 1]
    values: npt.NDArray[np.float64]  # float64[bins]
    hashes: npt.NDArray[np.uint64]  # uint64[bins]
    lists: npt.NDArray[np.int32]  # int32[wide, n]
    narrow: npt.NDArray[np.int32]  # int32[narrow]: the columns, rising
    wide: npt.NDArray[np.int32]  # int32[wide]: the columns, rising
    has_missing: npt.NDArray[np.bool_]  # bool[d]
    categorical: npt.NDArray[np.bool_]  # bool[d]

    @property
    def n_bins(self) -> int:
        """Bins of all narrow columns."""
        return int(self.offsets[-1])


@inner
def _differs(cells, category_hashes, column, is_categorical, slot, other):
    if is_categorical:
        return compare_rows(cells, category_hashes, column, True, slot, other) != 0
    x, y = cells[slot, column], cells[other, column]
    return x != y and (x == x or y == y)


@kernel
def _flag_columns(cells, category_hashes, categorical, slots, order, lists, counts, first, last):
    """Write the lists of columns first to last - 1 to int32[d, n], and their numbers of distinct values to int64[d]."""
    for column in range(first, last):
        is_categorical = categorical[column]
        count = 0
        for i in range(order.shape[1]):
            row = np.int64(order[column, i])
            is_new = i == 0 or _differs(
                cells, category_hashes, column, is_categorical, slots[row], slots[np.int64(order[column, i - 1])]
            )
            lists[column, i] = row << 1 | np.int64(is_new)
            count += np.int64(is_new)
        counts[column] = count


@kernel
def _code_columns(
    cells, category_hashes, categorical, slots, lists, narrow, offsets, codes, values, hashes, first, last
):
    """Write the codes of narrow columns number first to last - 1, and the values of their bins."""
    for j in range(first, last):
        column = np.int64(narrow[j])
        code = np.int64(-1)
        for i in range(lists.shape[1]):
            entry = np.int64(lists[column, i])
            if entry & 1:
                code += 1
                x = cells[slots[entry >> 1], column]
                place = np.int64(offsets[j]) + code
                values[place] = x
                if categorical[column]:
                    hashes[place] = MISSING_CATEGORY if x != x else category_hashes[np.int64(x)]
            codes[entry >> 1, j] = code


def make_table(orders: Orders, data: Data, max_depth: int, n_threads: int = 1) -> Table:
    """Read presorted columns, of at least one sample, for trees of a depth."""
    n_columns, n = orders.order.shape
    lists = np.empty((n_columns, n), np.int32)
    counts = np.zeros(n_columns, np.int64)
    # Missing values come last, of a categorical column first.
    ends = np.where(data.categorical, orders.order[:, 0], orders.order[:, -1])
    has_missing = np.isnan(data.cells[orders.slots[ends], np.arange(n_columns)])
    read = data.cells, data.category_hashes, data.categorical, orders.slots
    by_columns(partial(_flag_columns, *read, orders.order, lists, counts), n_columns, n, n_threads)
    is_narrow = counts <= min(MOST_BINS, max(_FEW_BINS, (_BINS_OF_ALL_NODES * n) >> max_depth))
    narrow = np.flatnonzero(is_narrow).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(counts[narrow])]).astype(np.uint32)
    codes = np.empty((n, len(narrow)), np.uint16)
    values, hashes = np.zeros(int(offsets[-1])), np.zeros(int(offsets[-1]), np.uint64)
    by_columns(partial(_code_columns, *read, lists, narrow, offsets, codes, values, hashes), len(narrow), n, n_threads)
    wide = np.flatnonzero(~is_narrow).astype(np.int32)
    return Table(
        data.cells, data.category_hashes, orders.slots, codes, offsets, values, hashes, lists[wide], narrow, wide,
        has_missing, data.categorical,
    )  # fmt: skip
