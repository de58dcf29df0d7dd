"""Inferring a schema from the first data.

| what is found in a column             | type                                                    |
|---------------------------------------|---------------------------------------------------------|
| an integer or float array             | numeric                                                 |
| a boolean array                       | boolean                                                 |
| a text or category dtype of a DataFrame | categorical                                           |
| objects, only numbers (or nothing)    | numeric                                                 |
| objects, only booleans                | boolean                                                 |
| other objects                         | categorical                                             |

A numeric column is float32, and float64 when it holds an integer that float32 cannot hold exactly
(in a column of floats: when all of them are integers), or a finite value beyond float32's range.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from oubli.core.array_types import Array
from oubli.core.data.columns import inexact_integers
from oubli.core.data.tables import Frame, RawColumn, Rows, read_table
from oubli.core.data.targets import read_label_column
from oubli.core.data.values import (
    FLOAT32_LIMIT,
    Column,
    ColumnType,
    LabelType,
    RefusedError,
    Task,
    category_text,
    is_boolean,
    is_integer,
    is_missing,
    number,
)
from oubli.core.errors import FeatureCountError, InputError


def infer_columns(X: Any, categorical_features: Any = None) -> tuple[tuple[Column, ...], bool]:
    """Infer the types of the columns of X; also whether X says their names.

    categorical_features : names, positions or a mask of columns that are categorical whatever they hold.

    Raises
    ------
    InputError
        When X cannot be used at all, or a name or position in `categorical_features` is wrong.
    """
    table = read_table(X)
    if table.n_columns == 0:
        raise InputError(
            "X has no features: pass at least one column",
            message=f"Found array with 0 feature(s) (shape=({table.n_rows}, 0)) while a minimum of 1 is required.",
        )
    columns: Iterable[RawColumn]
    if isinstance(table, Rows):
        odd = table.odd_row(table.n_columns)
        if odd is not None:
            raise FeatureCountError(len(table.values[odd]), table.n_columns, owner="the first row", row=odd)
        columns = (RawColumn(list(column)) for column in zip(*table.values, strict=True))
    else:
        columns = map(table.column, range(table.n_columns))
    given_names = table.names if isinstance(table, Frame) else None
    names = given_names or [f"x{j}" for j in range(table.n_columns)]
    forced = _categorical_positions(categorical_features, names)
    inferred = tuple(
        Column(name, ColumnType.CATEGORICAL) if j in forced else _infer_column(raw, name)
        for j, (raw, name) in enumerate(zip(columns, names, strict=True))
    )
    return inferred, given_names is not None


def _categorical_positions(spec: Any, names: list[str]) -> set[int]:
    if spec is None:
        return set()
    if isinstance(spec, (str, bytes)):
        raise InputError("categorical_features must be a list of names or positions, or a bool mask", value=spec)
    entries = list(spec)
    if entries and all(map(is_boolean, entries)):
        if len(entries) != len(names):
            raise InputError(
                f"categorical_features as a mask must have {len(names)} entries, one for each feature, "
                f"not {len(entries)}"
            )
        return {j for j, entry in enumerate(entries) if entry}
    positions = set()
    for entry in entries:
        if isinstance(entry, str):
            if entry not in names:
                raise InputError("categorical_features names a column that X does not have", value=entry)
            positions.add(names.index(entry))
        elif is_integer(entry):
            if not 0 <= entry < len(names):
                raise InputError(
                    f"a position in categorical_features must be from 0 to {len(names) - 1}", value=int(entry)
                )
            positions.add(int(entry))
        else:
            raise InputError("categorical_features must hold names or positions, or be a bool mask", value=entry)
    return positions


def _infer_column(raw: RawColumn, name: str) -> Column:
    values = raw.values
    if isinstance(values, list):
        return _infer_objects(values, name, raw.text)
    if values.dtype.kind == "b":
        return Column(name, ColumnType.BOOLEAN)
    if raw.missing is not None:
        values = values[~raw.missing]
    return Column(name, ColumnType.NUMERIC, _float_width(values))


def _float_width(values: Array) -> str:
    """Return the dtype that a column of numbers needs."""
    if values.dtype.kind != "f":
        return "float64" if inexact_integers(values, "float32").any() else "float32"
    if values.dtype.itemsize <= 4:
        return "float32"
    finite = values[np.isfinite(values)]
    if not len(finite):
        return "float32"
    if np.abs(finite).max() >= FLOAT32_LIMIT:
        return "float64"
    if (finite.astype(np.float32) == finite).all():
        return "float32"
    # Every float beyond 2**53 is an integer, by accident.
    return "float64" if ((finite == np.floor(finite)) & (np.abs(finite) <= 2**53)).all() else "float32"


def _infer_objects(values: list[Any], name: str, text: bool) -> Column:
    present = [value for value in values if not is_missing(value)]
    if not text:
        if present and all(map(is_boolean, present)):
            return Column(name, ColumnType.BOOLEAN)
        if all(map(_is_number, present)):
            return Column(name, ColumnType.NUMERIC, _object_width(present))
    for row, value in enumerate(values):
        try:
            category_text(value)
        except RefusedError as refused:
            raise InputError(refused.rule, row=row, field=name, value=value) from None
    return Column(name, ColumnType.CATEGORICAL)


def _is_number(value: Any) -> bool:
    if is_boolean(value) or isinstance(value, str):
        return False
    try:
        number(value, "float64")
    except RefusedError:
        # Too large an integer or an infinity is a number all the same; encoding refuses it by name.
        return is_integer(value) or isinstance(value, (float, np.floating))
    return True


def _object_width(values: list[Any]) -> str:
    try:
        for value in values:
            if is_integer(value):
                number(value, "float32")
    except RefusedError:
        return "float64"
    try:
        floats = np.array([number(value, "float64") for value in values], dtype=np.float64)
    except RefusedError:
        return "float32"  # an infinity: refused when it is encoded
    return _float_width(floats)


def infer_label_type(y: Any, task: Task, name: str = "label") -> LabelType:
    """Infer the type of the label from y.

    Raises
    ------
    InputError
        When y holds no labels of the task: fractions for a classification, for instance.
    """
    if task is Task.REGRESSION:
        return LabelType.NUMBER
    values = read_label_column(y, name, warn=False).values  # encoding will
    if not isinstance(values, list):
        kind = values.dtype.kind
        if kind == "f":
            _refuse_continuous(values, name)
        return {"b": LabelType.BOOLEAN, "f": LabelType.NUMBER}.get(kind, LabelType.INTEGER)
    kinds = set(map(type, values))
    if not kinds <= _PLAIN:
        kinds = {_kind_of(value) for value in values if not is_missing(value)}
    if kinds == {bool}:
        return LabelType.BOOLEAN
    if kinds == {int}:
        return LabelType.INTEGER
    if kinds and kinds <= {int, float}:
        _refuse_continuous(np.array([float(v) for v in values if not is_missing(v)]), name)
        return LabelType.NUMBER
    return LabelType.STRING if kinds <= {str} else LabelType.SCALAR


_PLAIN = {bool, int, str}  # types whose values are never missing, and of the kind that they are named after


def _kind_of(value: Any) -> type:
    if is_boolean(value):
        return bool
    if is_integer(value):
        return int
    return float if isinstance(value, (float, np.floating)) else str if isinstance(value, str) else object


def _refuse_continuous(values: Array, name: str) -> None:
    finite = values[np.isfinite(values)]
    if (finite != np.floor(finite)).any():
        raise InputError(
            "Unknown label type: continuous. Labels of a classification must be classes: use a regressor, or "
            "declare the label's type as 'number' in a schema",
            field=name,
        )
