"""The files of the console, a web page for people, by the paths that they are served at.

The page is `/`, what it loads is below `/console/`. Both are known to the rules of access: they need no key.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from starlette.responses import Response

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # may be kept, and is asked for again with its tag
}
_FOLDER = Path(__file__).parent / "console"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class File(NamedTuple):
    """Content of a file, its media type, and a tag that changes with the content."""

    content: bytes
    media_type: str
    etag: str


def _path_of(file: Path) -> str:
    name = file.relative_to(_FOLDER).as_posix()
    return "/" if name == "index.html" else f"/console/{name}"


_FILES = {_path_of(file): file for file in sorted(_FOLDER.rglob("*")) if file.suffix in _TYPES}
CONSOLE_PATHS = frozenset(_FILES)
"""The paths of all files."""


@cache
def read_file(path: str) -> File:
    """Return the file of a path; it is read once."""
    file = _FILES[path]
    content = file.read_bytes()
    # Weak: what is compressed on the way has other bytes.
    return File(content, _TYPES[file.suffix], f'W/"{hashlib.sha256(content).hexdigest()[:32]}"')


def file_answer(path: str, known_tags: str) -> Response:
    """Return the answer with a file; without its content when the browser has it already.

    Parameters
    ----------
    path
        One of `CONSOLE_PATHS`.
    known_tags
        The header `If-None-Match`.
    """
    file = read_file(path)
    headers = {**HEADERS, "ETag": file.etag}
    if file.etag in {tag.strip() for tag in known_tags.split(",")}:
        return Response(None, 304, headers)
    return Response(file.content, 200, headers, file.media_type)
