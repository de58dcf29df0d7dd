import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import _NotAnArray

from oubli.core.data.tables import Frame, Matrix, Rows, read_series, read_table, read_vector
from oubli.core.errors import InputError


def column(table, j):
    return table.column(j).values


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint64, np.float16, np.float32, np.float64])
def test_an_array_of_numbers_is_a_matrix(dtype):
    X = np.array([[0, 1], [1, 0], [1, 1]], dtype=dtype)
    table = read_table(X)
    assert isinstance(table, Matrix)
    assert (table.n_rows, table.n_columns) == (3, 2)
    assert table.values is X
    np.testing.assert_array_equal(column(table, 1), X[:, 1])


def test_wide_floats_and_foreign_byte_orders_become_plain():
    for dtype in (np.longdouble, ">f4", ">i8", ">u2"):
        table = read_table(np.array([[1, 2]], dtype=dtype))
        assert isinstance(table, Matrix)
        assert table.values.dtype.isnative
        assert table.values.dtype.itemsize <= 8
        assert table.values.tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("X", "rows"),
    [
        ([[1, "a"], [None, 2.5]], [[1, "a"], [None, 2.5]]), (((1, "a"), (None, 2.5)), [[1, "a"], [None, 2.5]]),
        (np.array([[1, "a"], [None, 2.5]], object), [[1, "a"], [None, 2.5]]),
        ([np.array([1.5, 2.0]), pd.Series([3.0, 4.0]), (5, 6)], [[1.5, 2.0], [3.0, 4.0], [5, 6]]),
        (np.array([["a", "1"]]), [["a", "1"]]), (np.array([["a", "1"]], np.dtypes.StringDType()), [["a", "1"]]),
        (np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[0, 1], [0, 0]]), [[1.0, None], [3.0, 4.0]]),
    ],
)  # fmt: skip
def test_what_is_read_as_rows(X, rows):
    table = read_table(X)
    assert isinstance(table, Rows)
    assert [list(row) for row in table.values] == rows
    assert (table.n_rows, table.n_columns) == (len(rows), 2)


def test_odd_rows_are_found():
    assert Rows([[1, 2], [3, 4]]).odd_row(2) is None
    assert Rows([[1, 2], [3], []]).odd_row(2) == 1
    assert Rows([[1], [2]]).odd_row(2) == 0


def test_array_likes_and_masked_arrays():
    assert isinstance(read_table(_NotAnArray(np.ones((2, 3)))), Matrix)
    assert isinstance(read_table(np.ma.array([[1.0, 2.0]])), Matrix)
    assert read_vector(np.ma.array([1, 2], mask=[True, False]), "x").values == [None, 2]


class Sparse:
    """What scipy's matrices have."""

    def toarray(self):
        return np.ones((2, 2))


@pytest.mark.parametrize(
    ("X", "text"),
    [
        (np.zeros((0, 3)), "X has no rows: pass at least one"), ([], "X has no rows"),
        (pd.DataFrame({"a": []}), "X has no rows"), (np.ones(3), "Expected 2D array, got 1D array instead"),
        (np.ones(3), r"Reshape your data either using array.reshape\(-1, 1\)"),
        ([1.0, 2.0], "Expected 2D array, got 1D array instead"),
        (["ab", "cd"], "Expected 2D array, got 1D array instead"),
        (pd.Series([1.0]), "Expected 2D array, got 1D array instead"), (np.float64(1), "scalar array"),
        (np.ones((2, 2, 2)), "dim 3"), (np.ones((2, 2)) * 1j, "Complex data not supported"),
        (np.ones((2, 2, 2)) * 1j, "Complex data not supported"), ([np.ones(2) * 1j], "Complex data not supported"),
        (np.array([["2020-01-01"]], dtype="M8[D]"), "dates or times"), (np.array([[b"a"]]), "bytes"),
        (np.zeros((2, 1), dtype=[("a", "f4")]), "records"), (Sparse(), "[Ss]parse"),
        ([{"a": 1}], "order of the features"), (None, "must be a 2-d array, a DataFrame or a list of rows, not None"),
        ("text", "not str"), ({"a": [1]}, "not dict"), (7, "not int"), ((row for row in [[1]]), "not generator"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "unique.*: 'a'"),
        (pd.DataFrame([[1, 2]], columns=["a", 1]), "must all be text"),
    ],
)  # fmt: skip
def test_what_is_no_table_is_refused(X, text):
    with pytest.raises(InputError, match=text):
        read_table(X)


def test_frames_are_read_by_column():
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
    table = read_table(frame)
    assert isinstance(table, Frame)
    assert (table.n_rows, table.n_columns, table.names) == (2, 2, ["a", "b"])
    assert column(table, 0).tolist() == [1, 2]
    assert column(table, 1)[0] == "x"


@pytest.mark.parametrize("columns", [[5, 3], pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])])
def test_columns_named_by_numbers_or_in_levels_mean_positions(columns):
    table = read_table(pd.DataFrame([[1, 2], [3, 4]], columns=columns))
    assert table.names is None
    assert column(table, 1).tolist() == [2, 4]


@pytest.mark.parametrize(
    ("dtype", "values", "kind", "plain"),
    [
        ("int64", [1, 2], "i", [1, 2]), ("Int64", [1, None], "i", [1, 0]), ("Int8", [1, 2], "i", [1, 2]),
        ("UInt64", [2**64 - 1, None], "u", [2**64 - 1, 0]), ("Float64", [1.5, None], "f", [1.5, 0]),
        ("Float32", [1.5, 2.0], "f", [1.5, 2.0]), ("boolean", [True, None], "b", [True, False]),
        ("boolean", [True, False], "b", [True, False]), ("Sparse[float64]", [1.5, 2.0], "f", [1.5, 2.0]),
        ("int64[pyarrow]", [1, None], "i", [1, 0]), ("uint8[pyarrow]", [1, 2], "u", [1, 2]),
        ("double[pyarrow]", [1.5, None], "f", [1.5, 0]), ("bool[pyarrow]", [True, None], "b", [True, False]),
    ],
)  # fmt: skip
def test_series_of_numbers(dtype, values, kind, plain):
    raw = read_series(pd.Series(values, dtype=dtype), "x")
    assert raw.values.dtype.kind == kind
    assert raw.values.tolist() == plain
    assert (raw.missing is not None) == (None in values)
    if raw.missing is not None:
        assert raw.missing.tolist() == [value is None for value in values]
    assert raw.value(0) == values[0]
    assert len(raw) == 2


@pytest.mark.parametrize(
    ("dtype", "values", "text"),
    [
        ("category", ["a", None], True), ("category", [1, 2], True), ("str", ["a", None], True),
        ("string", ["a", None], True), ("string[pyarrow]", ["a", None], True),
        ("large_string[pyarrow]", ["a", None], True), ("object", ["a", None], False), ("object", [1, None], False),
    ],
)  # fmt: skip
def test_series_of_objects(dtype, values, text):
    raw = read_series(pd.Series(values, dtype=dtype), "x")
    assert isinstance(raw.values, list)
    assert raw.values[0] == values[0]
    assert raw.text is text


@pytest.mark.parametrize("dtype", ["M8[ns]", "m8[ns]", "datetime64[ns, UTC]", "timestamp[ns][pyarrow]"])
def test_series_of_times_are_refused_by_name(dtype):
    with pytest.raises(InputError, match="convert them to numbers") as info:
        read_series(pd.Series([0], dtype="i8").astype(dtype), "born")
    assert info.value.field == "born"


def test_a_frame_by_duck_typing_needs_columns_dtypes_and_items():
    class Plain:
        columns = ("a", "b")
        dtypes = (np.dtype("f4"), np.dtype("O"))

        def __len__(self):
            return 2

        def __getitem__(self, name):
            return {"a": np.ones(2, np.float32), "b": np.array(["x", None], object)}[name]

    table = read_table(Plain())
    assert column(table, 0).dtype == np.float32
    assert column(table, 1) == ["x", None]
