"""The file that says how far this machine has followed or written the journal in PostgreSQL.

    postgres-mark    number of the last record, its checksum, checksum of the line

A database that was restored from a backup, or a standby that was promoted without the last commits, ends before that
record, or has another one under its number. Whoever went on would lose what was acknowledged, in silence. Like the mark
of a journal in files it is not flushed: it may lag behind after a power loss, and is never ahead of what was committed.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from oubli.app.errors import JournalDamagedError

if TYPE_CHECKING:
    from oubli.app.storage.postgres.connection import Connection

MARK_NAME = "postgres-mark"
_DIGITS, _CHECKSUM = 20, 32
_BYTES = _DIGITS + 1 + _CHECKSUM + 1 + 8 + 1
_FOUND = """
SELECT l.last_seq, (SELECT min(first_seq) FROM oubli_segments), (SELECT checksum FROM oubli_records WHERE seq = %s)
FROM oubli_leader l
"""


class PositionMark:
    """The file; it is made when something is written.

    Parameters
    ----------
    directory
        Where it is; None: nowhere, and nothing is checked.

    Attributes
    ----------
    seq
        The last record that was taken in or written here; 0 when that is not known.
    """

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / MARK_NAME
        self._descriptor = -1
        self.seq, self._checksum = self._read()

    def write(self, seq: int, checksum: bytes) -> None:
        """Note the last record; a disk that fails leaves the mark behind."""
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._descriptor, _text(seq, checksum), 0)
            self.seq, self._checksum = seq, checksum

    def forget(self) -> None:
        """Remove the file: what is in the directory begins anew."""
        self.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        self.seq, self._checksum = 0, b""

    def require_in(self, connection: Connection) -> None:
        """Check that the journal has the record.

        A record whose segment was dropped needs no look: every member had taken it in.

        Raises
        ------
        JournalDamagedError
            When it ends before the record, or has another one.
        psycopg.Error
            When the database cannot be asked.
        """
        if not self.seq:
            return
        ((last_seq, first_seq, checksum),) = connection.execute(_FOUND, (self.seq,)).fetchall()
        if last_seq < self.seq:
            raise set_back(f"ends with record {last_seq}, and record {self.seq} was acknowledged or applied here")
        is_there = checksum == self._checksum
        if not is_there and (checksum is not None or (first_seq is not None and first_seq <= self.seq)):
            raise set_back(f"has another record {self.seq} than the one that was acknowledged or applied here")

    def close(self) -> None:
        """Close the file; calling it again does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> tuple[int, bytes]:
        try:
            text = b"" if self._path is None else self._path.read_bytes()
            seq, checksum = int(text[:_DIGITS]), bytes.fromhex(text[_DIGITS + 1 : _DIGITS + 1 + _CHECKSUM].decode())
        except (OSError, ValueError):
            return 0, b""
        return (seq, checksum) if text == _text(seq, checksum) else (0, b"")


def set_back(how: str) -> JournalDamagedError:
    """Return the error of a journal that does not have what this machine has."""
    return JournalDamagedError(
        f"the journal in PostgreSQL {how}: an older state of the database was restored, or a standby without the last "
        "records was promoted. Nothing was changed here. Put the database back to a state that has them, and start "
        "again; or see 'When the journal was set back' in docs/how-to/cluster.md"
    )


def _text(seq: int, checksum: bytes) -> bytes:
    line = b"%0*d %s" % (_DIGITS, seq, checksum.hex().encode())
    return b"%s %08x\n" % (line, zlib.crc32(line))
