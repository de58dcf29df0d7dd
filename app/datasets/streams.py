"""Streams of CSV and Arrow: read as tables block by block, converted for an estimator, and written piece by piece.

The rules are those of a data file: an empty field is a missing value, and columns are found by name. The names are
checked once, and all of them have to be known: a misspelt column is refused, not left out.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from oubli.app.datasets.blocks import NOT_AN_ARROW_STREAM, ArrowBlocks, Blocks, StreamError, TextBlocks, line_end
from oubli.app.datasets.columns import Array, ColumnError, as_input, column_of, convert_feature
from oubli.app.datasets.formulas import unguarded_columns, verbatim_fields
from oubli.core.data.schema import Schema

ROWS_AT_ONCE = 4096
"""Rows of a table: that many are scored while changes of the model wait."""

_BOM = b"\xef\xbb\xbf"
_QUOTE = 34
_BEFORE, _BEHIND = b'\n,"', b'\r\n,"'  # what may stand before and behind a quotation mark
_QUOTES = (
    "has a quotation mark in the middle of a field: put the whole field in quotation marks, and double those within it"
)

CheckNames = Callable[[Sequence[str]], list[str]]
"""Returns the names of the columns to be read; raises `StreamError` for names that are not those that are needed."""


class Tables(Protocol):
    """Reads the blocks of one stream.

    Attributes
    ----------
    blocks
        Cuts the stream.
    n_rows
        Rows that were read.
    """

    blocks: Blocks
    n_rows: int

    def read(self, block: bytes) -> Iterator[tuple[int, pa.Table]]:
        """Yield tables of at most `ROWS_AT_ONCE` rows, each with the number of its first row."""


class CsvTables:
    """CSV with a header line, as RFC 4180 says it; every field is a text, see `formulas`.

    Parameters
    ----------
    check_names
        Checks the header.
    most
        Largest record, in bytes.
    """

    def __init__(self, check_names: CheckNames, most: int) -> None:
        self.blocks: Blocks = TextBlocks(most, quoted=True)
        self.n_rows = 0
        self._check_names = check_names
        self._known: list[str] = []
        self._header: list[str] | None = None

    def read(self, block: bytes) -> Iterator[tuple[int, pa.Table]]:
        """Yield tables of at most `ROWS_AT_ONCE` rows, each with the number of its first row."""
        if self._header is None:
            block = self._read_header(block.removeprefix(_BOM))
        if not block.strip(b"\r\n"):
            return
        table = self._parse(block, self._header or [])
        for start in range(0, table.num_rows, ROWS_AT_ONCE):
            part = table.slice(start, ROWS_AT_ONCE)
            first, self.n_rows = self.n_rows, self.n_rows + part.num_rows
            yield first, part

    def _read_header(self, block: bytes) -> bytes:
        _check_quotes(block)
        end = line_end(block) or len(block)
        csv.field_size_limit(2**31 - 1)
        try:
            header = next(csv.reader(io.StringIO(block[:end].decode("utf-8"), newline="")), [])
        except (UnicodeDecodeError, csv.Error):
            raise StreamError("broken", "has a header that cannot be read: it needs the names of the columns") from None
        self._known = self._check_names(header)
        self._header = header
        return block[end:]

    def _parse(self, block: bytes, header: list[str]) -> pa.Table:
        from pyarrow import csv as arrow

        _check_quotes(block)
        try:
            table = arrow.read_csv(
                pa.BufferReader(block),
                read_options=arrow.ReadOptions(column_names=header, block_size=len(block) + 1, use_threads=False),
                parse_options=arrow.ParseOptions(newlines_in_values=True),
                convert_options=verbatim_fields(header, include_columns=self._known),
            )
        except pa.ArrowException:
            raise self._explain(block, header) from None
        return unguarded_columns(table)

    def _explain(self, block: bytes, header: list[str]) -> StreamError:
        """Find what pyarrow stumbled over; its own message repeats the row."""
        text = block.decode("utf-8", "replace")
        csv.field_size_limit(2**31 - 1)
        records = (record for record in csv.reader(io.StringIO(text, newline="")) if record)
        row = self.n_rows
        for row, record in enumerate(records, self.n_rows):
            if "\ufffd" in "".join(record):
                return StreamError("broken", "is not UTF-8 text", row=row)
            if len(record) != len(header):
                rule = f"has {len(record)} fields, the header has {len(header)}: a field that holds a comma needs "
                return StreamError("invalid", rule + "quotation marks", row=row)
        return StreamError("broken", "cannot be read as CSV: look at its quotation marks and line breaks", row=row)


class ArrowTables:
    """An Arrow IPC stream; its columns have types of their own.

    Parameters
    ----------
    check_names
        Checks the names of the columns.
    most
        Largest message, in bytes.
    """

    def __init__(self, check_names: CheckNames, most: int) -> None:
        self.blocks: Blocks = ArrowBlocks(most)
        self.n_rows = 0
        self._check_names = check_names
        self._known: list[str] = []
        self._source = io.BytesIO()  # holds one block, which is complete, after the other
        self._reader: Any = None

    def read(self, block: bytes) -> Iterator[tuple[int, pa.Table]]:
        """Yield tables of at most `ROWS_AT_ONCE` rows, each with the number of its first row."""
        self._put(block)
        try:
            if self._reader is None:
                self._reader = pa.ipc.open_stream(pa.PythonFile(self._source, mode="r"))
                self._known = self._check_names(self._reader.schema.names)
            batch = self._reader.read_next_batch()
            batch.validate(full=True)
        except (pa.ArrowException, OSError, StopIteration, UnicodeDecodeError):
            raise StreamError("broken", NOT_AN_ARROW_STREAM, row=self.n_rows) from None
        self._put(b"")
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            part = pa.Table.from_batches([batch.slice(start, ROWS_AT_ONCE)]).select(self._known)
            first, self.n_rows = self.n_rows, self.n_rows + part.num_rows
            yield first, part

    def _put(self, block: bytes) -> None:
        self._source.seek(0)
        self._source.truncate()
        self._source.write(block)
        self._source.seek(0)


def _check_quotes(block: bytes) -> None:
    """Refuse quotation marks within fields that do not stand in some: what they mean depends on who reads them."""
    if b'"' not in block:
        return
    signs = np.frombuffer(block, np.uint8)
    places = np.flatnonzero(signs == _QUOTE)
    before = signs[np.maximum(places[::2] - 1, 0)]
    closing = places[1::2]
    behind = signs[np.minimum(closing + 1, len(signs) - 1)]
    # The second of two is one within a field, and opens it again.
    opens = np.isin(before, np.frombuffer(_BEFORE, np.uint8)) | (places[::2] == 0)
    closes = np.isin(behind, np.frombuffer(_BEHIND, np.uint8)) | (closing == len(signs) - 1)
    if not (opens.all() and closes.all() and len(places) % 2 == 0):
        raise StreamError("broken", _QUOTES)


def names_checker(schema: Schema, needed: Iterable[str] = (), also: Iterable[str] = ()) -> CheckNames:
    """Return what refuses a header that lacks a column, or has one that is not known or comes twice.

    Parameters
    ----------
    schema
        Its columns have to be there, in any order, and no others, unless its rules say otherwise.
    needed
        Further names that have to be there.
    also
        Names that may be there.
    """
    features = schema.names if schema.missing_columns == "refuse" else ()
    needed = (*features, *needed)
    known = {*schema.names, *needed, *also}

    def check(names: Sequence[str]) -> list[str]:
        for name in needed:
            if name not in names:
                rule = "is missing: every column of the schema has to be there (an empty field is a missing value)"
                raise StreamError("invalid", rule, field=name)
        positions: dict[str, int] = {}
        for position, name in enumerate(names, start=1):
            if name not in known and schema.extra_columns == "refuse":
                rule = f"column {position} has a name that is not known{schema.nearest(name)}: GET /model lists the "
                raise StreamError("invalid", f"{rule}names; leave it out, or ask with extra_columns=ignore")
            if positions.setdefault(name, position) != position:
                rule = f"column {position} has the name of column {positions[name]}: leave one out"
                raise StreamError("invalid", rule)
        return [name for name in names if name in known]

    return check


def feature_arrays(table: pa.Table, schema: Schema, first: int = 0) -> dict[str, Array]:
    """Return the features of a table as arrays of the types that the schema declares.

    Parameters
    ----------
    table
        Has a column for each; what it lacks is missing.
    schema
        Their types.
    first
        Number of the first row.
    """
    arrays = {}
    for column in schema.columns:
        with located(first, column.name):
            arrays[column.name] = convert_feature(column, plain_column(column_of(table, column.name)))
    return arrays


def query_input(table: pa.Table, schema: Schema, first: int) -> Any:
    """Return the rows of a table as `Model.query` takes them; see `feature_arrays`."""
    return as_input(feature_arrays(table, schema, first), schema)


def plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column; floats of 16 bits, of which Python and JSON know nothing, as those of 32."""
    return column.cast(pa.float32()) if pa.types.is_float16(column.type) else column


@contextmanager
def located(first: int, field: str) -> Iterator[None]:
    """Say in which row of the stream a column's error is."""
    try:
        yield
    except ColumnError as error:
        # What follows are flags of the command line.
        rule = error.rule.split(", declare it with --")[0].split(": drop the column (--")[0]
        raise StreamError("invalid", rule, row=None if error.row is None else first + error.row, field=field) from None
    except pa.ArrowException:
        raise StreamError("invalid", "holds values of a type that no column takes: convert it", field=field) from None


class ArrowWriter:
    """Writes record batches of one schema, and returns their bytes.

    Parameters
    ----------
    schema
        Of all batches.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, mode="w"), schema)

    def write(self, batch: pa.RecordBatch, metadata: Mapping[str, bytes] | None = None) -> bytes:
        """Write a batch, and return the bytes; before the first those of the schema."""
        self._writer.write_batch(batch, custom_metadata=metadata)
        return self._taken()

    def close(self) -> bytes:
        """Return the mark of the end."""
        self._writer.close()
        return self._taken()

    def _taken(self) -> bytes:
        data = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return data
