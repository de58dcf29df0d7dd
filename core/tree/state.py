"""The tree's data structure: nodes and the samples in its leaves.

A node is a row of one record array, the root is row 0. Children are allocated in pairs, so a step down
is `child + goes_right`:

    row            0     1     2 ...
    nodes       [ root | pad | l r | l r | . . | l r ]        free pairs are linked by `child`
                  child ----> l r

    counts      [ class counts of each node, inner nodes included; by weight: see `core/jit/targets.py` ]
    links       [ (next, previous) of each slot in its leaf's list; both NIL at an end ]

Every leaf lists its samples: `head` and `tail` are the slots at the ends, so that a sample leaves in
O(1) and the lists of a whole subtree are joined in O(its nodes).

A node that is to be rebuilt (Algorithm 1, line 7) is a leaf with a *tag*: its subtree has gone, its list holds
all samples that were below. So nothing stale is kept under a tag, and eager and lazy rebuilding differ only
in when the tag is taken off.

Whatever is freed is zeroed at once: unused capacity holds nothing of any sample.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.jit.nodes import FREE, NIL, give_row, take_row
from oubli.core.jit.policy import inner, pasted

ROOT = 0
MAX_DEPTH = 64  # of a leaf; "no limit" means this one

NODE_DTYPE = np.dtype(
    {
        "names": [
            "threshold", "category", "touched", "child", "attribute", "n_samples", "built", "head", "tail",
            "kind", "flags", "depth",
        ],
        "formats": ["f8", "u8", "i8", "i4", "i4", "i4", "i4", "i4", "i4", "u1", "u1", "u1"],
        # threshold:  numeric splits, `x <= threshold` goes left
        # category:   categorical splits (same 8 bytes): the hash of the value that goes left
        # touched:    c(v), updates that came through since the node was built, by weight
        # child:      row of the left child, the right one follows; NIL at a leaf
        # attribute:  column that the split reads
        # n_samples:  samples below, whatever their weights
        # built:      s(v), samples that the node was built on, by weight
        # head, tail: ends of a leaf's list, NIL when empty and at inner nodes
        # kind:       of the split, see below
        # flags:      TAGGED
        # depth:      0 at the root
        "offsets": [0, 0, 8, 16, 20, 24, 28, 32, 36, 40, 41, 42],
        "itemsize": 48,
    }
)  # fmt: skip

TAGGED = np.uint8(1)

# Slots of `meta`, scalars that change.
PAIRS = 0  # a pool, see `core/jit/nodes.py`; the first slot counts rows of `nodes`
N_TAGS = 3
META_SIZE = 4

# Columns of `links`.
NEXT = 0
PREVIOUS = 1


class TreeArrays(NamedTuple):
    """A tree; modified by kernels, grown by `engine.py`."""

    nodes: Any  # NODE_DTYPE[capacity]
    counts: npt.NDArray[Any]  # int32[capacity, n_classes]
    links: npt.NDArray[Any]  # int32[slot capacity, 2]
    meta: npt.NDArray[Any]  # int64[META_SIZE]


@inner
def reset_node(tree, node):
    """Make a node an empty leaf that was built on nothing."""
    nodes = tree.nodes
    nodes[node]["category"] = np.uint64(0)
    nodes[node]["touched"] = np.int64(0)
    nodes[node]["child"] = np.int32(NIL)
    nodes[node]["attribute"] = np.int32(0)
    nodes[node]["n_samples"] = np.int32(0)
    nodes[node]["built"] = np.int32(0)
    nodes[node]["head"] = np.int32(NIL)
    nodes[node]["tail"] = np.int32(NIL)
    nodes[node]["kind"] = np.uint8(0)
    nodes[node]["flags"] = np.uint8(0)
    nodes[node]["depth"] = np.uint8(0)
    for c in range(tree.counts.shape[1]):
        tree.counts[node, c] = np.int32(0)


@pasted
def allocate_pair(tree):
    """Take a pair of nodes, zeroed; the caller has made sure that there is one."""
    pair = take_row(tree.meta, PAIRS, tree.nodes["child"], 2)
    tree.nodes[pair]["child"] = np.int32(NIL)
    return pair


@inner
def free_pair(tree, pair):
    """Zero a pair of nodes and put it on the free list."""
    reset_node(tree, pair)
    reset_node(tree, pair + 1)
    give_row(tree.meta, PAIRS, tree.nodes["child"], pair)


@inner
def set_tag(tree, node):
    """Tag a leaf that has no tag."""
    tree.nodes[node]["flags"] |= TAGGED
    tree.meta[N_TAGS] += 1


@inner
def clear_tag(tree, node):
    """Take the tag off a leaf, if it has one."""
    if tree.nodes[node]["flags"] & TAGGED:
        tree.nodes[node]["flags"] = np.uint8(0)
        tree.meta[N_TAGS] -= 1


@pasted
def append_member(tree, node, slot):
    """List a sample at the end of a leaf; counts nothing."""
    nodes, links = tree.nodes, tree.links
    last = np.int64(nodes[node]["tail"])
    links[slot, NEXT] = np.int32(NIL)
    links[slot, PREVIOUS] = np.int32(last)
    if last == NIL:
        nodes[node]["head"] = np.int32(slot)
    else:
        links[last, NEXT] = np.int32(slot)
    nodes[node]["tail"] = np.int32(slot)


@pasted
def remove_member(tree, node, slot):
    """Take a sample out of the list of a leaf; counts nothing."""
    nodes, links = tree.nodes, tree.links
    following, previous = np.int64(links[slot, NEXT]), np.int64(links[slot, PREVIOUS])
    if following == NIL:
        nodes[node]["tail"] = np.int32(previous)
    else:
        links[following, PREVIOUS] = np.int32(previous)
    if previous == NIL:
        nodes[node]["head"] = np.int32(following)
    else:
        links[previous, NEXT] = np.int32(following)
    links[slot, NEXT] = np.int32(NIL)
    links[slot, PREVIOUS] = np.int32(NIL)


def zeroed_nodes(capacity: int) -> Any:
    """Make nodes that are empty leaves."""
    nodes = np.zeros(capacity, NODE_DTYPE)
    for field in ("child", "head", "tail"):
        nodes[field] = NIL
    return nodes


def empty_tree(n_classes: int, capacity: int = 64, n_slots: int = 0) -> TreeArrays:
    """Make a tree that is one empty leaf."""
    meta = np.zeros(META_SIZE, np.int64)
    meta[PAIRS] = 2
    meta[PAIRS + FREE] = NIL
    return TreeArrays(
        nodes=zeroed_nodes(capacity),
        counts=np.zeros((capacity, n_classes), np.int32),
        links=np.full((n_slots, 2), NIL, np.int32),
        meta=meta,
    )


@pasted
def size_class(n):
    """Smallest power of two that is at least n; 0 for 0."""
    if n <= 0:
        return np.int64(0)
    bound = np.int64(1)
    while bound < n:
        bound *= 2
    return bound
