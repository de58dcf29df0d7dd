"""Threads for long work: pieces of it run side by side, and the caller waits for all of them.

Kernels release the GIL, so pieces that spend their time in kernels use as many cores as there are threads. The caller
is one of them. The others belong to the process, are started when they are first needed, and sleep when there is
nothing to do.

Which thread runs which piece is not determined. A piece therefore writes only to memory that no other piece reads or
writes, and results are combined in the order of the pieces.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from oubli.core.errors import InputError

Result = TypeVar("Result")
Other = TypeVar("Other")

_default = [1]  # threads where nothing is said
_SHORTEST = 0.0015  # seconds of work that other threads are woken up for
_here = threading.local()
_idle: list["_Helper"] = []  # threads of this process that sleep; taken and put back at the end


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
    """Whether work of so many seconds, roughly, is worth sharing: a shorter one takes the caller alone as long."""
    return seconds >= getattr(_here, "shortest", _SHORTEST)


@contextmanager
def sharing_all() -> Iterator[None]:
    """Share the shortest work of this thread, too: to have seen all that is there for it."""
    before, _here.shortest = getattr(_here, "shortest", _SHORTEST), 0.0
    try:
        yield
    finally:
        _here.shortest = before


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
    job = _Job(pieces)
    try:
        try:
            _begin_helpers(job, n_threads - 1)
            job.work()
        except BaseException as error:
            job.errors.setdefault(-1, error)
        job.end()
    except BaseException as error:
        # Between two lines: no one waits for the helpers yet.
        job.errors.setdefault(-1, error)
        job.end()
    if job.errors:
        raise job.errors[min(job.errors)]
    return [job.results[number] for number in range(len(pieces))]


def lead(work: Callable[[], Result], help_out: Callable[[], object], dismiss: Callable[[], object], n: int) -> Result:
    """Run `work` here while up to n - 1 other threads run `help_out`, which ends once `dismiss` was called.

    For kernels that share work among themselves, see `core/jit/crew.py`. Helpers may come late or never. None of them
    is in `help_out` when this function is left, KeyboardInterrupt included.

    Raises
    ------
    BaseException
        What `work` or a helper raised.
    """
    job = _Job([help_out] * (n - 1))
    try:
        _begin_helpers(job, n - 1)
        return work()
    except BaseException as error:
        job.errors.setdefault(-1, error)
        raise
    finally:
        while not _has_ended(job, dismiss):
            pass
        if job.errors and -1 not in job.errors:
            raise job.errors[min(job.errors)]


def beside(work: Callable[[], Result], aside: Callable[[], Other], n_threads: int) -> tuple[Result, Other]:
    """Return what `work` and `aside` return: `work` is done here, `aside` in another thread if there may be one.

    For an `aside` that needs the interpreter and a `work` that spends its time in kernels: that one may take all of
    `n_threads` by itself.

    Raises
    ------
    BaseException
        What either of them raised.
    """
    found: list[Other] = []
    turn = iter((None,))  # for one of the threads

    def once() -> None:
        found.extend(aside() for _ in turn)

    if n_threads > 1:
        done = lead(work, once, lambda: None, 2)
        once()  # if no thread has come in time
    else:
        once()
        done = work()
    return done, found[0]


def _has_ended(job: "_Job", dismiss: Callable[[], object]) -> bool:
    try:
        dismiss()
        job.end()
    except BaseException as error:
        job.errors.setdefault(-2, error)
        return False
    return True


def _begin_helpers(job: "_Job", n: int) -> None:
    """Wake up so many threads for a job."""
    with suppress(RuntimeError):  # the system has no more threads: those that there are do it
        for _ in range(n):
            _take_helper().begin(job)


def _take_helper() -> "_Helper":
    """A thread that sleeps, or a new one."""
    try:
        return _idle.pop()
    except IndexError:
        return _Helper()


class _Job:
    """Pieces of work, and what has become of them.

    What threads tell each other are single operations on built-in containers, so that an exception that comes between
    any two of them, as KeyboardInterrupt may, leaves no thread waiting for what never happens.
    """

    def __init__(self, pieces: Sequence[Callable[[], Any]]) -> None:
        self.pieces = pieces
        self.turns: Iterator[int] = iter(range(len(pieces)))  # `next` gives each number to one thread
        self.results: dict[int, Any] = {}
        self.errors: dict[int, BaseException] = {}
        self._is_over = False
        self._came: list[None] = []  # one entry a helper
        self._left: list[None] = []
        self._bell = threading.Lock()  # released when a helper leaves
        self._bell.acquire()

    def work(self) -> None:
        """Take one piece after the other."""
        try:
            for number in self.turns:
                if self.errors:
                    return
                try:
                    self.results[number] = self.pieces[number]()
                except BaseException as error:
                    self.errors[number] = error
                    return
        except BaseException as error:
            self.errors.setdefault(-1, error)

    def help(self) -> None:
        """Work, in another thread; a helper that comes too late does nothing."""
        self._came.append(None)
        try:
            if not self._is_over:
                self.work()
        finally:
            self._left.append(None)
            with suppress(RuntimeError):  # it is released already
                self._bell.release()

    def end(self) -> None:
        """Wait until no helper works any more; Ctrl-C lets them end their pieces and begin no others."""
        while True:
            try:
                # In this order: a helper that comes later does nothing.
                self._is_over = True
                while len(self._left) < len(self._came):
                    self._bell.acquire()
                return
            except BaseException as error:
                self.errors.setdefault(-1, error)


class _Helper:
    """A thread that helps with one job after the other and sleeps between them."""

    def __init__(self) -> None:
        self._job: _Job | None = None
        self._has_job = threading.Lock()
        self._has_job.acquire()
        threading.Thread(target=self._serve, name="oubli-piece", daemon=True).start()

    def begin(self, job: _Job) -> None:
        """Wake up for a job."""
        self._job = job
        self._has_job.release()

    def _serve(self) -> None:
        while True:
            self._has_job.acquire()
            job, self._job = self._job, None
            if job is not None:
                job.help()
            del job  # what it holds is not kept alive
            _idle.append(self)


# Those of the parent do not exist in a child process.
os.register_at_fork(after_in_child=_idle.clear)
