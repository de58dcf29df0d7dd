"""The order of a forest's nodes in memory: a path down a tree goes through few pages.

Growing takes the smaller child first, so that on the way down to a larger one each step skips all that is below its
sibling, and most steps lead to another page. In a large forest without huge pages the processor then has to look up
a page at each step, which takes longer than reading the node. After a fit the pairs of each tree are put in order:

    page    [ a pair, and the pairs next below it, level by level, `_PAIRS` of them ]
    after   [ the same of the first node whose children are on no page yet | what is below that | of the next | .. ]

What changes later takes rows wherever there are some. Rows never show in the model.
"""

import numpy as np

from oubli.core.forest.state import PAIRS, Trees
from oubli.core.jit import aligned
from oubli.core.jit.nodes import FREE, N_FREE, NIL
from oubli.core.jit.policy import kernel

_PAIRS = 64  # of a page of 4 KiB
_LEAST = 2**17  # nodes: fewer stay in a cache
_WORDS = 4  # of a node


@kernel
def order_nodes(old, nodes, new, n_trees, first_pair, stack, queue):
    """Copy the nodes of all trees in order; returns how many rows they take.

    old    int64[n, 4] the nodes, as words
    nodes  NODE_DTYPE[n], zero, written
    new    int64[n, 4] the same memory
    stack  int32[any], working space: nodes on which a page is to begin
    queue  int32[2 * _PAIRS + 2], working space: nodes of a page
    """
    for row in range(first_pair):
        for word in range(_WORDS):
            new[row, word] = old[row, word]
    following = np.int64(first_pair)
    for tree in range(n_trees):
        stack[0] = tree
        n_waiting = 1
        while n_waiting > 0:
            n_waiting -= 1
            queue[0] = stack[n_waiting]
            n_queued = 1
            n_read = 0
            page_end = following + 2 * _PAIRS
            while n_read < n_queued and following < page_end:
                node = np.int64(queue[n_read])
                n_read += 1
                child = np.int64(nodes[node]["child"])
                if child < 0:
                    continue
                for word in range(_WORDS):
                    new[following, word] = old[child, word]
                    new[following + 1, word] = old[child + 1, word]
                nodes[node]["child"] = np.int32(following)
                queue[n_queued] = following
                queue[n_queued + 1] = following + 1
                n_queued += 2
                following += 2
            for i in range(n_queued - 1, n_read - 1, -1):
                if nodes[queue[i]]["child"] >= 0:
                    stack[n_waiting] = queue[i]
                    n_waiting += 1
    return following


def in_order(trees: Trees) -> Trees:
    """Put the nodes of trees in order if they are many; O(nodes), and the memory of the nodes once more meanwhile."""
    n_used, n_trees = int(trees.meta[PAIRS]), len(trees.tree_tags)
    if n_used < _LEAST:
        return trees
    nodes = aligned.zeros(len(trees.nodes), trees.nodes.dtype)
    old, new = (array.view(np.int64).reshape(-1, _WORDS) for array in (trees.nodes, nodes))
    stack, queue = np.empty(n_used, np.int32), np.empty(2 * _PAIRS + 2, np.int32)
    trees.meta[PAIRS] = order_nodes(old, nodes, new, n_trees, n_trees + n_trees % 2, stack, queue)
    trees.meta[PAIRS + FREE], trees.meta[PAIRS + N_FREE] = NIL, 0
    return trees._replace(nodes=nodes)
