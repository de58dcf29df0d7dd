"""Requests and answers of the Open Inference Protocol (version 2, REST), with its binary tensor extension.

    {"id": "42",
     "inputs": [{"name": "age", "datatype": "FP32", "shape": [2], "data": [39, 51]}, ...],
     "outputs": [{"name": "probabilities"}]}

The rows to predict for are one tensor with a column for each feature, or a tensor for each feature. An answer has as
outputs what `/predict` tells.

Tensors of the Open Inference Protocol: from JSON or bytes to NumPy arrays, and back.

A tensor is described by its datatype and its shape. Its elements come as a JSON list, flat or nested, or as bytes
behind the JSON: little-endian, row by row; a text (BYTES) is its length in 4 bytes and then its UTF-8. Before anything
is allocated the caller has bounded the shape, so that the size of an array follows from the limits and not from what
a request claims.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import orjson
from pydantic_core import from_json

from oubli.app.http.parsing import LEAVE_OUT, require_few_values, with_rules
from oubli.app.http.problems import ProblemError, invalid, pointer
from oubli.app.service.model.live import Predicted
from oubli.core.array_types import Array
from oubli.core.data.columns import saturated
from oubli.core.data.schema import Schema, Task
from oubli.core.data.values import NOT_FINITE, TOO_LARGE, ColumnType, LabelType
from oubli.core.errors import InputError

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
            values: Array = saturated(np.array(flat, np.float64), dtype.newbyteorder("="))
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


EXTENSIONS = ("binary_tensor_data",)
HEADER_LENGTH = "Inference-Header-Content-Length"
BINARY_TYPE = "application/octet-stream"
MATRIX = "features"
"""Name of the input that has all features, where all are numbers; another one will do as well."""
PREDICTIONS, PROBABILITIES, CLASSES = "predictions", "probabilities", "classes"

_SCALARS = frozenset({str, int, float, bool, type(None)})
_REQUEST_KEYS = frozenset({"id", "model_name", "model_version", "parameters", "inputs", "outputs"})
_INPUT_KEYS = frozenset({"name", "shape", "datatype", "parameters", "data"})
_OUTPUT_KEYS = frozenset({"name", "parameters"})
# Of extensions that change what is asked; ignored, the answer would be another one than was meant.
_UNSUPPORTED = frozenset({"classification", "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"})
_LABEL_DATATYPES = {
    LabelType.STRING: TEXT,
    LabelType.INTEGER: "INT64",
    LabelType.NUMBER: "FP64",
    LabelType.BOOLEAN: "BOOL",
    LabelType.SCALAR: TEXT,  # as JSON, so that 1 and "1" stay two labels
}
_DATATYPES_BY_KIND = {"b": "BOOL", "i": "INT64", "f": "FP64"}
_JSON_LABELS = {"content_type": "application/json"}
_PLAIN_KINDS = {ColumnType.NUMERIC: "fiuO", ColumnType.BOOLEAN: "bO", ColumnType.CATEGORICAL: "O"}


class Tensor(NamedTuple):
    """An input: its name, and its elements in one dimension or two."""

    name: str
    values: Array


class Inference(NamedTuple):
    """What an infer request asks.

    Attributes
    ----------
    id
        To be repeated in the answer; None when there is none.
    rows
        As a model takes them.
    places
        Pointer to the input that has each feature.
    outputs
        Which outputs to answer with, and whether as bytes.
    min_version
        Version that the model must have reached; None for any.
    has_infinities
        Whether it may have infinities, rather than numbers in JSON that no 64-bit float holds.
    """

    id: str | None
    rows: Sized
    places: Mapping[str, str]
    outputs: Mapping[str, bool]
    min_version: int | None
    has_infinities: bool


def output_names(schema: Schema) -> tuple[str, ...]:
    """Return the names of the outputs that a model has."""
    return (PREDICTIONS, PROBABILITIES, CLASSES) if schema.task is Task.CLASSIFICATION else (PREDICTIONS,)


def describe(schema: Schema) -> dict[str, Any]:
    """Return inputs and outputs as the metadata of a model has them; -1 is any number."""
    widths = {"float32": "FP32", "float64": "FP64"}
    if all(column.type is ColumnType.NUMERIC for column in schema.columns):
        inputs = [_description(MATRIX, widths[schema.cell_dtype.name], [-1, schema.n_features])]
    else:
        datatypes = {ColumnType.BOOLEAN: "BOOL", ColumnType.CATEGORICAL: TEXT}
        inputs = [_description(one.name, datatypes.get(one.type, widths[one.dtype]), [-1]) for one in schema.columns]
    labels = _LABEL_DATATYPES[schema.label_type]
    outputs = {PREDICTIONS: (labels, [-1]), PROBABILITIES: ("FP64", [-1, -1]), CLASSES: (labels, [-1])}
    return {"inputs": inputs, "outputs": [_description(name, *outputs[name]) for name in output_names(schema)]}


def _description(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}


# --- requests


def read_inference(body: bytes, header_lengths: list[str], schema: Schema, max_rows: int) -> Inference:
    """Return what the body of an infer request asks.

    Parameters
    ----------
    body
        JSON, perhaps with the bytes of tensors behind it.
    header_lengths
        The values of `Inference-Header-Content-Length`: how many bytes of the body are JSON.
    schema
        Of the model.
    max_rows
        Most rows in one request.

    Raises
    ------
    ProblemError
        When the body is not as it should be; nothing of it is repeated.
    """
    header, data = _parted(body, header_lengths)
    require_few_values(header, max_rows, schema.n_features)
    content = _object(_parsed(header), _REQUEST_KEYS, "")
    for key in ("id", "model_name", "model_version"):  # the path says which model
        if not isinstance(content.get(key, ""), str):
            raise invalid(pointer(key), "must be text")
    parameters = _parameters(content, "")
    rules = with_rules(schema, parameters, "/parameters")
    reader = _InputReader(data, schema, max_rows)
    tensors = [reader.tensor(sent, pointer("inputs", i)) for i, sent in enumerate(reader.sent(content))]
    reader.finish()
    rows, places = _table(tensors, rules)
    min_version = parameters.get("min_version")
    if min_version is not None and (type(min_version) is not int or min_version < 0):
        raise invalid("/parameters/min_version", "must be an integer of at least 0")
    outputs = _outputs(content, _flag(parameters, "binary_data_output", ""), schema)
    return Inference(content.get("id"), rows, places, outputs, min_version, bool(data) or b"nfinity" in header)


def explain_inputs(error: InputError, asked: Inference, schema: Schema) -> ProblemError:
    """Return the problem of rows that `core` refused, with the input that has them."""
    if error.row is None or error.field not in schema.names:
        return invalid("", error.rule)
    rule = TOO_LARGE if error.rule == NOT_FINITE and not asked.has_infinities else error.rule
    return invalid(asked.places[error.field], f"(row {error.row}, feature '{error.field}') {rule}")


class _InputReader:
    """Reads inputs one after the other, and the bytes behind the JSON with them."""

    def __init__(self, data: memoryview | None, schema: Schema, max_rows: int) -> None:
        self._data = data
        self._start = 0
        self._n_features = schema.n_features
        self._max_rows = max_rows

    def sent(self, content: dict[str, Any]) -> list[Any]:
        """Return the inputs of a request as they were sent."""
        inputs = content.get("inputs")
        if not isinstance(inputs, list) or not inputs:
            raise invalid("/inputs", "must be a list of at least one tensor")
        return inputs

    def tensor(self, sent: Any, place: str) -> Tensor:
        """Return one input."""
        content = _object(sent, _INPUT_KEYS, place)
        name, datatype = content.get("name"), content.get("datatype")
        if not isinstance(name, str):
            raise invalid(f"{place}/name", "must be text")
        if not isinstance(datatype, str) or datatype not in DATATYPES:
            raise invalid(f"{place}/datatype", f"must be one of {', '.join(DATATYPES)}")
        shape = self._shape(content.get("shape"), f"{place}/shape")
        size = _parameters(content, place).get("binary_data_size")
        data = content.get("data")
        if size is None and data is None:
            raise invalid(place, "must have 'data', or 'binary_data_size' among its parameters")
        if size is not None and data is not None:
            raise invalid(place, "must have either 'data' or 'binary_data_size', and not both")
        try:
            if size is None:
                return Tensor(name, read_json(data, datatype, shape))
            return Tensor(name, read_bytes(self._next(size, place), datatype, shape))
        except TensorError as error:
            raise invalid(f"{place}/data" if size is None else place, error.rule) from None

    def finish(self) -> None:
        """Refuse bytes that belong to no input."""
        n_more = 0 if self._data is None else len(self._data) - self._start
        if n_more:
            raise invalid("", f"has {n_more} bytes behind those of its tensors")

    def _next(self, size: Any, place: str) -> memoryview:
        place = f"{place}/parameters/binary_data_size"
        if type(size) is not int or size < 0:
            raise invalid(place, "must be a number of bytes")
        if self._data is None:
            raise invalid(place, f"needs the header {HEADER_LENGTH}, which says where the JSON ends")
        if size > len(self._data) - self._start:
            raise invalid(place, "is more than there are bytes in the body")
        self._start += size
        return self._data[self._start - size : self._start]

    def _shape(self, shape: Any, place: str) -> tuple[int, ...]:
        if not isinstance(shape, list) or any(type(size) is not int or size < 0 for size in shape):
            raise invalid(place, "must be a list of numbers of at least 0")
        if len(shape) not in (1, 2) or (len(shape) == 2 and shape[1] not in (1, self._n_features)):
            rule = f"must be [rows], [rows, 1], or for all features at once [rows, {self._n_features}]"
            raise invalid(place, rule)
        if shape[0] == 0:
            raise invalid(place, "must have at least one row")
        if shape[0] > self._max_rows:
            raise ProblemError("too-many-rows", f"The request has more than {self._max_rows} rows: split it.")
        return tuple(shape)


def _parted(body: bytes, header_lengths: list[str]) -> tuple[bytes, memoryview | None]:
    """Return the JSON and what is behind it; None when all is JSON."""
    if not header_lengths:
        return body, None
    text = header_lengths[0]
    if len(header_lengths) > 1 or not (text.isascii() and text.isdecimal()) or len(text) > 18 or int(text) > len(body):
        raise invalid(pointer(HEADER_LENGTH), "must be once how many bytes of the body are JSON")
    length = int(text)
    return body[:length], memoryview(body)[length:]


def _parsed(body: bytes) -> Any:
    try:
        # NaN is what clients write for a missing number. The parser may keep no text of a request.
        return from_json(body, cache_strings="none")
    except ValueError:
        raise ProblemError("broken-json", "The body cannot be read as JSON: send one JSON object in UTF-8.") from None


def _object(content: Any, keys: frozenset[str], place: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise invalid(place, "must be a JSON object")
    if not keys.issuperset(content):
        known = ", ".join(f"'{key}'" for key in sorted(keys))
        raise invalid(place, f"has a key that is not known; known are {known}")
    return content


def _parameters(content: dict[str, Any], place: str) -> dict[str, Any]:
    found = content.get("parameters", {})
    place += "/parameters"
    if not isinstance(found, dict) or not _SCALARS.issuperset(map(type, found.values())):
        raise invalid(place, "must be an object of texts, numbers and truth values")
    unsupported = sorted(_UNSUPPORTED.intersection(found))
    if unsupported:
        raise invalid(f"{place}/{unsupported[0]}", "belongs to an extension that this server does not have")
    return found


def _flag(parameters: dict[str, Any], name: str, place: str) -> bool | None:
    value = parameters.get(name)
    if value is not None and type(value) is not bool:
        raise invalid(f"{place}/parameters/{name}", "must be true or false")
    return value


def _outputs(content: dict[str, Any], binary: bool | None, schema: Schema) -> dict[str, bool]:
    """Return the outputs that are asked for, by default all; each says for itself whether it is to be bytes."""
    known = output_names(schema)
    asked = content.get("outputs", [])
    if not isinstance(asked, list):
        raise invalid("/outputs", "must be a list")
    found: dict[str, bool] = {}
    for i, sent in enumerate(asked):
        place = pointer("outputs", i)
        output = _object(sent, _OUTPUT_KEYS, place)
        name = output.get("name")
        if not isinstance(name, str) or name not in known or name in found:
            raise invalid(f"{place}/name", f"must be one of {', '.join(known)}, each at most once")
        own = _flag(_parameters(output, place), "binary_data", place)
        found[name] = bool(binary if own is None else own)
    return found or dict.fromkeys(known, bool(binary))


def _table(tensors: list[Tensor], schema: Schema) -> tuple[Sized, dict[str, str]]:
    """Return the rows that some tensors are, by the schema's rules, and the pointer to the tensor of each feature."""
    names, first = schema.names, tensors[0]
    is_wide = first.values.ndim == 2 and (first.values.shape[1] == len(names) or first.name not in names)
    if len(tensors) == 1 and is_wide:
        if first.values.shape[1] != len(names):
            raise invalid("/inputs/0/shape", f"has one column: the model has {len(names)} features")
        return _matrix(first.values, schema), dict.fromkeys(names, "/inputs/0")
    columns: dict[str, Array] = {}
    places: dict[str, str] = {}
    known = frozenset(names)
    for i, (name, values) in enumerate(tensors):
        place = pointer("inputs", i)
        if name not in known and schema.extra_columns == "ignore":
            continue
        if name not in known or name in columns:
            rule = f"must be the name of a feature, each once{schema.nearest(name)}: the model's metadata lists them; "
            raise invalid(f"{place}/name", f"{rule}{LEAVE_OUT}")
        if values.size != len(values):
            raise invalid(f"{place}/shape", "must be [rows] or [rows, 1]: there is a tensor for each feature")
        if len(values) != len(first.values):
            raise invalid(f"{place}/shape", "must have as many rows as the first input")
        columns[name], places[name] = values.ravel(), place
    missing = [name for name in names if name not in columns]
    if missing and schema.missing_columns == "refuse":
        listed = ", ".join(f"'{name}'" for name in missing[:10])
        raise invalid("/inputs", f"must have a tensor for each feature; without one are {listed}")
    columns |= dict.fromkeys(missing, np.full(len(first.values), None, object))
    ordered = {name: columns[name] for name in names}
    return _only_row(ordered, schema) or Columns(ordered), places


def _matrix(values: Array, schema: Schema) -> Sized:
    if values.dtype.kind == "O":
        rows: list[Any] = values.tolist()
        return rows
    # The model gets one type of numbers for every datatype; but the text of a category depends on the type it came in.
    return values.astype(np.float64) if values.dtype.kind == "f" and not schema.categorical_mask.any() else values


def _only_row(columns: dict[str, Array], schema: Schema) -> list[list[Any]] | None:
    """Return one row of plain values, which is faster than columns, and the same."""
    if len(next(iter(columns.values()))) > 1:
        return None
    if any(columns[one.name].dtype.kind not in _PLAIN_KINDS[one.type] for one in schema.columns):
        return None
    return [[values.tolist()[0] for values in columns.values()]]


# --- answers


def inference_content(
    asked: Inference, predicted: Predicted, schema: Schema, model_name: str
) -> tuple[bytes, int | None]:
    """Return the body of the answer, and how many bytes of it are JSON when there are those of outputs behind it."""
    makers = _makers(predicted, schema)
    outputs: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for name, is_binary in asked.outputs.items():
        if name not in makers:  # so can the task have changed
            continue
        datatype, shape, values, parameters = makers[name]()
        output = _description(name, datatype, shape)
        if is_binary:
            parts.append(to_bytes(values, datatype))
            parameters = {**parameters, "binary_data_size": len(parts[-1])}
        if parameters:
            output["parameters"] = parameters
        if not is_binary:
            output["data"] = values
        outputs.append(output)
    version = predicted.model_version
    content: dict[str, Any] = {"model_name": model_name, "model_version": str(version)}
    if asked.id is not None:
        content["id"] = asked.id
    content |= {"parameters": {"model_version": version}, "outputs": outputs}
    header = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return (b"".join((header, *parts)), len(header)) if parts else (header, None)


_Made = tuple[str, list[int], Any, dict[str, Any]]


def _makers(predicted: Predicted, schema: Schema) -> dict[str, Callable[[], _Made]]:
    """Return, by output, what makes its datatype, shape, elements and parameters."""
    result = predicted.result
    is_json = schema.label_type is LabelType.SCALAR

    def labels(values: Array) -> _Made:
        listed = values.tolist()
        if is_json:
            listed = [json.dumps(label, ensure_ascii=False) for label in listed]
        # By the array: a restore can have changed the schema while the rows waited.
        datatype = TEXT if is_json else _DATATYPES_BY_KIND.get(values.dtype.kind, TEXT)
        return datatype, [len(listed)], listed, _JSON_LABELS if is_json else {}

    makers: dict[str, Callable[[], _Made]] = {PREDICTIONS: lambda: labels(result.labels)}
    if result.classes is not None and result.probabilities is not None:
        classes, probabilities = result.classes, result.probabilities
        makers[CLASSES] = lambda: labels(classes)
        makers[PROBABILITIES] = lambda: ("FP64", list(probabilities.shape), np.ravel(probabilities), {})
    return makers
