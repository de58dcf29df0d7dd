"""The data directory: one server at a time, and files that are either whole or absent.

A file is written under a temporary name, flushed to the disk, and renamed over its final name; then the directory
itself is flushed, because a rename lives in the directory. Power may fail at any instant: what is found afterwards is
the old file or the new one.

A file that cannot be opened because the process has no descriptors left was not written, and works again as soon as
others are closed. Connections are limited below what the process may open, so that the journal, snapshots and the
ledger nearly always get theirs.
"""

import contextlib
import errno
import fcntl
import os
import resource
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from oubli.app.errors import FlushFailedError, StartError, StorageError

LOCK_NAME = "lock"
TEMPORARY = ".{}.tmp"  # names of unfinished files, which are removed at start
# Errors of SQLite that say nothing about what a file holds.
UNOPENED = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_FULL)
JOURNAL_PREFIX = ".journal-"  # of those that belong to the journal, in another thread


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
            next(path.iterdir(), None)  # else its files would seem to be missing
            self._lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartError(
                f"the data directory {path} cannot be used ({error.strerror}): give --data-dir a directory that this "
                "user may read and write, or keep nothing with --ephemeral"
            ) from None
        self._take_lock()
        self._remove_temporary_files(self.path.glob(TEMPORARY.format("*")))

    def close(self) -> None:
        """Release the directory to the next server."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @contextlib.contextmanager
    def temporary(self) -> Iterator[Path]:
        """Give a path for an unfinished file; whatever is there at the end of the block is removed."""
        path = self.path / TEMPORARY.format(secrets.token_hex(8))
        try:
            yield path
        finally:
            if path.exists():  # half-written: after a power loss it could be back, with what was erased since
                self.remove([path])

    def publish(self, temporary: Path, name: str) -> Path:
        """Flush a finished temporary file and give it its name, replacing what had it."""
        target = self.path / name
        try:
            flush_file(temporary)
        except FlushError as error:  # the file is thrown away, and a later one is written from the beginning
            raise OSError(error.errno, error.strerror) from None
        with flushed(self.path):
            temporary.replace(target)
        return target

    def remove(self, paths: list[Path]) -> None:
        """Remove files for good."""
        if paths:
            with flushed(self.path):
                for path in paths:
                    path.unlink(missing_ok=True)

    def remove_unfinished(self) -> None:
        """Remove unfinished files that could not be removed before; no thread may be writing one."""
        self._remove_temporary_files(
            path for path in self.path.glob(TEMPORARY.format("*")) if not path.name.startswith(JOURNAL_PREFIX)
        )

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

    def _remove_temporary_files(self, found: Iterable[Path]) -> None:
        """A server that was killed while it wrote leaves these; nothing refers to them."""
        paths = list(found)
        for path in paths:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        if paths:
            flush_directory(self.path)


def make_directory(path: Path) -> None:
    """Have a directory, made for the owner only when it is not there; it survives a power loss when this returns.

    Its parents are made and flushed from the top down. A process that is killed in between leaves at most one that was
    not flushed, the last, so that one is flushed also when it is there already.

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
    except FlushError:
        raise FlushFailedError("a flush failed") from None
    except OSError as error:
        raise StorageError(os.strerror(error.errno) if error.errno else "input/output error") from None


class FlushError(OSError):
    """A flush has failed, or what was begun could not be undone: it is unknown what the disk holds.

    A second flush can succeed without having written anything, so it is not tried.
    """


def flush_descriptor(descriptor: int) -> None:
    """Flush an open file or directory.

    Raises
    ------
    FlushError
        When that fails.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise FlushError(error.errno, error.strerror) from None


def flush_file(path: Path) -> None:
    """Make what was written to a file survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        flush_descriptor(descriptor)
    finally:
        os.close(descriptor)


def write_private(path: Path, content: bytes) -> None:
    """Write a small file for its owner only, whole or not at all; it is on the disk when this returns.

    Raises
    ------
    OSError
        When it cannot be written; what had the name before still has it.
    """
    temporary = path.with_name(TEMPORARY.format(secrets.token_hex(8)))
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            flush_descriptor(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            shred(temporary)  # it may hold a key
        temporary.unlink(missing_ok=True)
        raise
    flush_directory(path.parent)


def shred(path: Path) -> None:
    """Overwrite a file, flush that, and remove it; the removal is on the disk when the directory is flushed."""
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        flush_descriptor(file.fileno())
    path.unlink()


@contextlib.contextmanager
def opened_directory(path: Path) -> Iterator[Callable[[], None]]:
    """Open a directory and give what makes renames and removals in it survive a power loss.

    Opened before anything changes: a process without descriptors is refused when nothing is half done yet.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield partial(flush_descriptor, descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def flushed(path: Path) -> Iterator[None]:
    """Make what the block changes in a directory survive a power loss."""
    with opened_directory(path) as flush:
        yield
        flush()


def flush_directory(path: Path) -> None:
    """Make renames and removals in a directory survive a power loss."""
    flush_file(path)


def may_use(path: Path) -> bool:
    """Whether this user may read and write a database of SQLite and the files beside it, as far as they are there."""
    files = [path.with_name(path.name + side) for side in ("", "-wal", "-shm", "-journal")]
    return all(os.access(file, os.R_OK | os.W_OK) for file in files if os.path.lexists(file))


RESERVED = 64  # for the journal, snapshots, the ledger, and connections that are being refused
LEAST_CONNECTIONS = 8
_EACH = 2  # a connection may be sending or receiving a file

_NONE_LEFT = frozenset({errno.EMFILE, errno.ENFILE})


def lacks_descriptors(error: BaseException) -> bool:
    """Whether a file could not be opened because the process, or the machine, has too many open.

    SQLite does not pass the reason on. When it cannot open a file that is there or may be made, and no other file can
    be opened either, that is the reason.
    """
    if isinstance(error, OSError):
        return error.errno in _NONE_LEFT
    if not is_unopened(error):
        return False
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as found:
        return found.errno in _NONE_LEFT
    return False


def is_unopened(error: BaseException) -> bool:
    """Whether SQLite could not open a file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CANTOPEN


def connections_allowed(most: int) -> int:
    """Return how many connections may be open at the same time, after raising the limit of open files as far as needed.

    Parameters
    ----------
    most
        How many are wanted.

    Raises
    ------
    StartError
        When the process may open too few files.
    """
    in_use = len(list(Path("/dev/fd").iterdir()))
    kept = in_use + RESERVED
    soft = _raised_to(kept + _EACH * most)
    allowed = min(most, (soft - kept) // _EACH)
    if allowed < min(most, LEAST_CONNECTIONS):
        raise StartError(
            f"the process may open only {soft} files: {in_use} are open, and {RESERVED} are kept for the journal, the "
            f"snapshots and the ledger. Raise the limit to at least {kept + _EACH * LEAST_CONNECTIONS} (ulimit -n)"
        )
    return allowed


def _raised_to(wanted: int) -> int:
    """Raise the soft limit of open files towards a number, as far as the hard one lets it; return what it is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return max(soft, wanted)
    target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (ValueError, OSError):  # the system has a limit of its own
        return soft
    return target
