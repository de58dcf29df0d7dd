"""The rules for single values: which are missing, and how each type of column takes the others.

Everything that enters a model passes one of the four functions `number`, `boolean`, `category_text`
and `normalise_id`, or vectorised code that is tested to agree with them. They raise `RefusedError`
with a rule that names no data; callers add the row and the field and raise `InputError`.

What a function makes of values of which many are alike: each is looked at once, in the order in which they come.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from oubli.core.errors import InputError

# A finite float64 at or beyond this magnitude would round to infinity in float32.
FLOAT32_LIMIT = float(2**128 - 2**103)
FLOAT32_BITS = 24
FLOAT64_BITS = 53
_MOST_BITS = 1024  # of the integers in float64's range
# Every integer up to this magnitude is exact in float32.
FLOAT32_EXACT = 2**FLOAT32_BITS
FLOAT64_EXACT = 2**FLOAT64_BITS
NEVER = 2**63 - 1  # milliseconds since 1970, as the expiry of a sample that has none
MOMENTS = range(-62_135_596_800_000, 253_402_300_800_000)  # the years 1 to 9999: others cannot be written as a date
ID_LENGTH = 256

MISSING = math.nan

NOT_FINITE = "must be a finite number: remove the infinity or send null"
TOO_LARGE = "is too large for a 64-bit float, the largest of which is 1.8e308: correct it, or send null"
NOT_EXACT = "is an integer that float64 cannot hold: declare the column categorical, or its dtype to have it rounded"
NOT_A_NUMBER = "must be a number or null"
NUMBER_NOT_TEXT = (
    "must be a number or null, not text: send the number without quotes, or declare the column categorical"
)
NUMBER_NOT_BOOLEAN = "must be a number or null: send 1 or 0 for true or false, or declare the column boolean"
NOT_A_MOMENT = {
    "days": "must be a date (2024-01-31), a number of days since 1970-01-01, or null",
    "seconds": "must be a time (2024-01-31T18:30:00Z), a number of seconds since 1970-01-01, or null",
    "seconds of the day": "must be a time (18:30:00, or with a date), a number of seconds since midnight, or null",
    "day of the week": "must be a date (2024-01-31), a number from 0 for Monday to 6 for Sunday, or null",
    "day of the year": "must be a date (2024-01-31), a number from 1 for the first of January to 366, or null",
}
"""The units of columns that hold dates and times as numbers, each with the rule for its values."""
DAYS, SECONDS, OF_DAY, OF_WEEK, OF_YEAR = NOT_A_MOMENT
NOT_A_BOOLEAN = "must be true, false or null (1 and 0 are accepted)"
NOT_A_CATEGORY = "must be text, a number, true, false or null"
NOT_UTF8 = "holds a lone surrogate, which UTF-8 cannot encode: remove it"
NOT_AN_ID = f"must be text of 1 to {ID_LENGTH} characters, or an integer"


class RefusedError(Exception):
    """A value breaks a rule; the text is the rule and names no data."""

    @property
    def rule(self) -> str:
        """What must hold."""
        return str(self.args[0])


def is_missing(value: object) -> bool:
    """Tell whether a value stands for "not known": None, NaN, and pandas' NA and NaT."""
    if value is None:
        return True
    if isinstance(value, str):
        return False
    if isinstance(value, (float, np.floating, Decimal)):
        return value != value
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    # pandas is never imported here; comparing its NA would raise.
    kind = type(value)
    return kind.__name__ in {"NAType", "NaTType"} and kind.__module__.startswith("pandas.")


def is_boolean(value: object) -> bool:
    """Tell whether a value is Python's or NumPy's bool."""
    return isinstance(value, (bool, np.bool_))


def is_integer(value: object) -> bool:
    """Tell whether a value is Python's or NumPy's integer; a bool is none, nor is a time span."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))


def significant_bits(value: int) -> int:
    """Return how many bits a mantissa needs to hold an integer exactly."""
    magnitude = abs(value)
    return magnitude.bit_length() - ((magnitude & -magnitude).bit_length() - 1) if magnitude else 0


def number(value: Any) -> float:
    """Convert a cell of a numeric column to the nearest finite float64; NaN when missing."""
    if is_missing(value):
        return MISSING
    if is_boolean(value):
        raise RefusedError(NUMBER_NOT_BOOLEAN)
    if isinstance(value, str):
        raise RefusedError(NUMBER_NOT_TEXT)
    if not isinstance(value, (Real, Decimal)) or isinstance(value, np.timedelta64):
        raise RefusedError(NOT_A_NUMBER)
    try:
        result = float(value)
    except OverflowError:
        result = -math.inf if value < 0.0 else math.inf
    if math.isinf(result):
        if value == result:
            raise RefusedError(NOT_FINITE)
        return math.copysign(sys.float_info.max, result)
    return result


def moment(value: Any, unit: str) -> float:
    """Convert a cell of a numeric column whose unit is one of `NOT_A_MOMENT`: a number, or a date or time in ISO 8601.

    A time without a zone is read as if it were UTC, as columns without zones are.
    """
    if isinstance(value, str):
        try:
            if value[2:3] == ":":
                value = time.fromisoformat(value)
            elif value[4:5] == "-":  # the basic form looks like a number
                value = (date if len(value) == _DATE_LENGTH else datetime).fromisoformat(value)
            else:
                raise ValueError
        except ValueError:
            raise RefusedError(NOT_A_MOMENT[unit]) from None
    if not isinstance(value, (date, time)) or is_missing(value):
        return number(value)
    if isinstance(value, time) and unit == OF_DAY:
        value = datetime.combine(_EPOCH, value, UTC)
    elif type(value) is date and unit != OF_DAY:
        value = datetime.combine(value, time(), UTC)
    if not isinstance(value, datetime):
        raise RefusedError(NOT_A_MOMENT[unit])
    return _since_epoch((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH, unit)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_LENGTH = 10


def _since_epoch(since: timedelta, unit: str) -> float:
    """Return a time since the epoch as a number of its unit."""
    if unit == OF_DAY:
        return (since % timedelta(days=1)).total_seconds()
    if unit == OF_WEEK:
        return float((since.days + 3) % 7)
    if unit == OF_YEAR:
        day = np.datetime64(since.days, "D")
        return float((day - day.astype("M8[Y]")).astype(np.int64) + 1)
    return since.total_seconds() / (86_400 if unit == DAYS else 1)


def loses_integer(value: Any, dtype: str) -> bool:
    """Tell whether a number that no float has rounded yet is an integer that a column of this dtype cannot hold."""
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        value = int(value)
    bits = FLOAT32_BITS if dtype == "float32" else FLOAT64_BITS
    return is_integer(value) and (significant_bits(int(value)) > bits or int(value).bit_length() > _MOST_BITS)


# From here on the shortest text of a number has an exponent.
_WHOLE_LIMIT = 1e16


def shortest(value: float, dtype: str) -> int | float:
    """Return a held number as the one with the shortest text that reads back as it; a whole number as an integer.

    Parameters
    ----------
    value : float
        Finite.
    dtype : {"float32", "float64"}
        What it is rounded to when it is read.
    """
    if value.is_integer() and abs(value) < _WHOLE_LIMIT:
        return int(value)
    if dtype == "float32":
        short = float(str(np.float32(value)))
        # A decimal is read as a float64 first: rounded twice, it could become a neighbour.
        return short if np.float32(short) == value else value
    return value


def boolean(value: Any) -> float:
    """Convert a cell of a boolean column to 1.0 or 0.0; NaN when missing."""
    if is_missing(value):
        return MISSING
    if is_boolean(value) or is_integer(value) or isinstance(value, (float, np.floating)):
        result = float(value) if -2 < value < 2 else MISSING
        if result in {0.0, 1.0}:
            return result + 0.0  # -0.0 becomes 0.0
    raise RefusedError(NOT_A_BOOLEAN)


def category_text(value: Any) -> str | None:
    """Convert a cell of a categorical column to the text of its category; None when missing.

    Text is the category; an integer, or a float that is one, becomes decimal text; a bool "true" or
    "false"; another float the shortest text that reads back as the same float of its width.
    """
    if isinstance(value, str):
        if not value.isascii():
            require_utf8(value)
        return plain_text(value)
    if is_missing(value):
        return None
    if is_boolean(value):
        return "true" if value else "false"
    if is_integer(value):
        return _decimal_text(int(value))
    if isinstance(value, (float, np.floating)):
        if not math.isfinite(value):
            raise RefusedError(NOT_FINITE)
        if float(value).is_integer():
            return _decimal_text(int(value))
        return str(value) if isinstance(value, np.floating) else repr(value)
    raise RefusedError(NOT_A_CATEGORY)


def _decimal_text(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # Python refuses to spell out thousands of digits
        raise RefusedError(NOT_A_CATEGORY) from None


def plain_text(text: str) -> str:
    """Return a text as an exact str; subclasses may print as something else."""
    return str.__str__(text)


def require_utf8(text: str) -> bytes:
    """Encode a text as UTF-8, or refuse it."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise RefusedError(NOT_UTF8) from None


def id_text(value: Any) -> str:
    """Convert an id or a subject to text; `normalise_id` with the caller's error.

    A date or a time, pandas' included, is its ISO text.
    """
    if is_integer(value):
        # 256 digits fit in 851 bits: larger ones need not be spelled out to be refused.
        text = str(int(value)) if int(value).bit_length() <= 860 else ""
    elif isinstance(value, str):
        text = plain_text(value)
        if not text.isascii():
            require_utf8(text)
    elif isinstance(value, date) and not is_missing(value):  # a datetime is one, and so is pandas' NaT
        text = value.isoformat()
    else:
        raise RefusedError(NOT_AN_ID)
    if not 1 <= len(text) <= ID_LENGTH:
        raise RefusedError(NOT_AN_ID)
    return text


def normalise_id(value: object, *, field: str = "id", row: int | None = None) -> str:
    """Return the text that an id is: an integer is the same id as its decimal text.

    Parameters
    ----------
    value : str or int
        Text is taken as it is ("007" is not "7").
    field, row
        For the error.

    Raises
    ------
    InputError
        For other types (bool and float included), for less than 1 or more than 256 characters, and
        for what UTF-8 cannot encode.
    """
    if type(value) is str and 0 < len(value) <= ID_LENGTH and value.isascii():
        return value
    try:
        return id_text(value)
    except RefusedError as refused:
        raise InputError(refused.rule, row=row, field=field, value=value) from None


# -- types of columns and labels ---------------------------------------------------------------------

INT64 = range(-(2**63), 2**63)
Label = str | int | float | bool

DTYPES = ("float32", "float64")

_E = TypeVar("_E", bound=StrEnum)
LookUp = Callable[[str], int]  # the code of a category


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
    unit : str or None
        Of a numeric column. With "days" and "seconds" (since 1970-01-01, UTC), and the cyclic "seconds of the day",
        "day of the week" (Monday is 0) and "day of the year" (from 1), values may also be dates and times in ISO 8601;
        other units, such as "%", only say what the numbers mean.
    """

    name: str
    type: ColumnType
    dtype: str = "float32"
    unit: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "the name of a column")
        object.__setattr__(self, "type", read_member(ColumnType, self.type, "the type of a column", self.name))
        if self.dtype not in DTYPES:
            raise InputError("dtype must be 'float32' or 'float64'", field=self.name, value=self.dtype)
        if self.dtype != "float32" and self.type is not ColumnType.NUMERIC:
            raise InputError("only a numeric column can be float64: leave dtype out", field=self.name)
        if self.unit is not None:
            check_name(self.unit, "the unit of a column")
            if self.type is not ColumnType.NUMERIC:
                raise InputError("only a numeric column has a unit: leave it out", field=self.name)


# -- labels ------------------------------------------------------------------------------------------


def canonical_label(value: Any, label_type: LabelType) -> Label | None:
    """Convert one label to its canonical value; None when that would lose something."""
    if is_boolean(value):
        return bool(value) if label_type in {LabelType.BOOLEAN, LabelType.SCALAR} else None
    if isinstance(value, str):
        return _text_label(value, label_type)
    if is_integer(value):
        return _integer_label(int(value), label_type)
    if isinstance(value, (float, np.floating)) and math.isfinite(value):
        return _float_label(float(value), label_type)
    return None


def _text_label(value: str, label_type: LabelType) -> Label | None:
    if label_type not in {LabelType.STRING, LabelType.SCALAR}:
        return None
    try:
        require_utf8(value)
    except RefusedError:
        return None
    return plain_text(value)


def _integer_label(value: int, label_type: LabelType) -> Label | None:
    if label_type is LabelType.BOOLEAN:
        return bool(value) if value in {0, 1} else None
    if label_type is LabelType.NUMBER:
        return float(value) if value.bit_length() <= 1024 and significant_bits(value) <= 53 else None
    if value not in INT64:
        return None
    return str(value) if label_type is LabelType.STRING else value


def _float_label(value: float, label_type: LabelType) -> Label | None:
    if label_type in {LabelType.NUMBER, LabelType.SCALAR}:
        return value + 0.0
    if not value.is_integer() or label_type is LabelType.STRING:
        return None
    return _integer_label(int(value), label_type)


K = TypeVar("K")
V = TypeVar("V")


class Distinct(dict[K, V]):
    """The results of a function, by value.

    `map(Distinct(make).__getitem__, values)` is one pass over the values. The built-in function for that calls `make`
    where a value is new, so that values that are equal have one result.
    """

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, value: K) -> V:
        made = self[value] = self._make(value)
        return made
