"""The files of the console, a web page for people, by the paths that they are served at.

The page is `/`, what it loads is below `/console/`. Both are known to the rules of access: they need no key.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
