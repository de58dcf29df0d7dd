"""Where compiled kernels are kept, so that only the first start compiles.

Numba looks at the file that defines a kernel, not at the files of the kernels it calls: after an edit in a callee the
caller would go on with the old code. The cache's directory is therefore named after a hash of all of `core`. It
holds nothing but compiled code: deleting it costs the time to compile again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"
_CORE = Path(__file__).resolve().parent.parent / "core"
_KEPT = 3  # caches of other versions that stay, the most recent ones; a cache is some 20 MB


def use_kernel_cache() -> Path:
    """Point Numba at the cache of this version of `core`; call it before Numba is imported.

    A directory that ``NUMBA_CACHE_DIR`` already names is left as it is.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    directory = _home() / f"kernels-{source_hash(_CORE)}"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.touch()  # the modification time says when it was last of use
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError
        _remove_old(directory)
    except OSError:
        # Compiled code is loaded and run: a predictable path that others may write would be a way in.
        directory = Path(tempfile.mkdtemp(prefix="oubli-kernels-"))
    os.environ[VARIABLE] = str(directory)
    return directory


def source_hash(package: Path) -> str:
    """Return a hash of every source file of a package, names included."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()}\0{len(source)}\0".encode())
        digest.update(source)
    return digest.hexdigest()


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


def _remove_old(current: Path) -> None:
    others = [path for path in current.parent.glob("kernels-*") if path != current]
    others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in others[_KEPT:]:
        shutil.rmtree(path, ignore_errors=True)
