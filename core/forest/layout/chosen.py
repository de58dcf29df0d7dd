"""The choice of the samples that a node's candidates depend on, and what these have in a column; see `blocks.py`."""

from typing import NamedTuple

import numpy as np

from oubli.core.forest.layout.blocks import (
    AT_HI,
    AT_LO,
    CHOICE_LIMIT,
    HI,
    LO,
    N_CHOSEN,
    N_LEAST,
    N_MOST,
    NO_VALUE,
    NOT_SPREAD,
    REPRESENTATIVE,
    below,
    choice_hash,
    choice_limit,
)
from oubli.core.forest.layout.cells import find_range, gather_column
from oubli.core.jit.nodes import NIL
from oubli.core.jit.policy import pasted


class ChosenValues(NamedTuple):
    """What the chosen samples have in a column."""

    n: int  # chosen samples
    lo: float  # their smallest value; NaN when none has one
    hi: float
    n_missing: int


@pasted
def is_spread(chosen):
    """Whether the chosen samples differ in a column."""
    return chosen.lo < chosen.hi or 0 < chosen.n_missing < chosen.n


@pasted
def choose_samples(parameters, scratch, blocks, block, key, start, end):
    """List the chosen ones of the samples scratch.order[start:end], from 0, in scratch.chosen; returns their number.

    When all are chosen nothing is listed. Completes the head of the block.
    """
    halves = blocks.halves
    n_samples = end - start
    is_all = choice_limit(parameters, blocks, block, key, n_samples)
    limit = blocks.keys[block, CHOICE_LIMIT]
    n_chosen = np.int64(0)
    if not is_all:
        # A loop for each step, so that the hashes are computed in vectors.
        for i in range(n_samples):
            scratch.node_hashes[np.uint64(i)] = scratch.id_hashes[np.uint64(scratch.order[np.uint64(start + i)])]
        for i in range(n_samples):
            scratch.places[i] = np.int32(choice_hash(key, scratch.node_hashes[i]) <= limit)
        for i in range(n_samples):
            # As good as random, but for the few that are chosen: without a branch.
            scratch.chosen[np.uint64(n_chosen)] = np.int32(i)
            n_chosen += np.int64(scratch.places[np.uint64(i)])
    first = scratch.chosen[0] if n_chosen > 0 else np.int32(0)
    if n_chosen == 0:
        n_chosen = n_samples
        if not is_all:
            # The next sample that is added may be the only one that is chosen.
            halves[block, N_LEAST] = np.int32(n_samples)
            halves[block, N_MOST] = np.int32(n_samples)
    halves[block, N_CHOSEN] = np.int32(n_chosen)
    blocks.longs[block, REPRESENTATIVE] = scratch.slots[np.uint64(scratch.order[start + first])]
    return n_chosen


@pasted
def find_spread_bits(data, scratch, n_chosen, n_samples):
    """Find the bit columns in which the chosen samples have a one, and those in which they have a zero.

    Where all are chosen, what is not known to be constant has both.
    """
    for word in range(data.words.shape[1]):
        some = ~np.uint64(0)
        zero = ~np.uint64(0)
        if n_chosen < n_samples and data.bit_columns[word] != 0:
            ones = ~np.uint64(0)
            some = np.uint64(0)
            for i in range(n_chosen):
                bits = scratch.node_words[word, np.uint64(scratch.chosen[i])]
                ones &= bits
                some |= bits
            zero = ~ones
        scratch.chosen_bits[0, word] = zero
        scratch.chosen_bits[1, word] = some


@pasted
def chosen_bit(scratch, attribute, n_chosen):
    """What the chosen samples have in a bit column; their ones are not counted."""
    word, bit = attribute >> 6, np.uint64(attribute & 63)
    has_zero = np.float64((scratch.chosen_bits[0, word] >> bit) & np.uint64(1))
    has_one = np.float64((scratch.chosen_bits[1, word] >> bit) & np.uint64(1))
    return ChosenValues(n_chosen, 1.0 - has_zero, has_one, np.int64(0))


@pasted
def count_chosen_ones(scratch, attribute, n_chosen, n_samples):
    """Number of chosen samples with 1 in a bit column."""
    column = np.uint64(attribute)
    word, bit = column >> np.uint64(6), column & np.uint64(63)
    n_ones = np.int64(0)
    for i in range(n_chosen):
        position = np.uint64(scratch.chosen[i]) if n_chosen < n_samples else np.uint64(i)
        n_ones += np.int64((scratch.node_words[word, position] >> bit) & np.uint64(1))
    return n_ones


@pasted
def chosen_numbers(data, scratch, attribute, start, end, first_copied, n_chosen):
    """What the chosen samples have in a column that is no bit column; gathers it when all are chosen."""
    if n_chosen == end - start:
        gather_column(data, scratch, attribute, start, end, first_copied)
        lo, hi, n_missing = find_range(scratch, n_chosen)
        return ChosenValues(n_chosen, lo, hi, n_missing)
    lo = np.inf
    hi = -np.inf
    n_missing = np.int64(0)
    column = np.uint64(attribute)
    for i in range(n_chosen):
        position = np.uint64(scratch.order[start + scratch.chosen[i]])
        if first_copied != NIL:
            x = np.float64(scratch.columns[column, position - np.uint64(first_copied)])
        else:
            x = np.float64(data.cells[np.uint64(scratch.slots[position]), column])
        n_missing += np.int64(x != x)
        lo = x if x < lo else lo
        hi = x if x > hi else hi
    if n_missing == n_chosen:
        return ChosenValues(n_chosen, np.nan, np.nan, n_missing)
    return ChosenValues(n_chosen, lo, hi, n_missing)


@pasted
def store_ends(blocks, block, at, lo, hi, at_lo, at_hi):
    """Write the ends of an attribute's chosen values, and how many of them are there."""
    blocks.reals[block, at + LO] = lo
    blocks.reals[block, at + HI] = hi
    blocks.halves[block, 2 * at + AT_LO] = np.int32(at_lo)
    blocks.halves[block, 2 * at + AT_HI] = np.int32(at_hi)


@pasted
def store_range(scratch, blocks, block, at, chosen, n_samples):
    """Write the range of the chosen values of the gathered column to the attribute.

    How many are at its ends is for mutations, which the working space never sees.
    """
    at_lo = 0
    at_hi = 0
    if block != 0:
        for i in range(chosen.n):
            x = np.float64(scratch.values[scratch.chosen[i] if chosen.n < n_samples else i])
            at_lo += np.int64(x == chosen.lo)
            at_hi += np.int64(x == chosen.hi)
    store_ends(blocks, block, at, chosen.lo, chosen.hi, at_lo, at_hi)


@pasted
def store_value(data, scratch, blocks, block, at, chosen, n_samples):
    """Write the only candidate of an attribute that is not spread; see `blocks.py`."""
    if chosen.n_missing == chosen.n:
        store_ends(blocks, block, at, 0.0, 0.0, 0, NO_VALUE)
        return
    value = chosen.lo
    n_above = np.int64(0)
    n_below = np.int64(0)
    for i in range(n_samples):
        x = np.float64(scratch.values[i])
        n_above += np.int64(x > value)
        n_below += np.int64(x < value)
    if n_above > 0:
        store_ends(blocks, block, at, value, np.inf, 0, NOT_SPREAD)
    elif n_below > 0:
        store_ends(blocks, block, at, below(value, data.cells), value, 0, NOT_SPREAD)
    else:
        store_ends(blocks, block, at, value, value, 0, NOT_SPREAD)
