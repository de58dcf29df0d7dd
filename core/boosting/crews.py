"""Crews of threads that boosting's kernels share work by; see `core/jit/crew.py`."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from oubli.core import threads
from oubli.core.array_types import Ints
from oubli.core.boosting.rows import is_without_grain
from oubli.core.jit.crew import call_in, dismiss, size_of

Result = TypeVar("Result")


def lead(crew: Ints, work: Callable[[], Result], help_out: Callable[[], object]) -> Result:
    """Run kernels that share work by a crew, `work` here and `help_out` in other threads."""
    call_in(crew)
    done = threads.lead(work, help_out, partial(dismiss, crew), size_of(crew))
    if is_without_grain():
        help_out()  # returns at once: a warm-up compiles it even when no thread came in time
    return done
