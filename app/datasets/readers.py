"""Data files behind one small interface, whatever they are.

    header          names of the columns
    reading         how the file is read, see `dialect`
    typed           whether the file itself says what is text and what is a number
    read(names)     those columns as a pyarrow table
    batches(names)  the same piece by piece; CSV columns are texts as written, but see `formulas`
    place(row)      where a row stands, for messages: "line 17" or "row 17"

A CSV file is read with what its first part says of its columns: numbers as numbers, repeated texts as codes. If that
does not fit the rest, it is read a second time, with every field as text. When a file is refused, it is read once more,
slowly, to name the line. pyarrow's own messages repeat the row and are never shown.
"""

import csv
import io
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from oubli.app.datasets.columns import ColumnError, Note
from oubli.app.datasets.dialect import LoadError, Reading, check_header, listed, not_encoded, too_large, unpacked
from oubli.app.datasets.formulas import unguarded_columns, verbatim_fields, without_empty
from oubli.app.datasets.layout import HEAD_BYTES, Layout, find_layout, guess_encoding
from oubli.app.datasets.tables import ParquetSource, TableSource, read_arrow, read_excel, read_json_lines, small
from oubli.app.progress import Progress, silent

__all__ = ["CsvSource", "LoadError", "Source", "listed", "located", "open_source", "tell_note"]

_BLOCK_BYTES = 4 * 1024 * 1024
_PIECE_BYTES = 2**20  # of what is read piece by piece
_HEADER_BYTES = 16 * 2**20  # of the first line at most
_UNREADABLE = (pa.ArrowInvalid, UnicodeError)


def _memory_bytes() -> int:
    """Return the memory of the machine, or of the container where that is less."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    except (OSError, ValueError):  # not in a control group, or without a limit
        return machine


MAX_DATA_BYTES = _memory_bytes()
"""Most bytes that a data file may unpack to: more could not be held."""


class CsvSource:
    """A CSV file, plain or compressed with gzip, bzip2, xz or zstd; its first bytes say which.

    Parameters
    ----------
    path
        The file.
    given
        How it is to be read, as far as that is given; see `dialect.read_options`.
    max_bytes
        How much it may unpack to.
    categorical
        Columns that hold no numbers, whatever they look like.
    """

    typed = False

    def __init__(self, path: Path, given: Mapping[str, Any], max_bytes: int, categorical: Container[str]) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._layout = self._find_layout(given, categorical)
        # pyarrow needs a name for every column; a name in a file holds no zero byte.
        self._names = [f"\0{place}" if name is None else name for place, name in enumerate(self._layout.names)]
        self.header = [name for name in self._layout.names if name is not None]

    @property
    def reading(self) -> Reading:
        """How the file is read."""
        return self._layout.reading

    def read(self, names: Sequence[str], progress: Progress, texts: Container[str] = ()) -> pa.Table:
        """Read some columns; the progress counts bytes of the file.

        Parameters
        ----------
        names
            The columns.
        progress
            Told how far the file is read.
        texts
            Columns whose fields are wanted as they are written.
        """
        try:
            table = self._read(names, progress, texts, verbatim=False)
        except _UNREADABLE:
            self._look_at_encoding()
            try:
                table = self._read(names, progress, texts, verbatim=True)
            except _UNREADABLE:
                self._explain()
        size = self.path.stat().st_size
        progress(f"loading {self.path.name}", size, size)
        for place, name in enumerate(table.column_names[len(names) :]):
            if table[name].null_count < table.num_rows:
                position = len(self._names) - table.num_columns + len(names) + place + 1
                raise LoadError(
                    f"{self.path}: column {position} has values and no name: give it one in the header line"
                )
        table = table.select(list(names))
        return unguarded_columns(without_empty(table) if self.reading.quoted == "text" else table)

    def _read(self, names: Sequence[str], progress: Progress, texts: Container[str], *, verbatim: bool) -> pa.Table:
        from pyarrow import csv as arrow

        size = self.path.stat().st_size
        types: dict[str, pa.DataType] = {}
        if not verbatim:
            types |= {name: pa.float64() for name in self._layout.numbers if name not in texts}
            types |= dict.fromkeys(self._layout.words, pa.dictionary(pa.int32(), pa.string()))
        beside = [self._names[place] for place, name in enumerate(self._layout.names) if name is None and place]
        with self._bytes(lambda done: progress(f"loading {self.path.name}", done, size)) as stream:
            stream.read(self._layout.start)
            if not stream.peek(1):
                return pa.schema([(name, pa.string()) for name in names]).empty_table()
            try:
                return arrow.read_csv(stream, **self._options([*names, *beside], types, verbatim=verbatim))
            except MemoryError:
                raise too_large(self.path, self._max_bytes) from None

    def batches(self, names: Sequence[str], progress: Progress) -> Iterator[pa.RecordBatch]:
        """Yield some columns piece by piece as texts, in memory that does not grow with the file; see `read`."""
        from pyarrow import csv as arrow

        size = self.path.stat().st_size
        with self._bytes(lambda done: progress(f"reading {self.path.name}", done, size)) as stream:
            stream.read(self._layout.start)
            if not stream.peek(1):
                return
            try:
                options = self._options(names, {}, verbatim=True, block_bytes=_PIECE_BYTES)
                yield from small(map(unguarded_columns, arrow.open_csv(stream, **options)))
            except _UNREADABLE:
                self._explain()

    def _options(
        self,
        names: Sequence[str],
        types: Mapping[str, pa.DataType],
        *,
        verbatim: bool,
        block_bytes: int = _BLOCK_BYTES,
    ) -> dict[str, Any]:
        """Return how pyarrow is to read."""
        from pyarrow import csv as arrow

        reading = self.reading
        has_quotes = bool(reading.quote)
        return {
            "read_options": arrow.ReadOptions(
                block_size=block_bytes, column_names=self._names, encoding=reading.encoding.replace("utf-8", "utf8")
            ),
            "parse_options": arrow.ParseOptions(
                delimiter=reading.delimiter,
                quote_char=reading.quote or False,
                escape_char=reading.escape or False,
                # Blocks end at any line break, which is faster, until one turns out to be within a field.
                newlines_in_values=has_quotes and (verbatim or self._layout.has_breaks),
            ),
            "convert_options": verbatim_fields(self._names, types, reading, include_columns=list(names)),
        }

    def place(self, row: int) -> str:
        """Say where a row stands, counted from 0."""
        for number, (line, _) in enumerate(self._records(), start=int(self.reading.header == "no")):
            if number == row + 1:  # the first record is the header
                return f"line {line}"
        return f"row {row + 1}"

    def _find_layout(self, given: Mapping[str, Any], categorical: Container[str]) -> Layout:
        """Find out how the file is written, from as much of it as that takes."""
        layout = None
        for size, least in ((HEAD_BYTES, 2), (min(_HEADER_BYTES, self._max_bytes), 1)):
            if layout is not None:
                break
            with self._bytes() as stream:
                head = stream.read(size)
            try:
                is_whole = len(head) < size
                layout = find_layout(head, given, is_whole=is_whole, least=least, categorical=categorical)
            except UnicodeError as error:
                encoding = error.encoding if isinstance(error, UnicodeDecodeError) else given["encoding"]
                raise not_encoded(self.path, encoding, self._max_bytes) from None
            except LoadError as error:
                raise LoadError(f"{self.path} {error}") from None
        if layout is None:
            raise LoadError(
                f"{self.path} has no line break in its first {_HEADER_BYTES // 2**20} MiB: it needs a header line "
                "with the names of the columns, then rows"
            )
        if not layout.names:
            raise LoadError(f"{self.path} is empty: it needs a header line with the names of the columns, then rows")
        check_header(self.path, layout.names)
        return layout

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Every record with the line it begins in; blank lines are passed over, as pyarrow does."""
        csv.field_size_limit(2**31 - 1)
        reading = self.reading
        with self._bytes() as stream:
            stream.read(self._layout.mark)
            text = io.TextIOWrapper(stream, encoding=reading.encoding, newline="")
            line = 1 + reading.skip
            try:
                for _ in range(reading.skip):
                    text.readline()
                reader = csv.reader(
                    text,
                    delimiter=reading.delimiter,
                    quotechar=reading.quote or None,
                    quoting=csv.QUOTE_MINIMAL if reading.quote else csv.QUOTE_NONE,
                    escapechar=reading.escape or None,
                )
                for record in reader:
                    if record:
                        yield line, record
                    line = 1 + reading.skip + reader.line_num
            except UnicodeDecodeError:
                raise not_encoded(self.path, reading.encoding, self._max_bytes) from None
            except csv.Error:
                raise LoadError(f"{self.path}, line {line}: is not CSV: look at its quotation marks") from None

    def _explain(self) -> NoReturn:
        """Find what pyarrow stumbled over; its own message repeats the row."""
        n_names = len(self._names)
        for line, record in self._records():
            if len(record) != n_names and (line > 1 + self.reading.skip or self.reading.header == "no"):
                raise LoadError(
                    f"{self.path}, line {line}: has {len(record)} fields where the header has {n_names}: "
                    "a field that holds the separator needs quotation marks"
                ) from None
        raise LoadError(f"{self.path} cannot be read as CSV: look at its quotation marks") from None

    def _look_at_encoding(self) -> None:
        """Look for what is not UTF-8 behind the first part of the file, and find out what it is."""
        reading = self.reading
        if reading.encoding != "utf-8" or "encoding" in reading.given or self._layout.mark:
            return
        with self._bytes() as stream:
            line = next((line for line in stream if not line.isascii()), b"")
            text = line + stream.read(HEAD_BYTES)
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            self._layout = replace(self._layout, reading=replace(reading, encoding=guess_encoding(text)))

    def _bytes(self, report: Any = lambda done: None) -> Any:
        return unpacked(self.path, self._max_bytes, report)


Source = CsvSource | ParquetSource | TableSource

_FIRST_BYTES = {
    "parquet": (b"PAR1",),
    "arrow": (b"ARROW1", b"FEA1", b"\xff\xff\xff\xff"),
    "excel": (b"PK\x03\x04", b"\xd0\xcf\x11\xe0"),
}


def open_source(
    path: Path,
    given: Mapping[str, Any] | None = None,
    max_bytes: int | None = None,
    progress: Progress = silent,
    categorical: Container[str] = (),
) -> Source:
    """Open a data file, whatever its name says it is.

    Parameters
    ----------
    path
        The file.
    given
        How it is to be read, as far as that is given; see `dialect.read_options`.
    max_bytes
        How much it may unpack to; None: `MAX_DATA_BYTES`.
    progress
        Told how far a file is read that is read as a whole.
    categorical
        Columns that hold no numbers, whatever they look like.

    Raises
    ------
    LoadError
        When it cannot be read.
    """
    max_bytes = MAX_DATA_BYTES if max_bytes is None else max_bytes
    given = {} if given is None else given
    try:
        with path.open("rb") as file:
            begin = file.read(6)
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror}") from None
    form = given.get("format") or next((form for form, one in _FIRST_BYTES.items() if begin.startswith(one)), None)
    if form is None:
        with unpacked(path, max_bytes) as stream:
            text = stream.peek(64)[:64].decode(given.get("encoding", "utf-8"), "ignore")
        first = text.removeprefix("\ufeff").lstrip()
        if first.startswith("[") and first[1:].lstrip().startswith("{"):
            raise LoadError(
                f"{path} is a JSON array: write JSON lines, one object a line, as to_json(orient='records', "
                "lines=True) of pandas does"
            )
        form = "jsonl" if first.startswith("{") else "csv"
    if form == "csv":
        return CsvSource(path, given, max_bytes, categorical)
    reading = Reading(**{**given, "format": form}, given=frozenset(given))
    if form == "jsonl":
        return read_json_lines(path, reading, max_bytes, progress)
    if form == "parquet":
        return ParquetSource(path, reading, max_bytes)
    return (read_arrow if form == "arrow" else read_excel)(path, reading, max_bytes)


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
