"""The tree as people read it: node by node, and by importances."""

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Ints
from oubli.core.engine import RecordLook, TreeFacts
from oubli.core.explanation.trees import NODE, WeightedTrees, of_one_kind, shares_of, totals_of
from oubli.core.jit.nodes import NIL
from oubli.core.jit.policy import kernel
from oubli.core.jit.targets import as_weights, total_of
from oubli.core.tree.split import split_score, squares_of
from oubli.core.tree.state import ROOT, TreeArrays
from oubli.core.tree.workspace import STACK_SIZE


class SingleTreeLook(RecordLook):
    """Reads the tree.

    Parameters
    ----------
    tree : without tags.
    class_order : codes of the classes held, in the order of the classes.
    is_whole : whether class counts are of weights that are whole.
    """

    facts = TreeFacts("classes")
    root = ROOT

    def __init__(self, tree: TreeArrays, class_order: Ints, *, is_whole: bool) -> None:
        self.nodes = tree.nodes
        self._counts = tree.counts
        self._order = class_order
        self._is_whole = is_whole

    def says(self, node: int) -> tuple[list[float] | None, float | None]:
        return as_weights(self._counts[node][self._order], is_whole=self._is_whole), None


@kernel
def add_gains(tree, walk, gains):
    """Add the gain of each split, times its samples by weight, to its column's entry of float64 `gains`; in path order.

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
        n_left, n_right = total_of(tree.counts, child), total_of(tree.counts, child + 1)
        if n_left > 0 and n_right > 0:
            score = split_score(squares_of(tree.counts, child), n_left, squares_of(tree.counts, child + 1), n_right)
            before = np.float64(squares_of(tree.counts, node)) / np.float64(n_left + n_right)
            gains[nodes[node]["attribute"]] += max(score - before, 0.0)
        walk[n_waiting] = child + 1
        walk[n_waiting + 1] = child
        n_waiting += 2


def feature_importances(tree: TreeArrays, n_features: int) -> npt.NDArray[np.float64]:
    """Share of each feature in the decrease of the Gini impurity, float64[n_features].

    Sums to 1; zeros when no split gains anything. All tags must have been resolved.
    """
    gains = np.zeros(n_features)
    add_gains(tree, np.empty(STACK_SIZE, np.int64), gains)
    total = gains.sum()
    return gains / total if total > 0 else gains


def weighted_trees(tree: TreeArrays, n_features: int, class_order: Ints) -> WeightedTrees:
    """The tree without what is below nodes that have lost all samples: these answer as the node above. O(nodes)."""
    nodes, answers, shown = tree.nodes, np.arange(len(tree.nodes)), np.zeros(len(tree.nodes), NODE)
    has_children = (nodes["child"] != NIL) & (nodes["n_samples"] > 0)
    level = np.array([ROOT])
    while len(level):
        level = level[has_children[level]]
        left = nodes["child"][level].astype(np.int64)
        for child in (left, left + 1):
            answers[child] = np.where(nodes["n_samples"][child] > 0, child, answers[level])
        level = np.concatenate([left, left + 1])
    for name in ("category", "attribute", "kind"):
        shown[name] = nodes[name]
    shown["child"] = np.where(has_children, nodes["child"], ~answers)
    covers, leaves = totals_of(tree.counts).astype(np.float64), shares_of(tree.counts, class_order)
    return of_one_kind(shown, covers, leaves, np.array([ROOT]), n_features, len(class_order))
