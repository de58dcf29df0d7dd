"""Growing a tree level by level on blocks of rows, each of which is a thread's.

    derive      each block      the scores after the last iteration, the derivatives before the next one
    search      the caller      adds up the blocks' histograms, finds the best splits of a level, makes leaves
    divide      each block      divides its samples by these splits, and fills histograms of the smaller children

The blocks are pieces that the threads of a crew take, see `parallel.py`.

Every function does what `grow.py` and `training.py` do for all samples at once. Which child is the smaller is known
only when all blocks have divided their samples; the one with the lower hessian is taken for it.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Ints
from oubli.core.boosting.histogram import clear, hessian_of, reduce_bins, subtract
from oubli.core.boosting.quantised import state as s
from oubli.core.boosting.quantised.gradients import BINARY, derive_binary, derive_one
from oubli.core.boosting.quantised.grow import (
    fill_rows,
    free_block,
    label_of,
    leaf_key,
    make_leaf,
    may_split,
    remove_below,
    split_members,
    split_range,
    take_block,
)
from oubli.core.boosting.quantised.rolling import leaf_values, roll
from oubli.core.boosting.quantised.split import CUT, FEATURE, LEFT_TOTAL, MISSING_LEFT, search
from oubli.core.boosting.quantised.state import EVERY, LEAF, NO_BLOCK, VALIDATES
from oubli.core.boosting.quantised.validate import loss_of
from oubli.core.boosting.rows import cut
from oubli.core.jit.policy import inner
from oubli.core.rng import combine

NO_FILL = -1

# What `derive_block` does.
ROLL = 1
KEEP = 2
LOSS = 4
DERIVE = 8


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

    @property
    def number(self) -> int:
        """B."""
        return len(self.losses)

    def erase(self) -> None:
        """Overwrite what samples have left."""
        for array in self:
            array.fill(0)


def make_blocks(
    slots: npt.NDArray[np.int32], n_blocks: int, first: Ints, rules: s.Rules, n_places: int, *, fills: bool
) -> Blocks:
    """Cut the samples of some slots in so many blocks.

    first : derivatives at F_0 by slot, int64[groups, slots].
    fills : whether trees are grown block by block.
    """
    groups, capacity = first.shape
    n_heap = 2 ** (rules.depth + 1) - 1
    n = len(slots) if fills else 0
    # One child of each node is filled; at depth `top` both are.
    n_sums = max(2**rules.top, 2 ** max(rules.depth - 2, 0)) if fills else 0
    return Blocks(
        slots=slots,
        bounds=np.array(cut(len(slots), n_blocks), np.int64),
        edges=np.array(cut(capacity, n_blocks), np.int64),
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
    )


# -- scores and derivatives -------------------------------------------------------------------------


@inner
def _keep(scores, iteration, begin, end):
    """Keep the scores of some slots before an iteration, if it is one of those."""
    if iteration % EVERY == 0:
        kept = scores.kept[iteration // EVERY]
        for k in range(kept.shape[0]):
            for slot in range(begin, end):
                kept[k, slot] = scores.new[k, slot]


@inner
def _derive(scores, samples, loss, packed, blocks, block, iteration, begin, end):
    """Write the packed derivatives of some slots, and their sums."""
    if loss.kind == BINARY:
        mine = s.Samples(
            samples.roles[begin:end],
            samples.labels[begin:end],
            samples.y[begin:end],
            samples.rounding[begin:end],
            samples.first,
        )
        derive_binary(loss, scores.new[0][begin:end], mine, iteration, packed[0][begin:end])
    else:
        for slot in range(begin, end):
            derive_one(loss, scores.new, samples, iteration, slot, packed)
    for k in range(packed.shape[0]):
        total = np.int64(0)
        for slot in range(begin, end):
            total += packed[k, slot]
        blocks.roots[block, k] = total


@inner
def derive_block(leaf_of, values, scores, samples, loss, packed, blocks, block, iteration, parts):
    """Take a block's scores past the iteration before and derive from them; `parts` says what is to be done.

    values  int32[groups, labels]: the values of the leaves of the trees before
    """
    begin, end = blocks.edges[block], blocks.edges[block + 1]
    n_groups = scores.new.shape[0]
    if parts & ROLL:
        for k in range(n_groups):
            labels = leaf_of[(iteration - 1) * n_groups + k]
            roll(scores.new[k][begin:end], labels[begin:end], values[k])
    if parts & KEEP:
        _keep(scores, iteration, begin, end)
    if parts & LOSS:
        total = np.int64(0)
        for slot in range(begin, end):
            if samples.roles[slot] == VALIDATES:
                total += loss_of(loss, scores.new, samples, slot)
        blocks.losses[block] = total
    if parts & DERIVE:
        _derive(scores, samples, loss, packed, blocks, block, iteration, begin, end)


# -- a block's part of a tree -----------------------------------------------------------------------


@inner
def _label(leaf_of, members, first, last, label):
    for i in range(first, last):
        leaf_of[np.uint64(members[i])] = label


@inner
def _divide(forest, tree, node, depth, bins, rules, blocks, block, packed):
    """Divide a block's samples at a node, and label those that have come to a leaf."""
    first, last, members = blocks.first[block], blocks.last[block], blocks.members
    low, width, extra = split_range(forest.nodes, tree, node, bins)
    codes = bins.codes[forest.nodes[tree, node]["feature"]]
    begin, end = first[node], last[node]
    spare = blocks.spare[blocks.bounds[block] : blocks.bounds[block + 1]]
    middle = split_members(members, spare, begin, end, codes, low, width, extra)
    left, right = 2 * node + 1, 2 * node + 2
    first[left], last[left] = begin, middle
    first[right], last[right] = middle, end
    if depth < rules.top:
        total = np.int64(0)
        for i in range(begin, middle):
            total += packed[np.uint64(members[i])]
        blocks.totals[block, left] = total
    if depth + 1 == rules.depth:
        _label(forest.leaf_of[tree], members, begin, middle, label_of(left, depth + 1, rules.depth))
        _label(forest.leaf_of[tree], members, middle, end, label_of(right, depth + 1, rules.depth))


@inner
def divide_block(forest, tree, depth, bins, places, rules, blocks, block, packed, first):
    """Divide a block's samples by the splits of a level, and fill the histograms of the next one.

    depth  -1: begin with all samples; that of the root is not divided
    """
    if depth < 0 or (depth == 0 and rules.top > 0):
        for i in range(blocks.bounds[block], blocks.bounds[block + 1]):
            blocks.members[i] = blocks.slots[i]
        blocks.first[block, 0] = blocks.bounds[block]
        blocks.last[block, 0] = blocks.bounds[block + 1]
    if depth >= 0:
        for node in range((1 << depth) - 1, (2 << depth) - 1):
            feature = forest.nodes[tree, node]["feature"]
            if feature >= 0:
                _divide(forest, tree, node, depth, bins, rules, blocks, block, packed)
            elif feature == LEAF:
                begin, end = blocks.first[block, node], blocks.last[block, node]
                label = label_of(node, depth, rules.depth)
                _label(forest.leaf_of[tree], blocks.members, begin, end, label)
    if depth + 1 == rules.depth:
        return
    derivatives = first if depth + 1 < rules.top else packed
    below = np.int64(1) << (depth + 1)
    for node in range(below - 1, 2 * below - 1):
        fill = blocks.fills[node]
        if fill != NO_FILL:
            sums = blocks.sums[block, fill]
            clear(sums)
            fill_rows(
                sums, bins.rows, places, blocks.members, blocks.first[block, node], blocks.last[block, node],
                derivatives,
            )  # fmt: skip


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
    pool_block = take_block(forest)
    forest.nodes[tree, node]["block"] = np.int32(pool_block)
    _add_up(blocks, blocks.fills[node], forest.pool[pool_block])


@inner
def _take_pair(forest, tree, node, depth, rules, space, blocks):
    """Give the children of a node, which are at a depth, histograms: one is filled, the other one the difference."""
    small, large = 2 * node + 1, 2 * node + 2
    if blocks.fills[small] == NO_FILL:
        small, large = large, small
    if blocks.fills[small] == NO_FILL:
        return
    sums = space.sums
    if may_split(forest, tree, small, depth, rules):
        _take_sums(forest, tree, small, blocks)
        sums = forest.pool[np.int64(forest.nodes[tree, small]["block"])]
    else:
        _add_up(blocks, blocks.fills[small], sums)
    if may_split(forest, tree, large, depth, rules):
        pool_block = take_block(forest)
        forest.nodes[tree, large]["block"] = np.int32(pool_block)
        subtract(forest.pool[np.int64(forest.nodes[tree, node]["block"])], sums, forest.pool[pool_block])


@inner
def _complete_children(forest, tree, node, depth, rules, space, blocks):
    """Write counts, totals and histograms of a node's children, which are at a depth, from what the blocks say."""
    nodes = forest.nodes
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
            if blocks.fills[child] != NO_FILL and may_split(forest, tree, child, depth, rules):
                _take_sums(forest, tree, child, blocks)
    else:
        _take_pair(forest, tree, node, depth, rules, space, blocks)


@inner
def _open(forest, tree, node, depth, rules, found, blocks, n_fills):
    """Split a node as `found` says, and choose the histograms to be filled; returns how many there are by now."""
    nodes = forest.nodes
    nodes[tree, node]["feature"] = np.int32(found[FEATURE])
    nodes[tree, node]["cut"] = np.int32(found[CUT])
    nodes[tree, node]["missing_left"] = np.uint8(found[MISSING_LEFT])
    nodes[tree, node]["value"] = np.int32(0)
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
    if may_split(forest, tree, left, depth + 1, rules) or may_split(forest, tree, right, depth + 1, rules):
        small = left if 2 * hessian_of(total) <= hessian_of(whole) else right
        blocks.fills[small] = n_fills
        return n_fills + 1
    return n_fills


@inner
def begin_tree(forest, tree, rules, blocks):
    """Make room for a tree."""
    free_block(forest, tree, 0)
    remove_below(forest, tree, 0)
    for node in range(blocks.fills.shape[0]):
        blocks.fills[node] = NO_FILL
    if rules.top == 0:
        blocks.fills[0] = 0


@inner
def search_level(forest, tree, depth, bins, plans, iteration, rules, space, blocks, group, seed_key, values):
    """Find the splits of a level's nodes, whose samples the blocks have divided and counted.

    Writes the values of the leaves after the lowest level. values: int32[groups, labels]
    """
    nodes = forest.nodes
    key = leaf_key(seed_key, tree)
    n_fills = np.int64(0)
    if depth == 0:
        total = np.int64(0)
        for block in range(blocks.roots.shape[0]):
            total += blocks.roots[block, group]
        nodes[tree, 0]["total"] = total
        nodes[tree, 0]["first_total"] = blocks.firsts[group]
        nodes[tree, 0]["count"] = np.int32(blocks.slots.shape[0])
        if may_split(forest, tree, 0, 0, rules):
            if rules.top > 0:
                pool_block = take_block(forest)
                nodes[tree, 0]["block"] = np.int32(pool_block)
                reduce_bins(space.root[group], plans.places[iteration], forest.pool[pool_block])
            else:
                _take_sums(forest, tree, 0, blocks)
    for node in range((1 << depth) - 1, (2 << depth) - 1):
        if node > 0:
            parent = (node - 1) >> 1
            if nodes[tree, parent]["feature"] < 0:
                continue
            if node & 1:
                _complete_children(forest, tree, parent, depth, rules, space, blocks)
        space.found[FEATURE] = LEAF
        block = np.int64(nodes[tree, node]["block"])
        if block != NO_BLOCK:
            total = nodes[tree, node]["first_total"] if depth < rules.top else nodes[tree, node]["total"]
            node_key = combine(key, np.uint64(node))
            search(forest.pool[block], total, bins, plans, iteration, rules, depth, node_key, space)
        if space.found[FEATURE] != LEAF:
            n_fills = _open(forest, tree, node, depth, rules, space.found, blocks, n_fills)
        else:
            make_leaf(forest, tree, node, key, rules)
    if depth == rules.depth:
        leaf_values(forest, tree, rules.depth, values[group])
