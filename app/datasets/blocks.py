"""A stream of bytes, cut into blocks of whole records: lines of text, or messages of an Arrow stream.

Where a block ends depends on the bytes only, not on the pieces in which they come. A block of text ends with the first
record that makes it `BLOCK_BYTES` long. A block of an Arrow stream ends with a record batch; schema and dictionaries
before the batch belong to it. So what is kept is never more than a block and a record.

    Arrow stream:  message*  [end]
    message:       ff ff ff ff | length of the head, int32 | head, a flatbuffer | body
    end:           ff ff ff ff | 00 00 00 00

The heads are read here only for what decides how much memory the stream takes; pyarrow reads and checks them again.
"""

import struct
from collections.abc import Iterator
from typing import Literal, Protocol

import numpy as np

BLOCK_BYTES = 256 * 1024
MOST_BATCH_ROWS = 2**20
"""Rows of one record batch: of a column without values any number fits in no bytes at all."""

_QUOTE, _LINE = 34, 10
_CONTINUES = 0xFFFFFFFF
_PREFIX = struct.Struct("<Ii")
_END = _PREFIX.pack(_CONTINUES, 0)
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
NOT_AN_ARROW_STREAM = "is not an Arrow IPC stream: write it with pyarrow.ipc.new_stream, not as a file"


class StreamError(Exception):
    """A stream of records cannot be used.

    Parameters
    ----------
    kind
        ``"broken"``: not of its format; ``"large"``: a record is too large; ``"invalid"``: a record breaks a rule.
    rule
        What must hold, and what to do; it does not repeat what was sent.
    row
        Of the record, from 0; None when it is the stream as a whole.
    field
        A column of the schema, or one that belongs to a sample.
    """

    def __init__(
        self,
        kind: Literal["broken", "large", "invalid"],
        rule: str,
        *,
        row: int | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(rule)
        self.kind = kind
        self.rule = rule
        self.row = row
        self.field = field


class Blocks(Protocol):
    """Cuts a stream into blocks.

    Attributes
    ----------
    is_over
        Whether no further block will come, as far as is known.
    """

    is_over: bool

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take in some bytes, and yield the blocks that are whole by now."""

    def end(self) -> Iterator[bytes]:
        """Yield what is left, if there is anything: there are no more bytes."""


def line_end(data: bytes, start: int = 0, *, is_within: bool = False) -> int:
    """Return where the first line ends that ends behind `start` and outside of quotation marks; 0 when none does.

    Parameters
    ----------
    data
        Some text.
    start
        Where to look from.
    is_within
        Whether the text begins within quotation marks.
    """
    if not is_within and b'"' not in data:
        return data.find(b"\n", start) + 1
    signs = np.frombuffer(data, np.uint8)
    odd = (np.cumsum(signs == _QUOTE) + is_within) % 2
    ends = np.flatnonzero((signs[start:] == _LINE) & (odd[start:] == 0))
    return start + int(ends[0]) + 1 if len(ends) else 0


class TextBlocks:
    """Lines of text; a line break within quotation marks belongs to its record.

    Parameters
    ----------
    most
        Largest record, in bytes.
    quoted
        Whether fields may stand in quotation marks.
    """

    def __init__(self, most: int, *, quoted: bool) -> None:
        self._most = most
        self._quoted = quoted
        self._pieces: list[bytes] = []
        self._n = 0
        self._is_within = False  # quotation marks
        self.is_over = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take in some bytes, and yield the blocks that are whole by now."""
        while data:
            end = self._end_in(data)
            self._take(data[:end] if end else data)
            if not end:
                return
            yield self._whole()
            data = data[end:]

    def end(self) -> Iterator[bytes]:
        """Yield the last block."""
        self.is_over = True
        if self._is_within:
            raise StreamError("broken", "ends within quotation marks: close them, and double those within a field")
        if self._n:
            yield self._whole()

    def _end_in(self, data: bytes) -> int:
        """Return where the block ends in what follows it; 0 when it does not end there."""
        start = max(0, BLOCK_BYTES - self._n - 1)
        if not self._quoted:
            return data.find(b"\n", start) + 1
        return line_end(data, start, is_within=self._is_within)

    def _take(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._n += len(piece)
        if self._quoted:
            self._is_within ^= bool(piece.count(b'"') % 2)
        if self._n > BLOCK_BYTES + self._most:
            raise StreamError("large", f"has a line of more than {self._most} bytes: shorten it")

    def _whole(self) -> bytes:
        block = b"".join(self._pieces)
        self._pieces.clear()
        self._n = 0
        return block


class ArrowBlocks:
    """Record batches of an Arrow IPC stream.

    Parameters
    ----------
    most
        Largest message, and most bytes of all dictionaries.

    Attributes
    ----------
    is_over
        Whether the stream has said that it ends.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: list[bytes] = []
        self._n = 0
        self._start = 0  # of the message that is not whole yet
        self._needed = _PREFIX.size  # bytes, before there is anything to look at
        self._has_schema = False
        self.is_over = False
        self._dictionaries: dict[int, int] = {}

    @property
    def has_dictionaries(self) -> bool:
        """Whether values of earlier batches are kept for later ones."""
        return bool(self._dictionaries)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take in some bytes, and yield the blocks that are whole by now."""
        self._pieces.append(data)
        self._n += len(data)
        while self._n >= self._needed:
            buffer = b"".join(self._pieces)
            self._pieces = [buffer]
            if self.is_over:
                raise StreamError("broken", "has data after its end: send one stream")
            size = self._message_size(buffer)
            if size is None:
                continue
            kind = self._check(buffer[self._start + _PREFIX.size : self._start + size])
            self._start += size
            if kind == _BATCH:
                self.is_over = buffer.startswith(_END, self._start)
                yield buffer[: self._start]
                self._pieces, self._n, self._start = [buffer[self._start :]], self._n - self._start, 0
            self._needed = self._start + _PREFIX.size + self.is_over

    def end(self) -> Iterator[bytes]:
        """Check that nothing is left."""
        if self._n and not self.is_over and self._n > self._start:
            raise StreamError("broken", "is cut short: its last message is not whole")
        if not self._has_schema:
            raise StreamError("broken", NOT_AN_ARROW_STREAM)
        yield from ()

    def _message_size(self, buffer: bytes) -> int | None:
        """Return the length of the next message; None when it is not whole, or when there is none."""
        marker, n_head = _PREFIX.unpack_from(buffer, self._start)
        if marker != _CONTINUES or n_head < 0:
            raise StreamError("broken", NOT_AN_ARROW_STREAM)
        head = self._start + _PREFIX.size
        if n_head == 0:
            self.is_over, self._needed = True, head + 1
            return None
        if n_head > self._most:
            raise self._too_large()
        if self._n < head + n_head:
            self._needed = head + n_head
            return None
        size = _PREFIX.size + n_head + _Head(buffer[head : head + n_head]).n_body
        if size > self._most:
            raise self._too_large()
        self._needed = self._start + size
        return size if self._n >= self._needed else None

    def _check(self, message: bytes) -> int:
        """Check a whole message, and return its kind."""
        head = _Head(message)
        if (head.kind == _SCHEMA) == self._has_schema or head.kind not in (_SCHEMA, _DICTIONARY, _BATCH):
            raise StreamError("broken", NOT_AN_ARROW_STREAM)
        self._has_schema = True
        if head.is_compressed:
            rule = "has record batches that are compressed: write them plain, and send the body with 'Content-Encoding'"
            raise StreamError("broken", rule)
        if head.n_rows > MOST_BATCH_ROWS:
            raise StreamError("large", f"has a record batch of more than {MOST_BATCH_ROWS} rows: write smaller ones")
        if head.kind == _DICTIONARY:
            known = self._dictionaries.get(head.dictionary, 0) if head.is_delta else 0
            self._dictionaries[head.dictionary] = known + len(message)
            if sum(self._dictionaries.values()) > self._most:
                raise self._too_large()
        return head.kind

    def _too_large(self) -> StreamError:
        rule = f"has a message of more than {self._most} bytes: write smaller batches, as with max_chunksize"
        return StreamError("large", rule)


class _Head:
    """What the head of a message says of its size.

    Attributes
    ----------
    kind, n_body
        Of the message.
    n_rows, is_compressed
        Of a record batch, or of the values of a dictionary.
    dictionary, is_delta
        Number of a dictionary, and whether its values are added to those before.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.n_rows = self.dictionary = 0
        self.is_compressed = self.is_delta = False
        try:
            message = self._at("<I", 0)
            self.kind = self._number("<B", message, 1)
            self.n_body = self._number("<q", message, 3)
            if self.kind in (_DICTIONARY, _BATCH):
                table = self._table(message, 2)
                if self.kind == _DICTIONARY:
                    self.dictionary = self._number("<q", table, 0)
                    self.is_delta = bool(self._number("<B", table, 2))
                    table = self._table(table, 1)
                self.n_rows = self._number("<q", table, 0)
                self.is_compressed = bool(self._field(table, 3))
        except (struct.error, IndexError):
            raise StreamError("broken", NOT_AN_ARROW_STREAM) from None
        if self.n_body < 0 or self.n_body % 8 or self.n_rows < 0:
            raise StreamError("broken", NOT_AN_ARROW_STREAM)

    def _at(self, form: str, place: int) -> int:
        if place < 0:
            raise IndexError
        number: int = struct.unpack_from(form, self._data, place)[0]
        return number

    def _field(self, table: int, index: int) -> int:
        """Return where a field of a table is; 0 when it is left out."""
        offsets = table - self._at("<i", table)
        entry = 4 + 2 * index
        if entry + 2 > self._at("<H", offsets):
            return 0
        offset = self._at("<H", offsets + entry)
        return table + offset if offset else 0

    def _number(self, form: str, table: int, index: int) -> int:
        place = self._field(table, index)
        return self._at(form, place) if place else 0

    def _table(self, table: int, index: int) -> int:
        place = self._field(table, index)
        if not place:
            raise IndexError
        return place + self._at("<I", place)
