"""Nodes as forest and tree keep them: kinds of splits, the side of a row, pools of rows, and the hash of a tree.

A node is a record with at least these fields: threshold or category (the same 8 bytes), child, attribute, n_samples and
kind. Children are side by side, so that a step down is `child + goes_right`; a leaf has a negative child.

A *pool* is the rows of one or several arrays that nodes, leaves or the like are taken from. Three slots of an array
`meta` describe it, the first of which names the pool:

    pool            rows in use or on the free list; those behind have never been used
    pool + FREE     the first free row, NIL when there is none; an array `following` has the next one of each
    pool + N_FREE   how many free rows there are

The canonical form of a tree is 64-bit little-endian words in path order (a node, its left subtree, its right subtree),
exactly what prediction reads and nothing of the history:

    inner node    1, attribute, kind, threshold bits or category hash / key
    leaf          0, n samples, then the class counts of the classes held, in canonical order;
                  for regression 0, n samples, sum of the quantised targets

All tags must have been resolved.
"""

import hashlib
from typing import Any

import numpy as np

from oubli.core.array_types import Array, Ints
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.rng import MISSING_CATEGORY, coin, mix

NIL = -1

# Kinds of splits.
MISSING_RIGHT = 0  # numeric; missing values go right
MISSING_LEFT = 1  # numeric; missing values go left
ONE_VS_REST = 2  # categorical; the category whose hash is `category` goes left
SUBSET = 3  # categorical; a category goes left by a coin of (candidate's key, its hash)

FREE = 1
N_FREE = 2

_INNER = np.uint64(1)
_LEAF = np.uint64(0)
_DEEPEST = 64  # of trees whose leaves may be empty
_WORDS_AT_A_TIME = 2**17  # that are hashed


@inner
def category_hash(category_hashes, cell):
    """Hash of the category in a cell of a categorical column."""
    if np.isnan(cell):
        return MISSING_CATEGORY
    return category_hashes[np.uint64(cell)]


@inner
def in_subset(candidate_key, hashed):
    """Whether a subset candidate sends a category left."""
    return coin(mix(candidate_key ^ hashed))


@pasted
def goes_right(nodes, node, cells, row, category_hashes):
    """Side of a row at an inner node: 0 left, 1 right."""
    kind = nodes[node]["kind"]
    x = cells[np.uint64(row), np.uint64(nodes[node]["attribute"])]
    if kind <= MISSING_LEFT:
        missing_goes_right = (x != x) & (kind == MISSING_RIGHT)
        return np.int64((x > nodes[node]["threshold"]) | missing_goes_right)
    hashed = category_hash(category_hashes, x)
    if kind == ONE_VS_REST:
        return np.int64(hashed != nodes[node]["category"])
    return np.int64(not in_subset(nodes[node]["category"], hashed))


@kernel
def side_of(nodes, node, cells, row, category_hashes):
    """`goes_right`, to be called from Python."""
    return goes_right(nodes, node, cells, row, category_hashes)


@pasted
def put(order, right, row, side, n_left, n_right):
    """Write a row where the next one of either side belongs; without branches, for sides are as good as random.

    Those that go left come first in `order`, the others are in `right`. Returns how many both have then.
    """
    order[n_left] = row
    right[n_right] = row
    return n_left + (1 - side), n_right + side


# -- pools ------------------------------------------------------------------------------------------


@pasted
def take_row(meta, pool, following, step):
    """Take a row, or `step` neighbouring rows, of which the first is returned; the caller has made sure that it can."""
    row = meta[pool + FREE]
    if row == NIL:
        row = meta[pool]
        meta[pool] += step
    else:
        meta[pool + FREE] = following[row]
        meta[pool + N_FREE] -= 1
    return row


@pasted
def give_row(meta, pool, following, row):
    """Put a row on the free list."""
    following[row] = meta[pool + FREE]
    meta[pool + FREE] = row
    meta[pool + N_FREE] += 1


@pasted
def n_available(meta, pool, following, step):
    """How often a row, or `step` neighbouring rows, can be taken before the pool is full."""
    return meta[pool + N_FREE] + (following.shape[0] - meta[pool]) // step


# -- the hash of a tree -----------------------------------------------------------------------------


@inner
def _write_leaf(n_samples, statistics, row, is_regression, class_order, words, size):
    words[size] = _LEAF
    words[size + 1] = np.uint64(n_samples)
    if is_regression:
        words[size + 1] = np.uint64(statistics[row, 0])  # the same, if no sample has a weight
        words[size + 2] = np.uint64(statistics[row, 1])
        return size + 3
    for c in range(class_order.shape[0]):
        words[size + 2 + c] = np.uint64(statistics[row, class_order[c]])
    return size + 2 + class_order.shape[0]


@inner
def _write_tallies(n_samples, tallies, place, ranks, n_classes, words, size):
    words[size] = _LEAF
    words[size + 1] = np.uint64(n_samples)
    for c in range(n_classes):
        words[size + 2 + c] = np.uint64(0)
    for i in range(place, place + n_samples):
        if tallies[i, 1] == 0:
            break
        words[size + 2 + ranks[tallies[i, 0]]] = np.uint64(tallies[i, 1])
    return size + 2 + n_classes


@kernel
def write_words(nodes, statistics, starts, tallies, ranks, are_by_node, is_regression, class_order, walk, words):
    """Write the next words of a tree to uint64 `words`, as many as fit; returns their number, 0 when all are written.

    statistics       class counts, or count and sum of the targets: of each node, or in row i those of a leaf with
                     child ~i
    starts, tallies  or int32[leaves] and int32[any, 2]: a leaf's tallies (class, count) from that place on, at most as
                     many as it has samples, up to the first zero; without rows there are statistics
    ranks            int64[codes] of the classes, for tallies
    are_by_node      whether the statistics are of each node
    walk             int64[depth + 3], the number of nodes that wait, and these; at first the root
    """
    leaf_size = 3 if is_regression else 2 + class_order.shape[0]
    n_waiting = walk[0]
    size = 0
    while n_waiting > 0 and size + max(leaf_size, 4) <= words.shape[0]:
        node = walk[n_waiting]
        n_waiting -= 1
        child = np.int64(nodes[node]["child"])
        if child < 0:
            row = node if are_by_node else ~child
            n_samples = nodes[node]["n_samples"]
            if tallies.shape[0] > 0:
                place = np.int64(starts[row])
                size = _write_tallies(n_samples, tallies, place, ranks, class_order.shape[0], words, size)
            else:
                size = _write_leaf(n_samples, statistics, row, is_regression, class_order, words, size)
            continue
        words[size] = _INNER
        words[size + 1] = np.uint64(nodes[node]["attribute"])
        words[size + 2] = np.uint64(nodes[node]["kind"])
        words[size + 3] = nodes[node]["category"]
        size += 4
        walk[n_waiting + 1] = child + 1
        walk[n_waiting + 2] = child
        n_waiting += 2
    walk[0] = n_waiting
    return size


def tree_digest(
    nodes: Any,
    statistics: Array,
    root: int,
    class_order: Ints,
    *,
    are_by_node: bool,
    is_regression: bool = False,
    tallies: tuple[Array, Array] = (np.zeros(0, np.int32), np.zeros((0, 2), np.int32)),
) -> str:
    """SHA-256 of one tree's words, hexadecimal; see `write_words`."""
    n_samples, n_classes = int(nodes["n_samples"][root]), len(class_order)
    walk = np.empty(n_samples + _DEEPEST + 3, np.int64)
    walk[:2] = 1, root
    ranks = np.zeros(int(class_order.max(initial=-1)) + 1, np.int64)
    ranks[class_order] = np.arange(n_classes)
    words = np.empty(min(4 * n_samples, _WORDS_AT_A_TIME) + n_classes + 4, np.uint64)
    digest = hashlib.sha256()
    while walk[0]:
        size = write_words(nodes, statistics, *tallies, ranks, are_by_node, is_regression, class_order, walk, words)
        # A view: a copy as bytes would keep other threads waiting.
        digest.update(words[:size].astype("<u8", copy=False).view(np.uint8).data)
    return digest.hexdigest()
