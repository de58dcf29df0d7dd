"""Tensors are what NumPy says they are, in JSON and in bytes; what is no tensor is refused before it costs anything."""

import math
import tracemalloc
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from oubli.app.http.inference import DATATYPES, DTYPES, TensorError, read_bytes, read_json, to_bytes

NUMBERS = sorted(DTYPES)
SHAPES = st.one_of(st.tuples(st.integers(1, 9)), st.tuples(st.integers(1, 5), st.integers(1, 4)))


def outcome(read: Callable[..., np.ndarray], data: Any, datatype: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """The tensor; None when it was refused for what it is."""
    try:
        return read(data, datatype, shape)
    except TensorError as refused:
        return None if refused.rule else read(data, datatype, shape)


@pytest.mark.parametrize("datatype", NUMBERS)
@settings(max_examples=25)
@given(st.data())
def test_bytes_and_json_are_numpys(datatype: str, data: st.DataObject) -> None:
    sent = data.draw(stn.arrays(DTYPES[datatype], SHAPES))
    raw = memoryview(b"x" + sent.tobytes())[1:]  # nowhere in particular, as behind JSON
    read = read_bytes(raw, datatype, sent.shape)
    assert read.tobytes() == sent.tobytes(), "every bit, those of a NaN included"
    assert (read.dtype.isnative, read.flags.carray) == (True, True)
    assert to_bytes(read, datatype) == sent.tobytes()
    for listed in (sent.ravel().tolist(), sent.tolist()):
        found = read_json(listed, datatype, sent.shape)
        assert (found.shape, found.dtype) == (sent.shape, sent.dtype)
        assert np.array_equal(found, sent, equal_nan=True)


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1))
def test_texts_come_back(texts: list[str]) -> None:
    read = read_bytes(memoryview(to_bytes(texts, "BYTES")), "BYTES", (len(texts),))
    assert read.dtype == object
    assert read.tolist() == texts == read_json(texts, "BYTES", (len(texts),)).tolist()


@given(st.binary(max_size=60), st.sampled_from(DATATYPES), SHAPES)
def test_any_bytes_are_a_tensor_or_a_problem(raw: bytes, datatype: str, shape: tuple[int, ...]) -> None:
    read = outcome(read_bytes, memoryview(raw), datatype, shape)
    if read is not None:
        assert read.shape == shape
        assert to_bytes(read.ravel(), datatype) == raw


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
ANYTHING = st.recursive(SCALARS, st.lists, max_leaves=9)


@given(ANYTHING, st.sampled_from(DATATYPES), SHAPES)
def test_any_json_is_a_tensor_or_a_problem(data: Any, datatype: str, shape: tuple[int, ...]) -> None:
    read = outcome(read_json, data, datatype, shape)
    assert read is None or read.shape == shape


OTHERS: dict[str, list[list[Any]]] = {
    "INT8": [[128], [-129, None]], "UINT8": [[-1]], "UINT64": [[2**64]], "INT64": [[None, 2**63]], "BOOL": [[1]],
    "INT32": [[1.0], [True]], "FP64": [[True], ["1"], [10**400]], "BYTES": [[1], [b"a"]],
}  # fmt: skip


def test_elements_of_another_type_or_range_and_texts_whose_lengths_do_not_fit_are_refused() -> None:
    for datatype, data in ((name, data) for name, lists in OTHERS.items() for data in lists):
        with pytest.raises(TensorError):
            read_json(data, datatype, (len(data),))
    one, two, most = b"\x01\0\0\0", b"\x02\0\0\0", b"\xff\xff\xff\xff"
    for raw in (b"", one[:3], one, two + b"a", most + b"a", one + b"ab", one + b"\xff", bytes(8)):
        with pytest.raises(TensorError):
            read_bytes(memoryview(raw), "BYTES", (1,))


def test_what_is_missing_is_nan_or_none_and_numbers_beyond_a_type_are_its_largest() -> None:
    assert math.isnan(read_json([None], "FP32", (1,))[0])
    assert math.isnan(read_json([float("nan")], "FP64", (1,))[0])
    for datatype, value in (("INT64", 2**62), ("BOOL", True), ("BYTES", "a")):
        assert read_json([value, None], datatype, (2,)).tolist() == [value, None]
    largest = float(np.finfo(np.float32).max)
    assert read_json([1e39, -1e39, math.inf], "FP32", (3,)).tolist() == [largest, -largest, math.inf]
    assert read_json([1e5], "FP16", (1,)).tolist() == [65504.0]


def test_a_claimed_shape_allocates_nothing() -> None:
    tracemalloc.start()
    try:
        for datatype, shape in product(DATATYPES, ((2**40,), (2**40, 2**40), (2**62, 1))):
            with pytest.raises(TensorError):
                read_bytes(memoryview(b"abcd"), datatype, shape)
            with pytest.raises(TensorError):
                read_json([1], datatype, shape)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
