"""Predictions and influence on the command line, from a model file or from a running server.

With a server, a data file of any size is sent in pieces, one request each.
"""

import csv
import io
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from oubli.api.model import Feature
from oubli.app.datasets.columns import ColumnError, Frame, convert_feature, verbatim
from oubli.app.datasets.dialect import Reading
from oubli.app.datasets.fields import plain_numbers
from oubli.app.datasets.formulas import unguarded
from oubli.app.datasets.loading import Queries, require_columns, require_features
from oubli.app.datasets.readers import LoadError, Source, located
from oubli.app.datasets.streams import ArrowWriter
from oubli.app.errors import StartError
from oubli.app.progress import Progress, silent, within
from oubli.app.service.model.influence import UnfitError, method_for
from oubli.client import Client, InvalidInputError, NoAnswerError, ProblemError, Request
from oubli.client.errors import problem_of
from oubli.client.messages import Flow, NextChunk
from oubli.client.session import Session
from oubli.core import load
from oubli.core.data.schema import Column, ColumnType
from oubli.core.errors import EmptyModelError, FileError, InputError
from oubli.core.estimators import load_own
from oubli.core.influence import Influence, influence

_BATCH = 5_000  # rows; small enough that the progress bar moves


def load_model_file(path: Path) -> Any:
    """Read a model file, or the newest snapshot of a data directory.

    Raises
    ------
    StartError
        When there is none, or it cannot be read.
    """
    is_kept = path.is_dir()
    if is_kept:
        # The number has eight digits or more: longer is later.
        found = sorted(path.glob("snapshot-*.safetensors"), key=lambda file: (len(file.name), file.name))
        if not found:
            raise StartError(f"the directory {path} holds no snapshot: name a model file or a server's data directory")
        path = found[-1]
    try:
        return load_own(path).model if is_kept else load(path, verify=False)
    except OSError as error:
        raise StartError(f"the model file {path} cannot be read: {error.strerror}") from None
    except FileError as error:
        raise StartError(f"the model file {path}: {error.rule}") from None


def prediction_rows(estimator: Any, queries: Queries, progress: Progress = silent) -> Iterator[list[Any]]:
    """Yield a header, then one row for each query: id if there are ids, prediction, a probability for each class."""
    if estimator.n_samples_ == 0:
        raise StartError("the model holds no samples, so there is nothing to predict from")
    total = len(queries)
    for start in range(0, total, _BATCH):
        progress("predicting", start, total)
        rows = slice(start, start + _BATCH)
        try:
            result = estimator.query(_rows(queries.X, rows))
        except EmptyModelError as error:
            raise StartError(str(error)) from None
        labels = result.labels.tolist()
        probabilities = result.probabilities.tolist() if result.probabilities is not None else [[] for _ in labels]
        ids = [[sample_id] for sample_id in queries.ids[rows]] if queries.ids is not None else [[] for _ in labels]
        if start == 0:
            classes = [] if result.classes is None else result.classes.tolist()
            head = [] if queries.ids is None else ["id"]
            yield [*head, "prediction", *(f"probability of {name}" for name in classes)]
        for sample_id, label, shares in zip(ids, labels, probabilities, strict=True):
            yield [*sample_id, label, *shares]
    progress("predicting", total, total)


def _rows(X: Any, rows: slice) -> Any:
    if isinstance(X, Frame):
        return Frame({name: X[name][rows] for name in X.columns})
    return X[rows]


_HEADERS = {"Content-Type": "application/vnd.apache.arrow.stream", "Accept": "text/csv"}
_ERROR = b"#error "
_AT_ONCE = 2  # requests: one is predicted while another is on its way


def remote_prediction_rows(
    client: Client,
    source: Source,
    *,
    rules: Mapping[str, Any],
    id_column: str | None = None,
    progress: Progress = silent,
) -> Iterator[list[Any]]:
    """Yield a header, then one row for each row of a file: id if there are ids, and what the server answers.

    Parameters
    ----------
    client
        Of the server that predicts.
    source
        The file; columns are matched by name.
    rules
        About columns, by name; None is that of the server's schema.
    id_column
        Column to repeat in front of each prediction.
    progress
        Called with how far the file is read.

    Raises
    ------
    StartError, ClientError
        When the file cannot be used, or the server does not answer all of it.
    """
    model = client.model()
    rules = {name: rule or getattr(model, name) for name, rule in rules.items()}
    require_columns(source, "--id", id_column)
    names = require_features(source, model.names, (model.label.name, id_column), **rules)
    features = [feature for feature in model.features if feature.name in names]
    is_first, n_before = True, 0
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for ids, found in _asked(client, pool, source, features, id_column, rules, progress):
            try:
                text = io.StringIO(found.result().decode("utf-8"), newline="")
            except InvalidInputError as refusal:
                raise _refused(refusal, source, n_before) from None
            header, *rows = csv.reader(text)
            rows = [list(map(unguarded, row)) for row in rows]
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
    features: Sequence[Feature],
    id_column: str | None,
    rules: Mapping[str, Any],
    progress: Progress,
) -> Iterator[tuple[list[str | None], Future[bytes]]]:
    """Yield the ids of each piece of the file, and the answer to come."""
    names = [feature.name for feature in features]
    wanted = list(dict.fromkeys([*names, *([] if id_column is None else [id_column])]))
    waiting: deque[tuple[list[str | None], Future[bytes]]] = deque()
    n_before = 0
    for batch in source.batches(wanted, progress):
        ids: list[str | None] = []
        if id_column is not None:
            with located(source):
                ids = list(verbatim(id_column, pa.chunked_array([batch.column(id_column)])))
        with located(source):
            fields = plain_fields(batch.select(names), features, source.reading, n_before)
        n_before += batch.num_rows
        writer = ArrowWriter(fields.schema)
        body = writer.write(fields) + writer.close()
        request = Request("POST", "/predict", tuple(rules.items()), body, _HEADERS, is_safe=True, is_streamed=True)
        waiting.append((ids, pool.submit(client.transport.run, _answer(client.session, request))))
        if len(waiting) > _AT_ONCE:
            yield waiting.popleft()
    yield from waiting


def plain_fields(batch: pa.RecordBatch, features: Sequence[Feature], reading: Reading, first: int) -> pa.RecordBatch:
    """Return fields of a CSV file, from row `first` on, as a server reads them, which knows no decimal commas."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for feature in features:
        column = columns[feature.name]
        is_plain = reading.decimal == "." and pa.types.is_string(column.type) and plain_numbers(column) is not None
        if is_plain or feature.type == "categorical" or not pa.types.is_string(column.type):
            continue
        declared = Column(feature.name, ColumnType(feature.type), feature.dtype, feature.unit)
        try:
            columns[feature.name] = pa.array(convert_feature(declared, pa.chunked_array([column]), reading))
        except ColumnError as error:
            row = None if error.row is None else first + error.row
            raise ColumnError(error.column, error.rule, row) from None
    return pa.RecordBatch.from_pydict(columns)


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


def read_update_set(text: str) -> str | int:
    """Read `all`, `single` or a number of leaves.

    Raises
    ------
    StartError
        For anything else.
    """
    if text in ("all", "single"):
        return text
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise StartError("--update-set must be all, single or a number of leaves of at least 1")
    return int(text)


def find_influence(
    estimator: Any,
    queries: Queries,
    *,
    path: Path,
    method: str | None = None,
    update_set: str | int = "all",
    progress: Progress = silent,
) -> Influence:
    """Score the samples of a model by what they do for the rows of a file, under their labels or the predicted ones.

    Raises
    ------
    StartError
        When the method does not go with the model, or the model or the file has nothing to ask about.
    """
    if estimator.n_samples_ == 0:
        raise StartError("the model holds no samples, so there is nothing that could have influence")
    if len(queries) == 0:
        raise StartError(f"{path} holds a header but no rows: there is nothing to ask about")
    try:
        chosen = method_for(estimator, method, update_set)
    except UnfitError as error:
        raise StartError(str(error)) from None
    labels = queries.labels
    if labels is None:
        labels = estimator.query(queries.X, frozen=True).labels
    report = within(progress, "ranking the samples")
    report(0, 0)
    try:
        return influence(estimator, queries.X, labels, method=chosen, update_set=update_set, progress=report)
    except InputError as error:
        if error.row is None:
            raise
        raise StartError(f"{path}, row {error.row + 1} of the data, label: {error.rule}") from None


def ranked_rows(found: Influence, top: int) -> Iterator[list[Any]]:
    """Yield a header, then a row for each of the samples that help most and of those that harm most."""
    yield ["effect", "id", "score"]
    for effect, ranked in (("helps", found.helpful(top)), ("harms", found.harmful(top))):
        for name, score in ranked:
            yield [effect, name, score]
