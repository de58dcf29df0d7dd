"""Dividing the lists of a node among its children; stable, so that they stay sorted.

`sides` says where each position goes. The last bit of an entry, whether its value differs from that of the
one before, becomes the OR of the bits since the last entry of the same side.
"""

import numpy as np

from oubli.core.jit.policy import inner, pasted
from oubli.core.tree.workspace import LEFT


@pasted
def place_side(lists, start, end, class_bits, sides, side):
    """Send the samples of a range to one side."""
    for i in range(start, end):
        sides[np.uint64(np.int64(lists[np.uint64(i)]) >> (class_bits + 1))] = np.uint8(side)


@inner
def place_left(lists, start, end, class_bits, sides, tallies):
    """Send the samples of a range left, and count their classes."""
    place_side(lists, start, end, class_bits, sides, 0)
    mask = (1 << class_bits) - 1
    for i in range(start, end):
        tallies[LEFT, (np.int64(lists[i]) >> 1) & mask] += 1


@inner
def place_by_category(lists, codes, category, start, end, class_bits, sides, tallies):
    """Send the samples of one local category left and the others right, and count those to the left.

    codes  start of the list with the local category of each position
    """
    mask = (1 << class_bits) - 1
    for i in range(start, end):
        entry = np.int64(lists[i])
        position = entry >> (class_bits + 1)
        is_left = np.int64(np.int64(lists[codes + position]) == category)
        sides[position] = np.uint8(1 - is_left)
        tallies[LEFT, (entry >> 1) & mask] += is_left


@inner
def divide(lists, start, end, class_bits, sides, other):
    """Put the entries that go left first and the others behind them.

    other  start of a list to be used as room for the right side
    """
    shift = class_bits + 1
    left_at, right_at = start, other
    left_bit = np.int64(0)
    right_bit = np.int64(0)
    for i in range(start, end):
        entry = np.int64(lists[np.uint64(i)])
        right = np.int64(sides[np.uint64(entry >> shift)])
        left_bit |= entry & 1
        right_bit |= entry & 1
        # Both sides are written; only one moves on. No branch, for the sides are as good as random.
        lists[np.uint64(left_at)] = entry | left_bit
        lists[np.uint64(right_at)] = entry | right_bit
        left_at += 1 - right
        right_at += right
        left_bit &= -right
        right_bit &= right - 1
    for i in range(right_at - other):
        lists[np.uint64(left_at + i)] = lists[np.uint64(other + i)]


@inner
def keep_side(lists, start, end, class_bits, sides, side):
    """Move the entries of one side to the start, and forget the others."""
    shift = class_bits + 1
    at = start
    bit = np.int64(0)
    for i in range(start, end):
        entry = np.int64(lists[np.uint64(i)])
        kept = np.int64(np.int64(sides[np.uint64(entry >> shift)]) == side)
        bit |= entry & 1
        lists[np.uint64(at)] = entry | bit
        at += kept
        bit &= kept - 1
