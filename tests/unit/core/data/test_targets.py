import math

import numpy as np
import pandas as pd
import pytest

from oubli.core.data.schema import LabelType
from oubli.core.data.targets import encode_labels, encode_targets, read_label_column
from oubli.core.errors import DataConversionWarning, InputError
from tests.unit.core.data.test_tables import Sparse

STRING, INTEGER, NUMBER, BOOLEAN, SCALAR = (
    LabelType.STRING, LabelType.INTEGER, LabelType.NUMBER, LabelType.BOOLEAN, LabelType.SCALAR,
)  # fmt: skip


def encode(y, label_type, n=None):
    return encode_labels(y, len(y) if n is None else n, label_type, "income")


@pytest.mark.parametrize(("value", "label_type", "expected"), [
    ("a", STRING, "a"), ("", STRING, ""), (np.str_("a"), STRING, "a"), (7, STRING, "7"), (np.int8(7), STRING, "7"),
    (7, INTEGER, 7), (np.uint8(7), INTEGER, 7), (7.0, INTEGER, 7), (-0.0, INTEGER, 0), (np.float32(7), INTEGER, 7),
    (-(2**63), INTEGER, -(2**63)), (2**63 - 1, INTEGER, 2**63 - 1), (1e15, INTEGER, 10**15), (7, NUMBER, 7.0),
    (0.1, NUMBER, 0.1), (-0.0, NUMBER, 0.0), (np.float32(0.5), NUMBER, 0.5), (2**53, NUMBER, 2.0**53),
    (2**100, NUMBER, 2.0**100), (True, BOOLEAN, True), (np.False_, BOOLEAN, False), (1, BOOLEAN, True),
    (0, BOOLEAN, False), (1.0, BOOLEAN, True), (np.int8(0), BOOLEAN, False), (-0.0, BOOLEAN, False), ("a", SCALAR, "a"),
    (7, SCALAR, 7), (7.0, SCALAR, 7.0), (True, SCALAR, True), (np.int8(7), SCALAR, 7), (np.float32(0.5), SCALAR, 0.5),
    (np.True_, SCALAR, True), (-0.0, SCALAR, 0.0),
])  # fmt: skip
def test_labels_that_convert_without_loss(value, label_type, expected):
    for y in ([value], [value] * 3, np.array([value], object), np.array([value]), pd.Series([value])):
        if isinstance(y, (np.ndarray, pd.Series)) and y.dtype.kind == "f" and label_type is SCALAR and value == 7:
            continue  # pandas and NumPy keep the type of 7.0, but not that of 7 among floats
        labels = encode(y, label_type)
        assert labels == [expected] * len(y)
        assert {type(label) for label in labels} == {type(expected)}
        assert not any(isinstance(label, float) and math.copysign(1, label) < 0 for label in labels)


@pytest.mark.parametrize(("value", "label_type"), [
    (1.0, STRING), (1.5, STRING), (True, STRING), (b"a", STRING), ("\ud800", STRING), (2**63, STRING), (["a"], STRING),
    ("7", INTEGER), (7.5, INTEGER), (True, INTEGER), (2**63, INTEGER), (-(2**63) - 1, INTEGER), (1e19, INTEGER),
    (math.inf, INTEGER), ("7", NUMBER), (True, NUMBER), (math.inf, NUMBER), (2**53 + 1, NUMBER), (10**400, NUMBER),
    (2, BOOLEAN), (-1, BOOLEAN), (0.5, BOOLEAN), ("true", BOOLEAN), (1j, SCALAR), (b"a", SCALAR), (2**63, SCALAR),
    (math.inf, SCALAR), ("\ud800", SCALAR), (np.timedelta64(1, "D"), INTEGER), ({1}, SCALAR), (object(), SCALAR),
])  # fmt: skip
def test_labels_that_do_not(value, label_type):
    good = {STRING: "a", INTEGER: 1, NUMBER: 1.0, BOOLEAN: True, SCALAR: "a"}[label_type]
    y = np.empty(2, object)
    y[0], y[1] = good, value
    for labels in (y, list(y), pd.Series(y, dtype=object)):
        with pytest.raises(InputError) as info:
            encode(labels, label_type)
        assert (info.value.row, info.value.field) == (1, "income")


@pytest.mark.parametrize("y", [
    *([1, value] for value in (None, math.nan, np.float32("nan"), pd.NA, pd.NaT)), np.array([1.0, math.nan]),
    pd.array([1, None], dtype="Int64"), pd.Series([1, None], dtype="Int64"), pd.Series(["1", None]),
    pd.Series([1, None], dtype="int64[pyarrow]"), pd.Series([1, None], dtype="category"),
    np.ma.array([1, 2], mask=[False, True]),
])  # fmt: skip
def test_a_missing_label_is_refused(y):
    for label_type in LabelType:
        if label_type is STRING and getattr(y, "dtype", None) == np.float64:
            continue  # 1.0 is refused before
        with pytest.raises(InputError) as info:
            encode(y, label_type)
        assert info.value.field == "income"
        if isinstance(y, list):
            assert info.value.row == 1
            assert "must not be missing: give every sample a label" in str(info.value)
    with pytest.raises(InputError):
        encode_targets(y, 2, "income")


@pytest.mark.parametrize("y", [
    [1.5, 2, -0.0], (1.5, 2, 0), np.array([1.5, 2, -0.0]), np.array([1.5, 2, 0], np.float32), pd.Series([1.5, 2, -0.0]),
    np.array([1.5, 2, 0], object), pd.Series([1.5, 2, 0], dtype="Float64"), [np.float32(1.5), np.int8(2), 0],
])  # fmt: skip
def test_targets_of_a_regression(y):
    targets = encode_targets(y, 3, "price")
    assert (targets.dtype, targets.tolist()) == (np.float64, [1.5, 2.0, 0.0])
    assert not np.signbit(targets).any()
    assert not isinstance(y, np.ndarray) or y.dtype == object or not np.shares_memory(targets, y)


@pytest.mark.parametrize("y", [
    [1, "2"], [1, True], [1, math.inf], [1, None], np.array([1, math.inf]), np.array([1, math.nan]), [1, 2**53 + 1],
    np.array([1, 2**53 + 1]), np.array([1, -(2**53) - 1]), np.array([1, 2**53 + 1], np.uint64), np.array(["1", "2"]),
    pd.Series([1, None], dtype="Float64"),
])  # fmt: skip
def test_targets_that_are_refused(y):
    with pytest.raises(InputError) as info:
        encode_targets(y, 2, "price")
    assert info.value.field == "price"
    assert info.value.row == (0 if getattr(y, "dtype", None) == np.dtype("<U1") else 1)


@pytest.mark.parametrize(("y", "text"), [
    (None, "requires y to be passed, but the target y is None"),
    (np.ones((3, 2)), r"y should be a 1d array, got an array of shape \(3, 2\) instead"),
    (np.ones((3, 1, 1)), "y should be a 1d array"), (np.float64(1), "y should be a 1d array"),
    ([[1], [2], [3]], "y should be a 1d array"), ([1, 2, np.ones(2)], "y should be a 1d array"),
    ("abc", "y should be a 1d array"), ({1, 2, 3}, "y should be a 1d array"), (3, "y should be a 1d array"),
    (Sparse(), "[Ss]parse"), (np.ones(3) * 1j, "Complex data not supported"),
    ([1, 2, 1j], "Complex data not supported"),
    (np.array(["2020"], dtype="M8[Y]").repeat(3), "convert them to numbers"), (np.array([b"a"] * 3), "bytes"),
    ([1, 2], "X has 3 rows, y has 2 labels: give one label for each row"), ([], "X has 3 rows, y has 0 labels"),
])  # fmt: skip
def test_what_is_no_column_of_labels_is_refused(y, text):
    for function in (lambda: encode_labels(y, 3, LabelType.INTEGER, "income"), lambda: encode_targets(y, 3, "income")):
        with pytest.raises(InputError, match=text) as info:
            function()
        assert info.value.field == "income"


def test_a_column_vector_is_taken_with_the_warning_of_scikit_learn():
    for y in (np.array([[1], [2]]), pd.DataFrame({"y": [1, 2]})):
        with pytest.warns(DataConversionWarning, match="A column-vector y was passed when a 1d array was expected"):
            assert read_label_column(y, "label").values.tolist() == [1, 2]


def test_labels_are_copied():
    y = ["a", "b"]
    assert encode(y, STRING) == y
    assert encode(y, STRING) is not y
