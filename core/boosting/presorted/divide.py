"""Dividing the samples of a node among its children; stable, so that sorted lists stay sorted."""

import numpy as np

from oubli.core.boosting.presorted.split import MISSING_LEFT, ONE_VS_REST
from oubli.core.jit.policy import inner
from oubli.core.rng import MISSING_CATEGORY
from oubli.core.tree.split import midpoint


@inner
def first_missing(cells, slots, column, entries, start, end):
    """Place in a node's part of a list from which on values are missing."""
    while start < end:
        middle = (start + end) >> 1
        x = cells[slots[entries[middle] >> 1], column]
        if x != x:
            end = middle
        else:
            start = middle + 1
    return start


@inner
def side_narrow(table, members, sides, cells, start, end, j, place, kind, nodes, node):
    """Say where the samples of a node go, and write the threshold of its split or the category."""
    first = np.int64(table.offsets[j])
    code = place - first
    if kind == ONE_VS_REST:
        for i in range(start, end):
            row = np.uint64(members[np.uint64(i)])
            sides[row] = np.uint8(np.int64(table.codes[row, np.uint64(j)]) != code)
        nodes[node]["category"] = table.hashes[place]
        return
    n_bins = np.int64(table.offsets[j + 1]) - first
    missing = n_bins - 1 if table.has_missing[table.narrow[j]] else n_bins
    following = missing
    for i in range(start, end):
        row = np.uint64(members[np.uint64(i)])
        here = np.int64(table.codes[row, np.uint64(j)])
        goes_right = here > code
        if goes_right and here < following:
            following = here
        sides[row] = np.uint8(goes_right)
    if kind == MISSING_LEFT:
        for i in range(start, end):
            row = np.uint64(members[np.uint64(i)])
            if np.int64(table.codes[row, np.uint64(j)]) == missing:
                sides[row] = np.uint8(0)
    if following == missing:
        nodes[node]["threshold"] = np.inf
    else:
        nodes[node]["threshold"] = midpoint(table.values[place], table.values[first + following], cells)


@inner
def _send(entries, start, end, sides, side):
    for i in range(start, end):
        sides[np.uint64(entries[np.uint64(i)] >> 1)] = np.uint8(side)


@inner
def side_wide(table, entries, sides, cells, category_hashes, start, end, j, place, kind, nodes, node):
    """The same for a wide column."""
    column = np.int64(table.wide[j])
    if kind == ONE_VS_REST:
        _send(entries, start, end, sides, 1)
        stop = place + 1
        while stop < end and entries[stop] & 1 == 0:
            stop += 1
        _send(entries, place, stop, sides, 0)
        x = cells[table.slots[entries[place] >> 1], column]
        nodes[node]["category"] = MISSING_CATEGORY if x != x else category_hashes[np.int64(x)]
        return
    present_end = end
    if table.has_missing[column]:
        present_end = first_missing(cells, table.slots, column, entries, start, end)
    _send(entries, start, place, sides, 0)
    _send(entries, place, present_end, sides, 1)
    _send(entries, present_end, end, sides, 0 if kind == MISSING_LEFT else 1)
    if place == present_end:
        nodes[node]["threshold"] = np.inf
    else:
        low = cells[table.slots[entries[place - 1] >> 1], column]
        high = cells[table.slots[entries[place] >> 1], column]
        nodes[node]["threshold"] = midpoint(low, high, cells)


@inner
def divide_members(members, spare, sides, start, end):
    """Put the samples that go left first; returns where the others begin."""
    left, right = start, 0
    for i in range(start, end):
        row = members[np.uint64(i)]
        side = np.int64(sides[np.uint64(row)])
        # Both sides are written; only one moves on. No branch, for the sides are as good as random.
        members[np.uint64(left)] = row
        spare[np.uint64(right)] = row
        left += 1 - side
        right += side
    for i in range(right):
        members[np.uint64(left + i)] = spare[np.uint64(i)]
    return left


@inner
def divide_list(entries, spare, sides, start, end):
    """The same for a sorted list, which stays sorted.

    An entry's last bit, whether its value differs from the one before, becomes the OR of the bits since the last entry
    of the same side.
    """
    left, right = start, 0
    left_bit, right_bit = np.int64(0), np.int64(0)
    for i in range(start, end):
        entry = np.int64(entries[np.uint64(i)])
        side = np.int64(sides[np.uint64(entry >> 1)])
        left_bit |= entry & 1
        right_bit |= entry & 1
        entries[np.uint64(left)] = entry | left_bit
        spare[np.uint64(right)] = entry | right_bit
        left += 1 - side
        right += side
        left_bit &= -side
        right_bit &= side - 1
    for i in range(right):
        entries[np.uint64(left + i)] = spare[np.uint64(i)]


@inner
def copy_list(source, target):
    """Copy a list, to be divided."""
    for i in range(source.shape[0]):
        target[i] = source[i]
