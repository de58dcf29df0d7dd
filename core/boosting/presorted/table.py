"""What the split search reads of the presorted columns, made of them once an update.

A column with few distinct values is *narrow*: a node's derivatives are added up by the rank of the value. That is the
same exact search as a pass over the sorted column, at a fraction of its price. Any other column is *wide*: its sorted
list of rows is divided among the nodes on the way down and never sorted again. (One pass over the undivided list with
running sums for each node costs half as much again and more, measured for 1,000 to 30,000 samples.)

    codes     uint16[n, narrow]      rank of each row's value in each narrow column; missing values have the last one
                                     (of a categorical column the first one, as in the presorted column)
    offsets   uint32[narrow + 1]     where a narrow column's bins begin
    values    float64[bins]          value of each bin; NaN: missing
    hashes    uint64[bins]           of a categorical column: hash of each bin's category
    lists     int32[wide, n]         row << 1 | (the value differs from the one before)
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.presorted.orders import Orders, by_columns, compare_rows
from oubli.core.jit.policy import inner, kernel
from oubli.core.rng import MISSING_CATEGORY
from oubli.core.samples.arrays import Data

# A column is narrow up to so many values in any case, and up to a share of the samples that falls with the depth: every
# node is searched bin by bin.
_FEW_BINS = 256
_BINS_OF_ALL_NODES = 2  # by sample
MOST_BINS = 4096


class Table(NamedTuple):
    """The columns of the samples held; kernels only read it."""

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


@kernel
def _find_missing(cells, slots, order, categorical, has_missing):
    """Write whether a column has missing values: they come last, of a categorical column first."""
    for column in range(order.shape[0]):
        row = order[column, 0] if categorical[column] else order[column, order.shape[1] - 1]
        x = cells[slots[row], column]
        has_missing[column] = x != x


def make_table(orders: Orders, data: Data, max_depth: int, n_threads: int = 1) -> Table:
    """Read presorted columns, of at least one sample, for trees of a depth."""
    n_columns, n = orders.order.shape
    lists = np.empty((n_columns, n), np.int32)
    counts = np.zeros(n_columns, np.int64)
    has_missing = np.zeros(n_columns, np.bool_)
    read = data.cells, data.category_hashes, data.categorical, orders.slots
    by_columns(partial(_flag_columns, *read, orders.order, lists, counts), n_columns, n, n_threads)
    _find_missing(data.cells, orders.slots, orders.order, data.categorical, has_missing)
    is_narrow = counts <= min(MOST_BINS, max(_FEW_BINS, (_BINS_OF_ALL_NODES * n) >> max_depth))
    narrow = np.flatnonzero(is_narrow).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(counts[narrow])]).astype(np.uint32)
    codes = np.empty((n, len(narrow)), np.uint16)
    values, hashes = np.zeros(int(offsets[-1])), np.zeros(int(offsets[-1]), np.uint64)
    by_columns(partial(_code_columns, *read, lists, narrow, offsets, codes, values, hashes), len(narrow), n, n_threads)
    wide = np.flatnonzero(~is_narrow).astype(np.int32)
    return Table(orders.slots, codes, offsets, values, hashes, lists[wide], narrow, wide, has_missing, data.categorical)
