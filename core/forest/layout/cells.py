"""The cells of samples as growing reads them: as rows of bits, gathered for a subtree, and copied close together.

Bit rows hold the cells of a sample that are 1, as bits, so that growing looks at 64 columns at once:

    column      0   1   2  ...  63 | 64  65  ...          bit c % 64 of word c // 64
    words     [ 1   0   0  ...   1 |  0   1  ... ]        is the cell of column c 1?

A *bit column* is a numeric one in which every sample held has 0 or 1, and none is without a value; one-hot columns are.
`and` and `or` over the words of a node tell which of them are constant there, and their ones are counted from the
words: a cell read on its own costs a line of the cache. A column is one or is not by the samples held alone, and
whether it is never shows in the model.

The words of a sample are written when it is added and zeroed when it is deleted (`update.py`). Trees whose samples
had few bit columns when they were planted keep no words: `words` has no columns, and there are no bit columns.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Bools, Hashes, Ints
from oubli.core.concurrency.threads import is_long, run
from oubli.core.forest.state import count_in, leaf_of, put_off_children
from oubli.core.forest.workspace import AT_HAND, N_GATHERS, PADDING, WORKED
from oubli.core.jit import aligned
from oubli.core.jit.aligned import prefetch_to_read, trailing_zeros
from oubli.core.jit.nodes import NIL
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.samples.arrays import Data

# Looking at the words of a node must pay for itself: it takes a sixteenth of the columns as long as a drawn column.
_LEAST_SHARE = 1 / 8
_PACKING = 0.5e-9  # seconds a cell, roughly
_ONE, _SIX, _LOW = np.uint64(1), np.uint64(6), np.uint64(63)
_ALL = np.uint64(2**64 - 1)

_FAR = 2**20  # cells of all samples that are in no near cache: then rows are prefetched before they are copied
_AHEAD = 12  # rows
_A_LINE = 8  # cells of a row, or fewer, in a line of the cache


class BitRows(NamedTuple):
    """The bit rows of a forest's samples, by slot; see the top of this file."""

    words: npt.NDArray[np.uint64]  # uint64[n_slots, ceil(d / 64) or 0]
    columns: Hashes  # uint64[ceil(d / 64)] the bit columns, a bit each
    n_others: npt.NDArray[np.int32]  # int32[d] samples with something else than 0 or 1 in a column

    def with_slots(self, n_slots: int) -> "BitRows":
        """Make room for the words of so many slots."""
        capacity = len(self.words)
        if n_slots <= capacity:
            return self
        return self._replace(words=aligned.enlarged(self.words, max(n_slots, capacity + capacity // 4)))


class ForestData(NamedTuple):
    """The samples as the kernels of the forest read them: those of `Data`, with their bit rows."""

    cells: Array
    targets: Ints
    id_hashes: Hashes
    category_hashes: Hashes
    categorical: Bools
    words: npt.NDArray[np.uint64]
    bit_columns: Hashes
    n_others: npt.NDArray[np.int32]


def no_bit_rows(n_features: int) -> BitRows:
    """Bit rows that hold nothing."""
    n_words = -(-n_features // 64)
    columns = np.zeros(n_words, np.uint64)
    return BitRows(aligned.zeros((0, 0), np.uint64), columns, np.zeros(n_features, np.int32))


def bit_rows_of(data: Data, slots: Ints, n_threads: int = 1) -> BitRows:
    """Bit rows of the samples in `slots`; O(n d)."""
    n_features = data.cells.shape[1]
    rows = no_bit_rows(n_features)
    n_slots = int(slots.max()) + 1 if len(slots) else 0
    rows = rows._replace(words=aligned.zeros((n_slots, len(rows.columns)), np.uint64))
    # Before there is any sample all numeric columns are bit columns.
    packed = np.zeros(8 * len(rows.columns), np.uint8)
    packed[: -(-n_features // 8)] = np.packbits(~data.categorical, bitorder="little")
    rows.columns[:] = packed.view("<u8")
    n = n_threads if is_long(_PACKING * len(slots) * n_features) else 1
    step = max(1, -(-len(slots) // n))

    def pack(first: int) -> BitRows:
        some = rows._replace(columns=rows.columns.copy(), n_others=rows.n_others.copy())
        pack_rows(ForestData(*data, *some), slots[first : first + step])
        return some

    for some in run([partial(pack, first) for first in range(0, len(slots), step)], n):
        rows.columns[:] &= some.columns
        rows.n_others[:] += some.n_others
    n_bits = sum(map(int.bit_count, rows.columns.tolist()))
    return rows if n_bits >= _LEAST_SHARE * n_features else no_bit_rows(n_features)


@inner
def keep_bits(data, slot, sign):
    """Write the words of a sample that has been added (sign 1), or zero those of one that has been deleted (-1)."""
    slot = np.uint64(slot)
    for word in range(data.words.shape[1]):
        first = 64 * word
        ones = np.uint64(0)
        others = np.uint64(0)
        for column in range(first, min(first + 64, data.cells.shape[1])):
            x = data.cells[slot, np.uint64(column)]
            bit = np.uint64(column - first)
            ones |= np.uint64(x == 1) << bit
            others |= np.uint64((x != 0) & (x != 1)) << bit
        data.words[slot, np.uint64(word)] = ones if sign > 0 else np.uint64(0)
        while others != 0:
            bit = trailing_zeros(others)
            others &= others - _ONE
            column = first + bit
            data.n_others[column] += np.int32(sign)
            is_bit = data.n_others[column] == 0 and not data.categorical[column]
            data.bit_columns[word] &= ~(_ONE << np.uint64(bit))
            data.bit_columns[word] |= np.uint64(is_bit) << np.uint64(bit)


@pasted
def note_differences(data, differing, slot, other):
    """Write a bit for each column in which two samples differ; both have their words."""
    slot, other = np.uint64(slot), np.uint64(other)
    n_columns = data.cells.shape[1]
    for word in range(differing.shape[0]):
        bits = np.uint64(0)
        rest = _ALL if n_columns - 64 * word >= 64 else (_ONE << np.uint64(n_columns - 64 * word)) - _ONE
        if data.words.shape[1] > 0:
            w = np.uint64(word)
            bits = (data.words[slot, w] ^ data.words[other, w]) & data.bit_columns[w]
            rest &= ~data.bit_columns[w]
        while rest != 0:
            bit = np.uint64(trailing_zeros(rest))
            rest &= rest - _ONE
            column = np.uint64(64 * word) + bit
            x = data.cells[slot, column]
            y = data.cells[other, column]
            # Two that are missing are equal.
            bits |= np.uint64((x != y) & ((x == x) | (y == y))) << bit
        differing[word] = bits


@kernel
def pack_rows(data, slots):
    """Write the words of samples, of which none is counted yet."""
    for i in range(slots.shape[0]):
        keep_bits(data, slots[i], 1)


@pasted
def is_bit_column(data, attribute):
    """Whether a column is a bit column."""
    column = np.uint64(attribute)
    return (data.bit_columns[column >> _SIX] >> (column & _LOW)) & _ONE != 0


@pasted
def find_constants(data, scratch, start, end):
    """Gather the bit rows of the node, and add the bit columns that are constant in it to those known to be."""
    order = scratch.order
    for word in range(data.words.shape[1]):
        w = np.uint64(word)
        if data.bit_columns[w] == 0:
            continue
        ones = _ALL
        some = np.uint64(0)
        for i in range(start, end):
            bits = scratch.words[np.uint64(order[np.uint64(i)]), w]
            scratch.node_words[w, np.uint64(i - start)] = bits
            ones &= bits
            some |= bits
        scratch.constants[AT_HAND, word] |= (ones | ~some) & data.bit_columns[w]


@pasted
def count_ones_of(parameters, scratch, counters, block, place, attribute, n_samples):
    """Count the samples with 1 in a bit column at a place of a block, which is zero."""
    width, is_regression = parameters[0]["width"], parameters[0]["is_regression"] != 0
    column = np.uint64(attribute)
    word, bit = column >> np.uint64(6), column & np.uint64(63)
    words = scratch.node_words
    targets = scratch.node_targets
    n_ones = np.int64(0)
    total = np.int64(0)
    if parameters[0]["has_weights"] != 0:
        for i in range(n_samples):
            if (words[word, np.uint64(i)] >> bit) & np.uint64(1):
                count_in(counters, block, place, targets[i], 1, is_regression)
        return
    if is_regression or width == 2:
        # All bits of the mask are set where the cell is 1. The code of the second class is 1: its sum is its count.
        for i in range(n_samples):
            mask = -np.int64((words[word, np.uint64(i)] >> bit) & np.uint64(1))
            n_ones -= mask
            total += mask & targets[i]
        counters[block, place] = n_ones if is_regression else n_ones - total
        counters[block, place + 1] = total
        return
    for i in range(n_samples):
        is_one = np.int64((words[word, np.uint64(i)] >> bit) & np.uint64(1))
        counters[block, np.uint64(place + targets[i])] += is_one


# -- gathering and copying ----------------------------------------------------------------------------


@pasted
def forget_constants(scratch):
    """Begin with a node of which no column is known to be constant."""
    for word in range(scratch.constants.shape[1]):
        scratch.constants[AT_HAND, word] = np.uint64(0)


@pasted
def _ask_below(trees, node):
    """Prefetch what is read next below a node."""
    child = np.int64(trees.nodes[node]["child"])
    if child < 0:
        prefetch_to_read(trees.starts, (~child,))
    else:
        prefetch_to_read(trees.nodes, (child,))


@pasted
def _list_leaves(trees, scratch, node):
    """List the leaves below a node that have samples in scratch.places, and how many they have in scratch.right.

    What is read next of each node is prefetched when it is pushed. Returns the number of leaves.
    """
    nodes = trees.nodes
    stack = scratch.stack
    stack[0, 0] = node
    size = 1
    n_leaves = 0
    while size > 0:
        size -= 1
        node = stack[size, 0]
        n_samples = nodes[node]["n_samples"]
        if n_samples == 0:
            continue
        leaf = leaf_of(nodes, node)
        if leaf == NIL:
            size = put_off_children(nodes, stack, size, node)
            _ask_below(trees, stack[size - 1, 0])
            _ask_below(trees, stack[size - 2, 0])
            continue
        scratch.places[n_leaves] = np.int32(leaf)
        scratch.right[n_leaves] = n_samples
        n_leaves += 1
    return n_leaves


@inner
def gather(trees, data, parameters, scratch, node):
    """Collect the samples below a node; returns their number.

    Those below the child with fewer samples come first, and so on down.
    """
    n_leaves = _list_leaves(trees, scratch, node)
    for i in range(n_leaves):
        start = trees.starts[np.uint64(scratch.places[i])]
        prefetch_to_read(trees.members, (np.int64(start),))
        scratch.places[i] = start
    n = np.int64(0)
    for i in range(n_leaves):
        start = np.int64(scratch.places[i])
        n_samples = np.int64(scratch.right[i])
        for j in range(n_samples):
            scratch.entries[n + j] = trees.members[start + j]
        n += n_samples
    # slot = entry // k, by a multiplication: with the half added the quotient is at least 1/(2k) away from an
    # integer, far more than the rounding of 31 bits by 53.
    inverse = 1.0 / np.float64(parameters[0]["occurrences"])
    for i in range(n):
        slot = np.int32((np.float64(scratch.entries[i]) + 0.5) * inverse)
        scratch.slots[i] = slot
        scratch.targets[i] = data.targets[np.uint64(slot)]
        scratch.id_hashes[i] = data.id_hashes[np.uint64(slot)]
        scratch.order[i] = np.int32(i)
    for word in range(data.words.shape[1]):
        w = np.uint64(word)
        for i in range(n):
            scratch.words[np.uint64(i), w] = data.words[np.uint64(scratch.slots[i]), w]
    forget_constants(scratch)
    scratch.work[WORKED] += n
    scratch.work[N_GATHERS] += 1
    return n


@pasted
def first_below(nodes, pair, side, first):
    """Position of the first sample of a child, if that of its node is `first`; NIL if these are not gathered."""
    if first == NIL:
        return first
    smaller = np.int64(nodes[pair + 1]["n_samples"] < nodes[pair]["n_samples"])
    return first if side == smaller else first + np.int64(nodes[pair + smaller]["n_samples"])


@pasted
def padded(n_samples):
    """Number of values that loops over a gathered column go through."""
    return (n_samples + (PADDING - 1)) // PADDING * PADDING


@pasted
def gather_column(data, scratch, attribute, start, end, first_copied):
    """Copy one column of the node's samples to scratch.values, padded with copies of the first.

    first_copied  position of the first sample whose cells scratch.columns holds; NIL: it holds none of these
    """
    values = scratch.values
    order = scratch.order
    column = np.uint64(attribute)
    if first_copied != NIL:
        for i in range(start, end):
            position = np.uint64(order[np.uint64(i)] - first_copied)
            values[np.uint64(i - start)] = scratch.columns[column, position]
    else:
        for i in range(start, end):
            slot = np.uint64(scratch.slots[np.uint64(order[np.uint64(i)])])
            values[np.uint64(i - start)] = data.cells[slot, column]
    first = values[0]
    for i in range(end - start, padded(end - start)):
        values[i] = first


@pasted
def _key_of(bits, x, magnitude):
    """Order of a float, by its bits: an integer that grows with it. NaN, of which there is one, is the largest.

    bits  any array of the bits' type: in that type, for twice as many of them are in a vector register as of int64
    """
    return bits.dtype.type(x ^ (magnitude if x < 0 else bits.dtype.type(0)))


@pasted
def _value_of(scratch, key, magnitude):
    scratch.end_bits[0] = _key_of(scratch.end_bits, key, magnitude)
    return np.float64(scratch.end[0])


@pasted
def find_range(scratch, n_samples):
    """Range of the gathered values and number of those that are missing.

    By integers, for LLVM vectorises no minimum of floats that may be NaN. With all values missing
    the range is that of a NaN.
    """
    bits = scratch.value_bits
    magnitude, largest = scratch.bit_constants
    lo = _key_of(bits, bits[0], magnitude)
    hi = lo
    for i in range(padded(n_samples)):
        key = _key_of(bits, bits[i], magnitude)
        lo = min(lo, key)
        hi = max(hi, key)
    n_missing = 0
    if hi > largest:
        hi = bits.dtype.type(-magnitude)
        for i in range(n_samples):
            key = _key_of(bits, bits[i], magnitude)
            if key > largest:
                n_missing += 1
            else:
                hi = max(hi, key)
        if n_missing == n_samples:
            return np.nan, np.nan, n_missing
    return _value_of(scratch, lo, magnitude), _value_of(scratch, hi, magnitude), n_missing


@inner
def copy_columns(data, scratch, start, end, first):
    """Copy the cells of scratch.order[start:end], so that growing many levels reads them close together.

    first  position of the first of these samples from now on: 0 when they are all samples gathered, else the number
           of those, so that the others keep theirs

    Bit columns are left out, for they are read from the bit rows.
    """
    order = scratch.order
    copied = scratch.swaps
    n_copied = 0
    for attribute in range(data.cells.shape[1]):
        if not is_bit_column(data, attribute):
            copied[n_copied] = np.int32(attribute)
            n_copied += 1
    is_far = data.cells.size >= _FAR
    for i in range(start, end):
        to = np.uint64(i - start)
        position = np.uint64(order[i])
        slot = np.uint64(scratch.slots[position])
        if is_far:
            ahead = np.int64(scratch.slots[np.uint64(order[min(i + _AHEAD, end - 1)])])
            for j in range(0, n_copied, _A_LINE):
                prefetch_to_read(data.cells, (ahead, np.int64(copied[j])))
        for j in range(n_copied):
            attribute = np.uint64(copied[j])
            scratch.columns[attribute, to] = data.cells[slot, attribute]
        if first > 0:
            to += np.uint64(first)
            scratch.entries[to] = scratch.entries[position]
            scratch.slots[to] = np.int32(slot)
            scratch.targets[to] = scratch.targets[position]
            scratch.id_hashes[to] = scratch.id_hashes[position]
            for word in range(data.words.shape[1]):
                scratch.words[to, np.uint64(word)] = scratch.words[position, np.uint64(word)]
            order[i] = np.int32(to)


@pasted
def is_worth_copying(data, parameters, scratch, n_samples):
    """Whether growing all levels from these samples reads about as many cells as there are."""
    if n_samples > scratch.columns.shape[1]:
        return False
    levels = 0
    while n_samples >> levels > 1:
        levels += 1
    most_features = 4 * levels * parameters[0]["max_features"]
    return levels >= 5 and data.cells.shape[1] <= most_features
