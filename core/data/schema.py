"""What a model knows about its columns and its label: types, never values.

A schema is a parameter of the model: inferred once from the first data or declared, then fixed for
the model's life and handed to every fresh fit that is compared with it. As JSON (also the format
of schema files; `dtype`, `unit` and the label's name may be left out):

    {"task": "classification",
     "label": {"name": "income", "type": "string"},
     "columns": [{"name": "age", "type": "numeric", "dtype": "float32"},
                 {"name": "since", "type": "numeric", "unit": "days"},
                 {"name": "job", "type": "categorical"},
                 {"name": "member", "type": "boolean"}]}

The label may also have `"classes": ["low", "high"]`, which are then the only ones, `"max_classes": 5000`, and
`"class_weight": [["high", 2.5]]`, which the weights of samples of such classes are multiplied by. The schema may also
have `"extra_columns": "ignore"` and `"missing_columns": "missing"`: then rows with names may have further columns, and
may lack some, whose values are missing.

From the first data it is inferred by these rules:

| what is found in a column             | type                                                    |
|---------------------------------------|---------------------------------------------------------|
| an integer or float array             | numeric                                                 |
| a boolean array                       | boolean                                                 |
| a text or category dtype of a DataFrame | categorical                                           |
| objects, only numbers (or nothing)    | numeric                                                 |
| objects, only booleans                | boolean                                                 |
| other objects                         | categorical                                             |

A numeric column is float32, and float64 when float32 would make two of its distinct values equal, change an integer
(of floats: up to 2**53, since all beyond it are integers by accident), make a value 0, or is too small for it. The
logger `oubli.numbers` says which columns are float64 for that. `dtype` decides otherwise.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from numbers import Real
from types import NoneType
from typing import Any, Self

import numpy as np

from oubli.core.array_types import Array, Bools
from oubli.core.data.columns import inexact_integers, lost, read_numbers, saturated
from oubli.core.data.tables import Frame, RawColumn, Rows, read_table
from oubli.core.data.targets import read_label_column
from oubli.core.data.values import (
    DTYPES,
    NOT_EXACT,
    Column,
    ColumnType,
    Label,
    LabelType,
    RefusedError,
    Task,
    canonical_label,
    category_text,
    check_name,
    is_boolean,
    is_integer,
    is_missing,
    loses_integer,
    number,
    read_member,
)
from oubli.core.errors import FeatureCountError, InputError, shorten

__all__ = ["MAX_CLASSES", "Column", "ColumnType", "LabelType", "Schema", "Task"]

log = logging.getLogger("oubli.numbers")

_RULES = ("classes", "max_classes", "class_weight")
COLUMN_RULES = {"extra_columns": ("refuse", "ignore"), "missing_columns": ("refuse", "missing")}
"""What may be done with columns of rows that the schema does not have, and with those that rows lack."""
_LONGEST_NAME = 64  # characters of a name that others are compared with
MAX_CLASSES = 1000  # as a rule: a tree has a counter for each class in each node, boosting a tree
LARGEST_WEIGHT = 2**15  # weights of samples and of classes are below it
_FEW_ROWS = 2**14  # show most columns that need float64


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
    classes : tuple of labels, or None
        The classes that labels may have, whether samples of them are held or not; None: any.
    max_classes : int
        Most classes that are held at a time; a label of one more is refused.
    class_weight : tuple of (label, weight)
        Of the classes whose samples count for more or less than others.
    extra_columns : {"refuse", "ignore"}
        What is done with named columns of rows that are not among `columns`.
    missing_columns : {"refuse", "missing"}
        What is done with columns that rows with names lack: their values may be taken as missing.

    Examples
    --------
    >>> schema = Schema.infer([[1.5, "red"], [2.5, "blue"]], ["yes", "no"], task=Task.CLASSIFICATION)
    >>> [(column.name, column.type.value) for column in schema.columns]
    [('x0', 'numeric'), ('x1', 'categorical')]
    """

    columns: tuple[Column, ...]
    task: Task
    label_type: LabelType
    label_name: str = "label"
    named: bool = False
    classes: tuple[Label, ...] | None = None
    max_classes: int = MAX_CLASSES
    class_weight: tuple[tuple[Label, float], ...] = ()
    extra_columns: str = "refuse"
    missing_columns: str = "refuse"

    def __repr__(self) -> str:
        """Name the task and how many columns of each type there are."""
        kinds = Counter(column.type.value for column in self.columns)
        columns = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
        return f"Schema({self.task.value} of {self.label_name!r} by {columns})"

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
        if type(self.max_classes) is not int or self.max_classes < 1:
            raise InputError("must be an integer of at least 1", field="max_classes", value=self.max_classes)
        if self.classes is not None:
            object.__setattr__(self, "classes", self._read_classes(self.classes))
        if self.class_weight:
            object.__setattr__(self, "class_weight", self._read_weights(self.class_weight))
        for field, choices in COLUMN_RULES.items():
            if getattr(self, field) not in choices:
                raise InputError(f"must be {' or '.join(map(repr, choices))}", field=field, value=getattr(self, field))

    def _read_weights(self, pairs: Iterable[Any]) -> tuple[tuple[Label, float], ...]:
        """Return the weights of classes, in the order of the classes."""
        try:
            pairs = [(label, weight) for label, weight in pairs]
            if not all(isinstance(weight, Real) and 0 < float(weight) < LARGEST_WEIGHT for _, weight in pairs):
                raise ValueError
        except (TypeError, ValueError):
            rule = f"must be pairs of a class and its weight, above 0 and below {LARGEST_WEIGHT}"
            raise InputError(rule, field="class_weight") from None
        classes = self._read_classes([label for label, _ in pairs], "class_weight")
        read = [(canonical_label(label, self.label_type), float(weight)) for label, weight in pairs]
        weights = {label_key(label): weight for label, weight in read if label is not None}
        return tuple((label, weights[label_key(label)]) for label in classes)

    @cached_property
    def weight_of_class(self) -> dict[tuple[str, Label], float]:
        """The weights of classes, by their keys."""
        return {label_key(label): weight for label, weight in self.class_weight}

    def _read_classes(self, classes: Iterable[Any], field: str = "classes") -> tuple[Label, ...]:
        """Return the classes that are listed in a field, in their order."""
        if self.task is Task.REGRESSION:
            raise InputError("must be left out: a regression has no classes", field=field)
        read = [canonical_label(value, self.label_type) for value in classes]
        labels = {label_key(label): label for label in read if label is not None}
        if not 0 < len(labels) == len(read):
            raise InputError(f"must be different labels of type '{self.label_type}', one at least", field=field)
        return tuple(labels[key] for key in sorted(labels))

    def allows(self, label: Label) -> bool:
        """Whether samples may have a label.

        Examples
        --------
        >>> schema = Schema.infer([[1.5, "red"], [2.5, "blue"]], ["yes", "no"], task="classification")
        >>> schema.allows("perhaps"), schema.with_classes(["yes", "no"], None, []).allows("perhaps")
        (True, False)
        """
        return self.classes is None or label_key(label) in map(label_key, self.classes)

    def with_classes(self, classes: Any, max_classes: int | None, held: Iterable[Label]) -> Self:
        """Return the schema with other rules about classes; what is None stays as it is.

        Parameters
        ----------
        classes : "open", "closed", a list of labels, or None
            Whether labels may make new classes, or the classes allowed. A list stays when it is closed again.
        max_classes : int or None
            See the attribute.
        held : iterable of labels
            The classes when they are closed; each may be there several times.

        Raises
        ------
        InputError
            When a rule is none.

        Examples
        --------
        >>> schema = Schema.infer([[1.5, "red"], [2.5, "blue"]], ["yes", "no"], task="classification")
        >>> schema.with_classes("closed", None, held=["yes", "no"]).classes
        ('no', 'yes')
        """
        listed = self.classes
        if isinstance(classes, (list, tuple)):
            listed = tuple(classes)
        elif classes not in (None, "open", "closed"):
            raise InputError("must be 'open', 'closed' or a list of labels", field="classes", value=classes)
        elif classes == "open":
            listed = None
        if classes == "closed" and listed is None:
            listed = tuple({label_key(label): label for label in held}.values())
        return replace(self, classes=listed, max_classes=self.max_classes if max_classes is None else max_classes)

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

        Examples
        --------
        >>> schema = Schema.infer([[1.5, "red"], [2.5, "blue"]], ["yes", "no"], task="classification")
        >>> schema.index("x1")
        1
        """
        try:
            return self.names.index(name)
        except ValueError:
            raise InputError("there is no column of this name in the schema", value=name) from None

    def nearest(self, name: str) -> str:
        """Internal: the name of the column that is most like a name, as a remark for messages; empty when none is."""
        found = get_close_matches(name, self.names, 1) if len(name) <= _LONGEST_NAME else []
        return f" (the nearest that it has is '{found[0]}')" if found else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain JSON values.

        Examples
        --------
        >>> schema = Schema.infer([[1.5, "red"], [2.5, "blue"]], ["yes", "no"], task="classification")
        >>> schema.to_dict()["columns"]
        [{'name': 'x0', 'type': 'numeric', 'dtype': 'float32'}, {'name': 'x1', 'type': 'categorical'}]
        """
        columns = []
        for column in self.columns:
            entry = {"name": column.name, "type": str(column.type)}
            if column.type is ColumnType.NUMERIC:
                entry["dtype"] = column.dtype
                if column.unit is not None:
                    entry["unit"] = column.unit
            columns.append(entry)
        label: dict[str, Any] = {"name": self.label_name, "type": str(self.label_type)}
        if self.classes is not None:
            label["classes"] = list(self.classes)
        if self.max_classes != MAX_CLASSES:
            label["max_classes"] = self.max_classes
        if self.class_weight:
            label["class_weight"] = [list(pair) for pair in self.class_weight]
        rules = {name: getattr(self, name) for name in COLUMN_RULES if getattr(self, name) != "refuse"}
        return {
            "task": str(self.task),
            "label": label,
            "columns": columns,
            "named": self.named,
            **rules,
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

        Examples
        --------
        >>> columns = [{"name": "age", "type": "numeric"}, {"name": "job", "type": "categorical"}]
        >>> Schema.from_dict({"task": "regression", "columns": columns}).names
        ('age', 'job')
        """
        optional = {"label", "named", *COLUMN_RULES}
        body = _object(document, "a schema", required={"task", "columns"}, optional=optional)
        task = read_member(Task, body["task"], "the task")
        required = {"type"} if task is Task.CLASSIFICATION else set()
        label = _object(body.get("label", {}), "the label", required=required, optional={"name", "type", *_RULES})
        if not isinstance(label.get("classes"), (list, NoneType)):
            raise InputError("must be a list of labels", field="classes")
        named = body.get("named", True)
        if not isinstance(named, bool):
            raise InputError("'named' must be true or false", value=named)
        if not isinstance(body["columns"], (list, tuple)):
            raise InputError("'columns' must be a list of columns", value=body["columns"])
        columns = []
        for entry in body["columns"]:
            parts = _object(entry, "a column", required={"name", "type"}, optional={"dtype", "unit"})
            columns.append(Column(**parts))
        return cls(
            columns=tuple(columns),
            task=task,
            label_type=label.get("type", LabelType.NUMBER),
            label_name=label.get("name", "label"),
            named=named,
            classes=label.get("classes"),
            max_classes=label.get("max_classes", MAX_CLASSES),
            class_weight=label.get("class_weight", ()),
            **{name: body[name] for name in COLUMN_RULES if name in body},
        )

    @classmethod
    def infer(
        cls,
        X: Any,
        y: Any,
        *,
        task: Task | str,
        categorical_features: Sequence[Any] | Array | None = None,
        dtype: Any = None,
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
        dtype : {"float32", "float64"} or mapping of int or str to it, optional
            How numbers are held, in all columns or by name or position. Otherwise a column is float32, and float64 when
            float32 would make two of its distinct values equal, change an integer, make a value 0, or is too small for
            it; the logger `oubli.numbers` says which are.
        label_name : str
            Name of the label.

        Raises
        ------
        InputError
            When X or y cannot be used at all, a name or position in `categorical_features` or `dtype` is wrong, or a
            column whose dtype is inferred has an integer that float64 cannot hold.

        Examples
        --------
        >>> Schema.infer([[1.5, "red"], [2.5, "blue"]], [10.0, 20.0], task="regression", label_name="price")
        Schema(regression of 'price' by 1 numeric, 1 categorical)
        """
        task = read_member(Task, task, "the task")
        columns, named = infer_columns(X, categorical_features, dtype)
        return cls(columns, task, infer_label_type(y, task, label_name), label_name, named)


def label_key(label: Label) -> tuple[str, Label]:
    """Return what tells classes apart and orders them: 1, 1.0 and True are different classes."""
    return type(label).__name__, label


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


# -- inferred from data ------------------------------------------------------------------------------


def infer_columns(X: Any, categorical_features: Any = None, dtype: Any = None) -> tuple[tuple[Column, ...], bool]:
    """Infer the types of the columns of X; also whether X says their names.

    categorical_features : names, positions or a mask of columns that are categorical whatever they hold.
    dtype : float32 or float64 for the columns of numbers, or for some of them by name or position.

    Raises
    ------
    InputError
        When X cannot be used at all, a name or position in `categorical_features` or `dtype` is wrong, or float64
        cannot hold an integer.
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
    dtypes = _declared_dtypes(dtype, names)
    inferred = tuple(
        Column(name, ColumnType.CATEGORICAL) if j in forced else _infer_column(raw, name, dtypes.get(j))
        for j, (raw, name) in enumerate(zip(columns, names, strict=True))
    )
    for j, column in enumerate(inferred):
        if j in dtypes and column.type is not ColumnType.NUMERIC and isinstance(dtype, Mapping):
            raise InputError("only a column of numbers has a dtype: leave it out", field=column.name)
    wide = [column.name for j, column in enumerate(inferred) if column.dtype == "float64" and j not in dtypes]
    if wide:
        log.warning(
            "columns held as float64, because float32 would make distinct numbers equal or change them: %s. "
            "fit(dtype=...) decides otherwise",
            shorten(", ".join(wide)),
        )
    return inferred, given_names is not None


def _declared_dtypes(spec: Any, names: list[str]) -> dict[int, str]:
    if spec is None:
        return {}
    if not isinstance(spec, Mapping):
        return dict.fromkeys(range(len(names)), _dtype_name(spec))
    return {_position(column, names, "dtype"): _dtype_name(dtype) for column, dtype in spec.items()}


def _dtype_name(spec: Any) -> str:
    try:
        name: str = np.dtype(spec).name
    except TypeError:
        name = ""
    if name not in DTYPES:
        raise InputError("dtype must be 'float32' or 'float64', or say so by name or position of a column", value=spec)
    return name


def _position(entry: Any, names: list[str], argument: str) -> int:
    """Return the position of a column that is given by its name or its position."""
    if isinstance(entry, str):
        if entry not in names:
            raise InputError(f"{argument} names a column that X does not have", value=entry)
        return names.index(entry)
    if not is_integer(entry):
        raise InputError(f"{argument} must hold names or positions of columns", value=entry)
    if not 0 <= entry < len(names):
        raise InputError(f"a position in {argument} must be from 0 to {len(names) - 1}", value=int(entry))
    return int(entry)


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
    return {_position(entry, names, "categorical_features") for entry in entries}


def _infer_column(raw: RawColumn, name: str, dtype: str | None) -> Column:
    values = raw.values
    if isinstance(values, list):
        kind = _type_of_objects(values, name, raw.text)
    else:
        kind = ColumnType.BOOLEAN if values.dtype.kind == "b" else ColumnType.NUMERIC
    if kind is not ColumnType.NUMERIC:
        return Column(name, kind)
    return Column(name, kind, dtype or _width(raw, name))


def _width(raw: RawColumn, name: str) -> str:
    """Return the dtype that a column of numbers needs."""
    values = raw.values
    if not isinstance(values, list) and values.dtype.kind != "f" and not inexact_integers(values, "float32").any():
        return "float32"
    try:
        numbers, is_too_small = read_numbers(raw, Column(name, ColumnType.NUMERIC))
    except InputError:
        return "float32"  # an infinity: refused when it is encoded
    if not is_too_small:
        return float_width(numbers)
    if read_numbers(raw, Column(name, ColumnType.NUMERIC, "float64"))[1]:
        row = next(row for row in range(len(raw)) if loses_integer(raw.value(row), "float64"))
        raise InputError(NOT_EXACT, row=row, field=name, value=raw.value(row))
    return "float64"


def float_width(values: Array) -> str:
    """Return the dtype that a column of floats needs; see the top of this file."""
    if values.dtype.itemsize <= 4:
        return "float32"
    needs = _needs_float64(values[:_FEW_ROWS]) or (len(values) > _FEW_ROWS and _needs_float64(values))
    return "float64" if needs else "float32"


def _needs_float64(values: Array) -> bool:
    values = np.ascontiguousarray(values)
    values = values[np.isfinite(values)]
    held = saturated(values, np.float32)
    if (held == values).all():
        return False
    if lost(values, held).any():
        return True
    values.sort()
    held = values.astype(np.float32)
    return bool(((held[1:] == held[:-1]) & (values[1:] != values[:-1])).any())


def _type_of_objects(values: list[Any], name: str, text: bool) -> ColumnType:
    present = [value for value in values if not is_missing(value)]
    if not text:
        if present and all(map(is_boolean, present)):
            return ColumnType.BOOLEAN
        if all(map(_is_number, present)):
            return ColumnType.NUMERIC
    for row, value in enumerate(values):
        try:
            category_text(value)
        except RefusedError as refused:
            raise InputError(refused.rule, row=row, field=name, value=value) from None
    return ColumnType.CATEGORICAL


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return False
    try:
        number(value)
    except RefusedError:
        # An infinity is a number all the same; encoding refuses it by name.
        return isinstance(value, (float, np.floating))
    return True


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
