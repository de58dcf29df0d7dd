"""Room on the disk that is kept free, so that erasures fit when nothing else does.

present   a file of zeros that is never read; ordinary records are refused when the disk is full
given up  removed for an erasure; its space is for erasures, so ordinary records wait until it can be made again
"""

import contextlib
import errno
import os
import shutil
from pathlib import Path

from oubli.app.storage.directory import flush_descriptor, flushed

RESERVE_NAME = "journal-reserve"
RESERVE_BYTES = 4 * 2**20  # some thousand erasures of one sample
_TEMPORARY = ".journal-reserve.tmp"
_PROBE = ".journal-probe.tmp"
_PIECE = bytes(2**16)
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class Reserve:
    """The file that holds the room.

    Parameters
    ----------
    directory
        Where it is.
    n_bytes
        Its size.

    Attributes
    ----------
    is_there
        Whether it is.
    """

    def __init__(self, directory: Path, n_bytes: int = RESERVE_BYTES) -> None:
        self._directory = directory
        self._path = directory / RESERVE_NAME
        self._n_bytes = n_bytes
        self.is_there = _is_allocated(self._path, n_bytes)

    def ensure(self) -> bool:
        """Make it if it is not there; false when there is no room for it.

        Raises
        ------
        OSError
            When the disk fails in another way.
        """
        if self.is_there:
            return True
        if shutil.disk_usage(self._directory).free < self._n_bytes:
            return False  # not even for an instant should it take the room that an erasure needs
        temporary = self._directory / _TEMPORARY
        try:
            _allocate(temporary, self._n_bytes)
            with flushed(self._directory):
                temporary.replace(self._path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            if not is_no_room(error):
                raise
            return False
        self.is_there = True
        return True

    def give_up(self) -> bool:
        """Remove it for an erasure; false when it was not there.

        Raises
        ------
        OSError
            When the disk fails.
        """
        if not self.is_there:
            return False
        with flushed(self._directory):  # many file systems hand out freed blocks only after that
            self.is_there = False
            self._path.unlink(missing_ok=True)
        return True


def is_no_room(error: OSError) -> bool:
    """Whether the disk or a quota is full."""
    return error.errno in _NO_ROOM


def lacks_room(directory: Path, n_bytes: int) -> bool:
    """Find out by allocating whether so much more would not fit: SQLite does not tell why a write has failed."""
    try:
        probe_room(directory, n_bytes)
    except OSError as error:
        return is_no_room(error)
    return False


def probe_room(directory: Path, n_bytes: int) -> None:
    """Return when so much more fits and can be written.

    Raises
    ------
    OSError
        When not.
    """
    probe = directory / _PROBE
    try:
        _allocate(probe, n_bytes)
    finally:
        with contextlib.suppress(OSError):  # the question is answered; what is left is removed at the next start
            probe.unlink(missing_ok=True)


def _is_allocated(path: Path, n_bytes: int) -> bool:
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return status.st_size >= n_bytes and status.st_blocks * 512 >= n_bytes


def _allocate(path: Path, n_bytes: int) -> None:
    """Write a file of zeros that occupies its blocks."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        for start in range(0, n_bytes, len(_PIECE)):
            _write(descriptor, _PIECE[: n_bytes - start])
        flush_descriptor(descriptor)
    finally:
        os.close(descriptor)


def _write(descriptor: int, piece: bytes) -> None:
    while piece:
        piece = piece[os.write(descriptor, piece) :]
