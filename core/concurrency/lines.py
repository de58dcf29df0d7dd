"""Progress of long work in lines of text, where no bar can be drawn."""

import time
from collections.abc import Callable

_EVERY = 10.0  # seconds


class Lines:
    """Writes a line when a stage begins, and one every ten seconds while it is reported.

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
