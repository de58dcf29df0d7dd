import numpy as np
import pandas as pd
import pytest

from oubli.core.data.tables import Rows, read_series, read_table
from oubli.core.errors import InputError


@pytest.mark.parametrize(("X", "rows"), [
    ([[1, "a"], [None, 2.5]], [[1, "a"], [None, 2.5]]), (((1, "a"), (None, 2.5)), [[1, "a"], [None, 2.5]]),
    (np.array([[1, "a"], [None, 2.5]], object), [[1, "a"], [None, 2.5]]),
    ([np.array([1.5, 2.0]), pd.Series([3.0, 4.0]), (5, 6)], [[1.5, 2.0], [3.0, 4.0], [5, 6]]),
    (np.array([["a", "1"]]), [["a", "1"]]), (np.array([["a", "1"]], np.dtypes.StringDType()), [["a", "1"]]),
    (np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[0, 1], [0, 0]]), [[1.0, None], [3.0, 4.0]]),
])  # fmt: skip
def test_what_is_read_as_rows(X, rows):
    table = read_table(X)
    assert isinstance(table, Rows)
    assert [list(row) for row in table.values] == rows
    assert (table.n_rows, table.n_columns) == (len(rows), 2)


class Sparse:
    """What scipy's matrices have."""

    def toarray(self):
        return np.ones((2, 2))


@pytest.mark.parametrize(("X", "text"), [
    (np.zeros((0, 3)), "X has no rows: pass at least one"), ([], "X has no rows"),
    (pd.DataFrame({"a": []}), "X has no rows"), (np.ones(3), "Expected 2D array, got 1D array instead"),
    (np.ones(3), r"Reshape your data either using array.reshape\(-1, 1\)"),
    ([1.0, 2.0], "Expected 2D array, got 1D array instead"), (["ab", "cd"], "Expected 2D array, got 1D array instead"),
    (pd.Series([1.0]), "Expected 2D array, got 1D array instead"), (np.float64(1), "scalar array"),
    (np.ones((2, 2, 2)), "dim 3"), (np.ones((2, 2)) * 1j, "Complex data not supported"),
    (np.ones((2, 2, 2)) * 1j, "Complex data not supported"), ([np.ones(2) * 1j], "Complex data not supported"),
    (np.array([["2020-01-01"]], dtype="M8[D]"), "dates or times"), (np.array([[b"a"]]), "bytes"),
    (np.zeros((2, 1), dtype=[("a", "f4")]), "records"), (Sparse(), "[Ss]parse"), ([{"a": 1}], "order of the features"),
    (None, "must be a 2-d array, a DataFrame or a list of rows, not None"), ("text", "not str"),
    ({"a": [1]}, "not dict"), (7, "not int"), ((row for row in [[1]]), "not generator"),
    (pd.DataFrame([[1, 2]], columns=["a", "a"]), "unique.*: 'a'"),
    (pd.DataFrame([[1, 2]], columns=["a", 1]), "must all be text"),
])  # fmt: skip
def test_what_is_no_table_is_refused(X, text):
    with pytest.raises(InputError, match=text):
        read_table(X)


@pytest.mark.parametrize("columns", [[5, 3], pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])])
def test_columns_named_by_numbers_or_in_levels_mean_positions(columns):
    table = read_table(pd.DataFrame([[1, 2], [3, 4]], columns=columns))
    assert table.names is None
    assert table.column(1).values.tolist() == [2, 4]


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
    assert (table.column(0).values.dtype, table.column(1).values) == (np.float32, ["x", None])
