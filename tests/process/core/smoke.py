"""A small history that must end the same however the kernels are run.

`python -m tests.process.core.smoke` prints what came of it.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from oubli.core import DynamicForestClassifier, DynamicForestRegressor, DynamicTreeClassifier, load
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.forest import engine as dynamic_forest
from oubli.core.forest.engine import ForestEngine


def rows(n: int, dtype: str, seed: int) -> list[list[Any]]:
    rng = np.random.default_rng(seed)
    scale = 1.0 if dtype == "float32" else 1e200
    numbers = rng.normal(size=n) * scale
    return [
        [None if i % 7 == 3 else float(numbers[i]), ("a", "b", "c", None)[rng.integers(4)], float(rng.integers(3))]
        for i in range(n)
    ]


def forest(task: Task) -> Any:
    estimator = DynamicForestClassifier if task is Task.CLASSIFICATION else DynamicForestRegressor
    return estimator(n_estimators=3, occurrence=0.6, n_thresholds=3, max_features=2, random_state=9)


def history(model: Any, dtype: str) -> list[str]:
    """Everything that a model can do, on some 40 samples; what it answers, to the bit."""
    task = model.task
    columns = (
        Column("number", ColumnType.NUMERIC, "float64" if dtype == "float64" else "float32"),
        Column("category", ColumnType.CATEGORICAL),
        Column("few values", ColumnType.NUMERIC),
    )
    classes = task is Task.CLASSIFICATION
    schema = Schema(columns, task, LabelType.STRING if classes else LabelType.NUMBER)
    X = rows(48, dtype, seed=1)
    y: list[Any] = [("p", "q", "r")[i * i % 3] if classes else float(i * 7 % 11) / 4 for i in range(48)]
    model.fit(X[:32], y[:32], schema=schema)
    told = [model.digest()]
    for i in range(32, 40):
        model.add(X[i : i + 1], y[i : i + 1])
        model.delete(str(i - 20))
    told += answers(model.query(X[:4], frozen=True))
    told += answers(model.query(X[:4]))
    model.add(X[40:], ["new" if classes else 1000.0] * 8)
    model.resolve(3)
    model.replace("40", X[0], y[0])
    model.delete([str(i) for i in range(12)])
    with tempfile.TemporaryDirectory() as directory:
        model.save(Path(directory) / "model")
        model = load(Path(directory) / "model")
    model.delete("41")
    told += answers(model.query(X))
    told += [value.hex() for value in model.feature_importances_.tolist()]
    verification = model.verify()
    assert verification.ok, verification
    model.check_invariants()
    return [*told, verification.live_digest]


def answers(result: Any) -> list[str]:
    probabilities = result.probabilities
    if probabilities is None:
        return [value.hex() for value in result.labels.tolist()]
    return [*result.labels.tolist(), *(p.hex() for p in probabilities.ravel().tolist())]


def run() -> list[str]:
    """Forests of both tasks, with counters at every node and at none, and planting anew; trees; both types of cells."""
    told = []
    with np.errstate(all="ignore"):  # interpreted, the hashes' overflow would warn
        for task, dtype in ((Task.CLASSIFICATION, "float32"), (Task.REGRESSION, "float64")):
            ways = set()
            for smallest, replant_share in ((2, math.inf), (10**9, math.inf), (2, 0.0)):
                with (
                    patch.object(ForestEngine, "_block_minimum", lambda self, minimum=smallest: minimum),
                    patch.object(dynamic_forest, "_REPLANT_SHARE", replant_share),
                ):
                    ways.add("\n".join(history(forest(task), dtype)))
            assert len(ways) == 1
            told += ways
        for dtype in ("float32", "float64"):
            for lazy in (False, True):
                told.append("\n".join(history(DynamicTreeClassifier(lazy=lazy, epsilon=0.3), dtype)))
    return told


if __name__ == "__main__":
    sys.stdout.write("\n\n".join(run()))
