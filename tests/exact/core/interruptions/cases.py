"""Models, and everything that can be done to them, for `test_all_or_nothing.py`."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.registry import KINDS

N = 90
_BOOSTED: dict[str, Any] = {"n_estimators": 5, "min_child_weight": 0.25, "random_state": 0}
_FOREST: dict[str, Any] = {"n_estimators": 5, "random_state": 0}


@dataclass(frozen=True)
class Case:
    """A kind with parameters."""

    name: str
    kind: str
    task: Task
    parameters: dict[str, Any]

    def make(self) -> Any:
        return KINDS[self.kind, self.task](**self.parameters)

    def schema(self) -> Schema:
        columns = (
            Column("a", ColumnType.NUMERIC),
            Column("b", ColumnType.CATEGORICAL),
            Column("c", ColumnType.NUMERIC, "float64"),
        )
        return Schema(columns, self.task, LabelType.STRING if self.task is Task.CLASSIFICATION else LabelType.NUMBER)

    def samples(self, n: int, seed: int = 0) -> tuple[list[list[Any]], list[Any]]:
        rng = random.Random(seed)
        rows = [
            [rng.choice([None, rng.gauss(0, 1)]), rng.choice(["red", "green", None]), rng.random()] for _ in range(n)
        ]
        if self.task is Task.REGRESSION:
            return rows, [rng.gauss(0, 10) + (5 if row[1] == "red" else 0) for row in rows]
        return rows, [rng.choice("ab") if row[1] == "red" else rng.choice("bc") for row in rows]

    def label(self, kind: str) -> Any:
        """A label that is held often, held once, or new."""
        if self.task is Task.REGRESSION:
            return {"often": 1.0, "once": 1e4, "new": 1e9}[kind]
        return {"often": "b", "once": "rare", "new": "fresh"}[kind]

    def fitted(self) -> Any:
        """A model with a history: with tags, free slots, a category and a class of one sample, a subject, an expiry."""
        rows, labels = self.samples(N)
        rows[7], labels[7] = [0.5, "odd", 0.5], self.label("once")
        model = self.make().fit(rows, labels, ids=[f"id {i}" for i in range(N)], schema=self.schema())
        model.samples_.set_subject("id 3", "somebody")
        model.samples_.set_expiry("id 3", 10**12)
        model.samples_.set_origins(["id 4"], 5)
        more = self.samples(3, seed=1)
        model.add(*more, ids=["x", "y", "z"])
        model.delete(["id 80", "id 11", "y"])
        return model


CASES = [
    Case("forest", "forest", Task.CLASSIFICATION, {**_FOREST}),
    Case("forest eager", "forest", Task.CLASSIFICATION, {**_FOREST, "lazy": False}),
    Case("forest numbers", "forest", Task.REGRESSION, {**_FOREST}),
    Case("tree", "tree", Task.CLASSIFICATION, {"max_depth": 6, "epsilon": 0.2}),
    Case("tree lazy", "tree", Task.CLASSIFICATION, {"max_depth": 6, "epsilon": 0.2, "lazy": True}),
    Case("tree window", "tree", Task.CLASSIFICATION, {"max_depth": 6, "epsilon": 0.2, "window": N}),
    Case("tree anew", "tree", Task.CLASSIFICATION, {"max_depth": 6, "epsilon": 0.0}),
    Case("online", "online-boosting", Task.CLASSIFICATION, {**_BOOSTED, "max_leaf_nodes": 6}),
    Case("online numbers", "online-boosting", Task.REGRESSION, {**_BOOSTED, "max_leaf_nodes": 6}),
    Case("quantised", "incremental-boosting", Task.CLASSIFICATION, {**_BOOSTED, "max_depth": 3}),
    Case("quantised numbers", "incremental-boosting", Task.REGRESSION, {**_BOOSTED, "max_depth": 3}),
    Case("stopping", "incremental-boosting", Task.REGRESSION, {**_BOOSTED, "max_depth": 3, "early_stopping": 2}),
    Case("presorted", "incremental-boosting", Task.CLASSIFICATION, {**_BOOSTED, "max_depth": 3, "quantization": None}),
    Case(
        "presorted numbers",
        "incremental-boosting",
        Task.REGRESSION,
        {**_BOOSTED, "max_depth": 3, "quantization": None},
    ),
]
BY_NAME = {case.name: case for case in CASES}

_HELD = [f"id {i}" for i in range(60) if i not in (3, 7, 11)]


def _save(model: Any, case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")


def _add(n: int, *, label: str | None = None, category: str | None = None) -> Callable[[Any, Case], None]:
    def add(model: Any, case: Case) -> None:
        rows, labels = case.samples(n, seed=2)
        if label is not None:
            labels[-1] = case.label(label)
        if category is not None:
            rows[-1][1] = category
        model.add(rows, labels, ids=[f"new {i}" for i in range(n)])

    return add


def _delete(*ids: str) -> Callable[[Any, Case], None]:
    def delete(model: Any, case: Case) -> None:
        # A sliding window has let go of some.
        model.delete([name for name in ids if model.samples_.contains(name)])

    return delete


def _fit(model: Any, case: Case) -> None:
    rows, labels = case.samples(40, seed=3)
    model.fit(rows, labels, ids=[f"other {i}" for i in range(40)], schema=case.schema())


OPERATIONS: dict[str, Callable[[Any, Case], Any]] = {
    "add one": lambda model, case: model.add([[0.1, "red", 0.2]], [case.label("often")]),
    "add a few": _add(4),
    "add one of a new class": _add(1, label="new", category="strange"),
    "add some of a new class": _add(5, label="new", category="strange"),
    "add many": _add(70, category="strange"),
    "delete one": _delete("id 20"),
    "delete the rare one": _delete("id 7"),
    "delete a few": _delete("id 20", "id 3", "id 7", "x"),
    "delete many": _delete(*_HELD),
    "replace": lambda model, case: model.replace("id 3", [0.3, "strange", 0.1], case.label("often")),
    "replace the rare one": lambda model, case: model.replace("id 7", [0.3, "red", 0.1], case.label("often")),
    "partial_fit": lambda model, case: model.partial_fit(
        [[0.1, "red", 0.2], [0.2, "odd", 0.3]], [case.label("often")] * 2
    ),
    "fit": _fit,
    "start": lambda model, case: model.start(case.schema()),
    "fit_held": lambda model, case: model.fit_held(model.samples_.copy()),
    "resolve": lambda model, case: model.resolve(),
    "resolve some": lambda model, case: model.resolve(max_tags=2),
    "predict one": lambda model, case: model.predict(case.samples(1, seed=4)[0]),
    "predict some": lambda model, case: model.query(case.samples(20, seed=4)[0]),
    "query frozen": lambda model, case: model.query(case.samples(3, seed=4)[0], frozen=True),
    "digest": lambda model, case: model.digest(),
    "verify": lambda model, case: model.verify(),
    "copy": lambda model, case: model.copy(),
    "save": _save,
    "to_parts": lambda model, case: model.to_parts(),
    "scrub": lambda model, case: model.scrub(),
    "wipe": lambda model, case: model.wipe(),
    "subject": lambda model, case: model.samples_.set_subject("id 3", "another"),
    "no subject": lambda model, case: model.samples_.set_subject("id 3", None),
    "expiry": lambda model, case: model.samples_.set_expiry("id 5", 5),
    "no expiry": lambda model, case: model.samples_.set_expiry("id 3", None),
    "origins": lambda model, case: model.samples_.set_origins(["id 5", "id 6"], 1),
}
