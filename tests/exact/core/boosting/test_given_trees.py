"""Trees that are given and not grown: predictions are the oracle's, and the digest tells all that they read."""

from __future__ import annotations

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
    [None, float("nan"), -1.5, -0.0, 0.0, 5e-324, 0.1, 2.0, 1e30],
    [None, "a", "b", "c", "never seen"],
    [None, True, False],
    [0.5, 0.5, 0.5, None],
)
THRESHOLDS: tuple[list[Any], ...] = (
    [-1.5, 0.0, float(np.float32(0.1)), 3.0, math.inf],
    [MISSING_CATEGORY, *(hash_bytes(text.encode()) for text in ("a", "b", "gone"))],
    [0.0, 1.0],
    [0.5, 0.25],
)
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


@pytest.mark.parametrize(
    ("n_classes", "wide"),
    [
        *((n_classes, False) for n_classes in (0, 2, 3, 5)),
        *((2, True), pytest.param(3, True, marks=pytest.mark.long), pytest.param(0, True, marks=pytest.mark.long)),
    ],
)
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
        assert answer(rows).tolist() == expected
        assert answer(rows[::-1]).tolist() == expected[::-1]
        assert [answer([row]).tolist()[0] for row in rows[:20]] == expected[:20]
        if n_classes:
            assert model.raw_scores(rows).tolist() == scores
            assert model.predict(rows).tolist() == [shares.index(max(shares)) for shares in expected]


@pytest.mark.parametrize(
    ("values", "base", "unit", "answer"),
    [
        ([1e16, 1.0, -1e16], 0.25, 1.0, 0.25),  # 1e16 + 1 - 1e16 is 0 in this order, and 1 in another one
        ([1e16, -1e16, 1.0], 0.25, 1.0, 1.25),
        ([1.0, 1.0, 1.0], 0.0, 0.1, 3 * 0.1),
        ([], 4.5, 1.0, 4.5),
    ],
)
def test_the_sum_is_taken_before_the_base_and_in_order(values: Any, base: float, unit: float, answer: float) -> None:
    ensemble = Ensemble([[Node(value)] for value in values], [base], unit)
    assert fitted(0, ensemble).predict([TRAINED[0]]).tolist() == [answer]


@pytest.mark.parametrize(
    ("split", "values", "expected"),
    [
        (Split(0, 0.0, missing_left=False), VALUES[0], "rrllllrrr"),  # 5e-324 is nothing in float32
        (Split(0, 0.0, missing_left=True), VALUES[0], "llllllrrr"),
        (Split(0, math.inf), [None, -3e38, 3e38], "rll"),
        (Split(1, category=MISSING_CATEGORY), VALUES[1], "lrrrr"),
        (Split(1, category=hash_bytes(b"a")), VALUES[1], "rlrrr"),
        (Split(1, category=hash_bytes(b"gone")), VALUES[1], "rrrrr"),
    ],
)
def test_sides_of_a_split(split: Split, values: list[Any], expected: str) -> None:
    model = fitted(0, Ensemble([[Node(0.0, split, Node(1.0), Node(2.0))]], [0.0]))
    rows = [[x, "a", True, 0.5] if split.feature == 0 else [0.0, x, True, 0.5] for x in values]
    assert "".join(".lr"[int(answer)] for answer in model.predict(rows)) == expected


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
    assert {digest(small(), numbering=n) for n in range(8)} == {digest(small())}
    more = np.concatenate([trees.nodes, trees.nodes[:5]])  # nodes that no tree has
    assert tree_digests(trees._replace(nodes=more)) == tree_digests(trees)
    # It is a hash of what predicts: the same trees of other samples are the same model.
    others = [[9.0, "z"], [8.0, "y"], [7.0, "x"], [6.0, "w"]]
    assert digest(small(), X=others, y=[2, 1, 0, 0]) == digest(small())


def at(m: int, k: int, sides: str = "", **fields: Any) -> Callable[[Ensemble], Any]:
    """A change of a node: of tree k of iteration m, at a path."""

    def change(ensemble: Ensemble) -> None:
        node: Any = ensemble.iterations[m][k]
        for side in sides:
            node = node.left if side == "l" else node.right
        if not fields:
            fields.update(left=node.right, right=node.left)
        vars(node).update(fields)

    return change


CHANGES: dict[str, Callable[[Ensemble], Any]] = {
    "nothing": lambda e: None,
    "one bit of a threshold": at(0, 0, split=Split(0, math.nextafter(0.5, 1))),
    "the sign of a threshold": at(0, 0, split=Split(0, -0.5)),
    "another feature": at(0, 0, split=Split(1, 0.5)),
    "missing left": at(0, 0, split=Split(0, 0.5, missing_left=True)),
    "missing right": at(0, 2, split=Split(0, 1.5)),
    "an infinite threshold": at(1, 0, split=Split(0, 3e38)),
    "one bit of a category": at(1, 1, split=Split(1, category=0x1235)),
    "a category with the bits of a threshold": at(0, 0, split=Split(0, category=0x3FE0000000000000)),
    "one bit of a value": at(0, 1, value=math.nextafter(7.0, 8)),
    "the sign of a zero": at(1, 1, "r", value=0.0),
    "a value deep down": at(0, 2, "rl", value=0.5),
    "left for right": at(0, 0),
    "left for right deep down": at(0, 2, "r"),
    "a leaf for a subtree": at(0, 0, split=None, left=None, right=None),
    "the order of two groups": lambda e: e.iterations[0].reverse(),
    "the order of two iterations": lambda e: e.iterations.reverse(),
    "an iteration less": lambda e: e.iterations.pop(),
    "an iteration more": lambda e: e.iterations.append([Node(0.0)] * 3),
    "one bit of F_0": lambda e: e.base.__setitem__(2, math.nextafter(-0.5, 0)),
    "F_0 of another group": lambda e: e.base.reverse(),
}


def test_all_that_predictions_read_changes_the_digest() -> None:
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
