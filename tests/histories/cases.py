"""A kind of model with parameters, and samples for it: columns of every type, with missing values."""

import random
from dataclasses import dataclass, field
from typing import Any

from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.estimators import KINDS

# Small models of each kind.
PARAMETERS: dict[str, dict[str, Any]] = {
    "forest": {"n_estimators": 6, "random_state": 0},
    "tree": {"max_depth": 6, "random_state": 0},
    "online-boosting": {"n_estimators": 8, "max_leaf_nodes": 6, "min_child_weight": 0.25, "random_state": 0},
    "incremental-boosting": {"n_estimators": 8, "max_depth": 3, "min_child_weight": 0.25, "random_state": 0},
}


@dataclass(frozen=True)
class Case:
    """A kind with parameters."""

    kind: str
    task: Task
    parameters: dict[str, Any]
    # Whether cells are float64; by default where labels are classes.
    is_wide: bool | None = field(default=None, kw_only=True)
    n_classes: int = field(default=3, kw_only=True)

    def __str__(self) -> str:
        """Name of a test."""
        special = {name: value for name, value in self.parameters.items() if name not in PARAMETERS[self.kind]}
        told = [f"{name}={value}" for name, value in special.items()]
        told += [f"{self.n_classes} classes"] if self.n_classes != 3 else []
        return "-".join([self.kind, self.task.value, *told, *(["wide"] if self.is_wide else [])])

    def make(self) -> Any:
        return KINDS[self.kind, self.task](**self.parameters)

    def schema(self) -> Schema:
        is_wide = self.task is Task.CLASSIFICATION if self.is_wide is None else self.is_wide
        columns = (
            Column("a", ColumnType.NUMERIC), Column("b", ColumnType.CATEGORICAL),
            Column("c", ColumnType.NUMERIC, "float64" if is_wide else "float32"), Column("d", ColumnType.BOOLEAN),
        )  # fmt: skip
        return Schema(columns, self.task, LabelType.STRING if self.task is Task.CLASSIFICATION else LabelType.NUMBER)

    def row(self, rng: random.Random) -> list[Any]:
        return [
            rng.choice([None, rng.gauss(0, 1), float(rng.randrange(4))]), rng.choice(["red", "green", "blue", None]),
            rng.random() * 1e6, rng.choice([True, False, None]),
        ]  # fmt: skip

    def samples(self, n: int = 70, seed: int = 0) -> tuple[list[list[Any]], list[Any]]:
        rng = random.Random(seed)
        rows = [self.row(rng) for _ in range(n)]
        if self.task is Task.REGRESSION:
            return rows, [rng.gauss(0, 10) for _ in rows]
        labels = "abcdefgh"[: self.n_classes]
        return rows, [rng.choice(labels[:2]) if row[1] == "red" else rng.choice(labels[1:]) for row in rows]

    def fitted(self, n: int = 70) -> Any:
        X, y = self.samples(n)
        return self.make().fit(X, y, ids=[f"id {i}" for i in range(n)], schema=self.schema())


def small(kind: str, task: Task = Task.CLASSIFICATION, **changed: Any) -> Case:
    """A small model of a kind, some parameters changed."""
    return Case(kind, task, {**PARAMETERS[kind], **changed})
