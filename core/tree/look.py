"""The tree, as people look at it."""

from typing import Any

from oubli.core.array_types import Ints
from oubli.core.look import Split, TreeFacts, TreeLook
from oubli.core.tree.state import MISSING_LEFT, MISSING_RIGHT, NIL, ROOT, TreeArrays


class SingleTreeLook(TreeLook):
    """Reads the tree.

    Parameters
    ----------
    tree : without tags.
    class_order : codes of the classes held, in the order of the classes.
    """

    facts = TreeFacts("classes")
    root = ROOT

    def __init__(self, tree: TreeArrays, class_order: Ints) -> None:
        self._tree = tree
        self._order = class_order

    def left(self, node: int) -> int | None:
        child = int(self._tree.nodes[node]["child"])
        return None if child == NIL else child

    def split(self, node: int) -> Split:
        return split_of(self._tree.nodes[node])

    def n_samples(self, node: int) -> int:
        return int(self._tree.nodes[node]["n_samples"])

    def says(self, node: int) -> tuple[list[int] | None, float | None]:
        return self._tree.counts[node][self._order].tolist(), None


def split_of(record: Any) -> Split:
    """Return what an inner node asks."""
    feature, kind = int(record["attribute"]), int(record["kind"])
    if kind in (MISSING_LEFT, MISSING_RIGHT):
        return Split(feature, float(record["threshold"]), kind == MISSING_LEFT)
    return Split(feature, category=int(record["category"]))
