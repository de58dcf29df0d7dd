"""Tables of other libraries: every column is matched by its name."""

import datetime
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from oubli.core import DynamicForestClassifier
from oubli.core.data.tables import read_table
from oubli.core.errors import DataConversionWarning, InputError


def exchanged(protocol: str) -> Callable[[pd.DataFrame], Any]:
    """Make tables that have one protocol only, as those of libraries that `tables` does not know."""
    return lambda frame: type("Table", (), {protocol: staticmethod(getattr(arrow(frame), protocol))})()


def arrow(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


LIBRARIES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "table": arrow,
    "batch": lambda frame: pa.RecordBatch.from_pandas(frame, preserve_index=False),
    "reader": lambda frame: arrow(frame).to_reader(),
    "polars": lambda frame: pl.from_arrow(arrow(frame)),
    "capsule": exchanged("__arrow_c_stream__"),
    "interchange": exchanged("__dataframe__"),
}


def mixed() -> pd.DataFrame:
    return pd.DataFrame({
        "size": np.linspace(-1, 1, 20), "colour": ["red", "blue", None, "red", "blue"] * 4,
        "count": pd.array([1, None, 3, 2**24 + 1, 5] * 4, dtype="Int64"), "large": [0.0, 100.0] * 10,
    })  # fmt: skip


@pytest.mark.parametrize("library", LIBRARIES)
def test_columns_are_matched_by_name_in_every_library(library: str) -> None:
    X, make = mixed(), LIBRARIES[library]
    y = np.where(X["size"] > 0, "big", "small")
    expected = DynamicForestClassifier(3, random_state=0).fit(X, y)
    model = DynamicForestClassifier(3, random_state=0).fit(make(X), y)
    assert (model.schema_, model.feature_names_in_.tolist()) == (expected.schema_, list(X.columns))
    assert model.digest() == expected.digest()
    turned = X[["large", "count", "colour", "size"]]
    assert np.array_equal(model.predict_proba(make(turned)), expected.predict_proba(X))
    assert np.array_equal(model.predict_proba(make(turned.iloc[:1])), expected.predict_proba(X.iloc[:1]))
    assert model.score(make(turned), y) == expected.score(X, y)
    model.add(make(turned.iloc[:2]), y[:2])
    expected.add(X.iloc[:2].reset_index(drop=True), y[:2])
    assert model.digest() == expected.digest()
    for other, part in (
        (X.drop(columns="count"), "yet now missing:\n- count"),
        (X.assign(more=1.0), "unseen at fit time:\n- more"),
        (X.rename(columns={"size": "width"}), "unseen at fit time:\n- width"),
    ):
        for call in (model.predict, lambda table: model.add(table, y)):
            with pytest.raises(InputError, match=part):
                call(make(other))


def test_repeated_names_are_refused_in_every_library() -> None:
    table = pa.table([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    for X in (table, table.to_batches()[0], table.to_reader(), pd.DataFrame([[1.0, 2.0]], columns=["a", "a"])):
        with pytest.raises(InputError, match="column names must be unique, these are repeated: 'a'"):
            read_table(X)


def test_a_query_is_refused_with_what_to_do() -> None:
    model = DynamicForestClassifier(1).fit([[0.0], [1.0]], ["a", "b"])
    for call in (model.predict, lambda X: model.add(X, ["a"]), lambda X: model.fit(X, ["a"])):
        with pytest.raises(InputError, match=r"X is not computed yet: pass X.collect\(\)"):
            call(pl.LazyFrame({"x0": [1.0]}))


def test_a_table_that_only_pyarrow_reads_is_refused_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    table = LIBRARIES["capsule"](mixed())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="install pyarrow, or pass a pandas or polars DataFrame"):
        read_table(table)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_a_numpy_matrix_is_an_array() -> None:
    X, y = np.arange(12.0).reshape(6, 2), [1, 0] * 3
    forest = DynamicForestClassifier(2, random_state=0)
    for values in (X, X.astype(int), X > 5):
        for named in (None, [0]):
            expected = forest.fit(values, y, categorical_features=named).copy()
            assert forest.fit(np.matrix(values), y, categorical_features=named).digest() == expected.digest()
            assert np.array_equal(forest.predict_proba(np.matrix(values)), expected.predict_proba(values))
    with pytest.warns(DataConversionWarning):
        forest.fit(X, np.matrix(y).T)
    assert forest.fit(np.matrix([["a", 1.0], ["b", 2.0]], dtype=object), ["x", "y"]).n_features_in_ == 2


DATE, MOMENT = datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(("column", "rule"), [
    (pa.array([DATE, None]), "holds dates or times"), (pa.array([MOMENT, None]), "holds dates or times"),
    (pa.array([b"a", None]), "must be text, a number"), (pa.array([[1], None]), "must be text, a number"),
    (pa.array([2**60 + 1, None]), "is an integer that float64 cannot hold"),
])  # fmt: skip
def test_what_no_column_can_hold_is_refused_in_arrow_too(column: pa.Array, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        DynamicForestClassifier(1).fit(pa.table({"a": column}), ["x", "y"])


@pytest.mark.parametrize(("column", "kind", "values"), [
    (pa.array([None, None]), "numeric", [None, None]), (pa.array([1, None]), "numeric", [1, None]),
    (pa.array([None, None], pa.string()), "categorical", [None, None]),
    (pa.array([None, None], pa.large_string()), "categorical", [None, None]),
    (pa.array([True, None]), "boolean", [True, None]), (pa.array([1, 2], pa.uint8()), "numeric", [1, 2]),
    (pa.DictionaryArray.from_arrays([0, None], ["p"]), "categorical", ["p", None]),
    (pa.DictionaryArray.from_arrays([0, None], [5]), "categorical", ["5", None]),
    (pl.Series([2**60 + 1, None, 2**60]), None, [str(2**60 + 1), None, str(2**60)]),
    (pl.Series([0.1, None], dtype=pl.Float32), None, ["0.1", None]),
    (pl.Series([None, None], dtype=pl.String), "categorical", [None, None]),
    (pl.Series(["a", None], dtype=pl.Categorical), "categorical", ["a", None]),
    (pl.Series([2**24 + 1, None]), "numeric", [2**24 + 1, None]), (pl.Series([True, None]), "boolean", [True, None]),
])  # fmt: skip
def test_values_of_arrow_and_polars_stay_what_they_are(column: Any, kind: str | None, values: list[Any]) -> None:
    """Beside a null as well; with no `kind` the column is declared categorical."""
    X = pl.DataFrame({"a": column}) if isinstance(column, pl.Series) else pa.table({"a": column})
    y, declared = ["x", "y", "x"][: len(column)], None if kind else ["a"]
    model = DynamicForestClassifier(1).fit(X, y, categorical_features=declared)
    assert model.schema_.columns[0].type.value == (kind or "categorical")
    assert [model.samples_.get(name).features[0] for name in model.samples_.ids()] == values
