"""Writes the golden files: `python -m tests.golden.make` in the root of the repository.

For a new format version only, under new names; see README.md beside this file.
"""

from pathlib import Path
from typing import Any

from oubli.core import DynamicForestClassifier, DynamicForestRegressor
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.samples.owners import Mark

HERE = Path(__file__).resolve().parent
N_SAMPLES = 96

# Every parameter, so that another default does not show.
COMMON: dict[str, Any] = {
    "n_estimators": 3, "occurrence": 0.6, "max_depth": 6, "min_samples_split": 3, "n_thresholds": 2, "lazy": True,
    "random_state": 20,
}  # fmt: skip


def rows() -> list[list[Any]]:
    """A number, a wide number, a category and a truth value; some are missing. From integers only."""
    result: list[list[Any]] = []
    for i in range(N_SAMPLES):
        number = (i * 37 % 101) / 8 - 5.0
        wide = float(2**40 + i * 11 % 13)
        category = ("red", "green", "blue", None)[i * 7 // 3 % 4]
        result.append([None if i % 17 == 3 else number, wide, category, None if i % 23 == 5 else i % 3 == 0])
    return result


def schema(task: Task) -> Schema:
    columns = (
        Column("number", ColumnType.NUMERIC), Column("wide", ColumnType.NUMERIC, "float64"),
        Column("colour", ColumnType.CATEGORICAL), Column("truth", ColumnType.BOOLEAN),
    )  # fmt: skip
    label_type = LabelType.STRING if task is Task.CLASSIFICATION else LabelType.NUMBER
    return Schema(columns, task, label_type, named=True)


def changed(model: Any, labels: list[Any]) -> Any:
    """Give a model a history: freed slots, nodes and counters, a generated id, a subject, a rectified sample."""
    X = rows()
    ids = [f"sample {i}" for i in range(N_SAMPLES)]
    model.fit(X, labels, ids=ids, schema=schema(model.task))
    model.samples_.set_subject("sample 7", "person ä")
    for i in (3, 20, 40, 41, 60, 77, 95):
        model.delete(ids[i])
        model.resolve()
    model.add(X[20:22], labels[3:5])
    model.replace("sample 8", X[9], labels[10])
    return model


def classifier() -> DynamicForestClassifier:
    labels = [("yes", "no", "ünsure")[(i * 7 + i // 5) % 3] for i in range(N_SAMPLES)]
    labels[20] = "vanished"
    return changed(DynamicForestClassifier(**COMMON, max_features=2, criterion="gini"), labels)


def regressor() -> DynamicForestRegressor:
    labels = [(i * 53 % 89) / 16 - 2.0 for i in range(N_SAMPLES)]
    return changed(DynamicForestRegressor(**COMMON, max_features=1.0, criterion="squared_error"), labels)


def restricted() -> DynamicForestClassifier:
    """The classifier, of which one person has restricted her samples: what format 5 is for."""
    model = classifier()
    model.samples_.set_subject("sample 9", "person ä")
    model.samples_.note_additions(["sample 7", "sample 10"], 1_600_000_000_000, "request-1")
    model.restrict(["sample 7", "sample 9"], {"person ä": Mark(1_700_000_000_000, True)})
    return model


def main() -> None:
    models = {"classifier-v4": classifier(), "regressor-v4": regressor(), "classifier-v5": restricted()}
    for name, model in models.items():
        model.save(HERE / f"forest-{name}.safetensors", {"written by": "tests/golden/make.py"})


if __name__ == "__main__":
    main()
