"""Whether the parts of a model file are a forest over its samples, asked before a kernel trusts them.

Kernels check no bounds: they would follow a wrong index anywhere, and a list that runs in a circle
for ever. A file's checksum finds damage; this finds what was written wrong, or on purpose. Whether
the splits are the best ones is not asked here: that is what `verify` is for.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.bounds import require_sound
from oubli.core.forest.bits import ForestData
from oubli.core.forest.blocks import (
    AT_HI,
    AT_LO,
    ATTRIBUTE_SIZE,
    IS_COUNTED,
    MISSING,
    N_ATTRIBUTES,
    N_CELLS,
    NEXT_FREE,
    counters_of,
    layout_of,
)
from oubli.core.forest.leaves import count_in
from oubli.core.forest.occurrences import drawn_trees
from oubli.core.forest.parameters import MAX_ENTRIES, ForestSettings
from oubli.core.forest.serialise import FIELDS, PREFIX
from oubli.core.forest.split import goes_right
from oubli.core.forest.state import (
    FREE_BLOCK,
    FREE_LEAF,
    FREE_PAIR,
    FREE_ROOMS,
    MAX_ROOM,
    META_SIZE,
    MISSING_LEFT,
    N_FREE_BLOCKS,
    N_FREE_LEAVES,
    N_FREE_PAIRS,
    NIL,
    NODE_DTYPE,
    SUBSET,
    Trees,
    leaf_of,
)
from oubli.core.forest.workspace import (
    IS_REGRESSION,
    N_TREES,
    STACK_SIZE,
    Parameters,
)
from oubli.core.jit.policy import inner, kernel
from oubli.core.jit.prefetch import prefetch_to_read, prefetch_to_write
from oubli.core.threads import is_long, run

if TYPE_CHECKING:
    from oubli.core.forest.kept import KeptForest

Arrays = Mapping[str, npt.NDArray[Any]]
IntArray = npt.NDArray[np.int64]
_ROUTING = 200e-9  # seconds that it takes to send a sample down a tree, roughly


# -- before anything is made of the parts ---------------------------------------------------------


def check_description(document: Mapping[str, Any], arrays: Arrays, *, n_slots: int | None = None) -> None:
    """Check the numbers of the description and of the samples; the settings are those of the parameters.

    n_slots  room for samples that the file's trees have; None: they are grown anew

    Raises
    ------
    FileError
        When they do not fit together.
    """
    settings, task, width = document["settings"], document["task"], document["n_classes"]
    slots, codes = arrays["samples.slots"], arrays["class_table.codes"]
    require_sound(settings["is_regression"] is (task == "regression"), "the settings are for another task")
    require_sound(settings["occurrences"] <= settings["n_trees"], "the settings contradict each other")
    require_sound(type(width) is int and 2 <= width < 2**31, "the number of classes is out of range")
    require_sound(len(slots) * settings["occurrences"] <= MAX_ENTRIES, "there are too many samples")
    if n_slots is not None:
        require_sound((slots < n_slots).all(), "there are slots that the trees have no room for")
        require_sound((codes < width).all(), "there are classes that the trees have no room for")


def check_parts(document: Mapping[str, Any], arrays: Arrays) -> None:
    """Check numbers and shapes of everything, the trees included.

    Raises
    ------
    FileError
        When they do not fit together.
    """
    settings, width = document["settings"], document["n_classes"]
    check_description(document, arrays, n_slots=len(arrays[PREFIX + "places"]) // settings["occurrences"])
    for name, (dtype, shape) in _expected_types(document, settings, width).items():
        array = arrays[PREFIX + name]
        fits = array.dtype == np.dtype(dtype) and array.ndim == len(shape)
        fits = fits and all(size in {None, given} for size, given in zip(shape, array.shape, strict=True))
        require_sound(fits, f"{name} has another type or shape than the settings say")
    for group in ("nodes.", "leaves."):
        lengths = {len(array) for name, array in arrays.items() if name.startswith(PREFIX + group)}
        require_sound(len(lengths) == 1, f"the arrays of {group[:-1]} differ in length")
    # Every tree has a root and a leaf, and the split search has a block: what is as wide as the settings say is there.
    n_trees = settings["n_trees"]
    require_sound(len(arrays[PREFIX + "nodes.child"]) >= n_trees, "there are fewer nodes than trees")
    require_sound(len(arrays[PREFIX + "leaves.starts"]) >= n_trees, "there are fewer leaves than trees")
    require_sound(len(arrays[PREFIX + "blocks"]) >= 1, "there is no room for the split search")


def _expected_types(
    document: Mapping[str, Any], settings: Mapping[str, Any], width: int
) -> dict[str, tuple[str, tuple[int | None, ...]]]:
    """Types and shapes of the trees' arrays; None stands for any length."""
    columns = document["schema"]["columns"]
    has_categories = any(column["type"] == "categorical" for column in columns)
    layout = layout_of(ForestSettings(**settings), len(columns), width, has_categories=has_categories)
    return {
        **{f"nodes.{field}": (NODE_DTYPE[field].str, (None,)) for field in FIELDS},
        "leaves.statistics": ("i8" if settings["is_regression"] else "i4", (None, width)),
        "leaves.starts": ("i4", (None,)),
        "leaves.rooms": ("u1", (None,)),
        "members": ("i4", (None,)),
        "places": ("i4", (None,)),
        "meta": ("i8", (META_SIZE,)),
        "blocks": ("i8", (None, layout.size)),
    }


# -- before the trees are used --------------------------------------------------------------------


def check_forest(forest: "KeptForest", data: ForestData, slots: IntArray) -> IntArray:
    """Check that the trees hold the samples of `slots`, each where the splits lead it, and no others; list all nodes.

    `take_over` has looked at the bounds of every index before.

    Raises
    ------
    FileError
        Saying what is wrong. O(samples x trees x depth), and a step for each free row.
    """
    trees, n_trees = forest.trees, forest.settings.n_trees
    used = np.concatenate(_list_levels(trees, n_trees))
    # Field by field: NumPy takes long to copy records whose fields overlap.
    child = trees.nodes["child"][used].astype(np.int64)
    block, n_samples = trees.nodes["block"][used], trees.nodes["n_samples"][used]
    is_inner = child >= 0
    leaves = ~child[~is_inner]
    blocks = block[block != NIL].astype(np.int64)
    _check_splits(trees.nodes, used[is_inner], data.categorical)
    require_sound((block[~is_inner] == NIL).all(), "a leaf keeps counters")
    pairs = range(n_trees + n_trees % 2, len(trees.nodes), 2)
    _check_free(trees, FREE_PAIR, N_FREE_PAIRS, trees.nodes["child"], pairs, child[is_inner], "pairs of nodes")
    _check_free(trees, FREE_LEAF, N_FREE_LEAVES, trees.starts, range(len(trees.starts)), leaves, "leaves")
    following = forest.blocks.longs[:, NEXT_FREE]
    _check_free(trees, FREE_BLOCK, N_FREE_BLOCKS, following, range(1, len(following)), blocks, "counters")

    counts = np.zeros(len(trees.nodes), np.int64)
    statistics = np.zeros_like(trees.statistics)
    in_blocks = np.zeros((len(forest.blocks.longs), forest.width), trees.statistics.dtype)
    owners = np.full(len(trees.places), NIL, np.int32)
    drawn = drawn_trees(data, forest.parameters, slots, forest.n_threads)
    by_tree = np.argsort(drawn.ravel(), kind="stable")

    def route(members: IntArray) -> None:
        room = RoutingRoom(
            np.empty(len(slots), np.int32),
            np.empty(len(slots), np.int32),
            np.empty(len(data.cells), np.int16),
            np.empty((STACK_SIZE, 3), np.int64),
        )
        route_members(
            trees, data, forest.parameters, slots, drawn, members, room, counts, statistics, in_blocks, owners
        )

    # What is written belongs to one tree each: threads take whole trees.
    n = forest.n_threads if is_long(_ROUTING * by_tree.size) else 1
    ends = np.cumsum(np.bincount(drawn.ravel(), minlength=n_trees))
    shares = ends[np.searchsorted(ends, np.arange(1, n) * by_tree.size // n)]
    run([partial(route, members) for members in np.split(by_tree, shares)], n)
    require_sound(np.array_equal(counts[used], n_samples), "a node counts other samples than its own")
    require_sound((counts[used[n_trees:]] > 0).all(), "a node has no samples")
    require_sound(np.array_equal(statistics, trees.statistics), "a leaf counts other samples than its own")
    require_sound(
        is_listed(trees, owners, leaves, n_samples[~is_inner].astype(np.int64)),
        "a leaf lists other samples than its own",
    )
    require_sound(
        are_rooms_apart(trees, leaves, np.zeros(len(trees.members), np.bool_)), "the rooms of the leaves overlap"
    )
    if len(blocks):
        _check_blocks(forest, blocks, in_blocks[blocks])
    return used


def _check_blocks(forest: "KeptForest", blocks: IntArray, statistics: npt.NDArray[Any]) -> None:
    """Check that the counters of each node add up to its samples, which have been counted into `statistics`.

    Counting their cells again would take as long as growing: that is what `verify` is for.
    """
    layout, settings = forest.layout, forest.settings
    longs = forest.blocks.longs[blocks]
    is_counted = longs[:, IS_COUNTED]
    require_sound(((is_counted == 0) | (is_counted == 1)).all(), "counters are neither right nor wrong")
    longs, expected = longs[is_counted == 1], statistics[is_counted == 1]
    halves, p = longs.view(np.int32), settings.max_features
    totals, tables = counters_of(longs, settings, layout, forest.width)
    require_sound(np.array_equal(totals, expected), "the counters of a node do not add up to its samples")
    n_samples = totals[:, :1] if settings.is_regression else totals.sum(axis=1, keepdims=True)
    attributes = 2 * (layout.attributes_at + ATTRIBUTE_SIZE * np.arange(p))
    n_cells = halves[:, attributes + N_CELLS]
    is_used = np.arange(p) < longs[:, N_ATTRIBUTES, np.newaxis]
    adds_up = (tables.sum(axis=2, dtype=np.int64) == totals[:, np.newaxis]).all(axis=2)
    require_sound((adds_up | (n_cells == 0) | ~is_used).all(), "the counters of a column do not add up to the samples")
    sizes = tables[..., 0] if settings.is_regression else tables.sum(axis=3)
    require_sound(((sizes >= 0) & (sizes <= n_samples[:, np.newaxis])).all(), "a counter is out of range")
    for place in (AT_LO, AT_HI, MISSING):
        values = halves[:, attributes + place]
        require_sound(((values >= 0) & (values <= n_samples)).all(), "a counter of a range is out of range")


def _list_levels(trees: Trees, n_trees: int) -> list[IntArray]:
    """List the rows of all nodes in the trees, level by level from the roots on; every pair has one parent."""
    child = trees.nodes["child"].astype(np.int64)
    first_pair = n_trees + n_trees % 2
    parents = np.full(len(child), NIL, np.int64)
    level = np.arange(n_trees)
    levels = []
    while len(level):
        levels.append(level)
        parent = level[child[level] >= 0]
        left = child[parent]
        # `restore` has seen to it that there is a row behind each left child.
        is_new = (left >= first_pair).all() and ((left - first_pair) % 2 == 0).all() and (parents[left] == NIL).all()
        parents[left] = parent
        require_sound(is_new and (parents[left] == parent).all(), "a node has two parents")
        level = np.concatenate([left, left + 1])
    return levels


def _check_splits(nodes: npt.NDArray[Any], inner_nodes: IntArray, categorical: npt.NDArray[np.bool_]) -> None:
    kind = nodes["kind"][inner_nodes]
    is_categorical = categorical[nodes["attribute"][inner_nodes]]
    require_sound(
        (kind <= SUBSET).all() and ((kind > MISSING_LEFT) == is_categorical).all(), "a split is of another kind"
    )


def _check_free(
    trees: Trees, first: int, count: int, following: npt.NDArray[Any], rows: range, taken: IntArray, what: str
) -> None:
    """Check that each of `rows` is taken once, or on the free list once."""
    is_free = np.zeros(rows.stop, np.bool_)
    is_free[rows.start :: rows.step] = True
    is_free[taken] = False
    free = set(np.flatnonzero(is_free).tolist())
    require_sound(len(free) == len(rows) - len(taken) == trees.meta[count], f"the {what} in use are not counted right")
    row = int(trees.meta[first])
    while row in free:
        free.remove(row)
        row = int(following[row])
    require_sound(row == NIL and not free, f"the free {what} are not listed right")


class RoutingRoom(NamedTuple):
    """Working space of `route_members`."""

    order: npt.NDArray[np.int32]  # int32[n] slots of a tree's samples, node by node
    right: npt.NDArray[np.int32]  # int32[n] for dividing
    draw_of: npt.NDArray[np.int16]  # int16[slots] which of its draws has brought a sample to the tree
    stack: IntArray  # int64[STACK_SIZE, 3] node, start, end


@inner
def _divide(nodes, node, data, room, start, end):
    """Put the samples order[start:end] that go left at a node before the others; where the others begin."""
    middle, n_right = start, 0
    for i in range(start, end):
        slot = room.order[i]
        side = goes_right(nodes, node, data.cells, slot, data.category_hashes)
        room.order[middle] = slot
        room.right[n_right] = slot
        middle += 1 - side
        n_right += side
    for i in range(n_right):
        room.order[middle + i] = room.right[i]
    return middle


@inner
def _route_tree(trees, data, room, tree, n, occurrences, is_regression, counts, statistics, in_blocks, owners):
    """Send the samples order[:n] down a tree."""
    nodes, stack = trees.nodes, room.stack
    stack[0, 0], stack[0, 1], stack[0, 2] = tree, 0, n
    size = 1
    while size > 0:
        size -= 1
        node, start, end = stack[size, 0], stack[size, 1], stack[size, 2]
        while start < end:
            counts[node] = end - start
            leaf = leaf_of(nodes, node)
            if leaf != NIL:
                for i in range(start, end):
                    slot = np.int64(room.order[i])
                    count_in(statistics, leaf, data.targets[slot], 1, is_regression)
                    owners[slot * occurrences + room.draw_of[slot]] = np.int32(leaf)
                break
            block = np.int64(nodes[node]["block"])
            if block != NIL:
                for i in range(start, end):
                    count_in(in_blocks, block, data.targets[room.order[i]], 1, is_regression)
            child = np.int64(nodes[node]["child"])
            prefetch_to_read(nodes, (child,))
            prefetch_to_write(counts, (child,))
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
def route_members(
    trees: Trees,
    data: ForestData,
    parameters: Parameters,
    slots: IntArray,
    drawn: npt.NDArray[np.int16],
    by_tree: IntArray,
    room: RoutingRoom,
    counts: IntArray,
    statistics: npt.NDArray[Any],
    in_blocks: npt.NDArray[Any],
    owners: npt.NDArray[np.int32],
) -> None:
    """Send samples down the trees that they have drawn, and count them on the way.

    by_tree     int64[n * k] positions in `drawn`, tree by tree: all, or those of some trees
    counts      int64[nodes], zero, written: samples that pass each node
    statistics  as in `trees`, zero, written: of each leaf
    in_blocks   of the same type, zero, written: of each node with counters, by block
    owners      int32[entries], NIL, written: the leaf that each entry belongs to
    """
    is_regression = parameters.values[IS_REGRESSION] != 0
    occurrences = drawn.shape[1]
    first = 0
    for tree in range(parameters.values[N_TREES]):
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
        _route_tree(trees, data, room, tree, n, occurrences, is_regression, counts, statistics, in_blocks, owners)


@kernel
def is_listed(trees: Trees, owners: npt.NDArray[np.int32], leaves: IntArray, sizes: IntArray) -> bool:
    """Tell whether each leaf lists so many of its own entries, each of which knows its place.

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


@inner
def _claim(trees, start, room, is_taken):
    """Mark a room as taken; False when it is not all there or partly taken before."""
    end = start + (np.int64(1) << room)
    if start < 0 or end > trees.members.shape[0]:
        return False
    for place in range(start, end):
        if is_taken[place]:
            return False
        is_taken[place] = True
    return True


@kernel
def are_rooms_apart(trees: Trees, leaves: IntArray, is_taken: npt.NDArray[np.bool_]) -> bool:
    """Tell whether the rooms of leaves and the free ones cover all places, each once.

    is_taken  bool[members], False, written
    """
    for i in range(leaves.shape[0]):
        if not _claim(trees, np.int64(trees.starts[leaves[i]]), np.int64(trees.rooms[leaves[i]]), is_taken):
            return False
    for room in range(MAX_ROOM + 1):
        start = trees.meta[FREE_ROOMS + room]
        while start != NIL:
            if not _claim(trees, start, room, is_taken):
                return False
            start = np.int64(trees.members[start]) - 1
    all_taken = True
    for place in range(is_taken.shape[0]):
        all_taken = all_taken and bool(is_taken[place])
    return all_taken
