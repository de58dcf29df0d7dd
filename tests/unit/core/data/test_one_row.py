"""One row, the most frequent input, has short ways in; they give what the long ones give, errors included."""

import math
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from oubli.core.data.encoding import Encoder
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.errors import InputError
from oubli.core.samples.store import SampleStore

SCHEMAS = [
    Schema(columns, Task.CLASSIFICATION, LabelType.STRING, named=True)
    for columns in (
        (Column("a", ColumnType.NUMERIC), Column("d", ColumnType.NUMERIC)),
        (Column("a", ColumnType.NUMERIC, "float64"), Column("d", ColumnType.NUMERIC)),
        (Column("a", ColumnType.CATEGORICAL), Column("d", ColumnType.NUMERIC), Column("e", ColumnType.CATEGORICAL)),
        (Column("a", ColumnType.BOOLEAN), Column("d", ColumnType.CATEGORICAL), Column("e", ColumnType.NUMERIC)),
    )
]
cells = st.one_of(
    st.integers(-40, 40),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from(["x", "y", "é", "", "unseen", "1", True, False, None, 2**24, 2**24 + 1, 2**53 + 1, 1e39, -0.0]),
    st.sampled_from([np.float32(0.1), np.float64(0.1), np.int8(3), np.bool_(True), np.str_("x"), math.nan, "\ud800"]),
    st.sampled_from([[], 10**400]),
)


class Odd(list[Any]):
    """A list that no short way takes."""


def outcome(work: Any) -> Any:
    """What comes out, comparable; errors by what they name."""
    try:
        result = work()
    except InputError as error:
        return type(error), error.rule, error.row, error.field
    return [part.tobytes() if isinstance(part, np.ndarray) else part for part in result]


@given(st.sampled_from(SCHEMAS), st.data())
def test_a_list_gives_what_the_column_by_column_way_gives(schema: Schema, data: st.DataObject) -> None:
    row = [data.draw(cells) for _ in schema.columns]
    encoder = Encoder(schema)
    short = outcome(lambda: encoder.encode([row]))
    assert short == outcome(lambda: encoder.encode([Odd(row)]))
    assert short == outcome(lambda: encoder.encode(([*row],)))


@given(st.sampled_from(SCHEMAS), st.data())
def test_a_query_with_known_categories_gives_what_any_query_gives(schema: Schema, data: st.DataObject) -> None:
    store = SampleStore(schema)
    texts = {ColumnType.CATEGORICAL: ["x", "y", "1"], ColumnType.BOOLEAN: [True, False, None]}
    held = [texts.get(column.type, [1.0, 2.0, 3.0]) for column in schema.columns]
    store.commit(store.prepare([list(row) for row in zip(*held, strict=True)], ["a", "b", "c"]))
    row = [data.draw(cells) for _ in schema.columns]
    short = outcome(lambda: store.encode_queries([row]))
    with patch.object(Encoder, "encode_known_row", return_value=None):
        assert short == outcome(lambda: store.encode_queries([row]))


@given(st.sampled_from(SCHEMAS), st.data())
def test_a_frame_of_one_row_gives_what_its_columns_give(schema: Schema, data: st.DataObject) -> None:
    dtypes = [None, "float32", "float64", "int64", "Int64", "boolean", "bool", "str", "object", "category", "uint64"]
    series = {}
    for column in schema.columns:
        value, dtype = data.draw(cells), data.draw(st.sampled_from(dtypes))
        try:
            series[column.name] = pd.Series([value], dtype=dtype)
        except (ValueError, TypeError, LookupError, OverflowError, Warning):
            series[column.name] = pd.Series([value], dtype=object)
    frame = pd.DataFrame(series)
    encoder = Encoder(schema)
    short = outcome(lambda: encoder.encode(frame))
    with patch("oubli.core.data.encoding.only_row", return_value=None):
        assert short == outcome(lambda: encoder.encode(frame))


def test_plain_rows_take_the_short_way_and_stay_as_they_were() -> None:
    """So that the comparisons above compare something."""
    mixed, row = SCHEMAS[2], [True, "x", 3]
    with patch("oubli.core.data.encoding.read_table", side_effect=AssertionError("the long way")):
        for plain in (["x", 1, None], [None, None, ""], ["x", 2.5, "y"]):
            assert len(Encoder(mixed).encode([plain]).cells) == 1
        frame = pd.DataFrame({"a": ["x"], "d": [1], "e": [None]}).astype({"a": "str"})
        assert Encoder(mixed).encode(frame).texts == {0: ["x"], 2: [None]}
        assert Encoder(SCHEMAS[3]).encode([row]).cells[0, 0] == 1.0
    assert row == [True, "x", 3]
