"""From one column, in any shape, to the numbers or texts that a column of its type holds."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from oubli.core.array_types import Array, Bools
from oubli.core.data.tables import RawColumn
from oubli.core.data.values import (
    FLOAT32_BITS,
    FLOAT32_EXACT,
    FLOAT32_LIMIT,
    FLOAT64_BITS,
    FLOAT64_EXACT,
    MISSING,
    NOT_A_BOOLEAN,
    NOT_A_MOMENT,
    NOT_FINITE,
    Column,
    ColumnType,
    Distinct,
    LookUp,
    RefusedError,
    boolean,
    category_text,
    loses_integer,
    moment,
    number,
    require_utf8,
)
from oubli.core.errors import InputError

PLAIN_NUMBERS = frozenset({float, int, type(None)})
_TEXTS = frozenset({str, type(None)})
_BOOLEANS = frozenset({bool, type(None)})

_T = TypeVar("_T")


def scalar_encoder(column: Column) -> Callable[[Any], float]:
    """Return the function that converts one cell of a numeric or boolean column."""
    if column.type is ColumnType.BOOLEAN:
        return boolean
    return partial(moment, unit=column.unit) if column.unit in NOT_A_MOMENT else _number


def _number(value: Any) -> float:
    kind = type(value)
    if (kind is int or kind is float) and -FLOAT64_EXACT <= value <= FLOAT64_EXACT:
        return float(value)
    return number(value)


def _each(values: Iterable[Any], convert_value: Callable[[Any], _T], column: Column) -> list[_T]:
    """Convert value by value; the error names the first that is refused."""
    result = []
    try:
        for value in values:
            result.append(convert_value(value))
    except RefusedError as refused:
        raise InputError(refused.rule, row=len(result), field=column.name, value=value) from None
    return result


def inexact_integers(values: Array, dtype: str) -> Bools:
    """Tell which integers of an array a float dtype cannot hold exactly."""
    if values.dtype.kind == "b" or values.dtype.itemsize < 4:
        return np.zeros(values.shape, np.bool_)
    bits = FLOAT32_BITS if dtype == "float32" else FLOAT64_BITS
    if values.dtype.kind == "i":
        # abs wraps at the most negative int64, whose bits are then 2**63 unsigned, as they should be.
        magnitude = np.abs(values.astype(np.int64)).view(np.uint64)
    else:
        magnitude = values.astype(np.uint64)
    result = magnitude > np.uint64(2**bits)
    if result.any():
        large = magnitude[result]
        # What remains after removing trailing zero bits is the mantissa.
        result[result] = large // (large & (~large + np.uint64(1))) >= np.uint64(2**bits)
    return result


def saturated(values: Array, dtype: Any) -> Array:
    """Round floats to another dtype; a finite number beyond its range becomes the largest that it has."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        result = values.astype(dtype)
        beyond = np.isinf(result) & np.isfinite(values)
    if beyond.any():
        result[beyond] = np.copysign(np.finfo(result.dtype).max, values[beyond])
    return result


def lost(values: Array, held: Array) -> Bools:
    """Tell which floats are rounded to what is not nearly the same: integers, and numbers beyond float32's range.

    Beyond 2**53 every float is an integer, by accident.

    Parameters
    ----------
    values : float32/64[...]
    held : float32/64[...]
        The same, `saturated`.
    """
    changed: Bools = held != values
    if not changed.any():
        return changed
    size = np.abs(values, dtype=np.float64)
    whole = (values == np.floor(values)) & (size <= FLOAT64_EXACT)
    changed &= whole | (held == 0) | (size >= FLOAT32_LIMIT)
    return changed


def round_numbers(values: Array, column: Column) -> Array:
    """Round floats to the column's dtype, with one NaN and no -0.0; InputError for an infinity."""
    result = saturated(values, column.dtype)
    infinite = np.isinf(result)
    if infinite.any():
        row = int(np.argmax(infinite))
        raise InputError(NOT_FINITE, row=row, field=column.name, value=values[row].item())
    result[np.isnan(result)] = MISSING
    result += 0.0
    return result


def canonical_cells(columns: Sequence[Column], cells: Array) -> Array:
    """Return cells as `round_numbers` makes them: one NaN, no -0.0, numbers of each column's precision.

    Parameters
    ----------
    columns : sequence of Column
    cells : float32/64[n, d] without infinities
        Returned as it is when there is nothing to change, which takes a pass over it.
    """
    bits = cells.view(np.uint32 if cells.dtype.itemsize == 4 else np.uint64)
    missing = np.array(MISSING, cells.dtype).view(bits.dtype)
    is_other = (np.isnan(cells) & (bits != missing)) | (np.signbit(cells) & (cells == 0))
    changed = set(np.flatnonzero(is_other.any(axis=0)).tolist())
    if cells.dtype.itemsize == 8:
        for j, column in enumerate(columns):
            if column.dtype == "float32":
                with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                    values = cells[:, j]
                    if (np.float64(np.float32(values)) != values)[~np.isnan(values)].any():
                        changed.add(j)
    if not changed:
        return cells
    result = cells.copy()
    for j in changed:
        result[:, j] = round_numbers(cells[:, j], columns[j])
    return result


def read_numbers(raw: "RawColumn", column: Column) -> tuple[Array, bool]:
    """Return the numbers of a column as floats, and whether some of them are integers that its dtype cannot hold."""
    values, missing = raw.values, raw.missing
    if isinstance(values, list):
        types = set(map(type, values))
        if types <= PLAIN_NUMBERS:
            try:
                source = np.array(values, dtype=np.float64)
            except OverflowError:
                pass
            else:
                large = np.flatnonzero(np.abs(source) > FLOAT32_EXACT).tolist() if int in types else ()
                return source, any(loses_integer(values[row], column.dtype) for row in large)
        source = np.array(_each(values, scalar_encoder(column), column), dtype=np.float64)
        return source, any(loses_integer(value, column.dtype) for value in values)
    if values.dtype.kind == "f":
        return (values if missing is None else np.where(missing, MISSING, values)), False
    inexact = inexact_integers(values, column.dtype)
    source = values.astype(np.float64)
    if missing is not None:
        source[missing] = MISSING
        inexact &= ~missing
    return source, bool(inexact.any())


def encode_booleans(raw: "RawColumn", column: Column) -> Array:
    """Encode a boolean column."""
    values, missing = raw.values, raw.missing
    if isinstance(values, list):
        if set(map(type, values)) <= _BOOLEANS:
            return np.array(values, dtype=np.float64)
        return np.array(_each(values, boolean, column), dtype=np.float64)
    result = values.astype(np.float64)
    if missing is not None:
        result[missing] = MISSING
    refused = (result != 0.0) & (result != 1.0) & ~np.isnan(result)
    if refused.any():
        row = int(np.argmax(refused))
        raise InputError(NOT_A_BOOLEAN, row=row, field=column.name, value=raw.value(row))
    result += 0.0
    return result


def encode_categories(raw: "RawColumn", column: Column) -> list[str | None]:
    """Encode a categorical column: the text of each row's category, None when missing."""
    values, missing = raw.values, raw.missing
    if isinstance(values, list):
        types = set(map(type, values))
        if not types <= _TEXTS and len(types - {type(None)}) > 1:
            # Different types can be equal as keys (1 and True), so each value is looked at.
            return _each(values, category_text, column)
        return _by_distinct(values, column)
    distinct, inverse = np.unique(values, return_inverse=True)
    present = list(distinct) if values.dtype.itemsize < 8 and values.dtype.kind == "f" else distinct.tolist()
    if missing is not None and missing.any():
        present.append(None)
        inverse = np.where(missing, len(present) - 1, inverse)
    try:
        texts = list(map(category_text, present))
    except RefusedError:
        return _each(values.tolist(), category_text, column)  # raises the error, with its row
    return list(map(texts.__getitem__, inverse.tolist()))


def encode_codes(raw: "RawColumn", look_up: LookUp) -> Array | None:
    """Encode a categorical column of texts, None and NaN as codes; None when `encode_categories` has to look at it.

    One pass over the values, which a column of texts takes three of.
    """
    if not isinstance(raw.values, list):
        return None

    def code_of(value: Any) -> float:
        if type(value) is str:
            require_utf8(value)
            return float(look_up(value))
        if value is None or (type(value) is float and value != value):
            return MISSING
        raise KeyError(value)

    try:
        return np.fromiter(map(Distinct(code_of).__getitem__, raw.values), np.float64, len(raw.values))
    except (KeyError, RefusedError, TypeError):  # TypeError: not hashable
        return None


def _by_distinct(values: list[Any], column: Column) -> list[str | None]:
    """Convert each distinct value once; all values are of one type, or None."""
    try:
        return list(map(Distinct(category_text).__getitem__, values))
    except (RefusedError, TypeError):  # refused, or not even hashable
        return _each(values, category_text, column)  # raises the error, with its row
