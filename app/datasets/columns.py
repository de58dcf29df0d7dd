"""One column of a file: what type it has, and its values as the sample store takes them.

A CSV column arrives as texts, as they are written (an empty field is null), or as numbers where all of it are plain
ones; a Parquet column has a type of its own.

    text                        becomes
    all numbers                 numeric      float32 or float64, as `oubli.core.data.schema` says; see `fields`
    all dates or times          numeric      days or seconds, which is the column's unit
    all true / false, or t / f  boolean      in any case: TRUE, True, true
    anything else               categorical  the text as it stands; `None`, `NA` and `unknown` are categories

An empty field is missing, `nan` in a column of numbers, and what a `Reading` calls missing. Nothing here knows lines or
files: a refusal is a `ColumnError` with the row, and `oubli.app.datasets.loading` says where that is.

Columns of one length, as an estimator takes them.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from oubli.app.datasets.dialect import Reading
from oubli.app.datasets.fields import (
    AmbiguousDateError,
    Numbers,
    dates_of,
    is_missing_word,
    iso_dates,
    moments_of,
    number,
    number_array,
    numbers_of,
)
from oubli.app.datasets.formulas import is_number
from oubli.core.data.columns import inexact_integers, lost, saturated
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task, float_width
from oubli.core.data.values import (
    DAYS,
    FLOAT64_EXACT,
    NOT_A_MOMENT,
    OF_DAY,
    OF_WEEK,
    SECONDS,
    TOO_LARGE,
    loses_integer,
)

MANY_NUMBERS = 20  # a target with more distinct numbers than this is a quantity, not a set of classes
_MOSTLY = 0.8  # a text column with this share of numbers was probably meant to be numeric

Array = npt.NDArray[Any]
_CSV = Reading()


_NOUGHT, _NO_CODE, _NAN = number(np.int64(0)), number(np.int32(-1)), number(np.float64(np.nan))
_DAY = number(np.float64(86_400))


class ColumnError(Exception):
    """A value that cannot be used: ``row`` counts from 0 (None: the whole column)."""

    def __init__(self, column: str, rule: str, row: int | None = None) -> None:
        super().__init__(rule)
        self.column = column
        self.rule = rule
        self.row = row


@dataclass(frozen=True)
class Note:
    """Something that the user should know about a column, and perhaps change."""

    column: str
    text: str
    row: int | None = None


@dataclass(frozen=True)
class Feature:
    """A column ready for the store: numbers (NaN is missing), or objects (None is missing)."""

    column: Column
    values: Array
    note: Note | None = None
    words: frozenset[str] = frozenset()
    """Words for missing values among its numbers."""
    n_categories: int | None = None


@dataclass(frozen=True)
class Labels:
    """The target, its type and the task that follows from it."""

    values: Array
    type: LabelType
    task: Task


def infer_feature(
    name: str,
    column: pa.ChunkedArray,
    *,
    categorical: bool = False,
    typed: bool = False,
    reading: Reading = _CSV,
) -> Feature:
    """Find the type of a column and convert it.

    Parameters
    ----------
    name : str
        Its name, for messages.
    column : pyarrow.ChunkedArray
        Texts or numbers (from CSV), or typed values (from Parquet).
    categorical : bool
        Declared categorical, whatever it looks like.
    typed : bool
        The file says what is text (Parquet), so text is never read as numbers.
    reading : Reading
        How the file writes numbers and dates.
    """
    kind = column.type
    if name in reading.cycle_units:
        declared = Column(name, ColumnType.NUMERIC, unit=reading.cycle_units[name])
        return Feature(declared, convert_feature(declared, column, reading))
    if categorical:
        values = _texts(name, column)
        return Feature(Column(name, ColumnType.CATEGORICAL), values, n_categories=len(set(values.tolist()) - {None}))
    if pa.types.is_boolean(kind):
        return Feature(Column(name, ColumnType.BOOLEAN), _objects(column))
    if _is_number(kind) or pa.types.is_null(kind):
        return _numeric(name, column)
    if not _is_text(kind):
        moments = None if reading.dates == "no" else moments_of(column)
        if moments is not None:
            return _numeric(name, moments.values, unit=moments.unit)
        return Feature(Column(name, ColumnType.CATEGORICAL), _texts(name, column))
    coded = _encode(column)
    found = _read_texts(name, coded, reading, typed=typed)
    if found is not None:
        words = coded.dictionary.filter(is_missing_word(coded.dictionary)).to_pylist()
        feature = _numeric(name, found.values.take(coded.indices), column, found.unit)
        return replace(feature, words=frozenset(words))
    truth = None if typed else _truth_values(coded.dictionary.to_pylist())
    if truth is not None:
        return Feature(Column(name, ColumnType.BOOLEAN), _take(truth, coded))
    values = _take(coded.dictionary.to_pylist(), coded)
    note = _categorical_note(name, coded)
    return Feature(Column(name, ColumnType.CATEGORICAL), values, note, n_categories=len(coded.dictionary))


def column_of(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column of a table; one without values when the table has none of the name."""
    return table[name] if name in table.column_names else pa.chunked_array([pa.nulls(table.num_rows)])


def _read_texts(name: str, coded: pa.DictionaryArray, reading: Reading, *, typed: bool) -> Numbers | None:
    """Return the numbers that the distinct texts of a column stand for; None: they are texts."""
    try:
        if typed:
            return dates_of(coded.dictionary, reading) if reading.format == "jsonl" else None
        return numbers_of(coded.dictionary, reading)
    except AmbiguousDateError:
        raise ColumnError(name, _AMBIGUOUS) from None


_AMBIGUOUS = (
    "holds dates whose day and month cannot be told apart: say --read dates=day-first or --read dates=month-first, or "
    "--read dates=no for categories"
)


def convert_feature(declared: Column, column: pa.ChunkedArray, reading: Reading | None = None) -> Array:
    """Convert a column to its declared type; without a reading numbers are plain ones, and dates those of ISO 8601.

    Raises
    ------
    ColumnError
        At the first value that the type does not take.
    """
    name = declared.name
    if declared.type is ColumnType.CATEGORICAL:
        return _texts(name, column)
    if declared.type is ColumnType.BOOLEAN:
        return _booleans(name, column, reading)
    return _declared_numbers(declared, column, reading)


def infer_labels(
    name: str, column: pa.ChunkedArray, task: Task | None, *, typed: bool = False, reading: Reading = _CSV
) -> Labels:
    """Find the type of the target, and the task unless it is given.

    Labels with fractions, or more than ``MANY_NUMBERS`` distinct numbers, mean regression.
    """
    _refuse_missing(name, column)
    numbers = None if typed and _is_text(column.type) else _label_numbers(name, column, reading)
    if numbers is None:
        if task is Task.REGRESSION:
            row = _first_bad(column, lambda texts: _written_numbers(texts, reading))
            raise ColumnError(name, "regression needs a number: correct it, or classify (--task classification)", row)
        coded = _encode(column)
        truth = None if typed else _truth_values(coded.dictionary.to_pylist())
        if pa.types.is_boolean(column.type):
            return Labels(_booleans(name, column).astype(bool), LabelType.BOOLEAN, Task.CLASSIFICATION)
        if truth is not None:
            return Labels(_take(truth, coded).astype(bool), LabelType.BOOLEAN, Task.CLASSIFICATION)
        return Labels(_texts(name, column), LabelType.STRING, Task.CLASSIFICATION)
    if task is None:
        fractions = numbers.dtype.kind == "f" and bool((numbers != np.rint(numbers)).any())
        many = len(np.unique(numbers)) > MANY_NUMBERS
        task = Task.REGRESSION if fractions or many else Task.CLASSIFICATION
    if task is Task.REGRESSION:
        return Labels(numbers.astype(np.float64), LabelType.NUMBER, task)
    return Labels(numbers, LabelType.INTEGER if numbers.dtype.kind == "i" else LabelType.NUMBER, task)


def convert_labels(name: str, column: pa.ChunkedArray, kind: LabelType, reading: Reading | None = None) -> Array:
    """Convert the target to its declared type; :class:`ColumnError` at the first label it does not take."""
    _refuse_missing(name, column)
    if kind is LabelType.STRING:
        return _texts(name, column)
    if kind is LabelType.BOOLEAN:
        return _booleans(name, column, reading).astype(bool)
    if kind is LabelType.SCALAR:
        return infer_labels(name, column, Task.CLASSIFICATION).values
    numbers = _label_numbers(name, column, reading)
    if numbers is None:
        row = _first_bad(column, lambda texts: _written_numbers(texts, reading))
        raise ColumnError(name, "the label must be a number: correct it or remove the row", row)
    if kind is LabelType.INTEGER and numbers.dtype.kind == "f":
        fractions = np.flatnonzero(numbers != np.rint(numbers))
        if len(fractions):
            raise ColumnError(name, "the label must be a whole number: correct it or remove the row", int(fractions[0]))
        return numbers.astype(np.int64)
    return numbers if kind is LabelType.INTEGER else numbers.astype(np.float64)


def verbatim(name: str, column: pa.ChunkedArray) -> list[str | None]:
    """Return ids or subjects as text: what the file says, so that "007" stays "007"."""
    kind = column.type
    if not (_is_text(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise ColumnError(name, f"holds {kind} values, ids and subjects are texts or whole numbers: convert the column")
    return list(_plain(column).cast(pa.string()).to_pylist())


# --- numbers


def _numeric(
    name: str, column: pa.ChunkedArray, texts: pa.ChunkedArray | None = None, unit: str | None = None
) -> Feature:
    values = _floats(name, column, texts)
    dtype = _dtype_of(name, column, values, texts)
    note = Note(name, _WIDE) if dtype == "float64" and unit not in NOT_A_MOMENT else None
    return Feature(Column(name, ColumnType.NUMERIC, dtype, unit), values.astype(dtype, copy=False), note)


_WIDE = (
    "is held as float64, because float32 would make distinct numbers equal or change them: --schema decides otherwise"
)


def _written_numbers(texts: pa.Array, reading: Reading | None) -> pa.Array | None:
    """Return the numbers that distinct texts stand for, none of them a date."""
    found = numbers_of(texts, None if reading is None else replace(reading, dates="no"))
    return None if found is None else found.values


def _dtype_of(name: str, column: pa.ChunkedArray, values: Array, texts: pa.ChunkedArray | None) -> str:
    """Return the dtype that a column of numbers needs; `values` are its floats, `texts` its fields.

    Integers that float64 cannot hold are refused, since they may be codes.
    """
    if _is_integer(column.type):
        try:
            integers = _to_numpy(pc.fill_null(pc.cast(column, pa.int64()), _NOUGHT))
        except pa.ArrowInvalid:
            raise ColumnError(name, _TOO_LONG) from None
        too_long = np.flatnonzero(inexact_integers(integers, "float64"))
        if len(too_long):
            raise ColumnError(name, _TOO_LONG, int(too_long[0]))
        return "float64" if inexact_integers(integers, "float32").any() else "float32"
    dtype = float_width(values)
    if texts is not None:
        suspects = np.flatnonzero((np.abs(values) >= FLOAT64_EXACT) & np.isfinite(values))
        for row, text in zip(suspects.tolist(), texts.take(number_array(suspects)).to_pylist(), strict=True):
            digits = text.strip().lstrip("+-")
            if digits.isdigit():
                if loses_integer(int(digits), "float64"):
                    raise ColumnError(name, _TOO_LONG, row)
                dtype = "float64" if loses_integer(int(digits), "float32") else dtype
    return dtype


_TOO_LONG = (
    "the integer has more digits than a number can hold exactly: if the column is a code, declare it with "
    "--categorical or --id, or leave it out with --drop"
)


def _declared_numbers(declared: Column, column: pa.ChunkedArray, reading: Reading | None) -> Array:
    name, unit = declared.name, declared.unit
    numbers: pa.ChunkedArray | pa.Array | None = column
    if _is_text(column.type):
        coded = _encode(column)
        found = _declared_texts(name, coded.dictionary, unit, reading)
        numbers = None if found is None else found.take(coded.indices)
    elif (moments := moments_of(column)) is not None and unit in (*NOT_A_MOMENT, moments.unit):
        numbers = _in_unit(moments, unit)
    elif not (_is_number(column.type) or pa.types.is_null(column.type)):
        raise ColumnError(name, f"holds {column.type} values where the schema has numbers: convert the column")
    if numbers is None:
        row = _first_bad(column, lambda texts: _declared_texts(name, texts, unit, reading))
        rule = NOT_A_MOMENT.get(unit or "", "must be a number")
        raise ColumnError(name, f"{rule}: correct it, or leave the field empty if it is missing", row)
    values = _floats(name, numbers, column)
    if pa.types.is_integer(numbers.type) and (np.abs(values) >= FLOAT64_EXACT).any():
        return _objects(numbers)  # a float may have rounded some of them before the store sees them
    narrow = values if declared.dtype == "float64" else saturated(values, np.float32)
    return values if lost(values, narrow).any() else narrow


def _declared_texts(name: str, texts: pa.Array, unit: str | None, reading: Reading | None) -> pa.Array | None:
    """Return what the distinct texts of a column of numbers stand for."""
    is_dated = unit in NOT_A_MOMENT
    if reading is not None and (reading.dates == "no") is is_dated:
        reading = replace(reading, dates="yes" if is_dated else "no")
    try:
        found = numbers_of(texts, reading)
    except AmbiguousDateError:
        raise ColumnError(name, _AMBIGUOUS) from None
    if found is None and reading is None and is_dated:
        found = iso_dates(texts)
    if found is None or not is_dated or found.unit not in NOT_A_MOMENT:
        return None if found is None else found.values
    return _in_unit(found, unit)


def _in_unit(moments: Numbers, unit: str | None) -> pa.Array | None:
    """Return dates and times as numbers of the unit of a column; None where it needs the time or the date they lack."""
    if moments.unit == unit:
        return moments.values
    if moments.unit not in (DAYS, SECONDS) or (moments.unit, unit) == (DAYS, OF_DAY):
        return None
    values = pc.cast(moments.values, pa.float64())
    if unit == SECONDS:
        return pc.multiply(values, _DAY)
    days = values if moments.unit == DAYS else pc.divide(values, _DAY)
    if unit == DAYS:
        return days
    if unit == OF_DAY:
        return pc.round(pc.subtract(values, pc.multiply(pc.floor(days), _DAY)), 6)
    dates = pc.cast(pc.cast(pc.floor(days), pa.int32()), pa.date32())
    return pc.day_of_week(dates) if unit == OF_WEEK else pc.day_of_year(dates)


def _floats(name: str, column: pa.ChunkedArray, texts: pa.ChunkedArray | None = None) -> Array:
    """Numbers as float64 with NaN for null; infinities are refused, and what the texts say that is too large."""
    values = _to_numpy(pc.fill_null(pc.cast(column, pa.float64(), safe=False), _NAN))
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        rule = "must be a finite number: remove the infinity or leave the field empty"
        raise ColumnError(name, _too_large(texts, int(infinite[0])) or rule, int(infinite[0]))
    return values


def _too_large(texts: pa.ChunkedArray | None, row: int) -> str:
    """Return the rule about the number that a text is, which was read as infinite; empty for other texts."""
    text = texts[row].as_py() if texts is not None and _is_text(texts.type) else ""
    return TOO_LARGE if text.strip().lstrip("+-")[:1].isdigit() else ""


def _label_numbers(name: str, column: pa.ChunkedArray, reading: Reading | None) -> Array | None:
    """The labels as int64 or finite float64, or None when they are not numbers."""
    numbers: pa.ChunkedArray | pa.Array | None = column
    if _is_text(column.type):
        coded = _encode(column)
        found = _written_numbers(coded.dictionary, reading)
        numbers = None if found is None else found.take(coded.indices)
    elif not _is_number(column.type):
        return None
    if numbers is None:
        return None
    if pa.types.is_integer(numbers.type):
        return _to_numpy(pc.cast(numbers, pa.int64()))
    values = plain_floats(numbers)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        rule = "the label must be a finite number: correct it or remove the row"
        raise ColumnError(name, _too_large(column, int(bad[0])) or rule, int(bad[0]))
    return values


# --- texts and truth values


def _texts(name: str, column: pa.ChunkedArray) -> Array:
    """Categories as objects; numbers and truth values stay what they are, the store writes them its own way."""
    kind = column.type
    if _is_text(kind):
        coded = _encode(column)
        return _take(coded.dictionary.to_pylist(), coded)
    if _is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return _objects(column)
    if pa.types.is_temporal(kind):
        return _objects(column.cast(pa.string()))
    raise ColumnError(name, f"holds {kind} values, which no column type takes: drop the column (--drop) or flatten it")


def _booleans(name: str, column: pa.ChunkedArray, reading: Reading | None = None) -> Array:
    if pa.types.is_boolean(column.type) or pa.types.is_null(column.type):
        return _objects(column)
    coded = _encode(_plain(column).cast(pa.string()))
    words = {"true": True, "false": False, "1": True, "0": False} | ({} if reading is None else {"t": True, "f": False})
    for code, text in enumerate(coded.dictionary.to_pylist()):
        if text.lower() not in words:
            raise ColumnError(name, "must be true, false, 1 or 0: correct it", _first_row(coded, code))
    return _take([words[text.lower()] for text in coded.dictionary.to_pylist()], coded)


def _truth_values(texts: list[str]) -> list[bool] | None:
    if sorted(texts) == ["f", "t"]:  # PostgreSQL
        return [text == "t" for text in texts]
    if not texts or not all(text.lower() in ("true", "false") for text in texts):
        return None
    return [text.lower() == "true" for text in texts]


def _categorical_note(name: str, coded: pa.DictionaryArray) -> Note | None:
    texts = coded.dictionary.to_pylist()
    others = [code for code, text in enumerate(texts) if not is_number(text.strip())]
    if len(texts) > MANY_NUMBERS and len(others) <= (1 - _MOSTLY) * len(texts):
        row = _first_row(coded, others[0]) if others else None
        return Note(
            name,
            "is read as categories because not every field is a number: leave the field empty if it is missing",
            row,
        )
    if len(coded) > 5 * MANY_NUMBERS and len(texts) > 0.9 * len(coded):
        return Note(name, "has a different text in nearly every row: if it names the row, use it as --id or --drop it")
    return None


# --- small tools


def _to_numpy(column: pa.ChunkedArray | pa.Array) -> Array:
    """Numbers without nulls as an array of its own."""
    parts = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    kind = column.type.to_pandas_dtype()
    return np.concatenate([np.zeros(0, kind), *(np.from_dlpack(part) for part in parts if len(part))])


def _is_null(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return _to_numpy(pc.cast(pc.is_null(column), pa.uint8())).astype(np.bool_)


def _encode(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Texts as codes into their distinct values: each text is then looked at once."""
    if pa.types.is_dictionary(column.type) and pa.types.is_string(column.type.value_type):
        coded = _chunk(column.unify_dictionaries())
        used = np.bincount(_codes(coded)[_codes(coded) >= 0], minlength=len(coded.dictionary))
        if used.all() and not coded.dictionary.null_count:
            return coded
    return _chunk(_plain(column).cast(pa.string()).dictionary_encode().unify_dictionaries())


def _chunk(column: pa.ChunkedArray) -> pa.DictionaryArray:
    coded = column.combine_chunks()
    return coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded


def _codes(coded: pa.DictionaryArray) -> npt.NDArray[np.int64]:
    return _to_numpy(pc.fill_null(coded.indices, _NO_CODE)).astype(np.int64)


def _take(values: list[Any], coded: pa.DictionaryArray) -> Array:
    return np.array([*values, None], dtype=object)[_codes(coded)]  # the code of a null is -1


def _first_row(coded: pa.DictionaryArray, code: int) -> int:
    return int(np.argmax(_codes(coded) == code))


def _first_bad(column: pa.ChunkedArray, read: Callable[[pa.Array], object]) -> int | None:
    """Return the first row whose text cannot be read: texts come in the order in which they are found."""
    if not _is_text(column.type):
        return None
    coded = _encode(column)
    codes = range(len(coded.dictionary))
    bad = bisect_left(codes, True, key=lambda code: read(coded.dictionary.slice(0, code + 1)) is None)
    return _first_row(coded, bad) if bad in codes else None


def _refuse_missing(name: str, column: pa.ChunkedArray) -> None:
    if column.null_count:
        row = int(np.argmax(_is_null(column)))
        raise ColumnError(name, "the label is missing: fill it in or remove the row", row)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Undo a dictionary encoding that the file brought along."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def plain_floats(column: pa.ChunkedArray) -> Array:
    """Return numbers as float64, NaN for null."""
    floats = pc.cast(column, pa.float64())
    return _to_numpy(pc.fill_null(floats, _NAN))


def _objects(column: pa.ChunkedArray) -> Array:
    return np.array(column.to_pylist(), dtype=object)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0))


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


class Frame:
    """Named columns of one length: the little of a DataFrame that the sample store asks for."""

    def __init__(self, columns: dict[str, Array]) -> None:
        self._columns = columns
        self.columns = list(columns)
        self.dtypes = [values.dtype for values in columns.values()]
        self.shape = (len(next(iter(columns.values()))) if columns else 0, len(columns))

    def __getitem__(self, name: str) -> Array:
        return self._columns[name]

    def __len__(self) -> int:
        return self.shape[0]


def as_input(columns: dict[str, Array], schema: Schema) -> Any:
    """Return what an estimator takes: one matrix where all columns are numbers, a frame of columns otherwise.

    A column can be wider than the schema says: the store rounds it, and says so.
    """
    if any(column.type is not ColumnType.NUMERIC for column in schema.columns):
        return Frame({name: columns[name] for name in schema.names})
    dtype = np.result_type(schema.cell_dtype, *columns.values())
    matrix = np.empty((len(next(iter(columns.values()))), len(columns)), dtype=dtype)
    for index, name in enumerate(schema.names):
        matrix[:, index] = columns.pop(name)
    return matrix
