"""The textbook, which the oracles are compared with: cases computed by hand, and scikit-learn's boosting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.oracles.boosting import textbook
from tests.oracles.boosting.textbook import Parameters, Part, all_splits, best_split, gain, grow
from tests.oracles.boosting.trees import Ensemble, Node, Split
from tests.oracles.common import MISSING_CATEGORY, Column, hash_bytes

NUMBER, CATEGORY = Column(), Column("categorical")

# Table 3 of the iGBDT paper: online time, play time, income; and the age, which is to be predicted.
TOY = [(2.0, 1.0, 5000.0), (5.0, 3.0, 3000.0), (1.0, 0.0, 2000.0), (3.0, 1.0, 4000.0)]
AGES = [30.0, 23.0, 65.0, 34.0]


def toy(**changed: Any) -> Ensemble:
    parameters = Parameters(**{"n_estimators": 2, "max_depth": 2, **changed})
    return textbook.regression(TOY, AGES, [NUMBER] * 3, parameters)


def shape(node: Node) -> Any:
    """(feature, threshold, left, right) of an inner node, the value of a leaf."""
    if node.split is None:
        return pytest.approx(node.value)
    assert node.left is not None
    assert node.right is not None
    return (node.split.feature, node.split.threshold, shape(node.left), shape(node.right))


def test_the_toy_example_of_the_paper() -> None:
    """Section 3.2 and Table 4.

    F_0 is the mean age, 38. "online time <= 1.5" sets the oldest apart, as do "play time <= 0.5" and "income <= 2500":
    the first column wins. The three others have the mean 29, and squared errors
        at online time 2.5: 0 + 60.5, at 4: 8 + 0; at play time 2: 8 + 0; at income 3500: 0 + 8, at 4500: 60.5 + 0.
    The paper takes "play time", which parts them as "online time <= 4" does. Its residuals are then -2, 0, 0 and 2.
    The second tree: of these, with squared errors of 8 in all, those at
        online time 1.5: 8, 2.5: 4, 4: 8; play time 0.5: 8, 2: 8; income 2500: 8, 3500: 8, 4500: 8 / 3 + 0;
    then, of 0, 0 and 2, online time 2 and 4, play time 0.5 and 2: at best 2; income 2500: 2, 3500: 0.
    """
    ensemble = toy()
    assert ensemble.base == [38.0]
    first, second = (trees[0] for trees in ensemble.iterations)
    assert shape(first) == (0, 1.5, 27.0, (0, 4.0, -6.0, -15.0))
    assert shape(second) == (2, 4500.0, (2, 3500.0, 0.0, 2.0), -2.0)
    one = Ensemble(ensemble.iterations[:1], ensemble.base)
    residuals = [age - one.scores(row)[0] for row, age in zip(TOY, AGES, strict=True)]
    assert residuals == pytest.approx([-2.0, 0.0, 0.0, 2.0])
    # The instance [2, 0.8, 3200]: 32 by the first tree, as in the paper.
    assert one.scores((2.0, 0.8, 3200.0)) == pytest.approx([32.0])
    assert [ensemble.scores(row)[0] for row in TOY] == pytest.approx(AGES)


def test_the_learning_rate() -> None:
    """Line 5 of Algorithm 2: half of each leaf, and the second tree sees what is left."""
    ensemble = toy(learning_rate=0.5, n_estimators=1)
    assert [ensemble.scores(row)[0] for row in TOY] == pytest.approx([35.0, 30.5, 51.5, 35.0])


def test_formula_3_and_equation_5_choose_the_same_split() -> None:
    """With hessians of 1 the gain is the squared error of the node less that of both sides."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        cells = [tuple(row) for row in rng.integers(0, 5, (12, 2)).astype(float).tolist()]
        y = rng.normal(size=12).tolist()
        part = Part(cells, [-value for value in y], [1.0] * 12, list(range(12)))

        def error(part: Part) -> float:
            return sum((g - sum(part.g) / len(part.g)) ** 2 for g in part.g)

        for split in all_splits(cells, [NUMBER] * 2):
            sides = [part.side(split, is_left) for is_left in (True, False)]
            assert gain(part, split, 0.0) == pytest.approx(error(part) - sum(error(side) for side in sides))


def test_robust_logitboost_of_two_classes_by_hand() -> None:
    """F = 0: g = +-1/2, h = 1/4. Classes 0 0 1 1 at 1 2 3 4: gain 1/0.5 + 1/0.5 - 0; leaves -(1)/(1/2) = -2 and 2."""
    cells = [(1.0,), (2.0,), (3.0,), (4.0,)]
    ensemble = textbook.two_classes(cells, [0, 0, 1, 1], [NUMBER], Parameters(1, 0.5), 0.0)
    (tree,) = ensemble.iterations[0]
    assert shape(tree) == (0, 2.5, -2.0, 2.0)
    assert ensemble.scores((1.0,)) == [-1.0]
    assert ensemble.probabilities((1.0,)) == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))])
    # The next iteration: p = 0.269 and 0.731, all four samples are off by 0.269, with p (1 - p) = 0.197.
    ensemble = textbook.two_classes(cells, [0, 0, 1, 1], [NUMBER], Parameters(2, 0.5), 0.0)
    p = 1 / (1 + math.exp(1))
    assert (0, 2.5, -1 / (1 - p), 1 / (1 - p)) == shape(ensemble.iterations[1][0])


def test_robust_logitboost_of_three_classes_by_hand() -> None:
    """F = 0: p = 1/3, g = 1/3 or -2/3, h = 2/9. A leaf of one sample of the class: 2/3 * (2/3) / (2/9) = 2; else -1."""
    cells = [(1.0,), (2.0,), (3.0,)]
    ensemble = textbook.many_classes(cells, [0, 1, 2], 3, [NUMBER], Parameters(1, max_leaf_nodes=2))
    first, second, third = ensemble.iterations[0]
    # Of class 1, in the middle, both thresholds gain the same: the lower one; 2/3 * (1/3) / (4/9) = 1/2.
    assert shape(first) == (0, 1.5, 2.0, -1.0)
    assert shape(second) == (0, 1.5, -1.0, 0.5)
    assert shape(third) == (0, 2.5, -1.0, 2.0)


def test_leaves_are_split_best_first() -> None:
    """Leaves that gain less come later; up to J of them."""
    cells = [(float(i),) for i in range(8)]
    y = [0.0, 0.0, 10.0, 12.0, 100.0, 100.0, 130.0, 190.0]
    part = Part(cells, [-value for value in y], [1.0] * 8, list(range(8)))
    thresholds: list[list[float]] = []
    for n_leaves in range(2, 8):
        root = grow(part, [NUMBER], Parameters(max_leaf_nodes=n_leaves), 1.0)
        thresholds.append(sorted(node.split.threshold or 0.0 for node in root.walk() if node.split))
    assert thresholds == [
        [3.5],
        [3.5, 6.5],  # 100, 100, 130 against 190: 2/3 of the errors of the right half
        [3.5, 5.5, 6.5],
        [1.5, 3.5, 5.5, 6.5],  # 11^2 of 0, 0, 10, 12
        [1.5, 2.5, 3.5, 5.5, 6.5],
        [1.5, 2.5, 3.5, 5.5, 6.5],  # 0 and 0, 100 and 100 have nothing to gain
    ]


def test_missing_values_and_categories() -> None:
    columns = [NUMBER, CATEGORY]
    a, b = sorted([hash_bytes(b"a"), hash_bytes(b"b")])
    cells = [(1.0, a), (2.0, b), (None, a), (None, MISSING_CATEGORY)]
    assert all_splits(cells, columns) == [
        Split(0, 1.5),
        Split(0, 1.5, missing_left=True),
        Split(0, math.inf),
        *(Split(1, category=x) for x in (MISSING_CATEGORY, a, b)),
    ]
    for g, expected in (
        ([1.0, 1.0, -1.0, -1.0], Split(0, math.inf)),
        ([1.0, -1.0, 1.0, 1.0], Split(0, 1.5, missing_left=True)),
        ([1.0, -1.0, 1.0, -1.0], Split(1, category=a)),
        ([1.0, 1.0, 1.0, -1.0], Split(1, category=MISSING_CATEGORY)),
    ):
        found = best_split(Part(cells, g, [1.0] * 4, [0, 1, 2, 3]), columns, Parameters())
        assert found is not None
        assert found[1] == expected


def test_min_child_weight_and_regularisation() -> None:
    cells = [(1.0,), (2.0,), (3.0,)]
    part = Part(cells, [-9.0, 1.0, 1.0], [1.0] * 3, [0, 1, 2])
    assert best_split(part, [NUMBER], Parameters(min_child_weight=1.0))[1] == Split(0, 1.5)  # type: ignore[index]
    assert best_split(part, [NUMBER], Parameters(min_child_weight=1.5)) is None
    root = grow(part, [NUMBER], Parameters(max_depth=1, l2=1.0), 1.0)
    assert [leaf.value for leaf in root.leaves()] == pytest.approx([4.5, -2 / 3])


@pytest.mark.parametrize("limits", [{"max_depth": 3}, {"max_leaf_nodes": 6}])
@pytest.mark.parametrize("task", ["regression", "two classes"])
def test_as_scikit_learn_where_there_are_no_ties(task: str, limits: dict[str, int]) -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    rng = np.random.default_rng(3)
    X = rng.permuted(np.tile(np.arange(40.0), (3, 3)), axis=1).T
    missing = rng.random(X.shape) < 0.1
    missing[:, 2] = False
    y = X[:, 0] + 3 * np.sqrt(X[:, 1]) - 10 * missing[:, 0] + rng.normal(0, 4, len(X))
    X[missing] = np.nan
    cells = [tuple(None if math.isnan(x) else x for x in row) for row in X.tolist()]
    common = {"max_iter": 8, "learning_rate": 0.3, "min_samples_leaf": 1, "early_stopping": False}
    common |= {"max_depth": None, "max_leaf_nodes": None, **limits, "l2_regularization": 0.5}
    ours = Parameters(8, 0.3, l2=0.5, **limits)
    if task == "regression":
        theirs = HistGradientBoostingRegressor(**common).fit(X, y).predict(X)
        found = textbook.regression(cells, y.tolist(), [NUMBER] * 3, ours)
    else:
        labels = (y > np.median(y)).astype(int)
        theirs = HistGradientBoostingClassifier(**common).fit(X, labels).decision_function(X)
        base = math.log(labels.mean() / (1 - labels.mean()))
        found = textbook.two_classes(cells, labels.tolist(), [NUMBER] * 3, ours, base)
    assert [found.scores(row)[0] for row in cells] == pytest.approx(theirs, abs=1e-4)
