"""The command line with a journal that writes nothing: `python -m benchmarks.durability.unwritten serve ...`.

The server commits as the durable one does, requests that wait together included, but for the bytes and the flush.
"""

from __future__ import annotations

import sys
from pathlib import Path

from oubli.app.cli.main import main
from oubli.app.service import build
from oubli.app.storage.journal import Journal


class _Unwritten(Journal):
    """Says that it is durable, so that all is done as if it were."""

    is_durable = True

    def __init__(self, directory: Path, **options: object) -> None:
        del directory, options
        super().__init__()


if __name__ == "__main__":
    vars(build)["SqliteJournal"] = _Unwritten
    main(sys.argv[1:])
