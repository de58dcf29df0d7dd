"""Exceptions on demand: the n-th line of some files raises."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import oubli.core
from oubli.core.concurrency import locks

CORE = str(Path(oubli.core.__file__).parent)
# No exception comes between the lines by which a thread enters and leaves: see the top of that file.
LOCKS = locks.__file__


class Count:
    """How many chances for a fault there were."""

    n = 0


@contextmanager
def failing_line(
    which: int | None, error: type[BaseException] = KeyboardInterrupt, below: str = CORE
) -> Iterator[Count]:
    """Raise at a line of the files whose paths begin so, counted from 0; None: count lines only. In this thread."""
    count = Count()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(below) or frame.f_code.co_filename == LOCKS:
            return None
        if event == "line":
            if count.n == which:
                sys.settrace(None)
                raise error
            count.n += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)
