import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oubli.core.errors import InputError
from oubli.core.samples.slots import COUNTER_LIMIT, end_of_numbers, read_ids


@pytest.mark.parametrize(("ids", "expected"), [
    (["a", "b"], ["a", "b"]), (("a", 7), ["a", "7"]), ([7, "007"], ["7", "007"]), (np.array([1, 2]), ["1", "2"]),
    (np.array(["a", "b"]), ["a", "b"]), (np.array(["a", 1], object), ["a", "1"]), (pd.Series([1, 2]), ["1", "2"]),
    (pd.Series(["a", "b"]), ["a", "b"]), (pd.Index([3]), ["3"]), (range(3), ["0", "1", "2"]), ([], []),
    (iter(["é"]), ["é"]), ([np.int64(5)], ["5"]), ({"k"}, ["k"]), ({"k": 0}.keys(), ["k"]), (pa.array(["k"]), ["k"]),
    (pa.chunked_array([["j"], ["k"]]), ["j", "k"]),
])  # fmt: skip
def test_ids_of_every_shape(ids, expected):
    assert read_ids(ids) == expected


def test_an_id_that_is_refused_is_named_by_row():
    with pytest.raises(InputError) as info:
        read_ids(["a", ""])
    assert (info.value.row, info.value.field) == (1, "id")


NUMBERS = st.integers(0, 2 * COUNTER_LIMIT).map(str)
NAMES = st.one_of(NUMBERS, NUMBERS.map("0".__add__), st.sampled_from(["00", "9" * 16, "9" * 17, "9" * 256]))
OTHERS = st.sampled_from(["-1", "+1", "7a", "x", "٣", "²", "1.0", " 5", "1_0", "1e3"])


@example([str(COUNTER_LIMIT)])
@given(st.lists(NAMES | OTHERS) | st.lists(NAMES) | st.lists(OTHERS))
def test_the_end_of_numbers_is_behind_the_largest_that_is_written_as_the_counter_writes_it(names):
    numbers = [int(name) for name in names if name.isascii() and name.isdecimal() and str(int(name)) == name]
    assert end_of_numbers(names) == max((number + 1 for number in numbers if number < COUNTER_LIMIT), default=0)
