"""The forest's data structure: nodes, leaves and the samples in them.

A node is a row of one record array; all trees share it, tree t's root is row t. Children are
allocated in pairs, so a step down is `child + goes_right`, and both siblings share a cache line:

    row            0 .. T-1        T ...
    nodes       [ roots | pad | l r | l r | . . | l r ]       free pairs chain through `child`
                    child ----> l r

    inner node     child >= 0: row of the left child           leaf     child = ~leaf
    leaves         statistics[leaf] = class counts, or (count, sum of quantised targets)
                   starts[leaf], rooms[leaf] = where its samples are listed

The j-th tree of the sample in slot s is *entry* s * k + j; `leaves.py` says how a leaf keeps its
entries. The samples always are in the leaf that the stored splits lead to, tags or not. A *tag* says
only that the split of its node (or its being a leaf) has yet to be checked against the samples
below; resolving keeps the subtree if the split stands and rebuilds it if not (`resolve.py`). This
differs from the paper's lazy tag, below which nothing is kept, in that

    a) a deleted sample leaves every structure at once, below a tag too;
    b) a split that got worse and better again between two queries costs no rebuilding;
    c) a mutation scores no candidates: it counts and tags, and all mutations between two queries at
       a node share one scoring.

Whatever is freed is zeroed at once: unused capacity holds nothing of any sample.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.jit import aligned
from oubli.core.jit.policy import inner

IntArray = npt.NDArray[Any]

NIL = -1

NODE_DTYPE = np.dtype(
    {
        "names": ["threshold", "category", "child", "attribute", "n_samples", "block", "kind", "flags"],
        "formats": ["f8", "u8", "i4", "i4", "i4", "i4", "u1", "u1"],
        # threshold:  numeric splits, `x <= threshold` goes left
        # category:   categorical splits (same 8 bytes): the category's hash, or the candidate's key
        # child:      row of the left child; the right one follows; ~leaf at a leaf
        # attribute:  column that the split reads
        # n_samples:  samples below, tags or not
        # block:      row of the candidate counters (`blocks.py`), NIL when the node keeps none
        # kind:       of the split, see below
        # flags:      TAGGED | DIRTY
        "offsets": [0, 0, 8, 12, 16, 20, 24, 25],
        "itemsize": 32,
    }
)

# Kinds of splits.
MISSING_RIGHT = 0  # numeric; missing values go right
MISSING_LEFT = 1  # numeric; missing values go left
ONE_VS_REST = 2  # categorical; the category whose hash is `category` goes left
SUBSET = 3  # categorical; a category goes left by a coin of (candidate's key, its hash)

# Flags of a node.
TAGGED = np.uint8(1)  # the split, or being a leaf, is to be checked before a query may pass
DIRTY = np.uint8(2)  # inner node: there may be a tag below
_CLEAR_TAG = np.uint8(255 - 1)
_CLEAR_DIRTY = np.uint8(255 - 2)

# Slots of `meta`: sizes and free lists, scalars that change.
N_NODES = 0  # rows of `nodes` in use or on the free list
FREE_PAIR = 1  # first free pair, NIL when none
N_FREE_PAIRS = 2
N_LEAVES = 3
FREE_LEAF = 4
N_FREE_LEAVES = 5
N_BLOCKS = 6
FREE_BLOCK = 7
N_FREE_BLOCKS = 8
N_TAGS = 9
N_MEMBERS = 10  # length of `members` in use, free rooms included
FREE_ROOMS = 11  # first of MAX_ROOM + 1 list heads: the first free room of each size, NIL when none
MAX_ROOM = 31
META_SIZE = FREE_ROOMS + MAX_ROOM + 1


class Trees(NamedTuple):
    """All trees of a forest; modified by kernels, grown by `engine.py`."""

    nodes: Any  # NODE_DTYPE[capacity]
    statistics: IntArray  # int32[leaf capacity, n_classes] or int64[leaf capacity, 2]
    starts: IntArray  # int32[leaf capacity]; next free leaf when free
    rooms: IntArray  # uint8[leaf capacity]
    members: IntArray  # int32[member capacity] entries, leaf by leaf
    places: IntArray  # int32[slot capacity * k]: where in `members` an entry is
    tree_tags: IntArray  # int64[T] number of tagged nodes a tree
    meta: IntArray  # int64[META_SIZE]


@inner
def leaf_of(nodes, node):
    """Leaf index of a node, NIL at an inner node."""
    child = nodes[node]["child"]
    if child < 0:
        return ~np.int64(child)
    return np.int64(-1)


@inner
def set_tag(trees, tree, node):
    """Tag a node; returns nothing new if it was tagged."""
    if not trees.nodes[node]["flags"] & TAGGED:
        trees.nodes[node]["flags"] |= TAGGED
        trees.tree_tags[tree] += 1
        trees.meta[N_TAGS] += 1


@inner
def clear_tag(trees, tree, node):
    """Take the tag off a node that has one."""
    if trees.nodes[node]["flags"] & TAGGED:
        trees.nodes[node]["flags"] &= _CLEAR_TAG
        trees.tree_tags[tree] -= 1
        trees.meta[N_TAGS] -= 1


@inner
def clear_dirty(nodes, node):
    """Forget that there may be a tag below a node."""
    nodes[node]["flags"] &= _CLEAR_DIRTY


@inner
def reset_node(nodes, node):
    """Zero a node's record."""
    nodes[node]["category"] = np.uint64(0)
    nodes[node]["child"] = np.int32(NIL)
    nodes[node]["attribute"] = np.int32(0)
    nodes[node]["n_samples"] = np.int32(0)
    nodes[node]["block"] = np.int32(NIL)
    nodes[node]["kind"] = np.uint8(0)
    nodes[node]["flags"] = np.uint8(0)


@inner
def allocate_pair(trees):
    """Take a pair of nodes; the caller has made sure that there is one."""
    meta = trees.meta
    pair = meta[FREE_PAIR]
    if pair == NIL:
        pair = meta[N_NODES]
        meta[N_NODES] += 2
    else:
        meta[FREE_PAIR] = trees.nodes[pair]["child"]
        meta[N_FREE_PAIRS] -= 1
    reset_node(trees.nodes, pair)
    reset_node(trees.nodes, pair + 1)
    return pair


@inner
def free_pair(trees, pair):
    """Zero a pair of nodes and put it on the free list."""
    reset_node(trees.nodes, pair)
    reset_node(trees.nodes, pair + 1)
    trees.nodes[pair]["child"] = np.int32(trees.meta[FREE_PAIR])
    trees.meta[FREE_PAIR] = pair
    trees.meta[N_FREE_PAIRS] += 1


@inner
def available_pairs(trees):
    """Pairs of nodes that can be taken before the pool is full."""
    return trees.meta[N_FREE_PAIRS] + (trees.nodes.shape[0] - trees.meta[N_NODES]) // 2


def empty_trees(n_trees: int, width: int, *, is_regression: bool) -> Trees:
    """Make a forest of `n_trees` empty root leaves.

    Parameters
    ----------
    n_trees : number of trees.
    width : columns of the leaf statistics: classes, or 2 for regression.
    is_regression : whether the statistics are sums of targets.
    """
    first_pair = n_trees + n_trees % 2
    nodes = aligned.zeros(first_pair + 64, NODE_DTYPE)
    nodes["block"] = NIL
    nodes["child"] = NIL
    nodes["child"][:n_trees] = ~np.arange(n_trees)
    n_leaves = n_trees + 64
    meta = np.zeros(META_SIZE, np.int64)
    meta[[FREE_PAIR, FREE_LEAF, FREE_BLOCK]] = NIL
    meta[FREE_ROOMS:] = NIL
    meta[N_NODES] = first_pair
    meta[N_LEAVES] = n_trees
    meta[N_MEMBERS] = n_trees
    meta[N_BLOCKS] = 1  # block 0 is the working space of the split search
    return Trees(
        nodes=nodes,
        statistics=np.zeros((n_leaves, width), np.int64 if is_regression else np.int32),
        starts=np.arange(n_leaves, dtype=np.int32),
        rooms=np.zeros(n_leaves, np.uint8),
        members=np.zeros(n_trees + 64, np.int32),
        places=np.zeros(0, np.int32),
        tree_tags=np.zeros(n_trees, np.int64),
        meta=meta,
    )
