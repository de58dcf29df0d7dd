"""Where compiled kernels are kept, so that only the first start compiles.

Numba looks at the file that defines a kernel, not at the files of the kernels it calls: after an edit in a callee the
caller would go on with the old code. The cache's directory is therefore named after a hash of every file of `core` that
compiled code is made from: those with kernels, and those with the functions and constants that kernels use. Edits
elsewhere keep the cache. It holds nothing but compiled code: deleting it costs the time to compile again.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"
_CORE = Path(__file__).resolve().parent.parent / "core"
DECORATORS = frozenset({"kernel", "inner", "pasted", "spliced"})  # of `core._jit`
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
    """Return a hash of the source files of a package that compiled code is made from, names included."""
    digest = hashlib.blake2b(digest_size=8)
    for path in kernel_sources(package):
        source = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()}\0{len(source)}\0".encode())
        digest.update(source)
    return digest.hexdigest()


def kernel_sources(package: Path) -> list[Path]:
    """Return the files with kernels, and those that their names lead to: functions called, constants, decorators."""
    paths = {_module_name(package, path): path for path in package.rglob("*.py")}
    bodies = {name: ast.parse(path.read_bytes()).body for name, path in paths.items()}
    waiting = [name for name, body in bodies.items() if any(map(_is_kernel, body))]
    needed = set(waiting)
    while waiting:
        body = bodies[waiting.pop()]
        origins = _origins(body, paths)
        used = {
            node.id for part in body if _is_compiled_in(part) for node in ast.walk(part) if isinstance(node, ast.Name)
        }
        found = {origins[name] for name in used & origins.keys()} - needed
        needed |= found
        waiting.extend(found)
    return sorted(paths[name] for name in needed)


def _module_name(package: Path, path: Path) -> str:
    parts = (package.name, *path.relative_to(package).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def _is_kernel(part: ast.stmt) -> bool:
    return isinstance(part, ast.FunctionDef) and any(
        isinstance(decorator, ast.Name) and decorator.id in DECORATORS for decorator in part.decorator_list
    )


def _is_compiled_in(part: ast.stmt) -> bool:
    """Whether a statement of a module is a kernel, or a constant that one may use."""
    return _is_kernel(part) or isinstance(part, ast.Assign | ast.AnnAssign)


def _origins(body: list[ast.stmt], modules: Collection[str]) -> dict[str, str]:
    """Which module of the package each imported name is from."""
    origins = {}
    for part in body:
        if isinstance(part, ast.ImportFrom) and part.module:
            for alias in part.names:
                inner = f"{part.module}.{alias.name}"
                origins[alias.asname or alias.name] = inner if inner in modules else part.module
    return {name: module for name, module in origins.items() if module in modules}


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
