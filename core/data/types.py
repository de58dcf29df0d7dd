"""Types of columns and labels, and what is predicted."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

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


def check_name(name: Any, what: str) -> None:
    """Refuse a name that is not text, or empty."""
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
        check_name(self.name, "the name of a column")
        object.__setattr__(self, "type", read_member(ColumnType, self.type, "the type of a column", self.name))
        if self.dtype not in DTYPES:
            raise InputError("dtype must be 'float32' or 'float64'", field=self.name, value=self.dtype)
        if self.dtype != "float32" and self.type is not ColumnType.NUMERIC:
            raise InputError("only a numeric column can be float64: leave dtype out", field=self.name)
