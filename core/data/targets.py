"""Labels at the door: what a caller passes as y, as canonical values of the schema's label type.

| type    | canonical | takes, without loss                                            |
|---------|-----------|----------------------------------------------------------------|
| STRING  | str       | text; an integer as its decimal text                           |
| INTEGER | int       | integers of 64 bits; a float that is one                       |
| NUMBER  | float     | finite floats (0.0 for -0.0); integers that float64 holds      |
| BOOLEAN | bool      | true and false; 1 and 0                                        |
| SCALAR  | as it is  | text, integers, finite floats, booleans; 1, 1.0 and true differ |

The targets of a regression are of type NUMBER.
"""

from typing import Any

import numpy as np

from oubli.core.array_types import Array, Reals
from oubli.core.data.tables import COMPLEX, RawColumn, read_series, read_vector
from oubli.core.data.values import INT64, Label, LabelType, canonical_label, is_missing
from oubli.core.errors import DataConversionWarning, InputError, for_scikit_learn, warn_caller

LABEL_MISSING = "must not be missing: give every sample a label"
_RULES = {
    LabelType.STRING: "must be text (an integer is taken as its decimal text)",
    LabelType.INTEGER: "must be an integer of at most 64 bits",
    LabelType.NUMBER: "must be a finite number that float64 holds exactly",
    LabelType.BOOLEAN: "must be true or false (1 and 0 are accepted)",
    LabelType.SCALAR: "must be text, an integer, a finite number, true or false",
}
_FLOAT64_EXACT = 2**53


def read_label_column(y: Any, name: str, *, warn: bool = True) -> RawColumn:
    """Read y, in any shape, as one column; a column vector is read with a warning, if that is wanted.

    Raises
    ------
    InputError
        When y is None or not one value for each sample.
    """
    if y is None:
        raise InputError("requires y to be passed, but the target y is None", field=name)
    if isinstance(y, list):
        return RawColumn(_flat_list(y, name))
    if isinstance(y, tuple):
        return RawColumn(_flat_list(list(y), name))
    if hasattr(y, "toarray"):
        raise InputError("Sparse data was passed, but dense labels are required: use y.toarray().ravel()", field=name)
    if not isinstance(y, np.ndarray) and hasattr(y, "dtype") and hasattr(y, "isna"):
        return read_series(y, name)
    if not hasattr(y, "__array__"):
        raise InputError("y should be a 1d array or a list of labels", field=name)
    array = y if isinstance(y, np.ma.MaskedArray) else np.asarray(y)  # a column of np.matrix has two dimensions
    if array.ndim == 2 and array.shape[1] == 1:
        if warn:
            warn_caller(
                "A column-vector y was passed when a 1d array was expected: use y.ravel()",
                for_scikit_learn(DataConversionWarning),
            )
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"y should be a 1d array, got an array of shape {array.shape} instead", field=name)
    return read_vector(array, name)


def _flat_list(values: list[Any], name: str) -> list[Any]:
    for row, value in enumerate(values):
        if isinstance(value, (list, tuple, dict, set)) or (isinstance(value, np.ndarray) and value.ndim):
            raise InputError("y should be a 1d array: give one label for each row", field=name, row=row)
    return values


def _check_length(raw: RawColumn, n: int, name: str) -> None:
    if len(raw) != n:
        raise InputError(f"X has {n} rows, y has {len(raw)} labels: give one label for each row", field=name)


def encode_targets(y: Any, n: int, name: str = "label") -> Reals:
    """Encode the targets of a regression.

    Returns
    -------
    float64[n], finite, 0.0 for -0.0; shares no memory with y.
    """
    raw = read_label_column(y, name)
    _check_length(raw, n, name)
    values = raw.values
    if isinstance(values, list) or raw.missing is not None or _may_be_inexact(values):
        return np.array(_each(raw, LabelType.NUMBER, name), dtype=np.float64)
    result = values.astype(np.float64)
    if not np.isfinite(result).all():
        row = int(np.argmin(np.isfinite(result)))
        _refuse(result[row].item(), LabelType.NUMBER, row, name)
    result += 0.0
    return result


def _may_be_inexact(values: Array) -> bool:
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8:
        return False
    return bool((values > _FLOAT64_EXACT).any() or (values.dtype.kind == "i" and (values < -_FLOAT64_EXACT).any()))


def encode_labels(y: Any, n: int, label_type: LabelType, name: str = "label") -> list[Label]:
    """Encode the labels of a classification: canonical values of the label's type.

    Raises
    ------
    InputError
        For a label that is missing or does not convert without loss.
    """
    if n == 1 and type(y) is list and len(y) == 1 and _is_canonical(y[0], label_type):
        return y.copy()
    raw = read_label_column(y, name)
    _check_length(raw, n, name)
    values = raw.values
    if isinstance(values, list):
        if label_type is LabelType.STRING and set(map(type, values)) == {str} and all(map(str.isascii, values)):
            return list(values)
        if label_type is LabelType.BOOLEAN and set(map(type, values)) == {bool}:
            return list(values)
    elif raw.missing is None:
        kind = values.dtype.kind
        if label_type is LabelType.BOOLEAN and kind == "b":
            return list(values.tolist())
        if label_type in {LabelType.INTEGER, LabelType.NUMBER} and kind == "b":
            # An array of bools is an array of 0 and 1; only a single true or false is not a number.
            values = values.astype(np.int64)
            raw, kind = RawColumn(values), "i"
        if label_type is LabelType.INTEGER and kind in "iu" and values.dtype != np.uint64:
            return list(values.tolist())
        if label_type is LabelType.NUMBER and kind == "f" and np.isfinite(values).all():
            return list((values.astype(np.float64) + 0.0).tolist())
    return _each(raw, label_type, name)


def _is_canonical(value: Any, label_type: LabelType) -> bool:
    """Whether a label can be seen at once to be what it is held as; false is no verdict."""
    kind = type(value)
    if kind is str:
        return label_type is LabelType.STRING and value.isascii()
    if kind is int:
        return label_type is LabelType.INTEGER and value in INT64
    return kind is bool and label_type is LabelType.BOOLEAN


def _each(raw: RawColumn, label_type: LabelType, name: str) -> list[Label]:
    values = raw.values if isinstance(raw.values, list) else raw.values.tolist()
    result: list[Label] = []
    for row, value in enumerate(values):
        if is_missing(value) or (raw.missing is not None and raw.missing[row]):
            raise InputError(LABEL_MISSING, row=row, field=name)
        label = canonical_label(value, label_type)
        if label is None:
            _refuse(value, label_type, row, name)
        else:
            result.append(label)
    return result


def _refuse(value: Any, label_type: LabelType, row: int, name: str) -> None:
    if is_missing(value):
        raise InputError(LABEL_MISSING, row=row, field=name)
    if isinstance(value, complex):
        raise InputError(COMPLEX, row=row, field=name)
    raise InputError(_RULES[label_type], row=row, field=name, value=value)
