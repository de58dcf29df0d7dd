"""Predictions, which write nothing to the trees: of single rows, of many rows, and through tags.

A prediction is the sum of the leaves' class shares (or means) over the non-empty trees in tree order, divided by their
number by the caller: the same for one row, a batch and any interleaving.

    sum_leaves             walks trees without tags, several rows in step, so that their waits for memory overlap
    sum_leaves_frozen      also answers through tags: it chooses the splits below a tag in the working space, for the
                           one path that it needs, so that other threads may read the trees at the same time;
                           `update.resolve` is its counterpart that writes
    sum_leaves_of_many     divides many rows in each tree, node by node, as training does

A walk reads at each step where it is, the node's split and the row's value. Dividing all rows of a node reads the split
once and one column from end to end of what the cache holds, and decides a categorical split once for each category and
not for each row:

    order    [ rows of a node ...................... ]      numbers of rows within the piece
             [ rows of its left child | of its right ]      one is divided next, the other waits on the stack

Where few rows of a piece are left at a node, dividing no longer pays, and they walk on in step.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Hashes
from oubli.core.forest.grow import count_and_choose, rescore
from oubli.core.forest.layout.blocks import as_cell, is_counted
from oubli.core.forest.layout.cells import gather
from oubli.core.forest.layout.draws import hash_of_values
from oubli.core.forest.split import is_same_split, store_split
from oubli.core.forest.state import TAGGED, Leaves, count_in, leaf_of, must_be_leaf
from oubli.core.forest.workspace import ENDS, N_LANES, NODES, OWNERS, STACK_SIZE
from oubli.core.jit.aligned import prefetch_to_read
from oubli.core.jit.nodes import MISSING_LEFT, MISSING_RIGHT, NIL, ONE_VS_REST, SUBSET, goes_right, in_subset
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.jit.targets import total_of
from oubli.core.rng import MISSING_CATEGORY, combine, draw_trees, restore_order, tree_key

MANY_ROWS = 256  # from so many on, dividing pays
ROWS_AT_A_TIME = 16384  # a piece, whose columns stay in the cache while one tree after the other divides it
FEW_ROWS = 8  # of a node; so many walk on
_PADDING = 24  # cells between two columns: at a distance of a power of two they would evict each other from the cache

_ZERO = np.uint64(0)
_ONE = np.uint64(1)


@pasted
def _number_goes_right(nodes, node, x):
    """Side of a number at a node of a forest without categorical columns; no branches."""
    missing_goes_right = (x != x) & (nodes[node]["kind"] == MISSING_RIGHT)
    return np.int64((x > nodes[node]["threshold"]) | missing_goes_right)


@pasted
def _any_goes_right(nodes, node, x, hashed):
    """Side of a cell, or of the category with a hash, without branches: the kind of the next node cannot be guessed.

    hashed  at a numeric split anything
    """
    kind = nodes[node]["kind"]
    chosen = nodes[node]["category"]
    by_number = (x > nodes[node]["threshold"]) | ((x != x) & (kind == MISSING_RIGHT))
    by_number &= kind <= MISSING_LEFT
    by_category = (kind == ONE_VS_REST) & (hashed != chosen)
    by_coin = np.int64(kind == SUBSET) & (1 - np.int64(in_subset(chosen, hashed)))
    return np.int64(by_number | by_category) | by_coin


@pasted
def enter(node, lane, lanes):
    """Begin a walk at a root."""
    lanes[NODES, lane] = node
    lanes[OWNERS, lane] = lane


@pasted
def pass_on(nodes, lane, node, child, following, lanes, n_kept):
    """Continue a walk that is at a node, unless that is a leaf; returns the number of walks that continue.

    The next node is prefetched now and read in the next round, after those of all other walks have been prefetched.
    """
    prefetch_to_read(nodes, (following,))
    lanes[ENDS, np.uint64(lane)] = node
    lanes[NODES, n_kept] = following
    lanes[OWNERS, n_kept] = lane
    return n_kept + np.int64(child >= 0)


@pasted
def find_tallies(tallies, first, n_samples):
    """Where the tallies of a leaf with so many samples end, and what the samples count for together."""
    place, total = first, np.int64(0)
    while place < first + n_samples and tallies[place, 1] != 0:
        total += np.int64(tallies[place, 1])
        place += 1
    return place, total


@pasted
def add_counts(statistics, row_of_leaf, is_regression, sums, row):
    """Add the class shares, or the mean in units of the quantised target, of a row of statistics to sums[row]."""
    if is_regression:
        sums[row, 0] += np.float64(statistics[row_of_leaf, 1]) / np.float64(statistics[row_of_leaf, 0])
        return
    leaf, row = np.uint64(row_of_leaf), np.uint64(row)
    if statistics.shape[1] == 2:  # the usual case, without a loop
        first, second = np.float64(statistics[leaf, _ZERO]), np.float64(statistics[leaf, _ONE])
        sums[row, _ZERO] += first / (first + second)
        sums[row, _ONE] += second / (first + second)
        return
    n = np.float64(total_of(statistics, leaf))
    for c in range(statistics.shape[1]):
        sums[row, c] += np.float64(statistics[leaf, c]) / n


@inner
def _add_tallies(leaves, leaf, n_samples, sums, row):
    """Add the class shares of a leaf with tallies to sums[row]."""
    first = np.int64(leaves.starts[leaf])
    end, total = find_tallies(leaves.tallies, first, n_samples)
    n = np.float64(total)
    for place in range(first, end):
        sums[row, np.uint64(leaves.tallies[place, 0])] += np.float64(leaves.tallies[place, 1]) / n


@pasted
def add_leaf(leaves, leaf, n_samples, is_regression, sums, row):
    """Add what a leaf says to sums[row], as `add_counts` does."""
    if leaves.tallies.shape[0] == 0:
        add_counts(leaves.statistics, leaf, is_regression, sums, row)
    else:
        _add_tallies(leaves, leaf, n_samples, sums, row)


@pasted
def add_end(nodes, leaves, node, is_regression, sums, row):
    """Add the leaf where a walk has ended, if it has samples."""
    n_samples = np.int64(nodes[node]["n_samples"])
    if n_samples > 0:
        add_leaf(leaves, leaf_of(nodes, node), n_samples, is_regression, sums, row)


@pasted
def walk_by_numbers(nodes, cells, row, lanes, n_moving):
    """Take walks of a row down to their leaves in step, so that their waits for memory overlap; without categories.

    Writes the leaf nodes to lanes[ENDS]. Without branches but the loops', for the sides are as good as random: a leaf
    has a side too, which leads nowhere.
    """
    while n_moving > 0:
        n_kept = 0
        for i in range(n_moving):
            node = np.uint64(lanes[NODES, i])
            child = np.int64(nodes[node]["child"])
            x = cells[np.uint64(row), np.uint64(nodes[node]["attribute"])]
            following = child + _number_goes_right(nodes, node, x)
            n_kept = pass_on(nodes, lanes[OWNERS, i], node, child, following, lanes, n_kept)
        n_moving = n_kept


@inner
def look_up_hashes(cells, category_hashes, row, hashes):
    """Write the hashes of the categories of a row; what numeric columns get is of no use."""
    for column in range(cells.shape[1]):
        x = cells[row, column]
        if x >= 0 and x < category_hashes.shape[0]:
            hashes[0, column] = category_hashes[np.uint64(x)]
        else:
            hashes[0, column] = MISSING_CATEGORY


@pasted
def walk_by_all(nodes, cells, row, hashes, lanes, n_moving):
    """The same where there are categories, their hashes being in hashes[0].

    One loop for both would ask at each step which of them it is.
    """
    while n_moving > 0:
        n_kept = 0
        for i in range(n_moving):
            node = np.uint64(lanes[NODES, i])
            child = np.int64(nodes[node]["child"])
            attribute = np.uint64(nodes[node]["attribute"])
            x, hashed = cells[np.uint64(row), attribute], hashes[np.uint64(0), attribute]
            following = child + _any_goes_right(nodes, node, x, hashed)
            n_kept = pass_on(nodes, lanes[OWNERS, i], node, child, following, lanes, n_kept)
        n_moving = n_kept


@inner
def _sum_trees(nodes, leaves, n_trees, is_regression, cells, row, hashes, lanes, sums):
    """Add up all trees for one row, several trees in step."""
    for first in range(0, n_trees, N_LANES):
        n_lanes = min(N_LANES, n_trees - first)
        for lane in range(n_lanes):
            enter(first + lane, lane, lanes)
        if hashes.shape[0] > 0:
            walk_by_all(nodes, cells, row, hashes, lanes, n_lanes)
        else:
            walk_by_numbers(nodes, cells, row, lanes, n_lanes)
        for lane in range(n_lanes):
            leaf = leaf_of(nodes, lanes[ENDS, lane])
            if leaves.tallies.shape[0] > 0:
                prefetch_to_read(leaves.starts, (leaf,))
            else:
                prefetch_to_read(leaves.statistics, (leaf, np.int64(0)))
        for lane in range(n_lanes):
            add_end(nodes, leaves, lanes[ENDS, lane], is_regression, sums, row)


@kernel
def sum_leaves(
    nodes, statistics, starts, tallies, n_trees, is_regression, cells, category_hashes, hashes, lanes, sums
):  # fmt: skip
    """Sum the leaves that each row reaches, row by row; no tree may have a tag on the rows' paths.

    nodes, statistics  of `Trees`, read only, as are `starts` and `tallies`: to hand over a tuple takes longer
    cells              float32/64[n, d] queries; categorical columns index `category_hashes`
    hashes             uint64[1, d] working space; no rows where there are no categories
    lanes              int32[3, N_LANES] working space
    sums               float64[n, width or 1], zero, written

    Walks go down different trees in step, so that their waits for memory overlap. A row's sum is in the order of the
    trees. O(n T depth). Returns the number of non-empty trees. For many rows see below.
    """
    leaves = Leaves(statistics, starts, tallies)
    n_planted = 0
    for tree in range(n_trees):
        n_planted += np.int64(nodes[tree]["n_samples"] > 0)
    for row in range(cells.shape[0]):
        if hashes.shape[0] > 0:
            look_up_hashes(cells, category_hashes, row, hashes)
        _sum_trees(nodes, leaves, n_trees, is_regression, cells, row, hashes, lanes, sums)
    return n_planted


@inner
def keep_side(data, scratch, end, side):
    """Keep those of scratch.order[:end] that the split in `scratch.node` sends to a side; how many."""
    kept = 0
    for i in range(end):
        position = scratch.order[i]
        slot = scratch.slots[position]
        if goes_right(scratch.node, 0, data.cells, slot, data.category_hashes) == side:
            scratch.order[kept] = position
            kept += 1
    return kept


@inner
def add_ordered(parameters, scratch, end, sums, row):
    """Add what a leaf with the samples of scratch.order[:end] would say to a row's sum."""
    is_regression = parameters[0]["is_regression"] != 0
    for c in range(scratch.leaf.shape[1]):
        scratch.leaf[0, c] = 0
    for i in range(end):
        count_in(scratch.leaf, 0, 0, scratch.targets[scratch.order[i]], 1, is_regression)
    add_counts(scratch.leaf, 0, is_regression, sums, row)


@inner
def _add_leaf_below_tag(trees, data, parameters, scratch, blocks, node, key, depth, cells, row, category_hashes, sums):
    """Follow a query from a tagged node down the splits that resolving would choose."""
    end = gather(trees, data, parameters, scratch, node)
    while not must_be_leaf(parameters, end, depth):
        if not count_and_choose(data, parameters, scratch, blocks, 0, key, 0, end, NIL, False):
            break
        store_split(scratch.node, 0, scratch.choice)
        side = goes_right(scratch.node, 0, cells, row, category_hashes)
        end = keep_side(data, scratch, end, side)
        key = combine(key, np.uint64(side))
        depth += 1
    add_ordered(parameters, scratch, end, sums, row)


@inner
def _passes(trees, data, parameters, scratch, blocks, node, key, depth):
    """Whether a query may follow a node's split: there is no tag, or the counters confirm the split."""
    nodes = trees.nodes
    if not nodes[node]["flags"] & TAGGED:
        return True
    if not is_counted(trees, blocks, node):
        return False
    found = rescore(trees, data, parameters, scratch, blocks, node, key, depth)
    return found and is_same_split(nodes, node, scratch.choice)


@kernel
def sum_leaves_frozen(trees, data, parameters, scratch, blocks, cells, category_hashes, order, sums, n_summed):
    """Sum the leaves that each row reaches, through tags, writing nothing but the working space.

    order     int32[n_trees], the identity permutation, and so again at the end
    n_summed  int64[n], zero, written: non-empty trees that answer

    Same result as resolving and `sum_leaves`, or `sum_unseen_leaves` with low disclosure; a path through a tag costs
    O(n p) of its node.
    """
    nodes = trees.nodes
    is_regression = parameters[0]["is_regression"] != 0
    n_trees, n_draws = parameters[0]["n_trees"], np.int64(0)
    hashed, seed_key = _ZERO, parameters[0]["seed_key"]
    for row in range(cells.shape[0]):
        if parameters[0]["has_low_disclosure"]:
            n_draws = parameters[0]["occurrences"]
            hashed = hash_of_values(cells, category_hashes, data.categorical, row)
            draw_trees(seed_key, hashed, n_trees, n_draws, order)
        for place in range(n_draws, n_trees):
            node = np.int64(order[place])
            if nodes[node]["n_samples"] == 0:
                continue
            n_summed[row] += 1
            key = tree_key(seed_key, node)
            depth = 0
            while leaf_of(nodes, node) == NIL and _passes(trees, data, parameters, scratch, blocks, node, key, depth):
                side = goes_right(nodes, node, cells, row, category_hashes)
                node = np.int64(nodes[node]["child"]) + side
                key = combine(key, np.uint64(side))
                depth += 1
            if leaf_of(nodes, node) == NIL or nodes[node]["flags"] & TAGGED:
                _add_leaf_below_tag(
                    trees, data, parameters, scratch, blocks, node, key, depth,
                    cells, row, category_hashes, sums,
                )  # fmt: skip
            else:
                add_end(nodes, Leaves(trees.statistics, trees.starts, trees.tallies), node, is_regression, sums, row)
        if n_draws > 0:
            restore_order(seed_key, hashed, n_trees, n_draws, order)


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
    """`put` with unsigned numbers."""
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
def _add_leaf_to(leaves, leaf, n_samples, is_regression, order, start, end, first, sums):
    """Add a leaf's class shares, or its mean, to the rows order[start:end] of the piece; see `add_leaf`."""
    if is_regression:
        mean = np.float64(leaves.statistics[leaf, 1]) / np.float64(leaves.statistics[leaf, 0])
        for i in range(start, end):
            sums[first + np.int64(order[i]), 0] += mean
        return
    if leaves.tallies.shape[0] > 0:
        begin = np.int64(leaves.starts[leaf])
        behind, total = find_tallies(leaves.tallies, begin, n_samples)
        for place in range(begin, behind):
            share = np.float64(leaves.tallies[place, 1]) / np.float64(total)
            for i in range(start, end):
                sums[first + np.int64(order[i]), leaves.tallies[place, 0]] += share
        return
    if leaves.statistics.shape[1] == 2:
        share, other = np.float64(leaves.statistics[leaf, _ZERO]), np.float64(leaves.statistics[leaf, _ONE])
        n = share + other
        share, other = share / n, other / n
        for i in range(start, end):
            row = np.uint64(first + np.int64(order[i]))
            sums[row, _ZERO] += share
            sums[row, _ONE] += other
        return
    n = np.float64(total_of(leaves.statistics, leaf))
    for c in range(leaves.statistics.shape[1]):
        if leaves.statistics[leaf, c] == 0:
            continue  # of many classes a leaf has few; adding zero changes nothing
        share = np.float64(leaves.statistics[leaf, c]) / n
        for i in range(start, end):
            sums[first + np.int64(order[i]), c] += share


# -- walking ----------------------------------------------------------------------------------------


@inner
def _walk_on(nodes, leaves, is_regression, scratch, n_walks, first, sums):
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
                at = np.uint64(scratch.walk_rows[begin + np.int64(lane)])
                child = np.int64(nodes[node]["child"])
                attribute = np.uint64(nodes[node]["attribute"])
                x = scratch.columns[attribute, at]
                if has_categories:
                    # What a numeric column has there is no number of a category: anything will do that is in range.
                    number = min(np.uint64(scratch.numbers[attribute, at]), np.uint64(scratch.hashes.shape[1] - 1))
                    following = child + _any_goes_right(nodes, node, x, scratch.hashes[attribute, number])
                else:
                    following = child + _number_goes_right(nodes, node, x)
                n_kept = pass_on(nodes, lane, node, child, following, lanes, n_kept)
            n_moving = n_kept
        for lane in range(n_lanes):
            row = first + np.int64(scratch.walk_rows[begin + lane])
            add_end(nodes, leaves, lanes[ENDS, lane], is_regression, sums, row)


@inner
def _add_tree(nodes, leaves, tree, is_regression, scratch, first, n_rows, sums):
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
            _add_leaf_to(leaves, leaf_of(nodes, node), n_samples, is_regression, order, start, end, first, sums)
        else:
            for i in range(start, end):
                scratch.walk_nodes[n_walks] = node
                scratch.walk_rows[n_walks] = order[i]
                n_walks += 1
    _walk_on(nodes, leaves, is_regression, scratch, n_walks, first, sums)


@kernel
def sum_leaves_of_many(nodes, leaves, n_trees, is_regression, cells, category_hashes, categorical, scratch, sums):
    """Sum the leaves that each row reaches, as `sum_leaves` does and to the bit; for batches.

    nodes, leaves      of `Trees`, read only; no tree may have a tag on the rows' paths
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
                _add_tree(nodes, leaves, tree, is_regression, scratch, first, n, sums)
    return n_planted
