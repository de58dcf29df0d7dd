"""Feature importances: the Gini impurity that each column's splits take away."""

import numpy as np
import numpy.typing as npt

from oubli.core.jit.policy import kernel
from oubli.core.tree.split import split_score, squares_of
from oubli.core.tree.state import NIL, ROOT, TreeArrays
from oubli.core.tree.workspace import STACK_SIZE


@kernel
def add_gains(tree, walk, gains):
    """Add the gain of each split, times its samples, to its column's entry of float64 `gains`; in path order.

    A split whose node or one side has lost all samples has none.
    """
    nodes = tree.nodes
    walk[0] = ROOT
    n_waiting = 1
    while n_waiting > 0:
        n_waiting -= 1
        node = walk[n_waiting]
        child = np.int64(nodes[node]["child"])
        if child == NIL:
            continue
        n_left, n_right = np.int64(nodes[child]["n_samples"]), np.int64(nodes[child + 1]["n_samples"])
        if n_left > 0 and n_right > 0:
            score = split_score(squares_of(tree.counts, child), n_left, squares_of(tree.counts, child + 1), n_right)
            before = np.float64(squares_of(tree.counts, node)) / np.float64(n_left + n_right)
            gains[nodes[node]["attribute"]] += max(score - before, 0.0)
        walk[n_waiting] = child + 1
        walk[n_waiting + 1] = child
        n_waiting += 2


def feature_importances(tree: TreeArrays, n_features: int) -> npt.NDArray[np.float64]:
    """Share of each feature in the impurity decrease, float64[n_features].

    Sums to 1; zeros when no split gains anything. All tags must have been resolved.
    """
    gains = np.zeros(n_features)
    add_gains(tree, np.empty(STACK_SIZE, np.int64), gains)
    total = gains.sum()
    return gains / total if total > 0 else gains
