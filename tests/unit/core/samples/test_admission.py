"""The short way into a store gives what the long way gives, or nothing at all."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.core.data.schema import ColumnType, LabelType, Schema, Task
from oubli.core.errors import InputError
from oubli.core.samples.store import SampleStore
from tests.unit.core.data.test_one_row import SCHEMAS, cells

LABELS = {
    LabelType.STRING: ["x", "y", "new", 1, None, np.str_("x"), True],
    LabelType.INTEGER: [1, 2, 3, 1.0, True, 2**70, None, np.int64(1)], LabelType.BOOLEAN: [True, False, 1, None, "x"],
    LabelType.SCALAR: [1, 1.0, True, "x", None], LabelType.NUMBER: [1.0, 2.0, 1, 0.5, float("nan"), None],
}  # fmt: skip


def store_of(schema: Schema) -> SampleStore:
    """A store with free slots, free codes, and the values "x" and "y"."""
    store = SampleStore(schema)
    first = {ColumnType.CATEGORICAL: "x", ColumnType.BOOLEAN: True, ColumnType.NUMERIC: 1.0}
    second = {ColumnType.CATEGORICAL: "y", ColumnType.BOOLEAN: None, ColumnType.NUMERIC: None}
    rows = [[values[column.type] for column in schema.columns] for values in (first, second)]
    labels = LABELS[schema.label_type][:2]
    store.commit(store.prepare([*rows, *rows], [*labels, *labels], ["a", "b", "c", "5"]))
    store.remove(store.find(["b"]))
    return store


def facts(store: SampleStore) -> list[Any]:
    """Everything there is to know."""
    classes, categories = store.classes, store.categories
    arrays = [*store._arrays(), classes.counts, classes.order(), categories.counts, categories.hashes]
    parts = [array.tobytes() for array in arrays]
    return [*parts, store.ids(), store.next_id, store.slots_in_order().tolist(), sorted(store.free), store.top]


def long_way(store: SampleStore, X: Any, y: Any) -> Any:
    try:
        slots = store.commit(store.prepare(X, y))
    except InputError as error:
        return type(error), error.rule, error.row, error.field
    return slots.tolist()


@given(st.sampled_from(SCHEMAS), st.sampled_from(sorted(LABELS, key=str)), st.data())
def test_it_is_the_long_way_or_none(columns_of: Schema, label_type: LabelType, data: st.DataObject) -> None:
    schema = Schema(columns_of.columns, Task.CLASSIFICATION, label_type)
    short, long = store_of(schema), store_of(schema)
    for _ in range(data.draw(st.integers(1, 4))):
        row = [data.draw(cells) for _ in schema.columns]
        y = [data.draw(st.sampled_from(LABELS[label_type]))]
        given_row = list(row)
        before = facts(short)
        slot = short.admit(row, y)
        assert list(map(repr, row)) == list(map(repr, given_row))  # what was sent stays as it was
        if slot is None:
            assert facts(short) == before
            assert long_way(short, [row], y) == long_way(long, [row], y)
        else:
            assert [slot] == long_way(long, [row], y)
        assert facts(short) == facts(long)
        short.check_invariants()


PLAIN = Schema(SCHEMAS[2].columns, Task.CLASSIFICATION, LabelType.STRING)


def test_plain_rows_take_it() -> None:
    """So that the comparison above compares something."""
    store = store_of(PLAIN)
    for row in (["x", 1.5, "y"], [None, None, "x"], ["y", 3, None]):
        assert store.admit(row, ["x"]) is not None
    store.check_invariants()
    assert store.ids() == ["a", "c", "5", "6", "7", "8"]


@pytest.mark.parametrize(("row", "y"), [
    (["x", 1.5], ["x"]), (("x", 1.5, "y"), ["x"]), (["never held", 1.5, "y"], ["x"]), (["x", 1e39, "y"], ["x"]),
    (["x", "1", "y"], ["x"]), (["x", 1.0, "y"], ["never held"]), (["x", 1.0, "y"], ["x", "x"]), (["x", 1.0, "y"], "x"),
])  # fmt: skip
def test_whatever_is_not_plain_does_not_take_it(row: Any, y: Any) -> None:
    store = store_of(PLAIN)
    before = facts(store)
    assert store.admit(row, y) is None
    assert facts(store) == before


def test_a_full_store_a_copy_and_an_id_that_is_held_take_the_long_way() -> None:
    store = store_of(PLAIN)
    assert store.copy().admit(["x", 1.0, "y"], ["x"]) is None  # a copy is made ready by its first `commit`
    n = 0
    while store.admit(["x", float(n), "y"], ["x"]) is not None:
        n += 1
    assert len(store) == store.capacity
    assert store.commit(store.prepare([["x", 1.0, "y"]], ["x"])).tolist() == [len(store) - 1]
    store.check_invariants()
    store = store_of(PLAIN)
    store.next_id = 5  # which is held
    assert store.admit(["x", 1.0, "y"], ["x"]) is None
