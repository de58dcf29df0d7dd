"""A timer that is more exact than that of the event loop.

The loops of uvloop and asyncio wait in whole milliseconds, several times what a prediction takes. Linux has timers that
are file descriptors, exact to some 50 us; Python knows them from 3.13 on, so that the C library is called here.
Elsewhere the loop's own timer is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
from collections.abc import Callable

_CLOCK_MONOTONIC = 1  # the clock of time.monotonic on Linux
_ABSOLUTE = 1


class _Spec(ctypes.Structure):
    """`struct itimerspec`: never again, and once at a time of the clock."""

    _fields_ = (
        ("again_seconds", ctypes.c_long),
        ("again_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


class Alarm:
    """Calls a function at the time it was set to last.

    Parameters
    ----------
    loop
        Of the calls.
    ring
        Called without arguments, never before its time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None
        self._descriptor = -1
        if self._libc is not None:
            self._descriptor = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor >= 0:
            loop.add_reader(self._descriptor, self._read)

    def set(self, at: float) -> None:
        """Ring at a time of `time.monotonic`; one that has passed is now."""
        if self._libc is not None and self._descriptor >= 0:
            nanoseconds = max(1, int(at * 1e9))
            spec = _Spec(0, 0, nanoseconds // 1_000_000_000, nanoseconds % 1_000_000_000)
            self._libc.timerfd_settime(self._descriptor, _ABSOLUTE, ctypes.byref(spec), None)
        else:
            self._handle = self._loop.call_at(at, self._ring)

    def close(self) -> None:
        """Ring no more."""
        if self._handle is not None:
            self._handle.cancel()
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, 8)
        self._ring()
