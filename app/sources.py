"""The two file formats: CSV, plain or compressed, and Parquet, behind one small interface.

    header          names of the columns
    typed           whether the file itself says what is text and what is a number
    read(names)     those columns as a pyarrow table; CSV columns are texts exactly as written
    place(row)      where a row stands, for messages: "line 17" or "row 17"

When a file is refused, it is read a second time, slowly, to name the line: only failures pay for that. pyarrow's own
messages repeat the row and are never shown.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from app.columns import ColumnError, Note
from app.errors import StartError
from app.progress import Progress

_BLOCK_BYTES = 4 * 1024 * 1024
_LISTED = 20  # columns that a message names

_PARQUET = b"PAR1"
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

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet  # each format takes a while to import

        self.path = path
        try:
            self._file = pyarrow.parquet.ParquetFile(path)
        except (pa.ArrowInvalid, OSError):
            raise LoadError(f"{path} begins like a Parquet file but cannot be read as one: is it cut short?") from None
        self.header = list(self._file.schema_arrow.names)
        _check_header(path, self.header)

    def read(self, names: Sequence[str], progress: Progress) -> pa.Table:
        """Read some columns; the progress counts row groups."""
        groups = self._file.num_row_groups
        parts = []
        for done in range(groups):
            progress(f"loading {self.path.name}", done, groups)
            try:
                parts.append(self._file.read_row_group(done, columns=list(names)))
            except (pa.ArrowInvalid, OSError):
                raise LoadError(f"{self.path} is damaged in row group {done + 1}: export it again") from None
        progress(f"loading {self.path.name}", groups, groups)
        return pa.concat_tables(parts) if parts else self._file.schema_arrow.empty_table().select(list(names))

    def place(self, row: int) -> str:
        """Say where a row stands, counted from 0."""
        return f"row {row + 1}"


class CsvSource:
    """A CSV file, plain or compressed with gzip, bzip2 or xz; its first bytes say which."""

    typed = False

    def __init__(self, path: Path, delimiter: str) -> None:
        self.path = path
        self.delimiter = "\t" if delimiter == "," and ".tsv" in path.suffixes else delimiter
        self.header = self._read_header()

    def read(self, names: Sequence[str], progress: Progress) -> pa.Table:
        """Read some columns; the progress counts bytes of the file."""
        from pyarrow import csv as arrow

        size = self.path.stat().st_size
        with self._bytes(lambda done: progress(f"loading {self.path.name}", done, size)) as stream:
            try:
                table = arrow.read_csv(
                    stream,
                    read_options=arrow.ReadOptions(block_size=_BLOCK_BYTES),
                    parse_options=arrow.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                    convert_options=arrow.ConvertOptions(
                        column_types={name: pa.string() for name in self.header},
                        include_columns=list(names),
                        null_values=[""],
                        strings_can_be_null=True,
                        quoted_strings_can_be_null=True,
                    ),
                )
            except pa.ArrowInvalid:
                self._explain()
        progress(f"loading {self.path.name}", size, size)
        return table

    def place(self, row: int) -> str:
        """Say where a row stands, counted from 0."""
        for number, (line, _) in enumerate(self._records()):
            if number == row + 1:  # the first record is the header
                return f"line {line}"
        return f"row {row + 1}"

    def _read_header(self) -> list[str]:
        _, header = next(self._records(), (0, []))
        if not header:
            raise LoadError(f"{self.path} is empty: it needs a header line with the names of the columns, then rows")
        if len(header) == 1:
            for name, other in {"semicolons": ";", "tabs": "\t", "bars": "|"}.items():
                if other in header[0]:
                    shown = "$'\\t'" if other == "\t" else f"'{other}'"
                    raise LoadError(f"{self.path} seems to be separated by {name}: read it with --delimiter {shown}")
        _check_header(self.path, header)
        return header

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Every record with the line it begins in; blank lines are passed over, as pyarrow does."""
        csv.field_size_limit(2**31 - 1)
        with self._bytes() as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
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
    def _bytes(self, report: Callable[[int], None] = lambda done: None) -> Iterator[IO[bytes]]:
        """The unpacked bytes of the file; what breaks while they are read becomes a `LoadError`."""
        try:
            with self.path.open("rb") as raw:
                begin = raw.read(6)
                raw.seek(0)
                counted = io.BufferedReader(_Counted(raw, report), _BLOCK_BYTES)
                for magic, unpack in _UNPACK.items():
                    if begin.startswith(magic):
                        with unpack(counted) as stream:
                            yield stream
                        return
                yield counted
        except _BROKEN:
            raise LoadError(f"{self.path} is compressed and cut short or damaged: copy or download it again") from None
        except OSError as error:
            reason = error.strerror or "it is not what its first bytes promise"
            raise LoadError(f"{self.path} cannot be read: {reason}") from None


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


def open_source(path: Path, delimiter: str) -> Source:
    """Open a data file, whatever its name says it is."""
    try:
        with path.open("rb") as file:
            begin = file.read(4)
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror}") from None
    if begin == _PARQUET:
        return ParquetSource(path)
    if begin == b"PK\x03\x04":
        raise LoadError(f"{path} is a zip archive or a spreadsheet: unpack it, or export the sheet as CSV")
    return CsvSource(path, delimiter)


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
