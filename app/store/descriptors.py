"""Descriptors: whether an error means that the process has none left.

What fails because of that has written nothing, and works again as soon as others are closed.
"""

from __future__ import annotations

import errno
import os
import sqlite3

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
