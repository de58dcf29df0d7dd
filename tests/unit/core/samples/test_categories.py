import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.core.errors import CapacityError, FileError
from oubli.core.samples import categories
from oubli.core.samples.categories import CategoryTable, pack_texts, unpack_texts, write_codes

NAN = float("nan")


def hold(table, column, values):
    table.reserve(table.new_values({column: values}))
    arriving = table.plan({column: values})
    table.take_in(arriving)
    return arriving.cells[column]


def encode_queries(table, cells, texts):
    unseen = {}
    write_codes(cells, texts, table.look_ups(unseen))
    return table.query_hashes(unseen)


def test_a_code_is_used_again_when_its_value_has_left_and_codes_double():
    table = CategoryTable([0])
    code = int(hold(table, 0, ["a"])[0])
    table.release_row([float(code)])
    assert (table.hashes[code], table.columns[code], len(table)) == (0, -1, 0)
    with pytest.raises(IndexError):
        table.value(code)
    assert hold(table, 0, ["b"])[0] == code
    capacities = [table.capacity for i in range(100) if hold(table, 0, [str(i)])[0] >= 0]
    assert sorted(set(capacities)) == [8, 16, 32, 64, 128]


def test_too_many_values_are_refused_before_anything_changes(monkeypatch):
    monkeypatch.setattr(categories, "FLOAT32_EXACT", 20)
    table = CategoryTable([0])
    hold(table, 0, [str(i) for i in range(20)])
    with pytest.raises(CapacityError, match="drop them"):
        table.reserve(1)
    with pytest.raises(CapacityError):
        table.check_room(1)
    with pytest.raises(CapacityError, match="fewer rows"):
        encode_queries(table, np.zeros((1, 1), np.float32), {0: ["unseen"]})
    assert table.capacity == 20


def test_values_are_counted_only_where_they_may_be_too_many(monkeypatch):
    monkeypatch.setattr(categories, "FLOAT32_EXACT", 20)
    table = CategoryTable([0, 1])
    hold(table, 0, ["held"])
    counted = []
    monkeypatch.setattr(CategoryTable, "check_room", lambda _, new: counted.append(new))
    table.check_room_for({0: ["held", None, "a"] * 2, 1: ["b"] * 13})
    assert counted == []
    table.check_room_for({0: ["held", None, "a"] * 2, 1: ["b"] * 14})
    assert counted == [2]


@pytest.mark.parametrize("changes", [
    {"codes": np.array([0, 1])}, {"codes": np.array([0, 1, 1])}, {"codes": np.array([0, 1, -2])},
    {"codes": np.array([0, 1, 2**25])}, {"codes": np.array([0, 1, 3])}, {"columns": np.array([0, 0, 1], np.int32)},
    {"columns": np.array([0, 0], np.int32)}, {"values": np.array([97, 98], np.uint8)},
    {"values": np.array([97, 98, 255], np.uint8)}, {"values": np.array([97, 98, 97], np.uint8)},
    {"offsets": np.array([0, 1, 2])}, {"offsets": np.array([0, 2, 1, 3])}, {"offsets": np.zeros(0, np.int64)},
    {"offsets": np.array([1, 1, 2, 3])},
    *({"cells": np.array([0, 1, cell], np.float32)} for cell in (2.5, 7, -1, 100, NAN)),
])  # fmt: skip
def test_damaged_files_are_refused(changes):
    table = CategoryTable([0])
    cells = changes.get("cells", hold(table, 0, ["a", "b", "c"]))
    state = {**table.state(), **{f"categories.{key}": value for key, value in changes.items()}}
    with pytest.raises(FileError, match="does not fit the samples" if "cells" in changes else None):
        CategoryTable.from_state([0], state, cells.reshape(-1, 1))


@given(st.lists(st.text(max_size=4)))
def test_packed_texts(values):
    values = [value.encode("utf-8", "ignore").decode() for value in values]
    assert unpack_texts(*pack_texts(values), "values") == values
