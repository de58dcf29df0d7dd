"""How a data file is written: what `--read KEY=VALUE` can say of it, and its bytes, unpacked.

A guess about one file, which `layout` makes, holds for that file only; what it means for the columns is in the
schema. Bytes are counted as they are read: a few kilobytes can unpack to any number of gigabytes, so more than a limit
ends in a message.
"""

import bz2
import codecs
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from oubli.app.errors import StartError
from oubli.core.data.values import OF_DAY, OF_WEEK, OF_YEAR

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdError, ZstdFile
else:
    from backports.zstd import ZstdError, ZstdFile

_NAMED = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "none": ""}
_SHOWN = {"\t": "tab", " ": "space", "": "none"}
FORMATS = ("csv", "parquet", "arrow", "jsonl", "excel")
_LISTED = 20  # columns that a message names


class LoadError(StartError):
    """A file cannot be used; the text names the file, the line, the column, the rule and the remedy."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a file is read. Each attribute but `given` is a key of `--read`; `KEYS` says what the values mean."""

    format: str = "csv"
    encoding: str = "utf-8"
    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    decimal: str = "."
    thousands: str = ""
    missing: tuple[str, ...] = ()
    quoted: str = "any"
    header: str = "yes"
    skip: int = 0
    index: str = "no"
    dates: str = "yes"
    cycles: tuple[str, ...] = ()
    sheet: str = ""
    given: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def cycle_units(self) -> dict[str, str]:
        """The units of the columns of which only a cycle is learned."""
        return {name: CYCLES[cycle] for name, _, cycle in (one.rpartition(":") for one in self.cycles)}

    def options(self) -> list[str]:
        """Return what was given, or differs from a plain CSV file, as `KEY=VALUE`."""
        plain, found = Reading(), []
        for key in KEYS:
            value = getattr(self, key)
            if key in self.given or (key != "format" and value != getattr(plain, key)):
                text = ",".join(value) if isinstance(value, tuple) else _SHOWN.get(value, str(value))
                found.append(f"{key}={text}")
        return found


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return text

    return read


def _character(text: str, *, also: Sequence[str] = ()) -> str:
    named = text if text in also else _NAMED.get(text, text)
    if (len(named) != 1 and named not in ("", *also)) or not named.isascii():
        raise ValueError("one character, or a word: tab, space, none")
    return named


def _sign(text: str) -> str:
    if not (named := _character(text)):
        raise ValueError("one character, or a word: tab, space")
    return named


def _codec(text: str) -> str:
    try:
        "a".encode(text)  # some codecs are none of texts
        return codecs.lookup(text).name
    except (LookupError, ValueError):
        raise ValueError("an encoding that Python knows, such as utf-8, utf-16 or cp1252") from None


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("a number of lines")
    return int(text)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _cycles(text: str) -> tuple[str, ...]:
    if not all(name and cycle in CYCLES for name, _, cycle in (one.rpartition(":") for one in _words(text))):
        raise ValueError("COLUMN:day, COLUMN:week or COLUMN:year, with commas between them")
    return _words(text)


CYCLES = {"day": OF_DAY, "week": OF_WEEK, "year": OF_YEAR}
"""The cycles of dates and times, and their units."""
KEYS: dict[str, Callable[[str], Any]] = {
    "format": _one_of(*FORMATS),
    "encoding": _codec,
    "delimiter": _sign,
    "quote": _character,
    "escape": _character,
    "decimal": _one_of(".", ","),
    "thousands": partial(_character, also=("none",)),
    "missing": _words,
    "quoted": _one_of("any", "text"),
    "header": _one_of("yes", "no"),
    "skip": _count,
    "index": _one_of("yes", "no"),
    "dates": _one_of("yes", "no", "day-first", "month-first"),
    "cycles": _cycles,
    "sheet": str,
}
"""The keys of `--read`; each function reads a value, and raises `ValueError` with the rule."""


def read_options(texts: Iterable[str]) -> dict[str, Any]:
    """Read `KEY=VALUE` texts.

    Raises
    ------
    LoadError
        When one is not of that form, or the key or its value is not known.
    """
    found: dict[str, Any] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or key not in KEYS:
            raise LoadError(f"--read takes KEY=VALUE, and KEY is one of {', '.join(KEYS)}")
        try:
            found[key] = KEYS[key](value)
        except ValueError as rule:
            raise LoadError(f"--read {key} must be {rule}") from None
    return found


def check_header(path: Path, names: Sequence[str | None]) -> None:
    """Refuse a header with a column that has no name, or the name of another; None stands for no column."""
    places: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if name == "":
            raise LoadError(
                f"{path}: column {position} has no name: give it one in the header line, or write the file without "
                "row numbers"
            )
        if name in places:
            raise LoadError(
                f"{path}: the header names {name!r} more than once, as columns {places[name]} and {position}: rename "
                "or remove one"
            )
        if name is not None:
            places[name] = position


def listed(names: Sequence[str]) -> str:
    """List names in quotation marks, the first ones of many."""
    shown = ", ".join(repr(name) for name in names[:_LISTED])
    return shown + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")


# --- bytes

_BLOCK_BYTES = 4 * 1024 * 1024
_READ_BYTES = 2**20  # unpacked at once
_UNPACK: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"\x28\xb5\x2f\xfd": ZstdFile,
}
_BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, ZstdError)


class _LimitError(Exception):
    """There is more than there may be."""


@contextmanager
def unpacked(
    path: Path, max_bytes: int, report: Callable[[int], None] = lambda done: None
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

    Raises
    ------
    LoadError
        When the file cannot be read, or unpacks to too much.
    """

    def limit(done: int) -> None:
        if done > max_bytes:
            raise _LimitError

    try:
        with path.open("rb") as raw:
            begin = raw.read(6)
            raw.seek(0)
            unpack = next((one for magic, one in _UNPACK.items() if begin.startswith(magic)), nullcontext)
            with unpack(io.BufferedReader(_Counted(raw, report), _BLOCK_BYTES)) as stream:
                yield io.BufferedReader(_Counted(stream, limit), _READ_BYTES)
    except _LimitError:
        raise too_large(path, max_bytes) from None
    except _BROKEN:
        raise LoadError(f"{path} is compressed and cut short or damaged: copy or download it again") from None
    except OSError as error:
        reason = error.strerror or "it is not what its first bytes promise"
        raise LoadError(f"{path} cannot be read: {reason}") from None


def not_encoded(path: Path, encoding: str, max_bytes: int) -> LoadError:
    """Return the error for a text that is not of an encoding, with the line where lines can be told apart."""
    where = ""
    if not encoding.startswith(("utf-16", "utf-32")):
        with unpacked(path, max_bytes) as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    line.decode(encoding)
                except UnicodeDecodeError:
                    where = f", line {number}:"
                    break
    return LoadError(
        f"{path}{where} is not {encoding.upper()} text: save the file as UTF-8, or say what it is with --read "
        "encoding=NAME"
    )


def too_large(path: Path, max_bytes: int) -> LoadError:
    """Return the error for a file that unpacks to too much."""
    return LoadError(
        f"{path} unpacks to more than {max_bytes:,} bytes, the memory of this machine: check that it is the right "
        "file, leave rows or columns out, or use a machine with more memory"
    )


class _Counted(io.RawIOBase):
    """A stream that tells how far it was read."""

    def __init__(self, stream: Any, tell: Callable[[int], None]) -> None:
        self._stream = stream
        self._tell = tell
        self._done = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._stream.readinto(memoryview(buffer)[:_READ_BYTES])
        self._done += count
        self._tell(self._done)
        return count
