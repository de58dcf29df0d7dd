"""Turning a subtree into one leaf that lists all its samples."""

import numpy as np

from oubli.core.jit.policy import inner, pasted
from oubli.core.tree.state import NEXT, NIL, PREVIOUS, clear_tag, free_pair
from oubli.core.tree.workspace import PENDING


@pasted
def _join(tree, node, leaf):
    """Put the list of a leaf behind that of a node."""
    nodes, links = tree.nodes, tree.links
    head, tail = np.int64(nodes[leaf]["head"]), np.int64(nodes[node]["tail"])
    if head == NIL:
        return
    if tail == NIL:
        nodes[node]["head"] = np.int32(head)
    else:
        links[tail, NEXT] = np.int32(head)
        links[head, PREVIOUS] = np.int32(tail)
    nodes[node]["tail"] = nodes[leaf]["tail"]


@inner
def collapse(tree, scratch, root):
    """Free everything below a node, which becomes a leaf with all samples there were; O(nodes).

    Tags below go. Its counters stay as they are.
    """
    nodes, walk = tree.nodes, scratch.walk
    if nodes[root]["child"] == NIL:
        return
    walk[PENDING, 0] = nodes[root]["child"]
    size = 1
    while size > 0:
        size -= 1
        pair = walk[PENDING, size]
        for node in range(pair, pair + 2):
            child = np.int64(nodes[node]["child"])
            if child != NIL:
                walk[PENDING, size] = child
                size += 1
            else:
                clear_tag(tree, node)
                _join(tree, root, node)
        free_pair(tree, pair)
    nodes[root]["child"] = np.int32(NIL)
    nodes[root]["category"] = np.uint64(0)
    nodes[root]["attribute"] = np.int32(0)
    nodes[root]["kind"] = np.uint8(0)
