"""The canonical form of the trees, and its hash.

Each tree is written as 64-bit little-endian words in path order (a node, its left subtree, its right subtree),
exactly what prediction reads and nothing of how it came about:

    inner node    1, feature, 0 or 1 for a category, missing direction, threshold bits or category hash
    leaf          0, bits of the value
"""

import hashlib

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.state import LEAF, Trees
from oubli.core.jit.policy import kernel

_WORDS_A_NODE = 5


@kernel
def write_tree(nodes, value_bits, root, stack, words):
    """Write the words of the tree at a root; returns their number.

    value_bits  uint64[nodes], the values' bits
    stack       int64[nodes + 1], working space
    words       uint64[5 * nodes], written
    """
    stack[0] = root
    n_waiting = 1
    size = 0
    while n_waiting > 0:
        n_waiting -= 1
        node = stack[n_waiting]
        if nodes[node]["feature"] == LEAF:
            words[size] = np.uint64(0)
            words[size + 1] = value_bits[node]
            size += 2
            continue
        words[size] = np.uint64(1)
        words[size + 1] = np.uint64(nodes[node]["feature"])
        words[size + 2] = np.uint64(nodes[node]["is_categorical"])
        words[size + 3] = np.uint64(nodes[node]["missing_left"])
        words[size + 4] = nodes[node]["category"]
        size += _WORDS_A_NODE
        left = np.int64(nodes[node]["left"])
        stack[n_waiting] = left + 1
        stack[n_waiting + 1] = left
        n_waiting += 2
    return size


def tree_digests(trees: Trees) -> list[str]:
    """SHA-256 of each tree, hexadecimal, in order. O(nodes)."""
    nodes = trees.nodes
    value_bits = nodes["value"].astype("<f8").view("<u8")
    stack = np.zeros(len(nodes) + 1, np.int64)
    words = np.zeros(_WORDS_A_NODE * len(nodes), np.uint64)
    digests = []
    for root in trees.roots.tolist():
        size = write_tree(nodes, value_bits, root, stack, words)
        digests.append(hashlib.sha256(words[:size].astype("<u8").tobytes()).hexdigest())
    return digests


def base_texts(base: npt.NDArray[np.float64]) -> list[str]:
    """F_0 of each group as text that tells any two values apart."""
    return [value.hex() for value in base.tolist()]
