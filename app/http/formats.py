"""Formats and encodings of bodies and answers.

Media types of tables: which one a body has, and which one the client wants. Values as CSV: a missing value is empty, an
empty text is ``""``, and texts that a spreadsheet would run are guarded. Compressed bodies are decoded piece by piece,
never beyond the limit of a body.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from starlette.types import Message, Receive

from oubli.app.datasets.formulas import guarded
from oubli.app.http.problems import ProblemError, body_too_large
from oubli.core.data.schema import Schema

if TYPE_CHECKING:
    from starlette.datastructures import Headers


class Format(StrEnum):
    """How a table is written; the value is the media type."""

    JSON = "application/json"
    CSV = "text/csv"
    NDJSON = "application/x-ndjson"
    ARROW = "application/vnd.apache.arrow.stream"


BULK_PATHS = frozenset({"/predict", "/samples"})
"""What takes and gives tables in every format, by POST."""
_BY_NAME = {str(one): one for one in Format}
_ANY = ("*/*", "application/*")
_UTF8 = ("utf-8", "utf8", "us-ascii")


def body_format(content_type: str) -> Format | None:
    """Return the format of a body; None for another, and for text that is not UTF-8."""
    name, *parameters = (part.strip().lower() for part in content_type.split(";"))
    charsets = [part.removeprefix("charset=").strip('"') for part in parameters if part.startswith("charset=")]
    found = _BY_NAME.get(name)
    return found if found is Format.JSON or all(charset in _UTF8 for charset in charsets) else None


def answer_format(accept: Iterable[str]) -> Format:
    """Return the format that is wanted most; JSON when none is named, or as much as another.

    Parameters
    ----------
    accept
        The values of `Accept`.
    """
    best, found = (0.0, 0, 0), Format.JSON
    for part in ",".join(accept).split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        named = _BY_NAME.get(name)
        if named is None and name not in _ANY:
            continue
        quality = next((_quality(one[2:]) for one in parameters if one.startswith("q=")), 1.0)
        rank = (quality, int(named is not None), int(named is Format.JSON))
        if quality > 0 and rank > best:
            best, found = rank, named or Format.JSON
    return found


def formats_of(headers: Headers) -> tuple[Format, Format]:
    """Return the formats of body and answer of a request; the access rules have let its body pass."""
    given = body_format(headers.get("content-type", ""))
    return given or Format.JSON, answer_format(headers.getlist("accept"))


def _quality(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0


BESIDE = ("id", "subject", "expires_at", "restricted_at", "weight")
"""Columns of a sample besides its features and its label."""
ORIGIN = ("added_at", "request_id")
"""Further columns of a sample in a bundle."""
NONCE = "nonce"
"""A further column in a list with openings."""


_is_guarded = True


def guard_formulas(is_guarded: bool) -> None:
    """Have texts that a spreadsheet would run guarded from now on, or written as they are."""
    global _is_guarded
    _is_guarded = is_guarded


def csv_header(names: Iterable[str]) -> str:
    """Return the line with the names of the columns, which the schema says."""
    return ",".join(map(_field, names)) + "\r\n"


def csv_line(cells: Iterable[Any]) -> str:
    """Return a line."""
    return ",".join(map(csv_cell, cells)) + "\r\n"


def csv_cell(value: Any) -> str:
    """Return a value as a field."""
    return _field(guarded(value) if _is_guarded else value)


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)
    if not value or any(sign in value for sign in ',"\r\n') or value != value.strip():
        return '"' + value.replace('"', '""') + '"'
    return value


def free_name(name: str, taken: Sequence[str]) -> str:
    """Return a name that no other column has: a feature may be called "id" as well."""
    while name in taken:
        name = "_" + name
    return name


def label_column(schema: Schema) -> str:
    """Return what the column of the labels is called."""
    return free_name(schema.label_name, schema.names)


def columns_beside(schema: Schema) -> dict[str, str]:
    """Return what the columns of a sample are called besides its features and its label."""
    taken = [*schema.names, label_column(schema)]
    return {name: free_name(name, taken) for name in (*BESIDE, *ORIGIN, NONCE, "readd", "retention")}


if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
else:
    from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

ENCODINGS = ("gzip", "zstd")
LEAST_COMPRESSED = 1024  # bytes of an answer; smaller ones gain nothing
_PIECE = 64 * 1024  # bytes that are decoded at a time
_MOST_SENT = 4096  # bytes that are read at a time: what follows the end of a frame is copied
# A frame or member takes 2 to 15 µs even when it is empty and has 9 bytes.
MOST_FRAMES = 1000
LEAST_IN_FRAME = 256  # bytes for which a body may have one frame more
_MOST_WINDOW_LOG = 23  # 8 MiB, the largest window that RFC 9659 allows in HTTP


class _Gunzip:
    """Decodes a body of gzip members that comes in pieces.

    Attributes
    ----------
    is_between
        Whether all members that have begun have ended: the body may end here.
    n_frames
        Members that have begun.
    """

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)
        self.is_between = True
        self.n_frames = 1

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yield what some more bytes decode to, in pieces of limited size, after limited work each."""
        piece = b""
        while data or (len(piece) == _PIECE and not self._member.eof):
            if self._member.eof:
                self._member = zlib.decompressobj(wbits=31)
                self.n_frames += 1
            piece = self._member.decompress(data, _PIECE)
            self.is_between = self._member.eof
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if piece:
                yield piece


class _Unzstd:
    """Decodes a body of zstd frames that comes in pieces; attributes as of `_Gunzip`."""

    def __init__(self) -> None:
        self._frame = self._new()
        self.is_between = True
        self.n_frames = 1

    @staticmethod
    def _new() -> ZstdDecompressor:
        return ZstdDecompressor(options={DecompressionParameter.window_log_max: _MOST_WINDOW_LOG})

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yield what some more bytes decode to."""
        while data or not (self._frame.needs_input or self._frame.eof):
            if self._frame.eof:
                self._frame = self._new()
                self.n_frames += 1
            piece = self._frame.decompress(data, _PIECE)
            self.is_between = self._frame.eof
            data = self._frame.unused_data if self._frame.eof else b""
            if piece:
                yield piece


def decoded(receive: Receive, encoding: bytes, limit: int) -> Receive:
    """Return what receives the decoded body of a request.

    Parameters
    ----------
    receive
        Receives the body as it comes.
    encoding
        The value of `Content-Encoding`.
    limit
        Most bytes that the body may decode to.

    Raises
    ------
    ProblemError
        When the encoding is not supported; when receiving, for bytes that do not decode, above the limit, and for more
        than `MOST_FRAMES` frames or members that hold less than `LEAST_IN_FRAME` bytes each.
    """
    name = encoding.strip().lower().decode("latin-1")
    if name in ("", "identity"):
        return receive
    if name not in (*ENCODINGS, "x-gzip"):
        raise ProblemError("unsupported-encoding")
    decoder = _Unzstd() if name == "zstd" else _Gunzip()
    pieces: Iterator[bytes] = iter(())
    sent, at = b"", 0
    n_bytes, more = 0, True

    async def decode() -> Message:
        nonlocal pieces, sent, at, n_bytes, more
        while True:
            try:
                piece = next(pieces, None)
            except (zlib.error, ZstdError):
                raise ProblemError("broken-encoding") from None
            if piece is not None:
                n_bytes += len(piece)
                if n_bytes > limit:
                    raise body_too_large(limit)
                await asyncio.sleep(0)  # a small message may decode to many pieces
                return {"type": "http.request", "body": piece, "more_body": True}
            if decoder.n_frames > MOST_FRAMES + n_bytes // LEAST_IN_FRAME:
                raise ProblemError("too-many-frames")
            if at < len(sent):
                await asyncio.sleep(0)
                pieces, at = decoder.decode(sent[at : at + _MOST_SENT]), at + _MOST_SENT
                continue
            if not more:
                if not decoder.is_between:
                    raise ProblemError("broken-encoding")
                return {"type": "http.request", "body": b"", "more_body": False}
            message = await receive()
            if message["type"] != "http.request":
                return message
            sent, at, more = message.get("body", b""), 0, message.get("more_body", False)

    return decode
