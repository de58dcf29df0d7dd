import math
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.core.data.columns import (
    encode_booleans,
    encode_categories,
    encode_codes,
    inexact_integers,
    read_numbers,
    round_numbers,
)
from oubli.core.data.encoding import FEW_ROWS, Encoder
from oubli.core.data.schema import Column, Schema
from oubli.core.data.tables import RawColumn
from oubli.core.data.values import FLOAT32_LIMIT, RefusedError, boolean, category_text, loses_integer, number
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


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f4", ">f8", "longdouble"])
@pytest.mark.parametrize("cells", ["float32", "float64"])
@pytest.mark.parametrize("layout", ["C", "F", "strided", "reversed", "read-only", "unaligned", "masked"])
def test_float_arrays_of_every_layout(dtype, cells, layout):
    X = VALUES.astype(dtype)
    if layout == "F":
        X = np.asfortranarray(X)
    elif layout == "strided":
        X = np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]
    elif layout == "reversed":
        X = X[::-1, ::-1].copy()[::-1, ::-1]
    elif layout == "read-only":
        X.flags.writeable = False
    elif layout == "unaligned":
        X = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(X.dtype).reshape(X.shape)
    elif layout == "masked":
        X = np.ma.array(X)
    encoded = numeric(dtype=cells).encode(X)
    assert encoded.cells.dtype == cells
    assert encoded.texts == {}
    assert_cells(encoded, VALUES)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "i4", ">i8", "i8", "u8", "f2"])
def test_small_dtypes(dtype):
    X = np.array([[0, 1, 1], [1, 0, 1]], dtype)
    assert_cells(numeric().encode(X), X)
    assert_cells(numeric().encode(np.asfortranarray(X)), X)


def test_cells_share_no_memory_with_the_input():
    X = np.ones((2, 3), np.float32)
    assert not np.shares_memory(numeric().encode(X).cells, X)


def test_input_is_not_changed():
    X = np.array([[-0.0, NAN, 1.0]], np.float32)
    before = X.tobytes()
    numeric().encode(X)
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


def test_rounding_can_make_a_negative_zero_which_becomes_zero():
    assert_cells(numeric(1).encode(np.array([[-1e-60]])), [[0.0]])
    assert_cells(numeric(1).encode([[-1e-60]]), [[0.0]])


def test_a_float32_column_is_rounded_next_to_a_float64_one():
    encoder = Encoder(schema("float32", "float64"))
    for X in (np.array([[0.1, 0.1]]), [[0.1, 0.1]], [(0.1, 0.1)] * 20, pd.DataFrame([[0.1, 0.1]])):
        cells = encoder.encode(X).cells
        assert cells.dtype == np.float64
        assert cells[0].tolist() == [float(np.float32(0.1)), 0.1]


SHAPES = [np.array, list, pd.DataFrame, lambda X: np.array(X, object), np.asfortranarray]


@pytest.mark.parametrize("value", [math.inf, -math.inf])
@pytest.mark.parametrize("n_rows", [1, 5, 40])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_infinity_is_named_by_row_and_field(value, n_rows, shape):
    X = np.ones((n_rows, 3))
    X[-1, 1] = value
    with pytest.raises(InputError, match="finite") as info:
        numeric().encode(shape(X) if shape is not list else X.tolist())
    assert (info.value.row, info.value.field, info.value.value) == (n_rows - 1, "x1", value)


LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("others", [("float32", "float32"), ("float32", "float64"), ("boolean", "float32")])
@pytest.mark.parametrize(
    ("value", "held"),
    [
        (2**24 + 1, 2.0**24), (2.0**24 + 1, 2.0**24), (-(2**24) - 1, -(2.0**24)), (2**60 + 1, 2.0**60),
        (np.int64(2**60 + 1), 2.0**60), (2**60 + 2**30, 2.0**60), (10**400, LARGEST), (-(10**400), -LARGEST),
        (2**128, LARGEST), (1e39, LARGEST), (-FLOAT32_LIMIT, -LARGEST), (1e-60, 0.0), (Decimal(2**60 + 1), 2.0**60),
    ],
)  # fmt: skip
@pytest.mark.parametrize("n_rows", [1, 5, 40])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_number_that_a_column_cannot_hold_is_rounded_and_the_log_says_so_once(
    value, held, others, n_rows, shape, caplog
):
    if others[0] == "boolean" and shape is np.asfortranarray:
        shape = list
    encoder = Encoder(schema(others[0], "float32", others[1], names=["a", "b", "c"]))
    rows = [[1, 1, 1] for _ in range(n_rows)]
    rows[-1][1] = value
    if shape is pd.DataFrame:
        X = pd.DataFrame(rows, columns=["a", "b", "c"])
    else:
        X = rows if shape is list else shape(rows)
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


def test_infinity_is_refused_in_float32_arrays_and_float64_columns():
    X = np.array([[1, 2, math.inf]], np.float32)
    for dtype in ("float32", "float64"):
        with pytest.raises(InputError, match="finite"):
            numeric(dtype=dtype).encode(X)
    with pytest.raises(InputError, match="finite"):
        Encoder(schema("float32", "float64")).encode(np.array([[math.inf, 1.0]]))
    cells = Encoder(schema("float64", "float32")).encode(np.array([[1e39, 1.0], [1e39, 1e39]])).cells
    assert cells.tolist() == [[1e39, 1.0], [1e39, LARGEST]]


@pytest.mark.parametrize("dtype", ["i8", "u8", "i4", "u4"])
def test_integers_that_float32_cannot_hold_are_rounded(dtype, caplog):
    X = np.array([[1, 2**24], [2**24 + 1, 1]], dtype)
    assert_cells(numeric(2).encode(X), [[1, 2**24], [2**24, 1]])
    (record,) = caplog.records
    assert "column 'x0'" in record.getMessage()
    assert_cells(numeric(2, "float64").encode(X), X)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8), st.sampled_from(["float32", "float64"]))
def test_inexact_integers_of_arrays_and_of_objects_are_the_same(values, dtype):
    values += [2**24 + 1, -(2**63), 2**63 - 1, 2**53 + 1, 2**53 + 2]

    def refused(value):
        return loses_integer(value, dtype)

    assert inexact_integers(np.array(values), dtype).tolist() == [refused(v) for v in values]
    unsigned = [abs(v) * 2 for v in values if abs(v) < 2**63]
    assert inexact_integers(np.array(unsigned, np.uint64), dtype).tolist() == [refused(v) for v in unsigned]
    small = np.array([v % 2**32 - 2**31 for v in values], np.int32)
    assert inexact_integers(small, dtype).tolist() == [refused(v) for v in small.tolist()]


# Lists --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "X", [[[1, 2]], [[1, 2]] * 3, np.ones((2, 2)), np.ones((2, 2), object), pd.DataFrame([[1, 2]])]
)
def test_another_number_of_features_is_refused_in_the_words_of_scikit_learn(X):
    with pytest.raises(
        FeatureCountError, match=r"^X has 2 features, but Model is expecting 3 features as input"
    ) as info:
        numeric().encode(X)
    assert info.value.row is None


@pytest.mark.parametrize("row", [1, 2])
def test_one_row_of_another_length_is_named(row):
    rows = [[1, 2, 3] for _ in range(3)]
    rows[row] = [1, 2, 3, 4]
    with pytest.raises(FeatureCountError, match=f"row {row} of X has 4 features") as info:
        numeric().encode(rows)
    assert info.value.row == row


def test_rows_of_no_features_are_refused():
    with pytest.raises(FeatureCountError):
        numeric().encode([[]])
    with pytest.raises(FeatureCountError):
        numeric().encode(np.zeros((3, 0)))


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
        st.sampled_from([0, 1, "1", 1.0, True, -0.0, 2**24 + 1, pd.NA]),
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
    for column, encode, single in (
        (
            Column("a", "numeric"),
            encode_numbers,
            lambda v: np.clip(number(v), -LARGEST, LARGEST).astype(np.float32) + 0.0,
        ),
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
    frame = outcome(
        MIXED.encode,
        pd.DataFrame(
            {n: pd.Series(c, dtype=object) for n, c in zip(MIXED.schema.names, zip(*rows, strict=True), strict=True)}
        ),
    )
    for other in (many, frame):
        if isinstance(few, tuple) and not hasattr(few, "cells"):
            assert not hasattr(other, "cells")
            assert other[1] is None or other[1] < len(rows)
        else:
            assert few.cells.tobytes() == other.cells[: len(rows)].tobytes()
            assert {j: texts[: len(rows)] for j, texts in other.texts.items()} == few.texts


@given(
    st.lists(st.lists(st.floats(), min_size=2, max_size=2), min_size=1, max_size=4),
    st.sampled_from(["float32", "float64"]),
)
def test_arrays_and_lists_of_floats_are_encoded_alike(rows, dtype):
    encoder = numeric(2, dtype)
    results = [outcome(encoder.encode, X) for X in (rows, np.array(rows), np.asfortranarray(rows), pd.DataFrame(rows))]
    if isinstance(results[0], tuple) and not hasattr(results[0], "cells"):
        assert all(not hasattr(result, "cells") for result in results)
        assert all(result[0] in {results[0][0], *(r[0] for r in results)} for result in results)
    else:
        assert len({result.cells.tobytes() for result in results}) == 1


CATEGORICAL = Column("a", "categorical")


@given(st.lists(st.one_of(cell, st.sampled_from(["a", "b", None, NAN])), min_size=1, max_size=8))
def test_codes_are_those_of_the_texts(values):
    """The quick way gives the codes of the texts that the other way gives, or leaves the column to it."""
    asked = []

    def look_up(value):
        asked.append(value)
        return len(value)

    codes = encode_codes(RawColumn(values), look_up)
    if all(type(value) is str or value is None or (type(value) is float and value != value) for value in values):
        texts = outcome(encode_categories, RawColumn(values), CATEGORICAL)
        if isinstance(texts, tuple):
            assert codes is None
        else:
            np.testing.assert_array_equal(codes, [NAN if text is None else len(text) for text in texts])
            assert sorted(asked) == sorted({text for text in texts if text is not None})
    else:
        assert codes is None


WIDE = 2**60 + 1  # no float holds it


@pytest.mark.parametrize(
    "X",
    [
        [[WIDE], [None]], np.array([[WIDE], [None]], object), np.ma.array([[WIDE], [3]], mask=[[False], [True]]),
        pd.DataFrame({"a": pd.Series([WIDE, None], dtype=object)}),
        pd.DataFrame({"a": pd.array([WIDE, None], dtype="Int64")}),
        pd.DataFrame({"a": pd.array([WIDE, None], dtype="int64[pyarrow]")}),
        pd.DataFrame({"a": pd.Categorical([WIDE, None])}),
    ],
)  # fmt: skip
def test_an_integer_beside_a_missing_value_stays_what_it_is(X, caplog):
    assert Encoder(schema("categorical")).encode(X).texts == {0: [str(WIDE), None]}
    if isinstance(X, pd.DataFrame) and isinstance(X["a"].dtype, pd.CategoricalDtype):
        return
    with pytest.raises(InputError, match="declare the column categorical"):
        Schema.infer(X, [0, 1], task="classification")
    assert_cells(numeric(1, "float64").encode(X), [[2.0**60], [NAN]])
    assert len(caplog.records) == 1


def test_numbers_as_categories_are_left_to_the_other_way():
    assert encode_codes(RawColumn(np.array([1.0, 2.0])), len) is None
    assert encode_codes(RawColumn(["a", ["a"]]), len) is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["a", None, "a"], ["a", None, "a"]),
        ([1, 2, 1], ["1", "2", "1"]),
        ([1, "1", 1.0, True, None, 1.5], ["1", "1", "1", "true", None, "1.5"]),
        ([1.0, 1, True], ["1", "1", "true"]),
        ([True, 1, 1.0], ["true", "1", "1"]),
        ([0.0, -0.0, False], ["0", "0", "false"]),
        (["a", NAN, pd.NA], ["a", None, None]),
        ([NAN, float("nan")], [None, None]),
        (np.array([3, 1, 3]), ["3", "1", "3"]),
        (np.array([1.0, NAN, 2.5]), ["1", None, "2.5"]),
        (np.array([0.1, NAN], np.float32), ["0.1", None]),
        (np.array([0.1, 2.0], np.float16), ["0.1", "2"]),
        (np.array([True, False]), ["true", "false"]),
        (np.array([2**64 - 1], np.uint64), ["18446744073709551615"]),
    ],
)
def test_categories(values, expected):
    assert encode_categories(RawColumn(values), CATEGORICAL) == expected


def test_missing_categories_of_a_masked_array():
    raw = RawColumn(np.array([3, 0, 3]), np.array([False, True, False]))
    assert encode_categories(raw, CATEGORICAL) == ["3", None, "3"]
    assert encode_categories(RawColumn(np.array([0, 1]), np.array([False, False])), CATEGORICAL) == ["0", "1"]


def test_missing_numbers_and_booleans_of_a_masked_array():
    missing = np.array([False, True])
    wide = Column("a", "numeric", "float64")
    np.testing.assert_array_equal(encode_numbers(RawColumn(np.array([3, 2**60 + 1]), missing), wide), [3, NAN])
    np.testing.assert_array_equal(encode_numbers(RawColumn(np.array([0.5, math.inf]), missing), wide), [0.5, NAN])
    boolean_column = Column("a", "boolean")
    np.testing.assert_array_equal(encode_booleans(RawColumn(np.array([1, 7]), missing), boolean_column), [1, NAN])


# Frames -------------------------------------------------------------------------------------------


def frame():
    return pd.DataFrame({"age": [39, 40], "member": [True, False], "job": ["clerk", None], "id": [0.1, NAN]})


EXPECTED = [[39, 1, NAN, 0.1], [40, 0, NAN, NAN]]


def test_columns_are_matched_by_name_whatever_their_order():
    shuffled = frame()[["job", "id", "member", "age"]]
    encoded = MIXED.encode(shuffled)
    assert_cells(encoded, EXPECTED)
    assert encoded.texts == {2: ["clerk", None]}


@pytest.mark.parametrize(
    "types",
    [
        {"age": "Int64", "member": "boolean", "job": "category", "id": "Float64"},
        {"age": "int64[pyarrow]", "member": "bool[pyarrow]", "job": "string[pyarrow]", "id": "double[pyarrow]"},
        {"age": "float64", "member": "float32", "job": "string", "id": "object"},
        {"age": "uint8", "member": "int8", "job": "object", "id": "Sparse[float64]"},
    ],
)
def test_frames_of_every_dtype(types):
    encoded = MIXED.encode(frame().astype(types))
    assert_cells(encoded, EXPECTED)
    assert encoded.texts == {2: ["clerk", None]}


def test_other_names_are_listed_in_the_words_of_scikit_learn():
    with pytest.raises(InputError) as info:
        MIXED.encode(frame().rename(columns={"age": "Age", "job": "work"}))
    assert str(info.value) == (
        "The feature names should match those that were passed during fit.\n"
        "Feature names unseen at fit time:\n- Age\n- work\n"
        "Feature names seen at fit time, yet now missing:\n- age\n- job\n"
    )
    assert info.value.rule == (
        "the columns must be those of the schema: add 'age', 'job': remove the 2 that the schema does not have"
    )
    assert info.value.field == "age"


def test_a_name_too_many_or_too_few():
    with pytest.raises(InputError, match=r"unseen at fit time:\n- b\n$"):
        MIXED.encode(frame().assign(b=1))
    with pytest.raises(InputError, match=r"yet now missing:\n- job\n$"):
        MIXED.encode(frame().drop(columns="job"))


def test_names_do_not_matter_when_the_schema_has_none():
    encoder = numeric(2)
    X = pd.DataFrame({"b": [1.0], "a": [2.0]})
    assert_cells(encoder.encode(X), [[1, 2]])
    with pytest.raises(FeatureCountError):
        encoder.encode(X[["a"]])


def test_a_named_schema_takes_arrays_and_unnamed_frames_by_position():
    named = Encoder(schema("float32", "float32", names=["a", "b"]))
    assert_cells(named.encode(np.array([[1.0, 2.0]])), [[1, 2]])
    assert_cells(named.encode(pd.DataFrame([[1.0, 2.0]])), [[1, 2]])


def test_a_frame_of_times_is_refused_by_name():
    with pytest.raises(InputError, match="convert them to numbers") as info:
        MIXED.encode(frame().assign(age=pd.Timestamp("2020-01-01")))
    assert info.value.field == "age"


# The fast path of queries -------------------------------------------------------------------------


def test_a_clean_matrix_is_not_copied():
    X = np.array([[1.0, NAN, 0.0]], np.float32)
    assert numeric().encode_plain(X) is X
    wide = X.astype(np.float64)
    assert numeric(dtype="float64").encode_plain(wide) is wide


class Subclass(np.ndarray):
    pass


CLEAN = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    "X",
    [
        CLEAN.astype(np.float64), CLEAN.astype(">f4"), np.asfortranarray(CLEAN), CLEAN[:, ::-1], CLEAN[0], CLEAN[:0],
        CLEAN[:, :2], CLEAN.view(Subclass), CLEAN.tolist(), pd.DataFrame(CLEAN), np.ma.array(CLEAN),
        np.array([[1, 2, math.inf]], np.float32), np.array([[1, 2, -0.0]], np.float32),
    ],
)  # fmt: skip
def test_everything_else_takes_the_long_way(X):
    assert numeric().encode_plain(X) is None


def test_a_read_only_matrix_takes_the_long_way():
    X = CLEAN.copy()
    X.flags.writeable = False
    assert numeric().encode_plain(X) is None


def test_other_columns_take_the_long_way():
    assert Encoder(schema("float32", "boolean", "float32")).encode_plain(CLEAN) is None
    assert Encoder(schema("float32", "float64", "float32")).encode_plain(CLEAN.astype(np.float64)) is None
