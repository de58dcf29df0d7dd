"""The shapes in which callers pass X and y, reduced to four.

    Matrix    a 2-d array of booleans, integers or floats
    Rows      a list of rows, each a list or tuple of Python objects (also 2-d object arrays)
    Sparse    a sparse matrix of SciPy, of which one column is dense at a time
    Frame     a table whose columns have names, read column by column, by duck typing: `frame[name]` of pandas, polars
              and pyarrow; any other table that speaks Arrow's or the DataFrame protocol becomes one of pyarrow first

and to `RawColumn`, one column of any of them. Types are none of this module's business; shapes that
no schema could accept are refused here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from oubli.core.array_types import Array, Bools
from oubli.core.errors import InputError, shorten

_FLOAT32_EXACT = 2**24  # as in `values.py`
NO_ROWS = "X has no rows: pass at least one"
ONE_DIMENSION = (
    "Expected 2D array, got 1D array instead: X must hold one row for each sample. Reshape your data either "
    "using array.reshape(-1, 1) if it has a single feature or array.reshape(1, -1) if it is a single sample."
)
SPARSE = "X is a sparse array that cannot be read by columns: pass X.tocsr()"
COMPLEX = "Complex data not supported: pass real and imaginary parts as two columns"
TIMES = "holds dates or times: convert them to numbers, for instance seconds or days"
BYTES = "holds bytes: decode them to text"
NOT_A_TABLE = "X must be a 2-d array, a DataFrame or a list of rows"
LAZY = "X is not computed yet: pass X.collect()"
NEEDS_PYARROW = "X is a table that only pyarrow can read: install pyarrow, or pass a pandas or polars DataFrame"
# How the types of polars and pyarrow begin whose values are names.
_TEXTS = ("str", "large_str", "categorical", "enum", "dictionary")
_FLOATS = ("float", "double", "halffloat")


@dataclass(frozen=True, slots=True)
class RawColumn:
    """One column as it came.

    Attributes
    ----------
    values : ndarray of kind b, i, u or f, or list of objects
        The cells.
    missing : bool ndarray, optional
        With an array: which of its cells are missing (their values mean nothing). NaN is missing
        as well.
    text : bool
        Whether the column declares itself as text or categories, so that numbers in it are names.
    """

    values: Array | list[Any]
    missing: Bools | None = None
    text: bool = False

    def __len__(self) -> int:
        return len(self.values)

    def value(self, row: int) -> Any:
        """Return a cell as a Python object."""
        value = self.values[row]
        return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True, slots=True)
class Matrix:
    """A 2-d array of booleans, integers or floats."""

    values: Array

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.values.shape[0])

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return int(self.values.shape[1])

    def column(self, index: int) -> RawColumn:
        """Return one column."""
        return RawColumn(self.values[:, index])


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of Python objects; they need not be equally long yet."""

    values: Sequence[Sequence[Any]]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.values)

    @property
    def n_columns(self) -> int:
        """Length of the first row."""
        return len(self.values[0])

    def odd_row(self, length: int) -> int | None:
        """Return the first row that is not `length` long."""
        if set(map(len, self.values)) == {length}:
            return None
        return next((i for i, row in enumerate(self.values) if len(row) != length), None)


@dataclass(frozen=True, slots=True)
class Sparse:
    """A sparse matrix by columns (CSC), with one entry a cell at most; what is not stored is 0."""

    matrix: Any

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0])

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return int(self.matrix.shape[1])

    def column(self, index: int) -> RawColumn:
        """Return one column."""
        matrix = self.matrix
        stored = slice(*matrix.indptr[index : index + 2])
        values = np.zeros(self.n_rows, matrix.dtype)
        values[matrix.indices[stored]] = matrix.data[stored]
        return RawColumn(plain_array(values))


@dataclass(frozen=True, slots=True)
class Frame:
    """A table whose columns have labels; those that are not among `labels` are left out."""

    frame: Any
    labels: list[Any]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.frame)

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.labels)

    @property
    def names(self) -> list[str] | None:
        """The column names; None when they are only numbers, which mean positions."""
        return list(map(str, self.labels)) if self.labels and isinstance(self.labels[0], str) else None

    def column(self, index: int) -> RawColumn:
        """Return one column."""
        label = self.labels[index]
        return read_series(self.frame[label], str(label))

    def without(self, labels: Sequence[Any]) -> "Frame":
        """Return the table without some columns."""
        return Frame(self.frame, [label for label in self.labels if label not in labels])


Table = Matrix | Rows | Sparse | Frame


def read_table(X: Any) -> Table:
    """Find out what X is.

    Raises
    ------
    InputError
        When it is no table, has no rows, or holds what no column can take.
    """
    table: Table
    if isinstance(X, np.ndarray):
        table = _read_array(X)
    elif isinstance(X, (list, tuple)):
        table = _read_rows(X)
    elif (frame := read_frame(X)) is not None:
        table = frame
    elif hasattr(X, "toarray"):
        table = _read_sparse(X)
    elif hasattr(X, "__array__"):
        table = _read_array(np.asarray(X))
    else:
        raise InputError(NOT_A_TABLE, message=f"{NOT_A_TABLE}, not {type(X).__name__}")
    if table.n_rows == 0:
        raise InputError(NO_ROWS)
    return table


def _read_array(X: Array) -> Table:
    if X.dtype.kind == "c":
        raise InputError(COMPLEX)
    if X.ndim != 2:
        if X.ndim == 1:
            raise InputError(ONE_DIMENSION)
        if X.ndim == 0:
            raise InputError("Expected 2D array, got scalar array instead: X must hold one row for each sample")
        raise InputError(f"Found array with dim {X.ndim}, while dim <= 2 is required: X must be 2-d")
    X = _unmasked(X) if isinstance(X, np.ma.MaskedArray) else np.asarray(X)  # a column of np.matrix has two dimensions
    kind = X.dtype.kind
    if kind in "biuf":
        return Matrix(plain_array(X))
    _refuse_kind(kind, None)
    return Rows(X.tolist())


def _read_sparse(X: Any) -> Sparse:
    if not hasattr(X, "tocsc"):
        raise InputError(SPARSE)
    _refuse_kind(X.dtype.kind, None)
    if len(X.shape) != 2:
        raise InputError(ONE_DIMENSION)
    matrix = X.tocsc()
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return Sparse(matrix)


def row_blocks(X: Any, n_rows: int) -> list[Any]:
    """Cut a sparse matrix of many rows into some of about so many; all else is one block."""
    if not hasattr(X, "tocsr") or X.shape[0] <= n_rows:
        return [X]
    by_rows, n_blocks = X.tocsr(), -(-X.shape[0] // n_rows)
    ends = [X.shape[0] * block // n_blocks for block in range(n_blocks + 1)]
    return [by_rows[first:behind] for first, behind in pairwise(ends)]


def _unmasked(values: Array) -> Array:
    """Return a masked array as a plain one with None where it is masked."""
    masked = np.ma.getmaskarray(values)
    plain = np.ma.getdata(values)
    if masked.any():
        plain = plain.astype(object)
        plain[masked] = None
    return plain


def plain_array(values: Array) -> Array:
    """Return an array of a kind b, i, u or f in the machine's byte order and at most 8 bytes wide."""
    if values.dtype.itemsize > 8:
        return values.astype(np.float64)
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def _refuse_kind(kind: str, field: str | None) -> None:
    if kind == "c":
        raise InputError(COMPLEX, field=field)
    if kind in "mM":
        raise InputError(TIMES, field=field)
    if kind == "S":
        raise InputError(BYTES, field=field)
    if kind == "V":
        raise InputError("holds records: pass plain columns", field=field)


def _read_rows(X: Sequence[Any]) -> Table:
    if all(map((list, tuple).__contains__, map(type, X))):
        return Rows(X)
    rows: list[Sequence[Any]] = []
    for i, row in enumerate(X):
        if isinstance(row, (list, tuple)):
            rows.append(row)
        elif isinstance(row, np.ndarray) and row.ndim == 1:
            if row.dtype.kind == "c":
                raise InputError(COMPLEX, row=i)
            rows.append(row.tolist())
        elif isinstance(row, dict):
            rule = "a row must be a list of values in the order of the features, unless a schema has their names"
            raise InputError(rule, row=i)
        elif hasattr(row, "tolist") and getattr(row, "ndim", 0) == 1:
            rows.append(row.tolist())
        else:
            raise InputError(ONE_DIMENSION, row=i)
    return Rows(rows)


def read_frame(X: Any) -> Frame | None:
    """Return X as a table whose columns have labels; None when it is none.

    Raises
    ------
    InputError
        When labels are repeated, or not all of them are text; and as `loaded`.
    """
    if isinstance(X, Frame):
        return X
    X = loaded(X)
    found = _labels(X)
    if found is None:
        return None
    labels = list(found)
    if len(set(labels)) != len(labels):
        twice = sorted({str(label) for label in labels if labels.count(label) > 1})
        raise InputError(
            "column names must be unique: rename or drop the duplicates",
            message=f"column names must be unique, these are repeated: {shorten(', '.join(twice))}",
        )
    texts = sum(isinstance(label, str) for label in labels)
    if texts not in {0, len(labels)}:
        raise InputError("column names must all be text: use X.columns = X.columns.astype(str)")
    return Frame(X, labels)


def is_named(X: Any) -> bool:
    """Whether the columns of X have names; numbers mean positions. As `read_frame`, but nothing is checked or read."""
    if _is_foreign(X):
        return True
    labels = X.labels if isinstance(X, Frame) else _labels(X)
    return labels is not None and len(labels) > 0 and isinstance(labels[0], str)


def loaded(X: Any) -> Any:
    """Return X, as a table of pyarrow if it is a table of a library that this module does not know.

    Raises
    ------
    InputError
        When it is a query that has not been made, or pyarrow is missing.
    """
    if not _is_foreign(X):
        return X
    try:
        from pyarrow import interchange, table
    except ImportError:
        raise InputError(NEEDS_PYARROW) from None
    return table(X) if hasattr(X, "__arrow_c_stream__") else interchange.from_dataframe(X)


def _is_foreign(X: Any) -> bool:
    """Whether X is a table of another library; InputError when it is a query that has not been made."""
    kind = type(X)  # which is asked in a hundredth of the time that a DataFrame takes to look for a column
    if hasattr(kind, "collect") and not hasattr(kind, "__len__"):
        raise InputError(LAZY)
    # Those that are known are arrays as well; so are Series, which speak Arrow's protocol.
    if hasattr(kind, "__array__"):
        return hasattr(kind, "__dataframe__") and not hasattr(kind, "dtypes") and not hasattr(kind, "column_names")
    return hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__dataframe__")


def _labels(X: Any) -> Any:
    """Return the labels of the columns of a table that is known; None for anything else."""
    kind = type(X)
    if hasattr(kind, "column_names"):
        return X.column_names
    if hasattr(kind, "dtypes") or hasattr(X, "dtypes"):
        return getattr(X, "columns", None)
    return None


def only_row(X: Any, names: Sequence[str]) -> list[Any] | None:
    """Return the values of a pandas DataFrame of one row, columns named as said; None for anything else.

    Also None for values that mean something else beside others of their column's type than alone. Reading the row
    costs a tenth of reading each column.
    """
    if not hasattr(X, "iloc") or not hasattr(X, "columns") or len(X) != 1 or list(X.columns) != list(names):
        return None
    series = X.iloc[0]
    # Columns of different types of numbers come as floats of 64 bits, in which large integers look like others.
    may_be_cast = series.dtype != np.dtype(object)
    row: list[Any] = []
    for cell in series.tolist():
        value = cell.item() if isinstance(cell, np.generic) else cell
        kind = type(value)
        if kind is float or kind is int:
            if may_be_cast and abs(value) > _FLOAT32_EXACT:
                return None
            row.append(None if value != value else value)
        elif kind is str or value is None:
            row.append(value)
        else:
            return None
    return row


def read_series(series: Any, field: str) -> RawColumn:
    """Read a column of a table, or a Series; pandas' nullable and Arrow types included."""
    dtype = getattr(series, "dtype", None)
    if isinstance(dtype, np.dtype):
        return read_vector(np.asarray(series), field)
    if not hasattr(series, "astype"):
        return _read_arrow(series, field)
    kind = getattr(dtype, "kind", "O")
    if hasattr(dtype, "categories") and hasattr(series, "astype"):
        return RawColumn(list(series.astype(object)), text=True)
    _refuse_kind(kind, field)
    if kind in "biuf" and hasattr(series, "isna"):
        missing = np.asarray(series.isna(), dtype=np.bool_)
        plain = np.dtype(getattr(dtype, "numpy_dtype", {"b": "bool", "i": "i8", "u": "u8", "f": "f8"}[kind]))
        if missing.any():
            return RawColumn(np.asarray(series.to_numpy(dtype=plain, na_value=plain.type(0).item())), missing)
        return read_vector(np.asarray(series.to_numpy(dtype=plain)), field)
    if kind in "OU" and hasattr(series, "astype"):
        return RawColumn(list(series.astype(object)), text=str(dtype).startswith(("str", "large_str")))
    return read_vector(np.asarray(series), field)


def _read_arrow(series: Any, field: str) -> RawColumn:
    """Read a column of polars or pyarrow: plain numbers as they are, all else as Python's objects, None where null."""
    is_polars = hasattr(series, "dtype")
    values = np.asarray(series)
    _refuse_kind(values.dtype.kind, field)
    kind = str(series.dtype if is_polars else series.type).lower()
    # A null among integers makes floats of them.
    is_plain = kind.startswith(_FLOATS) or not (series.null_count() if is_polars else series.null_count)
    if is_plain and values.dtype.kind in "biuf":
        return read_vector(values, field)
    return RawColumn(series.to_list() if is_polars else series.to_pylist(), text=kind.startswith(_TEXTS))


def read_vector(values: Array, field: str) -> RawColumn:
    """Read a 1-d array."""
    if isinstance(values, np.ma.MaskedArray):
        values = _unmasked(values)
    if values.dtype.kind in "biuf":
        return RawColumn(plain_array(values))
    _refuse_kind(values.dtype.kind, field)
    return RawColumn(values.tolist())
