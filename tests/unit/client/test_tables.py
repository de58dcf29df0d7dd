"""Tables on their way out say what the library understands by them, and what cannot be sent is named by its place."""

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from oubli.api.model import Feature, Label, Schema
from oubli.api.samples import HeldSample
from oubli.client import DataError, IndexWarning
from oubli.client.messages import to_json
from oubli.client.tables import frame_of, ids_of_index, labels_of, names_of, rows_of, samples_of
from oubli.core.errors import InputError
from oubli.core.samples.identity import read_rows

NAN = float("nan")
DAY = datetime.date(2030, 1, 31)


EXTENDED = [(1, "Int64"), (0.5, "Float32"), (True, "boolean"), ("a", "string")]
OBJECTS: list[tuple[list[Any], list[Any]]] = [
    *((["a", NAN], ["a", None]), ([None, pd.NA], [None, None]), (["é", np.str_("x")], ["é", "x"])),
    ([Decimal("1.5"), np.float64(2)], [1.5, 2.0]),
]


def test_columns_of_a_frame() -> None:
    for column, expected in (
        *(([1.5, NAN], [1.5, None]), (np.array([1, 2], np.int8), [1, 2]), ([True, False], [True, False])),
        (np.array([0.1, NAN], np.float32), [float(np.float32(0.1)), None]),
        *((pd.array([value, None], dtype), [value, None]) for value, dtype in EXTENDED),
        *((pd.Categorical(["b", None], categories=["b", "c"]), ["b", None]), (pd.Categorical([7, 8]), [7, 8])),
        *((pd.Series(objects, dtype=object), expected) for objects, expected in OBJECTS),
    ):
        rows = rows_of(pd.DataFrame({"a": column}))
        assert [row["a"] for row in rows] == expected
        assert [type(row["a"]) for row in rows] == list(map(type, expected))
    # Numbers for names mean positions.
    assert rows_of(pd.DataFrame([[1, "a"], [2, "b"]])) == [[1, "a"], [2, "b"]]


ARROW = pa.table({"a": [1, None], "b": ["x", "y"]})


def test_arrays_lists_and_tables_of_pyarrow() -> None:
    for X, expected in (
        (np.array([[1.5, NAN]]), b"[[1.5,null]]"),
        (np.array([[0.1]], np.float32), b"[[0.10000000149011612]]"),
        *((np.array([[0.5]], dtype), b"[[0.5]]") for dtype in (np.float16, np.longdouble)),
        *((np.array([[1, 2]], ">i4"), b"[[1,2]]"), (np.array([[2**64 - 1]], np.uint64), b"[[18446744073709551615]]")),
        *((np.array([["a", None, 1.5]], object), b'[["a",null,1.5]]'), (np.array([["a", "b"]]), b'[["a","b"]]')),
        *((np.array([[True]]), b"[[true]]"), ([np.array([1, 2])], b"[[1,2]]")),
        (np.asfortranarray([[1.0, 2.0], [3.0, 4.0]]), b"[[1.0,2.0],[3.0,4.0]]"),
        (np.ma.masked_array([[1.0, 2.0]], [[False, True]]), b"[[1.0,null]]"),
        ([[1, "a", None, True], (2, "b", NAN, np.bool_(False))], b'[[1,"a",null,true],[2,"b",null,false]]'),
        ([{"age": np.int64(3), "job": pd.NA}], b'[{"age":3,"job":null}]'),
        ([pd.Series({"age": 1, "job": None}, dtype=object)], b'[{"age":1,"job":null}]'),
        *((X, b'[{"a":1,"b":"x"},{"a":null,"b":"y"}]') for X in (ARROW, ARROW.to_batches()[0])),
    ):
        assert to_json(rows_of(X)) == expected


NOT_CELLS = [(DAY, "dates or times"), (2**64, "64 bits"), ("\ud800", "surrogate")]
NOT_CELLS += [(value, "a number, text") for value in ([1], object())]
NOT_TABLES = [
    *((np.array([["2030-01-31"]], "M8[D]"), "dates or times"), (np.array([1, 2]), "2-d array")),
    *((np.array([[1j]]), "complex"), ("ab", "list of rows"), ([], "no rows"), (pd.DataFrame({"a": []}), "no rows")),
    *((pd.DataFrame([[1, 2]], columns=["a", "a"]), "unique"), (pa.table([[1], [2]], names=["a", "a"]), "unique")),
    (pd.DataFrame([[1, 2]], columns=["a", 1]), "all be text"),
]


def test_what_cannot_be_sent_is_named_by_its_place() -> None:
    for X, place, part in (
        (np.array([[1.0], [np.inf]]), (1, 0), "finite"),
        *(([[1.0, -np.inf]], (0, 1), "finite"), (pd.DataFrame({"a": [1.0, np.inf]}), (1, "a"), "finite")),
        (pd.DataFrame({"a": pd.to_datetime(["2030-01-31"])}), (0, "a"), "dates or times"),
        *(([["a", b"b"]], (0, 1), "bytes"), ([1, 2], (0, None), "list of rows")),
        *(([[value]], (0, 0), rule) for value, rule in NOT_CELLS),
        *((X, (None, None), rule) for X, rule in NOT_TABLES),
    ):
        with pytest.raises(DataError, match=part) as caught:
            rows_of(X)
        assert (caught.value.row, caught.value.field) == place


INDICES = [
    pd.RangeIndex(2), pd.Index([0, 1], dtype=object), pd.RangeIndex(2, name="key"), pd.Index([7, 7]), pd.Index([1, 0]),
    pd.Index(["a", "b"]), pd.Index(["a", "a"]), pd.Index(["a", None]), pd.Index([0.5, 1.5]), pd.Index([True, False]),
    pd.to_datetime(["2030-01-31", "2030-02-01"]), pd.Index([DAY, "x"]), pd.MultiIndex.from_tuples([("a", 1), ("b", 2)]),
    pd.Index(["", "b"]), pd.Index(["x" * 257, "b"]),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::oubli.core.errors.IndexWarning")
def test_an_index_gives_the_ids_that_the_library_takes_from_it() -> None:
    for index in INDICES:
        X = pd.DataFrame({"a": [1, 2]}, index=index)
        try:
            expected = read_rows(X).ids
        except InputError:
            with pytest.raises(DataError, match="could delete another row"):
                ids_of_index(X)
            continue
        if expected is None and not isinstance(index, pd.RangeIndex):
            with pytest.warns(IndexWarning):
                assert ids_of_index(X) is None
        else:
            assert ids_of_index(X) == expected


def test_names_and_labels() -> None:
    for names in (b"6", bytearray(b"6"), memoryview(b"6"), {"6": 1}, pd.DataFrame({"6": [1]}), pa.table({"6": [1]})):
        with pytest.raises(DataError, match="and no table"):
            names_of(names, "id")
    assert names_of("ada", "id") == ["ada"]
    assert names_of(np.int64(7), "id") == names_of([7], "id") == ["7"]
    assert names_of((str(i) for i in range(2)), "id") == ["0", "1"]
    assert labels_of(np.array([1.5, 2.0]), 2) == [1.5, 2.0]
    assert labels_of(pd.Categorical(["a", "b"]), 2) == ["a", "b"]
    with pytest.raises(DataError, match="1-d array"):
        labels_of(np.array([[1]]), 1)


def test_samples_have_what_was_given_for_them() -> None:
    end = datetime.datetime(2030, 1, 31, 12, tzinfo=datetime.UTC)
    X = pd.DataFrame({"a": [1, 2]}, index=["p", "q"])
    assert samples_of(X, pd.Series(["x", "y"]), subjects=["ada", None], expires_at=end, readd=True) == [
        {"features": {"a": 1}, "label": "x", "id": "p", "subject": "ada", "expires_at": end.isoformat(), "readd": True},
        {"features": {"a": 2}, "label": "y", "id": "q", "subject": None, "expires_at": end.isoformat(), "readd": True},
    ]
    (one,) = samples_of([[1]], [True], ids=[7], subjects="ada")
    assert one == {"features": [1], "label": True, "id": "7", "subject": "ada"}
    for given, expected in ((0.5, [0.5, 0.5]), (np.array([1, 2]), [1, 2]), ([None, Decimal(2)], [None, 2.0])):
        assert [one["weight"] for one in samples_of([[1], [2]], [1, 2], sample_weight=given)] == expected


def test_what_does_not_go_with_the_rows_is_refused() -> None:
    for given, part in (
        ({"y": ["x"]}, "1 labels were passed for 2 rows"),
        ({"y": "xy"}, "labels must be a list"),
        ({"ids": ["a"]}, "1 values of 'id'"),
        ({"ids": [1.5, 2.5]}, "row 0, field 'id': must be text"),
        ({"ids": ["a", ""]}, "row 1, field 'id'"),
        ({"ids": [True, False]}, "row 0, field 'id'"),
        ({"subjects": ["a", "b", "c"]}, "3 values of 'subject'"),
        ({"expires_at": datetime.datetime(2030, 1, 31)}, "time zone"),  # noqa: DTZ001 - it has none
        ({"expires_at": [1, 2]}, "must be a datetime"),
        ({"sample_weight": [1]}, "1 values of 'weight'"),
        ({"sample_weight": [1, math.inf]}, "row 1, field 'weight'"),
    ):
        with pytest.raises(DataError, match=part):
            samples_of([[1], [2]], **{"y": ["x", "y"], **given})


def test_held_samples_as_a_frame() -> None:
    types = {"age": "numeric", "job": "categorical", "member": "boolean"}
    features = [Feature(name=name, type=kind, dtype="float32") for name, kind in types.items()]
    label = Label(name="income", type="string")
    schema = Schema(features=features, label=label, task="classification", classes=["no", "yes"])
    held = [
        HeldSample(id="p", subject=None, features={"age": 1, "job": "a", "member": True}, label="yes"),
        HeldSample(id="q", subject="ada", features={"age": None, "job": None, "member": None}, label="no", weight=2),
    ]
    made = frame_of(held, schema)
    assert (list(made.index), list(made.columns)) == (["p", "q"], [*types, "income", "subject", "weight"])
    assert [str(made[name].dtype) for name in (*types, "weight")] == ["float32", "category", "boolean", "float64"]
    assert rows_of(made[[*types]]) == [sample.features for sample in held]
    assert list(frame_of([], schema).columns) == [*types, "income"]
