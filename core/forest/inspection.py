"""The forest as people read it: single trees, the importances of the features, and what explanations are made from."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Ints, Reals
from oubli.core.engine import RecordLook, Split, TreeFacts, nodes_below
from oubli.core.explanation.trees import Leaves, add_up, listed_shares, places_of, shares_of, totals_of
from oubli.core.forest.split import SQUARED_ERROR, split_score, unsplit_score
from oubli.core.forest.state import Trees, leaf_of, read_leaf
from oubli.core.jit.nodes import NIL, SUBSET
from oubli.core.jit.policy import inner, kernel
from oubli.core.jit.targets import as_weights
from oubli.core.rng import mix
from oubli.core.samples.fixed_point import restore


@inner
def list_breadth_first(nodes, tree, listed, places):
    """List the nodes of a tree, parents before children, into int64 `listed`; returns their number.

    places  int64[as many], written: where the left child of an inner node is listed; the right one follows
    """
    listed[0] = tree
    size = 1
    read = 0
    while read < size:
        node = listed[read]
        if leaf_of(nodes, node) == NIL:
            places[read] = size
            listed[size] = np.int64(nodes[node]["child"])
            listed[size + 1] = np.int64(nodes[node]["child"]) + 1
            size += 2
        read += 1
    return size


@kernel
def add_gains(trees, tree, criterion, listed, places, totals, gains):
    """Add the gain of each split of a tree, weighted by its samples, to its attribute's entry.

    listed, places  int64[2 * samples in the tree + 1], working space
    totals          int64[as many, width], working space: the statistics of the nodes as they are listed
    gains           float64[d], added to

    Going through the nodes backwards meets children before their parents.
    """
    nodes = trees.nodes
    size = list_breadth_first(nodes, tree, listed, places)
    for position in range(size - 1, -1, -1):
        node = listed[position]
        leaf = leaf_of(nodes, node)
        if leaf != NIL:
            read_leaf(trees, leaf, np.int64(nodes[node]["n_samples"]), totals, position)
            continue
        left = places[position]
        for c in range(totals.shape[1]):
            totals[position, c] = totals[left, c] + totals[left + 1, c]
        n_samples, n_left = totals[position, 0], totals[left, 0]
        for c in range(1, totals.shape[1] if criterion != SQUARED_ERROR else 1):
            n_samples += totals[position, c]
            n_left += totals[left, c]
        gain = split_score(criterion, totals[left], totals[position], n_left, n_samples)
        gain -= unsplit_score(criterion, totals[position], n_samples)
        if criterion == SQUARED_ERROR:
            gain *= np.float64(n_samples)
        gains[nodes[node]["attribute"]] += gain


def feature_importances(trees: Trees, n_features: int, criterion: int) -> npt.NDArray[np.float64]:
    """Share of each feature in the impurity decrease, averaged over the trees that split at all.

    Returns float64[n_features] that sums to 1, or zeros when no tree splits. All tags must have
    been resolved.
    """
    importances = np.zeros(n_features)
    n_trees = len(trees.tree_tags)
    largest = int(trees.nodes["n_samples"][:n_trees].max())
    listed, places = np.empty((2, 2 * largest + 1), np.int64)
    totals = np.empty((2 * largest + 1, trees.statistics.shape[1]), np.int64)
    for tree in range(n_trees):
        gains = np.zeros(n_features)
        add_gains(trees, tree, criterion, listed, places, totals, gains)
        if gains.sum() > 0:
            importances += gains / gains.sum()
    total = importances.sum()
    return importances / total if total > 0 else importances


class ForestLook(RecordLook):
    """Reads a tree; what an inner node says is added up from the leaves below it.

    Parameters
    ----------
    trees : without tags.
    exponent : scale of the targets of a regression; None of a classification.
    tree : number of the tree.
    class_order : codes of the classes held, in the order of the classes.
    is_whole : whether class counts are of weights that are whole.
    """

    def __init__(self, trees: Trees, exponent: int | None, tree: int, class_order: Ints, *, is_whole: bool) -> None:
        self.nodes = trees.nodes
        self._trees = trees
        self._exponent = exponent
        self._order = class_order
        self._is_whole = is_whole
        self.facts = TreeFacts("classes" if exponent is None else "mean")
        self.root = tree

    def split(self, node: int) -> Split:
        record = self.nodes[node]
        if record["kind"] == SUBSET:
            return Split(int(record["attribute"]), goes_left=_coin_of(int(record["category"])))
        return super().split(node)

    def says(self, node: int) -> tuple[list[float] | None, float | None]:
        child = self.nodes["child"]
        ends = np.array([node])
        if child[node] >= 0:
            below = nodes_below(child, ends)
            ends = below[child[below] < 0]
        if len(self._trees.tallies):
            return as_weights(self._tallies_of(ends)[self._order], is_whole=self._is_whole), None
        statistics = self._trees.statistics[~child[ends]].sum(axis=0, dtype=np.int64)
        if self._exponent is None:
            return as_weights(statistics[self._order], is_whole=self._is_whole), None
        count, total = statistics.tolist()
        return None, float(restore(np.array(total / count), self._exponent)) if count else None

    def _tallies_of(self, ends: Ints) -> Ints:
        """Class counts of some leaves' nodes together, from their tallies."""
        starts, sizes = self._trees.starts[~self.nodes["child"][ends]], self.nodes["n_samples"][ends]
        places = places_of(starts, sizes)  # those behind the tallies of a leaf hold zero
        classes, counts = self._trees.tallies[places].T
        total: Ints = np.bincount(classes, counts, minlength=int(self._order.max()) + 1).astype(np.int64)
        return total


def _coin_of(key: int) -> Callable[[int], bool]:
    """Return what says of a category, by its hash, whether a candidate with this key sends it left; see `in_subset`."""
    return lambda hashed: bool(int(mix(np.uint64(key ^ hashed))) >> 63)


def weigh(trees: Trees, exponent: int | None, class_order: Ints, *, has_weights: bool) -> tuple[Reals, Leaves]:
    """What the samples at each node count for, and what leaves say; O(nodes). Parameters are those of `ForestLook`.

    has_weights : whether samples may have weights other than 1, so that a node's number of samples is not their weight.
    """
    child, n_samples = trees.nodes["child"], trees.nodes["n_samples"]
    ends = np.flatnonzero((child < 0) & (n_samples > 0)) if has_weights or len(trees.tallies) else np.zeros(0, np.int64)
    totals = trees.statistics[:, 0]
    if exponent is not None:
        leaves = Leaves(restore(trees.statistics[:, 1] / np.maximum(totals, 1), exponent))
    elif len(trees.tallies):
        ends = ends[np.argsort(~child[ends])]
        sizes = n_samples[ends].astype(np.int64)
        classes, counts = trees.tallies[places_of(trees.starts[~child[ends]], sizes)].T
        leaf, is_tally = np.repeat(~child[ends].astype(np.int64), sizes), counts > 0
        totals = np.bincount(leaf, counts, len(trees.starts))
        leaves = listed_shares(leaf[is_tally], classes[is_tally], counts[is_tally], class_order, len(trees.starts))
    else:
        totals, leaves = totals_of(trees.statistics), shares_of(trees.statistics, class_order)
    covers = n_samples.astype(np.float64)
    if has_weights:
        covers[ends] = totals[~child[ends]]
        add_up(child, np.flatnonzero(n_samples[: len(trees.tree_tags)]), covers)
    return covers, leaves
