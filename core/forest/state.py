"""The forest's data structure: nodes, leaves and the samples in them.

A node is a row of one record array; all trees share it, tree t's root is row t. Children are
allocated in pairs, so a step down is `child + goes_right`, and both siblings share a cache line:

    row            0 .. T-1        T ...
    nodes       [ roots | pad | l r | l r | . . | l r ]       free pairs are linked by `child`
                    child ----> l r

    inner node     child >= 0: row of the left child           leaf     child = ~leaf
    leaves         statistics[leaf] = class counts, or (count, sum of quantised targets); see `core/jit/targets.py` for
                   what samples with weights count for
                   starts[leaf], rooms[leaf] = where its samples are listed
                   tallies = with many classes, the class counts; see below

The j-th tree of the sample in slot s is *entry* s * k + j; its id alone decides which tree that is. A leaf lists its
entries side by side in a *room*, a stretch of `members` of 2^r places, so that they are read in the order of memory:

    members   | e4 e9 e2 . | e7 | e1 e5 | . . . . |        starts[leaf] = first place, rooms[leaf] = r
    places[entry] = where in `members` it is               used: the first n_samples of the leaf's node

An entry leaves in O(1): the last one takes its place. A full leaf moves to a room of twice the size. Free rooms of one
size form a list through their first place; a larger one is cut in halves when none fits. Unused places hold zero.

With many classes a counter for each of them in each leaf would take most of the memory. Then `statistics` has no rows,
and a leaf has a *tally* (class, count) for each class that it has samples of. It has at most as many tallies as
samples, so they are in the first places of its room, and those behind them hold zero:

    tallies   | 7:2 3:1 .. | 3:1 | 5:2 .. | . . . . |

The samples always are in the leaf that the stored splits lead to, tags or not. A *tag* says
only that the split of its node (or its being a leaf) has yet to be checked against the samples
below; resolving keeps the subtree if the split stands and rebuilds it if not (`update.py`). This
differs from the paper's lazy tag, below which nothing is kept, in that

    a) a deleted sample leaves every structure at once, below a tag too;
    b) a split that got worse and better again between two queries costs no rebuilding;
    c) a mutation scores no candidates: it counts and tags, and all mutations between two queries at
       a node share one scoring.

Whatever is freed is zeroed at once: unused capacity holds nothing of any sample.
"""

from typing import Any, NamedTuple

import numpy as np

from oubli.core.array_types import Array
from oubli.core.jit import aligned
from oubli.core.jit.nodes import FREE, NIL, give_row, take_row
from oubli.core.jit.policy import inner, pasted
from oubli.core.jit.targets import amount_of, field_of, value_of, weighed

NODE_DTYPE = np.dtype(
    {
        "names": ["threshold", "category", "child", "attribute", "n_samples", "block", "kind", "flags"],
        "formats": ["f8", "u8", "i4", "i4", "i4", "i4", "u1", "u1"],
        # threshold:  numeric splits, `x <= threshold` goes left
        # category:   categorical splits (same 8 bytes): the category's hash, or the candidate's key
        # child:      row of the left child; the right one follows; ~leaf at a leaf
        # attribute:  column that the split reads
        # n_samples:  samples below, tags or not
        # block:      row of the candidate counters (`blocks.py`), NIL when the node keeps none
        # kind:       of the split, see below
        # flags:      TAGGED | DIRTY
        "offsets": [0, 0, 8, 12, 16, 20, 24, 25],
        "itemsize": 32,
    }
)

# Flags of a node.
TAGGED = np.uint8(1)  # the split, or being a leaf, is to be checked before a query may pass
DIRTY = np.uint8(2)  # inner node: there may be a tag below
_CLEAR_TAG = np.uint8(255 - 1)
_CLEAR_DIRTY = np.uint8(255 - 2)

# Slots of `meta`: three pools, see `core/jit/nodes.py`, and scalars that change.
PAIRS = 0  # of nodes; the first slot counts rows of `nodes`
LEAVES = 3
BLOCKS = 6
POOLS = [PAIRS, LEAVES, BLOCKS]
N_TAGS = 9
N_MEMBERS = 10  # length of `members` in use, free rooms included
FREE_ROOMS = 11  # first of MAX_ROOM + 1 list heads: the first free room of each size, NIL when none
MAX_ROOM = 31
META_SIZE = FREE_ROOMS + MAX_ROOM + 1


class Leaves(NamedTuple):
    """What predictions read of the leaves; the fields are those of `Trees`."""

    statistics: Array
    starts: Array
    tallies: Array


class Trees(NamedTuple):
    """All trees of a forest; modified by kernels, grown by `storage.py`."""

    nodes: Any  # NODE_DTYPE[capacity]
    statistics: Array  # int32[leaf capacity, n_classes] or int64[leaf capacity, 2]; no rows where there are tallies
    starts: Array  # int32[leaf capacity]; next free leaf when free
    rooms: Array  # uint8[leaf capacity]
    members: Array  # int32[member capacity] entries, leaf by leaf
    tallies: Array  # int32[member capacity, 2] class and count; no rows where there are statistics
    places: Array  # int32[slot capacity * k]: where in `members` an entry is
    tree_tags: Array  # int64[T] number of tagged nodes a tree
    meta: Array  # int64[META_SIZE]

    def leaves(self) -> Leaves:
        """The part that predictions read besides the nodes."""
        return Leaves(self.statistics, self.starts, self.tallies)


@inner
def leaf_of(nodes, node):
    """Leaf index of a node, NIL at an inner node."""
    child = nodes[node]["child"]
    if child < 0:
        return ~np.int64(child)
    return np.int64(-1)


@inner
def set_tag(trees, tree, node):
    """Tag a node that may have a tag already."""
    if not trees.nodes[node]["flags"] & TAGGED:
        trees.nodes[node]["flags"] |= TAGGED
        trees.tree_tags[tree] += 1
        trees.meta[N_TAGS] += 1


@inner
def clear_tag(trees, tree, node):
    """Take the tag off a node that has one."""
    if trees.nodes[node]["flags"] & TAGGED:
        trees.nodes[node]["flags"] &= _CLEAR_TAG
        trees.tree_tags[tree] -= 1
        trees.meta[N_TAGS] -= 1


@inner
def clear_dirty(nodes, node):
    """Forget that there may be a tag below a node."""
    nodes[node]["flags"] &= _CLEAR_DIRTY


@inner
def put_off_children(nodes, stack, size, node):
    """Push both children of a node, the one with fewer samples on top; returns the new size of the stack."""
    left = np.int64(nodes[node]["child"])
    smaller = np.int64(nodes[left + 1]["n_samples"] < nodes[left]["n_samples"])
    stack[size, 0] = left + 1 - smaller
    stack[size + 1, 0] = left + smaller
    return size + 2


@inner
def reset_node(nodes, node):
    """Zero a node's record."""
    nodes[node]["category"] = np.uint64(0)
    nodes[node]["child"] = np.int32(NIL)
    nodes[node]["attribute"] = np.int32(0)
    nodes[node]["n_samples"] = np.int32(0)
    nodes[node]["block"] = np.int32(NIL)
    nodes[node]["kind"] = np.uint8(0)
    nodes[node]["flags"] = np.uint8(0)


@inner
def allocate_pair(trees):
    """Take a pair of nodes; the caller has made sure that there is one."""
    pair = take_row(trees.meta, PAIRS, trees.nodes["child"], 2)
    reset_node(trees.nodes, pair)
    reset_node(trees.nodes, pair + 1)
    return pair


@inner
def free_pair(trees, pair):
    """Zero a pair of nodes and put it on the free list."""
    reset_node(trees.nodes, pair)
    reset_node(trees.nodes, pair + 1)
    give_row(trees.meta, PAIRS, trees.nodes["child"], pair)


def empty_trees(n_trees: int, width: int, *, is_regression: bool, has_tallies: bool) -> Trees:
    """Make a forest of `n_trees` empty root leaves.

    Parameters
    ----------
    n_trees : number of trees.
    width : classes, or 2 for regression.
    is_regression : whether the statistics are sums of targets.
    has_tallies : whether leaves have tallies instead of a counter for each class.
    """
    first_pair = n_trees + n_trees % 2
    nodes = aligned.zeros(first_pair + 64, NODE_DTYPE)
    nodes["block"] = NIL
    nodes["child"] = NIL
    nodes["child"][:n_trees] = ~np.arange(n_trees)
    n_leaves = n_trees + 64
    meta = np.zeros(META_SIZE, np.int64)
    meta[np.add(POOLS, FREE)] = NIL
    meta[FREE_ROOMS:] = NIL
    meta[PAIRS] = first_pair
    meta[LEAVES] = n_trees
    meta[N_MEMBERS] = n_trees
    meta[BLOCKS] = 1  # block 0 is the working space of the split search
    return Trees(
        nodes=nodes,
        statistics=np.zeros((0 if has_tallies else n_leaves, width), np.int64 if is_regression else np.int32),
        starts=np.arange(n_leaves, dtype=np.int32),
        rooms=np.zeros(n_leaves, np.uint8),
        members=np.zeros(n_trees + 64, np.int32),
        tallies=np.zeros((n_trees + 64 if has_tallies else 0, 2), np.int32),
        places=np.zeros(0, np.int32),
        tree_tags=np.zeros(n_trees, np.int64),
        meta=meta,
    )


def with_tallies(trees: Trees) -> Trees:
    """Put tallies in place of a counter for each class."""
    leaves, classes = np.nonzero(trees.statistics)
    rank = np.arange(len(leaves)) - np.searchsorted(leaves, leaves)
    tallies = aligned.zeros((len(trees.members), 2), np.int32)
    tallies[trees.starts[leaves] + rank] = np.column_stack([classes, trees.statistics[leaves, classes]])
    return trees._replace(statistics=trees.statistics[:0].copy(), tallies=tallies)


# -- leaves and the samples in them ------------------------------------------------------------------


@pasted
def room_for(n_samples):
    """Size, as a power of two, of the smallest room for so many entries."""
    room = 0
    while (np.int64(1) << room) < n_samples:
        room += 1
    return room


@pasted
def must_be_leaf(parameters, n_samples, depth):
    """Whether a node is a leaf whatever its samples are."""
    return n_samples < parameters[0]["min_samples_split"] or depth >= parameters[0]["max_depth"]


@inner
def available_members(trees):
    """Places that have never been taken: room for leaves of half as many entries, whatever their sizes."""
    return trees.members.shape[0] - trees.meta[N_MEMBERS]


@pasted
def allocate_room(trees, room):
    """Take a room of 2^room places; the caller has made sure that so many are available."""
    meta = trees.meta
    size = room
    while size <= MAX_ROOM and meta[FREE_ROOMS + size] == NIL:
        size += 1
    if size > MAX_ROOM:
        start = meta[N_MEMBERS]
        meta[N_MEMBERS] += np.int64(1) << room
        return start
    start = unlist_room(meta, trees.members, size)
    while size > room:
        size -= 1
        list_room(meta, trees.members, start + (np.int64(1) << size), size)
    return start


@pasted
def list_room(meta, members, start, room):
    """Put a free room on the list of its size."""
    # The next room's number is stored plus one, so that the end of the list is a zero like all that is unused.
    members[start] = np.int32(meta[FREE_ROOMS + room] + 1)
    meta[FREE_ROOMS + room] = start


@pasted
def unlist_room(meta, members, room):
    """Take a free room of a size off its list, which has one."""
    start = meta[FREE_ROOMS + room]
    meta[FREE_ROOMS + room] = np.int64(members[start]) - 1
    members[start] = np.int32(0)
    return start


@inner
def free_room(trees, start, room):
    """Zero a room and put it on the list of its size."""
    end = start + (np.int64(1) << room)
    for place in range(start, end):
        trees.members[place] = np.int32(0)
    if trees.tallies.shape[0] > 0:
        for place in range(start, end):
            trees.tallies[place, 0] = np.int32(0)
            trees.tallies[place, 1] = np.int32(0)
    list_room(trees.meta, trees.members, start, room)


@pasted
def allocate_leaf(trees, n_samples):
    """Take an empty leaf with room for so many entries; the caller has made sure that there is one."""
    leaf = take_row(trees.meta, LEAVES, trees.starts, 1)
    room = room_for(n_samples)
    trees.rooms[leaf] = np.uint8(room)
    trees.starts[leaf] = np.int32(allocate_room(trees, room))
    return leaf


@inner
def free_leaf(trees, leaf):
    """Zero a leaf and its room and put both on their free lists; its samples are listed elsewhere afterwards."""
    free_room(trees, np.int64(trees.starts[leaf]), np.int64(trees.rooms[leaf]))
    if trees.tallies.shape[0] == 0:
        for c in range(trees.statistics.shape[1]):
            trees.statistics[leaf, c] = 0
    trees.rooms[leaf] = np.uint8(0)
    give_row(trees.meta, LEAVES, trees.starts, leaf)


@inner
def is_full(trees, leaf, n_samples):
    """Whether a leaf with so many entries must move to list one more."""
    return n_samples == np.int64(1) << np.int64(trees.rooms[leaf])


@inner
def move_leaf(trees, leaf, n_samples, room):
    """Move a leaf's `n_samples` entries to a larger room; the caller has made sure that there is one."""
    old_start = np.int64(trees.starts[leaf])
    start = allocate_room(trees, room)
    for i in range(n_samples):
        entry = trees.members[old_start + i]
        trees.members[start + i] = entry
        trees.places[entry] = np.int32(start + i)
    if trees.tallies.shape[0] > 0:
        for i in range(n_samples):
            trees.tallies[start + i, 0] = trees.tallies[old_start + i, 0]
            trees.tallies[start + i, 1] = trees.tallies[old_start + i, 1]
    free_room(trees, old_start, np.int64(trees.rooms[leaf]))
    trees.starts[leaf] = np.int32(start)
    trees.rooms[leaf] = np.uint8(room)


@inner
def list_entry(trees, leaf, n_samples, entry):
    """List one more entry in a leaf that has `n_samples` and is not full; O(1)."""
    place = np.int64(trees.starts[leaf]) + n_samples
    trees.members[place] = np.int32(entry)
    trees.places[entry] = np.int32(place)


@inner
def unlist_entry(trees, leaf, n_samples, entry):
    """Take an entry out of a leaf that has `n_samples`, this one included; O(1)."""
    place = np.int64(trees.places[entry])
    last = np.int64(trees.starts[leaf]) + n_samples - 1
    moved = trees.members[last]
    trees.members[place] = moved
    trees.places[moved] = np.int32(place)
    trees.members[last] = np.int32(0)
    trees.places[entry] = np.int32(0)


@pasted
def count_in(statistics, row, place, target, sign, is_regression):
    """Add (sign 1) or take away (-1) one sample's target from the statistics that begin at a place of a row.

    Taking the row as a view would cost a reference count a sample, more than the counting.
    """
    field = field_of(target)
    if field == 0:
        if is_regression:
            statistics[row, place] += sign
            statistics[row, place + 1] += sign * target
        else:
            statistics[row, place + target] += sign
        return
    value, amount = value_of(target), amount_of(field)
    if is_regression:
        statistics[row, place] += sign * amount
        statistics[row, place + 1] += sign * weighed(value, field)
    else:
        statistics[row, place + value] += sign * amount


@pasted
def count_in_leaf(trees, leaf, n_samples, target, sign, is_regression):
    """Add a sample's target to a leaf that counts `n_samples` (sign 1), or take it away (-1).

    With tallies O(classes that the leaf has); there must be a place for one more.
    """
    tallies = trees.tallies
    if tallies.shape[0] == 0:
        count_in(trees.statistics, leaf, 0, target, sign, is_regression)
        return
    value = value_of(target)
    place = np.int64(trees.starts[leaf])
    end = place + n_samples
    while place < end and tallies[place, 1] != 0 and tallies[place, 0] != value:
        place += 1
    tallies[place, 0] = np.int32(value)
    tallies[place, 1] += np.int32(sign * amount_of(field_of(target)))
    if tallies[place, 1] == 0:
        # The last tally takes its place.
        last = place
        while last + 1 < end and tallies[last + 1, 1] != 0:
            last += 1
        tallies[place, 0], tallies[place, 1] = tallies[last, 0], tallies[last, 1]
        tallies[last, 0], tallies[last, 1] = np.int32(0), np.int32(0)


@pasted
def is_of_one_class(trees, leaf, n_samples, target):
    """Whether all samples of a leaf, one of which is of class `target`, are of this class."""
    if trees.tallies.shape[0] > 0:
        return n_samples == 1 or trees.tallies[np.int64(trees.starts[leaf]) + 1, 1] == 0
    value, others = value_of(target), np.int64(0)
    for c in range(trees.statistics.shape[1]):
        others += np.int64(c != value) * trees.statistics[leaf, c]
    return others == 0


@inner
def read_leaf(trees, leaf, n_samples, rows, row):
    """Write the statistics of a leaf to a row with a column for each class, or two for regression."""
    if trees.tallies.shape[0] == 0:
        for c in range(rows.shape[1]):
            rows[row, c] = trees.statistics[leaf, c]
        return
    for c in range(rows.shape[1]):
        rows[row, c] = 0
    start = np.int64(trees.starts[leaf])
    for place in range(start, start + n_samples):
        if trees.tallies[place, 1] == 0:
            break
        rows[row, trees.tallies[place, 0]] = trees.tallies[place, 1]
