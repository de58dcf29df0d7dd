"""Bodies that come compressed, decoded piece by piece and never beyond the limit of a body; which answers may be."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from typing import Protocol

from starlette.types import Message, Receive

from oubli.app.http.problems import ProblemError, body_too_large

if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
else:
    from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

ENCODINGS = ("gzip", "zstd")
LEAST_COMPRESSED = 1024  # bytes of an answer; smaller ones gain nothing
_PIECE = 64 * 1024  # bytes that are decoded at a time
_MOST_WINDOW_LOG = 23  # 8 MiB, the largest window that RFC 9659 allows in HTTP


class _Decoder(Protocol):
    """Decodes a body that comes in pieces."""

    @property
    def is_between(self) -> bool:
        """Whether all that was begun has ended: the body may end here."""

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yield what some more bytes decode to, in pieces of limited size."""


class _Gunzip:
    """One gzip member after the other."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)
        self.is_between = True

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yield what some more bytes decode to."""
        piece = b""
        while data or (len(piece) == _PIECE and not self._member.eof):
            if self._member.eof:
                self._member = zlib.decompressobj(wbits=31)
            piece = self._member.decompress(data, _PIECE)
            self.is_between = self._member.eof
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if piece:
                yield piece


class _Unzstd:
    """One zstd frame after the other."""

    def __init__(self) -> None:
        self._frame = self._new()
        self.is_between = True

    @staticmethod
    def _new() -> ZstdDecompressor:
        return ZstdDecompressor(options={DecompressionParameter.window_log_max: _MOST_WINDOW_LOG})

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yield what some more bytes decode to."""
        while data or not (self._frame.needs_input or self._frame.eof):
            if self._frame.eof:
                self._frame = self._new()
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
        When the encoding is not supported; when receiving, for bytes that do not decode, and above the limit.
    """
    name = encoding.strip().lower().decode("latin-1")
    if name in ("", "identity"):
        return receive
    if name not in (*ENCODINGS, "x-gzip"):
        raise ProblemError("unsupported-encoding")
    decoder: _Decoder = _Unzstd() if name == "zstd" else _Gunzip()
    pieces: Iterator[bytes] = iter(())
    n_bytes, more = 0, True

    async def decode() -> Message:
        nonlocal pieces, n_bytes, more
        while True:
            try:
                piece = next(pieces, None)
            except (zlib.error, ZstdError):
                raise ProblemError("broken-encoding") from None
            if piece is not None:
                n_bytes += len(piece)
                if n_bytes > limit:
                    raise body_too_large(limit)
                return {"type": "http.request", "body": piece, "more_body": True}
            if not more:
                if not decoder.is_between:
                    raise ProblemError("broken-encoding")
                return {"type": "http.request", "body": b"", "more_body": False}
            message = await receive()
            if message["type"] != "http.request":
                return message
            pieces, more = decoder.decode(message.get("body", b"")), message.get("more_body", False)

    return decode
