"""How soon much of the tree will be built anew at once: for those who must not be kept waiting by it."""

import numpy as np

from oubli.core.jit.policy import kernel
from oubli.core.tree.split import goes_right
from oubli.core.tree.state import NIL, ROOT, TAGGED, size_class

NEVER = np.iinfo(np.int64).max


@kernel
def count_short_updates(nodes, epsilon, n_samples, walk):
    """How many updates there can be, whatever they are, until one of them builds more than `n_samples` samples anew.

    By the proactive rule a node v sets off the building of at most 2^ceil(log2 s(v)) samples, give or take those that
    came since. So only nodes with more need a look; they are few, and at the top.

    walk  int64[STACK_SIZE], working space
    """
    walk[0] = ROOT
    size = 1
    left = NEVER
    while size > 0:
        size -= 1
        node = walk[size]
        built = np.int64(nodes[node]["built"])
        if size_class(max(built, np.int64(nodes[node]["n_samples"]))) <= n_samples:
            continue
        if not nodes[node]["flags"] & TAGGED:
            left = min(left, np.int64(np.floor(epsilon * np.float64(built))) - nodes[node]["touched"])
        child = np.int64(nodes[node]["child"])
        if child != NIL:
            walk[size] = child
            walk[size + 1] = child + 1
            size += 2
    return max(left, np.int64(0))


@kernel
def count_built(nodes, epsilon, cells, row, category_hashes):
    """How many samples, at most and roughly, are built anew when one more with these features comes or goes."""
    node = np.int64(ROOT)
    while True:
        built = np.int64(nodes[node]["built"])
        is_tagged = nodes[node]["flags"] & TAGGED != 0
        if not is_tagged and np.float64(nodes[node]["touched"] + 1) > epsilon * np.float64(built):
            return size_class(built)
        if nodes[node]["child"] == NIL:
            return np.int64(0)
        node = np.int64(nodes[node]["child"]) + goes_right(nodes, node, cells, row, category_hashes)
