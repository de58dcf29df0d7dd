"""The paper's toy example (section 3.2, Tables 3 and 4, Figure 1), by hand.

    online time   play time   income    age
    2             1           5000      30
    5             3           3000      23
    1             0           2000      65
    3             1           4000      34

The mean is 38. Online time, play time and income all tell 65 from the rest; online time is the first column. Of the
three others, each column tells 23 from 30 and 34, whose mean is 32. So the residuals are -2, 0, 0, 2, as in Table 4.

Of these, the least squares are left by income <= 4500: 8/3, where the two pairs by online time leave 4. (The text of
Figure 2 has the prediction for an income of 3200 drop by 2, to 30: that tree is not the best one by Formula 3, whose
prediction is 32.) The left side is divided further by income <= 3500, and nothing is left over.
"""

from __future__ import annotations

import numpy as np
import pytest

from oubli.core.boosting.predict import raw_scores
from oubli.core.boosting.presorted.engine import PresortedTrees
from oubli.core.boosting.state import LEAF
from tests.exact.core.boosting.presorted.problems import numeric_pool, settings_of

X = [[2.0, 1.0, 5000.0], [5.0, 3.0, 3000.0], [1.0, 0.0, 2000.0], [3.0, 1.0, 4000.0]]
AGES = [30.0, 23.0, 65.0, 34.0]
ONLINE_TIME, PLAY_TIME, INCOME = range(3)


def predict(engine: PresortedTrees, rows: list[list[float]]) -> list[float]:
    trees = engine.trees
    scores = np.empty((len(rows), 1))
    cells = np.array(rows, np.float32)
    raw_scores(trees.nodes, trees.roots, trees.base, trees.unit, cells, np.zeros(0, np.uint64), scores)
    return scores[:, 0].tolist()


def grown(n_trees: int, rate: float = 1.0) -> PresortedTrees:
    # The paper counts levels of nodes: its depth 3 has two levels of splits.
    return numeric_pool(X, AGES).grown(settings_of(n_estimators=n_trees, learning_rate=rate, max_depth=2), np.arange(4))


def test_first_tree() -> None:
    nodes, roots = grown(1).trees.nodes, grown(1).trees.roots
    assert roots.tolist() == [0]
    assert nodes["feature"].tolist() == [ONLINE_TIME, LEAF, ONLINE_TIME, LEAF, LEAF]
    assert nodes["threshold"][[0, 2]].tolist() == [1.5, 4.0]
    assert nodes["left"].tolist() == [1, 0, 3, 0, 0]
    unit = grown(1).trees.unit
    assert (nodes["value"] * unit).tolist() == [0.0, 65.0 - 38.0, 0.0, 32.0 - 38.0, 23.0 - 38.0]
    assert grown(1).trees.base.tolist() == [38.0]


def test_residuals_of_the_first_tree_are_those_of_table_4() -> None:
    assert (np.array(AGES) - predict(grown(1), X)).tolist() == [-2.0, 0.0, 0.0, 2.0]


def test_second_tree() -> None:
    trees = grown(2).trees
    second = trees.nodes[trees.roots[1] :]
    assert second["feature"].tolist() == [INCOME, INCOME, LEAF, LEAF, LEAF]
    assert second["threshold"][:2].tolist() == [4500.0, 3500.0]
    assert (second["value"] * trees.unit).tolist() == [0.0, 0.0, -2.0, 0.0, 2.0]


def test_predictions() -> None:
    assert predict(grown(1), [[2.0, 0.8, 3200.0]]) == [32.0]
    # The leaf that lowers it by 2 is reached with the income of the sample of 30 years.
    assert predict(grown(2), [[2.0, 0.8, 3200.0], [2.0, 0.8, 5200.0]]) == [32.0, 30.0]
    assert predict(grown(2), X) == AGES


def test_the_learning_rate_shrinks_each_step() -> None:
    assert predict(grown(1, 0.3), [[2.0, 0.8, 3200.0]]) == pytest.approx([38.0 - 0.3 * 6.0], abs=1e-6)
