"""One boosted tree, as people look at it: as predictions read it, with the samples held sent down from its root."""

import numpy as np

from oubli.core.array_types import Bools, Ints
from oubli.core.boosting.state import LEAF, Trees
from oubli.core.look import Split, TreeFacts, TreeLook
from oubli.core.samples.arrays import Problem
from oubli.core.samples.hashing import hashes_of


class BoostedLook(TreeLook):
    """Reads a tree. How many samples come through a node is counted for those that are looked at.

    Parameters
    ----------
    trees : as predictions read them.
    tree : number of the tree.
    problem : the samples held.
    """

    def __init__(self, trees: Trees, tree: int, problem: Problem) -> None:
        groups = trees.n_groups
        self._nodes, self._unit, self._data = trees.nodes, trees.unit, problem.data
        self.facts = TreeFacts("score", tree // groups, tree % groups if groups > 1 else None)
        self.root = int(trees.roots[tree])
        self._members: dict[int, Ints] = {self.root: problem.slots()}

    def left(self, node: int) -> int | None:
        record = self._nodes[node]
        if int(record["feature"]) == LEAF:
            return None
        left = int(record["left"])
        if left not in self._members:
            members = self._members[node]
            goes_right = self._goes_right(node, members)
            self._members[left], self._members[left + 1] = members[~goes_right], members[goes_right]
        return left

    def split(self, node: int) -> Split:
        record = self._nodes[node]
        feature = int(record["feature"])
        if record["is_categorical"]:
            return Split(feature, category=int(record["category"]))
        return Split(feature, float(record["threshold"]), bool(record["missing_left"]))

    def n_samples(self, node: int) -> int:
        return len(self._members[node])

    def says(self, node: int) -> tuple[list[int] | None, float | None]:
        record = self._nodes[node]
        return None, float(record["value"]) * self._unit if int(record["feature"]) == LEAF else None

    def _goes_right(self, node: int, slots: Ints) -> Bools:
        """Sides of samples; see `goes_right` of `state.py`."""
        record = self._nodes[node]
        values = self._data.cells[slots, int(record["feature"])]
        if record["is_categorical"]:
            return np.asarray(hashes_of(values, self._data.category_hashes) != record["category"])
        return np.where(np.isnan(values), not record["missing_left"], values > record["threshold"])
