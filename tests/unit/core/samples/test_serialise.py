import json

import numpy as np
import pytest

from oubli.core.data.schema import Column, Schema
from oubli.core.errors import FileError
from oubli.core.samples.store import SampleStore
from tests.unit.core.samples.test_store import LABELS, ROWS, add, filled, mixed_schema, numeric_schema


def regression():
    store = SampleStore(numeric_schema(task="regression"))
    add(store, [[1, 2], [3, 4], [5, 6]], [0.5, 1.5, 2.5])
    store.remove([1])
    return store


def linked():
    store = filled()
    store.set_subject("c", "ann")
    store.set_subject("a", "ann")
    store.set_expiry("c", 1700)
    store.set_origins(["a"], 4)
    store.remove(store.find(["b"]))
    return store


def older(state):
    """What files held before there were expiries."""
    later = ("samples.expiry_slots", "samples.expiries", "samples.origin_slots", "samples.origins")
    return {key: array for key, array in state.items() if key not in later}


@pytest.mark.parametrize("make", [linked, regression, lambda: SampleStore(mixed_schema())])
def test_state_is_arrays_of_plain_numbers(make):
    state = make().state()
    for array in state.values():
        assert isinstance(array, np.ndarray)
        assert array.dtype.kind in "iuf"
        assert array.flags.c_contiguous
        assert array.flags.writeable


@pytest.mark.parametrize("make", [linked, regression, lambda: SampleStore(mixed_schema())])
def test_state_round_trip(make):
    store = make()
    state = store.state()
    other = SampleStore.from_state(store.schema, state, "Model")
    other.check_invariants()
    assert [other.get(name) for name in other.ids()] == [store.get(name) for name in store.ids()]
    assert other.ids() == store.ids()
    assert other.slots().tolist() == store.slots().tolist()
    again = other.state()
    assert again.keys() == state.keys()
    for key, array in state.items():
        np.testing.assert_array_equal(again[key], array)
        assert again[key].dtype == array.dtype


def test_capacity_is_trimmed_and_the_arrays_are_not_shared():
    store = linked()
    state = store.state()
    other = SampleStore.from_state(store.schema, state)
    assert other.capacity == 3
    add(other, ROWS, LABELS)
    other.remove(other.find(["a"]))
    again = SampleStore.from_state(store.schema, state)
    assert again.get("a") == store.get("a")


def test_the_order_of_a_subjects_ids_is_kept():
    other = SampleStore.from_state(mixed_schema(), linked().state())
    assert other.ids_of_subject("ann") == ["c", "a"]


def test_expiries_and_origins_come_back():
    other = SampleStore.from_state(mixed_schema(), linked().state())
    assert [(other.expiry(name), other.origin(name)) for name in other.ids()] == [(None, 4), (1700, 0)]


def test_older_state_has_no_expiries_and_no_origins():
    store = SampleStore.from_state(mixed_schema(), older(linked().state()))
    store.check_invariants()
    assert [(store.expiry(name), store.origin(name)) for name in store.ids()] == [(None, 0), (None, 0)]
    assert store.next_expiry() is None


def test_state_of_free_slots_is_not_written():
    store = regression()
    assert store.state()["samples.slots"].tolist() == [0, 2]
    assert store.state()["samples.cells"].tolist() == [[1, 2], [5, 6]]


def test_state_parts_are_documented():
    from oubli.core.samples import serialise as sample_state

    for key in filled().state():
        prefix, name = key.split(".")
        assert f"{prefix}.{name}" in sample_state.__doc__ or f"{prefix}.*" in sample_state.__doc__


@pytest.mark.parametrize("key", sorted(filled().state().keys() - {"samples.id_source"}))
def test_a_missing_part_is_named(key):
    state = linked().state()
    del state[key]
    with pytest.raises(FileError, match=key.replace(".", r"\.")):
        SampleStore.from_state(mixed_schema(), state)


@pytest.mark.parametrize("key", sorted(filled().state()))
@pytest.mark.parametrize(
    "spoil", [lambda a: a.astype("M8[s]") if a.dtype.kind == "i" else a.astype(complex), lambda a: a[None]]
)
def test_a_part_of_another_type_or_shape_is_named(key, spoil):
    state = linked().state()
    state[key] = spoil(state[key])
    with pytest.raises(FileError, match=key.replace(".", r"\.")):
        SampleStore.from_state(mixed_schema(), state)


def f4(values):
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    "changes",
    [
        {"slots": np.array([0, 0])},
        {"slots": np.array([0, -2])},
        {"slots": np.array([0, 2**31])},
        {"slots": np.array([0])},
        {"cells": f4(np.zeros((2, 3)))},
        {"cells": f4(np.zeros((3, 4)))},
        {"cells": np.zeros((2, 4))},
        {"cells": f4([[np.inf, 0, 0, 0], [0, 0, 0, 0]])},
        {"cells": f4([[0, 2, 0, 2], [0, 0, 0, 2]])},
        {"cells": f4([[0, 0, 9, 9], [0, 0, 9, 9]])},
        {"targets": np.array([0, 9])},
        {"targets": np.array([0, -1])},
        {"targets": np.array([0.0, 1.0])},
        {"targets": np.array([0])},
        {"ids": np.frombuffer(b"aa", np.uint8)},
        {"ids": np.frombuffer(b"a\xff", np.uint8)},
        {"ids": np.frombuffer(b"a", np.uint8)},
        {"id_offsets": np.array([0, 0, 2])},
        {"id_offsets": np.array([0, 2])},
        {"id_offsets": np.array([0, 3, 2])},
        {"subject_rows": np.array([0])},
        {"subject_rows": np.array([0, 0])},
        {"subject_rows": np.array([0, 5])},
        {"subject_rows": np.array([0, -1])},
        {"subjects": np.frombuffer(b"annan\xff", np.uint8)},
        {"subject_offsets": np.array([0, 0, 6])},
        {"expiries": np.array([5, 6])},
        {"expiry_slots": np.array([1])},
        {"expiry_slots": np.array([0, 0]), "expiries": np.array([5, 5])},
        {"expiries": np.array([2**63 - 1])},
        {"origin_slots": np.array([5])},
        {"origin_slots": np.array([-1])},
        {"origins": np.zeros(0, np.int64)},
        {"next_id": np.array([-1])},
        {"next_id": np.array([1, 2])},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_damaged_parts_are_refused(changes):
    state = {**linked().state(), **{f"samples.{key}": value for key, value in changes.items()}}
    with pytest.raises(FileError):
        SampleStore.from_state(mixed_schema(), state)


def test_targets_that_are_not_finite_are_refused():
    state = {**regression().state(), "samples.targets": np.array([0.5, np.nan])}
    with pytest.raises(FileError, match="not finite"):
        SampleStore.from_state(numeric_schema(task="regression"), state)


def test_a_counter_behind_the_ids_held_is_refused():
    store = SampleStore(numeric_schema())
    add(store, np.zeros((3, 2)), [0, 0, 0])
    state = {**store.state(), "samples.next_id": np.array([2])}
    with pytest.raises(FileError, match="counter"):
        SampleStore.from_state(store.schema, state)


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
