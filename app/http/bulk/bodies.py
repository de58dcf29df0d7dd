"""Bodies of requests in bulk: the rows to predict, or the samples to add, read from one block after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson

from oubli.app.datasets.blocks import Blocks, StreamError, TextBlocks
from oubli.app.http.formats import Format, columns_beside, label_column
from oubli.app.http.parsing import Reader, parse_json, parse_name, parse_weight, refuse_repeated
from oubli.app.http.problems import NOT_ADDED, ProblemError, invalid, pointer
from oubli.app.service.changes.additions import NewSamples
from oubli.core.data.values import Column, ColumnType

if TYPE_CHECKING:
    from oubli.app.datasets.streams import Tables
    from oubli.core.data.schema import Schema

Place = tuple[str | int, ...]


class Part(NamedTuple):
    """Some of the rows to predict.

    Attributes
    ----------
    first
        Number of the first of them.
    rows
        As `Model.query` takes them.
    sent
        The rows as they were sent, for messages.
    """

    first: int
    rows: Any
    sent: Sequence[Any]


class _Named(Sequence[Any]):
    """Stands for rows as they were sent whose features have names."""

    def __getitem__(self, index: Any) -> Any:
        return {}

    def __len__(self) -> int:
        return 0


NAMED = _Named()


def source_of(given: Format, reader: Reader, most: int) -> Source:
    """Return what reads the rows of a body in a format; `most`: bytes of its largest line or message."""
    if given is Format.NDJSON:
        return _LineSource(reader, most)
    from oubli.app.datasets.streams import names_checker

    return _TableSource(_tables(given, names_checker(reader.rules), most), reader.schema)


def collector_of(given: Format, reader: Reader, most: int) -> Collector:
    """Return what collects the samples of a body in a format; see `source_of`."""
    if given is Format.NDJSON:
        return _LineCollector(reader, most)
    from oubli.app.datasets.streams import names_checker

    schema = reader.schema
    check = names_checker(reader.rules, [label_column(schema)], columns_beside(schema).values())
    return _TableCollector(_tables(given, check, most), reader)


class _LineSource:
    """NDJSON: an instance a line, as in a JSON body."""

    def __init__(self, reader: Reader, most: int) -> None:
        self.blocks: Blocks = TextBlocks(most, quoted=False)
        self._reader = reader
        self._n_rows = 0

    def parts(self, block: bytes) -> Iterator[Part]:
        """Yield the rows of a block."""
        from oubli.app.datasets.streams import ROWS_AT_ONCE

        sent: list[Any] = []
        for line in _lines(block):
            sent.append(_parsed(line, self._n_rows + len(sent)))
            if len(sent) == ROWS_AT_ONCE:
                yield self._part(sent)
                sent = []
        if sent:
            yield self._part(sent)

    def _part(self, sent: list[Any]) -> Part:
        first, self._n_rows = self._n_rows, self._n_rows + len(sent)
        return Part(first, [self._reader.row(row, ("instances", i)) for i, row in enumerate(sent, first)], sent)


class _TableSource:
    """CSV or Arrow: a row an instance, columns by name."""

    def __init__(self, tables: Tables, schema: Schema) -> None:
        self.blocks = tables.blocks
        self._tables = tables
        self._schema = schema

    def parts(self, block: bytes) -> Iterator[Part]:
        """Yield the rows of a block."""
        from oubli.app.datasets.streams import query_input

        for first, table in self._tables.read(block):
            yield Part(first, query_input(table, self._schema, first), NAMED)


class _LineCollector:
    """NDJSON: a sample a line, as in a JSON body."""

    def __init__(self, reader: Reader, most: int) -> None:
        self.blocks: Blocks = TextBlocks(most, quoted=False)
        self._reader = reader
        self._samples = NewSamples([], [], [], [], [], [])

    def take(self, block: bytes) -> int:
        """Take in the samples of a block."""
        samples = self._samples
        for line in _lines(block):
            self._reader.add_sample(samples, len(samples), _parsed(line, len(samples)))
        return len(samples)

    def samples(self) -> NewSamples:
        """Return all samples."""
        if not len(self._samples):
            raise no_rows("samples")
        refuse_repeated(self._samples.ids)
        return self._samples


class _TableCollector:
    """CSV or Arrow: a row a sample, its label and what belongs to it in columns of their own."""

    def __init__(self, tables: Tables, reader: Reader) -> None:
        self.blocks = tables.blocks
        self._tables = tables
        self._reader = reader
        self._found: list[Any] = []

    def take(self, block: bytes) -> int:
        """Take in the samples of a block."""
        self._found += [table for _, table in self._tables.read(block)]
        return self._tables.n_rows

    def samples(self) -> NewSamples:
        """Return all samples; types of labels that depend on all labels are known only now."""
        import pyarrow as pa

        from oubli.app.datasets.columns import convert_feature, convert_labels
        from oubli.app.datasets.streams import feature_arrays, plain_column

        if not self._found:
            raise no_rows("samples")
        table = pa.concat_tables(self._found)
        self._found.clear()
        schema, beside = self._reader.schema, columns_beside(self._reader.schema)
        columns = [_cells(values) for values in feature_arrays(table, schema).values()]
        label = label_column(schema)
        with _beside("label"):
            labels = convert_labels(schema.label_name, plain_column(table[label]), schema.label_type).tolist()
        reader = self._reader
        parsers = (("id", parse_name), ("subject", parse_name), ("expires_at", reader.time))
        ids, subjects, expires = (self._texts(table, key, beside[key], parse) for key, parse in parsers)
        readd = [False] * table.num_rows
        if beside["readd"] in table.column_names:
            with _beside("readd"):
                flags = convert_feature(Column("readd", ColumnType.BOOLEAN), table[beside["readd"]])
            readd = [bool(flag) for flag in flags.tolist()]
        weights: dict[int, float] = {}
        if beside["weight"] in table.column_names:
            with _beside("weight"):
                numbers = convert_feature(Column("weight", ColumnType.NUMERIC, "float64"), table[beside["weight"]])
            for row, number in enumerate(_cells(numbers)):
                weight = parse_weight(number, ("samples", row, "weight"))
                if weight != 1:
                    weights[row] = weight
        self._refuse_restricted(table, beside["restricted_at"])
        refuse_repeated(ids)
        retentions: dict[str, int] = {}
        seconds = self._texts(table, "retention", beside["retention"], lambda text, _: text)
        for row, text in enumerate(seconds):
            if text is not None:
                period = int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else text
                reader.add_retention(retentions, subjects[row], period, row)
        rows = list(map(list, zip(*columns, strict=True)))
        return NewSamples(rows, labels, ids, subjects, expires, readd, retentions, weights)

    def _refuse_restricted(self, table: Any, column: str) -> None:
        """Refuse samples that are restricted where the table comes from; other columns of a bundle are passed over."""
        times = self._texts(table, "restricted_at", column, lambda text, _: text)
        rows = [row for row, time in enumerate(times) if time is not None]
        if rows:
            errors = [(pointer("samples", row, "restricted_at"), NOT_ADDED) for row in rows[:100]]
            raise ProblemError("invalid-input", errors=errors)

    def _texts(self, table: Any, key: str, column: str, parse: Callable[[Any, Place], Any]) -> list[Any]:
        """Return a column of texts, parsed; None where there is none."""
        from oubli.app.datasets.columns import verbatim

        if column not in table.column_names:
            return [None] * table.num_rows
        with _beside(key):
            texts = verbatim(column, table[column])
        return [None if text is None else parse(text, ("samples", row, key)) for row, text in enumerate(texts)]


Source = _LineSource | _TableSource
"""Reads the rows of one body; `blocks` cuts the body, and `parts` is called in a thread."""
Collector = _LineCollector | _TableCollector
"""Collects the samples of one body; `blocks` cuts the body, and the methods are called in a thread."""


@contextmanager
def _beside(key: str) -> Iterator[None]:
    """Say where in the samples an error is in what they have besides their features."""
    from oubli.app.datasets.streams import located

    try:
        with located(0, key):
            yield
    except StreamError as error:
        raise invalid("" if error.row is None else pointer("samples", error.row, key), error.rule) from None


def _cells(values: Any) -> list[Any]:
    """Return an array as JSON values."""
    cells: list[Any] = values.tolist()
    if values.dtype.kind == "f" and np.isnan(values).any():
        return [None if cell != cell else cell for cell in cells]
    return cells


def _tables(given: Format, check: Callable[[Sequence[str]], list[str]], most: int) -> Tables:
    from oubli.app.datasets.streams import ArrowTables, CsvTables

    return CsvTables(check, most) if given is Format.CSV else ArrowTables(check, most)


def _lines(block: bytes) -> Iterator[bytes]:
    """Yield the lines that are not blank."""
    return (line for line in block.split(b"\n") if not line.isspace() and line)


def _parsed(line: bytes, row: int) -> Any:
    try:
        return parse_json(line)
    except orjson.JSONDecodeError:
        raise StreamError("broken", "is not JSON: send one value a line; a missing value is null", row=row) from None


def no_rows(what: str) -> ProblemError:
    """Return the problem of a body without rows; `what`: instances or samples."""
    return invalid(pointer(what), "must not be empty: the body has no rows")
