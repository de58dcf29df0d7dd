"""The tree as plain arrays for a file, and back, checked.

Packed nodes are in path order and in pairs, as in memory, without free ones; `members` lists the slots of all
samples, leaf by leaf in path order. What can be counted again (sizes, class counts, depths) is not in it.

    child, attribute, kind, threshold / category, touched, built, flags      by node
    sizes                                                                    samples by leaf
    members                                                                  slots
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Arrays
from oubli.core.bounds import require_sound
from oubli.core.errors import expect
from oubli.core.jit.nodes import FREE, MISSING_LEFT, NIL, ONE_VS_REST, goes_right
from oubli.core.jit.policy import kernel
from oubli.core.jit.targets import amount_of, field_of, value_of, values_of
from oubli.core.samples.arrays import Data
from oubli.core.tree.state import (
    MAX_DEPTH,
    N_TAGS,
    NEXT,
    PAIRS,
    ROOT,
    TAGGED,
    TreeArrays,
    append_member,
    empty_tree,
)
from oubli.core.tree.workspace import STACK_SIZE

PREFIX = "tree."
_FIELDS = ("category", "touched", "child", "attribute", "built", "kind", "flags")
_DTYPES: dict[str, Any] = {
    "category": np.uint64,
    "touched": np.int64,
    "child": np.int32,
    "attribute": np.int32,
    "built": np.int32,
    "kind": np.uint8,
    "flags": np.uint8,
    "sizes": np.int32,
    "members": np.int32,
}


@kernel
def order_nodes(nodes, walk, rows, children):
    """Write the rows of a tree's nodes in path order, pair by pair, and the children they have then.

    rows, children  int64[nodes of the tree + 1]; row 1 is the root's partner, which is no node

    A pair comes when its parent does: the parent's left subtree follows, then the right one.
    """
    rows[0], rows[1] = ROOT, ROOT + 1
    children[1] = NIL
    walk[0] = 0
    n_waiting = 1
    size = 2
    while n_waiting > 0:
        n_waiting -= 1
        place = walk[n_waiting]
        child = np.int64(nodes[rows[place]]["child"])
        children[place] = NIL
        if child == NIL:
            continue
        children[place] = size
        rows[size], rows[size + 1] = child, child + 1
        walk[n_waiting] = size + 1
        walk[n_waiting + 1] = size
        n_waiting += 2
        size += 2
    return size


@kernel
def list_members(tree, rows, children, sizes, members):
    """Write the samples of the leaves rows[i], in the order of the rows; returns the number of leaves."""
    n_leaves = 0
    n_members = 0
    for place in range(rows.shape[0]):
        if children[place] != NIL or place == ROOT + 1:
            continue
        sizes[n_leaves] = tree.nodes[rows[place]]["n_samples"]
        n_leaves += 1
        slot = np.int64(tree.nodes[rows[place]]["head"])
        while slot != NIL:
            members[n_members] = slot
            n_members += 1
            slot = np.int64(tree.links[slot, NEXT])
    return n_leaves


def pack(tree: TreeArrays, n_nodes: int) -> Arrays:
    """Return a tree of `n_nodes` nodes as arrays by name."""
    rows, children = np.empty(n_nodes + 1, np.int64), np.empty(n_nodes + 1, np.int64)
    order_nodes(tree.nodes, np.empty(STACK_SIZE, np.int64), rows, children)
    sizes = np.zeros(n_nodes, np.int32)
    members = np.zeros(int(tree.nodes["n_samples"][ROOT]), np.int32)
    n_leaves = list_members(tree, rows, children, sizes, members)
    arrays = {field: tree.nodes[field][rows] for field in _FIELDS}
    arrays["child"] = children.astype(np.int32)
    arrays["sizes"] = sizes[:n_leaves]
    arrays["members"] = members
    return arrays


# -- reading a file -------------------------------------------------------------------------------


def check_description(document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> None:
    """Check the numbers of the description and of the samples; the settings are those of the parameters.

    Raises
    ------
    FileError
        When they do not fit together.
    """
    slots, n_samples = arrays["samples.slots"], document["n_samples"]
    window = document["settings"]["window"]
    require_sound(window is None or window >= n_samples, "there are more samples than the window holds")
    if not with_trees:
        return
    _check_counters(arrays, document["settings"]["tree"]["epsilon"])
    held, counts = arrays[PREFIX + "held"], arrays[PREFIX + "class_counts"]
    require_sound(held.dtype == np.bool_ and held.ndim == 1, "held has another type or shape")
    require_sound(
        counts.dtype == np.int64 and counts.ndim == 1 and len(counts) >= 2, "class_counts has another type or shape"
    )
    require_sound(np.array_equal(np.flatnonzero(held), np.sort(slots)), "the samples are in other slots")
    require_sound(len(held) == 0 or held[-1], "there are slots for no samples")
    codes, targets = arrays["class_table.codes"], arrays["samples.targets"]
    require_sound(((codes >= 0) & (codes < len(counts))).all(), "there are classes that the tree has no room for")
    require_sound(((targets >= 0) & (targets < len(counts))).all(), "there are labels of no class")
    labelled = np.bincount(targets, minlength=len(counts))
    # What weights come to is counted later: here they only must not ask for room.
    is_right = np.array_equal(labelled > 0, counts > 0) if "samples.weights" in arrays else (labelled == counts).all()
    require_sound(is_right, "the classes are counted wrong")


def _check_counters(arrays: Arrays, epsilon: float) -> None:
    """Check that no node has seen more updates than are allowed before it is rebuilt; shapes are checked later."""
    touched, built, flags = (arrays[PREFIX + name] for name in ("touched", "built", "flags"))
    require_sound(touched.shape == built.shape == flags.shape, "the arrays of the nodes differ in length")
    require_sound(not flags.any(), "there are tags")
    require_sound((touched <= epsilon * built.astype(np.float64)).all(), "a node should have been rebuilt")


def _check_shapes(arrays: Arrays) -> None:
    for name, dtype in _DTYPES.items():
        expect(name in arrays, f"{name} is missing")
        array = arrays[name]
        expect(array.dtype == np.dtype(dtype) and array.ndim == 1, f"{name} has another type or shape")
    lengths = {len(arrays[field]) for field in _FIELDS}
    expect(len(lengths) == 1, "the arrays of the nodes differ in length")
    length = lengths.pop()
    expect(length >= 2 and length % 2 == 0, "the nodes are not in pairs")
    n_leaves = int((arrays["child"] == NIL).sum()) - 1
    expect(len(arrays["sizes"]) == n_leaves, "the sizes are not those of the leaves")


def _check_nodes(arrays: Arrays, max_depth: int, data: Data) -> None:
    """Check that links form a tree in path order and that splits and counters are possible ones."""
    child = arrays["child"]
    is_inner = child != NIL
    expect(is_in_path_order(child, np.empty(STACK_SIZE, np.int64), np.empty(STACK_SIZE, np.int64), max_depth),
             "the nodes do not form a tree")  # fmt: skip
    attribute, kind, flags = arrays["attribute"], arrays["kind"], arrays["flags"]
    expect(((attribute >= 0) & (attribute < data.cells.shape[1])).all(), "a split reads a column that is not there")
    expect((kind[is_inner] <= ONE_VS_REST).all(), "a split is of an unknown kind")
    is_categorical = data.categorical[attribute[is_inner]]
    expect(((kind[is_inner] == ONE_VS_REST) == is_categorical).all(), "a split does not fit its column's type")
    thresholds = np.ascontiguousarray(arrays["category"]).view(np.float64)[is_inner & (kind <= MISSING_LEFT)]
    expect((np.isfinite(thresholds) | (thresholds == np.inf)).all(), "a threshold is no number")
    leaf_rest = arrays["category"][~is_inner].any() or attribute[~is_inner].any() or kind[~is_inner].any()
    expect(not leaf_rest, "a leaf has a split")
    expect((flags <= TAGGED).all() and not flags[is_inner].any() and flags[ROOT + 1] == 0, "a tag is out of place")
    expect((arrays["touched"] >= 0).all() and (arrays["built"] >= 0).all(), "a counter is negative")


@kernel
def is_in_path_order(child, walk, depths, max_depth):
    """Whether child links are those that `order_nodes` writes, and no leaf is too deep."""
    walk[0], depths[0] = ROOT, 0
    n_waiting = 1
    size = 2
    if child[ROOT + 1] != NIL:
        return False
    while n_waiting > 0:
        n_waiting -= 1
        place, depth = walk[n_waiting], depths[n_waiting]
        if child[place] == NIL:
            continue
        if child[place] != size or size + 2 > child.shape[0] or depth >= max_depth:
            return False
        walk[n_waiting], depths[n_waiting] = size + 1, depth + 1
        walk[n_waiting + 1], depths[n_waiting + 1] = size, depth + 1
        n_waiting += 2
        size += 2
    return size == child.shape[0]


@kernel
def count_samples(tree, data, sizes, members):
    """Take the samples of each leaf down from the root, count them on the way, and list them in their leaf.

    Returns False when a sample arrives elsewhere. Nodes have their splits, and no samples.
    """
    nodes = tree.nodes
    n_leaves = 0
    first = 0
    for leaf in range(nodes.shape[0]):
        if nodes[leaf]["child"] != NIL or leaf == ROOT + 1:
            continue
        for i in range(first, first + np.int64(sizes[n_leaves])):
            slot = np.int64(members[i])
            node = np.int64(ROOT)
            target = data.targets[slot]
            value, amount = value_of(target), np.int32(amount_of(field_of(target)))
            nodes[node]["n_samples"] += 1
            tree.counts[node, value] += amount
            while nodes[node]["child"] != NIL:
                node = np.int64(nodes[node]["child"]) + goes_right(nodes, node, data.cells, slot, data.category_hashes)
                nodes[node]["n_samples"] += 1
                tree.counts[node, value] += amount
            if node != leaf:
                return False
            append_member(tree, node, slot)
        first += np.int64(sizes[n_leaves])
        n_leaves += 1
    return True


def unpack(arrays: Arrays, width: int, max_depth: int, data: Data, slots: npt.NDArray[np.int64]) -> TreeArrays:
    """Make a tree of the arrays that `pack` gave, over the samples of `slots`.

    Raises
    ------
    ValueError
        When they are no tree, or not of these samples.
    """
    _check_shapes(arrays)
    _check_nodes(arrays, min(max_depth, MAX_DEPTH), data)
    members = arrays["members"]
    expect((arrays["sizes"] >= 0).all(), "a leaf has a negative size")
    expect(int(arrays["sizes"].astype(np.int64).sum()) == len(members), "the sizes do not add up to the samples")
    expect(np.array_equal(np.sort(members), np.sort(slots)), "the leaves do not list the samples held")
    codes = values_of(data.targets[slots])
    expect(((codes >= 0) & (codes < width)).all(), "a class has no room")
    tree = empty_tree(width, len(arrays["child"]), int(slots.max()) + 1 if len(slots) else 0)
    for field in _FIELDS:
        tree.nodes[field] = arrays[field]
    _set_depths(tree)
    tree.meta[PAIRS] = len(arrays["child"])
    tree.meta[PAIRS + FREE] = NIL
    tree.meta[N_TAGS] = int((arrays["flags"] & TAGGED).sum())
    expect(count_samples(tree, data, arrays["sizes"], members), "a sample is not where the splits lead")
    return tree


def _set_depths(tree: TreeArrays) -> None:
    child, depth = tree.nodes["child"], tree.nodes["depth"]
    # Parents come before their children.
    for node in np.flatnonzero(child != NIL).tolist():
        depth[child[node] : child[node] + 2] = depth[node] + 1
