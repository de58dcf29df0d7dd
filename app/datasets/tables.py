"""Files that bring types of their own: Parquet, Arrow and Feather, JSON lines, Excel.

Each is a source as `oubli.app.datasets.readers` describes it. The text of a Parquet or Arrow file is never read as
numbers. JSON has no dates, so that texts of a JSON file may be some. Cells of a sheet are what they look like: a column
of numbers and texts is read as texts, as in CSV.
"""

import datetime as dt
import io
import itertools
import sys
import zipfile
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from oubli.app.datasets.dialect import LoadError, Reading, check_header, listed, not_encoded, too_large, unpacked
from oubli.app.progress import Progress, within

_PIECE_BYTES, _PIECE_ROWS = 2**20, 8192  # of what is read piece by piece
_BATCH_ROWS = 65_536  # of a Parquet file, looked at before they are unpacked
_BATCH_BYTES = 256 * 2**20  # that such a batch may unpack to, if each value is as long as what they share
_DELTA = frozenset({"DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"})
_SHARED = frozenset({"RLE_DICTIONARY", "PLAIN_DICTIONARY"})
_JSON_BLOCK = 16 * 2**20  # bytes, more than a line has


class ParquetSource:
    """A Parquet file."""

    typed = True

    def __init__(self, path: Path, reading: Reading, max_bytes: int) -> None:
        import pyarrow.parquet  # each format takes a while to import

        self.path = path
        self.reading = reading
        self._max_bytes = max_bytes
        try:
            self._file = pyarrow.parquet.ParquetFile(path)
            self._schema = self._file.schema_arrow
            # Texts that many rows share stay shared until it is known how long they are all together.
            delta = self._encoded_by(_DELTA)
            shared = [name for name in self._encoded_by(_SHARED) - delta if _is_text(self._schema.field(name).type)]
            if shared:
                self._file = pyarrow.parquet.ParquetFile(path, read_dictionary=shared)
        except (pa.ArrowException, OSError, MemoryError):
            raise LoadError(f"{path} begins like a Parquet file but cannot be read as one: is it cut short?") from None
        self.header = list(self._schema.names)
        check_header(path, self.header)

    def read(self, names: Sequence[str], progress: Progress, texts: Container[str] = ()) -> pa.Table:
        """Read some columns; the progress counts rows."""
        del texts
        schema = pa.schema([self._schema.field(name) for name in names])
        parts, n_bytes = [schema.empty_table()], self._claimed(names)
        if n_bytes > self._max_bytes:
            raise too_large(self.path, self._max_bytes)
        n_bytes = 0
        for batch in self._pieces(names, _BATCH_ROWS, within(progress, f"loading {self.path.name}")):
            n_bytes += batch.num_rows + sum(map(_unpacked_bytes, batch.columns))
            if n_bytes > self._max_bytes:
                raise too_large(self.path, self._max_bytes)
            parts.append(pa.Table.from_batches([batch]).cast(schema))
        return pa.concat_tables(parts)

    def batches(self, names: Sequence[str], progress: Progress) -> Iterator[pa.RecordBatch]:
        """Yield some columns piece by piece, in memory that does not grow with the file; see `read`."""
        yield from small(self._pieces(names, _PIECE_ROWS, within(progress, f"reading {self.path.name}")))

    def _pieces(
        self, names: Sequence[str], most_rows: int, report: Callable[[int, int], object]
    ) -> Iterator[pa.RecordBatch]:
        done, total = 0, self._file.metadata.num_rows
        try:
            for group in range(self._file.num_row_groups):
                n_rows = min(most_rows, self._rows_at_a_time(group, names))
                for batch in self._file.iter_batches(n_rows, row_groups=[group], columns=list(names)):
                    report(done, total)
                    batch.validate(full=True)
                    done += batch.num_rows
                    yield batch.select(list(names))
        except (pa.ArrowException, OSError):
            raise LoadError(f"{self.path} is damaged: export it again") from None
        except MemoryError:
            raise too_large(self.path, self._max_bytes) from None
        report(total, total)

    def _encoded_by(self, encodings: frozenset[str]) -> set[str]:
        """Names of the columns that use one of some encodings."""
        names = self._schema.names
        groups = range(self._file.num_row_groups)
        chunks = [chunk for group in groups for chunk in self._chunks(group, names)]
        return {chunk.path_in_schema for chunk in chunks if encodings.intersection(chunk.encodings)} & set(names)

    def _chunks(self, group: int, names: Sequence[str]) -> list[Any]:
        """What the file says of some columns of a row group."""
        about = self._file.metadata.row_group(group)
        chunks = [about.column(index) for index in range(about.num_columns)]
        return [chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] in set(names)]

    def _claimed(self, names: Sequence[str]) -> int:
        """Bytes that some columns unpack to as the file has it, before what rows share is written out for each."""
        groups = range(self._file.num_row_groups)
        sizes = [chunk.total_uncompressed_size for group in groups for chunk in self._chunks(group, names)]
        return sum(int(size) for size in sizes if size > 0)

    def _rows_at_a_time(self, group: int, names: Sequence[str]) -> int:
        """Few where a value is written as what differs from the one before: it may be as long as all of them."""
        longest = [
            chunk.total_uncompressed_size
            for chunk in self._chunks(group, names)
            if _DELTA.intersection(chunk.encodings)
        ]
        return max(1, _BATCH_BYTES // int(max(longest, default=1) or 1))

    def place(self, row: int) -> str:
        """Say where a row stands, counted from 0."""
        return f"row {row + 1}"


class TableSource:
    """A file that is read as a whole: Arrow, JSON lines or Excel.

    Parameters
    ----------
    path
        The file.
    reading
        What it is.
    table
        What it holds.
    first
        The row of the sheet below the header.
    """

    def __init__(self, path: Path, reading: Reading, table: pa.Table, first: int = 0) -> None:
        self.path = path
        self.reading = reading
        self.typed = reading.format != "excel"
        self.header = list(table.column_names)
        self._table = table
        self._first = first
        check_header(path, self.header)

    def read(self, names: Sequence[str], progress: Progress, texts: Container[str] = ()) -> pa.Table:
        """Return some columns."""
        del texts
        progress(f"loading {self.path.name}", self._table.num_rows, self._table.num_rows)
        return self._table.select(list(names))

    def batches(self, names: Sequence[str], progress: Progress) -> Iterator[pa.RecordBatch]:
        """Yield some columns piece by piece."""
        yield from small(self.read(names, progress).to_batches())

    def place(self, row: int) -> str:
        """Say where a row stands, counted from 0."""
        if self.reading.format == "jsonl":
            with unpacked(self.path, sys.maxsize) as stream:
                filled = (number for number, line in enumerate(stream, start=1) if line.strip())
                return f"line {next(itertools.islice(filled, row, None), row + 1)}"
        return f"row {self._first + row + 1}"


def read_arrow(path: Path, reading: Reading, max_bytes: int) -> TableSource:
    """Read a file or a stream of Arrow's, or a file of Feather."""
    parts: list[pa.RecordBatch] = []
    n_bytes = 0
    try:
        with pa.OSFile(str(path)) as file:
            begin = file.read(6)
            file.seek(0)
            if begin.startswith(b"FEA1"):
                from pyarrow import feather

                table = feather.read_table(path)
                table.validate(full=True)
                return TableSource(path, reading, table)
            if begin == b"ARROW1":
                reader: Any = pa.ipc.open_file(file)
                batches: Iterable[pa.RecordBatch] = map(reader.get_batch, range(reader.num_record_batches))
            else:
                batches = reader = pa.ipc.open_stream(file)
            for batch in batches:
                n_bytes += batch.nbytes
                if n_bytes > max_bytes:
                    raise too_large(path, max_bytes)
                batch.validate(full=True)  # a damaged file may point anywhere
                parts.append(batch)
            return TableSource(path, reading, pa.Table.from_batches(parts, reader.schema))
    except (pa.ArrowException, OSError):
        raise LoadError(f"{path} begins like an Arrow file but cannot be read as one: is it cut short?") from None
    except MemoryError:
        raise too_large(path, max_bytes) from None


def read_json_lines(path: Path, reading: Reading, max_bytes: int, progress: Progress) -> TableSource:
    """Read a file of JSON objects, one a line; `null` is missing."""
    from pyarrow import json

    size = path.stat().st_size
    options = json.ReadOptions(block_size=_JSON_BLOCK)

    def read(**parsing: Any) -> pa.Table:
        with unpacked(path, max_bytes, lambda done: progress(f"loading {path.name}", done, size)) as stream:
            text = pa.transcoding_input_stream(pa.PythonFile(stream, mode="r"), reading.encoding, "utf-8")
            return json.read_json(text, options, json.ParseOptions(**parsing))

    try:
        table = read()
        # pyarrow takes some texts for times; which are is decided as for other files.
        times = [one for one in table.schema if pa.types.is_timestamp(one.type)]
        if times:
            names = table.column_names
            table = read(explicit_schema=pa.schema([pa.field(one.name, pa.string()) for one in times]))
            table = table.select(names)
        table.validate(full=True)
    except (pa.ArrowException, UnicodeError):
        try:
            _explain_json(path, reading.encoding, max_bytes)
        except UnicodeError:
            raise not_encoded(path, reading.encoding, max_bytes) from None
        raise LoadError(
            f"{path} cannot be read as JSON lines: write one object a line, without objects in it"
        ) from None
    return TableSource(path, reading, table)


_KINDS = {str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}


def _explain_json(path: Path, encoding: str, max_bytes: int) -> None:
    """Find what pyarrow stumbled over; its own message repeats the row."""
    kinds: dict[str, str] = {}
    with unpacked(path, max_bytes) as stream:
        for number, line in enumerate(io.TextIOWrapper(stream, encoding), start=1):
            try:
                record = orjson.loads(line) if line.strip() else {}
            except orjson.JSONDecodeError:
                record = None
            if not isinstance(record, dict):
                raise LoadError(f"{path}, line {number}: is not a JSON object: write one object a line") from None
            for name, value in record.items():
                kind = _KINDS.get(type(value), "")
                if kind and kinds.setdefault(name, kind) != kind:
                    raise LoadError(
                        f"{path}, line {number}, column {name!r}: is {kind} where lines above have {kinds[name]}: "
                        "write all values of a column in one way"
                    )


def read_excel(path: Path, reading: Reading, max_bytes: int) -> TableSource:
    """Read a sheet of a workbook: the first row with values is the header."""
    try:
        from python_calamine import CalamineWorkbook
    except ImportError:
        raise LoadError(
            f"{path} is a zip archive or a spreadsheet: unpack it, export the sheet as CSV, or install what reads "
            "spreadsheets with `pip install 'oubli-server[excel]'`"
        ) from None
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if sum(part.file_size for part in archive.infolist()) > max_bytes:
                    raise too_large(path, max_bytes)
        book = CalamineWorkbook.from_path(path)
    except LoadError:
        raise
    except Exception:  # of many kinds, which share no base
        raise LoadError(f"{path} is a zip archive or a damaged spreadsheet: unpack it, or save it again") from None
    if reading.sheet and reading.sheet not in book.sheet_names:
        raise LoadError(
            f"{path} has no sheet of this name. It has {listed(book.sheet_names)}: choose with --read sheet="
        )
    sheet = book.get_sheet_by_name(reading.sheet or book.sheet_names[0])
    rows = sheet.to_python()
    if sheet.start is None or not rows:
        raise LoadError(f"{path} is empty: it needs a header line with the names of the columns, then rows")
    names = [str(cell) for cell in rows[0]]
    check_header(path, names)
    columns = (_sheet_column([row[place] for row in rows[1:]]) for place in range(len(names)))
    return TableSource(path, reading, pa.table(dict(zip(names, columns, strict=True))), sheet.start[0] + 1)


def _sheet_column(cells: Sequence[Any]) -> pa.Array:
    """Return the cells of a column in the type that all of them have, as texts if there are several."""
    values = [None if cell == "" else cell for cell in cells]
    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {int, float}:
        is_whole = all(value is None or (abs(value) < 2**53 and value == int(value)) for value in values)
        return pa.array(values, pa.float64()).cast(pa.int64() if is_whole else pa.float64(), safe=False)
    if kinds == {dt.date, dt.datetime}:
        values = [
            value and dt.datetime.combine(value, dt.time.min) if type(value) is dt.date else value for value in values
        ]
    elif len(kinds) > 1:
        whole = (int(v) if isinstance(v, float) and v.is_integer() else v for v in values)
        values = [None if value is None else str(value) for value in whole]
    return pa.array(values)


def small(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches cut into pieces of limited size."""
    for batch in batches:
        n_rows = max(1, batch.num_rows * _PIECE_BYTES // max(batch.nbytes, _PIECE_BYTES))
        yield from (batch.slice(start, n_rows) for start in range(0, batch.num_rows, n_rows))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def _unpacked_bytes(column: pa.Array) -> int:
    """Bytes of a column when each row has a value of its own."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pc.fill_null(pc.binary_length(column.dictionary), 0) if _is_text(column.type.value_type) else None
    if lengths is None:
        return int(column.nbytes) + 8 * len(column)
    counts = np.bincount(column.indices.drop_null().to_numpy(zero_copy_only=False), minlength=len(lengths))
    return int(counts @ lengths.to_numpy(zero_copy_only=False).astype(np.int64)) + 4 * len(column)
