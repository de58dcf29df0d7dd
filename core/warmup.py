"""Compiling the kernels ahead of the first request.

Numba compiles a kernel when it is first called with new types. `warm_up` calls them all on a tiny
model of the types to come; with a filled kernel cache this takes well under a second.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from core.encoding import convert, is_clean
from core.kinds import KINDS
from core.schema import Column, ColumnType, LabelType, Schema, Task

STEPS = ("encode", "grow", "predict", "add", "delete", "resolve", "check", "load")
_N_SAMPLES = 64  # so many that one more is learned in place and not by planting anew
_PARAMETERS: dict[str, dict[str, Any]] = {
    "forest": {"n_estimators": 2, "random_state": 0},
    "online-boosting": {"n_estimators": 2, "random_state": 0},
    "incremental-boosting": {"n_estimators": 2, "random_state": 0},
}


def warm_up(
    task: Task | str = Task.CLASSIFICATION,
    cell_dtype: Any = np.float32,
    progress: Callable[[int, int], None] | None = None,
    *,
    kind: str = "forest",
) -> None:
    """Compile every kernel that a model of this kind, task and cell type uses.

    Parameters
    ----------
    task : classification or regression.
    cell_dtype : float32 or float64, `Schema.cell_dtype` of the model to come.
    progress : callable(done, total), optional
        Called after each of `len(STEPS)` steps.
    kind : one of those in `core.kinds`.
    """
    task = Task(task)
    label_type = LabelType.INTEGER if task is Task.CLASSIFICATION else LabelType.NUMBER
    columns = (
        Column("x0", ColumnType.NUMERIC, "float64" if np.dtype(cell_dtype) == np.float64 else "float32"),
        Column("x1", ColumnType.CATEGORICAL),
    )
    schema = Schema(columns, task, label_type)
    rows = [[float(i), str(i % 3)] for i in range(_N_SAMPLES)]
    labels = [i % 2 for i in range(_N_SAMPLES)]
    model: Any = KINDS[kind, task](**_PARAMETERS.get(kind, {}))

    def encode() -> None:
        cells = np.zeros((1, 1), cell_dtype)
        is_clean(cells)
        for dtype in (np.float32, np.float64):
            convert(np.zeros((1, 1), dtype), cells, math.inf)

    def delete() -> None:
        model.delete("0")

    steps: dict[str, Callable[[], object]] = {
        "encode": encode,
        "grow": lambda: model.fit(rows, labels, schema=schema),
        "predict": lambda: (model.query(rows[:1]), model.query(rows[:2])),
        "add": lambda: model.add(rows[:1], labels[:1]),
        "delete": delete,
        "resolve": lambda: (model.query(rows[:1], frozen=True), model.query(rows[:1]), model.resolve()),
        "check": lambda: (model.digest(), model.feature_importances_, model.verify()),
        "load": lambda: type(model).from_parts(*model.to_parts()),
    }
    for done, step in enumerate(STEPS):
        steps[step]()
        if progress is not None:
            progress(done + 1, len(STEPS))
