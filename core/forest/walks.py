"""The steps of rows on their way down a tree, several of them in step, and what they find there."""

import numpy as np

from oubli.core.forest.state import leaf_of
from oubli.core.forest.workspace import ENDS, NODES, OWNERS
from oubli.core.jit.policy import pasted
from oubli.core.jit.prefetch import prefetch_to_read

_FIRST = np.uint64(0)
_SECOND = np.uint64(1)


@pasted
def enter(node, lane, lanes):
    """Begin a walk at a root."""
    lanes[NODES, lane] = node
    lanes[OWNERS, lane] = lane


@pasted
def pass_on(nodes, lane, node, child, following, lanes, n_kept):
    """Let a walk that was at a node go on, unless that is a leaf; returns the number of those that do.

    Where a walk goes is asked for now and looked at in the next round, after all others have been asked for.
    """
    prefetch_to_read(nodes, (following,))
    lanes[ENDS, np.uint64(lane)] = node
    lanes[NODES, n_kept] = following
    lanes[OWNERS, n_kept] = lane
    return n_kept + np.int64(child >= 0)


@pasted
def add_leaf(statistics, leaf, n_samples, is_regression, sums, row):
    """Add a leaf's class shares, or its mean in units of the quantised target, to sums[row]."""
    if is_regression:
        sums[row, 0] += np.float64(statistics[leaf, 1]) / np.float64(statistics[leaf, 0])
        return
    leaf, row, n = np.uint64(leaf), np.uint64(row), np.float64(n_samples)
    if statistics.shape[1] == 2:  # the usual case, without a loop
        sums[row, _FIRST] += np.float64(statistics[leaf, _FIRST]) / n
        sums[row, _SECOND] += np.float64(statistics[leaf, _SECOND]) / n
        return
    for c in range(statistics.shape[1]):
        sums[row, c] += np.float64(statistics[leaf, c]) / n


@pasted
def add_end(nodes, statistics, node, is_regression, sums, row):
    """Add the leaf where a walk has ended, if it has samples."""
    n_samples = np.int64(nodes[node]["n_samples"])
    if n_samples > 0:
        add_leaf(statistics, leaf_of(nodes, node), n_samples, is_regression, sums, row)
