"""What is kept of a process that dies by a signal, so that its death can be explained: wait status, stack, core file.

In CI core files are on, and are read with gdb where it is installed. See `recorder` for the workers of tests.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "TEST_RECORDS"  # names the variable that tells workers where to write
_GDB_SECONDS = 120
# No one sends these on purpose.
FATAL = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL})


def in_ci() -> bool:
    return bool(os.environ.get("CI"))


def allow_core_files() -> None:
    """Let this process and those that it starts leave core files, as large as may be."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


def describe(status: int | None) -> str:
    """Return a wait status in words; -9, as `subprocess` has it, is SIGKILL."""
    if status is None:
        return "has not ended"
    if status >= 0:
        return f"ended with exit code {status}"
    name = signal.Signals(-status).name if -status in {one.value for one in signal.Signals} else f"signal {-status}"
    hint = ": somebody sent it, or the kernel ran out of memory" if -status == signal.SIGKILL else ""
    return f"was killed by {name} (wait status {status}){hint}"


def core_stack(place: Path) -> str:
    """Return the stacks in the newest core file of a place, and move it away; nothing when there is none."""
    cores = [path for path in place.glob("core*") if path.is_file() and _is_core(path)]
    if not cores:
        return ""
    core = max(cores, key=lambda path: path.stat().st_mtime)
    kept = folder() / f"{core.name}-{os.getpid()}-{core.stat().st_mtime_ns}"
    shutil.move(core, kept)
    told = f"core file: {kept}\n"
    if shutil.which("gdb") is None:
        return told + "gdb is not installed\n"
    command = ["gdb", "--batch", "-ex", "thread apply all bt 40", sys.executable, str(kept)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GDB_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return told + "gdb did not end\n"
    return told + done.stdout


def _is_core(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(18)
    return head[:4] == b"\x7fELF" and head[16] == 4  # ET_CORE


def folder() -> Path:
    """Where records are kept."""
    return Path(os.environ.get(FOLDER) or tempfile.gettempdir())
