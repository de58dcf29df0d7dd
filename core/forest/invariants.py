"""Checks of everything that a forest keeps: for a file before its trees are used, for `verify` and for tests.

Freed rows must be zero. Kernels rely on it where they take rows from the free lists, and so does the promise that
memory and files hold nothing of deleted samples.

`find_faults` sends all samples down the trees again, and compares counters and lists with the result. It finds
nothing in counters of candidates but that they add up. Where there is a fresh fit with equal trees, everything is
compared with that, these counters included. The digest does not cover them: they are read by later mutations only.
Both forests hold the same samples in different slots, and may number the classes differently.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Bools, Ints
from oubli.core.concurrency.threads import is_long, run
from oubli.core.engine import wrong_numbers
from oubli.core.errors import expect
from oubli.core.forest.layout.blocks import (
    AT_HI,
    AT_LO,
    ATTRIBUTE,
    ATTRIBUTE_SIZE,
    IS_COUNTED,
    MISSING,
    N_ATTRIBUTES,
    N_CELLS,
    NEXT_FREE,
    NO_VALUE,
    REPRESENTATIVE,
    Blocks,
    Forest,
    counters_of,
)
from oubli.core.forest.layout.cells import ForestData, pack_rows
from oubli.core.forest.layout.draws import drawn_trees
from oubli.core.forest.state import (
    BLOCKS,
    DIRTY,
    FREE_ROOMS,
    LEAVES,
    MAX_ROOM,
    N_MEMBERS,
    N_TAGS,
    PAIRS,
    TAGGED,
    Trees,
    count_in,
    leaf_of,
)
from oubli.core.forest.workspace import STACK_SIZE
from oubli.core.jit.aligned import prefetch_to_read, prefetch_to_write
from oubli.core.jit.nodes import FREE, MISSING_LEFT, N_FREE, NIL, SUBSET, goes_right, put
from oubli.core.jit.policy import inner, kernel
from oubli.core.jit.targets import amount_of, field_of, value_of

_ROUTING = 200e-9  # seconds that it takes to send a sample down a tree, roughly
_SPLIT = ("category", "attribute", "kind")
_OF_PLACES = [NEXT_FREE, REPRESENTATIVE]  # words of the head of a block that depend on places in memory


class Routed(NamedTuple):
    """The result of sending all samples down the trees; zero before."""

    counts: Ints  # int64[nodes]: samples that pass each node
    statistics: Array  # as in `Trees`, of each leaf
    in_blocks: Array  # of the same type, of each node with counters, by block
    owners: npt.NDArray[np.int32]  # int32[entries], NIL before: the leaf that each entry belongs to


class Part(NamedTuple):
    """One of two forests that hold the same samples and are to be compared."""

    forest: Forest
    slots: Ints  # in a common order
    order: Ints  # class codes in canonical order


def find_faults(
    forest: Forest, data: ForestData, slots: Ints, n_threads: int = 1, parts: tuple[Part, Part] | None = None
) -> list[str]:
    """Name what is wrong in trees that hold the samples of `slots` and nothing else; tags are no fault.

    parts : this forest and a fresh fit with equal trees, if there is one: then its counters and lists are compared, and
        no sample is sent down the trees again.

    No index points out of bounds: `check_bounds` has passed, or kernels have made the trees. Returns nothing when the
    forest is sound; the first fault alone when it is such that others cannot be looked for. O(samples x trees x depth),
    and a step for each free row.
    """
    try:
        _check_unused(forest)
        return _find_faults(_in_use(forest), data, slots, n_threads, parts)
    except ValueError as fault:
        return [str(fault)]


def _in_use(forest: Forest) -> Forest:
    """The forest without rows that have never been used."""
    trees, meta = forest.trees, forest.trees.meta
    n_leaves = meta[LEAVES]
    trees = trees._replace(
        nodes=trees.nodes[: meta[PAIRS]],
        statistics=trees.statistics[:n_leaves],
        starts=trees.starts[:n_leaves],
        rooms=trees.rooms[:n_leaves],
        members=trees.members[: meta[N_MEMBERS]],
        tallies=trees.tallies[: meta[N_MEMBERS]],
    )
    blocks = Blocks._make(array[: meta[BLOCKS]] for array in forest.blocks)
    return forest._replace(trees=trees, blocks=blocks)


def _check_unused(forest: Forest) -> None:
    """Check that rows that have never been used are zero."""
    trees, meta = forest.trees, forest.trees.meta
    unused = [trees.nodes[field][meta[PAIRS] :] for field in (*_SPLIT, "n_samples")]
    unused += [array[meta[N_MEMBERS] :] for array in (trees.members, trees.tallies)]
    unused += [trees.statistics[meta[LEAVES] :], forest.blocks.longs[meta[BLOCKS] :]]
    expect(not any(rows.any() for rows in unused), "a row that was never used is not zeroed")


def _find_faults(
    forest: Forest, data: ForestData, slots: Ints, n_threads: int, parts: tuple[Part, Part] | None
) -> list[str]:
    trees = forest.trees
    used, owners = _list_nodes(trees, forest.settings.n_trees)
    # Field by field: NumPy takes long to copy records whose fields overlap.
    child = trees.nodes["child"][used].astype(np.int64)
    block, n_samples = trees.nodes["block"][used].astype(np.int64), trees.nodes["n_samples"][used].astype(np.int64)
    is_inner = child >= 0
    leaves, sizes = ~child[~is_inner], n_samples[~is_inner]
    blocks = block[block != NIL]
    _check_splits(trees.nodes, used, is_inner, data.categorical)
    expect((block[~is_inner] == NIL).all(), "a leaf keeps counters")
    n_trees = forest.settings.n_trees
    pairs = range(n_trees + n_trees % 2, len(trees.nodes), 2)
    _check_free(trees.meta, PAIRS, trees.nodes["child"], pairs, child[is_inner], "pairs of nodes")
    _check_free(trees.meta, LEAVES, trees.starts, range(len(trees.starts)), leaves, "leaves")
    following = forest.blocks.longs[:, NEXT_FREE]
    _check_free(trees.meta, BLOCKS, following, range(1, len(following)), blocks, "counters")
    _check_zeroed(forest, used, leaves)
    _check_bit_rows(data, slots)

    routed = _nothing_routed(forest)
    if parts is None:
        _route(forest, data, slots, n_threads, routed)
        _check_blocks(forest, used[block != NIL], routed.in_blocks)
        wrong = []
    else:
        other_nodes = _take_from_fresh(parts, used, routed)
        wrong = _compare_blocks(*parts, used, other_nodes, owners)
    lists_are_right = is_listed(trees, routed.owners, leaves, sizes)
    expect(lists_are_right, "a leaf lists other samples than its own")
    rooms_are_apart = are_rooms_apart(trees, leaves, sizes, np.zeros(len(trees.members), np.bool_))
    expect(rooms_are_apart, "the rooms of the leaves overlap, or an unused place is not zeroed")
    if len(trees.tallies):
        tallies_are_right = are_tallies_right(
            trees, data.targets, forest.settings.occurrences, leaves, sizes, np.zeros(forest.width, np.int64)
        )
        expect(tallies_are_right, "the tallies of a leaf are not those of its samples")
    no_node_is_empty = trees.meta[N_TAGS] > 0 or (routed.counts[used[n_trees:]] > 0).all()
    expect(no_node_is_empty, "a node has no samples")
    return [
        *wrong_numbers("the number of samples of nodes", n_samples, routed.counts[used], tree=owners),
        *wrong_numbers("the statistics of leaves", trees.statistics, routed.statistics, leaf=None),
        *wrong,
    ]


def _nothing_routed(forest: Forest) -> Routed:
    trees = forest.trees
    return Routed(
        np.zeros(len(trees.nodes), np.int64),
        np.zeros_like(trees.statistics),
        np.zeros((len(forest.blocks.longs), forest.width), trees.statistics.dtype),
        np.full(len(trees.places), NIL, np.int32),
    )


def _take_from_fresh(parts: tuple[Part, Part], used: Ints, routed: Routed) -> Ints:
    """Fill `routed`, except for blocks, with what a fresh fit keeps; returns its nodes in the order of `used`."""
    live, fresh = parts
    trees, others, k = live.forest.trees, fresh.forest.trees, live.forest.settings.occurrences
    rows, _ = _list_nodes(others, live.forest.settings.n_trees)
    n_samples, child = others.nodes["n_samples"][rows].astype(np.int64), others.nodes["child"][rows].astype(np.int64)
    routed.counts[used] = n_samples
    leaves, other_leaves = ~trees.nodes["child"][used][child < 0].astype(np.int64), ~child[child < 0]
    sizes = n_samples[child < 0]
    order, other_order = (live.order, fresh.order) if len(live.order) else (np.arange(2), np.arange(2))
    if not len(trees.tallies):
        routed.statistics[leaves[:, np.newaxis], order] = others.statistics[other_leaves[:, np.newaxis], other_order]
    first = np.cumsum(sizes) - sizes
    entries = others.members[np.repeat(others.starts[other_leaves] - first, sizes) + np.arange(sizes.sum())]
    slot_of = np.zeros(len(others.places) // k, np.int64)
    slot_of[fresh.slots] = live.slots
    routed.owners[slot_of[entries // k] * k + entries % k] = np.repeat(leaves, sizes)
    return rows


def _route(forest: Forest, data: ForestData, slots: Ints, n_threads: int, routed: Routed) -> None:
    """Send the samples down the trees that they have drawn."""
    trees, n_trees = forest.trees, forest.settings.n_trees
    drawn = drawn_trees(data, forest.parameters, slots, n_threads)
    by_tree = np.argsort(drawn.ravel(), kind="stable")

    def route(members: Ints) -> None:
        room = RoutingRoom(
            np.empty(len(slots), np.int32),
            np.empty(len(slots), np.int32),
            np.empty(len(data.cells), np.int16),
            np.empty((STACK_SIZE, 3), np.int64),
        )
        route_members(trees, data, forest.parameters, slots, drawn, members, room, routed)

    # What is written belongs to one tree each: threads take whole trees.
    n = n_threads if is_long(_ROUTING * by_tree.size) else 1
    ends = np.cumsum(np.bincount(drawn.ravel(), minlength=n_trees))
    shares = ends[np.searchsorted(ends, np.arange(1, n) * by_tree.size // n)]
    run([partial(route, members) for members in np.split(by_tree, shares)], n)


def _list_nodes(trees: Trees, n_trees: int) -> tuple[Ints, Ints]:
    """List the rows of all nodes level by level, and the trees they are in; check their links, and counts of tags."""
    child = trees.nodes["child"].astype(np.int64)
    first_pair = n_trees + n_trees % 2
    parents = np.full(len(child), NIL, np.int64)
    level = owners = np.arange(n_trees)
    levels = []
    while len(level):
        levels.append((level, owners))
        is_inner = child[level] >= 0
        parent, owners = level[is_inner], np.tile(owners[is_inner], 2)
        left = child[parent]
        expect((left < len(child) - 1).all(), "a node has children that are not there")
        is_new = (left >= first_pair).all() and ((left - first_pair) % 2 == 0).all() and (parents[left] == NIL).all()
        parents[left] = parent
        expect(is_new and (parents[left] == parent).all(), "a node has two parents")
        parents[left + 1] = parent
        level = np.concatenate([left, left + 1])
    rows, trees_of = (np.concatenate(some) for some in zip(*levels, strict=True))
    is_tagged = trees.nodes["flags"][rows] & TAGGED != 0
    n_tags = np.bincount(trees_of[is_tagged], minlength=n_trees)
    expect(np.array_equal(n_tags, trees.tree_tags) and n_tags.sum() == trees.meta[N_TAGS], "the tags are counted wrong")
    above = parents[rows[is_tagged]]
    while len(above := np.unique(above[above != NIL])):
        expect((trees.nodes["flags"][above] & DIRTY != 0).all(), "no path leads to a tag")
        above = parents[above]
    return rows, trees_of


def _check_splits(nodes: npt.NDArray[Any], rows: Ints, is_inner: Bools, categorical: Bools) -> None:
    kind, attribute = nodes["kind"][rows[is_inner]], nodes["attribute"][rows[is_inner]]
    is_right = (kind <= SUBSET).all() and ((kind > MISSING_LEFT) == categorical[attribute]).all()
    expect(is_right, "a split is of another kind")
    expect(not any(nodes[field][rows[~is_inner]].any() for field in _SPLIT), "a leaf keeps a split")


def _check_free(meta: Ints, pool: int, following: npt.NDArray[Any], rows: range, taken: Ints, what: str) -> None:
    """Check that each of `rows` is taken once, or on the free list once."""
    is_free = np.zeros(rows.stop, np.bool_)
    is_free[rows.start :: rows.step] = True
    is_free[taken] = False
    free = set(np.flatnonzero(is_free).tolist())
    n_free = len(rows) - len(taken)
    expect(len(free) == n_free == meta[pool + N_FREE], f"the {what} in use are not counted right")
    row = int(meta[pool + FREE])
    while row in free:
        free.remove(row)
        row = int(following[row])
    expect(row == NIL and not free, f"the free {what} are not listed right")


def _check_zeroed(forest: Forest, used: Ints, leaves: Ints) -> None:
    """Check that free nodes, leaves and counters are zero. O(rows)."""
    trees, longs = forest.trees, forest.blocks.longs
    blocks = trees.nodes["block"][used]
    node_is_free, leaf_is_free, block_is_free = (
        np.ones(n, np.bool_) for n in (len(trees.nodes), len(trees.starts), len(longs))
    )
    node_is_free[used] = leaf_is_free[leaves] = block_is_free[blocks[blocks != NIL]] = block_is_free[0] = False
    free_nodes = [trees.nodes[field][node_is_free] for field in (*_SPLIT, "n_samples")]
    expect(not any(field.any() for field in free_nodes), "a free node is not zeroed")
    expect(len(trees.tallies) > 0 or not trees.statistics[leaf_is_free].any(), "a free leaf is not zeroed")
    expect(not np.delete(longs[block_is_free], NEXT_FREE, axis=1).any(), "free counters are not zeroed")


def _check_bit_rows(data: ForestData, slots: Ints) -> None:
    """Check that the words say which cells are 1, and hold nothing of samples that have left."""
    if data.words.shape[1] == 0:
        expect(not data.bit_columns.any() and not data.n_others.any(), "there are bit columns without words")
        return
    words, n_others, columns = np.zeros_like(data.words), np.zeros_like(data.n_others), data.bit_columns.copy()
    again = data._replace(words=words, n_others=n_others, bit_columns=columns)
    pack_rows(again, slots)
    is_bit = np.zeros(64 * len(data.bit_columns), np.bool_)
    is_bit[: len(data.categorical)] = (n_others == 0) & ~data.categorical
    expect(np.array_equal(words, data.words), "the words of a sample are not those of its cells")
    expect(np.array_equal(n_others, data.n_others), "what is neither 0 nor 1 is counted wrong")
    columns = np.packbits(is_bit, bitorder="little").view("<u8")
    expect(np.array_equal(columns, data.bit_columns), "the bit columns are not those with nothing but 0 and 1")


def _check_blocks(forest: Forest, nodes: Ints, statistics: Array) -> None:
    """Check that the counters of each node add up to its samples, which have been counted into `statistics`.

    Counting their cells again would take as long as growing: that is what `verify` is for.
    """
    layout, settings, records = forest.layout, forest.settings, forest.trees.nodes
    blocks, is_tagged = records["block"][nodes], records["flags"][nodes] & TAGGED != 0
    is_counted = forest.blocks.longs[blocks, IS_COUNTED]
    expect(((is_counted == 1) | (is_tagged & (is_counted == 0))).all(), "counters are not those of their samples")
    nodes, blocks = nodes[is_counted == 1], blocks[is_counted == 1]
    longs = forest.blocks.longs[blocks]
    halves, p = longs.view(np.int32), settings.max_features
    totals, tables = counters_of(longs, settings, layout, forest.width)
    expect(np.array_equal(totals, statistics[blocks]), "the counters of a node do not add up to its samples")
    n_samples = totals[:, :1] if settings.is_regression else totals.sum(axis=1, keepdims=True)
    attributes = 2 * (layout.attributes_at + ATTRIBUTE_SIZE * np.arange(p))
    n_cells = halves[:, attributes + N_CELLS]
    is_used = np.arange(p) < longs[:, N_ATTRIBUTES, np.newaxis]
    adds_up = (tables.sum(axis=2, dtype=np.int64) == totals[:, np.newaxis]).all(axis=2)
    expect((adds_up | (n_cells == 0) | ~is_used).all(), "the counters of a column do not add up to the samples")
    sizes = tables[..., 0] if settings.is_regression else tables.sum(axis=3)
    expect(((sizes >= 0) & (sizes <= n_samples[:, np.newaxis])).all(), "a counter is out of range")
    for place, least in ((AT_LO, 0), (AT_HI, NO_VALUE), (MISSING, 0)):
        values = halves[:, attributes + place]
        expect(((values >= least) & (values <= n_samples)).all(), "a counter of a range is out of range")
    has_split = halves[:, attributes + ATTRIBUTE] == records["attribute"][nodes][:, np.newaxis]
    expect((has_split & is_used).any(axis=1).all(), "counters lack the column of the split")


class RoutingRoom(NamedTuple):
    """Working space of `route_members`."""

    order: npt.NDArray[np.int32]  # int32[n] slots of a tree's samples, node by node
    right: npt.NDArray[np.int32]  # int32[n] for dividing
    draw_of: npt.NDArray[np.int16]  # int16[slots] which of its draws has brought a sample to the tree
    stack: Ints  # int64[STACK_SIZE, 3] node, start, end


@inner
def _divide(nodes, node, data, room, start, end):
    """Put the samples order[start:end] that go left at a node before the others; where the others begin."""
    middle, n_right = start, np.int64(0)
    for i in range(start, end):
        slot = room.order[i]
        side = goes_right(nodes, node, data.cells, slot, data.category_hashes)
        middle, n_right = put(room.order, room.right, slot, side, middle, n_right)
    for i in range(n_right):
        room.order[middle + i] = room.right[i]
    return middle


@inner
def _route_tree(trees, data, room, tree, n, occurrences, is_regression, routed):
    """Send the samples order[:n] down a tree."""
    nodes, stack = trees.nodes, room.stack
    stack[0, 0], stack[0, 1], stack[0, 2] = tree, 0, n
    size = 1
    while size > 0:
        size -= 1
        node, start, end = stack[size, 0], stack[size, 1], stack[size, 2]
        while start < end:
            routed.counts[node] = end - start
            leaf = leaf_of(nodes, node)
            if leaf != NIL:
                for i in range(start, end):
                    slot = np.int64(room.order[i])
                    if trees.tallies.shape[0] == 0:
                        count_in(routed.statistics, leaf, 0, data.targets[slot], 1, is_regression)
                    routed.owners[slot * occurrences + room.draw_of[slot]] = np.int32(leaf)
                break
            block = np.int64(nodes[node]["block"])
            if block != NIL:
                for i in range(start, end):
                    count_in(routed.in_blocks, block, 0, data.targets[room.order[i]], 1, is_regression)
            child = np.int64(nodes[node]["child"])
            prefetch_to_read(nodes, (child,))
            prefetch_to_write(routed.counts, (child,))
            middle = _divide(nodes, node, data, room, start, end)
            # The side with more samples waits, so that no more sides wait than fit.
            if middle - start > end - middle:
                stack[size, 0], stack[size, 1], stack[size, 2] = child, start, middle
                node, start = child + 1, middle
            else:
                stack[size, 0], stack[size, 1], stack[size, 2] = child + 1, middle, end
                node, end = child, middle
            size += 1


@kernel
def route_members(trees, data, parameters, slots, drawn, by_tree, room, routed):
    """Send samples down the trees that they have drawn, and count them on the way.

    by_tree  int64[n * k] positions in `drawn`, tree by tree: all, or those of some trees
    routed   Routed, written
    """
    is_regression = parameters[0]["is_regression"] != 0
    occurrences = drawn.shape[1]
    first = 0
    for tree in range(parameters[0]["n_trees"]):
        n = 0
        while first + n < by_tree.shape[0]:
            member = by_tree[first + n]
            sample = member // occurrences
            draw = member - sample * occurrences
            if drawn[sample, draw] != tree:
                break
            slot = slots[sample]
            room.order[n] = np.int32(slot)
            room.draw_of[slot] = np.int16(draw)
            n += 1
        first += n
        _route_tree(trees, data, room, tree, n, occurrences, is_regression, routed)


@kernel
def is_listed(trees, owners, leaves, sizes):
    """Tell whether each leaf lists so many of its own entries, each of which stores its place.

    owners  int32[entries] the leaf that each entry belongs to
    leaves  int64[m]
    sizes   int64[m] how many entries each is to have
    """
    for i in range(leaves.shape[0]):
        start = np.int64(trees.starts[leaves[i]])
        size = sizes[i]
        room = np.int64(trees.rooms[leaves[i]])
        if start < 0 or size > np.int64(1) << room or start + (np.int64(1) << room) > trees.members.shape[0]:
            return False
        for place in range(start, start + size):
            entry = np.int64(trees.members[place])
            if entry >= owners.shape[0] or owners[entry] != leaves[i] or trees.places[entry] != place:
                return False
    return True


@kernel
def are_tallies_right(trees, targets, occurrences, leaves, sizes, counts):
    """Tell whether each leaf's tallies count the samples that it lists, and places behind them hold zero.

    sizes   int64[leaves] how many entries each lists, which are its own and in its room
    counts  int64[width], zero, and so again at the end if they are right
    """
    tallies = trees.tallies
    for i in range(leaves.shape[0]):
        start = np.int64(trees.starts[leaves[i]])
        end = start + (np.int64(1) << np.int64(trees.rooms[leaves[i]]))
        rest = np.int64(0)
        for place in range(start, start + sizes[i]):
            target = targets[trees.members[place] // occurrences]
            counts[value_of(target)] += amount_of(field_of(target))
            rest += amount_of(field_of(target))
        for place in range(start, end):
            value, count = np.int64(tallies[place, 0]), np.int64(tallies[place, 1])
            if rest == 0:
                if value != 0 or count != 0:
                    return False
                continue
            if count <= 0 or count != counts[value]:
                return False
            counts[value] = 0
            rest -= count
        if rest != 0:
            return False
    return True


@inner
def _claim(trees, start, room, n_used, is_taken):
    """Mark a room as taken; False when it is not all there, partly taken before, or not zero behind its used places."""
    end = start + (np.int64(1) << room)
    if start < 0 or end > trees.members.shape[0]:
        return False
    for place in range(start, end):
        if is_taken[place] or (place >= start + n_used and trees.members[place] != 0):
            return False
        is_taken[place] = True
    return True


@kernel
def are_rooms_apart(trees, leaves, sizes, is_taken):
    """Tell whether the rooms of leaves and the free ones cover all places, each once, and what is unused is zero.

    sizes     int64[leaves] how many entries each lists
    is_taken  bool[members], False, written
    """
    for i in range(leaves.shape[0]):
        if not _claim(trees, np.int64(trees.starts[leaves[i]]), np.int64(trees.rooms[leaves[i]]), sizes[i], is_taken):
            return False
    for room in range(MAX_ROOM + 1):
        start = trees.meta[FREE_ROOMS + room]
        while start != NIL:
            if not _claim(trees, start, room, 1, is_taken):
                return False
            start = np.int64(trees.members[start]) - 1
    all_taken = True
    for place in range(is_taken.shape[0]):
        all_taken = all_taken and bool(is_taken[place])
    return all_taken


# -- counters beside those of a fresh fit ------------------------------------------------------------


def _compare_blocks(live: Part, fresh: Part, nodes: Ints, other_nodes: Ints, owners: Ints) -> list[str]:
    """List what differs in the counters of big nodes; `owners`: the trees that the nodes are in."""
    rows = live.forest.trees.nodes["block"][nodes].astype(np.int64)
    others = fresh.forest.trees.nodes["block"][other_nodes].astype(np.int64)
    rows, others, owners = rows[rows != NIL], others[rows != NIL], owners[rows != NIL]
    if (others == NIL).any():
        return [f"a candidate block of a node that has nothing to choose from, tree {owners[others == NIL][0]}"]
    ours, theirs = _comparable(live, rows), _comparable(fresh, others)
    wrong = []
    for name, kept_there in ours.items():
        wrong += wrong_numbers(
            f"the {name} of a candidate block",
            kept_there,
            theirs[name],
            by_sample=name not in ("totals", "counters"),  # thresholds and categories are values of samples
            tree=owners,
            place=None,
        )
    return wrong


def _comparable(part: Part, rows: Ints) -> dict[str, npt.NDArray[Any]]:
    """Read blocks into arrays that are equal when the blocks mean the same."""
    forest, _, order = part
    layout, settings = forest.layout, forest.settings
    longs = forest.blocks.longs[rows]
    n_words = -(-forest.n_features // 64)
    p = settings.max_features
    totals, tables = counters_of(longs, settings, layout, forest.width)
    if not settings.is_regression:
        totals, tables = totals[:, order], tables[..., order]
    return {
        "head": np.delete(longs[:, : layout.totals_at // (1 if settings.is_regression else 2)], _OF_PLACES, axis=1),
        "totals": totals,
        "skipped attributes": longs[:, layout.skipped_at : layout.skipped_at + n_words],
        "attributes": longs[:, layout.attributes_at : layout.attributes_at + p * ATTRIBUTE_SIZE],
        "counters": tables,
        "categories": longs[:, layout.categories_at : layout.categories_at + p * layout.categories_stride],
    }
