import numpy as np
import pytest

from oubli.core.data.schema import LabelType
from oubli.core.errors import FileError
from oubli.core.samples.labels import ClassTable


def hold(label_type, labels):
    table = ClassTable(label_type)
    table.reserve(labels)
    return table, table.acquire(labels)


@pytest.mark.parametrize(("label_type", "labels", "expected"), [
    (LabelType.STRING, ["b", "a", "B", "10", "9", "é"], ["10", "9", "B", "a", "b", "é"]),
    (LabelType.INTEGER, [10, 9, -1], [-1, 9, 10]), (LabelType.NUMBER, [2.5, -1.0, 10.0], [-1.0, 2.5, 10.0]),
    (LabelType.BOOLEAN, [True, False], [False, True]),
    (LabelType.SCALAR, ["a", 1, True, 1.0, False, 0, "1"], [False, True, 1.0, 0, 1, "1", "a"]),
])  # fmt: skip
def test_the_canonical_order_is_by_type_and_value_and_that_of_numpy(label_type, labels, expected):
    for history in (labels, labels[::-1]):
        table, _ = hold(label_type, history)
        array = table.classes_array()
        for values in (table.values(table.order()), array.tolist()):
            assert values == expected
            assert [type(v) for v in values] == [type(v) for v in expected]
        if label_type is not LabelType.SCALAR:
            assert (array.dtype, array.tolist()) == (np.unique(labels).dtype, np.unique(labels).tolist())


def test_texts_that_end_with_zero_characters_are_kept_whole():
    array = hold(LabelType.STRING, ["a", "a\0"])[0].classes_array()
    assert (array.dtype, array.tolist()) == (object, ["a", "a\0"])


def test_codes_are_stable_while_the_class_is_held_and_then_used_again():
    table, codes = hold(LabelType.STRING, ["b", "a", "b"])
    assert codes[0] == codes[2] != codes[1]
    assert table.values(codes) == table.values(codes.tolist()) == ["b", "a", "b"]
    table.reserve(["a"])
    assert table.acquire_one("a") == codes[1]
    table.release(codes[[0, 2]])
    assert (table.code("b"), len(table)) == (None, 1)
    with pytest.raises(IndexError):
        table.value(int(codes[0]))
    table.reserve(["c"])
    assert table.acquire_one("c") == codes[0]
    assert table.capacity == 2
    table.reserve(["d"])
    assert table.capacity == 4


def test_the_order_given_away_does_not_change_later():
    table, codes = hold(LabelType.STRING, ["a", "b"])
    before = table.order()
    kept = before.copy()
    table.release(codes)
    np.testing.assert_array_equal(before, kept)
    assert table.order().tolist() == []


def text(value):
    return np.frombuffer(value, np.uint8)


@pytest.mark.parametrize("changes", [
    {"values": text(b"[")}, {"values": text(b"{}")}, {"values": text(b'["a"]')}, {"values": text(b'["a", 1]')},
    {"values": text(b'["a", "a"]')}, {"values": text(b'["a", null]')}, {"values": text(b'["a", ["b"]]')},
    {"values": text(b"\xff\xff")}, {"codes": np.array([0])}, {"codes": np.array([0, 0])}, {"codes": np.array([0, 5])},
    {"codes": np.array([0, -1])}, {"values": text(b'["a", "\\ud800"]')},
])  # fmt: skip
def test_damaged_files_and_those_of_another_type_are_refused(changes):
    table, codes = hold(LabelType.STRING, ["a", "b"])
    state = {**table.state(), **{f"class_table.{key}": value for key, value in changes.items()}}
    with pytest.raises(FileError, match="table of classes"):
        ClassTable.from_state(LabelType.STRING, state, codes)
    with pytest.raises(FileError):
        ClassTable.from_state(LabelType.INTEGER, table.state(), codes)
