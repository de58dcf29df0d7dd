"""Leaves and the lists of the samples in them.

A leaf lists its entries side by side in a *room*, a stretch of `members` of 2^r places, so that
going through them reads memory in order:

    members   | e4 e9 e2 . | e7 | e1 e5 | . . . . |        starts[leaf] = first place, rooms[leaf] = r
    places[entry] = where in `members` it is               used: the first n_samples of the leaf's node

An entry leaves in O(1): the last one takes its place. A full leaf moves to a room of twice the size.
Free rooms of one size form a list through their first place; a larger one is cut in halves when none
fits. Unused places hold zero.
"""

import numpy as np

from oubli.core.forest.state import FREE_LEAF, FREE_ROOMS, MAX_ROOM, N_FREE_LEAVES, N_LEAVES, N_MEMBERS, NIL
from oubli.core.forest.workspace import MAX_DEPTH, MIN_SAMPLES_SPLIT
from oubli.core.jit.policy import inner, pasted


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
    return n_samples < parameters.values[MIN_SAMPLES_SPLIT] or depth >= parameters.values[MAX_DEPTH]


@inner
def available_leaves(trees):
    """Leaves that can be taken before the pool is full."""
    return trees.meta[N_FREE_LEAVES] + trees.starts.shape[0] - trees.meta[N_LEAVES]


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
    start = meta[FREE_ROOMS + size]
    meta[FREE_ROOMS + size] = np.int64(trees.members[start]) - 1
    trees.members[start] = np.int32(0)
    while size > room:
        size -= 1
        _list_room(trees, start + (np.int64(1) << size), size)
    return start


@pasted
def _list_room(trees, start, room):
    # The next room's number is stored plus one, so that the end of the list is a zero like all that is unused.
    trees.members[start] = np.int32(trees.meta[FREE_ROOMS + room] + 1)
    trees.meta[FREE_ROOMS + room] = start


@inner
def free_room(trees, start, room):
    """Zero a room and put it on the list of its size."""
    for place in range(start, start + (np.int64(1) << room)):
        trees.members[place] = np.int32(0)
    _list_room(trees, start, room)


@pasted
def allocate_leaf(trees, n_samples):
    """Take an empty leaf with room for so many entries; the caller has made sure that there is one."""
    meta = trees.meta
    leaf = meta[FREE_LEAF]
    if leaf == NIL:
        leaf = meta[N_LEAVES]
        meta[N_LEAVES] += 1
    else:
        meta[FREE_LEAF] = trees.starts[leaf]
        meta[N_FREE_LEAVES] -= 1
    room = room_for(n_samples)
    trees.rooms[leaf] = np.uint8(room)
    trees.starts[leaf] = np.int32(allocate_room(trees, room))
    return leaf


@inner
def free_leaf(trees, leaf):
    """Zero a leaf and its room and put both on their free lists; its samples are listed elsewhere afterwards."""
    free_room(trees, np.int64(trees.starts[leaf]), np.int64(trees.rooms[leaf]))
    for c in range(trees.statistics.shape[1]):
        trees.statistics[leaf, c] = 0
    trees.rooms[leaf] = np.uint8(0)
    trees.starts[leaf] = np.int32(trees.meta[FREE_LEAF])
    trees.meta[FREE_LEAF] = leaf
    trees.meta[N_FREE_LEAVES] += 1


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


@inner
def count_in(statistics, row, target, sign, is_regression):
    """Add (sign 1) or take away (-1) one sample's target from a row of statistics, int[any, width].

    Taking the row as a view would cost a reference count a sample, more than the counting.
    """
    if is_regression:
        statistics[row, 0] += sign
        statistics[row, 1] += sign * target
    else:
        statistics[row, target] += sign
