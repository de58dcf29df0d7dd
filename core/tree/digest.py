"""The canonical form of the tree, and its hash.

The tree is written as 64-bit little-endian words in path order (a node, its left subtree, its right
subtree), exactly what prediction reads and nothing of how it came about:

    inner node    1, attribute, kind, threshold bits or category hash
    leaf          0, n samples, then the class counts of the classes held, in canonical order

The counters s and c are not in it: they decide what an update will do, not a prediction. All tags must have
been resolved.
"""

import hashlib

import numpy as np
import numpy.typing as npt

from oubli.core.jit.policy import inner, kernel
from oubli.core.tree.state import NIL, ROOT, TreeArrays
from oubli.core.tree.workspace import STACK_SIZE

_INNER = np.uint64(1)
_LEAF = np.uint64(0)


@inner
def _write_leaf(tree, node, class_order, words, size):
    words[size] = _LEAF
    words[size + 1] = np.uint64(tree.nodes[node]["n_samples"])
    for c in range(class_order.shape[0]):
        words[size + 2 + c] = np.uint64(tree.counts[node, class_order[c]])
    return size + 2 + class_order.shape[0]


@kernel
def write_words(tree, class_order, walk, words):
    """Write the tree's words to uint64 `words` and return their number, or NIL when they do not fit."""
    nodes = tree.nodes
    walk[0] = ROOT
    n_waiting = 1
    size = 0
    while n_waiting > 0:
        if size + max(2 + class_order.shape[0], 4) > words.shape[0]:
            return NIL
        n_waiting -= 1
        node = walk[n_waiting]
        child = np.int64(nodes[node]["child"])
        if child == NIL:
            size = _write_leaf(tree, node, class_order, words, size)
            continue
        words[size] = _INNER
        words[size + 1] = np.uint64(nodes[node]["attribute"])
        words[size + 2] = np.uint64(nodes[node]["kind"])
        words[size + 3] = nodes[node]["category"]
        size += 4
        walk[n_waiting] = child + 1
        walk[n_waiting + 1] = child
        n_waiting += 2
    return size


def tree_digest(tree: TreeArrays, n_nodes: int, class_order: npt.NDArray[np.int64]) -> str:
    """SHA-256 of a tree's words, hexadecimal; `n_nodes` is at least the number of its nodes."""
    words = np.empty(n_nodes * max(2 + len(class_order), 4) + 64, np.uint64)
    size = write_words(tree, class_order, np.empty(STACK_SIZE, np.int64), words)
    # A view: a copy as bytes would keep other threads waiting.
    return hashlib.sha256(words[:size].astype("<u8", copy=False).view(np.uint8).data).hexdigest()
