"""The reading of the tree: where rows end.

A row's answer is the class counts of the node it ends at: its leaf, or the last node on its way that
has samples, when all samples of the leaf have left. Nothing here writes to the tree.
"""

import numpy as np

from oubli.core.jit.nodes import NIL, goes_right
from oubli.core.jit.policy import inner, kernel
from oubli.core.tree.state import ROOT, TAGGED


@inner
def _walk(nodes, cells, row, category_hashes):
    """Leaf of a row, and the last node on its way that has samples."""
    node = np.int64(ROOT)
    answer = np.int64(ROOT)
    while nodes[node]["child"] != NIL:
        node = np.int64(nodes[node]["child"]) + goes_right(nodes, node, cells, row, category_hashes)
        if nodes[node]["n_samples"] > 0:
            answer = node
    return node, answer


@kernel
def end_of(nodes, cells, row, category_hashes):
    """Node where one row ends; when its leaf has a tag, ~leaf: that is to be resolved first."""
    leaf, answer = _walk(nodes, cells, row, category_hashes)
    return ~leaf if nodes[leaf]["flags"] & TAGGED else answer


@kernel
def ends_of(nodes, cells, category_hashes, first_row, ends):
    """Write the nodes where cells[first_row:] end to int32 `ends`.

    Returns the number of rows that are done; the leaf of the next one has a tag, and is in its place of `ends`.
    """
    for row in range(first_row, cells.shape[0]):
        leaf, answer = _walk(nodes, cells, row, category_hashes)
        if nodes[leaf]["flags"] & TAGGED:
            ends[row] = leaf
            return row
        ends[row] = answer
    return cells.shape[0]


@kernel
def list_tags(nodes, walk, tags):
    """Write the first tagged leaves, in path order, to int64 `tags`, which is not longer than there are tags.

    walk  int64[STACK_SIZE], working space
    """
    walk[0] = ROOT
    size = 1
    n_found = 0
    while n_found < tags.shape[0]:
        size -= 1
        node = walk[size]
        if nodes[node]["flags"] & TAGGED:
            tags[n_found] = node
            n_found += 1
        child = np.int64(nodes[node]["child"])
        if child != NIL:
            walk[size] = child + 1
            walk[size + 1] = child
            size += 2
