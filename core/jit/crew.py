"""Threads that share work inside kernels, without the interpreter: one leads, the others help.

    leader     announce(crew, what, n)
               while (piece := take(crew)) >= 0: do it; end_piece(crew)
               await_pieces(crew)
    helpers    while (piece := wait_for_piece(crew)) >= 0: do what crew[WHAT] says; end_piece(crew)

Handing work over by `core/threads.py` takes a call of a kernel in each thread: some hundred microseconds. Here the
threads stay in their kernels and sleep on a condition variable, which takes some ten. The leader does what no helper
takes: helpers come when the system lets them, or never. Nobody spins.

A crew is int64[CREW_SIZE]: a mutex, two condition variables and what they guard. What the announced work needs to know
is written to crew[ARGUMENTS:] before it is announced.
"""

import os

import numba
import numpy as np
from numba import types

from oubli.core.array_types import Ints
from oubli.core.jit import aligned
from oubli.core.jit.policy import inner, kernel

IS_SUPPORTED = os.name == "posix" and not numba.config.DISABLE_JIT

_LINE = 64  # bytes; no mutex or condition variable is longer
_ADDRESS, _N_THREADS, _NEXT, _N_PIECES, _N_DONE, _IS_DISMISSED, _N_WAITING, WHAT, ARGUMENTS = range(24, 33)
CREW_SIZE = 40


def _c_function(name, n_arguments):
    """A function of the C library, whose arguments are addresses."""
    if IS_SUPPORTED:
        return types.ExternalFunction(name, types.intc(*[types.intp] * n_arguments))
    return _none


@inner
def _none(*_addresses):
    return 0


_init_mutex = _c_function("pthread_mutex_init", 2)
_init_condition = _c_function("pthread_cond_init", 2)
_lock = _c_function("pthread_mutex_lock", 1)
_unlock = _c_function("pthread_mutex_unlock", 1)
_wait = _c_function("pthread_cond_wait", 2)
_signal = _c_function("pthread_cond_signal", 1)
_broadcast = _c_function("pthread_cond_broadcast", 1)


@kernel
def _prepare(crew):
    address = crew[_ADDRESS]
    _init_mutex(address, 0)
    _init_condition(address + _LINE, 0)
    _init_condition(address + 2 * _LINE, 0)


def make_crew(n_threads: int) -> Ints:
    """Make a crew of so many threads; of one where they cannot be had."""
    crew: Ints = aligned.zeros(CREW_SIZE, np.int64)
    crew[_ADDRESS] = crew.ctypes.data
    crew[_N_THREADS] = n_threads if IS_SUPPORTED else 1
    if crew[_N_THREADS] > 1:
        _prepare(crew)
    return crew


def size_of(crew: Ints) -> int:
    """Threads of a crew, the leader included."""
    return int(crew[_N_THREADS])


@inner
def announce(crew, what, n_pieces):
    """Announce work in pieces 0 to n_pieces - 1; what was announced before is done."""
    if crew[_N_THREADS] > 1:
        _lock(crew[_ADDRESS])
    crew[WHAT] = what
    crew[_NEXT] = 0
    crew[_N_DONE] = 0
    crew[_N_PIECES] = n_pieces
    if crew[_N_THREADS] > 1:
        if crew[_N_WAITING] > 0:
            _broadcast(crew[_ADDRESS] + _LINE)
        _unlock(crew[_ADDRESS])


@inner
def take(crew):
    """Take a piece; -1: none is left."""
    if crew[_N_THREADS] > 1:
        _lock(crew[_ADDRESS])
    piece = crew[_NEXT]
    if piece < crew[_N_PIECES]:
        crew[_NEXT] += 1
    else:
        piece = np.int64(-1)
    if crew[_N_THREADS] > 1:
        _unlock(crew[_ADDRESS])
    return piece


@inner
def end_piece(crew):
    """Say that a piece is done."""
    if crew[_N_THREADS] > 1:
        _lock(crew[_ADDRESS])
    crew[_N_DONE] += 1
    if crew[_N_THREADS] > 1:
        if crew[_N_DONE] == crew[_N_PIECES]:
            _signal(crew[_ADDRESS] + 2 * _LINE)
        _unlock(crew[_ADDRESS])


@inner
def await_pieces(crew):
    """Sleep until all pieces are done."""
    if crew[_N_THREADS] > 1:
        address = crew[_ADDRESS]
        _lock(address)
        while crew[_N_DONE] < crew[_N_PIECES]:
            _wait(address + 2 * _LINE, address)
        _unlock(address)


@inner
def wait_for_piece(crew):
    """Sleep until there is a piece to take; -1: the crew is dismissed. For crews of two or more."""
    address = crew[_ADDRESS]
    _lock(address)
    while crew[_IS_DISMISSED] == 0 and crew[_NEXT] >= crew[_N_PIECES]:
        crew[_N_WAITING] += 1
        _wait(address + _LINE, address)
        crew[_N_WAITING] -= 1
    piece = np.int64(-1)
    if crew[_IS_DISMISSED] == 0:
        piece = crew[_NEXT]
        crew[_NEXT] += 1
    _unlock(address)
    return piece


@kernel
def dismiss(crew):
    """Send the helpers home."""
    if crew[_N_THREADS] > 1:
        _lock(crew[_ADDRESS])
    crew[_IS_DISMISSED] = 1
    if crew[_N_THREADS] > 1:
        _broadcast(crew[_ADDRESS] + _LINE)
        _unlock(crew[_ADDRESS])


def call_in(crew: Ints) -> None:
    """Begin anew with a crew that was dismissed; no helper is in a kernel."""
    crew[_IS_DISMISSED] = crew[_NEXT] = crew[_N_PIECES] = crew[_N_DONE] = 0
