"""Files of a node that say something to other starts, or to other nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oubli.app.storage.directory import flush_directory, flush_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MARKER = "rejoin"
"""A node whose data directory has a file of this name goes on from nothing else in it."""
KEY_FILE = re.compile(r"(?:signing|hashing|positions)-[0-9a-f]{1,64}\.(?:pem|key|gone)")


def mark(path: Path) -> None:
    """Have the next start of a data directory rejoin, whatever is in it."""
    (path / MARKER).touch(0o600)
    flush_file(path / MARKER)
    flush_directory(path)


def is_marked(path: Path) -> bool:
    """Whether a data directory has to rejoin."""
    return (path / MARKER).exists()


def ledger_key_files(key_dir: Path) -> Iterable[tuple[str, bytes]]:
    """Return the files of the ledger's keys, with their names."""
    for path in sorted(key_dir.iterdir()):
        if KEY_FILE.fullmatch(path.name):
            yield path.name, path.read_bytes()
