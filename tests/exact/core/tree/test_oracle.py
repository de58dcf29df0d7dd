"""The oracle and its checker, on cases small enough to be computed by hand, and beside scikit-learn."""

from typing import Any

import numpy as np
import pytest

from tests.oracles.common import Column
from tests.oracles.splits import Split
from tests.oracles.tree import Node, Parameters, Sample, Tree, build, sample_of

NUMBER = Column()


def samples(*rows: tuple[Any, ...], columns: tuple[Column, ...] = (NUMBER,)) -> dict[str, Sample]:
    """Samples "0", "1", ... of rows whose last cell is the label."""
    return {str(i): sample_of(row[:-1], row[-1], columns) for i, row in enumerate(rows)}


def built(*rows: tuple[Any, ...], columns: tuple[Column, ...] = (NUMBER,), **changed: Any) -> Node:
    return build(samples(*rows, columns=columns), 0, Parameters(**{"h": None, **changed}), columns)


# --- BUILD ------------------------------------------------------------------------------------------


def test_the_first_column_and_the_lower_threshold_win_a_tie() -> None:
    """Labels 0 1 0: a threshold on either side of the 1 gains the same; a split that gains nothing is taken, too."""
    twice = (NUMBER, NUMBER)
    assert built((1.0, 1.0, 0), (2.0, 2.0, 1), (3.0, 3.0, 0), columns=twice).split == Split(0, 1.5)
    checkers = [(float(a), float(b), a ^ b) for a in (0, 1) for b in (0, 1)]
    assert built(*checkers, columns=twice).split == Split(0, 0.5)


def test_stopping() -> None:
    rows = [(float(i), int(i >= 3)) for i in range(12)]  # gini 2 * 1/4 * 3/4 = 3/8
    for changed in ({"h": 0}, {"k": 12}, {"alpha": 0.75}):
        assert built(*rows, **changed).split is None
    for changed in ({"h": 1}, {"k": 11}, {"alpha": 0.74}):
        assert built(*rows, **changed).split == Split(0, 2.5)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_as_scikit_learn_where_there_are_no_ties(n_classes: int) -> None:
    from sklearn.tree import DecisionTreeClassifier

    rng = np.random.default_rng(n_classes)
    X = rng.random((300, 3)).astype(np.float32)
    y = (X[:, 0] * 2 + X[:, 1] + rng.normal(0, 0.4, 300)).round().astype(int) % n_classes
    columns = (NUMBER,) * 3
    root = built(*((*row, label) for row, label in zip(X.tolist(), y.tolist(), strict=True)), columns=columns, h=4)
    theirs = DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, y).tree_
    inner = {node: split for node, split in enumerate(theirs.feature) if split >= 0}
    ours = list(root.walk())  # both left before right
    assert len(ours) == theirs.node_count
    for number, node in enumerate(ours):
        assert node.s == theirs.n_node_samples[number]
        assert (node.split is not None) == (number in inner)
        if node.split is not None:
            assert node.split.feature == inner[number]
            assert node.split.threshold == pytest.approx(theirs.threshold[number], abs=1e-6)


# --- UPDATE -----------------------------------------------------------------------------------------


def chain(*sizes: int) -> Tree:
    """A tree in which x <= depth leads to a leaf, built on so many samples, and the rest continues."""
    tree = Tree({}, Parameters(h=None, epsilon=0.1), (NUMBER,))
    node = tree.root
    for depth, size in enumerate(sizes):
        node.s = size
        if depth < len(sizes) - 1:
            node.split = Split(0, float(depth))
            node.children = (Node(depth + 1, 1), Node(depth + 1, 0))
            node = node.children[1]
    return tree


def test_the_highest_node_of_the_same_power_of_two_is_rebuilt() -> None:
    """The eleventh update is too much for the node built on 100; of those above, 128 is 2^7 and 129 is more."""
    for above, rebuilt in (((1000, 129, 128, 101), 2), ((1000, 129, 129, 101), 3), ((128, 128, 128, 101), 0)):
        tree = chain(*above, 100)
        path = tree.root.path((99.0,))
        for i in range(11):
            tree.insert(str(i), Sample((99.0,), ("int", i % 2)))
        assert [node.s for node in path[: rebuilt + 1]] == [*above[:rebuilt], 11]
        assert [node.c for node in path[: rebuilt + 1]] == [11] * rebuilt + [0]
