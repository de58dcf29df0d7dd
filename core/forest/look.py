"""One tree of a forest, as people look at it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from oubli.core.array_types import Ints
from oubli.core.forest.quantisation import restore
from oubli.core.forest.state import MISSING_LEFT, ONE_VS_REST
from oubli.core.look import Split, TreeFacts, TreeLook
from oubli.core.rng import mix

if TYPE_CHECKING:
    from oubli.core.forest.kept import KeptForest


class ForestLook(TreeLook):
    """Reads a tree; what an inner node says is added up from the leaves below it.

    Parameters
    ----------
    forest : without tags.
    tree : number of the tree.
    class_order : codes of the classes held, in the order of the classes.
    """

    def __init__(self, forest: "KeptForest", tree: int, class_order: Ints) -> None:
        self._trees = forest.trees
        self._targets = forest.targets
        self._order = class_order
        self.facts = TreeFacts("classes" if forest.targets is None else "mean")
        self.root = tree

    def left(self, node: int) -> int | None:
        child = int(self._trees.nodes[node]["child"])
        return None if child < 0 else child

    def split(self, node: int) -> Split:
        record = self._trees.nodes[node]
        kind, feature = int(record["kind"]), int(record["attribute"])
        if kind <= MISSING_LEFT:
            return Split(feature, float(record["threshold"]), kind == MISSING_LEFT)
        category = int(record["category"])
        if kind == ONE_VS_REST:
            return Split(feature, category=category)
        return Split(feature, goes_left=_coin_of(category))

    def n_samples(self, node: int) -> int:
        return int(self._trees.nodes[node]["n_samples"])

    def says(self, node: int) -> tuple[list[int] | None, float | None]:
        statistics = self._trees.statistics[self._leaves_below(node)].sum(axis=0, dtype=np.int64)
        if self._targets is None:
            return statistics[self._order].tolist(), None
        count, total = statistics.tolist()
        return None, float(restore(np.array(total / count), self._targets.exponent)) if count else None

    def _leaves_below(self, node: int) -> Ints:
        level, found = np.array([node]), []
        while len(level):
            child = self._trees.nodes["child"][level].astype(np.int64)
            found.append(~child[child < 0])
            left = child[child >= 0]
            level = np.concatenate([left, left + 1])
        return np.concatenate(found)


def _coin_of(key: int) -> Callable[[int], bool]:
    """Return what says of a category, by its hash, whether a candidate with this key sends it left; see `in_subset`."""
    return lambda hashed: bool(int(mix(np.uint64(key ^ hashed))) >> 63)
