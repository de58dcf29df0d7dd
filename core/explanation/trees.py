"""Trees with the weight of the samples at each node: what explanations are computed from.

Nothing is exported for it. `nodes` may be the live records of an engine; what is made are numbers beside them:

    nodes    [ root | l r | l r | ... ]      a leaf has the child ~leaf
    covers   [ 48842 | 30120 18722 | ... ]   what the samples that come through count for
    leaf     values[leaf], an answer of the output that its tree is for; or, where trees answer for several classes,
             values[starts[leaf] : starts[leaf + 1]] for the outputs listed beside them

An answer is base + factor * (the sum of what the leaves say that the trees lead to).
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Ints, Reals

NODE = np.dtype(
    {
        "names": ["threshold", "category", "child", "attribute", "kind"],
        "formats": ["f8", "u8", "i4", "i4", "u1"],  # as in `core/jit/nodes.py`
        "offsets": [0, 0, 8, 12, 16],
        "itemsize": 24,
    }
)

_NONE = np.zeros(0, np.int64)


class Leaves(NamedTuple):
    """What leaves say; see the top of this file."""

    values: Reals
    starts: Ints = _NONE  # int64[leaves + 1]; empty where a leaf has one value
    outputs: Ints = _NONE  # int64[values]; empty as well


class WeightedTrees(NamedTuple):
    """All trees of a model, without tags."""

    nodes: Any  # records with the fields of `NODE`
    covers: Reals  # float64[nodes]
    leaves: Leaves
    roots: Ints  # int64[trees]
    groups: Ints  # int64[trees]: the output that a tree is for, where leaves have one value
    sources: Ints  # int64[columns read]: the column that each column that trees read belongs to
    base: Reals  # float64[outputs]
    factor: float


class Sizes(NamedTuple):
    """What explanations need to know of trees.

    Attributes
    ----------
    n_levels : of the deepest tree.
    n_columns : columns on a way down a tree, at most.
    n_nodes : nodes of all trees.
    expected : float64[outputs], what is answered on average over the samples, as their weights at nodes say.
    """

    n_levels: int
    n_columns: int
    n_nodes: int
    expected: Reals

    def to_array(self) -> Reals:
        """As an array."""
        return np.concatenate([np.array(self[:3], np.float64), self.expected])

    @classmethod
    def of_array(cls, array: Reals) -> "Sizes":
        """Undo `to_array`."""
        return cls(*(int(number) for number in array[:3]), array[3:])


def measure(trees: WeightedTrees) -> Sizes:
    """Look at all nodes, level by level; O(nodes)."""
    child, attribute = trees.nodes["child"], trees.nodes["attribute"]
    level, owner = trees.roots, np.arange(len(trees.roots))
    is_read, ends, owners, n_levels, n_nodes = np.zeros(len(trees.sources), np.bool_), [], [], 0, 0
    while len(level):
        n_levels, n_nodes = n_levels + 1, n_nodes + len(level)
        left = child[level].astype(np.int64)
        is_inner = left >= 0
        ends.append(level[~is_inner])
        owners.append(owner[~is_inner])
        is_read[attribute[level[is_inner]]] = True
        level, owner = np.concatenate([left[is_inner], left[is_inner] + 1]), np.tile(owner[is_inner], 2)
    n_columns = min(len(np.unique(trees.sources[is_read])), max(n_levels - 1, 0))
    if not n_nodes:
        return Sizes(0, 0, 0, trees.base)
    end, owner = np.concatenate(ends), np.concatenate(owners)
    leaf, (values, starts, outputs) = ~child[end].astype(np.int64), trees.leaves
    shares, group = trees.covers[end] / trees.covers[trees.roots[owner]], trees.groups[owner]
    if len(starts):
        n_values = starts[leaf + 1] - starts[leaf]
        places = places_of(starts[leaf], n_values)
        shares, group, leaf = np.repeat(shares, n_values), outputs[places], places
    means = np.bincount(group, shares * values[leaf], len(trees.base))
    return Sizes(n_levels, n_columns, n_nodes, trees.base + trees.factor * means)


def places_of(starts: Ints, sizes: Ints) -> Ints:
    """The places of stretches of some sizes, one stretch after the other."""
    places: Ints = np.arange(sizes.sum()) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
    return places


def shares_of(counts: Array, class_order: Ints) -> Leaves:
    """What leaves with class counts, int[leaves, codes], say: shares of the classes held; of two, the second one's."""
    if len(class_order) <= 2:
        return Leaves(counts[:, class_order[-1]] / np.maximum(counts.sum(axis=1), 1))
    leaf, code = np.nonzero(counts)
    return listed_shares(leaf, code, counts[leaf, code], class_order, len(counts))


def listed_shares(leaf: Ints, code: Ints, amounts: Array, class_order: Ints, n_leaves: int) -> Leaves:
    """The same of amounts that are listed with their leaves, which ascend, and their class codes."""
    ranks = np.zeros(int(class_order.max()) + 1, np.int64)
    ranks[class_order] = np.arange(len(class_order))
    totals = np.bincount(leaf, amounts, n_leaves)
    return Leaves(amounts / totals[leaf], np.searchsorted(leaf, np.arange(n_leaves + 1)), ranks[code])


def add_up(child: npt.NDArray[np.int32], roots: Ints, covers: Reals) -> None:
    """Write to float64[nodes] of inner nodes the sum of what it has of the leaves below; O(nodes)."""
    levels = [roots]
    while len(levels[-1]):
        levels[-1] = levels[-1][child[levels[-1]] >= 0]
        left = child[levels[-1]].astype(np.int64)
        levels.append(np.concatenate([left, left + 1]))
    for inner in reversed(levels[:-1]):
        covers[inner] = covers[child[inner]] + covers[child[inner].astype(np.int64) + 1]
