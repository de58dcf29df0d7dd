"""What a model knows about its columns and its label: types, never values.

A schema is a parameter of the model: inferred once from the first data or declared, then fixed for
the model's life and handed to every fresh fit that is compared with it. As JSON (also the format
of schema files; `dtype` and the label's name may be left out):

    {"task": "classification",
     "label": {"name": "income", "type": "string"},
     "columns": [{"name": "age", "type": "numeric", "dtype": "float32"},
                 {"name": "job", "type": "categorical"},
                 {"name": "member", "type": "boolean"}]}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from oubli.core.array_types import Array, Bools
from oubli.core.data.inference import infer_columns, infer_label_type
from oubli.core.data.values import Column, ColumnType, LabelType, Task, check_name, read_member
from oubli.core.errors import InputError

__all__ = ["Column", "ColumnType", "LabelType", "Schema", "Task"]


@dataclass(frozen=True)
class Schema:
    """Types of the columns and of the label.

    Attributes
    ----------
    columns : tuple of Column
        The features, in order.
    task : Task
        Classification or regression.
    label_type : LabelType
        NUMBER for regression.
    label_name : str
        Name of the label.
    named : bool
        Whether the user gave the names; they are "x0", "x1", ... otherwise, and a DataFrame is then
        matched by position.
    """

    columns: tuple[Column, ...]
    task: Task
    label_type: LabelType
    label_name: str = "label"
    named: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "task", read_member(Task, self.task, "the task"))
        object.__setattr__(self, "label_type", read_member(LabelType, self.label_type, "the type of the label"))
        check_name(self.label_name, "the name of the label")
        if not self.columns:
            raise InputError("a schema needs at least one column")
        seen: set[str] = set()
        for column in self.columns:
            if column.name in seen:
                raise InputError("column names must be unique: rename or drop the duplicate", field=column.name)
            seen.add(column.name)
        if self.task is Task.REGRESSION and self.label_type is not LabelType.NUMBER:
            raise InputError(
                "the label of a regression must be of type 'number'", field=self.label_name, value=str(self.label_type)
            )

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return len(self.columns)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def cell_dtype(self) -> np.dtype[Any]:
        """Type of the matrix that holds the cells: float64 as soon as one column needs it."""
        return np.dtype(np.float64 if any(c.dtype == "float64" for c in self.columns) else np.float32)

    @cached_property
    def categorical_mask(self) -> Bools:
        """Which columns are categorical; bool[n_features]."""
        return np.array([c.type is ColumnType.CATEGORICAL for c in self.columns], dtype=np.bool_)

    def index(self, name: str) -> int:
        """Return the position of a column.

        Raises
        ------
        InputError
            When there is no column of this name.
        """
        try:
            return self.names.index(name)
        except ValueError:
            raise InputError("there is no column of this name in the schema", value=name) from None

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain JSON values."""
        columns = []
        for column in self.columns:
            entry = {"name": column.name, "type": str(column.type)}
            if column.type is ColumnType.NUMERIC:
                entry["dtype"] = column.dtype
            columns.append(entry)
        return {
            "task": str(self.task),
            "label": {"name": self.label_name, "type": str(self.label_type)},
            "columns": columns,
            "named": self.named,
        }

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """Make a schema from what `to_dict` returns, or from a schema file.

        Parameters
        ----------
        document : dict
            See the module's example. `named` is true when left out.

        Raises
        ------
        InputError
            When something is missing, unknown or of a wrong type.
        """
        body = _object(document, "a schema", required={"task", "columns"}, optional={"label", "named"})
        task = read_member(Task, body["task"], "the task")
        required = {"type"} if task is Task.CLASSIFICATION else set()
        label = _object(body.get("label", {}), "the label", required=required, optional={"name", "type"})
        named = body.get("named", True)
        if not isinstance(named, bool):
            raise InputError("'named' must be true or false", value=named)
        if not isinstance(body["columns"], (list, tuple)):
            raise InputError("'columns' must be a list of columns", value=body["columns"])
        columns = []
        for entry in body["columns"]:
            parts = _object(entry, "a column", required={"name", "type"}, optional={"dtype"})
            columns.append(Column(**parts))
        return cls(
            columns=tuple(columns),
            task=task,
            label_type=label.get("type", LabelType.NUMBER),
            label_name=label.get("name", "label"),
            named=named,
        )

    @classmethod
    def infer(
        cls,
        X: Any,
        y: Any,
        *,
        task: Task | str,
        categorical_features: Sequence[Any] | Array | None = None,
        label_name: str = "label",
    ) -> Self:
        """Infer the types of columns and label.

        Parameters
        ----------
        X, y
            As for `fit`.
        task : Task
            Classification or regression.
        categorical_features : sequence of int or str, or bool mask, optional
            Columns that are categorical whatever they hold.
        label_name : str
            Name of the label.

        Raises
        ------
        InputError
            When X or y cannot be used at all, or a name or position in `categorical_features` is wrong.
        """
        task = read_member(Task, task, "the task")
        columns, named = infer_columns(X, categorical_features)
        return cls(columns, task, infer_label_type(y, task, label_name), label_name, named)


def _object(value: Any, what: str, *, required: set[str], optional: set[str]) -> dict[str, Any]:
    """Check the keys of a JSON object."""
    if not isinstance(value, Mapping):
        raise InputError(f"{what} must be an object with the keys {_listed(required | optional)}", value=value)
    keys = set(value)
    if required - keys:
        raise InputError(f"{what} needs the key {_listed(required - keys)}")
    if keys - required - optional:
        unknown = _listed({str(key) for key in keys - required - optional})
        raise InputError(
            f"{what} has a key that is not known: use only {_listed(required | optional)}",
            message=f"{what} has a key that is not known, {unknown}: use only {_listed(required | optional)}",
        )
    return dict(value)


def _listed(names: set[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
