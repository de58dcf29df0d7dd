"""The canonical form of the trees, and its hash.

Each tree is written as 64-bit little-endian words in path order (a node, its left subtree, its
right subtree), exactly what prediction reads and nothing of how it came about:

    inner node    1, attribute, kind, threshold bits or category hash / key
    leaf          0, n samples, then the class counts of the classes held, in canonical order;
                  for regression 0, n samples, sum of the quantised targets

All tags must have been resolved.
"""

import hashlib

import numpy as np
import numpy.typing as npt

from oubli.core.forest.state import NIL, Trees, leaf_of
from oubli.core.jit.policy import inner, kernel

_INNER = np.uint64(1)
_LEAF = np.uint64(0)


@inner
def _write_leaf(statistics, n_samples, is_regression, class_order, words, size):
    words[size] = _LEAF
    words[size + 1] = np.uint64(n_samples)
    if is_regression:
        words[size + 2] = np.uint64(statistics[1])
        return size + 3
    for c in range(class_order.shape[0]):
        words[size + 2 + c] = np.uint64(statistics[class_order[c]])
    return size + 2 + class_order.shape[0]


@kernel
def write_tree(trees, tree, is_regression, class_order, stack, words):
    """Write a tree's words; returns their number, or NIL when `words` is too short.

    stack  int64[number of samples in the tree + 1]
    words  uint64[any], written
    """
    nodes = trees.nodes
    leaf_size = 3 if is_regression else 2 + class_order.shape[0]
    stack[0] = tree
    n_waiting = 1
    size = 0
    while n_waiting > 0:
        if size + max(leaf_size, 4) > words.shape[0]:
            return NIL
        n_waiting -= 1
        node = stack[n_waiting]
        leaf = leaf_of(nodes, node)
        if leaf != NIL:
            n_samples = np.int64(nodes[node]["n_samples"])
            size = _write_leaf(trees.statistics[leaf], n_samples, is_regression, class_order, words, size)
            continue
        words[size] = _INNER
        words[size + 1] = np.uint64(nodes[node]["attribute"])
        words[size + 2] = np.uint64(nodes[node]["kind"])
        words[size + 3] = nodes[node]["category"]
        size += 4
        stack[n_waiting] = np.int64(nodes[node]["child"]) + 1
        stack[n_waiting + 1] = np.int64(nodes[node]["child"])
        n_waiting += 2
    return size


def tree_digest(trees: Trees, tree: int, is_regression: bool, class_order: npt.NDArray[np.int64]) -> str:
    """SHA-256 of one tree's words, hexadecimal."""
    n_samples = int(trees.nodes["n_samples"][tree])
    stack = np.empty(n_samples + 2, np.int64)
    words = np.empty(max(1024, 4 * n_samples), np.uint64)
    size = write_tree(trees, tree, is_regression, class_order, stack, words)
    while size == NIL:
        words = np.empty(2 * len(words), np.uint64)
        size = write_tree(trees, tree, is_regression, class_order, stack, words)
    # A view: a copy as bytes would keep other threads waiting.
    return hashlib.sha256(words[:size].astype("<u8", copy=False).view(np.uint8).data).hexdigest()
