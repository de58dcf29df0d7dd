"""A data file of any size, predicted by a running server: a request for each piece of the file."""

import csv
import io
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import orjson
import pyarrow as pa

from oubli.app.datasets.arrow_writer import ArrowWriter
from oubli.app.datasets.columns import verbatim
from oubli.app.datasets.loading import require_features, require_id
from oubli.app.datasets.readers import LoadError, Source, located
from oubli.app.errors import StartError
from oubli.app.progress import Progress, silent
from oubli.client import Client, InvalidInputError, NoAnswerError, ProblemError, Request
from oubli.client.errors import problem_of
from oubli.client.messages import Flow, NextChunk
from oubli.client.session import Session

_HEADERS = {"Content-Type": "application/vnd.apache.arrow.stream", "Accept": "text/csv"}
_ERROR = b"#error "
_AT_ONCE = 2  # requests: one is predicted while another is on its way


def remote_prediction_rows(
    client: Client, source: Source, id_column: str | None = None, progress: Progress = silent
) -> Iterator[list[Any]]:
    """Yield a header, then one row for each row of a file: id if there are ids, and what the server answers.

    Parameters
    ----------
    client
        Of the server that predicts.
    source
        The file; columns are matched by name.
    id_column
        Column to repeat in front of each prediction.
    progress
        Told how far the file is read.

    Raises
    ------
    StartError, ClientError
        When the file cannot be used, or the server does not answer all of it.
    """
    names = client.schema().names
    require_features(source, names)
    require_id(source, id_column)
    is_first, n_before = True, 0
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for ids, found in _asked(client, pool, source, names, id_column, progress):
            try:
                text = io.StringIO(found.result().decode("utf-8"), newline="")
            except InvalidInputError as refusal:
                raise _refused(refusal, source, n_before) from None
            header, *rows = csv.reader(text)
            if is_first:
                yield header if id_column is None else ["id", *header]
            yield from rows if id_column is None else ([name, *row] for name, row in zip(ids, rows, strict=True))
            is_first, n_before = False, n_before + len(rows)
    if is_first:
        raise LoadError(f"{source.path} holds a header but no rows")


def _asked(
    client: Client,
    pool: ThreadPoolExecutor,
    source: Source,
    names: Sequence[str],
    id_column: str | None,
    progress: Progress,
) -> Iterator[tuple[list[str | None], Future[bytes]]]:
    """Yield the ids of each piece of the file, and the answer to come."""
    wanted = list(dict.fromkeys([*names, *([] if id_column is None else [id_column])]))
    waiting: deque[tuple[list[str | None], Future[bytes]]] = deque()
    for batch in source.batches(wanted, progress):
        ids: list[str | None] = []
        if id_column is not None:
            with located(source):
                ids = list(verbatim(id_column, pa.chunked_array([batch.column(id_column)])))
        features = batch.select(list(names))
        writer = ArrowWriter(features.schema)
        request = Request("POST", "/predict", body=writer.write(features) + writer.close(), headers=_HEADERS,
                          is_safe=True, is_streamed=True)  # fmt: skip
        waiting.append((ids, pool.submit(client.transport.run, _answer(client.session, request))))
        if len(waiting) > _AT_ONCE:
            yield waiting.popleft()
    yield from waiting


def _answer(session: Session, request: Request) -> Flow[bytes]:
    """Return a whole answer. One that is cut off ends with the reason."""
    answer = yield from session.exchange(request)
    content = b""
    try:
        while (piece := (yield NextChunk(answer.stream))) is not None:
            content += piece
    except NoAnswerError:
        _, found, problem = content.rpartition(_ERROR)
        if not found:
            raise
        document = orjson.loads(problem)
        raise problem_of(int(document["status"]), document, None, answer.headers.get("x-request-id")) from None
    return content


def _refused(refusal: ProblemError, source: Source, n_before: int) -> StartError:
    """Say where in the file it is what the server does not take."""
    if not refusal.errors:
        return StartError(f"the server refused the file: {refusal.detail}")
    pointer, rule = refusal.errors[0]
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")]
    row = parts[2] if len(parts) > 2 else ""
    where = f", {source.place(n_before + int(row))}" if row.isdecimal() else ""
    column = f", column {parts[3]!r}" if len(parts) > 3 else ""
    return StartError(f"{source.path}{where}{column}: {rule}")
