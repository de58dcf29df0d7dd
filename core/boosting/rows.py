"""The blocks of rows that threads share: each thread sums derivatives over a block of its own.

    samples     [ block 0 | block 1 | block 2 ]         neighbours, about equally many
    histograms    h_0       h_1       h_2               of the same node: h_0 + h_1 + h_2 is the node's

Sums are integers, so their sum does not depend on how the samples are cut, and neither does any decision. Threads get
work once a level of a tree. Below a grain that costs more than it gains, and the caller works alone.

A caller and its helpers form a crew, see `core/jit/crew.py`.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from oubli.core.array_types import Ints
from oubli.core.concurrency import threads
from oubli.core.jit.crew import call_in, dismiss, size_of

_GRAIN = 2**16  # cells to be summed a block: some 50 microseconds of work
_here = threading.local()


@contextmanager
def without_grain() -> Iterator[None]:
    """Cut however little work there is, in this thread: for the warm-up and for tests."""
    before = is_without_grain()
    _here.is_without_grain = True
    try:
        yield
    finally:
        _here.is_without_grain = before


def is_without_grain() -> bool:
    """Whether work is cut however little there is."""
    return getattr(_here, "is_without_grain", False)


def n_blocks(n_rows: int, cells_a_row: int, n_threads: int) -> int:
    """Into how many blocks to cut samples that each take about so long as summing some cells."""
    if n_threads <= 1:
        return 1
    if is_without_grain():
        return max(1, min(n_threads, n_rows))
    return max(1, min(n_threads, n_rows * cells_a_row // _GRAIN))


def most_alone(cells_a_row: int, n_threads: int) -> int:
    """How many rows are too few to be cut in two."""
    if n_threads > 1 and is_without_grain():
        return 1
    return max(1, (2 * _GRAIN - 1) // cells_a_row)


def cut(n_rows: int, n: int) -> list[int]:
    """Where n blocks of rows begin, and where the last one ends."""
    return [i * n_rows // n for i in range(n + 1)]


Result = TypeVar("Result")


def lead(crew: Ints, work: Callable[[], Result], help_out: Callable[[], object]) -> Result:
    """Run kernels that share work by a crew, `work` here and `help_out` in other threads."""
    call_in(crew)
    done = threads.lead(work, help_out, partial(dismiss, crew), size_of(crew))
    if is_without_grain():
        help_out()  # returns at once: a warm-up compiles it even when no thread came in time
    return done
