"""Where compiled kernels are kept, so that only the first start compiles.

The files say themselves what they were compiled from (see `oubli.core.jit.policy`): one directory serves every version,
and holds nothing but compiled code. Deleting it costs the time to compile again.
"""

import os
import sys
import tempfile
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"


def use_kernel_cache() -> Path:
    """Say where compiled kernels are kept, for this process and those that it starts.

    A directory that ``NUMBA_CACHE_DIR`` already names is left as it is.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    directory = _home() / "kernels"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError
    except OSError:
        # Compiled code is loaded and run: a predictable path that others may write would be a way in.
        directory = Path(tempfile.mkdtemp(prefix="oubli-kernels-"))
    os.environ[VARIABLE] = str(directory)
    return directory


def is_writable() -> bool:
    """Whether a process that compiles can keep what it compiled where this one finds it."""
    named = os.environ.get(VARIABLE)
    if not named:
        return True  # the user's cache or beside the sources
    try:
        Path(named).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(named, os.W_OK | os.X_OK)


def _home() -> Path:
    """The user's cache directory, as the platform has it."""
    named = os.environ.get("XDG_CACHE_HOME")
    if named:
        return Path(named) / "oubli"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/oubli").expanduser()
    try:
        return Path("~/.cache/oubli").expanduser()
    except RuntimeError:  # a user without a home directory
        return Path(tempfile.mkdtemp(prefix="oubli-kernels-"))
