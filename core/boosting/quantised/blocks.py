"""The growth of iterations in threads, with the result that `grow.grow_iterations` has in one.

The trees of several classes are grown side by side if there are at least as many as threads, and so are the regions of
a tree, if there are any. Otherwise the samples are cut into blocks of rows, and all threads grow one tree together,
level by level:

    derive      each block      the scores after the last iteration, the derivatives before the next one
    search      the caller      adds up the blocks' histograms, finds the best splits of a level, makes leaves
    divide      each block      divides its samples by these splits, and fills histograms of the smaller children

The blocks are pieces that the threads of a crew take (`core/jit/crew.py`). Every function does what `grow.py` does for
all samples at once. Which child is the smaller is known only when all blocks have divided their samples, so the one
with the lower hessian is counted.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Ints
from oubli.core.boosting import rows
from oubli.core.boosting.histogram import clear, hessian_of, reduce_bins, subtract
from oubli.core.boosting.quantised import grow
from oubli.core.boosting.quantised import state as s
from oubli.core.boosting.quantised.derivatives import BINARY, derive_binary, derive_one, should_stop, total_loss
from oubli.core.boosting.quantised.split import CUT, FEATURE, LEFT_TOTAL, MISSING_LEFT
from oubli.core.concurrency import threads
from oubli.core.jit.crew import ARGUMENTS, WHAT, announce, await_pieces, end_piece, make_crew, take, wait_for_piece
from oubli.core.jit.policy import inner, kernel, pasted

Result = TypeVar("Result")

NO_FILL = -1

# What `_derive_block` does.
ROLL = 1
KEEP = 2
LOSS = 4
DERIVE = 8

_BLOCKS_A_THREAD = 3  # a thread that wakes up late takes fewer
_CELLS_BESIDE = 4  # what dividing, deriving and adding up a sample is worth, in cells that are summed
# What crew[WHAT] says, and what is in crew[ARGUMENTS:].
_DERIVE = 0  # iteration, parts
_DIVIDE = 1  # tree, depth

_OWN = ("members", "spare", "first", "last", "sums", "found", "lefts", "gains", "grows")


class Blocks(NamedTuple):
    """Working space of B blocks, of the samples in n slots."""

    slots: npt.NDArray[np.int32]  # int32[n]
    bounds: Ints  # int64[B + 1]: where the blocks begin in `slots` and in `members`
    edges: Ints  # int64[B + 1]: where they begin among all slots, to derive
    members: npt.NDArray[np.int32]  # int32[n]: each block's samples, node by node
    spare: npt.NDArray[np.int32]  # int32[n]
    first: Ints  # int64[B, heap + 1]: where a node's samples begin in `members`
    last: Ints  # int64[B, heap + 1]
    totals: Ints  # int64[B, heap]: sums of derivatives, of left children of nodes above `top`
    roots: Ints  # int64[B, groups]: of all samples
    firsts: Ints  # int64[groups]: sums of the derivatives at F_0
    losses: Ints  # int64[B]: of the samples that validate
    sums: Ints  # int64[B, n, places]: histograms
    fills: Ints  # int64[heap]: which of these are a node's; NO_FILL: none
    values: npt.NDArray[np.int32]  # int32[groups, labels]: values of the leaves of the trees before


def make_blocks(model: s.Model, slots: npt.NDArray[np.int32], n_blocks: int, *, fills: bool) -> Blocks:
    """Cut the samples of some slots in so many blocks; `fills`: whether trees are grown block by block."""
    rules, first, n_places = model.rules, model.samples.first, model.plans.cuts.shape[1]
    groups, capacity = first.shape
    n_heap = 2 ** (rules.depth + 1) - 1
    n = len(slots) if fills else 0
    # One child of each node is filled; at depth `top` both are.
    n_sums = max(2**rules.top, 2 ** max(rules.depth - 2, 0)) if fills else 0
    return Blocks(
        slots=slots,
        bounds=np.array(rows.cut(len(slots), n_blocks), np.int64),
        edges=np.array(rows.cut(capacity, n_blocks), np.int64),
        members=np.zeros(n, np.int32),
        spare=np.zeros(n, np.int32),
        first=np.zeros((n_blocks, n_heap + 1), np.int64),
        last=np.zeros((n_blocks, n_heap + 1), np.int64),
        totals=np.zeros((n_blocks, n_heap), np.int64),
        roots=np.zeros((n_blocks, groups), np.int64),
        firsts=first.sum(axis=1),  # of slots that hold no sample it is 0
        losses=np.zeros(n_blocks, np.int64),
        sums=np.zeros((n_blocks, n_sums, n_places), np.int64),
        fills=np.full(n_heap, NO_FILL, np.int64),
        values=np.zeros((groups, 2**rules.depth + 1), np.int32),
    )


def sum_first_in_threads(
    bin_rows: npt.NDArray[np.unsignedinteger], first: Ints, slots: npt.NDArray[np.int32], space: s.Space, n_threads: int
) -> None:
    """Sum the derivatives at F_0 of some samples, which are sorted by region, to space.root."""
    groups, n_regions = len(first), len(space.grows)
    n = rows.n_blocks(len(slots), bin_rows.shape[1] * groups, n_threads)
    if n == n_regions == 1:
        grow.sum_first(bin_rows, first, slots, space.root)
        return
    begins = space.bounds.tolist()
    # Of one region each: its number, and its samples.
    blocks = [
        (region, slots[begins[region] + start : begins[region] + end])
        for region in range(n_regions)
        for start, end in pairwise(rows.cut(begins[region + 1] - begins[region], n if n_regions == 1 else 1))
    ]
    parts = np.zeros((len(blocks), groups, space.root.shape[1]), np.int64)
    threads.run([partial(grow.sum_first, bin_rows, first, some, parts[i]) for i, (_, some) in enumerate(blocks)], n)
    space.root.fill(0)
    by_region = space.root.reshape(groups, n_regions, -1)
    for part, (region, _) in zip(parts, blocks, strict=True):
        by_region[:, region] += part
    parts.fill(0)


# -- a block's part ---------------------------------------------------------------------------------


@inner
def _derive_block(model, blocks, block, iteration, parts):
    """Take a block's scores past the iteration before and derive from them; `parts` says what is to be done."""
    scores, samples, loss, packed = model.scores, model.samples, model.loss, model.space.packed
    begin, end = blocks.edges[block], blocks.edges[block + 1]
    n_groups = scores.new.shape[0]
    if parts & ROLL:
        for k in range(n_groups):
            labels = model.forest.leaf_of[(iteration - 1) * n_groups + k]
            grow.roll(scores.new[k], labels, blocks.values[k], begin, end)
    if parts & KEEP:
        grow.keep(scores, iteration, begin, end)
    if parts & LOSS:
        blocks.losses[block] = total_loss(loss, scores.new, samples, begin, end)
    if not parts & DERIVE:
        return
    if loss.kind == BINARY:
        derive_binary(loss, scores.new, samples, iteration, packed, begin, end)
    else:
        for slot in range(begin, end):
            derive_one(loss, scores.new, samples, iteration, slot, packed)
    for k in range(n_groups):
        total = np.int64(0)
        for i in range(begin, end):
            total += packed[k, np.uint64(i)]
        blocks.roots[block, k] = total


@pasted
def _divide_node(model, blocks, block, tree, node, depth):
    """Divide a block's samples at a node, and label those that have come to a leaf."""
    forest, rules, members = model.forest, model.rules, blocks.members
    first, last = blocks.first[block], blocks.last[block]
    low, width, extra = grow.split_range(forest.nodes, tree, node, model.bins)
    codes = model.bins.codes[forest.nodes[tree, node]["feature"]]
    begin, end = first[node], last[node]
    spare = blocks.spare[blocks.bounds[block] : blocks.bounds[block + 1]]
    middle = grow.split_members(members, spare, begin, end, codes, low, width, extra)
    left, right = 2 * node + 1, 2 * node + 2
    first[left], last[left] = begin, middle
    first[right], last[right] = middle, end
    if depth < rules.top:
        packed, total = model.space.packed[tree % model.scores.new.shape[0]], np.int64(0)
        for i in range(begin, middle):
            total += packed[np.uint64(members[i])]
        blocks.totals[block, left] = total
    if depth + 1 == rules.depth:
        leaf_of = forest.leaf_of[tree]
        grow.label_members(leaf_of, members, begin, middle, grow.label_of(left, depth + 1, rules.depth))
        grow.label_members(leaf_of, members, middle, end, grow.label_of(right, depth + 1, rules.depth))


@inner
def _divide_block(model, blocks, block, tree, depth):
    """Divide a block's samples by the splits of a level, and fill the histograms of the next one.

    depth  -1: begin with all samples; that of the root is not divided
    """
    forest, rules, n_groups = model.forest, model.rules, model.scores.new.shape[0]
    first, last = blocks.first[block], blocks.last[block]
    iteration, group = tree // n_groups, tree % n_groups
    if depth < 0 or (depth == 0 and rules.top > 0):
        for i in range(blocks.bounds[block], blocks.bounds[block + 1]):
            blocks.members[i] = blocks.slots[i]
        first[0], last[0] = blocks.bounds[block], blocks.bounds[block + 1]
    if depth >= 0:
        for node in range((1 << depth) - 1, (2 << depth) - 1):
            feature = forest.nodes[tree, node]["feature"]
            if feature >= 0:
                _divide_node(model, blocks, block, tree, node, depth)
            elif feature == s.LEAF:
                label = grow.label_of(node, depth, rules.depth)
                grow.label_members(forest.leaf_of[tree], blocks.members, first[node], last[node], label)
    if depth + 1 == rules.depth:
        return
    derivatives = model.samples.first[group] if depth + 1 < rules.top else model.space.packed[group]
    places = model.plans.places[iteration]
    below = np.int64(1) << (depth + 1)
    for node in range(below - 1, 2 * below - 1):
        fill = blocks.fills[node]
        if fill != NO_FILL:
            sums = blocks.sums[block, fill]
            clear(sums)
            grow.fill_rows(sums, model.bins.rows, places, blocks.members, first[node], last[node], derivatives)


# -- the caller's part ------------------------------------------------------------------------------


@inner
def _add_up(blocks, fill, sums):
    """Write the sum of the blocks' histograms."""
    for i in range(sums.shape[0]):
        sums[i] = blocks.sums[0, fill, i]
    for block in range(1, blocks.sums.shape[0]):
        part = blocks.sums[block, fill]
        for i in range(sums.shape[0]):
            sums[i] += part[i]


@inner
def _take_sums(forest, tree, node, blocks):
    """Give a node the histogram that the blocks have filled."""
    pool_block = grow.take_block(forest)
    forest.nodes[tree, node]["block"] = np.int32(pool_block)
    _add_up(blocks, blocks.fills[node], forest.pool[pool_block])


@inner
def _take_pair(model, blocks, tree, node, depth):
    """Give the children of a node, which are at a depth, histograms: one is filled, the other one the difference."""
    forest, rules = model.forest, model.rules
    small, large = 2 * node + 1, 2 * node + 2
    if blocks.fills[small] == NO_FILL:
        small, large = large, small
    if blocks.fills[small] == NO_FILL:
        return
    sums = model.space.sums
    if grow.may_split(forest, tree, small, depth, rules):
        _take_sums(forest, tree, small, blocks)
        sums = forest.pool[np.int64(forest.nodes[tree, small]["block"])]
    else:
        _add_up(blocks, blocks.fills[small], sums)
    if grow.may_split(forest, tree, large, depth, rules):
        pool_block = grow.take_block(forest)
        forest.nodes[tree, large]["block"] = np.int32(pool_block)
        subtract(forest.pool[np.int64(forest.nodes[tree, node]["block"])], sums, forest.pool[pool_block])


@inner
def _complete_children(model, blocks, tree, node, depth):
    """Write counts, totals and histograms of a node's children, which are at a depth, from what the blocks say."""
    forest, nodes, rules = model.forest, model.forest.nodes, model.rules
    left, right = 2 * node + 1, 2 * node + 2
    for child in range(left, right + 1):
        count = np.int64(0)
        for block in range(blocks.first.shape[0]):
            count += blocks.last[block, child] - blocks.first[block, child]
        nodes[tree, child]["count"] = np.int32(count)
    if depth <= rules.top:
        total = np.int64(0)
        for block in range(blocks.first.shape[0]):
            total += blocks.totals[block, left]
        nodes[tree, left]["total"] = total
        nodes[tree, right]["total"] = nodes[tree, node]["total"] - total
    if depth == rules.depth:
        return
    if depth == rules.top:
        for child in range(left, right + 1):
            if blocks.fills[child] != NO_FILL and grow.may_split(forest, tree, child, depth, rules):
                _take_sums(forest, tree, child, blocks)
    else:
        _take_pair(model, blocks, tree, node, depth)


@inner
def _open(model, blocks, tree, node, depth, n_fills):
    """Split a node as `space.found` says, and choose the histograms to be filled; returns how many there are by now."""
    forest, nodes, rules, found = model.forest, model.forest.nodes, model.rules, model.space.found
    grow.set_split(nodes, tree, node, found[FEATURE], found[CUT], found[MISSING_LEFT])
    left, right = 2 * node + 1, 2 * node + 2
    total = found[LEFT_TOTAL]
    whole = nodes[tree, node]["total"]
    if depth < rules.top:
        whole = nodes[tree, node]["first_total"]
        nodes[tree, left]["first_total"] = total
        nodes[tree, right]["first_total"] = whole - total
    else:
        nodes[tree, left]["total"] = total
        nodes[tree, right]["total"] = whole - total
    blocks.fills[left] = NO_FILL
    blocks.fills[right] = NO_FILL
    if depth + 1 == rules.depth:
        return n_fills
    if depth + 1 == rules.top:
        # Their totals are not known yet, and the parent's histogram is one of other derivatives.
        blocks.fills[left] = n_fills
        blocks.fills[right] = n_fills + 1
        return n_fills + 2
    if grow.may_split(forest, tree, left, depth + 1, rules) or grow.may_split(forest, tree, right, depth + 1, rules):
        small = left if 2 * hessian_of(total) <= hessian_of(whole) else right
        blocks.fills[small] = n_fills
        return n_fills + 1
    return n_fills


@inner
def _begin_tree(model, blocks, tree):
    """Make room for a tree."""
    grow.free_block(model.forest, tree, 0)
    grow.remove_below(model.forest, tree, 0)
    for node in range(blocks.fills.shape[0]):
        blocks.fills[node] = NO_FILL
    if model.rules.top == 0:
        blocks.fills[0] = 0


@inner
def _open_root(model, blocks, tree):
    """Give the root of a tree its totals and its histogram."""
    forest, nodes, n_groups = model.forest, model.forest.nodes, model.scores.new.shape[0]
    group = tree % n_groups
    total = np.int64(0)
    for block in range(blocks.roots.shape[0]):
        total += blocks.roots[block, group]
    nodes[tree, 0]["total"] = total
    nodes[tree, 0]["first_total"] = blocks.firsts[group]
    nodes[tree, 0]["count"] = np.int32(blocks.slots.shape[0])
    if not grow.may_split(forest, tree, 0, 0, model.rules):
        return
    if model.rules.top > 0:
        pool_block = grow.take_block(forest)
        nodes[tree, 0]["block"] = np.int32(pool_block)
        reduce_bins(model.space.root[group], model.plans.places[tree // n_groups], forest.pool[pool_block])
    else:
        _take_sums(forest, tree, 0, blocks)


@inner
def _search_level(model, blocks, tree, depth):
    """Find the splits of a level's nodes, whose samples the blocks have divided and counted.

    Writes the values of the leaves after the lowest level.
    """
    nodes, rules, key = model.forest.nodes, model.rules, grow.leaf_key(model.seed_key, tree)
    n_fills = np.int64(0)
    if depth == 0:
        _open_root(model, blocks, tree)
    for node in range((1 << depth) - 1, (2 << depth) - 1):
        if node > 0:
            parent = (node - 1) >> 1
            if nodes[tree, parent]["feature"] < 0:
                continue
            if node & 1:
                _complete_children(model, blocks, tree, parent, depth)
        grow.search_node(model, tree, node, depth, key)
        if model.space.found[FEATURE] != s.LEAF:
            n_fills = _open(model, blocks, tree, node, depth, n_fills)
        else:
            grow.make_leaf(model.forest, tree, node, key, rules)
    if depth == rules.depth:
        grow.bound_leaves(model.forest, tree, key, rules)
        grow.leaf_values(model.forest, tree, rules.depth, blocks.values[tree % model.scores.new.shape[0]])


# -- one tree after the other: a crew shares blocks ---------------------------------------------------


@inner
def _do(crew, block, model, blocks):
    """Do a block's part of what is announced."""
    if crew[WHAT] == _DERIVE:
        _derive_block(model, blocks, block, crew[ARGUMENTS], crew[ARGUMENTS + 1])
    else:
        _divide_block(model, blocks, block, crew[ARGUMENTS], crew[ARGUMENTS + 1])


@inner
def _do_all(crew, model, blocks, what, first, second):
    """Have all blocks do something."""
    crew[ARGUMENTS], crew[ARGUMENTS + 1] = first, second
    announce(crew, what, blocks.losses.shape[0])
    block = take(crew)
    while block >= 0:
        _do(crew, block, model, blocks)
        end_piece(crew)
        block = take(crew)
    await_pieces(crew)


@kernel
def help_out(crew, model, blocks):
    """Take blocks until the crew is dismissed."""
    block = wait_for_piece(crew)
    while block >= 0:
        _do(crew, block, model, blocks)
        end_piece(crew)
        block = wait_for_piece(crew)


@kernel
def derive_in_blocks(crew, model, blocks, iteration, parts):
    """Have all blocks derive."""
    _do_all(crew, model, blocks, _DERIVE, iteration, parts)


@kernel
def grow_in_blocks(crew, model, blocks, report, begin, end, patience):
    """Grow the iterations from `begin` on, see `grow.grow_iterations`; leads the crew."""
    forest, rules, losses, n_groups = model.forest, model.rules, model.scores.losses, model.scores.new.shape[0]
    parts = DERIVE
    for iteration in range(begin, end):
        has_room = forest.meta[s.N_FREE] >= n_groups * ((1 << rules.depth) - 1)
        _do_all(crew, model, blocks, _DERIVE, iteration, parts if has_room else parts & ~DERIVE)
        if not has_room:
            return iteration, grow.NO_BLOCKS
        for tree in range(iteration * n_groups, (iteration + 1) * n_groups):
            _begin_tree(model, blocks, tree)
            for depth in range(0 if rules.top > 0 else -1, rules.depth + 1):
                if depth >= 0:
                    _search_level(model, blocks, tree, depth)
                if depth < rules.depth:
                    _do_all(crew, model, blocks, _DIVIDE, tree, depth)
        parts = ROLL | KEEP | DERIVE
        if patience > 0:
            _do_all(crew, model, blocks, _DERIVE, iteration + 1, ROLL | KEEP | LOSS)
            parts = DERIVE
            losses[iteration] = 0
            for block in range(blocks.losses.shape[0]):
                losses[iteration] += blocks.losses[block]
            report[s.BEST_ITERATION], stops = should_stop(losses, iteration, report[s.BEST_ITERATION], patience)
            if stops:
                return iteration + 1, grow.DONE
    _do_all(crew, model, blocks, _DERIVE, end, parts & ~DERIVE)
    return end, grow.DONE


# -- trees and regions side by side -------------------------------------------------------------------


@kernel
def grow_part(model, tree, slots):
    """Grow the regions of a tree that are to grow; what is written to belongs to them."""
    grow.grow_regions(model, tree, slots)


@kernel
def complete_trees(model, first_tree, values):
    """Join the regions of some trees and write the values of their leaves; values: int32[groups, labels]."""
    forest, rules = model.forest, model.rules
    for group in range(values.shape[0]):
        tree = first_tree + group
        grow.set_cuts(forest, tree, rules)
        grow.bound_leaves(forest, tree, grow.leaf_key(model.seed_key, tree), rules)
        grow.leaf_values(forest, tree, rules.depth, values[group])


class ThreadedTraining:
    """Iterations grown in threads, on the samples of some slots; `pays` says whether that is worth it.

    Memory is asked for when it is made; growing asks for none that matters.
    """

    def __init__(self, model: s.Model, slots: npt.NDArray[np.int32], n_threads: int) -> None:
        groups, width, space = len(model.scores.new), model.bins.rows.shape[1], model.space
        n_blocks = rows.n_blocks(len(slots), width // 2 + _CELLS_BESIDE, _BLOCKS_A_THREAD * n_threads)
        self._by_tree = model.rules.levels > 0 or (groups > 1 and (groups >= n_threads or n_blocks == 1))
        self.pays = n_blocks > 1
        if self._by_tree:
            self.pays = rows.n_blocks(len(slots) * groups, width, n_threads) > 1
            n_blocks = rows.n_blocks(len(slots), 4 * groups, n_threads)
        if not self.pays:
            return
        self._n_threads, self._groups = n_threads, groups
        self._blocks = make_blocks(model, slots, n_blocks, fills=not self._by_tree)
        self._crew = make_crew(min(n_blocks, n_threads))
        # Where there are as many classes as threads, a piece is a tree; else it is a region of one.
        regions: list[tuple[int, ...]] = [tuple(np.flatnonzero(space.grows).tolist())]
        if groups < n_threads:
            regions = [(region,) for region in regions[0]]
        self._pieces = [(group, some) for group in range(groups) for some in regions]
        # Working space of a tree: derivatives and their sums at the root are those of all trees.
        self._spaces = [
            space._replace(**{name: np.zeros_like(getattr(space, name)) for name in _OWN})
            for _ in range(min(n_threads, len(self._pieces)) if self._by_tree else 0)
        ]

    def erase(self) -> None:
        """Overwrite what samples have left."""
        for array in (*self._blocks, *(getattr(space, name) for space in self._spaces for name in _OWN)):
            array.fill(0)

    def grow_iterations(self, model: s.Model, report: Ints, begin: int, end: int, patience: int) -> tuple[int, int]:
        """Grow the iterations from `begin` on; see `grow.grow_iterations`."""
        report[s.DRIFTS] = 1
        if self._by_tree:
            return self._grow_side_by_side(model, report, begin, end, patience)
        done: tuple[int, int] = self._lead(model, grow_in_blocks, report, begin, end, patience)
        return done

    def _lead(self, model: s.Model, work: Callable[..., Result], *arguments: Any) -> Result:
        """Do something with the crew."""
        parts = self._crew, model, self._blocks
        return rows.lead(self._crew, partial(work, *parts, *arguments), partial(help_out, *parts))

    def _grow_side_by_side(self, model: s.Model, report: Ints, begin: int, end: int, patience: int) -> tuple[int, int]:
        parts, losses = DERIVE, model.scores.losses
        for iteration in range(begin, end):
            has_room = model.forest.meta[s.N_FREE] >= self._groups * (2**model.rules.depth - 1)
            self._lead(model, derive_in_blocks, iteration, parts if has_room else parts & ~DERIVE)
            if not has_room:
                return iteration, grow.NO_BLOCKS
            self._grow_trees(model, iteration)
            parts = ROLL | KEEP | DERIVE
            if patience > 0:
                self._lead(model, derive_in_blocks, iteration + 1, ROLL | KEEP | LOSS)
                parts = DERIVE
                losses[iteration] = self._blocks.losses.sum()
                if iteration == 0 or losses[iteration] < losses[report[s.BEST_ITERATION]]:
                    report[s.BEST_ITERATION] = iteration
                if iteration - report[s.BEST_ITERATION] >= patience:
                    return iteration + 1, grow.DONE
        self._lead(model, derive_in_blocks, end, parts & ~DERIVE)
        return end, grow.DONE

    def _grow_trees(self, model: s.Model, iteration: int) -> None:
        """Grow the trees of an iteration; each piece takes blocks from a list of its own, and gives back to it."""
        forest, rules = model.forest, model.rules
        most = [len(regions) * (2 ** (rules.depth - rules.levels) - 1) for _, regions in self._pieces]
        ends = int(forest.meta[s.N_FREE]) - sum(most) + np.cumsum(most)
        # What was there before gives back as many as it may take.
        lists = [
            forest._replace(
                free=np.concatenate([forest.free[end - n : end], np.zeros(n, np.int32)]), meta=np.array([n], np.int64)
            )
            for end, n in zip(ends.tolist(), most, strict=True)
        ]
        threads.run(
            [
                partial(self._grow_piece, model._replace(forest=own), iteration * self._groups + group, regions)
                for own, (group, regions) in zip(lists, self._pieces, strict=True)
            ],
            self._n_threads,
        )
        free = np.concatenate([own.free[: int(own.meta[s.N_FREE])] for own in lists])
        n_free = int(forest.meta[s.N_FREE]) - sum(most)
        forest.free[n_free : n_free + len(free)] = free
        forest.meta[s.N_FREE] = n_free + len(free)
        complete_trees(model, iteration * self._groups, self._blocks.values)

    def _grow_piece(self, model: s.Model, tree: int, regions: tuple[int, ...]) -> None:
        space = self._spaces.pop()
        space.grows.fill(0)
        space.grows[list(regions)] = 1
        grow_part(model._replace(space=space), tree, self._blocks.slots)
        self._spaces.append(space)
