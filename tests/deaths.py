"""What is kept of a process that dies by a signal, so that its death can be explained. See `recorder` for workers."""

import os
import signal
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "TEST_RECORDS"  # names the variable that tells workers where to write
# No one sends these on purpose.
FATAL = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL})


def describe(status: int | None) -> str:
    """Return a wait status in words; -9, as `subprocess` has it, is SIGKILL."""
    if status is None:
        return "has not ended"
    if status >= 0:
        return f"ended with exit code {status}"
    name = signal.Signals(-status).name if -status in {one.value for one in signal.Signals} else f"signal {-status}"
    hint = ": somebody sent it, or the kernel ran out of memory" if -status == signal.SIGKILL else ""
    return f"was killed by {name} (wait status {status}){hint}"


def folder() -> Path:
    """Where records are kept."""
    return Path(os.environ.get(FOLDER) or tempfile.gettempdir())
