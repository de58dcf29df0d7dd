"""Threads for long work: pieces of it run side by side, and the caller waits for all of them.

Kernels release the GIL, so pieces that spend their time in kernels use as many cores as there are threads. The caller
is one of them. The others belong to the process, are started when they are first needed, and sleep when there is
nothing to do.

Which thread runs which piece is not determined. A piece therefore writes only to memory that no other piece reads or
writes, and what is made of the results is made in the order of the pieces.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from oubli.core.errors import InputError

Result = TypeVar("Result")

_default = [1]  # threads where nothing is said
_shortest = [0.005]  # seconds of work that other threads are woken up for


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_of(n_jobs: int | None) -> int:
    """Return how many threads `n_jobs` asks for: None is 1, -1 all usable cores, -2 all but one, and so on.

    A program that has more to say than its models, such as a server, sets what None is (`set_default`).

    Raises
    ------
    InputError
        When it is neither None nor an integer, or is 0.
    """
    if n_jobs is None:
        return _default[0]
    if isinstance(n_jobs, bool) or not hasattr(n_jobs, "__index__") or int(n_jobs) == 0:
        raise InputError(f"n_jobs={n_jobs!r} must be None, a positive number of threads, or -1 for all cores")
    number = int(n_jobs)
    return min(number, usable_cores()) if number > 0 else max(1, usable_cores() + 1 + number)


def set_default(n_threads: int) -> None:
    """Set how many threads the models of this process take for long work that say nothing of it (None)."""
    _default[0] = n_threads


def is_long(seconds: float) -> bool:
    """Whether work of so many seconds, roughly, had better be shared: below, the caller has done it alone as soon."""
    return seconds >= _shortest[0]


@contextmanager
def sharing_all() -> Iterator[None]:
    """Share the shortest work, too: to have seen all that is there for it."""
    before, _shortest[0] = _shortest[0], 0.0
    try:
        yield
    finally:
        _shortest[0] = before


def run(pieces: Sequence[Callable[[], Result]], n_threads: int) -> list[Result]:
    """Run pieces of work on up to `n_threads` threads, this one included; return their results in their order.

    With one thread, or one piece, they run here one after the other, without a hand-over.

    When a piece raises, no further one is begun. Those that have been begun come to their end before anything leaves
    this function, KeyboardInterrupt included: no piece runs on after it.

    Raises
    ------
    BaseException
        What the first of the pieces raised, in their order.
    """
    n_threads = min(n_threads, len(pieces))
    if n_threads <= 1:
        return [piece() for piece in pieces]
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}
    turns = iter(range(len(pieces)))
    helpers: list[Future[None]] = []
    try:
        try:
            helpers.extend(_pool[0].submit(_work, pieces, turns, results, errors) for _ in range(n_threads - 1))
            _work(pieces, turns, results, errors)
        except BaseException as error:
            errors.setdefault(-1, error)
        _await(helpers, errors)
    except BaseException as error:
        # Between two lines: nobody has waited yet.
        errors.setdefault(-1, error)
        _await(helpers, errors)
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(len(pieces))]


def _work(
    pieces: Sequence[Callable[[], Result]],
    turns: Iterator[int],
    results: dict[int, Result],
    errors: dict[int, BaseException],
) -> None:
    """Take one piece after the other; `next` of a range's iterator gives each number to one thread."""
    for number in turns:
        if errors:
            return
        try:
            results[number] = pieces[number]()
        except BaseException as error:
            errors[number] = error
            return


def _await(helpers: list[Future[None]], errors: dict[int, BaseException]) -> None:
    """Wait until no helper works any more; Ctrl-C lets them end their pieces and begin no others."""
    for helper in helpers:
        helper.cancel()
    while True:
        try:
            wait(helpers)
            return
        except BaseException as error:
            errors.setdefault(-1, error)


def _new_pool() -> ThreadPoolExecutor:
    """Threads that are started when they are needed."""
    return ThreadPoolExecutor(max(64, usable_cores()), thread_name_prefix="oubli-piece")


_pool = [_new_pool()]
# A child process begins without threads: those of its parent do not exist there.
os.register_at_fork(after_in_child=lambda: _pool.__setitem__(0, _new_pool()))
