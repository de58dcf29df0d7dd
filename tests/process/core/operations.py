"""Everything that can be done with a model of some kind, as steps with names: what a server does, and more."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oubli.app.service.model.questions import summarise
from oubli.core import load
from oubli.core.boosting.quantised.engine import QuantisedTrees
from oubli.core.concurrency.threads import sharing_all
from oubli.core.data.schema import Schema, Task
from oubli.core.data.values import Column, ColumnType, LabelType
from oubli.core.drawing import look_at_tree
from oubli.core.estimators import KINDS
from oubli.core.model import grow_some, separate_trees_of
from oubli.core.planning import Turn
from oubli.core.unseen.scoring import out_of_bag

N_SAMPLES = 32


class Case(NamedTuple):
    """A kind with parameters, a task, a type of cells, and what the labels are."""

    kind: str
    task: str
    dtype: str
    label: str
    parameters: dict[str, Any]


SMALL: dict[str, dict[str, Any]] = {
    "forest": {"n_estimators": 2, "max_depth": 6, "random_state": 0},
    "tree": {"max_depth": 5},
    "online-boosting": {"n_estimators": 3, "max_leaf_nodes": 4, "random_state": 0},
    "incremental-boosting": {"n_estimators": 3, "max_depth": 3, "random_state": 0},
}
FEW_BINS = {"quantization": (0.25, 0.25), "split_sampling": 0.5}
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "forest": [{}, {"lazy": False}, {"criterion": "entropy"}, {"max_features": 1.0, "occurrence": 1.0}],
    "tree": [{}, {"lazy": True}, {"window": 60}, {"epsilon": None, "alpha": 0.1, "beta": 0.1}],
    "online-boosting": [{}, {"split_sampling": 1.0, "robustness": 0.0}],
    "incremental-boosting": [{}, {"quantization": None}, {"early_stopping": 2}, FEW_BINS],
}
LABELS = {Task.CLASSIFICATION: ("integer", "string", "boolean", "number"), Task.REGRESSION: ("number",)}


def cases() -> list[Case]:
    """All kinds with all their variants, types of cells and types of labels."""
    return [
        Case(kind, task.value, dtype, label, variant)
        for kind, task in KINDS
        for variant in VARIANTS[kind]
        if not ("criterion" in variant and task is Task.REGRESSION)
        for dtype in ("float32", "float64")
        for label in LABELS[task][: None if not variant and dtype == "float32" else 1]
    ]


def schema_of(case: Case, columns: str) -> Schema:
    """A schema with numeric columns, categorical ones, or both."""
    types = {"numeric": "nnn", "categorical": "ccc", "mixed": "ncn"}[columns]
    kinds = {"c": (ColumnType.CATEGORICAL,), "n": (ColumnType.NUMERIC, case.dtype)}
    made = tuple(Column(f"x{i}", *kinds[one]) for i, one in enumerate(types))
    return Schema(made, Task(case.task), LabelType(case.label))


def labels_of(case: Case, numbers: Any, n_classes: int) -> list[Any]:
    if case.task == "regression":
        return [float(number) for number in numbers]
    values: list[Any] = {"boolean": [False, True], "string": [f"class {i}" for i in range(9)]}.get(case.label, [])
    values = values or [i / 2 if case.label == "number" else i for i in range(9)]
    n = min(n_classes, len(values))
    return [values[i % n] for i in range(len(numbers))]


def operations(case: Case, only: str = "", n_classes_given: int = 0) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield steps with their names, each to be made before the next one is asked for."""
    # Categories alone are held as float32, whatever numbers would be.
    kinds_of_columns = ("mixed", "numeric", "categorical")[: 3 if case.dtype == "float32" else 2]
    for columns in (only,) if only else kinds_of_columns:
        for n_classes in (n_classes_given,) if n_classes_given else (2, 3):
            if not n_classes_given and n_classes == 3 and (case.task == "regression" or case.label == "boolean"):
                continue
            for name, step in _of(case, columns, n_classes):
                yield f"{name} ({columns}, {n_classes} classes)", step


def _of(case: Case, columns: str, n_classes: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    rng = np.random.default_rng(0)
    schema = schema_of(case, columns)
    numbers = rng.normal(size=(N_SAMPLES, 3)) * (1e200 if case.dtype == "float64" else 1.0)
    rows: list[Any] = [
        [
            None if (i + j) % 11 == 0
            else f"value {int(abs(number) * 3) % 5 if case.dtype == 'float32' else i % 5}"
            if column.type is ColumnType.CATEGORICAL
            else float(number)
            for j, (column, number) in enumerate(zip(schema.columns, row, strict=True))
        ]
        for i, row in enumerate(numbers)
    ]  # fmt: skip
    y = labels_of(case, rng.normal(size=N_SAMPLES), n_classes)
    more = labels_of(case, rng.normal(size=N_SAMPLES) * 1000, 9)
    model: Any = KINDS[case.kind, Task(case.task)](**{**SMALL[case.kind], **case.parameters})

    def held(start: int, end: int | None = -1) -> list[str]:
        ids: list[str] = model.samples_.ids()
        return ids[start : start + 1] if end == -1 else ids[start:end]

    def in_threads() -> None:
        with sharing_all():
            model.engine_.n_threads = 2
            model.delete(held(1, 3))
            model.query(rows[:9])
            model.verify()
            model.scrub()
            model.take_threads()

    yield "start", lambda: model.start(schema)
    yield "add the first", lambda: model.add(rows[:1], y[:1])
    yield "fit", lambda: model.fit(rows, y, schema=schema)
    yield "predict", lambda: (model.query(rows[:1]), model.query(rows[:3], frozen=True), model.query(rows))
    yield "predict what is unknown", lambda: model.query([[None] * 3, ["new" if c == "c" else 0 for c in "ccc"]][:1])
    if columns == "numeric":
        small = np.clip(numbers, -9, 9).astype(np.float32)[:1]
        yield "predict arrays", lambda: (model.query(numbers), model.query(small))
    yield "change in slices", lambda: _change_in_slices(model, held(1, 3))
    yield "add one", lambda: model.add(rows[:1], y[:1])
    yield "delete one", lambda: model.delete(held(3))
    yield "predict through tags", lambda: (model.query(rows[:3], frozen=True), model.query(rows[:9]))
    yield "add and delete many", lambda: (model.add(rows, y), model.delete(held(2, 20)))
    yield "delete two", lambda: model.delete(held(1, 3))
    yield "replace", lambda: model.replace(held(5)[0], rows[7], y[7])
    yield "widen", lambda: (model.add(rows, more), model.add(rows[:1], more[:1]), model.query(rows[:2]))
    yield "shrink", lambda: model.delete(held(20, None))
    yield "resolve", lambda: (model.resolve(2), model.resolve())
    yield "check", lambda: (model.digest(), model.verify(), model.feature_importances_, model.nbytes_)
    yield "look", lambda: [look_at_tree(model, tree, "", 3) for tree in range(3)]
    yield "score", lambda: (_score(model), summarise(model.samples_))
    yield "wipe", lambda: (model.wipe(), model.query(rows[:1], frozen=True))
    yield "scrub", lambda: (model.scrub(), model.query(rows[:1]))
    yield "takes long", lambda: model.plan_delete(held(2), turn=Turn(n_items=3, longest_pause=0.05))
    yield "threads", in_threads
    yield "copy", lambda: model.copy().delete(held(0))
    yield "fit held", lambda: model.copy().fit_held(model.samples_.copy())
    yield "grow some trees", lambda: _grow_some(type(model)(**model.get_params()).start(schema), rows, y)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "model"
        yield "save and load", lambda: (model.save(path), _use(load(path), rows, y))
    yield "delete all", lambda: (model.delete(held(0, None)), model.digest(), model.verify())
    yield "add again", lambda: (model.add(rows[:1], y[:1]), model.add(rows[:9], y[:9]), model.query(rows[:2]))


def _change_in_slices(model: Any, ids: list[str]) -> None:
    model.resolve()
    plan = model.plan_delete(ids)
    is_quantised = isinstance(model.engine_, QuantisedTrees) and model.engine_.n_trees > 0
    assert model.can_be_sliced(plan) == ((model.kind == "forest" and model.lazy) or is_quantised)
    if model.can_be_sliced(plan):
        assert list(model.change_in_slices(plan))


def _score(model: Any) -> None:
    if model.kind == "forest":  # in which no sample is in all trees
        parameters = {**model.get_params(), "n_estimators": 4, "occurrence": 0.5}
        model = type(model)(**parameters).fit_held(model.samples_.copy())
    assert (out_of_bag(model, 50) is not None) == (model.kind == "forest")
    if model.kind == "forest":
        model.data_values()
        ask = model.predict_interval if model.task == "regression" else model.predict_set
        ask([model.samples_.get(model.samples_.ids()[0]).features])


def _grow_some(model: Any, rows: list[Any], y: list[Any]) -> None:
    if separate_trees_of(model):
        grow_some(model, [1, 0], rows, y, ids=[*range(len(rows))])


def _use(model: Any, rows: list[Any], y: list[Any]) -> None:
    model.delete(model.samples_.ids()[0])
    model.add(rows[:2], y[:2])
    model.query(rows[:2])
    model.verify()
