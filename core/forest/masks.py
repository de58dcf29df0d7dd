"""Masks: where a subtree has at most 64 samples, a word says of a bit column which of them have a 1 there.

    sample of the subtree         0  1  2  ...  63      its bit
    column_masks[column]        [ 1  0  0  ...   1 ]    is its cell 1?
    class_masks[code]           [ 0  1  1  ...   0 ]    is this its class?
    masks[AT_HAND]              [ 1  1  0  ...   1 ]    is it at the node at hand?      0: no masks are laid

So the left side of a candidate is counted by an AND for each class, and the sides of a split are masks again: the words
of the samples are turned once for the whole subtree.
"""

import numpy as np

from oubli.core.forest.workspace import AT_HAND, IS_REGRESSION, MASKED, MOST_CLASSES, RIGHT_SIDE, WIDTH
from oubli.core.jit.bitwise import count_ones
from oubli.core.jit.policy import inner, pasted

_ONE = np.uint64(1)
# Turning the words takes as long as counting their bits one by one for so many samples.
_LEAST_MASKED = 12


@pasted
def _turn(words, first):
    """Transpose the 64 words from `first` on: bit i of word k becomes bit k of word i."""
    width = 32
    low = np.uint64(0xFFFFFFFF)
    while width > 0:
        shift = np.uint64(width)
        for block in range(first, first + 64, 2 * width):
            for k in range(block, block + width):
                here, there = np.uint64(k), np.uint64(k + width)
                exchanged = ((words[here] >> shift) ^ words[there]) & low
                words[there] ^= exchanged
                words[here] ^= exchanged << shift
        width >>= 1
        low ^= low << np.uint64(width)


@inner
def _lay(data, parameters, scratch, start, end):
    width = parameters.values[WIDTH]
    for code in range(width):
        scratch.class_masks[code] = np.uint64(0)
    for i in range(start, end):
        position = np.uint64(scratch.order[i])
        bit = np.uint64(i - start)
        scratch.bit_of[position] = np.uint8(bit)
        scratch.class_masks[np.uint64(scratch.targets[position])] |= _ONE << bit
        for word in range(data.words.shape[1]):
            scratch.column_masks[np.uint64(64 * word) + bit] = scratch.words[position, np.uint64(word)]
    for word in range(data.words.shape[1]):
        for k in range(64 * word + end - start, 64 * word + 64):
            scratch.column_masks[np.uint64(k)] = np.uint64(0)
        _turn(scratch.column_masks, 64 * word)
    scratch.masks[AT_HAND] = np.uint64(2**64 - 1) >> np.uint64(64 - (end - start))


@pasted
def lay_masks(data, parameters, scratch, start, end):
    """Lay the masks of the samples scratch.order[start:end], of a node that is to be split, if that is worth it."""
    n_samples = end - start
    if scratch.masks[AT_HAND] != 0 or n_samples > MASKED or n_samples < _LEAST_MASKED or data.words.shape[1] == 0:
        return
    if parameters.values[IS_REGRESSION] == 0 and parameters.values[WIDTH] <= MOST_CLASSES:
        _lay(data, parameters, scratch, start, end)


@pasted
def count_ones_by_masks(scratch, counters, block, place, attribute, width):
    """Count the samples with 1 in a bit column at a place of a block; returns their number."""
    ones = scratch.column_masks[np.uint64(attribute)] & scratch.masks[AT_HAND]
    n_ones = count_ones(ones)
    if width == 2:
        n_second = count_ones(ones & scratch.class_masks[1])
        counters[block, place] = n_ones - n_second
        counters[block, place + 1] = n_second
        return n_ones
    for code in range(width):
        counters[block, place + code] = count_ones(ones & scratch.class_masks[code])
    return n_ones


@pasted
def divide_mask(scratch, middle, end):
    """Write the mask of the right side, which is scratch.order[middle:end], if masks are laid."""
    if scratch.masks[AT_HAND] != 0:
        right = np.uint64(0)
        for i in range(middle, end):
            right |= _ONE << np.uint64(scratch.bit_of[np.uint64(scratch.order[i])])
        scratch.masks[RIGHT_SIDE] = right


@pasted
def hand_mask(scratch, side, to):
    """Hand the mask of a side of the split made last on to a row of the stack, or to `AT_HAND`."""
    if scratch.masks[AT_HAND] != 0:
        right = scratch.masks[RIGHT_SIDE]
        scratch.masks[to] = right if side == 1 else scratch.masks[AT_HAND] & ~right
    else:
        scratch.masks[to] = np.uint64(0)
