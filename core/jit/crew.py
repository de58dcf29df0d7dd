"""Threads that share work inside kernels, without the interpreter: one leads, the others help.

    leader     announce(crew, what, n)
               while (piece := take(crew)) >= 0: do it; end_piece(crew)
               await_pieces(crew)
    helpers    while (piece := wait_for_piece(crew)) >= 0: do what crew[WHAT] says; end_piece(crew)

Handing work over by `oubli.core.concurrency.threads` takes a call of a kernel in each thread, which can take longer
than the work.
Here the threads stay in their kernels and sleep on a condition variable. The leader does what no helper takes: helpers
come when the system lets them, or never. No thread spins.

A crew is int64[CREW_SIZE]: a mutex, two condition variables and what they guard. What the announced work needs to know
is written to crew[ARGUMENTS:] before it is announced.

A word that one thread sets and a kernel in another one looks at.
"""

import os
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from oubli.core.array_types import Ints
from oubli.core.jit import aligned
from oubli.core.jit.policy import inner, kernel

IS_SUPPORTED = os.name == "posix" and not numba.config.DISABLE_JIT

_LINE = 64  # bytes; no mutex or condition variable is longer
_ADDRESS, _N_THREADS, _NEXT, _N_PIECES, _N_DONE, _IS_DISMISSED, _N_WAITING, WHAT, ARGUMENTS = range(24, 33)
CREW_SIZE = 40


@inner
def _none(*_addresses):
    return 0


def _call(builder: Any, name: str, arguments: Any) -> Any:
    function_type = ir.FunctionType(ir.IntType(32), [ir.IntType(64)] * len(arguments))
    return builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), arguments)


def _of_one(name: str) -> Any:
    """A function of the C library that takes an address."""

    def call(_context: Any, a: Any) -> tuple[Signature, Any]:
        return types.intc(a), lambda _context, builder, _signature, arguments: _call(builder, name, arguments)

    return intrinsic(call) if IS_SUPPORTED else _none


def _of_two(name: str) -> Any:
    """A function of the C library that takes two addresses."""

    def call(_context: Any, a: Any, b: Any) -> tuple[Signature, Any]:
        return types.intc(a, b), lambda _context, builder, _signature, arguments: _call(builder, name, arguments)

    return intrinsic(call) if IS_SUPPORTED else _none


_init_mutex = _of_two("pthread_mutex_init")
_init_condition = _of_two("pthread_cond_init")
_lock = _of_one("pthread_mutex_lock")
_unlock = _of_one("pthread_mutex_unlock")
_wait = _of_two("pthread_cond_wait")
_signal = _of_one("pthread_cond_signal")
_broadcast = _of_one("pthread_cond_broadcast")
_NULL = np.int64(0)


@kernel
def _prepare(crew):
    address = crew[_ADDRESS]
    _init_mutex(address, _NULL)
    _init_condition(address + _LINE, _NULL)
    _init_condition(address + 2 * _LINE, _NULL)


def make_crew(n_threads: int) -> Ints:
    """Make a crew of so many threads; of one where they cannot be had."""
    crew: Ints = aligned.zeros(CREW_SIZE, np.int64)
    crew[_ADDRESS] = crew.ctypes.data
    crew[_N_THREADS] = n_threads if IS_SUPPORTED else 1
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
    """Start again with a crew that was dismissed; no helper is in a kernel."""
    crew[_IS_DISMISSED] = crew[_NEXT] = crew[_N_PIECES] = crew[_N_DONE] = 0


_BYTES = 8


def _is_set(_context: Any, signal: Any) -> tuple[Signature, Any]:
    """Whether the only number of int64[1] `signal` is not 0 by now.

    An atomic load: of an ordinary one the compiler may think that it gives the same each time.
    """

    def generate(context: Any, builder: Any, signature: Signature, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        number = builder.load_atomic(array.data, "monotonic", _BYTES)
        return cgutils.is_not_null(builder, number)

    return types.boolean(signal), generate


def _is_set_interpreted(signal: Any) -> bool:
    return bool(signal[0])


is_set = _is_set_interpreted if numba.config.DISABLE_JIT else intrinsic(_is_set)
