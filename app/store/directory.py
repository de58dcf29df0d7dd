"""The data directory: one server at a time, files that are either whole or not there.

A file is written under a temporary name, flushed to the disk, and renamed over its final name; then the directory
itself is flushed, because a rename lives in the directory. Power may go at any instant: what is found afterwards is
the old file or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from app.errors import StartError, StorageError

LOCK_NAME = "lock"
_TEMPORARY = ".{}.tmp"


class DataDirectory:
    """An open data directory; holds its lock until `close`.

    Parameters
    ----------
    path
        Created, for the owner only, when it is not there.

    Raises
    ------
    StartError
        When it cannot be used, or another server uses it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = -1
        try:
            make_directory(path)
            self._lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartError(
                f"the data directory {path} cannot be used ({error.strerror}): give --data-dir a directory that "
                "this user may write, or --ephemeral to keep nothing"
            ) from None
        self._take_lock()
        self._remove_temporary_files()

    def close(self) -> None:
        """Release the directory to the next server."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @contextlib.contextmanager
    def temporary(self) -> Iterator[Path]:
        """Give a path for an unfinished file; whatever is there at the end of the block is removed."""
        path = self.path / _TEMPORARY.format(secrets.token_hex(8))
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def publish(self, temporary: Path, name: str) -> Path:
        """Flush a finished temporary file and give it its name, replacing what had it."""
        target = self.path / name
        flush_file(temporary)
        temporary.replace(target)
        flush_directory(self.path)
        return target

    def remove(self, paths: list[Path]) -> None:
        """Remove files for good."""
        for path in paths:
            path.unlink(missing_ok=True)
        if paths:
            flush_directory(self.path)

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip()
            self.close()
            raise StartError(
                f"the data directory {self.path} is in use by another Oubli server"
                f"{f' (process {holder})' if holder.isdigit() else ''}: one directory belongs to one server, because "
                "two would overwrite each other's model. Stop the other server, or give this one another --data-dir"
            ) from None
        with contextlib.suppress(OSError):  # on a full disk: it only helps the next one to say who has the lock
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode("ascii"), 0)

    def _remove_temporary_files(self) -> None:
        """A server that was killed while it wrote leaves these; nothing refers to them."""
        for path in self.path.glob(_TEMPORARY.format("*")):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def make_directory(path: Path) -> None:
    """Have a directory, made for the owner only when it is not there; it survives a power loss when this returns.

    Its parents are made and flushed from the top down. Whoever is killed in between leaves at most one that was not
    flushed, the last, so that one is flushed also when it is there already.

    Raises
    ------
    OSError
        When it cannot be made or flushed, or something else has the name.
    """
    path = path.absolute()
    missing = []
    level = path
    while not level.exists():
        missing.append(level)
        level = level.parent
    _flush_entry(level)
    for level in reversed(missing):
        level.mkdir(mode=0o700 if level == path else 0o777, exist_ok=True)
        _flush_entry(level)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def _flush_entry(path: Path) -> None:
    """Make the name of a directory survive a power loss, where its parent can be opened and flushed."""
    try:
        flush_directory(path.parent)
    except OSError as error:
        # A parent that may be passed through and not read, and file systems that cannot flush a directory.
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise


@contextlib.contextmanager
def storage_errors() -> Iterator[None]:
    """Turn a failing disk into `StorageError`; the operating system's text may hold paths, so it is dropped."""
    try:
        yield
    except OSError as error:
        raise StorageError(os.strerror(error.errno) if error.errno else "input/output error") from None


def flush_file(path: Path) -> None:
    """Make what was written to a file survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_directory(path: Path) -> None:
    """Make renames and removals in a directory survive a power loss."""
    flush_file(path)
