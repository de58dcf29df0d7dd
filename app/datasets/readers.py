"""The two file formats: CSV, plain or compressed, and Parquet, behind one small interface.

    header          names of the columns
    typed           whether the file itself says what is text and what is a number
    read(names)     those columns as a pyarrow table; CSV columns are texts as written, but see `formulas`
    place(row)      where a row stands, for messages: "line 17" or "row 17"

What a file unpacks to is counted as it is read, and more than a limit ends in a message: a few kilobytes can unpack to
any number of gigabytes.

When a file is refused, it is read a second time, slowly, to name the line: only failures pay for that. pyarrow's own
messages repeat the row and are never shown.
"""

import bz2
import csv
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oubli.app.datasets.columns import ColumnError, Note
from oubli.app.datasets.formulas import unguarded_columns, verbatim_fields
from oubli.app.errors import StartError
from oubli.app.progress import Progress

_BLOCK_BYTES = 4 * 1024 * 1024
_PIECE_BYTES, _PIECE_ROWS = 2**20, 8192  # of what is read piece by piece
_READ_BYTES = 2**20  # unpacked at once
_LISTED = 20  # columns that a message names

_HEADER_BYTES = 16 * 2**20  # of the first line at most
_BATCH_ROWS = 65_536  # of a Parquet file, looked at before they are unpacked
_BATCH_BYTES = 256 * 2**20  # that such a batch may unpack to, if each value is as long as what they share
_DELTA = frozenset({"DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"})
_SHARED = frozenset({"RLE_DICTIONARY", "PLAIN_DICTIONARY"})


def _memory_bytes() -> int:
    """Return the memory of the machine, or of the container where that is less."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    except (OSError, ValueError):  # not in a control group, or without a limit
        return machine


MAX_DATA_BYTES = _memory_bytes()
"""Most bytes that a data file may unpack to: more could not be held."""

_PARQUET = b"PAR1"
_ZSTD = b"\x28\xb5\x2f\xfd"
_UNPACK: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": lambda raw: bz2.BZ2File(raw),
    b"\xfd7zXZ\x00": lambda raw: lzma.open(raw),  # noqa: SIM115 - `_bytes` closes it
}
_BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)


class LoadError(StartError):
    """A file cannot be used; the text names the file, the line, the column, the rule and the remedy."""


class ParquetSource:
    """A Parquet file."""

    typed = True

    def __init__(self, path: Path, max_bytes: int) -> None:
        import pyarrow.parquet  # each format takes a while to import

        self.path = path
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
        _check_header(path, self.header)

    def read(self, names: Sequence[str], progress: Progress) -> pa.Table:
        """Read some columns; the progress counts row groups."""
        groups = self._file.num_row_groups
        schema = pa.schema([self._schema.field(name) for name in names])
        parts, n_bytes = [], self._claimed(names)
        if n_bytes > self._max_bytes:
            raise _too_large(self.path, self._max_bytes)
        n_bytes = 0
        for done in range(groups):
            progress(f"loading {self.path.name}", done, groups)
            try:
                n_rows = self._rows_at_a_time(done, names)
                for batch in self._file.iter_batches(n_rows, row_groups=[done], columns=list(names)):
                    n_bytes += batch.num_rows + sum(map(_unpacked_bytes, batch.columns))
                    if n_bytes > self._max_bytes:
                        raise _too_large(self.path, self._max_bytes)
                    parts.append(pa.Table.from_batches([batch]).select(list(names)).cast(schema))
            except (pa.ArrowException, OSError):
                raise LoadError(f"{self.path} is damaged in row group {done + 1}: export it again") from None
            except MemoryError:
                raise _too_large(self.path, self._max_bytes) from None
        progress(f"loading {self.path.name}", groups, groups)
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def batches(self, names: Sequence[str], progress: Progress) -> Iterator[pa.RecordBatch]:
        """Yield some columns piece by piece, in memory that does not grow with the file; see `read`."""
        n_rows, done = self._file.metadata.num_rows, 0
        try:
            for batch in self._file.iter_batches(_PIECE_ROWS, columns=list(names)):
                progress(f"reading {self.path.name}", done, n_rows)
                done += batch.num_rows
                yield from _small([batch.select(list(names))])
        except (pa.ArrowException, OSError):
            raise LoadError(f"{self.path} is damaged: export it again") from None

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
        return min(_BATCH_ROWS, max(1, _BATCH_BYTES // int(max(longest, default=1) or 1)))

    def place(self, row: int) -> str:
        """Say where a row stands, counted from 0."""
        return f"row {row + 1}"


class CsvSource:
    """A CSV file, plain or compressed with gzip, bzip2 or xz; its first bytes say which."""

    typed = False

    def __init__(self, path: Path, delimiter: str, max_bytes: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self.delimiter = "\t" if delimiter == "," and ".tsv" in path.suffixes else delimiter
        self.header = self._read_header()

    def read(self, names: Sequence[str], progress: Progress) -> pa.Table:
        """Read some columns; the progress counts bytes of the file."""
        from pyarrow import csv as arrow

        size = self.path.stat().st_size
        with self._bytes(lambda done: progress(f"loading {self.path.name}", done, size)) as stream:
            try:
                table = arrow.read_csv(stream, **self._options(names, _BLOCK_BYTES))
            except pa.ArrowInvalid:
                self._explain()
            except MemoryError:
                raise _too_large(self.path, self._max_bytes) from None
        progress(f"loading {self.path.name}", size, size)
        return unguarded_columns(table)

    def batches(self, names: Sequence[str], progress: Progress) -> Iterator[pa.RecordBatch]:
        """Yield some columns piece by piece, in memory that does not grow with the file; see `read`."""
        from pyarrow import csv as arrow

        size = self.path.stat().st_size
        with self._bytes(lambda done: progress(f"reading {self.path.name}", done, size)) as stream:
            try:
                pieces = arrow.open_csv(stream, **self._options(names, _PIECE_BYTES))
                yield from _small(map(unguarded_columns, pieces))
            except pa.ArrowInvalid:
                self._explain()

    def _options(self, names: Sequence[str], block_bytes: int) -> dict[str, Any]:
        """Return how pyarrow is to read."""
        from pyarrow import csv as arrow

        return {
            "read_options": arrow.ReadOptions(block_size=block_bytes),
            "parse_options": arrow.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            "convert_options": verbatim_fields(self.header, include_columns=list(names)),
        }

    def place(self, row: int) -> str:
        """Say where a row stands, counted from 0."""
        for number, (line, _) in enumerate(self._records()):
            if number == row + 1:  # the first record is the header
                return f"line {line}"
        return f"row {row + 1}"

    def _read_header(self) -> list[str]:
        try:
            _, header = next(self._records(min(_HEADER_BYTES, self._max_bytes)), (0, []))
        except _LimitError:
            raise LoadError(
                f"{self.path} has no line break in its first {_HEADER_BYTES // 2**20} MiB: it needs a header line with "
                "the names of the columns, then rows"
            ) from None
        if not header:
            raise LoadError(f"{self.path} is empty: it needs a header line with the names of the columns, then rows")
        if len(header) == 1:
            for name, other in {"semicolons": ";", "tabs": "\t", "bars": "|"}.items():
                if other in header[0]:
                    shown = "$'\\t'" if other == "\t" else f"'{other}'"
                    raise LoadError(f"{self.path} seems to be separated by {name}: read it with --delimiter {shown}")
        _check_header(self.path, header)
        return header

    def _records(self, most: int | None = None) -> Iterator[tuple[int, list[str]]]:
        """Every record with the line it begins in; blank lines are passed over, as pyarrow does.

        Raises
        ------
        _LimitError
            When there are more than `most` bytes.
        """
        csv.field_size_limit(2**31 - 1)
        with self._bytes(most=most) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(text, delimiter=self.delimiter)
            line = 1
            try:
                for record in reader:
                    if record:
                        yield line, record
                    line = reader.line_num + 1
            except UnicodeDecodeError:
                self._explain_encoding()
            except csv.Error:
                raise LoadError(f"{self.path}, line {line}: is not CSV: look at its quotation marks") from None

    def _explain(self) -> None:
        """Find what pyarrow stumbled over; its own message repeats the row."""
        for line, record in self._records():
            if len(record) != len(self.header):
                raise LoadError(
                    f"{self.path}, line {line}: has {len(record)} fields where the header has {len(self.header)}: "
                    "a field that holds the separator needs quotation marks"
                ) from None
        raise LoadError(f"{self.path} cannot be read as CSV: look at its quotation marks") from None

    def _explain_encoding(self) -> None:
        with self._bytes() as stream:
            if stream.read(2) in (b"\xff\xfe", b"\xfe\xff"):
                raise LoadError(f"{self.path} is UTF-16 text: save it as UTF-8") from None
        with self._bytes() as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError:
                    raise LoadError(f"{self.path}, line {number}: is not UTF-8 text: save the file as UTF-8") from None

    @contextmanager
    def _bytes(
        self, report: Callable[[int], None] = lambda done: None, *, most: int | None = None
    ) -> Iterator[IO[bytes]]:
        """The unpacked bytes of the file; what breaks while they are read becomes a `LoadError`."""
        try:
            with self.path.open("rb") as raw:
                begin = raw.read(6)
                raw.seek(0)
                counted = io.BufferedReader(_Counted(raw, report), _BLOCK_BYTES)
                for magic, unpack in _UNPACK.items():
                    if begin.startswith(magic):
                        with unpack(counted) as stream:
                            yield self._limited(stream, most)
                        return
                yield self._limited(counted, most)
        except _LimitError:
            if most is not None:
                raise
            raise _too_large(self.path, self._max_bytes) from None
        except _BROKEN:
            raise LoadError(f"{self.path} is compressed and cut short or damaged: copy or download it again") from None
        except OSError as error:
            reason = error.strerror or "it is not what its first bytes promise"
            raise LoadError(f"{self.path} cannot be read: {reason}") from None

    def _limited(self, stream: IO[bytes], most: int | None) -> IO[bytes]:
        return io.BufferedReader(_Limited(stream, self._max_bytes if most is None else most), _READ_BYTES)


class _LimitError(Exception):
    """There is more than there may be."""


class _Limited(io.RawIOBase):
    """A stream of which no more than so many bytes are read."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream = stream
        self._left = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), _READ_BYTES))
        self._left -= len(data)
        if self._left < 0:
            raise _LimitError
        buffer[: len(data)] = data
        return len(data)


class _Counted(io.RawIOBase):
    """A raw file that tells how far it was read."""

    def __init__(self, raw: IO[bytes], report: Callable[[int], None]) -> None:
        self._raw = raw
        self._report = report

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._raw.readinto(buffer)  # type: ignore[attr-defined]
        self._report(self._raw.tell())
        return int(count)


Source = CsvSource | ParquetSource


def open_source(path: Path, delimiter: str, max_bytes: int | None = None) -> Source:
    """Open a data file, whatever its name says it is.

    Parameters
    ----------
    path
        The file.
    delimiter
        Of a CSV file.
    max_bytes
        How much it may unpack to; None: `MAX_DATA_BYTES`.

    Raises
    ------
    LoadError
        When it cannot be read.
    """
    max_bytes = MAX_DATA_BYTES if max_bytes is None else max_bytes
    try:
        with path.open("rb") as file:
            begin = file.read(4)
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror}") from None
    if begin == _PARQUET:
        return ParquetSource(path, max_bytes)
    if begin == b"PK\x03\x04":
        raise LoadError(f"{path} is a zip archive or a spreadsheet: unpack it, or export the sheet as CSV")
    if begin == _ZSTD:
        raise LoadError(f"{path} is compressed with zstd: unpack it, or compress it with gzip, bzip2 or xz")
    return CsvSource(path, delimiter, max_bytes)


def _small(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches cut into pieces of limited size."""
    for batch in batches:
        n_rows = max(1, batch.num_rows * _PIECE_BYTES // max(batch.nbytes, _PIECE_BYTES))
        yield from (batch.slice(start, n_rows) for start in range(0, batch.num_rows, n_rows))


def _too_large(path: Path, max_bytes: int) -> LoadError:
    return LoadError(
        f"{path} unpacks to more than {max_bytes:,} bytes, the memory of this machine: check that it is the right "
        "file, leave rows or columns out, or use a machine with more memory"
    )


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


@contextmanager
def located(source: Source) -> Iterator[None]:
    """Say where in the file a column's error is."""
    try:
        yield
    except ColumnError as error:
        where = "" if error.row is None else f", {source.place(error.row)}"
        raise LoadError(f"{source.path}{where}, column {error.column!r}: {error.rule}") from None


def tell_note(source: Source, note: Note) -> str:
    """Write a note about a column as one line of text."""
    where = "" if note.row is None else f" (the first in {source.place(note.row)})"
    return f"column {note.column!r} {note.text}{where}"


def _check_header(path: Path, header: Sequence[str]) -> None:
    for position, name in enumerate(header, start=1):
        if not name:
            raise LoadError(
                f"{path}: column {position} has no name: give it one in the header line, or write the file without "
                "row numbers"
            )
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise LoadError(f"{path}: the header names {listed(twice)} more than once: rename or remove the repetition")


def listed(names: Sequence[str]) -> str:
    """List names in quotation marks, the first ones of many."""
    shown = ", ".join(repr(name) for name in names[:_LISTED])
    return shown + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
