import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.core.errors import InputError
from oubli.core.samples.slots import COUNTER_LIMIT, end_of_numbers, read_ids


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["a", "b"], ["a", "b"]), (("a", 7), ["a", "7"]), ([7, "007"], ["7", "007"]), (np.array([1, 2]), ["1", "2"]),
        (np.array(["a", "b"]), ["a", "b"]), (np.array(["a", 1], object), ["a", "1"]), (pd.Series([1, 2]), ["1", "2"]),
        (pd.Series(["a", "b"]), ["a", "b"]), (pd.Index([3]), ["3"]), (range(3), ["0", "1", "2"]), ([], []),
        (iter(["é"]), ["é"]), ([np.int64(5)], ["5"]),
    ],
)  # fmt: skip
def test_ids_of_every_shape(ids, expected):
    assert read_ids(ids) == expected


@pytest.mark.parametrize("ids", ["abc", b"abc", 7, None, {"a": 1}, np.array([["a"]]), np.array("a")])
def test_what_is_no_list_of_ids_is_refused(ids):
    with pytest.raises(InputError, match="ids must be a") as info:
        read_ids(ids)
    assert info.value.field == "id"


@pytest.mark.parametrize("value", ["", "x" * 257, 1.0, True, None, "\ud800", [1], pd.NA])
def test_an_id_that_is_refused_is_named_by_row(value):
    with pytest.raises(InputError) as info:
        read_ids(["a", value])
    assert (info.value.row, info.value.field) == (1, "id")


def canonical_number(name):
    """The number whose decimal text an id is, when the counter could reach it."""
    return end_of_numbers([name]) - 1 if end_of_numbers([name]) else None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("0", 0), ("7", 7), ("10", 10), ("9007199254740991", 2**53 - 1), ("9007199254740992", None), ("007", None),
        ("00", None), ("-1", None), ("+1", None), ("1.0", None), (" 1", None), ("1_0", None), ("٣", None),
        ("²", None),
        ("a", None), ("9" * 256, None), ("1e3", None),
    ],
)  # fmt: skip
def test_canonical_numbers(name, expected):
    assert canonical_number(name) == expected


@given(st.integers(0, COUNTER_LIMIT - 1))
def test_the_text_of_a_number_is_canonical(value):
    assert canonical_number(str(value)) == value
    assert canonical_number("0" + str(value)) is None


NUMBERS = st.integers(0, 2 * COUNTER_LIMIT).map(str)
NAMES = st.one_of(NUMBERS, NUMBERS.map("0".__add__), st.sampled_from(["00", "9" * 16, "9" * 17, "1" + "0" * 30]))
OTHERS = st.sampled_from(["-1", "7a", "x", "\u0663", "1.0", " 5"])


@given(st.lists(NAMES | OTHERS) | st.lists(NAMES))
def test_the_end_of_numbers_is_that_of_the_largest(names):
    expected = [number for number in map(canonical_number, names) if number is not None]
    assert end_of_numbers(names) == max(expected, default=-1) + 1
