"""The presorted columns: every column's samples in the order of its values (section 4.1).

    rows      0 1 2 ... n-1                   the samples held, in no order that matters
    slots     int64[n]                        slot of each row
    order     int32[d, n]                     rows by rising value; missing values last
                                              categorical: missing values first, then by hash

Samples that join are sorted among themselves and merged into each column (sort-merge, section 4.2); samples that
leave are taken out of it in one pass (remove-merge, which the paper does not have). No column is ever sorted again.
Rows of one value are in no order that matters: whoever reads the columns treats them as one group.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core import threads
from oubli.core.boosting.rows import cut, n_blocks
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.samples.arrays import Data

_GONE = -1
_CELLS_TO_SORT = 50  # what sorting a row into a column is worth, in cells that are summed
_CELLS_TO_READ = 4  # and reading it in its order


def by_columns(work: Callable[[int, int], object], n_columns: int, n_rows: int, n_threads: int) -> None:
    """Have columns first to last - 1 worked on in each thread: work(first, last)."""
    n = max(1, min(n_columns, n_blocks(n_rows, _CELLS_TO_READ * n_columns, n_threads)))
    threads.run([partial(work, first, last) for first, last in pairwise(cut(n_columns, n))], n)


class Orders(NamedTuple):
    """Presorted columns; every update makes new ones."""

    slots: npt.NDArray[np.int64]  # int64[n]
    order: npt.NDArray[np.int32]  # int32[d, n]

    @property
    def n_samples(self) -> int:
        """Rows."""
        return len(self.slots)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.slots.nbytes + self.order.nbytes


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
def _merge_column(cells, category_hashes, column, is_categorical, slots, old, new, merged):
    """Merge two sorted lists of rows; of equal values the old ones come first."""
    i, at = 0, 0
    for j in range(new.shape[0]):
        slot = slots[new[j]]
        while i < old.shape[0]:
            if compare_rows(cells, category_hashes, column, is_categorical, slot, slots[old[i]]) < 0:
                break
            merged[at] = old[i]
            i += 1
            at += 1
        merged[at] = new[j]
        at += 1
    while i < old.shape[0]:
        merged[at] = old[i]
        i += 1
        at += 1


@inner
def _merge_numbers(cells, column, slots, old, new, merged):
    """The same for a numeric column, by its values alone; infinity stands for missing, which comes last either way."""
    i, at = 0, 0
    for j in range(new.shape[0]):
        x = cells[np.uint64(slots[new[j]]), np.uint64(column)]
        while i < old.shape[0]:
            y = cells[np.uint64(slots[np.uint64(old[np.uint64(i)])]), np.uint64(column)]
            if x < y or (y != y and x == x):
                break
            merged[np.uint64(at)] = old[np.uint64(i)]
            i += 1
            at += 1
        merged[at] = new[j]
        at += 1
    while i < old.shape[0]:
        merged[at] = old[i]
        i += 1
        at += 1


@kernel
def _merge(cells, category_hashes, categorical, slots, old, new, merged, first, last):
    """Sort-merge of columns first to last - 1 (section 4.2); int32[d, n_old], int32[d, n_new] to int32[d, n]."""
    for column in range(first, last):
        if categorical[column]:
            _merge_column(cells, category_hashes, column, True, slots, old[column], new[column], merged[column])
        else:
            _merge_numbers(cells, column, slots, old[column], new[column], merged[column])


@pasted
def _keep_column(old, row_now, kept):
    at = 0
    for i in range(old.shape[0]):
        row = row_now[np.uint64(old[np.uint64(i)])]
        if row != _GONE:
            kept[np.uint64(at)] = row
            at += 1


@kernel
def _remove(old, row_now, kept, first, last):
    """Remove-merge of columns first to last - 1: rows that stay get new numbers, the others are left out."""
    for column in range(first, last):
        _keep_column(old[column], row_now, kept[column])


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
    by_columns(
        partial(_merge, data.cells, data.category_hashes, data.categorical, both, orders.order, new, merged),
        len(merged),
        len(both),
        n_threads,
    )
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
