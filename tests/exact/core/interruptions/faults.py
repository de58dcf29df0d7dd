"""Faults on demand: the n-th allocation of NumPy fails, Ctrl-C comes at some moment; see `tests/lines.py` as well."""

import ctypes
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any

import numpy as np
from numba import carray, cfunc, njit, types

from tests.lines import Count

_NEVER = 2**62

# -- allocations ------------------------------------------------------------------------------------

# What NumPy asks for memory, compiled: it is called without the interpreter's lock as well, and at its very end.
_libc = ctypes.CDLL(None)
_c_malloc, _c_calloc, _c_realloc, _c_free = _libc.malloc, _libc.calloc, _libc.realloc, _libc.free
_c_malloc.argtypes, _c_malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
_c_calloc.argtypes, _c_calloc.restype = [ctypes.c_size_t, ctypes.c_size_t], ctypes.c_void_p
_c_realloc.argtypes, _c_realloc.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_void_p
_c_free.argtypes, _c_free.restype = [ctypes.c_void_p], None

_TOO_MUCH = 2**62  # bytes that no machine has
_LEFT, _LEAST, _SEEN = 0, 1, 2  # slots of the control block
_control = np.array([_NEVER, 0, 0], np.int64)


@njit
def _fails(context: Any, size: Any) -> Any:
    """Count an allocation; whether it is the one that fails."""
    control = carray(context, 3, np.int64)
    if size < control[1]:
        return False
    control[2] += 1
    control[0] -= 1
    return control[0] == -1


@cfunc(types.voidptr(types.voidptr, types.size_t))
def _malloc(context: Any, size: Any) -> Any:
    if _fails(context, size):
        return _c_malloc(np.uint64(_TOO_MUCH))
    return _c_malloc(max(size, np.uint64(1)))


@cfunc(types.voidptr(types.voidptr, types.size_t, types.size_t))
def _calloc(context: Any, n: Any, size: Any) -> Any:
    if _fails(context, n * size):
        return _c_malloc(np.uint64(_TOO_MUCH))
    return _c_calloc(max(n, np.uint64(1)), max(size, np.uint64(1)))


@cfunc(types.voidptr(types.voidptr, types.voidptr, types.size_t))
def _realloc(context: Any, old: Any, size: Any) -> Any:
    if _fails(context, size):
        return _c_malloc(np.uint64(_TOO_MUCH))
    return _c_realloc(old, max(size, np.uint64(1)))


@cfunc(types.void(types.voidptr, types.voidptr, types.size_t))
def _free(context: Any, old: Any, size: Any) -> None:
    _c_free(old)


class _Handler(ctypes.Structure):
    """NumPy's PyDataMem_Handler."""

    _fields_ = [
        ("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p), ("calloc", ctypes.c_void_p), ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    ]  # fmt: skip


_handler = _Handler(
    b"failing", 1, _control.ctypes.data, _malloc.address, _calloc.address, _realloc.address, _free.address
)
_SET_HANDLER = 304  # place of PyDataMem_SetHandler in NumPy's table of functions


def _api(place: int) -> int:
    internals = import_module("numpy._core" if hasattr(np, "_core") else "numpy.core")
    capsule = internals._multiarray_umath._ARRAY_API
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = ctypes.cast(pointer(capsule, None), ctypes.POINTER(ctypes.c_void_p))
    return int(table[place] or 0)


def _capsule() -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(_handler), _NAME, None)


_NAME = ctypes.c_char_p(b"mem_handler")  # a capsule does not copy its name
_set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(_api(_SET_HANDLER))


@contextmanager
def failing_allocation(which: int | None, least: int = 0) -> Iterator[Count]:
    """Let an allocation of NumPy, counted from 0 among those of `least` bytes or more, fail; None: count them only."""
    count = Count()
    old = _set_handler(_capsule())
    _control[_LEAST], _control[_SEEN] = least, 0
    # Writing to the control block asks for memory, too: this comes last.
    _control[_LEFT] = _NEVER if which is None else which
    start = int(_control[_SEEN])
    try:
        yield count
    finally:
        seen, _control[_LEFT] = int(_control[_SEEN]), _NEVER
        _set_handler(old)
        count.n = seen - start


# -- Ctrl-C -----------------------------------------------------------------------------------------


@contextmanager
def ctrl_c_after(seconds: float) -> Iterator[None]:
    """Press Ctrl-C after some time, whatever the main thread is at."""

    def press(signum: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGALRM, press)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
