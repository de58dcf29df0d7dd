"""Tensors of the Open Inference Protocol: from JSON or bytes to NumPy arrays, and back.

A tensor is described by its datatype and its shape. Its elements come as a JSON list, flat or nested, or as bytes
behind the JSON: little-endian, row by row; a text (BYTES) is its length in 4 bytes and then its UTF-8. Before anything
is allocated the caller has bounded the shape, so that the size of an array follows from the limits and not from what
a request claims.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from oubli.core.array_types import Array

TEXT = "BYTES"
DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    **{f"{kind}{8 * size}": np.dtype(f"<{kind[0].lower()}{size}") for kind in ("UINT", "INT") for size in (1, 2, 4, 8)},
    **{f"FP{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
}
"""How the elements of each datatype are written as bytes; texts apart."""
DATATYPES = (*DTYPES, TEXT)

_LENGTH = 4  # bytes before each text
# By the kind of a dtype: the types that its elements have in JSON, and how they are called.
_IN_JSON: dict[str, tuple[frozenset[type], str]] = {
    "b": (frozenset({bool, type(None)}), "true, false or null"),
    "i": (frozenset({int, type(None)}), "an integer or null"),
    "f": (frozenset({int, float, type(None)}), "a number or null"),
    "O": (frozenset({str, type(None)}), "text or null"),
}
_IN_JSON["u"] = _IN_JSON["i"]


class TensorError(Exception):
    """Data that are not the tensor that they are said to be.

    Parameters
    ----------
    rule
        What must hold; names no data.
    """

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


def read_json(data: Any, datatype: str, shape: tuple[int, ...]) -> Array:
    """Return the elements of a JSON list as an array; a missing one (null, NaN) is NaN, or None among other objects.

    Parameters
    ----------
    data
        As it was parsed: flat, or nested as the shape says.
    datatype
        One of `DATATYPES`.
    shape
        One number, or two.

    Raises
    ------
    TensorError
        When the data do not fit datatype and shape.
    """
    flat = _flat(data, shape)
    dtype = DTYPES.get(datatype, np.dtype(object))
    types = set(map(type, flat))
    accepted, name = _IN_JSON[dtype.kind]
    if not types <= accepted:
        wrong = next(i for i, value in enumerate(flat) if type(value) not in accepted)
        raise TensorError(f"(element {wrong}) must be {name}, as the datatype {datatype} says")
    try:
        if dtype.kind == "f":
            with np.errstate(over="ignore"):  # an infinity is refused where the column is known
                values: Array = np.array(flat, np.float64).astype(dtype.newbyteorder("="))
        elif dtype.kind == "O" or type(None) in types:
            np.array([value for value in flat if value is not None], dtype)  # whether the integers fit
            values = np.array([*flat, None], object)[:-1]  # None keeps NumPy from looking into texts
        else:
            values = np.array(flat, dtype.newbyteorder("="))
    except OverflowError:
        raise TensorError(f"holds an integer beyond the range of {datatype}") from None
    return values.reshape(shape)


def read_bytes(data: memoryview, datatype: str, shape: tuple[int, ...]) -> Array:
    """Return the elements of a tensor that was sent as bytes, in the machine's byte order and a memory of their own.

    Parameters are those of `read_json`.

    Raises
    ------
    TensorError
        When the bytes do not fit datatype and shape.
    """
    count = math.prod(shape)
    if datatype == TEXT:
        return _texts(data, count).reshape(shape)
    dtype = DTYPES[datatype]
    if len(data) != count * dtype.itemsize:
        raise TensorError(f"has {len(data)} bytes of data: {datatype} of its shape takes {count * dtype.itemsize}")
    if dtype.kind == "b":
        values = np.frombuffer(data, np.uint8)
        if (values > 1).any():
            raise TensorError("must have 0 or 1 in each byte, as the datatype BOOL says")
        return values.astype(np.bool_).reshape(shape)
    return np.frombuffer(data, dtype).astype(dtype.newbyteorder("=")).reshape(shape)


def to_bytes(values: Array | Sequence[Any], datatype: str) -> bytes:
    """Return elements as the bytes of a tensor."""
    if datatype == TEXT:
        encoded = [text.encode("utf-8") for text in values]
        return b"".join(chain.from_iterable((len(text).to_bytes(_LENGTH, "little"), text) for text in encoded))
    return np.asarray(values).astype(DTYPES[datatype]).tobytes()


class Columns:
    """A table as tensors, one for each column: what `core` reads as it reads a DataFrame.

    Parameters
    ----------
    columns
        One-dimensional arrays of the same length, by name.
    """

    def __init__(self, columns: dict[str, Array]) -> None:
        self._columns = columns
        self.columns = list(columns)
        self.dtypes = [values.dtype for values in columns.values()]

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, name: str) -> Array:
        return self._columns[name]


def _flat(data: Any, shape: tuple[int, ...]) -> list[Any]:
    if type(data) is not list:
        raise TensorError("must be a list")
    if len(shape) == 2 and data and type(data[0]) is list:
        if len(data) != shape[0] or any(type(row) is not list or len(row) != shape[1] for row in data):
            raise TensorError("must be nested as the shape says, or flat")
        return list(chain.from_iterable(data))
    if len(data) != math.prod(shape):
        raise TensorError(f"has {len(data)} elements: the shape takes {math.prod(shape)}")
    return data


def _texts(data: memoryview, count: int) -> Array:
    if len(data) < _LENGTH * count:
        raise _misfit()
    texts = np.empty(count, object)
    for i, text in enumerate(_parts(data, count)):
        try:
            texts[i] = str(text, "utf-8")
        except UnicodeDecodeError:
            raise TensorError(f"(element {i}) must be UTF-8") from None
    return texts


def _parts(data: memoryview, count: int) -> Iterator[memoryview]:
    start = 0
    for _ in range(count):
        first = start + _LENGTH
        start = first + int.from_bytes(data[start:first], "little")
        if first > len(data) or start > len(data):
            raise _misfit()
        yield data[first:start]
    if start != len(data):
        raise _misfit()


def _misfit() -> TensorError:
    return TensorError("must have the length of each text in 4 bytes before it, and nothing behind the last")
