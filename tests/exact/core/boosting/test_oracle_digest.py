"""The digest of boosted trees: everything that a prediction reads changes it, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from oubli.core.boosting.engine import tree_digests
from tests.exact.core.boosting.given import GivenClassifier, GivenRegressor
from tests.exact.core.boosting.reading import write
from tests.oracles.boosting.trees import Ensemble, Node, Split, tree_digest

X, Y = [[0.0, "a"], [1.0, "b"], [2.0, "c"]], [0, 1, 2]


def small() -> Ensemble:
    """Two iterations of three trees: a split of each kind, a leaf alone, a deeper tree."""
    numeric = Node(0.0, Split(0, 0.5), Node(1.0), Node(-1.0))
    category = Node(0.0, Split(1, category=0x1234), Node(0.25), Node(-0.0))
    deep = Node(0.0, Split(0, 1.5, missing_left=True), deepcopy(numeric), deepcopy(category))
    present = Node(0.0, Split(0, math.inf), Node(3.0), Node(4.0))
    return Ensemble([[numeric, Node(7.0), deep], [present, category, Node(7.5)]], [0.0, 0.5, -0.5], 0.1)


def digest(ensemble: Ensemble, *, numbering: int = 0, y: Any = Y, X: Any = X, model: Any = None) -> str:
    model = GivenClassifier() if model is None else model
    model.fit(X, y).with_trees(write(ensemble, numbering=numbering))
    result: str = model.digest()
    return result


def test_a_trees_digest_is_the_oracles() -> None:
    ensemble = small()
    assert tree_digests(write(ensemble, numbering=3)) == [tree_digest(tree) for tree in ensemble.trees()]


def test_where_the_nodes_are_does_not_show() -> None:
    assert {digest(small(), numbering=n) for n in range(8)} == {digest(small())}


def test_nodes_that_no_tree_has_do_not_show() -> None:
    trees = write(small())
    more = np.concatenate([trees.nodes, trees.nodes[:5]])
    assert tree_digests(trees._replace(nodes=more)) == tree_digests(trees)


def root(ensemble: Ensemble, m: int, k: int) -> Any:
    return ensemble.iterations[m][k]


def replaced(split: Split, **changed: Any) -> Split:
    return Split(**{**vars(split), **changed})


def swap(node: Node) -> None:
    node.left, node.right = node.right, node.left


CHANGES: dict[str, Callable[[Ensemble], Any]] = {
    "one bit of a threshold": lambda e: vars(root(e, 0, 0)).update(split=Split(0, math.nextafter(0.5, 1))),
    "the sign of a threshold": lambda e: vars(root(e, 0, 0)).update(split=Split(0, -0.5)),
    "another feature": lambda e: vars(root(e, 0, 0)).update(split=Split(1, 0.5)),
    "missing left": lambda e: vars(root(e, 0, 0)).update(split=Split(0, 0.5, missing_left=True)),
    "missing right": lambda e: vars(root(e, 0, 2)).update(split=Split(0, 1.5)),
    "an infinite threshold": lambda e: vars(root(e, 1, 0)).update(split=Split(0, 3e38)),
    "one bit of a category": lambda e: vars(root(e, 1, 1)).update(split=Split(1, category=0x1235)),
    "a category that looks like a threshold": lambda e: vars(root(e, 0, 0)).update(
        split=Split(0, category=0x3FE0000000000000)  # the bits of 0.5
    ),
    "one bit of a value": lambda e: vars(root(e, 0, 1)).update(value=math.nextafter(7.0, 8)),
    "the sign of a zero": lambda e: vars(root(e, 1, 1).right).update(value=0.0),
    "a value deep down": lambda e: vars(root(e, 0, 2).right.left).update(value=0.5),
    "left for right": lambda e: swap(root(e, 0, 0)),
    "left for right deep down": lambda e: swap(root(e, 0, 2).right),
    "the order of two groups": lambda e: e.iterations[0].reverse(),
    "the order of two iterations": lambda e: e.iterations.reverse(),
    "an iteration less": lambda e: e.iterations.pop(),
    "an iteration more": lambda e: e.iterations.append([Node(0.0)] * 3),
    "a leaf for a subtree": lambda e: vars(root(e, 0, 0)).update(split=None, left=None, right=None),
    "one bit of F_0": lambda e: e.base.__setitem__(2, math.nextafter(-0.5, 0)),
    "F_0 of another group": lambda e: e.base.reverse(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_the_digest(change: str) -> None:
    ensemble = small()
    CHANGES[change](ensemble)
    assert digest(ensemble) != digest(small())


def test_all_changes_are_told_apart() -> None:
    digests = set()
    for change in CHANGES.values():
        ensemble = small()
        change(ensemble)
        digests.add(digest(ensemble))
    assert len(digests) == len(CHANGES)


def test_what_goes_with_the_trees_changes_the_digest() -> None:
    reference = digest(small())
    assert digest(Ensemble(small().iterations, small().base, math.nextafter(0.1, 1))) != reference
    assert digest(small(), y=[0, 1, 3]) != reference
    assert digest(small(), y=["0", "1", "2"]) != reference
    assert digest(small(), X=[[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]) != reference
    assert digest(small(), model=GivenClassifier(random_state=1)) != reference
    one = Ensemble([[Node(1.0)]], [0.0])
    assert digest(one, model=GivenRegressor(), y=[0.0, 1.0, 1.0]) != digest(one, y=[0, 1, 1])


def test_the_samples_do_not_change_the_digest() -> None:
    """It is a hash of what predicts: the same trees of other samples are the same model."""
    others = [[9.0, "z"], [8.0, "y"], [7.0, "x"], [6.0, "w"]]
    assert digest(small(), X=others, y=[2, 1, 0, 0]) == digest(small())
