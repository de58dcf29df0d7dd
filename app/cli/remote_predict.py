"""A data file of any size, predicted by a running server: sent and answered piece by piece."""

import csv
import io
import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from http.client import HTTPException
from typing import Any

import pyarrow as pa

from oubli.app.cli.remote import RefusalError, Server
from oubli.app.datasets.arrow_writer import ArrowWriter
from oubli.app.datasets.columns import verbatim
from oubli.app.datasets.loading import require_features, require_id
from oubli.app.datasets.readers import LoadError, Source, located
from oubli.app.errors import StartError
from oubli.app.progress import Progress, silent

_ERROR = "#error "


def remote_prediction_rows(
    server: Server, source: Source, id_column: str | None = None, progress: Progress = silent
) -> Iterator[list[Any]]:
    """Yield a header, then one row for each row of a file: id if there are ids, and what the server answers.

    Parameters
    ----------
    server
        Predicts.
    source
        The file; columns are matched by name.
    id_column
        Column to repeat in front of each prediction.
    progress
        Told how far the file is read.

    Raises
    ------
    StartError
        When the file cannot be used, or the server does not answer all of it.
    """
    names = [feature["name"] for feature in server.get("/model")["features"]]
    require_features(source, names)
    require_id(source, id_column)
    ids: deque[str | None] = deque()
    pieces = _pieces(source, names, id_column, ids, progress)
    try:
        with server.exchange("/predict", pieces, "application/vnd.apache.arrow.stream", "text/csv") as answer:
            rows = csv.reader(_lines(io.TextIOWrapper(answer, encoding="utf-8", newline="")))
            header = next(rows, [])
            yield header if id_column is None else ["id", *header]
            for row in rows:
                yield row if id_column is None else [ids.popleft(), *row]
    except RefusalError as refusal:
        raise _refused(refusal, source) from None
    except HTTPException:
        raise StartError("the server's answer was cut short: try again") from None


def _pieces(
    source: Source, names: Sequence[str], id_column: str | None, ids: deque[str | None], progress: Progress
) -> Iterator[bytes]:
    """Yield the features of the file as an Arrow stream, as they are in the file; keep the ids."""
    wanted = list(dict.fromkeys([*names, *([] if id_column is None else [id_column])]))
    writer = None
    for batch in source.batches(wanted, progress):
        if id_column is not None:
            with located(source):
                ids.extend(verbatim(id_column, pa.chunked_array([batch.column(id_column)])))
        features = batch.select(list(names))
        if writer is None:
            writer = ArrowWriter(features.schema)
        yield writer.write(features)
    if writer is None:
        raise LoadError(f"{source.path} holds a header but no rows")
    yield writer.close()


def _lines(text: Iterable[str]) -> Iterator[str]:
    """Yield the lines of an answer; the last of one that is not whole says why."""
    for line in text:
        if line.startswith(_ERROR):
            raise RefusalError(json.loads(line[len(_ERROR) :]))
        yield line


def _refused(refusal: RefusalError, source: Source) -> StartError:
    """Say where in the file it is what the server does not take."""
    if not refusal.errors:
        return StartError(f"the server refused the file: {refusal.detail}")
    pointer, rule = refusal.errors[0]
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")]
    row = parts[2] if len(parts) > 2 else ""
    where = f", {source.place(int(row))}" if row.isdecimal() else ""
    column = f", column {parts[3]!r}" if len(parts) > 3 else ""
    return StartError(f"{source.path}{where}{column}: {rule}")
