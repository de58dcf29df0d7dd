"""Reading trees: any trees, any rows, alone and among others, against the oracle's nested nodes."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from oubli.core.boosting.state import no_trees
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from tests.exact.core.boosting.given import GivenClassifier, GivenRegressor
from tests.exact.core.boosting.reading import random_tree, read, write
from tests.oracles.boosting.trees import Ensemble, Node, Split, difference
from tests.oracles.common import MISSING_CATEGORY, cell, hash_bytes
from tests.oracles.common import Column as OracleColumn

COLUMNS = (OracleColumn("numeric"), OracleColumn("categorical"), OracleColumn("boolean"), OracleColumn("numeric"))
VALUES: tuple[list[Any], ...] = (
    [None, float("nan"), -1.5, -0.0, 0.0, 0.1, 2.0, 1e30],
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


def schema(task: Task, label_type: LabelType, wide: bool) -> Schema:
    columns = [Column(f"x{i}", ColumnType(c.type), c.dtype) for i, c in enumerate(COLUMNS)]  # type: ignore[arg-type]
    if wide:
        columns[3] = Column("x3", ColumnType.NUMERIC, "float64")
    return Schema(tuple(columns), task, label_type)


def classifier(n_classes: int, ensemble: Ensemble, *, wide: bool = False, numbering: int = 0) -> Any:
    rows = [TRAINED[i % 3] for i in range(n_classes)]
    model = GivenClassifier().fit(
        rows, list(range(n_classes)), schema=schema(Task.CLASSIFICATION, LabelType.INTEGER, wide)
    )
    return model.with_trees(write(ensemble, numbering=numbering))


def regressor(ensemble: Ensemble, *, wide: bool = False, numbering: int = 0) -> Any:
    model = GivenRegressor().fit(TRAINED, [1.0, 2.0, 3.0], schema=schema(Task.REGRESSION, LabelType.NUMBER, wide))
    return model.with_trees(write(ensemble, numbering=numbering))


def random_ensemble(seed: int, n_groups: int, n_iterations: int) -> Ensemble:
    rng = random.Random(seed)
    iterations = [[random_tree(rng, THRESHOLDS, 5) for _ in range(n_groups)] for _ in range(n_iterations)]
    return Ensemble(iterations, [rng.gauss(0, 1) for _ in range(n_groups)], rng.choice([1.0, 0.1, 0.00625]))


def random_rows(seed: int, n: int) -> list[list[Any]]:
    rng = random.Random(seed)
    return [[rng.choice(values) for values in VALUES] for _ in range(n)]


def cells_of(row: list[Any]) -> list[Any]:
    return [cell(value, column) for value, column in zip(row, COLUMNS, strict=True)]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_probabilities_are_the_oracles_bit_for_bit(n_classes: int, wide: bool) -> None:
    for seed in range(8):
        ensemble = random_ensemble(seed, 1 if n_classes == 2 else n_classes, seed)
        model = classifier(n_classes, ensemble, wide=wide, numbering=seed)
        rows = random_rows(seed, 150)  # more than go through a tree together
        expected = [ensemble.probabilities(cells_of(row)) for row in rows]
        assert model.predict_proba(rows).tolist() == expected
        assert model.raw_scores(rows).tolist() == [ensemble.scores(cells_of(row)) for row in rows]
        assert model.predict(rows).tolist() == [p.index(max(p)) for p in expected]


@pytest.mark.parametrize("wide", [False, True])
def test_values_are_the_oracles_bit_for_bit(wide: bool) -> None:
    for seed in range(8):
        ensemble = random_ensemble(100 + seed, 1, 4 * seed)
        rows = random_rows(seed, 150)
        model = regressor(ensemble, wide=wide, numbering=seed)
        assert model.predict(rows).tolist() == [ensemble.scores(cells_of(row))[0] for row in rows]


@pytest.mark.parametrize("n_classes", [0, 2, 3, 5])
def test_a_row_alone_is_as_among_others(n_classes: int) -> None:
    ensemble = random_ensemble(n_classes, n_classes if n_classes > 2 else 1, 9)
    model = regressor(ensemble) if n_classes == 0 else classifier(n_classes, ensemble)
    rows = random_rows(7, 70)
    answer = model.predict if n_classes == 0 else model.predict_proba
    together = answer(rows)
    for i, row in enumerate(rows):
        assert answer([row]).tobytes() == together[i : i + 1].tobytes()
    backwards = answer(rows[::-1])
    assert backwards[::-1].tobytes() == together.tobytes()


def test_the_sum_is_taken_before_the_base_and_in_order() -> None:
    """1e16 + 1 - 1e16 is 0 in this order, and 1 in another one."""
    values = [1e16, 1.0, -1e16]
    ensemble = Ensemble([[Node(value)] for value in values], [0.25], 1.0)
    assert regressor(ensemble).predict([TRAINED[0]]).tolist() == [0.25]
    other = Ensemble([[Node(value)] for value in (1e16, -1e16, 1.0)], [0.25], 1.0)
    assert regressor(other).predict([TRAINED[0]]).tolist() == [1.25]
    third = Ensemble([[Node(1.0)], [Node(1.0)], [Node(1.0)]], [0.0], 0.1)
    assert regressor(third).predict([TRAINED[0]]).tolist() == [3 * 0.1]


def test_missing_values_go_where_the_split_says() -> None:
    for missing_left in (False, True):
        tree = Node(0.0, Split(0, 0.0, missing_left=missing_left), Node(1.0), Node(2.0))
        model = regressor(Ensemble([[tree]], [0.0]))
        rows = [[x, "a", True, 0.5] for x in (None, float("nan"), -0.0, 0.0, 5e-324, 0.1)]
        missing = 1.0 if missing_left else 2.0
        # 5e-324 is nothing in float32
        assert model.predict(rows).tolist() == [missing, missing, 1.0, 1.0, 1.0, 2.0]


def test_all_present_left_and_missing_right() -> None:
    tree = Node(0.0, Split(0, math.inf), Node(1.0), Node(2.0))
    model = regressor(Ensemble([[tree]], [0.0]))
    rows = [[x, "a", True, 0.5] for x in (None, -3e38, 3e38)]
    assert model.predict(rows).tolist() == [2.0, 1.0, 1.0]


def test_one_category_goes_left() -> None:
    for text, expected in ((None, [1.0, 2.0, 2.0, 2.0]), ("a", [2.0, 1.0, 2.0, 2.0]), ("gone", [2.0] * 4)):
        category = MISSING_CATEGORY if text is None else hash_bytes(text.encode())
        model = regressor(Ensemble([[Node(0.0, Split(1, category=category), Node(1.0), Node(2.0))]], [0.0]))
        rows = [[0.0, x, True, 0.5] for x in (None, "a", "b", "never seen")]
        assert model.predict(rows).tolist() == expected


def test_without_trees() -> None:
    """One class: it is certain. A number without trees is F_0."""
    model = GivenClassifier().fit(TRAINED, ["x", "x", "x"])
    model.with_trees(no_trees())
    assert model.predict_proba(TRAINED).tolist() == [[1.0]] * 3
    assert model.predict(TRAINED[:1]).tolist() == ["x"]
    assert model.raw_scores(TRAINED).shape == (3, 0)
    assert regressor(Ensemble([], [4.5])).predict(TRAINED).tolist() == [4.5] * 3


def test_trees_can_be_read_back() -> None:
    """The helpers of these tests: what is written in any numbering is read again."""
    for numbering in range(5):
        ensemble = random_ensemble(numbering, 3, 3)
        found = read(write(ensemble, numbering=numbering))
        assert found.base == ensemble.base
        for one, other in zip(found.trees(), ensemble.trees(), strict=True):
            assert difference(one, other) is None
