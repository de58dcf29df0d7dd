"""From X, in any shape, to cells: the matrix of numbers that the algorithms read.

    numeric      the number, rounded to the column's dtype, to its largest beyond its range; -0.0 is 0.0
    boolean      1.0 or 0.0
    categorical  left NaN here and returned as text, since only the store knows codes
    missing      NaN

An error leaves nothing behind and names the first refused cell it finds by row and field. The logger `oubli.numbers`
says which column has rounded an integer, or a number beyond its range, once for each column of a model.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Bools
from oubli.core.concurrency.threads import is_long, run
from oubli.core.data.columns import (
    PLAIN_NUMBERS,
    encode_booleans,
    encode_categories,
    encode_codes,
    inexact_integers,
    lost,
    read_numbers,
    round_numbers,
    scalar_encoder,
)
from oubli.core.data.tables import Frame, Matrix, RawColumn, Rows, only_row, read_table
from oubli.core.data.values import (
    FLOAT32_LIMIT,
    FLOAT64_EXACT,
    MISSING,
    NOT_FINITE,
    ColumnType,
    LookUp,
    RefusedError,
    category_text,
    loses_integer,
)
from oubli.core.errors import FeatureCountError, InputError
from oubli.core.jit.policy import kernel

if TYPE_CHECKING:
    from oubli.core.data.schema import Schema

log = logging.getLogger("oubli.numbers")

# What `convert` reports.
CLEAN = 0
REFUSED = 1  # an infinity
LARGE = 2  # an integer of this magnitude might have been rounded before
LOST = 4  # see `columns.lost`

# Up to so many rows of mixed types are encoded cell by cell rather than column by column.
FEW_ROWS = 16
_CONVERTING = 4e-9  # seconds a cell, roughly
FLOAT32_MAX = float(np.finfo(np.float32).max)


class Encoded(NamedTuple):
    """Rows ready for the store."""

    cells: npt.NDArray[Any]  # float32/64[n, d], C order, NaN in categorical columns
    texts: dict[int, list[str | None]]  # by categorical column: the category of each row


@kernel
def convert(source: npt.NDArray[Any], cells: npt.NDArray[Any], narrow: Bools) -> int:
    """Copy finite numbers from `source` to `cells`, rounded to the dtype of their column; return flags.

    source  float32/64[n, d]
    cells   float32/64[n, d]; one NaN, and 0.0 for -0.0 (rounding can produce it, so it is looked
            for afterwards)
    narrow  bool[d]: whether the column is float32
    """
    flags = CLEAN
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            value = np.float64(source[i, j])  # float32 could not be compared with the limit
            if value != value:
                cells[i, j] = MISSING
                continue
            held = value
            if math.isinf(value):
                flags |= REFUSED
            elif narrow[j]:
                if abs(value) >= FLOAT32_LIMIT:
                    held = np.float64(math.copysign(FLOAT32_MAX, value))
                    flags |= LOST
                else:
                    held = np.float64(np.float32(value))
                if held != value and abs(value) <= FLOAT64_EXACT and (held == 0.0 or value == math.floor(value)):
                    flags |= LOST
            if abs(value) >= FLOAT64_EXACT:
                flags |= LARGE
            cells[i, j] = held
            if held == 0.0:
                cells[i, j] = 0.0
    return flags


@kernel
def is_clean(cells: npt.NDArray[Any]) -> bool:
    """Whether a matrix holds no infinity and no -0.0.

    Without branches within a row, so that the compiler reads several cells at once.
    """
    for i in range(cells.shape[0]):
        odd = 0
        for j in range(cells.shape[1]):
            value = cells[i, j]
            odd |= int(math.isinf(value)) | (int(value == 0.0) & int(math.copysign(1.0, value) < 0.0))
        if odd:
            return False
    return True


class Encoder:
    """Turns X into cells by a schema.

    Parameters
    ----------
    schema : Schema
        The columns.
    owner : str
        Name of the estimator, for messages.
    """

    def __init__(self, schema: "Schema", owner: str = "the model") -> None:
        self.schema = schema
        self.owner = owner
        self.n_features = schema.n_features
        self.cell_dtype = schema.cell_dtype
        self.categorical = tuple(np.flatnonzero(schema.categorical_mask).tolist())
        self._boolean = tuple(j for j, c in enumerate(schema.columns) if c.type is ColumnType.BOOLEAN)
        self.only_numeric = all(c.type is ColumnType.NUMERIC for c in schema.columns)
        self._narrow = np.array([column.dtype == "float32" for column in schema.columns])
        # Whether a clean matrix can be taken as it is: float32 columns in a float64 matrix are rounded all the same.
        self._is_uniform = self.only_numeric and (self.cell_dtype == np.float32 or not self._narrow.any())
        # Whether plain numbers can go into the cells as they are, categories apart.
        self.is_plain = not self._boolean
        self._scalars = [scalar_encoder(column) for column in schema.columns]
        self._names = frozenset(schema.names)
        self.told: set[int] = set()  # columns of which the log has said that they round
        self.n_threads = 1  # that many rows are converted in

    def encode(self, X: Any, look_ups: Mapping[int, LookUp] | None = None) -> Encoded:
        """Encode rows; the cells share no memory with X.

        Parameters
        ----------
        X : 2-d array, DataFrame or list of rows
            Rows are lists in the order of the schema, or all of them mappings by name.
        look_ups : mapping, optional
            By categorical column, what gives the codes of its categories. Columns whose codes are then in the cells
            are left out of the texts; many rows are encoded faster so.

        Raises
        ------
        InputError
            When X has no rows, other features than the schema, or a value that its column refuses.
        """
        if (
            type(X) is np.ndarray
            and X.dtype.char in "fd"
            and X.dtype.isnative
            and X.ndim == 2
            and X.shape[1] == self.n_features
            and self.only_numeric
            and len(X)
        ):
            # What follows would come to the same, only later.
            return Encoded(self._matrix_cells(X), {})
        if isinstance(X, (list, tuple)) and len(X) and isinstance(X[0], Mapping):
            X = list(map(self._ordered, range(len(X)), X))
        encoded = self._encode_row(self.only_row(X))
        if encoded is not None:
            return encoded
        table = read_table(X)
        if isinstance(table, Frame):
            return self._encode_columns(table.n_rows, self._frame_columns(table), look_ups)
        if table.n_columns != self.n_features and not (isinstance(table, Rows) and table.n_rows > 1):
            raise FeatureCountError(table.n_columns, self.n_features, owner=self.owner)
        if isinstance(table, Matrix) and self.only_numeric:
            return Encoded(self._matrix_cells(table.values), {})
        if not isinstance(table, Rows):
            return self._encode_columns(table.n_rows, map(table.column, range(self.n_features)), look_ups)
        odd = table.odd_row(self.n_features)
        if odd is not None:
            same = len(set(map(len, table.values))) == 1
            row = None if same else odd
            raise FeatureCountError(len(table.values[odd]), self.n_features, owner=self.owner, row=row)
        return self._encode_rows(table.values, look_ups)

    def write_plain(self, row: list[Any], cells: npt.NDArray[Any]) -> bool:
        """Write a row of numbers, codes for categories, to `cells` of shape (1, d), blank; False leaves it blank.

        False when the row takes a closer look.
        """
        if not PLAIN_NUMBERS.issuperset(map(type, row)):
            return False
        source = np.empty((1, len(row)))
        try:
            source[0] = row
        except OverflowError:
            return False
        if convert(source, cells, self._narrow) == CLEAN:
            return True
        cells.fill(0)
        return False

    def encode_plain(self, X: Any) -> npt.NDArray[Any] | None:
        """Return X itself when it is a clean matrix already, None when `encode` has to look at it.

        The fast path of queries: nothing is copied, so X must not change while the result is used.
        """
        if (
            type(X) is np.ndarray
            and X.dtype == self.cell_dtype
            and X.ndim == 2
            and X.shape[1] == self.n_features
            and X.flags.carray
            and len(X)
            and self._is_uniform
            and is_clean(X)
        ):
            return X
        return None

    def only_row(self, X: Any) -> Any:
        """Return the only row of X, if that is plain at once; else None."""
        if type(X) is list:
            return X[0] if len(X) == 1 else None
        return only_row(X, self.schema.names) if self.schema.named else None

    def encode_known_row(self, row: Any, codes: Mapping[int, Mapping[str, int]]) -> npt.NDArray[Any] | None:
        """Encode one row of plain values whose categories all have codes; None when `encode` has to look at it.

        Parameters
        ----------
        row : list
            Anything else gives None.
        codes : by categorical column, the code of each category
        """
        if type(row) is not list or len(row) != self.n_features:
            return None
        values = row.copy() if codes else row
        for j, known in codes.items():
            value = values[j]
            if type(value) is str:
                code = known.get(value)
                if code is None:
                    return None
                values[j] = code
            elif value is not None:
                return None
        return self._plain_row(values)

    def _encode_row(self, row: Any) -> Encoded | None:
        """Encode one row of plain values; None when it needs a closer look."""
        if type(row) is not list or len(row) != self.n_features:
            return None
        texts: dict[int, list[str | None]] = {}
        if self.categorical:
            row = row.copy()
            for j in self.categorical:
                value = row[j]
                if value is not None and not (type(value) is str and value.isascii()):
                    return None
                texts[j] = [value]
                row[j] = None
        cells = self._plain_row(row)
        return None if cells is None else Encoded(cells, texts)

    def _plain_row(self, values: list[Any]) -> npt.NDArray[Any] | None:
        """Convert one row of numbers, None for what is missing, and true and false in boolean columns."""
        if self._boolean:
            values = values.copy()
            for j in self._boolean:
                value = values[j]
                if value is not None:
                    if type(value) is not bool:
                        return None
                    values[j] = 1.0 if value else 0.0
        if not PLAIN_NUMBERS.issuperset(map(type, values)):
            return None
        # An array of a list of one list takes twice as long.
        source = np.empty((1, self.n_features))
        try:
            source[0] = values
        except OverflowError:
            return None
        return self._converted(source, (values,))

    def _matrix_cells(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if values.dtype.kind in "biu":
            return self._integer_cells(values)
        if values.dtype.itemsize < 4:
            values = values.astype(np.float32)
        # One layout only, so that the kernel is compiled for one.
        source = values if values.flags.carray else np.array(values, order="C")
        cells = np.empty(source.shape, self.cell_dtype)
        flags = self._convert(source, cells)
        if flags & REFUSED:
            row, j = np.argwhere(np.isinf(source))[0].tolist()
            raise InputError(NOT_FINITE, row=row, field=self.schema.names[j], value=source[row, j].item())
        if flags & LOST:
            self._tell_lost(source, cells)
        return cells

    def _convert(self, source: npt.NDArray[Any], cells: npt.NDArray[Any]) -> int:
        """Convert rows, in threads if they are many."""
        if self.n_threads == 1 or not is_long(_CONVERTING * source.size):
            return int(convert(source, cells, self._narrow))
        flags = CLEAN
        step = -(-len(source) // self.n_threads)
        parts = [slice(start, start + step) for start in range(0, len(source), step)]
        for some in run([partial(convert, source[part], cells[part], self._narrow) for part in parts], self.n_threads):
            flags |= some
        return flags

    def _integer_cells(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if values.dtype.itemsize > 4:
            columns = enumerate(self.schema.columns)
            self._tell({j for j, column in columns if inexact_integers(values[:, j], column.dtype).any()})
        return self._matrix_cells(values.astype(np.float64 if values.dtype.itemsize >= 4 else np.float32))

    def _tell_lost(self, source: npt.NDArray[Any], cells: npt.NDArray[Any]) -> None:
        self._tell(set(np.flatnonzero(lost(source, cells).any(axis=0)).tolist()))

    def _tell(self, columns: set[int]) -> None:
        """Say once of each of these columns that it does not hold all numbers as they came."""
        for j in sorted(columns - self.told):
            column = self.schema.columns[j]
            self.told.add(j)
            log.warning(
                "numbers of column '%s' are rounded to %s, which cannot hold them (this is said once): to keep them as "
                "they are, declare the column float64, or categorical",
                column.name,
                column.dtype,
            )

    def _encode_rows(self, rows: Sequence[Sequence[Any]], look_ups: Mapping[int, LookUp] | None) -> Encoded:
        if self.only_numeric:
            types: set[type] = set()
            for row in rows:
                types.update(map(type, row))
            if types <= PLAIN_NUMBERS:
                cells = self._plain_rows(rows)
                if cells is not None:
                    return Encoded(cells, {})
        if len(rows) > FEW_ROWS:
            columns = (RawColumn(list(column)) for column in zip(*rows, strict=True))
            return self._encode_columns(len(rows), columns, look_ups)
        return self._encode_cells(rows)

    def _plain_rows(self, rows: Sequence[Sequence[Any]]) -> npt.NDArray[Any] | None:
        """Convert rows of Python numbers and None at once; None when one needs a closer look."""
        try:
            source = np.array(rows, dtype=np.float64)
        except OverflowError:
            return None
        return self._converted(source, rows)

    def _converted(self, source: npt.NDArray[np.float64], rows: Sequence[Sequence[Any]]) -> npt.NDArray[Any] | None:
        """Convert numbers that came as Python's `rows`; None when one needs a closer look."""
        cells = np.empty(source.shape, self.cell_dtype)
        flags = convert(source, cells, self._narrow)
        if flags & REFUSED or (flags & LARGE and any(int in map(type, row) for row in rows)):
            return None
        if flags & LOST:
            self._tell_lost(source, cells)
        return cells

    def _encode_cells(self, rows: Sequence[Sequence[Any]]) -> Encoded:
        source: list[float] = []
        texts: dict[int, list[str | None]] = {j: [] for j in self.categorical}
        scalars = self._scalars
        for i, row in enumerate(rows):
            j = 0
            try:
                for value in row:
                    if j in texts:
                        texts[j].append(value if type(value) is str and value.isascii() else category_text(value))
                        source.append(MISSING)
                    else:
                        source.append(scalars[j](value))
                    j += 1
            except RefusedError as refused:
                raise InputError(refused.rule, row=i, field=self.schema.columns[j].name, value=row[j]) from None
        numbers = np.array(source, np.float64).reshape(len(rows), self.n_features)
        cells = np.empty(numbers.shape, self.cell_dtype)
        flags = convert(numbers, cells, self._narrow)
        if flags & LOST:
            self._tell_lost(numbers, cells)
        if flags & LARGE:
            others = (j for j in range(self.n_features) if j not in texts)
            columns = self.schema.columns
            self._tell({j for j in others if any(loses_integer(row[j], columns[j].dtype) for row in rows)})
        return Encoded(cells, texts)

    def _encode_columns(
        self, n_rows: int, columns: Iterable[RawColumn], look_ups: Mapping[int, LookUp] | None
    ) -> Encoded:
        cells = np.empty((n_rows, self.n_features), self.cell_dtype)
        texts: dict[int, list[str | None]] = {}
        for j, (raw, column) in enumerate(zip(columns, self.schema.columns, strict=True)):
            if column.type is ColumnType.CATEGORICAL:
                codes = None if look_ups is None else encode_codes(raw, look_ups[j])
                if codes is None:
                    texts[j] = encode_categories(raw, column)
                    cells[:, j] = MISSING
                else:
                    cells[:, j] = codes
            elif column.type is ColumnType.BOOLEAN:
                cells[:, j] = encode_booleans(raw, column)
            else:
                numbers, has_lost = read_numbers(raw, column)
                cells[:, j] = held = round_numbers(numbers, column)
                if j not in self.told and (has_lost or lost(numbers, held).any()):
                    self._tell({j})
        return Encoded(cells, texts)

    def _frame_columns(self, table: Frame) -> Iterable[RawColumn]:
        names = table.names
        if not self.schema.named or names is None:
            if table.n_columns != self.n_features:
                raise FeatureCountError(table.n_columns, self.n_features, owner=self.owner)
            return map(table.column, range(self.n_features))
        self._check_columns(names)
        position = {name: i for i, name in enumerate(names)}
        absent = RawColumn([None] * table.n_rows)
        return (table.column(position[name]) if name in position else absent for name in self.schema.names)

    def _ordered(self, i: int, row: Any) -> list[Any]:
        """Return the cells of row i, given by name, in the order of the schema."""
        if not isinstance(row, Mapping):
            raise InputError("must be a mapping by feature name, as the first row is", row=i)
        if row.keys() != self._names:
            self._check_columns(row, i)
        return [row.get(name) for name in self.schema.names]

    def _check_columns(self, names: Iterable[str], row: int | None = None) -> None:
        """Refuse names of columns, all of them or those of a row, that are not the schema's, unless it allows that."""
        names, rules = set(names), self.schema
        missing = [name for name in rules.names if name not in names] if rules.missing_columns == "refuse" else []
        unknown = sorted(map(str, names - self._names)) if rules.extra_columns == "refuse" else []
        if missing or unknown:
            raise _names_differ(unknown, missing, row)


def _names_differ(unknown: list[str], missing: list[str], row: int | None) -> InputError:
    """Say which names differ, in the words that users of scikit-learn know."""
    text = "The feature names should match those that were passed during fit.\n"
    if unknown:
        text += "Feature names unseen at fit time:\n" + "".join(f"- {name}\n" for name in unknown)
    if missing:
        text += "Feature names seen at fit time, yet now missing:\n" + "".join(f"- {name}\n" for name in missing)
    remedies = []
    if missing:
        remedies.append(f"add {', '.join(map(repr, missing))}, or have missing_columns='missing' in the schema")
    if unknown:
        remedies.append(f"remove the {len(unknown)} that it does not have, or have extra_columns='ignore' in it")
    rule = f"the columns must be those of the schema: {'; '.join(remedies)}"
    text += rule if row is None else f"row {row}: {rule}"
    return InputError(rule, row=row, field=missing[0] if missing else None, message=text)
