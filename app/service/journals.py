"""What a journal outside of the data directory needs of it: a place for keys, and a name."""

import socket
from pathlib import Path

from oubli.app.ledger.keys import KEYS_NAME
from oubli.app.settings import Settings
from oubli.app.storage.segment_keys import SEGMENT_KEYS_NAME, SegmentKeys


def segment_keys_of(settings: Settings) -> SegmentKeys:
    """Return the keys of the journal's segments.

    Raises
    ------
    StartError
        When their directory cannot be used.
    """
    return SegmentKeys((settings.key_dir or settings.data_dir / KEYS_NAME) / SEGMENT_KEYS_NAME)


def server_name(directory: Path) -> str:
    """Return a name that no other running server has: one directory belongs to one server."""
    return f"{socket.gethostname()}:{directory.resolve()}"
