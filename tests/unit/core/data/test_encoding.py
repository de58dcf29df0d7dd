import math
import sys
from dataclasses import replace
from decimal import Decimal
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.core.data.columns import encode_booleans, encode_categories, encode_codes, read_numbers, round_numbers
from oubli.core.data.encoding import FEW_ROWS, Encoder
from oubli.core.data.schema import Column, Schema
from oubli.core.data.tables import RawColumn
from oubli.core.data.values import FLOAT32_LIMIT, RefusedError, boolean, category_text, number
from oubli.core.errors import FeatureCountError, InputError

NAN = math.nan


def schema(*types, names=None):
    names = names or [f"x{j}" for j in range(len(types))]
    columns = []
    for name, kind in zip(names, types, strict=True):
        dtype = "float64" if kind == "float64" else "float32"
        columns.append(Column(name, "numeric" if kind.startswith("float") else kind, dtype))
    return Schema(tuple(columns), "classification", "integer", named=names[0] != "x0")


def numeric(d=3, dtype="float32"):
    return Encoder(schema(*[dtype] * d), "Model")


MIXED = Encoder(schema("float32", "boolean", "categorical", "float64", names=["age", "member", "job", "id"]))


def assert_cells(encoded, expected):
    np.testing.assert_array_equal(encoded.cells, np.asarray(expected, encoded.cells.dtype))
    assert encoded.cells.flags.c_contiguous
    zeros = encoded.cells[encoded.cells == 0]
    assert not np.signbit(zeros).any()


# Arrays -------------------------------------------------------------------------------------------

VALUES = np.array([[0.5, -0.0, NAN], [-1.5, 3.0, 2.0**24]])


def read_only(X):
    X.flags.writeable = False
    return X


LAYOUTS = {
    "C": np.array,
    "F": np.asfortranarray,
    "strided": lambda X: np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3],
    "reversed": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": read_only,
    "unaligned": lambda X: np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(X.dtype).reshape(X.shape),
    "masked": np.ma.array,
}


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f4", ">f8", "longdouble"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_float_arrays_of_every_layout(dtype, layout):
    X = LAYOUTS[layout](VALUES.astype(dtype))
    for cells in ("float32", "float64"):
        encoded = numeric(dtype=cells).encode(X)
        assert (encoded.cells.dtype, encoded.texts) == (cells, {})
        assert_cells(encoded, VALUES)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "i4", ">i8", "i8", "u8", "f2"])
def test_small_dtypes(dtype):
    X = np.array([[0, 1, 1], [1, 0, 1]], dtype)
    assert_cells(numeric().encode(X), X)
    assert_cells(numeric().encode(np.asfortranarray(X)), X)


def test_the_input_is_neither_changed_nor_kept():
    for X in (np.ones((2, 3), np.float32), np.array([[-0.0, NAN, 1.0]], np.float32)):
        before = X.tobytes()
        assert not np.shares_memory(numeric().encode(X).cells, X)
        numeric().encode_plain(X)
        assert X.tobytes() == before


def test_there_is_one_nan():
    odd = np.array([0x7FC00001, 0xFFC00000, 0x7F800001], np.uint32).view(np.float32).reshape(1, 3)
    expected = np.full((1, 3), NAN, np.float32).tobytes()
    assert numeric().encode(odd).cells.tobytes() == expected
    with np.errstate(invalid="ignore"):
        assert numeric().encode(odd.astype(np.float64)).cells.tobytes() == expected
    wide = Encoder(schema("float32", "float64", "float32"))
    assert wide.encode(odd).cells.tobytes() == np.full((1, 3), NAN).tobytes()


SHAPES = [np.array, list, pd.DataFrame, lambda X: np.array(X, object), np.asfortranarray]


@pytest.mark.parametrize("value", [math.inf, -math.inf])
@pytest.mark.parametrize("shape", [*SHAPES, partial(np.array, dtype=np.float32)])
def test_an_infinity_is_named_by_row_and_field(value, shape):
    for n_rows in (1, 5, 40):
        X = np.ones((n_rows, 3))
        X[-1, 1] = value
        X = X.tolist() if shape is list else shape(X)
        for types in (["float32"] * 3, ["float64"] * 3, ["float32", "float64", "float32"]):
            with pytest.raises(InputError, match="finite") as info:
                Encoder(schema(*types)).encode(X)
            assert (info.value.row, info.value.field, info.value.value) == (n_rows - 1, "x1", value)


LARGEST = float(np.finfo(np.float32).max)


ROUNDED = [
    (2**24 + 1, 2.0**24), (2.0**24 + 1, 2.0**24), (-(2**24) - 1, -(2.0**24)), (2**60 + 1, 2.0**60),
    (np.int64(2**60 + 1), 2.0**60), (2**60 + 2**30, 2.0**60), (10**400, LARGEST), (-(10**400), -LARGEST),
    (2**128, LARGEST), (1e39, LARGEST), (-FLOAT32_LIMIT, -LARGEST), (1e-60, 0.0), (Decimal(2**60 + 1), 2.0**60),
]  # fmt: skip


@pytest.mark.parametrize("others", [("float32", "float32"), ("float32", "float64"), ("boolean", "float32")])
@pytest.mark.parametrize("n_rows", [1, 5, 40])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_number_that_a_column_cannot_hold_is_rounded_and_the_log_says_so_once(others, n_rows, shape, caplog):
    if shape is pd.DataFrame:
        shape = partial(pd.DataFrame, columns=["a", "b", "c"])
    elif others[0] == "boolean" and shape is np.asfortranarray:
        shape = list
    for value, held in ROUNDED:
        caplog.clear()
        encoder = Encoder(schema(others[0], "float32", others[1], names=["a", "b", "c"]))
        X = shape([[1, 1, 1]] * (n_rows - 1) + [[1, value, 1]])
        for _ in range(2):
            cells = encoder.encode(X).cells
            assert cells[-1].tolist() == [1.0, held, 1.0]
            assert (cells[:-1] == 1).all()
        (record,) = caplog.records
        assert record.name == "oubli.numbers"
        assert "column 'b' are rounded to float32" in record.getMessage()


def test_a_float64_column_rounds_integers_beyond_its_own_bits(caplog):
    encoder = numeric(1, "float64")
    for X in ([[2**53 + 1]], [[2**53 + 1]] * 20, np.array([[2**53 + 1]]), pd.DataFrame([[2**53 + 1]])):
        encoder.told.clear()
        assert (encoder.encode(X).cells == 2.0**53).all()
    assert len(caplog.records) == 4
    assert encoder.encode([[10**400]]).cells.tolist() == [[sys.float_info.max]]


@pytest.mark.parametrize("X", [[[0.1, 2**24]], np.array([[1e30, 1.7e9 + 0.25]]), [[2**100, 3.4e38]]])
def test_other_numbers_are_rounded_without_a_word(X, caplog):
    cells = numeric(2).encode(X).cells
    np.testing.assert_array_equal(cells, np.float32(X))
    assert not caplog.records


def test_a_number_beyond_float32_is_rounded_in_its_column_alone():
    cells = Encoder(schema("float64", "float32")).encode(np.array([[1e39, 1.0], [1e39, 1e39]])).cells
    assert cells.tolist() == [[1e39, 1.0], [1e39, LARGEST]]


# Lists --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("X", "row"), [
    ([[1, 2]], None), ([[1, 2]] * 3, None), (np.ones((2, 2)), None), (np.ones((2, 2), object), None),
    (pd.DataFrame([[1, 2]]), None), ([[]], None), (np.zeros((3, 0)), None), ([[1, 2, 3], [1, 2, 3, 4], [1, 2, 3]], 1),
    ([[1, 2, 3], [1, 2, 3], [1, 2, 3, 4]], 2),
])  # fmt: skip
def test_another_number_of_features_is_refused(X, row):
    with pytest.raises(FeatureCountError) as info:
        numeric().encode(X)
    start = "X has" if row is None else f"row {row} of X has"
    n_given = np.shape(X)[1] if row is None else 4
    assert str(info.value).startswith(f"{start} {n_given} features, but Model is expecting 3 features as input")
    assert info.value.row == row


# Mixed columns ------------------------------------------------------------------------------------


def test_numeric_arrays_for_mixed_columns():
    encoded = MIXED.encode(np.array([[39.0, 1.0, 3.0, 0.1], [NAN, NAN, NAN, NAN], [0.1, -0.0, 2.5, -0.0]]))
    assert_cells(encoded, [[39, 1, NAN, 0.1], [NAN] * 4, [np.float32(0.1), 0, NAN, 0]])
    assert encoded.texts == {2: ["3", None, "2.5"]}
    with pytest.raises(InputError, match="true, false or null") as info:
        MIXED.encode(np.array([[39.0, 1.0, 3.0, 0.1], [39.0, 0.5, 3.0, 0.1]]))
    assert (info.value.row, info.value.field, info.value.value) == (1, "member", 0.5)
    with pytest.raises(InputError, match="finite") as info:
        MIXED.encode(np.array([[39.0, 1.0, 3.0, 0.1], [39.0, 1.0, math.inf, 0.1]]))
    assert (info.value.row, info.value.field) == (1, "job")


cell = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.integers(), st.floats(), st.floats(-4, 4).map(np.float32),
    st.floats(width=32).map(float), st.text(max_size=3),
    st.sampled_from([0, 1, "1", 1.0, True, -0.0, -1e-60, 2**24 + 1, pd.NA]),
    st.integers(-5, 5).map(np.int16), st.just([1]), st.booleans().map(np.bool_),
)  # fmt: skip


def encode_numbers(raw, column):
    return round_numbers(read_numbers(raw, column)[0], column)


def outcome(function, *arguments):
    """Return the result, or what the error says."""
    try:
        return function(*arguments)
    except InputError as error:
        return error.rule, error.row, error.field


@given(st.lists(cell, min_size=1, max_size=5))
def test_columns_are_encoded_as_their_cells_are(values):
    """The vectorised code and the rules for single values agree, on results and on errors."""

    def in_float32(value):
        return np.clip(number(value), -LARGEST, LARGEST).astype(np.float32) + 0.0

    for column, encode, single in (
        (Column("a", "numeric"), encode_numbers, in_float32),
        (Column("a", "numeric", "float64"), encode_numbers, lambda v: number(v) + 0.0),
        (Column("a", "boolean"), encode_booleans, boolean),
        (Column("a", "categorical"), encode_categories, category_text),
    ):
        expected = []
        for row, value in enumerate(values):
            try:
                expected.append(single(value))
            except RefusedError as refused:
                expected = (refused.rule, row, "a")
                break
        actual = outcome(encode, RawColumn(list(values)), column)
        if isinstance(actual, tuple) and isinstance(expected, tuple):
            assert actual[0] == expected[0]  # an earlier check may find a later row
        elif encode is encode_categories:
            assert actual == expected
        else:
            assert actual.dtype == np.float64 or actual.dtype == column.dtype
            np.testing.assert_array_equal(actual, np.array(expected))
            assert not np.signbit(actual[actual == 0]).any()


@given(st.lists(st.tuples(cell, cell, cell, cell), min_size=1, max_size=3))
def test_few_and_many_rows_are_encoded_alike(rows):
    few = outcome(MIXED.encode, rows)
    many = outcome(MIXED.encode, rows * (FEW_ROWS + 1))
    columns = zip(MIXED.schema.names, zip(*rows, strict=True), strict=True)
    frame = outcome(MIXED.encode, pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in columns}))
    for other in (many, frame):
        if isinstance(few, tuple) and not hasattr(few, "cells"):
            assert not hasattr(other, "cells")
            assert other[1] is None or other[1] < len(rows)
        else:
            assert few.cells.tobytes() == other.cells[: len(rows)].tobytes()
            assert {j: texts[: len(rows)] for j, texts in other.texts.items()} == few.texts


CATEGORICAL = Column("a", "categorical")


WIDE = 2**60 + 1  # no float holds it


@pytest.mark.parametrize("X", [
    [[WIDE], [None]], np.array([[WIDE], [None]], object), np.ma.array([[WIDE], [3]], mask=[[False], [True]]),
    pd.DataFrame({"a": pd.Series([WIDE, None], dtype=object)}),
    pd.DataFrame({"a": pd.array([WIDE, None], dtype="Int64")}),
    pd.DataFrame({"a": pd.array([WIDE, None], dtype="int64[pyarrow]")}),
    pd.DataFrame({"a": pd.Categorical([WIDE, None])}),
])  # fmt: skip
def test_an_integer_beside_a_missing_value_stays_what_it_is(X, caplog):
    assert Encoder(schema("categorical")).encode(X).texts == {0: [str(WIDE), None]}
    if isinstance(X, pd.DataFrame) and isinstance(X["a"].dtype, pd.CategoricalDtype):
        return
    with pytest.raises(InputError, match="declare the column categorical"):
        Schema.infer(X, [0, 1], task="classification")
    assert_cells(numeric(1, "float64").encode(X), [[2.0**60], [NAN]])
    assert len(caplog.records) == 1


@pytest.mark.parametrize(("values", "expected"), [
    (["a", None, "a"], ["a", None, "a"]), ([1, 2, 1], ["1", "2", "1"]),
    ([1, "1", 1.0, True, None, 1.5], ["1", "1", "1", "true", None, "1.5"]), ([1.0, 1, True], ["1", "1", "true"]),
    ([True, 1, 1.0], ["true", "1", "1"]), ([0.0, -0.0, False], ["0", "0", "false"]),
    (["a", NAN, pd.NA], ["a", None, None]), ([NAN, float("nan")], [None, None]), (np.array([3, 1, 3]), ["3", "1", "3"]),
    (np.array([1.0, NAN, 2.5]), ["1", None, "2.5"]), (np.array([0.1, NAN], np.float32), ["0.1", None]),
    (np.array([0.1, 2.0], np.float16), ["0.1", "2"]), (np.array([True, False]), ["true", "false"]),
    (np.array([2**64 - 1], np.uint64), ["18446744073709551615"]),
])  # fmt: skip
def test_categories(values, expected):
    assert encode_categories(RawColumn(values), CATEGORICAL) == expected
    if isinstance(values, np.ndarray):
        assert encode_codes(RawColumn(values), len) is None


def test_missing_values_of_a_masked_array():
    missing, wide, truth = np.array([False, True]), Column("a", "numeric", "float64"), Column("a", "boolean")
    for encode, column, values, expected in (
        (encode_numbers, wide, [3, 2**60 + 1], [3, NAN]), (encode_numbers, wide, [0.5, math.inf], [0.5, NAN]),
        (encode_booleans, truth, [1, 7], [1, NAN]), (encode_categories, CATEGORICAL, [3, 0], ["3", None]),
    ):  # fmt: skip
        np.testing.assert_array_equal(encode(RawColumn(np.array(values), missing), column), expected)
    assert encode_categories(RawColumn(np.array([0, 1]), missing & False), CATEGORICAL) == ["0", "1"]


# Frames -------------------------------------------------------------------------------------------


def frame():
    return pd.DataFrame({"age": [39, 40], "member": [True, False], "job": ["clerk", None], "id": [0.1, NAN]})


@pytest.mark.parametrize("types", [
    {}, {"age": "Int64", "member": "boolean", "job": "category", "id": "Float64"},
    {"age": "int64[pyarrow]", "member": "bool[pyarrow]", "job": "string[pyarrow]", "id": "double[pyarrow]"},
    {"age": "float64", "member": "float32", "job": "string", "id": "object"},
    {"age": "uint8", "member": "int8", "job": "object", "id": "Sparse[float64]"},
])  # fmt: skip
def test_frames_of_every_dtype_are_matched_by_name(types):
    encoded = MIXED.encode(frame().astype(types)[["job", "id", "member", "age"]])
    assert_cells(encoded, [[39, 1, NAN, 0.1], [40, 0, NAN, NAN]])
    assert encoded.texts == {2: ["clerk", None]}


def test_other_names_are_listed_in_the_words_of_scikit_learn():
    with pytest.raises(InputError) as info:
        MIXED.encode(frame().rename(columns={"age": "Age", "job": "work"}))
    assert str(info.value) == (
        "The feature names should match those that were passed during fit.\n"
        "Feature names unseen at fit time:\n- Age\n- work\n"
        "Feature names seen at fit time, yet now missing:\n- age\n- job\n" + info.value.rule
    )
    assert info.value.rule == (
        "the columns must be those of the schema: add 'age', 'job', or have missing_columns='missing' in the schema; "
        "remove the 2 that it does not have, or have extra_columns='ignore' in it"
    )
    assert info.value.field == "age"


@pytest.mark.parametrize("form", ["frame", "dictionaries"])
def test_columns_too_many_or_too_few_are_as_the_schema_says(form):
    def table(without=(), **more):
        made = frame().assign(**more).drop(columns=list(without))
        return made if form == "frame" else made.astype(object).where(made.notna(), None).to_dict("records")

    exact = MIXED.encode(table())
    lax = Encoder(replace(MIXED.schema, extra_columns="ignore", missing_columns="missing"))
    for X in (table(), table(other=[1, 2])):
        encoded = lax.encode(X)
        assert_cells(encoded, exact.cells)
        assert encoded.texts == exact.texts
    lacking = lax.encode(table(without=["age", "job"], other=1))
    assert np.isnan(lacking.cells[:, 0]).all()
    assert lacking.texts == {2: [None, None]}
    np.testing.assert_array_equal(lacking.cells[:, [1, 3]], exact.cells[:, [1, 3]])
    extra, few = table(other=[1, 2]), table(without=["age"])
    for rules, refused, accepted in (
        ({}, extra, table()), ({}, few, table()), ({"extra_columns": "ignore"}, few, extra),
        ({"missing_columns": "missing"}, extra, few),
    ):  # fmt: skip
        encoder = Encoder(replace(MIXED.schema, **rules))
        encoder.encode(accepted)
        with pytest.raises(InputError, match="the columns must be those of the schema") as info:
            encoder.encode(refused)
        assert info.value.row == (None if form == "frame" else 0)
        assert "other" not in info.value.rule


def test_a_row_by_name_among_others_is_named_when_it_is_wrong():
    good = {"age": 1, "job": "a", "member": True, "id": 2}
    assert_cells(MIXED.encode([good, dict(reversed(good.items()))]), [[1, 1, NAN, 2]] * 2)
    for wrong, rule, field in (
        ({**good, "more": 1}, "unseen at fit time:\n- more", None),
        ([1, True, "a", 2], "a mapping by feature name", None),
        ({**good, "age": "x"}, "must be a number", "age"),
    ):
        with pytest.raises(InputError, match=rule) as info:
            MIXED.encode([good, wrong])
        assert (info.value.row, info.value.field) == (1, field)


# The fast path of queries -------------------------------------------------------------------------


class Subclass(np.ndarray):
    pass


CLEAN = np.ones((2, 3), np.float32)
WIDE_CLEAN = CLEAN.astype(np.float64)


@pytest.mark.parametrize("X", [
    WIDE_CLEAN, CLEAN.astype(">f4"), np.asfortranarray(CLEAN), CLEAN[:, ::-1], CLEAN[0], CLEAN[:0], CLEAN[:, :2],
    CLEAN.view(Subclass), CLEAN.tolist(), pd.DataFrame(CLEAN), np.ma.array(CLEAN),
    np.array([[1, 2, math.inf]], np.float32), np.array([[1, 2, -0.0]], np.float32), read_only(CLEAN.copy()),
])  # fmt: skip
def test_only_a_clean_matrix_of_the_dtype_of_all_columns_is_used_as_it_is(X):
    assert numeric().encode_plain(X) is None
    assert Encoder(schema("float32", "boolean", "float32")).encode_plain(CLEAN) is None
    assert Encoder(schema("float32", "float64", "float32")).encode_plain(WIDE_CLEAN) is None
    clean = np.array([[1.0, NAN, 0.0]], np.float32)
    assert numeric().encode_plain(clean) is clean
    assert numeric(dtype="float64").encode_plain(WIDE_CLEAN) is WIDE_CLEAN
