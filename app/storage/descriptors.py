"""Descriptors: whether an error means that the process has none left.

What fails because of that has written nothing, and works again as soon as others are closed. So that it hardly ever
happens, connections are limited below what the process may open: the journal, snapshots and the ledger come first.
"""

import errno
import os
import resource
import sqlite3
from pathlib import Path

from oubli.app.errors import StartError

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
            f"the process may open {soft} files only: {in_use} are open, and {RESERVED} are kept for the journal, the "
            f"snapshots and the ledger. Raise the limit to {kept + _EACH * LEAST_CONNECTIONS} at least (ulimit -n)"
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
