"""The growth of online trees in threads, with the result that `grow.grow_tree` has in one.

The trees of several classes are grown side by side if there are at least as many as threads. Otherwise the samples are
cut into blocks of rows, and all threads grow one tree together:

    count     each block      counts its samples in a histogram of its own
    grow_on   the caller      adds the histograms up and finds the best splits, until a large leaf is to be split
    split     each block      divides its samples of that leaf, and counts those of one child
    label     each block      writes which leaf its samples are in

The caller leads a crew (`core/jit/crew.py`), and the blocks are pieces that its threads take. Leaves are split in the
order of `grow.py`; the caller splits small ones alone. Which child is the smaller is known only when all blocks have
divided their samples, so the one with the lower hessian is counted.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from oubli.core.array_types import Ints, Reals
from oubli.core.boosting import rows as cutting
from oubli.core.boosting.histogram import subtract
from oubli.core.boosting.online.grow import (
    NONE,
    PLACE,
    Space,
    best_leaf,
    count_root,
    find_best,
    grow_tree,
    label_rows,
    write_split,
)
from oubli.core.boosting.online.state import Labels, Model, row_of, write_value
from oubli.core.boosting.online.update import add_values, derive_all
from oubli.core.boosting.online.workspace import Rows, count_rows, divide
from oubli.core.concurrency import threads
from oubli.core.jit.crew import ARGUMENTS, WHAT, announce, await_pieces, end_piece, make_crew, take, wait_for_piece
from oubli.core.jit.policy import inner, kernel

N_OPEN, LEAF, NEW, FEATURE, CUT, MISSING_LEFT, COUNTED, CURSOR_SIZE = range(8)
# What crew[WHAT] says, and what is in crew[ARGUMENTS:].
_BEGIN = 0  # iteration: derive for all its trees, and count for the first
_COUNT = 1  # iteration, tree
_SPLIT = 2  # iteration, tree
_LABEL = 3  # iteration, tree


class Blocks(NamedTuple):
    """Working space of B blocks of the samples at hand; J leaves, R bins, K trees an iteration."""

    bounds: Ints  # int64[B + 1]: positions
    starts: Ints  # int64[B, J]: where a leaf's samples begin in `order`
    ends: Ints  # int64[B, J]
    sums: Ints  # int64[B, R]: histograms
    totals: Ints  # int64[B]: sums of derivatives
    probabilities: Reals  # float64[B, K]
    cursor: Ints  # int64[CURSOR_SIZE]: leaves that are open, and the split at hand

    @property
    def number(self) -> int:
        """B."""
        return len(self.totals)


def make_blocks(n_rows: int, n_blocks: int, n_leaves: int, n_bins: int, groups: int) -> Blocks:
    """Cut the samples at hand in so many blocks."""
    return Blocks(
        np.array(cutting.cut(n_rows, n_blocks), np.int64),
        np.zeros((n_blocks, n_leaves), np.int64),
        np.zeros((n_blocks, n_leaves), np.int64),
        np.zeros((n_blocks, n_bins), np.int64),
        np.zeros(n_blocks, np.int64),
        np.zeros((n_blocks, groups)),
        np.zeros(CURSOR_SIZE, np.int64),
    )


class Work(NamedTuple):
    """What the threads of a crew share."""

    model: Model
    labels: Labels
    rows: Rows
    sums: Reals  # float64[K, n]: sums of leaf values of the samples at hand
    space: Space
    blocks: Blocks


# -- a block's part ---------------------------------------------------------------------------------


@inner
def _derive_block(work, block, iteration):
    """Add the values of the trees before an iteration to a block's sums, and derive from them."""
    forest, blocks, slots, n_groups = work.model.forest, work.blocks, work.rows.slots, work.sums.shape[0]
    begin, end = blocks.bounds[block], blocks.bounds[block + 1]
    add_values(forest, slots, begin, end, max(iteration - 1, 0), iteration, work.sums)
    derive_all(
        work.labels, work.sums, slots, begin, end, iteration, iteration * n_groups, forest.gh, 0, n_groups,
        blocks.probabilities[block],
    )  # fmt: skip


@inner
def _count_block(work, block, iteration, tree, are_placed):
    """Begin with a block's samples at the root of a tree: their derivatives, and their histogram."""
    blocks = work.blocks
    begin, end = blocks.bounds[block], blocks.bounds[block + 1]
    blocks.starts[block, 0], blocks.ends[block, 0] = begin, end
    blocks.totals[block] = count_root(
        work.model, work.rows, work.space, iteration, tree, begin, end, blocks.sums[block], are_placed
    )


@inner
def _split_block(work, block, iteration):
    """Divide a block's samples of the leaf at hand, and count those of one child."""
    blocks, cursor, order = work.blocks, work.blocks.cursor, work.space.order
    leaf, new, counted = cursor[LEAF], cursor[NEW], cursor[COUNTED]
    starts, ends = blocks.starts[block], blocks.ends[block]
    start, end = starts[leaf], ends[leaf]
    other = work.space.other[blocks.bounds[block] : blocks.bounds[block + 1]]
    middle = divide(
        work.rows, work.model.bins, order, other, start, end, cursor[FEATURE], cursor[CUT], cursor[MISSING_LEFT]
    )
    ends[leaf] = middle
    starts[new], ends[new] = middle, end
    if counted != NONE:
        count_rows(blocks.sums[block], work.rows, work.model, iteration, order, starts[counted], ends[counted])


@inner
def _label_block(work, block, tree):
    """Write which leaf of a tree a block's samples are in."""
    forest, blocks = work.model.forest, work.blocks
    for leaf in range(blocks.cursor[N_OPEN]):
        number = forest.states[row_of(forest, tree, work.space.open[leaf, PLACE])]["leaf"]
        start, end = blocks.starts[block, leaf], blocks.ends[block, leaf]
        label_rows(work.model, work.rows, work.space, tree, number, start, end)


# -- the caller's part ------------------------------------------------------------------------------


@inner
def _add_up(blocks, histogram):
    """Write the sum of the blocks' histograms."""
    for i in range(histogram.shape[0]):
        histogram[i] = blocks.sums[0, i]
    for block in range(1, blocks.sums.shape[0]):
        part = blocks.sums[block]
        for i in range(histogram.shape[0]):
            histogram[i] += part[i]


@inner
def _open_root(work, tree):
    total = np.int64(0)
    for block in range(work.blocks.totals.shape[0]):
        total += work.blocks.totals[block]
    work.model.forest.states[row_of(work.model.forest, tree, 0)]["sums"] = total
    _add_up(work.blocks, work.space.histograms[0])
    work.space.open[0, PLACE] = 0
    find_best(work.model, work.space, tree, 0)
    work.blocks.cursor[N_OPEN] = 1


@inner
def _begin_split(work, iteration, tree, leaf):
    """Write a split of a leaf to the tree, and to the cursor what the blocks need to know."""
    cursor, states = work.blocks.cursor, work.model.forest.states
    new = cursor[N_OPEN]
    whole = states[row_of(work.model.forest, tree, work.space.open[leaf, PLACE])]["sums"]
    feature, cut, missing_left = write_split(work.model, work.space, iteration, tree, leaf, new)
    left = states[row_of(work.model.forest, tree, work.space.open[leaf, PLACE])]["sums"]
    cursor[LEAF], cursor[NEW], cursor[FEATURE], cursor[CUT] = leaf, new, feature, cut
    cursor[MISSING_LEFT] = missing_left
    mask = (np.int64(1) << np.int64(work.model.rules.shift)) - np.int64(1)
    counted = leaf if 2 * (left & mask) <= (whole & mask) else new
    cursor[COUNTED] = NONE if new + 1 == work.space.open.shape[0] else counted


@inner
def _end_split(work, tree):
    """Give both children of the leaf at hand their histograms and best splits, unless it was the last split."""
    cursor, histograms = work.blocks.cursor, work.space.histograms
    leaf, new, counted = cursor[LEAF], cursor[NEW], cursor[COUNTED]
    cursor[N_OPEN] = new + 1
    if counted == NONE:
        return
    # The histogram of the leaf is still its own from before the split.
    if counted == leaf:
        rest, before = histograms[new], histograms[leaf]
        for i in range(rest.shape[0]):
            rest[i] = before[i]
    _add_up(work.blocks, histograms[counted])
    rest = histograms[leaf + new - counted]
    subtract(rest, histograms[counted], rest)
    find_best(work.model, work.space, tree, leaf)
    find_best(work.model, work.space, tree, new)


@inner
def _grow_on(work, iteration, tree, most_alone, begins):
    """Grow a tree until a leaf of more than `most_alone` samples is to be split, which the blocks do then.

    begins  the blocks have counted the root; or else they have split a leaf

    Returns whether they are to split one. When not, the tree is complete except for `_label_block`.
    """
    if begins:
        _open_root(work, tree)
    else:
        _end_split(work, tree)
    blocks, cursor = work.blocks, work.blocks.cursor
    while cursor[N_OPEN] < work.space.open.shape[0]:
        best = best_leaf(work.space, cursor[N_OPEN])
        if best == NONE:
            break
        _begin_split(work, iteration, tree, best)
        n_samples = np.int64(0)
        for block in range(blocks.starts.shape[0]):
            n_samples += blocks.ends[block, best] - blocks.starts[block, best]
        if n_samples > most_alone:
            return True
        for block in range(blocks.starts.shape[0]):
            _split_block(work, block, iteration)
        _end_split(work, tree)
    for leaf in range(cursor[N_OPEN]):
        write_value(work.model.forest, work.model.rules, tree, work.space.open[leaf, PLACE])
    return False


# -- the crew ---------------------------------------------------------------------------------------


@inner
def _do(crew, block, work):
    """Do a block's part of what is announced."""
    what, iteration, tree = crew[WHAT], crew[ARGUMENTS], crew[ARGUMENTS + 1]
    if what == _SPLIT:
        _split_block(work, block, iteration)
    elif what == _LABEL:
        _label_block(work, block, tree)
    else:
        if what == _BEGIN:
            _derive_block(work, block, iteration)
        _count_block(work, block, iteration, tree, what == _COUNT)


@inner
def _do_all(crew, work, what, iteration, tree):
    """Have all blocks do something."""
    crew[ARGUMENTS], crew[ARGUMENTS + 1] = iteration, tree
    announce(crew, what, work.blocks.totals.shape[0])
    block = take(crew)
    while block >= 0:
        _do(crew, block, work)
        end_piece(crew)
        block = take(crew)
    await_pieces(crew)


@kernel
def help_out(crew, work):
    """Take blocks until the crew is dismissed."""
    block = wait_for_piece(crew)
    while block >= 0:
        _do(crew, block, work)
        end_piece(crew)
        block = wait_for_piece(crew)


@kernel
def begin_in_blocks(crew, work, iteration):
    """Have all blocks derive for the trees of an iteration, and write its bins; leads the crew."""
    _do_all(crew, work, _BEGIN, iteration, iteration * work.sums.shape[0])


@kernel
def grow_in_blocks(crew, work, begin, end, most_alone):
    """Grow the trees of the iterations from `begin` to before `end`, one after the other; leads the crew."""
    n_groups = work.sums.shape[0]
    for iteration in range(begin, end):
        for k in range(n_groups):
            tree = iteration * n_groups + k
            _do_all(crew, work, _BEGIN if k == 0 else _COUNT, iteration, tree)
            begins = True
            while _grow_on(work, iteration, tree, most_alone, begins):
                begins = False
                _do_all(crew, work, _SPLIT, iteration, tree)
            _do_all(crew, work, _LABEL, iteration, tree)


class ThreadedGrowing:
    """All trees, grown in threads on the samples at hand.

    new_space : makes working space for so many samples.
    """

    def __init__(
        self, model: Model, labels: Labels, rows: Rows, new_space: Callable[[int], Space], n_threads: int
    ) -> None:
        groups, n, width = len(labels.base), len(rows.slots), rows.codes.shape[1]
        n_blocks = cutting.n_blocks(n, width, n_threads)
        self._by_tree = groups > 1 and (groups >= n_threads or n_blocks == 1)
        self.pays = n_blocks > 1 or (self._by_tree and cutting.n_blocks(n * groups, width, n_threads) > 1)
        if not self.pays:
            return
        self._n_threads = n_threads
        self._most_alone = cutting.most_alone(width, n_threads)
        blocks = make_blocks(n, n_blocks, model.forest.values.shape[1], model.candidates.n_bins, groups)
        self._work = Work(model, labels, rows, np.zeros((groups, n)), new_space(n), blocks)
        self._crew = make_crew(n_blocks)
        self._own = [
            (rows._replace(packed=np.zeros_like(rows.packed)), new_space(n))
            for _ in range(min(n_threads, groups) if self._by_tree else 0)
        ]

    def erase(self) -> None:
        """Overwrite what samples have left."""
        spaces = [self._work.space, *(space for _, space in self._own)]
        packed = [rows.packed for rows, _ in self._own]
        for array in (*self._work.blocks, self._work.sums, *packed, *(array for space in spaces for array in space)):
            array.fill(0)

    def grow_iterations(self, begin: int, end: int) -> None:
        """Grow the trees of some iterations, whose turn it is."""
        if not self._by_tree:
            self._lead(partial(grow_in_blocks, self._crew, self._work, begin, end, self._most_alone))
            return
        groups = len(self._work.sums)
        for iteration in range(begin, end):
            self._lead(partial(begin_in_blocks, self._crew, self._work, iteration))
            trees = range(iteration * groups, (iteration + 1) * groups)
            threads.run([partial(self._grow_one, iteration, tree) for tree in trees], self._n_threads)

    def _lead(self, lead: Callable[[], None]) -> None:
        """Do something with the crew."""
        cutting.lead(self._crew, lead, partial(help_out, self._crew, self._work))

    def _grow_one(self, iteration: int, tree: int) -> None:
        """Grow a tree alone; derivatives are its own, all trees share the bins of the samples."""
        rows, space = self._own.pop()
        grow_tree(self._work.model, rows, space, iteration, tree, True)
        self._own.append((rows, space))
