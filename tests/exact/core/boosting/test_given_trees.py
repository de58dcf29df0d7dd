"""Trees that are given and not grown: predictions are the oracle's, and the digest tells all that they read."""

import math
import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from oubli.core import IncrementalBoostingClassifier, IncrementalBoostingRegressor
from oubli.core.boosting.engine import tree_digests
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from tests.exact.core.boosting.reading import random_tree, read, write
from tests.oracles.boosting.trees import Ensemble, Node, tree_digest
from tests.oracles.common import MISSING_CATEGORY, cell, hash_bytes
from tests.oracles.common import Column as OracleColumn
from tests.oracles.splits import Split

# -- predictions -------------------------------------------------------------------------------------

COLUMNS = (OracleColumn("numeric"), OracleColumn("categorical"), OracleColumn("boolean"), OracleColumn("numeric"))
VALUES: tuple[list[Any], ...] = (
    [None, float("nan"), -1.5, -0.0, 0.0, 5e-324, 0.1, 2.0, 1e30], [None, "a", "b", "c", "never seen"],
    [None, True, False], [0.5, 0.5, 0.5, None],
)  # fmt: skip
THRESHOLDS: tuple[list[Any], ...] = (
    [-1.5, 0.0, float(np.float32(0.1)), 3.0, math.inf],
    [MISSING_CATEGORY, *(hash_bytes(text.encode()) for text in ("a", "b", "gone"))], [0.0, 1.0], [0.5, 0.25],
)  # fmt: skip
TRAINED = [[1.0, "a", True, 0.5], [2.0, "b", False, 0.5], [0.0, "c", None, None]]  # the categories that are held


def given(model: Any, X: Any, y: Any, ensemble: Ensemble, *, numbering: int = 0, schema: Any = None) -> Any:
    """A model of boosting on presorted columns, which keeps the trees that predictions read as they are, with these."""
    model.fit(X, y, schema=schema).engine_.trees = write(ensemble, numbering=numbering)
    return model


def classifier(**parameters: Any) -> Any:
    return IncrementalBoostingClassifier(1, quantization=None, **{"random_state": 0, **parameters})


def fitted(n_classes: int, ensemble: Ensemble, *, wide: bool = False, numbering: int = 0) -> Any:
    """A model of so many classes, or a regression (0), that has these trees."""
    columns = [Column(f"x{i}", ColumnType(c.type), c.dtype) for i, c in enumerate(COLUMNS)]  # type: ignore[arg-type]
    if wide:
        columns[3] = Column("x3", ColumnType.NUMERIC, "float64")
    if n_classes:
        schema = Schema(tuple(columns), Task.CLASSIFICATION, LabelType.INTEGER)
        X, y = [TRAINED[i % 3] for i in range(n_classes)], list(range(n_classes))
        return given(classifier(), X, y, ensemble, numbering=numbering, schema=schema)
    schema = Schema(tuple(columns), Task.REGRESSION, LabelType.NUMBER)
    model = IncrementalBoostingRegressor(1, quantization=None)
    return given(model, TRAINED, [1.0, 2.0, 3.0], ensemble, numbering=numbering, schema=schema)


def random_ensemble(seed: int, n_groups: int, n_iterations: int) -> Ensemble:
    rng = random.Random(seed)
    iterations = [[random_tree(rng, THRESHOLDS, 5) for _ in range(n_groups)] for _ in range(n_iterations)]
    return Ensemble(iterations, [rng.gauss(0, 1) for _ in range(n_groups)], rng.choice([1.0, 0.1, 0.00625]))


@pytest.mark.parametrize(("n_classes", "wide"), [
    *((n_classes, False) for n_classes in (0, 2, 3, 5)),
    *((2, True), pytest.param(3, True, marks=pytest.mark.long), pytest.param(0, True, marks=pytest.mark.long)),
])  # fmt: skip
def test_predictions_are_the_oracles_bit_for_bit(n_classes: int, wide: bool) -> None:
    """Together, in another order, and alone."""
    for seed in range(8):
        rng = random.Random(seed)
        ensemble = random_ensemble(seed, n_classes if n_classes > 2 else 1, 4 * seed if n_classes == 0 else seed)
        model = fitted(n_classes, ensemble, wide=wide, numbering=seed)
        rows = [[rng.choice(values) for values in VALUES] for _ in range(150)]  # more than go through a tree together
        cells = [[cell(value, column) for value, column in zip(row, COLUMNS, strict=True)] for row in rows]
        scores = [ensemble.scores(row) for row in cells]
        answer = model.predict_proba if n_classes else model.predict
        expected = [ensemble.probabilities(row) if n_classes else ensemble.scores(row)[0] for row in cells]
        assert (answer(rows).tolist(), answer(rows[::-1]).tolist()) == (expected, expected[::-1])
        assert [answer([row]).tolist()[0] for row in rows[:20]] == expected[:20]
        if n_classes:
            assert model.raw_scores(rows).tolist() == scores
            assert model.predict(rows).tolist() == [shares.index(max(shares)) for shares in expected]


# -- the digest --------------------------------------------------------------------------------------

X, Y = [[0.0, "a"], [1.0, "b"], [2.0, "c"]], [0, 1, 2]


def small() -> Ensemble:
    """Two iterations of three trees: a split of each kind, a leaf alone, a deeper tree."""
    numeric = Node(0.0, Split(0, 0.5), Node(1.0), Node(-1.0))
    category = Node(0.0, Split(1, category=0x1234), Node(0.25), Node(-0.0))
    deep = Node(0.0, Split(0, 1.5, missing_left=True), deepcopy(numeric), deepcopy(category))
    present = Node(0.0, Split(0, math.inf), Node(3.0), Node(4.0))
    return Ensemble([[numeric, Node(7.0), deep], [present, category, Node(7.5)]], [0.0, 0.5, -0.5], 0.1)


def digest(ensemble: Ensemble, *, numbering: int = 0, y: Any = Y, X: Any = X, model: Any = None) -> str:
    result: str = given(classifier() if model is None else model, X, y, ensemble, numbering=numbering).digest()
    return result


def test_a_trees_digest_is_the_oracles_wherever_its_nodes_are() -> None:
    ensemble = small()
    trees = write(ensemble, numbering=3)
    assert read(trees).trees() == ensemble.trees()
    assert tree_digests(trees) == [tree_digest(tree) for tree in ensemble.trees()]
    for seed in range(8):
        drawn = random_ensemble(seed, 3, 10)
        assert tree_digests(write(drawn, numbering=seed)) == [tree_digest(tree) for tree in drawn.trees()]
    assert {digest(small(), numbering=n) for n in range(8)} == {digest(small())}
    more = np.concatenate([trees.nodes, trees.nodes[:5]])  # nodes that no tree has
    assert tree_digests(trees._replace(nodes=more)) == tree_digests(trees)
    # It is a hash of what predicts: the same trees of other samples are the same model.
    others = [[9.0, "z"], [8.0, "y"], [7.0, "x"], [6.0, "w"]]
    assert digest(small(), X=others, y=[2, 1, 0, 0]) == digest(small())


CHANGES: dict[str, Callable[[Ensemble], Any]] = {
    "nothing": lambda e: None,
    "one bit of a value": lambda e: setattr(e.iterations[0][1], "value", math.nextafter(7.0, 8)),
    "the order of two groups": lambda e: e.iterations[0].reverse(),
    "the order of two iterations": lambda e: e.iterations.reverse(),
    "an iteration less": lambda e: e.iterations.pop(),
    "an iteration more": lambda e: e.iterations.append([Node(0.0)] * 3),
    "one bit of F_0": lambda e: e.base.__setitem__(2, math.nextafter(-0.5, 0)),
    "F_0 of another group": lambda e: e.base.reverse(),
}


def test_all_that_predictions_read_changes_the_digest() -> None:
    """What the digest of one tree is made of is in the test above."""
    names = {}
    for name, change in CHANGES.items():
        ensemble = small()
        change(ensemble)
        names[digest(ensemble)] = name
    names[digest(Ensemble(small().iterations, small().base, math.nextafter(0.1, 1)))] = "one bit of the unit"
    names[digest(small(), y=[0, 1, 3])] = "classes"
    names[digest(small(), y=["0", "1", "2"])] = "the type of labels"
    names[digest(small(), X=[[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]])] = "the type of columns"
    names[digest(small(), model=classifier(random_state=1))] = "parameters"
    one = Ensemble([[Node(1.0)]], [0.0])
    names[digest(one, y=[0, 1, 1])] = "one tree"
    regressor = IncrementalBoostingRegressor(1, quantization=None, random_state=0)
    names[digest(one, model=regressor, y=[0.0, 1.0, 1.0])] = "the task"
    assert len(names) == len(CHANGES) + 7, sorted(names.values())
