"""Rows and samples in every format, as clients would write them."""

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from oubli.app.http.formats import Format
from oubli.core.data.schema import Column, ColumnType

WIDE = (
    Column("single", ColumnType.NUMERIC), Column("double", ColumnType.NUMERIC, "float64"),
    Column("text", ColumnType.CATEGORICAL), Column("flag", ColumnType.BOOLEAN),
)  # fmt: skip
BULK = (Format.CSV, Format.NDJSON, Format.ARROW)


def written(given: Format, names: Sequence[str], rows: Sequence[Sequence[Any]], *, chunk: int = 1000) -> bytes:
    """Rows as a body; with names of columns, where the format has columns."""
    if given is Format.NDJSON:
        return b"".join(json.dumps(list(row)).encode() + b"\n" for row in rows)
    if given is Format.CSV:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([[_text(cell) for cell in row] for row in rows])
        return text.getvalue().encode()
    table = pa.table({name: pa.array([row[i] for row in rows]) for i, name in enumerate(names)})
    return arrow(table, chunk)


def arrow(table: pa.Table, chunk: int = 1000) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=chunk)
    return sink.getvalue()


def _text(cell: Any) -> Any:
    return str(cell).lower() if isinstance(cell, bool) else cell


def predictions(wanted: Format, body: bytes) -> list[tuple[Any, list[float], int]]:
    """The prediction, the probabilities and the version of each row of an answer; a text where CSV has no types."""
    if wanted is Format.JSON:
        content = json.loads(body)
        shares = content.get("probabilities", [[]] * len(content["predictions"]))
        return [(p, s, content["model_version"]) for p, s in zip(content["predictions"], shares, strict=True)]
    if wanted is Format.NDJSON:
        found = [json.loads(line) for line in body.splitlines()]
        return [(one["prediction"], one.get("probabilities", []), one["model_version"]) for one in found]
    if wanted is Format.CSV:
        _, *rows = csv.reader(io.StringIO(body.decode(), newline=""))
        return [(row[0], [float(cell) for cell in row[1:-1]], int(row[-1])) for row in rows]
    columns = [column.to_pylist() for column in pa.ipc.open_stream(body).read_all().columns]
    return [(row[0], list(row[1:-1]), row[-1]) for row in zip(*columns, strict=True)]
