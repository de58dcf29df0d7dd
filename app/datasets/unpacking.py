"""The bytes of a data file, unpacked, and counted as they are read.

A few kilobytes can unpack to any number of gigabytes, so more than a limit ends in a message.
"""

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from oubli.app.datasets.dialect import LoadError

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdError, ZstdFile
else:
    from backports.zstd import ZstdError, ZstdFile

_BLOCK_BYTES = 4 * 1024 * 1024
_READ_BYTES = 2**20  # unpacked at once


_UNPACK: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": lambda raw: bz2.BZ2File(raw),
    b"\xfd7zXZ\x00": lambda raw: lzma.open(raw),  # noqa: SIM115 - `unpacked` closes it
    b"\x28\xb5\x2f\xfd": lambda raw: ZstdFile(raw),
}
_BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, ZstdError)


class LimitError(Exception):
    """There is more than there may be."""


@contextmanager
def unpacked(
    path: Path, max_bytes: int, report: Callable[[int], None] = lambda done: None, *, most: int | None = None
) -> Iterator[io.BufferedReader]:
    """The bytes of a file, unpacked if its first ones say that it is compressed.

    Parameters
    ----------
    path
        The file.
    max_bytes
        How much it may unpack to.
    report
        Called with how many bytes of the file are read.
    most
        How much may be read.

    Raises
    ------
    LoadError
        When the file cannot be read, or unpacks to too much.
    LimitError
        When there are more than `most` bytes.
    """
    limit = max_bytes if most is None else most
    try:
        with path.open("rb") as raw:
            begin = raw.read(6)
            raw.seek(0)
            counted = io.BufferedReader(_Counted(raw, report), _BLOCK_BYTES)
            for magic, unpack in _UNPACK.items():
                if begin.startswith(magic):
                    with unpack(counted) as stream:
                        yield io.BufferedReader(_Limited(stream, limit), _READ_BYTES)
                    return
            yield io.BufferedReader(_Limited(counted, limit), _READ_BYTES)
    except LimitError:
        if most is not None:
            raise
        raise too_large(path, max_bytes) from None
    except _BROKEN:
        raise LoadError(f"{path} is compressed and cut short or damaged: copy or download it again") from None
    except OSError as error:
        reason = error.strerror or "it is not what its first bytes promise"
        raise LoadError(f"{path} cannot be read: {reason}") from None


def too_large(path: Path, max_bytes: int) -> LoadError:
    """Return the error for a file that unpacks to too much."""
    return LoadError(
        f"{path} unpacks to more than {max_bytes:,} bytes, the memory of this machine: check that it is the right "
        "file, leave rows or columns out, or use a machine with more memory"
    )


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
            raise LimitError
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
