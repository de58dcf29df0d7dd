"""Predictions and additions as CSV, NDJSON and Arrow streams, a batch after the other.

    CSV       a header; a line a row; on failure a last line that begins with ``#error``
    NDJSON    an object a row, as the JSON answer to it alone would be; on failure a last object with ``error``
    Arrow     a record batch a batch; on failure an empty one with ``error`` in its metadata, and no end of the stream

Numbers are written as in JSON answers, by the same library.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from oubli.app.errors import ModelChangedError
from oubli.app.http.formats import Format, csv_cell, csv_header, csv_line
from oubli.core.data.values import LabelType

if TYPE_CHECKING:
    from oubli.app.datasets.streams import ArrowWriter
    from oubli.app.service.changes.additions import Added
    from oubli.app.service.model.live import Predicted

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY
ERROR = "error"


class CsvEncoder:
    """Columns `prediction`, `probability of ...` for each class, `model_version`."""

    def __init__(self) -> None:
        self._classes: list[Any] | None = None

    def begin(self, first: Predicted) -> bytes:
        """Return the header."""
        self._classes = _classes_of(first)
        return csv_header(_names(self._classes)).encode("utf-8")

    def encode(self, predicted: Predicted) -> bytes:
        """Return the lines."""
        _require_same(self._classes, predicted)
        labels = _each_once(predicted, lambda label: csv_cell(label).encode("utf-8"))
        version = predicted.model_version
        if predicted.result.probabilities is None:
            return b"".join(b"%b,%d\r\n" % (label, version) for label in labels)
        numbers = _number_rows(predicted)
        return b"".join(b"%b,%b,%d\r\n" % (label, row, version) for label, row in zip(labels, numbers, strict=True))

    def end(self) -> bytes:
        """Return nothing: the last line is the end."""
        return b""

    def fail(self, problem: dict[str, Any]) -> bytes:
        """Return a line that is no row."""
        return b"#error " + orjson.dumps(problem) + b"\r\n"


class NdjsonEncoder:
    """Objects with `prediction`, `classes`, `probabilities` and `model_version`."""

    def begin(self, first: Predicted) -> bytes:
        """Return nothing: every line says all."""
        del first
        return b""

    def encode(self, predicted: Predicted) -> bytes:
        """Return the lines."""
        labels = _each_once(predicted, orjson.dumps)
        version = predicted.model_version
        if predicted.result.probabilities is None:
            return b"".join(b'{"prediction":%b,"model_version":%d}\n' % (label, version) for label in labels)
        between = b',"classes":%b,"probabilities":[' % orjson.dumps(_classes_of(predicted))
        end = b'],"model_version":%d}\n' % version
        numbers = _number_rows(predicted)
        return b"".join(
            b'{"prediction":%b%b%b%b' % (label, between, row, end) for label, row in zip(labels, numbers, strict=True)
        )

    def end(self) -> bytes:
        """Return nothing: the last line is the end."""
        return b""

    def fail(self, problem: dict[str, Any]) -> bytes:
        """Return an object that is no row."""
        return orjson.dumps({ERROR: problem}) + b"\n"


class ArrowEncoder:
    """The columns of CSV, typed; labels of mixed types are written as JSON texts.

    Parameters
    ----------
    label_type
        Of the schema.
    """

    def __init__(self, label_type: LabelType) -> None:
        self._label_type = label_type
        self._classes: list[Any] | None = None
        self._writer: ArrowWriter | None = None

    def begin(self, first: Predicted) -> bytes:
        """Return nothing: the first batch begins with the schema."""
        import pyarrow as pa

        from oubli.app.datasets.streams import ArrowWriter

        label = {
            LabelType.STRING: pa.string(),
            LabelType.INTEGER: pa.int64(),
            LabelType.NUMBER: pa.float64(),
            LabelType.BOOLEAN: pa.bool_(),
            LabelType.SCALAR: pa.string(),
        }[self._label_type]
        self._classes = _classes_of(first)
        first_name, *shares, last_name = _names(self._classes)
        fields = [(first_name, label), *((name, pa.float64()) for name in shares), (last_name, pa.int64())]
        self._writer = ArrowWriter(pa.schema(fields))
        return b""

    def encode(self, predicted: Predicted) -> bytes:
        """Return a record batch."""
        _require_same(self._classes, predicted)
        result = predicted.result
        labels = result.labels.tolist()
        if self._label_type is LabelType.SCALAR:
            labels = [orjson.dumps(label).decode("utf-8") for label in labels]
        shares = [] if result.probabilities is None else list(np.ascontiguousarray(result.probabilities.T))
        versions = np.full(len(labels), predicted.model_version, np.int64)
        writer = self._started
        return writer.write(_batch(writer.schema, [labels, *shares, versions]))

    def end(self) -> bytes:
        """Return the mark of the end."""
        return self._started.close()

    def fail(self, problem: dict[str, Any]) -> bytes:
        """Return a batch without rows that says why."""
        writer = self._started
        return writer.write(_batch(writer.schema, [[] for _ in writer.schema]), {ERROR: orjson.dumps(problem)})

    @property
    def _started(self) -> ArrowWriter:
        if self._writer is None:
            raise RuntimeError("the stream has not begun")
        return self._writer


Encoder = CsvEncoder | NdjsonEncoder | ArrowEncoder
"""Writes one answer: `begin` what comes before the rows, `encode` rows, then `end`, or `fail` with the problem.

The columns of CSV and Arrow are those of the classes at the beginning: `encode` raises ModelChangedError when the
classes are others.
"""


def _batch(schema: Any, columns: Sequence[Any]) -> Any:
    """Return a record batch; arrays of numbers by their buffers, because pyarrow would import pandas for them."""
    import pyarrow as pa

    arrays = [
        pa.Array.from_buffers(field.type, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
        if isinstance(values, np.ndarray)
        else pa.array(values, field.type)
        for values, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def encoder_for(wanted: Format, label_type: LabelType) -> Encoder:
    """Return what writes predictions in a format; not in JSON."""
    if wanted is Format.CSV:
        return CsvEncoder()
    return NdjsonEncoder() if wanted is Format.NDJSON else ArrowEncoder(label_type)


def encode_addition(wanted: Format, added: Added, *, durable: bool) -> bytes:
    """Return what became of samples that were sent, a row for each: its id, and what is the same for all."""
    content = {"model_version": added.model_version, "n_samples": added.n_samples, "durable": durable}
    if wanted is Format.NDJSON:
        return b"".join(orjson.dumps({"id": name, **content}) + b"\n" for name in added.ids)
    if wanted is Format.CSV:
        cells = list(content.values())
        return "".join([csv_header(["id", *content]), *(csv_line([name, *cells]) for name in added.ids)]).encode(
            "utf-8"
        )
    import pyarrow as pa

    from oubli.app.datasets.streams import ArrowWriter

    types = {"id": pa.string(), "model_version": pa.int64(), "n_samples": pa.int64(), "durable": pa.bool_()}
    writer, n = ArrowWriter(pa.schema(types)), len(added.ids)
    rows = writer.write(_batch(writer.schema, [added.ids, *([value] * n for value in content.values())]))
    return rows + writer.close()


def _classes_of(predicted: Predicted) -> list[Any] | None:
    classes = predicted.result.classes
    return None if classes is None else classes.tolist()


def _require_same(classes: list[Any] | None, predicted: Predicted) -> None:
    found = _classes_of(predicted)
    if found != classes or list(map(type, found or ())) != list(map(type, classes or ())):
        raise ModelChangedError


def _names(classes: list[Any] | None) -> list[str]:
    shown = (one if isinstance(one, str) else orjson.dumps(one).decode("utf-8") for one in classes or ())
    return ["prediction", *(f"probability of {name}" for name in shown), "model_version"]


def _each_once(predicted: Predicted, written: Any) -> Iterator[bytes]:
    """Yield the label of each row; those that are classes are written once."""
    labels = predicted.result.labels
    if predicted.result.classes is None:
        yield from orjson.dumps(np.ascontiguousarray(labels), option=_OPTIONS)[1:-1].split(b",")
        return
    # Among scalars 1, 1.0 and true are equal, and three classes.
    known = {(type(one), one): written(one) for one in predicted.result.classes.tolist()}
    for label in labels.tolist():
        yield known[type(label), label]


def _number_rows(predicted: Predicted) -> list[bytes]:
    """Return the probabilities of each row, commas between them."""
    matrix = np.ascontiguousarray(predicted.result.probabilities)
    return orjson.dumps(matrix, option=_OPTIONS)[2:-2].split(b"],[")
