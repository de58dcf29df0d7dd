"""Trees with the weight of the samples at each node: what explanations are computed from.

Nothing is exported for it. `nodes` may be the live records of an engine; what is made are numbers beside them:

    nodes    [ root | l r | l r | ... ]      a leaf has the child ~leaf
    covers   [ 48842 | 30120 18722 | ... ]   what the samples that come through count for
    leaf     values[leaf], an answer of the output that its tree is for; or, where trees answer for several classes,
             values[starts[leaf] : starts[leaf + 1]] for the outputs listed beside them

An answer is base + factor * (the sum of what the leaves say that the trees lead to).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Ints, Reals
from oubli.core.jit.policy import kernel

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
        return cls(int(array[0]), int(array[1]), int(array[2]), array[3:])


@kernel
def _measure(trees, queue, is_read, expected):
    """Look at all nodes, tree by tree and level by level; returns the number of levels, and of nodes.

    queue     int64[nodes of a tree], working space
    is_read   bool[columns read], written: which are
    expected  float64[outputs], added to: what is expected of each tree
    """
    nodes, leaves = trees.nodes, trees.leaves
    n_levels, n_nodes = 0, 0
    for tree in range(trees.roots.shape[0]):
        queue[0] = trees.roots[tree]
        cover = trees.covers[queue[0]]
        level, begin, size = 0, 0, 1
        while begin < size:
            level, end = level + 1, size
            for i in range(begin, end):
                node = queue[i]
                child = np.int64(nodes[node]["child"])
                if child >= 0:
                    is_read[nodes[node]["attribute"]] = True
                    queue[size], queue[size + 1] = child, child + 1
                    size += 2
                    continue
                share = trees.covers[node] / cover
                if leaves.starts.shape[0] == 0:
                    expected[trees.groups[tree]] += share * leaves.values[~child]
                    continue
                for place in range(leaves.starts[~child], leaves.starts[~child + 1]):
                    expected[leaves.outputs[place]] += share * leaves.values[place]
            begin = end
        n_levels, n_nodes = max(n_levels, level), n_nodes + size
    return n_levels, n_nodes


def measure(trees: WeightedTrees) -> Sizes:
    """Measure all trees; O(nodes)."""
    is_read, expected = np.zeros(len(trees.sources), np.bool_), np.zeros(len(trees.base))
    n_levels, n_nodes = _measure(trees, np.empty(len(trees.nodes) + 2, np.int64), is_read, expected)
    n_columns = min(len(np.unique(trees.sources[is_read])), max(n_levels - 1, 0))
    return Sizes(n_levels, n_columns, n_nodes, trees.base + trees.factor * expected)


def kept_in(derived: dict[str, Array], make: Callable[[], tuple[Reals, Leaves]]) -> tuple[Reals, Leaves]:
    """Weights of nodes and what leaves say, made once for each version of a model; see `Changes.derived`."""
    names = "weights of nodes", "values of leaves", "starts of leaves", "outputs of leaves"
    if names[-1] not in derived:
        covers, leaves = make()
        derived.update(zip(names, (covers, *leaves), strict=True))  # the last one last: who sees it sees all
    covers, *parts = (derived[name] for name in names)
    return covers, Leaves(*parts)


def of_one_kind(
    nodes: Any, covers: Reals, leaves: Leaves, roots: Ints, n_features: int, n_classes: int
) -> WeightedTrees:
    """Trees that each answer the whole question, so that their mean is the answer."""
    base, groups = np.zeros(n_classes if len(leaves.starts) else 1), np.zeros(len(roots), np.int64)
    return WeightedTrees(nodes, covers, leaves, roots, groups, np.arange(n_features), base, 1.0 / len(roots))


def places_of(starts: Ints, sizes: Ints) -> Ints:
    """The places of stretches of some sizes, one stretch after the other."""
    places: Ints = np.arange(sizes.sum()) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
    return places


def shares_of(counts: Array, class_order: Ints) -> Leaves:
    """What leaves with class counts, int[leaves, codes], say: shares of the classes held; of two, the second one's."""
    if len(class_order) <= 2:
        return Leaves(counts[:, class_order[-1]] / np.maximum(totals_of(counts), 1))
    leaf, code = np.nonzero(counts)
    return listed_shares(leaf, code, counts[leaf, code], class_order, len(counts))


def totals_of(counts: Array) -> Ints:
    """Sums of rows, which are short and many."""
    totals = np.zeros(len(counts), np.int64)
    for column in counts.T:
        totals += column
    return totals


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
