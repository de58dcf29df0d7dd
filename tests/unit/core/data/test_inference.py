import math
from decimal import Decimal
from functools import partial

import numpy as np
import pandas as pd
import pytest

from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.errors import FeatureCountError, InputError

NUMERIC, CATEGORICAL, BOOLEAN = ColumnType.NUMERIC, ColumnType.CATEGORICAL, ColumnType.BOOLEAN
WIDE = ("numeric", "float64")


def infer(X, y=None, task=Task.CLASSIFICATION, **options):
    n = len(X)
    return Schema.infer(X, [0] * n if y is None else y, task=task, **options)


def types(schema):
    return [c.type if c.dtype == "float32" else (str(c.type), c.dtype) for c in schema.columns]


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int64, np.uint64, np.float16, np.float32, np.float64])
def test_an_array_has_one_type_of_columns(dtype):
    schema, kind = infer(np.zeros((3, 2), dtype)), BOOLEAN if dtype is np.bool_ else NUMERIC
    assert schema.columns == (Column("x0", kind), Column("x1", kind))
    assert not schema.named


@pytest.mark.parametrize(("values", "expected"), [
    ([0.1, 0.2], NUMERIC), ([2**24, 2**24 + 2], NUMERIC), ([2**24, 2**24 + 1], WIDE), ([-(2**24) - 1], WIDE),
    ([2**63], NUMERIC), ([1e39], WIDE), ([-1e39, 0.5], WIDE), ([3.4e38], NUMERIC), ([math.inf, math.nan, 1.0], NUMERIC),
    ([16777217.0, math.nan], WIDE), ([16777217.0, 0.5], WIDE), ([16777217.5, 0.5], NUMERIC),
    ([16777217.25, 16777217.5], WIDE), ([1.7e9 + i + 0.25 for i in range(300)], WIDE),
    ([i / 10 for i in range(3000)], NUMERIC), ([1e-50, 3e-50], WIDE), ([1e-50, 1.0], WIDE), ([1e-40, 1.0], NUMERIC),
    ([1e300, 1e301], WIDE), ([2.0**60 + 2**20, 1.0], NUMERIC), ([2.0**60 + 2**20, 2.0**60], WIDE),
    ([math.nan], NUMERIC),
])  # fmt: skip
@pytest.mark.parametrize("shape", [np.array, list, lambda values: np.array(values, object)])
def test_the_width_of_numbers(values, expected, shape):
    X = shape(values)
    X = [[v] for v in X] if isinstance(X, list) else X.reshape(-1, 1)
    assert types(infer(X)) == [expected]


@pytest.mark.parametrize(("values", "expected"), [
    ([1, 2.5, None], NUMERIC), ([None, None], NUMERIC), ([Decimal("1.5"), 2], NUMERIC), ([1, math.inf], NUMERIC),
    ([np.int8(1), np.float32(2)], NUMERIC), ([Decimal("0.1"), Decimal("0.2")], NUMERIC), ([True, False], BOOLEAN),
    ([True, None, np.False_], BOOLEAN), ([True, 1], CATEGORICAL), (["a", "b"], CATEGORICAL), (["1", "2"], CATEGORICAL),
    (["a", 1, True, None, 2.5], CATEGORICAL), ([2**60 + 2**30, None], WIDE), ([Decimal(2**24 + 1), None], WIDE),
    ([2**128, 0.5], WIDE),
])  # fmt: skip
def test_columns_of_objects(values, expected):
    rows = [[0.5, v] for v in values]
    assert types(infer(rows)) == [NUMERIC, expected]
    assert types(infer(np.array(rows, object))) == [NUMERIC, expected]
    assert types(infer(pd.DataFrame({"a": 0.5, "b": pd.Series(values, dtype=object)}))) == [NUMERIC, expected]


@pytest.mark.parametrize("value", [{"foo": "bar"}, [1], 1j, b"a", "\ud800", pd.Timestamp("2020-01-01"), object()])
def test_cells_of_no_type_are_refused_by_row_and_field(value):
    with pytest.raises(InputError) as info:
        infer([[1, "a"], [2, value]])
    assert (info.value.row, info.value.field) == (1, "x1")


FRAME_OF_ALL = [
    ("f8", [0.1, 0.2], NUMERIC), ("f4", np.array([0.1, 0.2], np.float32), NUMERIC), ("i8", [1, 2], NUMERIC),
    ("large", [2**24 + 1, 1], WIDE), ("gaps", [16777217.0, None], WIDE),
    ("Int64", pd.array([2**24 + 1, None], dtype="Int64"), WIDE), ("Int8", pd.array([1, None], dtype="Int8"), NUMERIC),
    ("Float64", pd.array([0.1, None], dtype="Float64"), NUMERIC), ("bool", [True, False], BOOLEAN),
    ("boolean", pd.array([True, None], dtype="boolean"), BOOLEAN), ("str", ["a", None], CATEGORICAL),
    ("string", pd.array(["a", None], dtype="string"), CATEGORICAL),
    ("nothing as text", pd.array([None, None], dtype="string"), CATEGORICAL),
    ("category", pd.Categorical(["a", None]), CATEGORICAL), ("numbers", pd.Categorical([1, 2]), CATEGORICAL),
    ("flags", pd.Categorical([True, False]), CATEGORICAL), ("objects", pd.Series([1, None], dtype=object), NUMERIC),
]  # fmt: skip


def test_a_frame():
    schema = infer(pd.DataFrame({name: values for name, values, _ in FRAME_OF_ALL}))
    assert schema.named
    assert list(zip(schema.names, types(schema), strict=True)) == [(name, kind) for name, _, kind in FRAME_OF_ALL]


def test_distinct_values_that_are_rare_are_found():
    values = np.zeros(60_000)
    values[[20_000, 50_000]] = 1.0, 1.0 + 1e-9
    assert types(infer(values.reshape(-1, 1))) == [WIDE]
    values[50_000] = 1.0 + 1e-6
    assert types(infer(values.reshape(-1, 1))) == [NUMERIC]


@pytest.mark.parametrize("values", [[2**53 + 1], [None, 10**400], [0.5, 2**60 + 1], [Decimal(2**60 + 1)]])
@pytest.mark.parametrize("shape", [list, lambda rows: np.array(rows, object), partial(pd.DataFrame, dtype=object)])
def test_an_integer_that_float64_cannot_hold_is_refused_unless_the_dtype_is_declared(values, shape):
    X = shape([[value] for value in values])
    with pytest.raises(InputError, match="declare the column categorical, or its dtype") as info:
        infer(X)
    assert (info.value.row, info.value.value) == (len(values) - 1, values[-1])
    assert types(infer(X, dtype="float64")) == [WIDE]


@pytest.mark.parametrize(("dtype", "expected"), [
    (None, [NUMERIC, WIDE]), ("float32", [NUMERIC, NUMERIC]), (np.float64, [WIDE, WIDE]),
    ({"b": "float32"}, [NUMERIC, NUMERIC]), ({0: np.dtype("f8"), "b": "f4"}, [WIDE, NUMERIC]),
])  # fmt: skip
def test_a_dtype_is_declared_for_all_columns_or_by_name_or_position(dtype, expected):
    frame = pd.DataFrame({"a": [1, 2], "b": [2**24, 2**24 + 1], "c": ["x", "y"]})
    assert types(infer(frame, dtype=dtype)) == [*expected, CATEGORICAL]


@pytest.mark.parametrize(("options", "text"), [
    *(({"dtype": dtype}, "float32") for dtype in ("int", "float16", 7, {"a": "wide"})),
    ({"dtype": {"d": "float32"}}, "does not have"), ({"dtype": {3: "float32"}}, "from 0 to 2"),
    ({"dtype": {1.0: "float32"}}, "names or"), ({"dtype": {"c": "float32"}}, "only a column of numbers"),
    *(({"categorical_features": [place]}, "from 0 to 2") for place in (3, -1)),
    *(({"categorical_features": spec}, "names or positions") for spec in ([1.0], [True, 1], [None])),
    ({"categorical_features": ["d"]}, "does not have"), ({"categorical_features": [True, False]}, "3 entries"),
    ({"categorical_features": "a"}, "must be a list"), ({"task": "ranking"}, "'classification', 'regression'"),
])  # fmt: skip
def test_options_that_are_refused(options, text):
    frame = pd.DataFrame({"a": [1, 2], "b": [1, 2], "c": ["x", "y"]})
    with pytest.raises(InputError, match=text):
        infer(frame, **options)


def test_the_log_says_which_columns_are_float64(caplog):
    infer(pd.DataFrame({"narrow": [1], "first": [2**24 + 1], "declared": [2**24 + 1]}), dtype={"declared": "float64"})
    (record,) = caplog.records
    assert record.name == "oubli.numbers"
    assert "first" in record.getMessage()
    assert not {"narrow", "declared"} & set(record.getMessage().split("'"))
    assert str(2**24 + 1) not in record.getMessage()
    caplog.clear()
    infer([[0.1, 0.2]])
    assert not caplog.records


FRAME = pd.DataFrame({"a": [1.0], "b": [2.0], "c": [3.0]})


@pytest.mark.parametrize(("spec", "expected"), [
    (None, ""), ([], ""), ([0, 2], "ac"), (["b"], "b"), (("c", 0), "ac"), (np.array([1]), "b"), ({"a"}, "a"),
    ([True, False, True], "ac"), (np.array([False, True, False]), "b"), (pd.Series(["a"]), "a"), ([1, 1], "b"),
])  # fmt: skip
def test_declared_categories(spec, expected):
    schema = infer(FRAME, categorical_features=spec)
    assert "".join(c.name for c in schema.columns if c.type is CATEGORICAL) == expected


def test_declared_categories_of_an_array_are_named_by_position_and_hold_any_number():
    assert types(infer(np.zeros((1, 2)), categorical_features=["x1"])) == [NUMERIC, CATEGORICAL]
    assert types(infer([[2**70 + 1]], categorical_features=[0])) == [CATEGORICAL]


@pytest.mark.parametrize(("y", "expected"), [
    ([0, 1], "integer"), (np.array([0, 1], np.uint8), "integer"), ([np.int64(1), 2], "integer"),
    ([2**70, 1], "integer"), ([0.0, 1.0], "number"), (np.array([0.0, 1.0]), "number"), ([0, 1.0], "number"),
    (np.array([0, 1], object), "integer"), ([True, False], "boolean"), (np.array([True]).repeat(2), "boolean"),
    (["a", "b"], "string"), (np.array(["a", "b"]), "string"), (pd.Series(["a", "b"]), "string"),
    (pd.Series(["a", "b"], dtype="category"), "string"), (pd.Series([1, 2], dtype="category"), "integer"),
    (pd.Series([1, 2], dtype="Int64"), "integer"), (pd.Series([True, False], dtype="boolean"), "boolean"),
    (["a", 1], "scalar"), ([True, 1], "scalar"), (["a", 2.5], "scalar"), ([None, "a"], "string"),
    ([None, 1], "integer"),
])  # fmt: skip
def test_types_of_classes(y, expected):
    assert infer(np.zeros((2, 1)), y).label_type == expected


@pytest.mark.parametrize("y", [[0.5, 1.0], np.array([0.5, 1.0]), [0, 0.5], pd.Series([0.5, None])])
def test_fractions_are_no_classes(y):
    with pytest.raises(InputError, match="Unknown label type: continuous"):
        infer(np.zeros((2, 1)), y)


def test_a_regression_has_numbers():
    schema = infer(np.zeros((2, 1)), [1, 2], task="regression", label_name="price")
    assert (schema.task, schema.label_type, schema.label_name) == (Task.REGRESSION, LabelType.NUMBER, "price")


def test_rows_of_different_lengths_are_refused():
    with pytest.raises(FeatureCountError, match="row 1 of X has 3 features") as info:
        infer([[1, 2], [1, 2, 3]])
    assert info.value.row == 1
