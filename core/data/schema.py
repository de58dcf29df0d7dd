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
from enum import StrEnum
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from oubli.core.data.values import RefusedError, require_utf8
from oubli.core.errors import InputError

DTYPES = ("float32", "float64")

_E = TypeVar("_E", bound=StrEnum)


class ColumnType(StrEnum):
    """How the values of a column are understood."""

    NUMERIC = "numeric"
    CATEGORICAL = "categorical"
    BOOLEAN = "boolean"


class LabelType(StrEnum):
    """What labels are; SCALAR keeps any mix of text, integers, floats and booleans as it is."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    SCALAR = "scalar"


class Task(StrEnum):
    """What is predicted: a class or a number."""

    CLASSIFICATION = "classification"
    REGRESSION = "regression"


def read_member(kind: type[_E], value: Any, what: str, field: str | None = None) -> _E:
    """Return the member of an enumeration that a text names, or raise InputError."""
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(str(member)) for member in kind)
        raise InputError(f"{what} must be one of {known}", field=field, value=value) from None


def _check_name(name: Any, what: str) -> None:
    if not isinstance(name, str) or not name:
        raise InputError(f"{what} must be text and not empty", value=name)
    try:
        require_utf8(name)
    except RefusedError as refused:
        raise InputError(f"{what} {refused.rule}", value=name) from None


@dataclass(frozen=True, slots=True)
class Column:
    """Name and type of one feature.

    Attributes
    ----------
    name : str
        Unique in the schema.
    type : ColumnType
        Numeric, categorical or boolean.
    dtype : {"float32", "float64"}
        Precision of a numeric column; float32 for the others.
    """

    name: str
    type: ColumnType
    dtype: str = "float32"

    def __post_init__(self) -> None:
        _check_name(self.name, "the name of a column")
        object.__setattr__(self, "type", read_member(ColumnType, self.type, "the type of a column", self.name))
        if self.dtype not in DTYPES:
            raise InputError("dtype must be 'float32' or 'float64'", field=self.name, value=self.dtype)
        if self.dtype != "float32" and self.type is not ColumnType.NUMERIC:
            raise InputError("only a numeric column can be float64: leave dtype out", field=self.name)


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
        _check_name(self.label_name, "the name of the label")
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
    def categorical_mask(self) -> npt.NDArray[np.bool_]:
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
        categorical_features: Sequence[Any] | npt.NDArray[Any] | None = None,
        label_name: str = "label",
    ) -> "Schema":
        """Infer a schema from data; see `oubli.core.data.inference.infer_schema`."""
        from oubli.core.data.inference import infer_schema  # it builds schemas, so it imports this module

        return infer_schema(X, y, task=task, categorical_features=categorical_features, label_name=label_name)


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
