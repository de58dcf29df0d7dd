"""The oracle and its checker, on cases small enough to be computed by hand, and beside scikit-learn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.oracles.common import MISSING_CATEGORY, Column, hash_bytes
from tests.oracles.splits import Split
from tests.oracles.tree import (
    Node,
    Parameters,
    Sample,
    Tree,
    best_gain,
    build,
    gain,
    sample_of,
    splits_of,
    violations,
    wrong_labels,
    wrong_sizes,
)

NUMBER, CATEGORY = Column(), Column("categorical")
EXACT = Parameters(h=None, epsilon=0.0)


def samples(*rows: tuple[Any, ...], columns: tuple[Column, ...] = (NUMBER,)) -> dict[str, Sample]:
    """Samples "0", "1", ... of rows whose last cell is the label."""
    return {str(i): sample_of(row[:-1], row[-1], columns) for i, row in enumerate(rows)}


def built(*rows: tuple[Any, ...], columns: tuple[Column, ...] = (NUMBER,), **changed: Any) -> Node:
    return build(samples(*rows, columns=columns), 0, Parameters(**{"h": None, **changed}), columns)


# --- splits -----------------------------------------------------------------------------------------

A, B = sorted([hash_bytes(b"a"), hash_bytes(b"b")])
ABOVE_1 = float(np.nextafter(np.float32(1), np.float32(2)))


@pytest.mark.parametrize(
    ("columns", "rows", "expected"),
    [
        ((NUMBER,), [(1.0, 0), (4.0, 0), (2.0, 1), (4.0, 1)], [Split(0, 1.5), Split(0, 3.0)]),
        ((NUMBER,), [(1.0, 0), (ABOVE_1, 1)], [Split(0, 1.0)]),  # between adjacent numbers the lower one
        (
            (NUMBER,),
            [(1.0, 0), (2.0, 0), (None, 1)],
            [Split(0, 1.5), Split(0, 1.5, missing_left=True), Split(0, math.inf)],
        ),
        (
            (CATEGORY,),
            [("a", 0), ("b", 0), (None, 1)],
            [Split(0, category=x) for x in (MISSING_CATEGORY, A, B)],
        ),
        ((NUMBER, CATEGORY), [(1.0, "a", 0), (1.0, "a", 1)], []),
    ],
)
def test_all_splits_in_their_order(columns: Any, rows: Any, expected: list[Split]) -> None:
    assert splits_of(list(samples(*rows, columns=columns).values()), columns) == expected


def test_sides() -> None:
    assert Split(0, 1.5, missing_left=True).goes_left([None])
    assert not Split(0, math.inf).goes_left([None])
    assert Split(0, math.inf).goes_left([1e300])


def test_the_gain_is_definition_2_1() -> None:
    """Labels 0 0 1 1 parted as (0) (0 1 1): 1/2 - 3/4 * 4/9."""
    rows = list(samples((1.0, 0), (2.0, 0), (3.0, 1), (4.0, 1)).values())
    assert gain(Split(0, 1.5), rows) == pytest.approx(1 / 2 - 3 / 4 * 4 / 9)
    assert gain(Split(0, 9.0), rows) == 0.0
    assert best_gain(rows, [NUMBER]) == pytest.approx(1 / 2)


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


def updates(tree: Tree, n: int) -> None:
    for i in range(n):
        tree.insert(str(i), Sample((99.0,), ("int", i % 2)))


def test_c_counts_up_to_epsilon_s() -> None:
    tree = chain(1000, 500, 100)
    updates(tree, 10)
    assert [node.c for node in tree.root.path((99.0,))] == [10, 10, 10]


def test_the_highest_node_of_the_same_power_of_two_is_rebuilt() -> None:
    """The eleventh update is too much for the node built on 100; of those above, 128 is 2^7 and 129 is more."""
    for above, rebuilt in (((1000, 129, 128, 101), 2), ((1000, 129, 129, 101), 3), ((128, 128, 128, 101), 0)):
        tree = chain(*above, 100)
        path = tree.root.path((99.0,))
        updates(tree, 11)
        assert [node.s for node in path[: rebuilt + 1]] == [*above[:rebuilt], 11]
        assert [node.c for node in path[: rebuilt + 1]] == [11] * rebuilt + [0]


def test_a_node_built_on_nothing_is_rebuilt_at_once() -> None:
    tree = Tree({}, EXACT, (NUMBER,))
    tree.insert("a", Sample((1.0,), ("int", 0)))
    assert (tree.root.s, tree.root.c) == (1, 0)
    tree.delete("a", Sample((1.0,), ("int", 0)))
    assert (tree.root.s, tree.root.c) == (0, 0)


def test_lazily_a_tag_stays_until_a_query() -> None:
    tree = chain(1000, 100)
    tree.parameters = Parameters(h=None, epsilon=0.1, lazy=True)
    updates(tree, 14)
    root, leaf = tree.root.path((99.0,))
    assert (root.c, root.tagged, leaf.tagged, len(leaf.samples)) == (14, False, True, 14)
    tree.query((-1.0,))
    assert leaf.tagged
    tree.query((99.0,))
    assert (leaf.tagged, leaf.s, leaf.c) == (False, 14, 0)


# --- the checker --------------------------------------------------------------------------------------

FEASIBLE = Parameters(h=3, k=1, alpha=0.1, beta=0.1, epsilon=0.007)


def found(root: Node, held: dict[str, Sample], parameters: Parameters = FEASIBLE) -> list[str]:
    return [text.split(":")[0] for text in violations(root, held, parameters, (NUMBER,))]


def test_a_built_tree_is_feasible() -> None:
    held = samples(*((float(i), i // 3 % 2) for i in range(40)))
    assert found(build(held, 0, FEASIBLE, (NUMBER,)), held) == []


def test_condition_1() -> None:
    held = samples(*((float(i), int(i >= 5)) for i in range(10)))
    inner = Node(0, 10, split=Split(0, 4.5), children=(Node(1, 5), Node(1, 5)))
    assert found(Node(0, 10), held) == ["condition 1"]  # mixed, and a leaf
    assert found(inner, held) == []
    assert found(inner, samples(*((float(i), 0) for i in range(10)))) == ["condition 1"]  # pure
    assert found(inner, samples((1.0, 0))) == ["condition 1"]  # k samples
    assert found(Node(0, 10, tagged=True), held) == []  # a tag excuses what is below
    for depth_limit in (0, 1):
        expected = ["condition 1"] if depth_limit == 0 else []
        assert found(inner, held, Parameters(h=depth_limit, alpha=0.1, beta=0.1, epsilon=0.007)) == expected
    tenth = samples(*((float(i), int(i >= 19)) for i in range(20)))  # gini 0.095 < alpha: as it likes
    assert found(Node(0, 20), tenth) == []


def test_condition_2() -> None:
    """0.5 can be gained at 4.5; at 2.5 only 0.214, and a threshold of alternating labels gains next to nothing."""
    held = samples(*((float(i), int(i >= 5)) for i in range(10)))
    inner = Node(0, 10, split=Split(0, 2.5), children=(Node(1, 3), Node(1, 7)))
    assert gain(Split(0, 2.5), list(held.values())) == pytest.approx(3 / 14)
    assert found(inner, held, Parameters(h=1, alpha=0.1, beta=0.29, epsilon=0.007)) == []
    assert found(inner, held, Parameters(h=1, alpha=0.1, beta=0.28, epsilon=0.007)) == ["condition 2"]


def test_condition_3() -> None:
    held = samples((1.0, 0), (2.0, 0), (3.0, 1), (4.0, 1), (5.0, 2))
    root = Node(0, 5, split=Split(0, 2.5), children=(Node(1, 2), Node(1, 3)))
    zero, one, two = (("int", label) for label in (0, 1, 2))
    assert wrong_labels(root, [(0.0,), (9.0,)], [zero, one], held) == []
    assert len(wrong_labels(root, [(0.0,), (9.0,)], [one, two], held)) == 2
    assert wrong_labels(root, [(0.0,)], [two], {}) == []  # nothing there: any label
    root.tagged = True
    root.children = root.split = None
    assert len(wrong_labels(root, [(0.0,)], [zero], held)) == 1


def test_only_samples_that_are_nearly_all_alike_excuse_a_leaf() -> None:
    alike = samples(*([(1.0, 0)] * 100 + [(1.0, 1)] * 100))
    assert found(Node(0, 200), alike) == []
    assert found(Node(0, 200), {**alike, "one": Sample((2.0,), ("int", 1))}) == []
    more = {f"more {i}": Sample((2.0 + i,), ("int", i % 2)) for i in range(8)}
    assert found(Node(0, 200), {**alike, **more}) == ["condition 1"]


def test_sizes() -> None:
    """Lemma 3.4."""
    held = samples(*((float(i), 0) for i in range(10)))
    for size, is_wrong in ((10, False), (9, True), (11, False), (12, True)):
        assert bool(wrong_sizes(Node(0, size), held, 0.1)) == is_wrong
