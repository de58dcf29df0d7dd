"""Incremental boosting without quantization: cases computed by hand, and the textbook."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from oubli.core.boosting.incremental.estimator import IncrementalBoostingClassifier, IncrementalBoostingRegressor
from tests.exact.core.boosting.reading import read
from tests.exact.core.boosting.test_oracle_textbook import AGES, TOY
from tests.oracles.boosting import textbook
from tests.oracles.boosting.trees import Node
from tests.oracles.common import Column

EXACTLY: dict[str, Any] = {"l2_regularization": 0.0, "min_child_weight": 0.0, "quantization": None, "random_state": 0}


def test_the_toy_example_of_the_paper() -> None:
    """Table 3; `test_oracle_textbook.py` computes the trees. All numbers are exact in fixed point."""
    model = IncrementalBoostingRegressor(2, learning_rate=1.0, max_depth=2, **EXACTLY)
    model.fit([list(row) for row in TOY], AGES)
    found = read(model.engine_.trees)
    assert found.base == [38.0]
    wanted = textbook.regression(TOY, AGES, [Column()] * 3, textbook.Parameters(2, max_depth=2))
    for tree, other in zip(found.trees(), wanted.trees(), strict=True):
        assert shape(tree, found.unit) == shape(other, 1.0)
    assert shape(found.trees()[0], found.unit) == (0, 1.5, 27.0, (0, 4.0, -6.0, -15.0))
    assert shape(found.trees()[1], found.unit) == (2, 4500.0, (2, 3500.0, 0.0, 2.0), -2.0)
    assert model.predict([[2.0, 0.8, 3200.0]]).tolist() == [32.0]
    assert model.predict([list(row) for row in TOY]).tolist() == AGES


def shape(node: Node, unit: float) -> Any:
    """(feature, threshold, left, right) of an inner node, the value of a leaf."""
    if node.split is None:
        return unit * node.value
    assert node.left is not None
    assert node.right is not None
    return (node.split.feature, node.split.threshold, shape(node.left, unit), shape(node.right, unit))


def numbers(seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Samples without ties: all values differ, some are missing, labels follow them with noise."""
    rng = np.random.default_rng(seed)
    X = rng.permuted(np.tile(np.arange(90.0), (3, 1)), axis=1).T / 8
    score = X[:, 0] + 2 * np.abs(X[:, 1] - 6) + rng.normal(0, 2, 90)
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, score


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_it_is_the_textbook_where_there_are_no_ties(n_classes: int) -> None:
    """Fixed point against floats: the same splits, and scores to many digits."""
    X, score = numbers(n_classes)
    cells = [tuple(None if x != x else x for x in row) for row in X.tolist()]
    columns = [Column()] * 3
    p = textbook.Parameters(4, 0.3, max_depth=3, l2=0.5)
    arguments = {**EXACTLY, "learning_rate": 0.3, "max_depth": 3, "l2_regularization": 0.5}
    model: Any
    if n_classes == 0:
        y = score
        model = IncrementalBoostingRegressor(4, **arguments).fit(X, y)
        wanted = textbook.regression(cells, y.tolist(), columns, p)
    else:
        y = np.digitize(score, np.quantile(score, np.arange(1, n_classes) / n_classes))
        model = IncrementalBoostingClassifier(4, **arguments).fit(X, y)
        if n_classes == 2:
            odds = math.log(y.sum() / (len(y) - y.sum()))
            wanted = textbook.two_classes(cells, y.tolist(), columns, p, odds)
        else:
            wanted = textbook.many_classes(cells, y.tolist(), n_classes, columns, p)
    found = read(model.engine_.trees)
    for one, other in zip(found.trees(), wanted.trees(), strict=True):
        assert [node.split for node in one.walk()] == [node.split for node in other.walk()]
    assert model.raw_scores(X) == pytest.approx(np.array([wanted.scores(row) for row in cells]), abs=1e-6)
