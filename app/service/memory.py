"""Memory that a server keeps: how the allocator is set up, what is given back, and core dumps.

The models and their copies are arrays of many sizes, which come and go with every scrub, restore and fit. As it is,
glibc's allocator raises its own threshold for memory maps with the first large array that is freed, and has an arena a
thread: what is freed in one stays there. The process then grows to twice its size, and what was erased stays in its
freed memory. So large arrays are maps of their own, which are gone when they are freed, arenas are few, and what is
free is given back after such work.
"""

import ctypes
import gc
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from oubli.app.logs import cause_of

log = logging.getLogger("oubli.memory")

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # of malloc.h
_MAP_FROM = 256 * 1024  # bytes
_TRIM_FROM = 1024 * 1024
_ARENAS = 2
# What a user has set stays; GLIBC_TUNABLES names the same three in another way.
_OPTIONS = (
    (_M_MMAP_THRESHOLD, _MAP_FROM, "MALLOC_MMAP_THRESHOLD_", "glibc.malloc.mmap_threshold"),
    (_M_TRIM_THRESHOLD, _TRIM_FROM, "MALLOC_TRIM_THRESHOLD_", "glibc.malloc.trim_threshold"),
    (_M_ARENA_MAX, _ARENAS, "MALLOC_ARENA_MAX", "glibc.malloc.arena_max"),
)


class _Shreddable(Protocol):
    def shred(self) -> None: ...


def set_up_allocator() -> None:
    """Have large arrays in maps of their own and few arenas; call it before there are threads. glibc only."""
    library = _glibc()
    if library is None:
        return
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    for option, value, variable, tunable in _OPTIONS:
        if variable not in os.environ and tunable not in tunables:
            library.mallopt(option, value)


def give_back() -> float:
    """Give free memory back to the system, and return how many seconds that took; call it in a thread."""
    library = _glibc()
    if library is None:
        return 0.0
    started = time.perf_counter()
    library.malloc_trim(0)
    return time.perf_counter() - started


def let_go_of(model: _Shreddable) -> None:
    """Overwrite a model that is not read any more, and give free memory back; call it in a thread."""
    model.shred()
    seconds = give_back()
    log.debug("gave free memory back in %.1f ms", 1000 * seconds)


@contextmanager
def without_collector() -> Iterator[None]:
    """Collect no garbage in the block: going through a model, or through what is imported and stays, takes long."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def switch_core_dumps_off() -> None:
    """Have no core file written when the process crashes: it would hold the samples."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (OSError, ValueError) as error:
        log.warning("core dumps could not be switched off (see `ulimit -c`): %s", cause_of(error))


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL(None)
        _ = library.mallopt, library.malloc_trim, library.gnu_get_libc_version
    except (OSError, AttributeError):  # another C library
        return None
    return library
