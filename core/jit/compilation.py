"""Other processes that compile the kernels of some work, and keep them in the cache.

    caller      begins a `Compilation`, and waits for all of it or for the kernels of the first steps
    lister      does the work with interpreted kernels, which takes seconds, and lists which kernels it calls with which
                types; hands each of them to a compiler, those of the first steps first
    compilers   compile what they are given

A kernel is given to one compiler, so none is compiled twice. Where there is one core or little memory, the lister does
the work with compiled kernels instead, and there are no others.

The work is a function that is named as ``module:function``; it takes arguments that JSON has, and a function to call
with the number of steps that are done.
"""

import functools
import inspect
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from numba import config, typeof

from oubli.core.concurrency.threads import usable_cores
from oubli.core.jit import policy

_MODULE = "oubli.core.jit.compilation"
_MEMORY = 400 * 2**20  # bytes that a process takes while it compiles
_LONGEST = 1800  # seconds
_BEAT = 1.0  # seconds between two reports
_EVERY = 10.0  # seconds between two lines

Report = Callable[[int, int], object]
"""Called with how many kernels are compiled and how many there are; 0: they are not all listed."""


class Compilation:
    """Processes that compile, from their beginning to their end; any thread may wait for them.

    Parameters
    ----------
    work : module and name of the function that calls the kernels.
    calls : the arguments of each call.
    niceness : of the processes.

    Attributes
    ----------
    n_steps : how many steps have all their kernels, when there is one call.
    n_done, n_kernels : what is compiled, and what there is; 0: not all are listed.

    Raises
    ------
    OSError
        When no process can be started.
    """

    def __init__(self, work: str, calls: Sequence[Sequence[str]], niceness: int = 0) -> None:
        self.n_steps = self.n_done = self.n_kernels = 0
        self._exit_code: int | None = None
        self._changed = threading.Condition()
        n_compilers = _affordable()
        arguments = [str(niceness), str(n_compilers), work, json.dumps(calls)]
        self._process = _start(arguments, stdin=subprocess.DEVNULL, interpreted=n_compilers > 1)
        threading.Thread(target=self._follow, name="oubli-compilation", daemon=True).start()

    def wait(self, n_steps: int | None = None, report: Report | None = None) -> int:
        """Wait until the first steps have their kernels, or all; return the exit code, 0 while there is none."""
        while True:
            with self._changed:
                if self.is_over or (n_steps is not None and self.n_steps >= n_steps):
                    return self._exit_code or 0
                self._changed.wait(_BEAT)
            if report is not None:
                report(self.n_done, self.n_kernels)

    @property
    def is_over(self) -> bool:
        """Whether the processes have ended."""
        return self._exit_code is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # the others end when nothing reads their answers

    def _follow(self) -> None:
        """Read the lines of the lister."""
        too_long = threading.Timer(_LONGEST, self._process.kill)
        too_long.daemon = True
        too_long.start()
        with self._process:
            for line in self._process.stdout or ():
                with self._changed, suppress(ValueError):
                    self.n_steps, self.n_done, self.n_kernels = map(int, line.split())
                    self._changed.notify_all()
        too_long.cancel()
        with self._changed:
            self._exit_code = self._process.returncode
            self._changed.notify_all()


def _start(arguments: Sequence[str], *, stdin: int, interpreted: bool = False) -> "subprocess.Popen[str]":
    """Start a process of this module."""
    package = import_module(_MODULE.partition(".")[0])
    paths = [str(Path(package.__path__[0]).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONWARNINGS": "ignore",  # interpreted integers overflow aloud
        "NUMBA_DISABLE_JIT": str(int(interpreted)),
    }
    return subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", _MODULE, *arguments],
        env=environment,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _affordable() -> int:
    """How many processes may compile at a time: as many as there are cores, and as memory has room for."""
    free = []
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free.append(1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")))
    with suppress(OSError, ValueError):  # a container's limit; "max" where there is none
        group = Path("/sys/fs/cgroup")
        free.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return max(1, min([usable_cores(), *(n_bytes // _MEMORY for n_bytes in free)]))


class Lines:
    """Progress where no bar can be drawn: a line when a stage begins, and one every ten seconds while it is reported.

    Parameters
    ----------
    write : takes a line.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._stage: str | None = None
        self._next = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take in how far a stage is; `total` 0: the total is not known."""
        now, is_new = time.monotonic(), stage != self._stage
        if not is_new and now < self._next:
            return
        self._stage, self._next = stage, now + _EVERY
        count = f": {done:,} of {total:,}" if total else f": {done:,}"
        self._write(f"{stage} ..." if is_new else stage + count)


# -- the lister ---------------------------------------------------------------------------------------


def note_calls(note: Callable[[str, tuple[Any, ...]], object]) -> None:
    """Interpret kernels that are defined from now on, and tell of each that is called from Python.

    Parameters
    ----------
    note : called with the kernel, as ``module:function``, and the types of its arguments.
    """
    here = threading.local()

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)
        name = f"{function.__module__}:{function.__name__}"

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            if named:
                arguments = signature.bind(*arguments, **named).args
            if getattr(here, "is_inside", False):  # a kernel that another one calls is compiled with it
                return function(*arguments)
            note(name, tuple(map(typeof, arguments)))
            here.is_inside = True
            try:
                return function(*arguments)
            finally:
                here.is_inside = False

        return call

    policy.kernel = decorate


class _Lister:
    """Hands kernels to compilers, and tells the caller how far they are."""

    def __init__(self) -> None:
        self.has_failed = False
        self._step = 0
        self._is_complete = False
        self._n_done = 0
        self._listed: set[tuple[str, tuple[Any, ...]]] = set()
        self._open: Counter[int] = Counter()  # kernels that are not compiled, by step
        self._waiting: queue.PriorityQueue[tuple[int, int, int, str]] = queue.PriorityQueue()
        self._lock = threading.Lock()

    def note(self, name: str, types: tuple[Any, ...]) -> None:
        """Take in a kernel that the work calls."""
        if (name, types) not in self._listed:
            self._listed.add((name, types))
            line = f"{name} {policy.text_of(types)}"
            with self._lock:
                self._open[self._step] += 1
            # Of one step, those with the most arguments first: they are the largest.
            self._waiting.put((self._step, -len(line), len(self._listed), line))

    def begin_step(self, n_done: int) -> None:
        """Note that steps of the work are done."""
        self._step = n_done
        self._tell()

    def complete(self, n_compilers: int) -> None:
        """Note that all is listed; the compilers end when there is nothing left."""
        self._is_complete = True
        self._tell()
        for _ in range(n_compilers):
            self._waiting.put((sys.maxsize, 0, 0, ""))

    def feed(self) -> None:
        """Give kernels to one compiler until there are none left."""
        try:
            with _start([], stdin=subprocess.PIPE) as compiler:
                while True:
                    step, *_, line = self._waiting.get()
                    if not line:
                        return
                    _ask(compiler, line)
                    with self._lock:
                        self._open[step] -= 1
                        self._n_done += 1
                    self._tell()
        except OSError:  # it was killed, or the caller was: a caller that waits compiles the rest by itself
            self.has_failed = True

    def _tell(self) -> None:
        with self._lock:
            ready = next(step for step in itertools.count() if self._open[step] or step >= self._step)
            _tell(ready, self._n_done, len(self._listed) if self._is_complete else 0)


def _ask(compiler: "subprocess.Popen[str]", line: str) -> None:
    """Have a kernel compiled; raises OSError when the process has ended."""
    if compiler.stdin is not None and compiler.stdout is not None:
        compiler.stdin.write(f"{line}\n")
        compiler.stdin.flush()
        if not compiler.stdout.readline():
            raise BrokenPipeError


def _tell(*numbers: int) -> None:
    """Tell the caller how far this is; raises OSError when it has ended."""
    sys.stdout.write(" ".join(map(str, numbers)) + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> None:
    """Be a lister, or a compiler when there are no arguments."""
    if not arguments:
        _compile()
        return
    niceness, n_compilers, work, calls = int(arguments[0]), int(arguments[1]), arguments[2], json.loads(arguments[3])
    if hasattr(os, "nice"):
        os.nice(niceness)
    if not config.DISABLE_JIT:
        _do(work, calls, lambda n_done: _tell(n_done, n_done, 0))
        return
    lister = _Lister()
    # When the work raises, this ends with an exit code: daemons do not keep it.
    threads = [threading.Thread(target=lister.feed, daemon=True) for _ in range(n_compilers)]
    for thread in threads:
        thread.start()
    note_calls(lister.note)
    _do(work, calls, lister.begin_step)
    lister.complete(n_compilers)
    for thread in threads:
        thread.join()
    sys.exit(int(lister.has_failed))


def _do(work: str, calls: Sequence[Sequence[str]], progress: Callable[[int], object]) -> None:
    module, _, name = work.partition(":")
    for call in calls:
        getattr(import_module(module), name)(*call, progress)


def _compile() -> None:
    """Compile one kernel for each line."""
    for line in sys.stdin:
        kernel, types = line.split()
        module, _, name = kernel.partition(":")
        with suppress(Exception):  # the call of the kernel raises the same error
            getattr(import_module(module), name).compile(policy.types_of(types))
        policy.claims.give_all_back()
        sys.stdout.write("\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
