"""How far records were acknowledged, kept outside of the segments.

SQLite takes a damaged end of its log for one that was never finished, and drops it in silence. The mark tells the two
apart: it is written after a commit has reached the disk, and not flushed itself, so that it costs a system call. After
a crash of the process it is exact; after a power loss it may lag behind; it is never ahead of what was flushed.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

MARK_NAME = "journal-mark"
_DIGITS = 20
_SIZE = _DIGITS + 1 + 8 + 1


class Mark:
    """The file with the number of the newest acknowledged record.

    Parameters
    ----------
    directory
        Where it is.

    Attributes
    ----------
    seq
        What was found when it was opened; 0 when there was nothing, or nothing that makes sense.

    Raises
    ------
    OSError
        When it cannot be opened.
    """

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(directory / MARK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.seq = _parse(os.pread(self._descriptor, _SIZE, 0))

    def write(self, seq: int) -> None:
        """Note a number.

        Raises
        ------
        OSError
            When the disk fails or is full.
        """
        os.pwrite(self._descriptor, _format(seq), 0)

    def close(self) -> None:
        """Close the file; calling it again does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _format(seq: int) -> bytes:
    digits = b"%0*d" % (_DIGITS, seq)
    return b"%s %08x\n" % (digits, zlib.crc32(digits))


def _parse(text: bytes) -> int:
    digits = text[:_DIGITS]
    return int(digits) if digits.isdigit() and text == _format(int(digits)) else 0
