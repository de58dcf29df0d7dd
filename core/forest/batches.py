"""Reading the forest for many rows at once: each tree divides them, node by node, as training does.

A walk has to find out at each step where it is, what the node asks and what the row has there. Dividing all
rows of a node asks for the split once, reads one column from end to end of what the cache holds, and decides a
categorical split once for each category and not for each row:

    order    [ rows of a node ...................... ]      numbers of rows within the piece
             [ rows of its left child | of its right ]      one goes on, the other waits on the stack

Where few rows of a piece are left at a node, dividing no longer pays. They walk on, in step, so that their waits for
memory overlap, as those of single rows do (`predict.py`).
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Hashes
from oubli.core.forest.blocks import in_subset
from oubli.core.forest.candidates import as_cell
from oubli.core.forest.split import number_goes_right
from oubli.core.forest.state import MISSING_LEFT, MISSING_RIGHT, ONE_VS_REST, SUBSET, leaf_of
from oubli.core.forest.walks import add_end, enter, pass_on
from oubli.core.forest.workspace import ENDS, N_LANES, NODES, OWNERS, STACK_SIZE
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.jit.prefetch import prefetch_to_read
from oubli.core.rng import MISSING_CATEGORY

MANY_ROWS = 256  # from so many on, dividing pays
ROWS_AT_A_TIME = 16384  # a piece, whose columns stay in the cache while one tree after the other divides it
FEW_ROWS = 8  # of a node; so many walk on
_PADDING = 24  # cells between two columns: at a distance of a power of two they would evict each other from the cache

_ZERO = np.uint64(0)
_ONE = np.uint64(1)


class BatchScratch(NamedTuple):
    """Working space for a piece of up to m rows, one per thread; what it holds is the queries'."""

    columns: Array  # cells' type [d, m + _PADDING]
    numbers: npt.NDArray[Any]  # int32/64, the same memory: of categorical columns, the number of each row's category
    hashes: Hashes  # uint64[d or 0, m] by number; no rows where there are no categorical columns
    n_categories: npt.NDArray[np.int32]  # int32[d] numbers of each column
    number_of: npt.NDArray[np.int32]  # int32[n_codes + 1] by code, the last: missing; -1 between columns
    sides: npt.NDArray[np.uint8]  # uint8[m] where a node sends each number
    order: npt.NDArray[np.uint16]  # uint16[m]
    right: npt.NDArray[np.uint16]  # uint16[m] for dividing
    stack: npt.NDArray[np.int32]  # int32[STACK_SIZE, 3] node, start, end
    walk_nodes: npt.NDArray[np.int32]  # int32[m] where rows begin to walk
    walk_rows: npt.NDArray[np.int32]  # int32[m]
    lanes: npt.NDArray[np.int32]  # int32[3, N_LANES]


def batch_scratch(n_rows: int, n_features: int, cell_dtype: np.dtype[Any], n_codes: int) -> BatchScratch:
    """Make working space for a batch.

    Parameters
    ----------
    n_rows : of the batch; there is room for `ROWS_AT_A_TIME` at most.
    n_features : columns.
    cell_dtype : float32 or float64.
    n_codes : codes of categories, temporary ones included; -1 where there are no categorical columns.
    """
    n = min(n_rows, ROWS_AT_A_TIME)
    columns = np.empty((n_features, n + _PADDING), cell_dtype)
    return BatchScratch(
        columns=columns,
        numbers=columns.view(f"i{cell_dtype.itemsize}"),
        hashes=np.empty((n_features if n_codes >= 0 else 0, n), np.uint64),
        n_categories=np.zeros(n_features, np.int32),
        number_of=np.full(n_codes + 1, -1, np.int32),
        sides=np.empty(n, np.uint8),
        order=np.empty(n, np.uint16),
        right=np.empty(n, np.uint16),
        stack=np.empty((STACK_SIZE, 3), np.int32),
        walk_nodes=np.empty(n, np.int32),
        walk_rows=np.empty(n, np.int32),
        lanes=np.empty((3, N_LANES), np.int32),
    )


# -- the rows of a piece ------------------------------------------------------------------------------


@inner
def _copy_numbers(cells, first, n_rows, column, columns):
    """Write the numbers of a column of the piece that begins with row `first`."""
    for i in range(n_rows):
        columns[column, i] = cells[first + i, column]


@inner
def _number_categories(cells, first, n_rows, column, category_hashes, scratch):
    """Number the categories of a column of the piece from 0 on, as they come; O(n_rows)."""
    missing = category_hashes.shape[0]
    n_found = 0
    for i in range(n_rows):
        x = cells[first + i, column]
        code = missing if x != x else np.int64(x)
        number = scratch.number_of[code]
        if number < 0:
            number = np.int32(n_found)
            scratch.number_of[code] = number
            scratch.hashes[column, n_found] = MISSING_CATEGORY if code == missing else category_hashes[code]
            n_found += 1
        scratch.numbers[column, i] = number
    scratch.n_categories[column] = n_found
    for i in range(n_rows):
        x = cells[first + i, column]
        scratch.number_of[missing if x != x else np.int64(x)] = -1


# -- dividing ---------------------------------------------------------------------------------------


@pasted
def _put(order, right, row, side, n_left, n_right):
    """Write a row where the next one of either side belongs; without branches, for sides are as good as random."""
    order[n_left] = row
    right[n_right] = row
    return n_left + (_ONE - side), n_right + side


@pasted
def _append_right(order, right, n_left, n_right):
    for i in range(n_right):
        order[n_left + i] = right[i]


@inner
def _divide_by_threshold(column, threshold, missing_goes_right, order, right, start, end):
    """Put the rows order[start:end] that go left before the others; where the others begin."""
    n_left, n_right = np.uint64(start), _ZERO
    if missing_goes_right:
        for i in range(np.uint64(start), np.uint64(end)):
            row = order[i]
            side = np.uint64(not column[np.uint64(row)] <= threshold)
            n_left, n_right = _put(order, right, row, side, n_left, n_right)
    else:
        for i in range(np.uint64(start), np.uint64(end)):
            row = order[i]
            side = np.uint64(column[np.uint64(row)] > threshold)
            n_left, n_right = _put(order, right, row, side, n_left, n_right)
    _append_right(order, right, n_left, n_right)
    return np.int64(n_left)


@pasted
def _category_goes_right(kind, chosen, hashed):
    """Side of a category at a node; see `goes_right`."""
    return np.uint8(hashed != chosen) if kind == ONE_VS_REST else np.uint8(not in_subset(chosen, hashed))


@inner
def _divide_by_category(numbers, hashes, n_categories, kind, chosen, sides, order, right, start, end):
    """The same at a categorical split."""
    if n_categories <= end - start:
        for number in range(n_categories):
            sides[number] = _category_goes_right(kind, chosen, hashes[number])
    else:
        for i in range(start, end):
            number = numbers[order[i]]
            sides[number] = _category_goes_right(kind, chosen, hashes[number])
    n_left, n_right = np.uint64(start), _ZERO
    for i in range(np.uint64(start), np.uint64(end)):
        row = order[i]
        side = np.uint64(sides[np.uint64(numbers[np.uint64(row)])])
        n_left, n_right = _put(order, right, row, side, n_left, n_right)
    _append_right(order, right, n_left, n_right)
    return np.int64(n_left)


@pasted
def _divide(nodes, node, scratch, start, end):
    """Divide the rows of an inner node."""
    kind = nodes[node]["kind"]
    attribute = np.int64(nodes[node]["attribute"])
    if kind <= MISSING_LEFT:
        threshold = as_cell(nodes[node]["threshold"], scratch.columns)
        return _divide_by_threshold(
            scratch.columns[attribute], threshold, kind == MISSING_RIGHT, scratch.order, scratch.right, start, end
        )
    return _divide_by_category(
        scratch.numbers[attribute], scratch.hashes[attribute], np.int64(scratch.n_categories[attribute]), kind,
        nodes[node]["category"], scratch.sides, scratch.order, scratch.right, start, end,
    )  # fmt: skip


@inner
def _add_leaf_to(statistics, leaf, n_samples, is_regression, order, start, end, first, sums):
    """Add a leaf's class shares, or its mean, to the rows order[start:end] of the piece; see `add_leaf`."""
    if is_regression:
        mean = np.float64(statistics[leaf, 1]) / np.float64(statistics[leaf, 0])
        for i in range(start, end):
            sums[first + np.int64(order[i]), 0] += mean
        return
    n = np.float64(n_samples)
    if statistics.shape[1] == 2:
        share, other = np.float64(statistics[leaf, 0]) / n, np.float64(statistics[leaf, 1]) / n
        for i in range(start, end):
            row = np.uint64(first + np.int64(order[i]))
            sums[row, _ZERO] += share
            sums[row, _ONE] += other
        return
    for c in range(statistics.shape[1]):
        if statistics[leaf, c] == 0:
            continue  # of many classes a leaf has few; adding zero changes nothing
        share = np.float64(statistics[leaf, c]) / n
        for i in range(start, end):
            sums[first + np.int64(order[i]), c] += share


# -- walking ----------------------------------------------------------------------------------------


@pasted
def _goes_right(nodes, node, scratch, row):
    """`any_goes_right` for a row of the piece."""
    kind = nodes[node]["kind"]
    chosen = nodes[node]["category"]
    attribute = np.uint64(nodes[node]["attribute"])
    x = scratch.columns[attribute, np.uint64(row)]
    # What a numeric column has there is no number of a category: anything will do that is in range.
    number = min(np.uint64(scratch.numbers[attribute, np.uint64(row)]), np.uint64(scratch.hashes.shape[1] - 1))
    hashed = scratch.hashes[attribute, number]
    by_number = (x > nodes[node]["threshold"]) | ((x != x) & (kind == MISSING_RIGHT))
    by_number &= kind <= MISSING_LEFT
    by_category = (kind == ONE_VS_REST) & (hashed != chosen)
    by_coin = np.int64(kind == SUBSET) & (1 - np.int64(in_subset(chosen, hashed)))
    return np.int64(by_number | by_category) | by_coin


@inner
def _walk_on(nodes, statistics, is_regression, scratch, n_walks, first, sums):
    """Take the rows of the walks down to their leaves, `N_LANES` in step, and add these."""
    lanes = scratch.lanes
    has_categories = scratch.hashes.shape[0] > 0
    for begin in range(0, n_walks, N_LANES):
        n_lanes = min(N_LANES, n_walks - begin)
        for lane in range(n_lanes):
            enter(scratch.walk_nodes[begin + lane], lane, lanes)
        n_moving = n_lanes
        while n_moving > 0:
            n_kept = 0
            for i in range(n_moving):
                node = np.uint64(lanes[NODES, i])
                lane = lanes[OWNERS, i]
                row = scratch.walk_rows[begin + np.int64(lane)]
                child = np.int64(nodes[node]["child"])
                if has_categories:
                    following = child + _goes_right(nodes, node, scratch, row)
                else:
                    following = child + number_goes_right(nodes, node, scratch.columns.T, np.int64(row))
                n_kept = pass_on(nodes, lane, node, child, following, lanes, n_kept)
            n_moving = n_kept
        for lane in range(n_lanes):
            row = first + np.int64(scratch.walk_rows[begin + lane])
            add_end(nodes, statistics, lanes[ENDS, lane], is_regression, sums, row)


@inner
def _add_tree(nodes, statistics, tree, is_regression, scratch, first, n_rows, sums):
    """Add what a tree's leaves say to the rows first .. first + n_rows."""
    order, stack = scratch.order, scratch.stack
    for i in range(n_rows):
        order[i] = i
    n_walks = 0
    stack[0, 0], stack[0, 1], stack[0, 2] = tree, 0, n_rows
    size = 1
    while size > 0:
        size -= 1
        node, start, end = np.int64(stack[size, 0]), np.int64(stack[size, 1]), np.int64(stack[size, 2])
        while end - start > FEW_ROWS and nodes[node]["child"] >= 0:
            child = np.int64(nodes[node]["child"])
            prefetch_to_read(nodes, (child,))
            middle = _divide(nodes, node, scratch, start, end)
            # The side with more rows waits, so that no more sides wait than fit.
            if middle - start > end - middle:
                node = child + 1
                stack[size, 0], stack[size, 1], stack[size, 2] = child, start, middle
                start = middle
            else:
                node = child
                stack[size, 0], stack[size, 1], stack[size, 2] = child + 1, middle, end
                end = middle
            size += 1
        if nodes[node]["child"] < 0:
            n_samples = np.int64(nodes[node]["n_samples"])
            _add_leaf_to(statistics, leaf_of(nodes, node), n_samples, is_regression, order, start, end, first, sums)
        else:
            for i in range(start, end):
                scratch.walk_nodes[n_walks] = node
                scratch.walk_rows[n_walks] = order[i]
                n_walks += 1
    _walk_on(nodes, statistics, is_regression, scratch, n_walks, first, sums)


@kernel
def sum_leaves_of_many(nodes, statistics, n_trees, is_regression, cells, category_hashes, categorical, scratch, sums):
    """Sum the leaves that each row reaches, as `sum_leaves` does and to the bit; for batches.

    nodes, statistics  of `Trees`, read only; no tree may have a tag on the rows' paths
    cells              float32/64[n, d] queries; categorical columns index `category_hashes`
    categorical        bool[d]
    scratch            BatchScratch
    sums               float64[n, width or 1], zero, written

    A row's sum is in the order of the trees, whatever the piece that it is in. O(n T depth). Returns the number of
    non-empty trees.
    """
    n_planted = 0
    for tree in range(n_trees):
        n_planted += np.int64(nodes[tree]["n_samples"] > 0)
    n_rows, most = cells.shape[0], scratch.order.shape[0]
    for first in range(0, n_rows, most):
        n = min(most, n_rows - first)
        for column in range(cells.shape[1]):
            if categorical[column]:
                _number_categories(cells, first, n, column, category_hashes, scratch)
            else:
                _copy_numbers(cells, first, n, column, scratch.columns)
        for tree in range(n_trees):
            if nodes[tree]["n_samples"] > 0:
                _add_tree(nodes, statistics, tree, is_regression, scratch, first, n, sums)
    return n_planted
