import json
import re

import numpy as np
import pytest

from oubli.core.data.schema import Column, Schema
from oubli.core.errors import FileError
from oubli.core.samples.store import SampleStore
from tests.unit.core.samples.test_store import LABELS, ROWS, add, filled, linked, mixed_schema, numeric_schema


def regression():
    store = SampleStore(numeric_schema(task="regression"))
    add(store, [[1, 2], [3, 4], [5, 6]], [0.5, 1.5, 2.5])
    store.remove([1])
    return store


@pytest.mark.parametrize("make", [linked, regression, lambda: SampleStore(mixed_schema())])
def test_state_round_trip(make):
    store = make()
    state = store.state()
    for array in state.values():
        assert isinstance(array, np.ndarray)
        assert array.dtype.kind in "iuf"
        assert array.flags.c_contiguous
        assert array.flags.writeable
    other = SampleStore.from_state(store.schema, state, "Model")
    other.check_invariants()
    assert [other.get(name) for name in other.ids()] == [store.get(name) for name in store.ids()]
    assert other.ids_of_subject("ann") == store.ids_of_subject("ann"), "in the same order"
    again = other.state()
    assert again.keys() == state.keys()
    for key, array in state.items():
        np.testing.assert_array_equal(again[key], array)
        assert again[key].dtype == array.dtype


def test_capacity_and_free_slots_are_not_written_and_arrays_not_shared():
    state = regression().state()
    assert (state["samples.slots"].tolist(), state["samples.cells"].tolist()) == ([0, 2], [[1, 2], [5, 6]])
    store = linked()
    state = store.state()
    other = SampleStore.from_state(store.schema, state)
    assert other.capacity == 3
    add(other, ROWS, LABELS)
    other.remove(other.find(["a"]))
    assert SampleStore.from_state(store.schema, state).get("a") == store.get("a")


def test_state_parts_are_documented():
    from oubli.core.samples import serialise as sample_state

    for key in filled().state():
        prefix, name = key.split(".")
        assert f"{prefix}.{name}" in sample_state.__doc__ or f"{prefix}.*" in sample_state.__doc__


@pytest.mark.parametrize("key", sorted(filled().state()))
def test_a_part_that_is_missing_or_of_another_type_or_shape_is_named(key):
    sound = linked().state()
    changed = [sound[key].astype("M8[s]" if sound[key].dtype.kind == "i" else complex), sound[key][None]]
    states = [{**sound, key: one} for one in changed]
    if key != "samples.id_source":
        states.append({name: array for name, array in sound.items() if name != key})
    for state in states:
        with pytest.raises(FileError, match=re.escape(key)):
            SampleStore.from_state(mixed_schema(), state)


def f4(values):
    return np.array(values, np.float32)


@pytest.mark.parametrize("changes", [
    {"slots": [0, 0]}, {"slots": [0, -2]}, {"slots": [0, 2**31]}, {"slots": [0]}, {"cells": f4(np.zeros((2, 3)))},
    {"cells": f4(np.zeros((3, 4)))}, {"cells": np.zeros((2, 4))}, {"cells": f4([[np.inf, 0, 0, 0], [0, 0, 0, 0]])},
    {"cells": f4([[0, 2, 0, 2], [0, 0, 0, 2]])}, {"cells": f4([[0, 0, 9, 9], [0, 0, 9, 9]])}, {"targets": [0, 9]},
    {"targets": [0, -1]}, {"targets": [0.0, 1.0]}, {"targets": [0]}, {"ids": np.frombuffer(b"aa", np.uint8)},
    {"ids": np.frombuffer(b"a\xff", np.uint8)}, {"ids": np.frombuffer(b"a", np.uint8)}, {"id_offsets": [0, 0, 2]},
    {"id_offsets": [0, 2]}, {"id_offsets": [0, 3, 2]}, {"subject_rows": [0]}, {"subject_rows": [0, 0]},
    {"subject_rows": [0, 5]}, {"subject_rows": [0, -1]}, {"subjects": np.frombuffer(b"annan\xff", np.uint8)},
    {"subject_offsets": [0, 0, 6]}, {"expiries": [5, 6]}, {"expiry_slots": [1]},
    {"expiry_slots": [0, 0], "expiries": [5, 5]}, {"expiries": [2**63 - 1]}, {"origin_slots": [5]},
    {"origin_slots": [-1]}, {"origins": np.zeros(0, np.int64)}, {"next_id": [-1]}, {"next_id": [1, 2]},
], ids=lambda changes: next(iter(changes)))  # fmt: skip
def test_damaged_parts_are_refused(changes):
    state = {**linked().state(), **{f"samples.{key}": np.asarray(value) for key, value in changes.items()}}
    with pytest.raises(FileError):
        SampleStore.from_state(mixed_schema(), state)


def complete():
    """A store with everything that may be kept beside samples."""
    store = SampleStore(mixed_schema())
    store.commit(store.prepare(ROWS, LABELS, ["a", "b", "c"], [2, 1, 1]))
    store.set_subject("c", "ann")
    store.set_retention("ann", 100, 5)
    store.note_nonces(["a", "c"], bytes(range(32)))
    return store


@pytest.mark.parametrize(("changes", "part"), [
    ({"nonces": np.zeros(31, np.uint8)}, "nonces do not fit"), ({"nonce_slots": [9, 2]}, "nonces do not fit"),
    ({"nonces": np.zeros(32, np.uint16)}, "nonces do not fit"), ({"nonce_slots": [2, 2]}, "nonces do not fit"),
    ({"retentions": [0]}, "retention"), ({"retentions": np.zeros(0, int)}, "retention"),
    ({"retained_since": [1, 2]}, "retention"), ({"weights": [512, 512]}, "weights do not fit"),
    ({"weights": [512, 0, 512]}, "weights do not fit"), ({"weights": [512, 2**30, 512]}, "weights do not fit"),
    *(({"id_source": source}, "do not fit the schema") for source in ([3], [-1], [0, 1], np.zeros(0, int))),
])  # fmt: skip
def test_damaged_parts_of_what_is_kept_beside_samples_are_refused(changes, part):
    state = complete().state()
    SampleStore.from_state(mixed_schema(), state).check_invariants()
    state.update({f"samples.{key}": np.asarray(value) for key, value in changes.items()})
    with pytest.raises(FileError, match=part):
        SampleStore.from_state(mixed_schema(), state)


@pytest.mark.parametrize(
    ("task", "key", "values", "part"),
    [("regression", "targets", [0.5, np.nan, 1], "not finite"), ("classification", "next_id", [2], "counter")],
)
def test_numbers_that_cannot_be_are_refused(task, key, values, part):
    store = SampleStore(numeric_schema(task=task))
    add(store, np.zeros((3, 2)), [0, 0, 0])
    with pytest.raises(FileError, match=part):
        SampleStore.from_state(store.schema, {**store.state(), f"samples.{key}": np.array(values)})


def test_another_schema_is_refused():
    for schema in (
        numeric_schema(4), numeric_schema(2), mixed_schema("integer"), numeric_schema(4, "regression"),
        Schema(tuple(Column(n, "categorical") for n in "abcd"), "classification", "string"),
    ):  # fmt: skip
        with pytest.raises(FileError):
            SampleStore.from_state(schema, linked().state())


def test_messages_hold_no_data():
    state = linked().state()
    state["class_table.values"] = np.frombuffer(json.dumps(["secret", 1]).encode(), np.uint8)
    with pytest.raises(FileError) as info:
        SampleStore.from_state(mixed_schema(), state)
    assert "secret" not in str(info.value)
