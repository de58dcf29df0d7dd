"""Growing a tree on blocks of rows, each of which is a thread's.

    count     each block      counts its samples in a histogram of its own
    grow_on   the caller      adds the histograms up and finds the best splits, until a large leaf is to be split
    split     each block      divides its samples of that leaf, and counts those of one child
    label     each block      writes which leaf its samples are in

The caller leads a crew (`core/jit/crew.py`), and the blocks are pieces that its threads take. Leaves are split in the
order of `grow.py`, and small ones by the caller. Which child is the smaller is known only when all blocks have divided
their samples; the one with the lower hessian is taken for it.
"""

from typing import NamedTuple

import numpy as np

from oubli.core.array_types import Ints, Reals
from oubli.core.boosting.online.grow import BIN, MISSING_LEFT, PLACE, find_best, free_pair, sums_of_left, write_split
from oubli.core.boosting.online.state import unpack, value_of
from oubli.core.boosting.online.update import derive
from oubli.core.boosting.online.workspace import count_rows, divide, place_rows
from oubli.core.boosting.rows import cut
from oubli.core.jit.crew import ARGUMENTS, WHAT, announce, await_pieces, end_piece, take, wait_for_piece
from oubli.core.jit.policy import inner, kernel

N_OPEN, LEAF, NEW, FEATURE, CUT, COUNTED, CURSOR_SIZE = range(7)
_NONE = -1


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
        np.array(cut(n_rows, n_blocks), np.int64),
        np.zeros((n_blocks, n_leaves), np.int64),
        np.zeros((n_blocks, n_leaves), np.int64),
        np.zeros((n_blocks, n_bins), np.int64),
        np.zeros(n_blocks, np.int64),
        np.zeros((n_blocks, groups)),
        np.zeros(CURSOR_SIZE, np.int64),
    )


# -- a block's part ---------------------------------------------------------------------------------


@inner
def _derive_block(forest, labels, sums, slots, blocks, block, iteration):
    """Add the values of the trees before an iteration to a block's sums, and derive from them."""
    n_groups = sums.shape[0]
    begin, end = blocks.bounds[block], blocks.bounds[block + 1]
    if iteration > 0:
        for k in range(n_groups):
            tree = (iteration - 1) * n_groups + k
            values, leaf_of, row = forest.values[tree], forest.leaf_of[tree], sums[k]
            for i in range(begin, end):
                row[i] += values[leaf_of[slots[i]]]
    first_tree = iteration * n_groups
    for i in range(begin, end):
        derive(labels, sums, i, slots[i], iteration, forest.gh, first_tree, 0, n_groups, blocks.probabilities[block])


@inner
def _count_block(
    forest, bins, candidates, layout, rules, rows, codes, slots, space, blocks, block, iteration, tree, are_placed
):
    """Begin with a block's samples at the root of a tree: their derivatives, and their histogram.

    are_placed  whether their bins are those of the iteration already
    """
    begin, end = blocks.bounds[block], blocks.bounds[block + 1]
    gh = forest.gh[tree]
    total = np.int64(0)
    for i in range(begin, end):
        value = unpack(gh[np.uint64(slots[np.uint64(i)])], rules.shift)
        rows.packed[i] = value
        total += value
        space.order[i] = i
    blocks.totals[block] = total
    blocks.starts[block, 0], blocks.ends[block, 0] = begin, end
    first, places, sums = candidates.first, candidates.places[iteration], blocks.sums[block]
    if are_placed:
        count_rows(sums, rows, bins.first, first, places, layout, space.order, begin, end)
    else:
        place_rows(rows, codes, bins.first, first, places, layout, slots, begin, end, sums)


@inner
def _split_block(bins, candidates, layout, rows, codes, slots, space, blocks, block, iteration):
    """Divide a block's samples of the leaf at hand, and count those of one child."""
    cursor = blocks.cursor
    leaf, new, feature = cursor[LEAF], cursor[NEW], cursor[FEATURE]
    missing = np.int64(bins.first[feature + 1]) - np.int64(bins.first[feature]) - 1
    starts, ends = blocks.starts[block], blocks.ends[block]
    start, end = starts[leaf], ends[leaf]
    other = space.other[blocks.bounds[block] : blocks.bounds[block + 1]]
    middle = divide(
        rows, codes, slots, space.order, other, start, end, feature, cursor[CUT], bins.categorical[feature], missing,
        space.open[leaf, MISSING_LEFT],
    )  # fmt: skip
    ends[leaf] = middle
    starts[new], ends[new] = middle, end
    counted = cursor[COUNTED]
    if counted != _NONE:
        places = candidates.places[iteration]
        count_rows(
            blocks.sums[block], rows, bins.first, candidates.first, places, layout, space.order, starts[counted],
            ends[counted],
        )  # fmt: skip


@inner
def _label_block(forest, slots, space, blocks, block, tree):
    """Write which leaf of a tree a block's samples are in."""
    n_places = 2 * forest.stats.shape[1] + 1
    leaf_of = forest.leaf_of[tree]
    for leaf in range(blocks.cursor[N_OPEN]):
        number = forest.states[tree * n_places + space.open[leaf, PLACE]]["leaf"]
        for i in range(blocks.starts[block, leaf], blocks.ends[block, leaf]):
            leaf_of[np.uint64(slots[np.uint64(space.order[np.uint64(i)])])] = number


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
def _open_root(forest, bins, candidates, rules, space, blocks, tree):
    n_places = 2 * forest.stats.shape[1] + 1
    total = np.int64(0)
    for block in range(blocks.totals.shape[0]):
        total += blocks.totals[block]
    forest.states[tree * n_places]["sums"] = total
    _add_up(blocks, space.histograms[0])
    space.open[0, PLACE] = 0
    find_best(forest, candidates.first, bins.categorical, rules, space, tree, 0)
    blocks.cursor[N_OPEN] = 1


@inner
def _begin_split(forest, bins, candidates, rules, space, blocks, iteration, tree, leaf):
    """Write a split of a leaf to the tree, and to the cursor what the blocks need to know."""
    n_places = 2 * forest.stats.shape[1] + 1
    cursor = blocks.cursor
    new = cursor[N_OPEN]
    place, missing_left = space.open[leaf, PLACE], space.open[leaf, MISSING_LEFT]
    pair = free_pair(forest, tree)
    feature, own, cut = write_split(
        forest, bins, candidates, iteration, tree, place, pair, space.open[leaf, BIN], missing_left
    )
    kept, histogram = forest.stats[tree, pair], space.histograms[leaf]
    for i in range(kept.shape[0]):
        kept[i] = histogram[i]
    first = candidates.first
    first_bin = np.int64(first[feature])
    missing = np.int64(first[feature + 1]) - first_bin - 1
    left = sums_of_left(kept, first_bin, own, bins.categorical[feature], missing, missing_left)
    whole = forest.states[tree * n_places + place]["sums"]
    left_row = tree * n_places + 1 + 2 * pair
    forest.states[left_row]["sums"] = left
    forest.states[left_row + 1]["sums"] = whole - left
    space.open[leaf, PLACE], space.open[new, PLACE] = 1 + 2 * pair, 2 + 2 * pair
    cursor[LEAF], cursor[NEW], cursor[FEATURE], cursor[CUT] = leaf, new, feature, cut
    mask = (np.int64(1) << np.int64(rules.shift)) - np.int64(1)
    counted = leaf if 2 * (left & mask) <= (whole & mask) else new
    cursor[COUNTED] = _NONE if new + 1 == space.open.shape[0] else counted


@inner
def _end_split(forest, bins, candidates, rules, space, blocks, tree):
    """Give both children of the leaf at hand their histograms and best splits, unless it was the last split."""
    cursor = blocks.cursor
    leaf, new, counted = cursor[LEAF], cursor[NEW], cursor[COUNTED]
    cursor[N_OPEN] = new + 1
    if counted == _NONE:
        return
    rest = space.histograms[leaf + new - counted]
    # That of the leaf is still its own from before the split.
    if counted == leaf:
        before = space.histograms[leaf]
        for i in range(rest.shape[0]):
            rest[i] = before[i]
    _add_up(blocks, space.histograms[counted])
    part = space.histograms[counted]
    for i in range(rest.shape[0]):
        rest[i] -= part[i]
    find_best(forest, candidates.first, bins.categorical, rules, space, tree, leaf)
    find_best(forest, candidates.first, bins.categorical, rules, space, tree, new)


@inner
def _write_values(forest, rules, space, n_open, tree):
    n_places = 2 * forest.stats.shape[1] + 1
    for leaf in range(n_open):
        row = tree * n_places + space.open[leaf, PLACE]
        value = value_of(forest.states[row]["sums"], rules)
        forest.nodes[row]["value"] = value
        forest.values[tree, forest.states[row]["leaf"]] = value


@inner
def _grow_on(
    forest, bins, candidates, layout, rules, rows, codes, slots, space, blocks, iteration, tree, most_alone, begins
):
    """Grow a tree until a leaf of more than `most_alone` samples is to be split, which the blocks do then.

    begins  the blocks have counted the root; or else they have split a leaf

    Returns whether they are to split one. When not, the tree is grown but for `label_block`.
    """
    if begins:
        _open_root(forest, bins, candidates, rules, space, blocks, tree)
    else:
        _end_split(forest, bins, candidates, rules, space, blocks, tree)
    n_leaves, cursor = space.open.shape[0], blocks.cursor
    while cursor[N_OPEN] < n_leaves:
        best = 0
        for leaf in range(1, cursor[N_OPEN]):
            if space.gains[leaf] > space.gains[best]:
                best = leaf
        if space.gains[best] <= 0.0:
            break
        _begin_split(forest, bins, candidates, rules, space, blocks, iteration, tree, best)
        n_samples = np.int64(0)
        for block in range(blocks.starts.shape[0]):
            n_samples += blocks.ends[block, best] - blocks.starts[block, best]
        if n_samples > most_alone:
            return True
        for block in range(blocks.starts.shape[0]):
            _split_block(bins, candidates, layout, rows, codes, slots, space, blocks, block, iteration)
        _end_split(forest, bins, candidates, rules, space, blocks, tree)
    _write_values(forest, rules, space, cursor[N_OPEN], tree)
    return False


# -- the crew ---------------------------------------------------------------------------------------

# What crew[WHAT] says, and what is in crew[ARGUMENTS:].
_BEGIN = 0  # iteration: derive for all its trees, and count for the first
_COUNT = 1  # iteration, tree
_SPLIT = 2  # iteration, tree
_LABEL = 3  # iteration, tree


@inner
def _do(crew, block, forest, bins, candidates, layout, rules, labels, rows, codes, slots, sums, space, blocks):
    """Do a block's part of what is announced."""
    what, iteration, tree = crew[WHAT], crew[ARGUMENTS], crew[ARGUMENTS + 1]
    if what == _SPLIT:
        _split_block(bins, candidates, layout, rows, codes, slots, space, blocks, block, iteration)
        return
    if what == _LABEL:
        _label_block(forest, slots, space, blocks, block, tree)
        return
    if what == _BEGIN:
        _derive_block(forest, labels, sums, slots, blocks, block, iteration)
    _count_block(
        forest, bins, candidates, layout, rules, rows, codes, slots, space, blocks, block, iteration, tree,
        what == _COUNT,
    )  # fmt: skip


@inner
def _do_all(
    crew, what, iteration, tree, forest, bins, candidates, layout, rules, labels, rows, codes, slots, sums, space,
    blocks,
):  # fmt: skip
    """Have all blocks do something."""
    crew[ARGUMENTS], crew[ARGUMENTS + 1] = iteration, tree
    announce(crew, what, blocks.totals.shape[0])
    block = take(crew)
    while block >= 0:
        _do(crew, block, forest, bins, candidates, layout, rules, labels, rows, codes, slots, sums, space, blocks)
        end_piece(crew)
        block = take(crew)
    await_pieces(crew)


@kernel
def help_out(crew, forest, bins, candidates, layout, rules, labels, rows, codes, slots, sums, space, blocks):
    """Take blocks until the crew is dismissed."""
    block = wait_for_piece(crew)
    while block >= 0:
        _do(crew, block, forest, bins, candidates, layout, rules, labels, rows, codes, slots, sums, space, blocks)
        end_piece(crew)
        block = wait_for_piece(crew)


@kernel
def begin_in_blocks(
    crew, iteration, forest, bins, candidates, layout, rules, labels, rows, codes, slots, sums, space, blocks
):
    """Have all blocks derive for the trees of an iteration, and write its bins; leads the crew."""
    tree = iteration * sums.shape[0]
    _do_all(
        crew, _BEGIN, iteration, tree, forest, bins, candidates, layout, rules, labels, rows, codes, slots, sums, space,
        blocks,
    )  # fmt: skip


@kernel
def grow_in_blocks(
    crew, begin, end, most_alone, forest, bins, candidates, layout, rules, labels, rows, codes, slots, sums, space,
    blocks,
):  # fmt: skip
    """Grow the trees of the iterations from `begin` to before `end`, one after the other; leads the crew."""
    n_groups = sums.shape[0]
    for iteration in range(begin, end):
        for k in range(n_groups):
            tree = iteration * n_groups + k
            _do_all(
                crew, _BEGIN if k == 0 else _COUNT, iteration, tree, forest, bins, candidates, layout, rules, labels,
                rows, codes, slots, sums, space, blocks,
            )  # fmt: skip
            begins = True
            while _grow_on(
                forest, bins, candidates, layout, rules, rows, codes, slots, space, blocks, iteration, tree,
                most_alone, begins,
            ):  # fmt: skip
                begins = False
                _do_all(
                    crew, _SPLIT, iteration, tree, forest, bins, candidates, layout, rules, labels, rows, codes, slots,
                    sums, space, blocks,
                )  # fmt: skip
            _do_all(
                crew, _LABEL, iteration, tree, forest, bins, candidates, layout, rules, labels, rows, codes, slots,
                sums, space, blocks,
            )  # fmt: skip
