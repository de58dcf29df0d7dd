"""Gathering the samples of a subtree, and copying their cells close together."""

import numpy as np

from oubli.core.forest.bits import is_bit_column
from oubli.core.forest.state import NIL, leaf_of
from oubli.core.forest.workspace import AT_HAND, MAX_FEATURES, N_GATHERS, OCCURRENCES, WORKED
from oubli.core.jit.policy import inner, pasted
from oubli.core.jit.prefetch import prefetch_to_read

_FAR = 2**23  # cells of all samples that are in no cache: then rows are asked for before they are copied
_AHEAD = 12  # rows
_A_LINE = 8  # cells of a row, or fewer, in a line of the cache


@pasted
def forget_constants(scratch):
    """Begin with a node of which no column is known to be constant."""
    for word in range(scratch.constants.shape[1]):
        scratch.constants[AT_HAND, word] = np.uint64(0)


@pasted
def _ask_below(trees, node):
    """Ask for what is read next below a node."""
    child = np.int64(trees.nodes[node]["child"])
    if child < 0:
        prefetch_to_read(trees.starts, (~child,))
    else:
        prefetch_to_read(trees.nodes, (child,))


@pasted
def _list_leaves(trees, scratch, node):
    """List the leaves below a node that have samples in scratch.places, and how many they have in scratch.right.

    What is read next of each node is asked for when it is put off. Returns the number of leaves.
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
            left = np.int64(nodes[node]["child"])
            smaller = np.int64(nodes[left + 1]["n_samples"] < nodes[left]["n_samples"])
            stack[size, 0] = left + 1 - smaller
            stack[size + 1, 0] = left + smaller
            size += 2
            _ask_below(trees, left)
            _ask_below(trees, left + 1)
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
    inverse = 1.0 / np.float64(parameters.values[OCCURRENCES])
    for i in range(n):
        slot = np.int32((np.float64(scratch.entries[i]) + 0.5) * inverse)
        scratch.slots[i] = slot
        scratch.targets[i] = data.targets[np.uint64(slot)]
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
    most_features = 4 * levels * parameters.values[MAX_FEATURES]
    return levels >= 5 and data.cells.shape[1] <= most_features
