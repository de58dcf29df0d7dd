"""Feature importances: the impurity that each attribute's splits take away."""

import numpy as np
import numpy.typing as npt

from oubli.core.forest.scores import SQUARED_ERROR, split_score, unsplit_score
from oubli.core.forest.state import NIL, Trees, leaf_of
from oubli.core.jit.policy import inner, kernel


@inner
def list_breadth_first(nodes, tree, listed):
    """List the nodes of a tree, parents before children, into int64 `listed`; returns their number."""
    listed[0] = tree
    size = 1
    read = 0
    while read < size:
        node = listed[read]
        read += 1
        if leaf_of(nodes, node) == NIL:
            listed[size] = np.int64(nodes[node]["child"])
            listed[size + 1] = np.int64(nodes[node]["child"]) + 1
            size += 2
    return size


@kernel
def add_gains(trees, tree, criterion, listed, totals, gains):
    """Add the gain of each split of a tree, weighted by its samples, to its attribute's entry.

    listed  int64[2 * samples in the tree + 1], working space
    totals  int64[nodes in use, width], working space: the statistics of each node
    gains   float64[d], added to

    Going through the nodes backwards meets children before their parents.
    """
    nodes = trees.nodes
    size = list_breadth_first(nodes, tree, listed)
    for position in range(size - 1, -1, -1):
        node = listed[position]
        leaf = leaf_of(nodes, node)
        if leaf != NIL:
            for c in range(totals.shape[1]):
                totals[node, c] = np.int64(trees.statistics[leaf, c])
            continue
        left = np.int64(nodes[node]["child"])
        for c in range(totals.shape[1]):
            totals[node, c] = totals[left, c] + totals[left + 1, c]
        n_samples = np.int64(nodes[node]["n_samples"])
        n_left = np.int64(nodes[left]["n_samples"])
        gain = split_score(criterion, totals[left], totals[node], n_left, n_samples)
        gain -= unsplit_score(criterion, totals[node], n_samples)
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
    listed = np.empty(2 * largest + 1, np.int64)
    totals = np.empty((len(trees.nodes), trees.statistics.shape[1]), np.int64)
    for tree in range(n_trees):
        gains = np.zeros(n_features)
        add_gains(trees, tree, criterion, listed, totals, gains)
        if gains.sum() > 0:
            importances += gains / gains.sum()
    total = importances.sum()
    return importances / total if total > 0 else importances
