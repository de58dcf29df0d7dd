import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.core.errors import CapacityError, FileError
from oubli.core.rng import hash_text
from oubli.core.samples import categories
from oubli.core.samples.categories import MISSING_CATEGORY, CategoryTable, pack_texts, unpack_texts, write_codes
from tests.reach import array_bytes, texts

NAN = float("nan")


def hold(table, column, values):
    table.reserve(table.new_values({column: values}))
    arriving = table.plan({column: values})
    table.take_in(arriving)
    return arriving.cells[column]


def release(table, cells):
    table.let_go(table.plan_release(cells))


def encode_queries(table, cells, texts):
    unseen = {}
    write_codes(cells, texts, table.look_ups(unseen))
    return table.query_hashes(unseen)


def cells_of(*columns):
    return np.array(columns, np.float32).T


def test_a_table_without_columns_has_no_hashes():
    table = CategoryTable([])
    assert table.hashes.shape == (0,)
    assert table.hashes.dtype == np.uint64
    assert table.capacity == 0


def test_a_code_stands_for_one_value_of_one_column():
    table = CategoryTable([1, 3])
    first, second = hold(table, 1, ["red", "blue", None, "red"]), hold(table, 3, ["red"])
    assert first[0] == first[3]
    assert np.isnan(first[2])
    assert len({first[0], first[1], second[0]}) == 3
    assert table.hashes[int(first[0])] == table.hashes[int(second[0])] == hash_text("red")
    assert table.value(int(second[0])) == "red"
    assert table.codes[1]["red"] == first[0]
    assert "blue" not in table.codes[3]
    assert table.columns[int(second[0])] == 3
    assert table.codes[3] == {"red": int(second[0])}
    assert len(table) == 3


def test_no_value_hashes_like_a_missing_one():
    assert hash_text("missing") != MISSING_CATEGORY
    assert MISSING_CATEGORY.dtype == np.uint64


def test_a_value_leaves_with_its_last_cell_and_is_overwritten():
    table = CategoryTable([0])
    cells = hold(table, 0, ["a", "secret", "a", None])
    code = int(cells[1])
    table.release_row([float(cells[3])])
    release(table, cells[:1])
    assert len(table) == 2
    table.release_row([float(cells[1])])
    assert table.hashes[code] == 0
    assert table.columns[code] == -1
    assert "secret" not in texts(table)
    assert hash_text("secret").to_bytes(8, "little") not in array_bytes(table)
    with pytest.raises(IndexError):
        table.value(code)
    table.check_invariants(cells[2:3].reshape(-1, 1))
    assert hold(table, 0, ["new"])[0] == code


def test_codes_double():
    table = CategoryTable([0])
    capacities = []
    for i in range(100):
        hold(table, 0, [str(i)])
        capacities.append(table.capacity)
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


def test_queries_use_the_codes_held():
    table = CategoryTable([0, 2])
    held = hold(table, 0, ["a", "b"])
    cells = np.ones((3, 3), np.float32)
    hashes = encode_queries(table, cells, {0: ["b", None, "a"], 2: [None, None, None]})
    assert hashes is table.hashes
    np.testing.assert_array_equal(cells, [[held[1], 1, NAN], [NAN, 1, NAN], [held[0], 1, NAN]])


def test_unseen_values_get_codes_beyond_the_table():
    table = CategoryTable([0, 1])
    hold(table, 0, ["a"])
    before = table.hashes.copy()
    cells = np.zeros((3, 2), np.float32)
    hashes = encode_queries(table, cells, {0: ["a", "x", "y"], 1: ["a", "x", None]})
    np.testing.assert_array_equal(table.hashes, before)
    np.testing.assert_array_equal(hashes[: table.capacity], before)
    expected = [["a", "a"], ["x", "x"], ["y", None]]
    for row, values in zip(cells, expected, strict=True):
        for cell, value in zip(row, values, strict=True):
            assert np.isnan(cell) if value is None else hashes[int(cell)] == hash_text(value)
    assert (cells[1] >= table.capacity).all()
    assert len(table) == 1
    assert {"x", "y"}.isdisjoint(texts(table))


value = st.one_of(st.none(), st.sampled_from(["a", "b", "c"]), st.text(max_size=3))
row = st.tuples(value, value)


@pytest.mark.parametrize(
    "changes",
    [
        {"codes": np.array([0, 1])}, {"codes": np.array([0, 1, 1])}, {"codes": np.array([0, 1, -2])},
        {"codes": np.array([0, 1, 2**25])}, {"codes": np.array([0, 1, 3])},
        {"columns": np.array([0, 0, 1], np.int32)},
        {"columns": np.array([0, 0], np.int32)}, {"values": np.array([97, 98], np.uint8)},
        {"values": np.array([97, 98, 255], np.uint8)}, {"offsets": np.array([0, 1, 2])},
        {"offsets": np.array([0, 2, 1, 3])},
        {"offsets": np.zeros(0, np.int64)}, {"offsets": np.array([1, 1, 2, 3])},
        {"values": np.array([97, 98, 97], np.uint8)},
    ],
)  # fmt: skip
def test_damaged_files_are_refused(changes):
    table = CategoryTable([0])
    cells = hold(table, 0, ["a", "b", "c"])
    state = {**table.state(), **{f"categories.{key}": value for key, value in changes.items()}}
    with pytest.raises(FileError):
        CategoryTable.from_state([0], state, cells.reshape(-1, 1))


@pytest.mark.parametrize("cells", [[0, 1, 2.5], [0, 1, 7], [0, 1, -1], [0, 1, 100], [0, 1, NAN]])
def test_cells_that_do_not_fit_the_file_are_refused(cells):
    table = CategoryTable([0])
    hold(table, 0, ["a", "b", "c"])
    with pytest.raises(FileError, match="does not fit the samples"):
        CategoryTable.from_state([0], table.state(), np.array(cells, np.float32).reshape(-1, 1))


@pytest.mark.parametrize("part", ["hashes", "counts", "columns", "_values", "_free", "codes"])
def test_broken_tables_are_noticed(part):
    table = CategoryTable([0])
    cells = hold(table, 0, ["a", "b"])
    broken = getattr(table, part)
    if part == "codes":
        broken[0]["a"] = 7
    elif part == "_free":
        broken.append(0)
    elif part == "_values":
        broken[5] = "x"
    else:
        broken[5] += 1
    with pytest.raises(AssertionError):
        table.check_invariants(cells.reshape(-1, 1))


@given(st.lists(st.text(max_size=4)))
def test_packed_texts(values):
    values = [value.encode("utf-8", "ignore").decode() for value in values]
    assert unpack_texts(*pack_texts(values), "values") == values
