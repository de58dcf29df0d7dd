"""Compiling the kernels ahead of the first request.

Numba compiles a kernel when it is first called with new types. `warm_up` calls them all on a tiny
model of the types to come; with a filled kernel cache this takes well under a second.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from core.forest.estimator import DynamicForestClassifier, DynamicForestRegressor
from core.schema import Column, ColumnType, LabelType, Schema, Task

STEPS = ("grow", "predict", "add", "delete", "resolve", "check")


def warm_up(
    task: Task | str = Task.CLASSIFICATION,
    cell_dtype: Any = np.float32,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Compile every kernel that a model of this task and cell type uses.

    Parameters
    ----------
    task : classification or regression.
    cell_dtype : float32 or float64, `Schema.cell_dtype` of the model to come.
    progress : callable(done, total), optional
        Called after each of `len(STEPS)` steps.
    """
    task = Task(task)
    estimator = DynamicForestClassifier if task is Task.CLASSIFICATION else DynamicForestRegressor
    label_type = LabelType.INTEGER if task is Task.CLASSIFICATION else LabelType.NUMBER
    columns = (
        Column("x0", ColumnType.NUMERIC, "float64" if np.dtype(cell_dtype) == np.float64 else "float32"),
        Column("x1", ColumnType.CATEGORICAL),
    )
    schema = Schema(columns, task, label_type)
    rows = [[float(i), str(i % 3)] for i in range(8)]
    labels = [i % 2 for i in range(8)]
    model = estimator(n_estimators=2, random_state=0)

    def delete() -> None:
        model.delete("0")

    steps: dict[str, Callable[[], object]] = {
        "grow": lambda: model.fit(rows, labels, schema=schema),
        "predict": lambda: model.query(rows[:1]),
        "add": lambda: model.add(rows[:1], labels[:1]),
        "delete": delete,
        "resolve": lambda: (model.query(rows[:1], frozen=True), model.query(rows[:1]), model.resolve()),
        "check": model.digest,
    }
    for done, step in enumerate(STEPS):
        steps[step]()
        if progress is not None:
            progress(done + 1, len(STEPS))
