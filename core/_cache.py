"""Several processes that fill one cache of compiled kernels.

Numba notes in a kernel's index which file has the code for which types, then writes that file, and nothing keeps two
processes apart: both may take the same file for different types. A third process then loads code for arguments that
it does not have, which reads and writes wherever it likes. So a process holds a lock on the directory while it writes.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from numba.core.caching import IndexDataCacheFile

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_save = IndexDataCacheFile.save


def write_in_turn() -> None:
    """Make Numba's writers of a cache wait for each other, in this process from now on."""
    IndexDataCacheFile.save = _save_alone


def _save_alone(file: Any, key: Any, data: Any) -> None:
    with _alone_in(file._cache_path):
        _save(file, key, data)


@contextmanager
def _alone_in(directory: str) -> Iterator[None]:
    with ExitStack() as held:
        if fcntl is not None:
            # Some file systems know no locks. A cache without them is still better than none.
            with suppress(OSError):
                descriptor = os.open(directory, os.O_RDONLY)
                held.callback(os.close, descriptor)  # which lets the lock go
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
