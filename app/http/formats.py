"""Media types of tables: which one a body has, and which one the answer is wanted in."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

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
