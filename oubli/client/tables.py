"""pandas DataFrames, NumPy arrays and lists on their way to the server, and samples on their way back.

The rules are those of the library: None, NaN and pandas' NA are missing values; columns of a DataFrame are matched by
name; its index gives the ids of samples unless it only counts the rows. pandas is not imported on the way out.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from oubli.api.base import Scalar
from oubli.api.model import Schema
from oubli.api.samples import HeldSample
from oubli.client.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

ID_LENGTH = 256
NOT_FINITE = "must be a finite number: remove the infinity, or send None when the value is unknown"
BEYOND = "is too large for a 64-bit float, the largest of which is 1.8e308: correct it, or send None"
TIMES = "holds dates or times: convert them to numbers, for instance seconds or days"
BYTES = "holds bytes: decode them to text"
TOO_LARGE = "is an integer that JSON readers cannot hold in 64 bits: send it as a float"
NOT_UTF8 = "holds a lone surrogate, which UTF-8 cannot encode: remove it"
NOT_A_VALUE = "must be a number, text, true, false or None"
NOT_A_TABLE = "X must be a 2-d array, a DataFrame, or a list of rows, each a list or a dictionary by feature name"
NOT_AN_ID = f"must be text of 1 to {ID_LENGTH} characters, or an integer"
REPEATED = "column names must be unique: rename or drop the duplicates"
NO_ROWS = "there are no rows: pass at least one"


class IndexWarning(UserWarning):
    """The index of a DataFrame cannot give the ids of samples, so that they are generated."""


def is_frame(X: Any) -> bool:
    """Whether X is a DataFrame, by what it has."""
    return hasattr(X, "columns") and hasattr(X, "dtypes")


def rows_of(X: Any) -> Any:
    """Return the rows of X as JSON can hold them: lists, dictionaries by feature name, or one array of numbers.

    Raises
    ------
    DataError
        With the row, the field and the rule.
    """
    if hasattr(type(X), "collect") and not hasattr(type(X), "__len__"):
        raise DataError("X is not computed yet: pass X.collect()")
    if is_frame(X):
        rows: Any = _frame_rows(X)
    elif hasattr(X, "column_names"):  # of pyarrow
        if len(set(X.column_names)) != X.num_columns:
            raise DataError(REPEATED)
        rows = [_row(row, i) for i, row in enumerate(X.to_pylist())]
    elif isinstance(X, (list, tuple)):
        rows = [_row(row, i) for i, row in enumerate(X)]
    elif hasattr(X, "toarray"):
        raise DataError("sparse data was passed, but dense data is required: use X.toarray()")
    elif hasattr(X, "__array__"):
        rows = _array_rows(_unmasked(X) if isinstance(X, np.ma.MaskedArray) else np.asarray(X))
    else:
        raise DataError(NOT_A_TABLE)
    if not len(rows):
        raise DataError(NO_ROWS)
    return rows


def index_of(X: Any) -> Any:
    """Return the index of a DataFrame of pandas; None for anything else."""
    return X.index if is_frame(X) and hasattr(X, "index") else None


def n_rows(X: Any) -> int:
    """Return how many rows X has; 0 for what is no table."""
    shape = getattr(X, "shape", None)
    return int(shape[0]) if shape else len(X) if isinstance(X, (list, tuple)) else 0


def part_of(X: Any, start: int, stop: int) -> Any:
    """Return some of the rows of X, by position."""
    if hasattr(X, "column_names"):  # of pyarrow
        return X.slice(start, stop - start)
    return (X.iloc if hasattr(X, "iloc") else X)[start:stop]


def labels_of(y: Any, n: int, what: str = "labels") -> list[Any]:
    """Return the labels of n rows as JSON can hold them; the index of a Series is ignored."""
    values = [_cell(value, row, "label") for row, value in enumerate(_values(y, what))]
    if len(values) != n:
        raise DataError(f"{len(values)} {what} were passed for {n} rows: pass one for each")
    return values


def names_of(names: Any, what: str) -> list[str]:
    """Return one id or subject, or several, as texts."""
    if isinstance(names, (bytes, bytearray, memoryview, Mapping)) or hasattr(type(names), "columns"):
        raise DataError(f"{NOT_AN_ID}, or a list of them, and no table", None, what)
    single = isinstance(names, (str, int, np.integer, date))
    return [_name(name, row, what) for row, name in enumerate([names] if single else list(names))]


def ids_of_index(X: Any) -> list[str] | None:
    """Return the labels of a DataFrame's index as ids; None when it is pandas' default, or no label can be an id.

    Raises
    ------
    DataError
        When labels are repeated, or some of them cannot be ids: a label could delete another row.
    """
    if not is_frame(X) or not hasattr(X, "index"):
        return None
    index = X.index
    if index.name is None and getattr(index, "start", None) == 0 and getattr(index, "step", None) == 1:
        return None
    labels, names = list(index), []
    for row, label in enumerate(labels):
        with suppress(DataError):
            names.append(_name(label, row, "id"))
    if len(set(names)) == len(labels):
        return names
    if names:
        raise DataError(
            "labels of X's index are repeated, missing, or neither text nor integers nor dates, so that a label could "
            "delete another row: pass ids= to name the samples, or X.reset_index(drop=True) for generated ids",
            None,
            "id",
        )
    warnings.warn(
        "the labels of X's index are neither text nor integers nor dates: ids are generated. Pass ids= to name the "
        "samples",
        IndexWarning,
        stacklevel=2,
    )
    return None


def samples_of(
    X: Any,
    y: Any,
    *,
    ids: Any = None,
    subjects: Any = None,
    expires_at: Any = None,
    sample_weight: Any = None,
    readd: bool = False,
) -> list[dict[str, Any]]:
    """Return the samples of a `POST /samples` body.

    Raises
    ------
    DataError
        When something cannot be sent, or does not go with the number of rows.
    """
    rows = rows_of(X)
    n = len(rows)
    columns: dict[str, Sequence[Any]] = {"features": rows, "label": labels_of(y, n)}
    names = ids_of_index(X) if ids is None else names_of(ids, "id")
    if names is not None:
        columns["id"] = names
    if subjects is not None:
        columns["subject"] = [None if _is_missing(one) else _name(one, i, "subject") for i, one in _each(subjects, n)]
    if expires_at is not None:
        columns["expires_at"] = [None if _is_missing(one) else time_text(one, i) for i, one in _each(expires_at, n)]
    if sample_weight is not None:
        columns["weight"] = [_cell(one, i, "weight") for i, one in _each(sample_weight, n)]
    if readd:
        columns["readd"] = [True] * n
    for name, values in columns.items():
        if len(values) != n:
            raise DataError(f"{len(values)} values of '{name}' were passed for {n} rows: pass one for each")
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def time_text(value: Any, row: int | None = None) -> str:
    """Return a time to come in RFC 3339."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise DataError("must have a time zone, for instance datetime.timezone.utc", row, "expires_at")
        return value.isoformat()
    if isinstance(value, str):
        return value
    raise DataError("must be a datetime with a time zone, or text in RFC 3339", row, "expires_at")


def frame_of(samples: Iterable[HeldSample], schema: Schema) -> pd.DataFrame:
    """Return samples as a DataFrame: ids as the index, a column for each feature, and one with the labels.

    Categories have the type `category`, booleans `boolean`, numbers the type that they are held in. Subject, expiry,
    time of restriction and a weight that is not 1 are in columns of these names where any sample has one.
    """
    import pandas as pd

    held = list(samples)
    index = pd.Index([sample.id for sample in held], name="id", dtype=object)
    columns: dict[str, Any] = {}
    for feature in schema.features:
        cells = [sample.features.get(feature.name) for sample in held]
        dtype: Any = {"categorical": "category", "boolean": "boolean"}.get(feature.type, feature.dtype)
        columns[feature.name] = pd.Series(cells, index=index, dtype=dtype)
    labels: list[Scalar] = [sample.label for sample in held]
    columns[schema.label.name] = pd.Series(labels, index=index, dtype=None if labels else object)
    for name, values in (
        ("subject", [sample.subject for sample in held]),
        ("expires_at", [sample.expires_at for sample in held]),
        ("restricted_at", [sample.restricted_at for sample in held]),
        ("weight", [sample.weight for sample in held]),
    ):
        usual = 1 if name == "weight" else None
        if any(value != usual for value in values) and name not in columns:
            columns[name] = pd.Series(values, index=index)
    return pd.DataFrame(columns, index=index)


# --- pieces


def _frame_rows(X: Any) -> list[Any]:
    labels = list(X.columns)
    if len(set(labels)) != len(labels):
        raise DataError(REPEATED)
    n_texts = sum(isinstance(label, str) for label in labels)
    if n_texts not in (0, len(labels)):
        raise DataError("column names must all be text: use X.columns = X.columns.astype(str)")
    columns = [_column(X[label], label) for label in labels]
    rows = zip(*columns, strict=True)
    return [dict(zip(labels, row, strict=True)) for row in rows] if n_texts else [list(row) for row in rows]


def _column(series: Any, field: Any) -> list[Any]:
    cells = series.tolist() if hasattr(series, "tolist") else list(series)
    return [_cell(cell, row, field) for row, cell in enumerate(cells)]


def _unmasked(X: np.ma.MaskedArray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array with None where it is masked."""
    plain = np.ma.getdata(X).astype(object)
    plain[np.ma.getmaskarray(X)] = None
    return plain


def _array_rows(X: np.ndarray[Any, Any]) -> Any:
    if X.ndim != 2:
        raise DataError(
            f"a 2-d array is needed, not one of {X.ndim} dimensions: X must hold one row for each sample. Reshape a "
            "single sample with array.reshape(1, -1)"
        )
    if X.dtype.kind == "f":
        infinite = np.argwhere(np.isinf(X))
        if len(infinite):
            row, field = infinite[0].tolist()
            raise DataError(NOT_FINITE, row, field)
        return np.ascontiguousarray(X, dtype=np.float64)  # the shortest text of a float32 is another float64
    if X.dtype.kind in "biu":
        return np.ascontiguousarray(X, dtype=X.dtype.newbyteorder("="))
    if X.dtype.kind == "c":
        raise DataError("complex data was passed: pass real and imaginary parts as two columns")
    if X.dtype.kind in "mM":
        raise DataError(TIMES)
    return [_row(row, i) for i, row in enumerate(X.tolist())]


def _row(row: Any, i: int) -> Any:
    if hasattr(row, "to_dict") and hasattr(row, "index"):  # a Series: a row of a DataFrame
        row = row.to_dict()
    if isinstance(row, Mapping):
        return {name: _cell(value, i, name) for name, value in row.items()}
    if isinstance(row, np.ndarray):
        row = row.tolist()
    if not isinstance(row, (list, tuple)):
        raise DataError(NOT_A_TABLE, i)
    return [_cell(value, i, field) for field, value in enumerate(row)]


def _values(y: Any, what: str) -> list[Any]:
    if isinstance(y, (str, bytes, Mapping)) or not hasattr(y, "__iter__"):
        raise DataError(f"{what} must be a list, a Series or a 1-d array")
    if isinstance(y, np.ndarray) and y.ndim != 1:
        raise DataError(f"{what} must be a 1-d array, not one of {y.ndim} dimensions")
    return list(y.tolist() if hasattr(y, "tolist") else y)


def _each(values: Any, n: int) -> Iterable[tuple[int, Any]]:
    """Yield a value for each of n rows; one value alone is that of all."""
    if isinstance(values, (str, int, float, Decimal, datetime, np.number)):
        return enumerate([values] * n)
    return enumerate(values.tolist() if hasattr(values, "tolist") else list(values))


def _is_missing(value: Any) -> bool:
    kind = type(value)
    if kind.__name__ in ("NAType", "NaTType") and kind.__module__.startswith("pandas."):
        return True
    return value is None or (isinstance(value, (float, np.floating, Decimal)) and value != value)


def _cell(value: Any, row: int, field: Any) -> Scalar | None:
    """Return a value as JSON can hold it."""
    kind = type(value)
    if kind is bool or value is None:
        return None if value is None else bool(value)
    if isinstance(value, str):
        if not value.isascii():
            _require_utf8(value, row, field)
        return value if kind is str else str(value)
    if _is_missing(value):
        return None
    if isinstance(value, (float, np.floating, Decimal)):
        number = float(value)
        if math.isinf(number):
            raise DataError(NOT_FINITE if value == number else BEYOND, row, field)
        return number
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, (date, timedelta, np.datetime64, np.timedelta64)):
        raise DataError(TIMES, row, field)
    if isinstance(value, (int, np.integer)):
        if not -(2**63) <= int(value) < 2**64:
            raise DataError(TOO_LARGE, row, field)
        return int(value)
    raise DataError(BYTES if isinstance(value, bytes) else NOT_A_VALUE, row, field)


def _name(value: Any, row: int, what: str) -> str:
    """Return an id or a subject: an integer is its decimal text, a date or a time its ISO text."""
    if isinstance(value, str):
        text = value
        _require_utf8(text, row, what)
    elif isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64)):
        text = str(int(value))
    elif isinstance(value, date) and not _is_missing(value):
        text = value.isoformat()
    else:
        raise DataError(NOT_AN_ID, row, what)
    if not 1 <= len(text) <= ID_LENGTH:
        raise DataError(NOT_AN_ID, row, what)
    return text


def _require_utf8(text: str, row: int, field: Any) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(NOT_UTF8, row, field) from None
