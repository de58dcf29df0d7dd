"""Fills the kernel cache before the tests, by as many processes as there are cores: `python -m tests.kernels`.

An empty cache gets what models of every kind use with ordinary numbers. After an edit in `core`, what an earlier run
has used is compiled again where it has changed, once, instead of in each worker of the tests. When nothing has changed
since, this takes a second.
"""

import contextlib
import hashlib
import io
import pickle
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from oubli.app.cli.console import Bars
from oubli.app.service.compiling import use_kernel_cache
from oubli.core.data.schema import Task
from oubli.core.estimators import KINDS
from oubli.core.jit import compilation, policy
from oubli.core.warmup import WHAT, Usage, compilation_of

CORE = Path(__file__).resolve().parents[1] / "core"


def stamp_in(directory: Path) -> Path:
    """The file that says that the cache has what these sources need."""
    digest = hashlib.blake2b(sys.version.encode(), digest_size=16)
    for package in ("llvmlite", "numba", "numpy"):
        digest.update(version(package).encode())
    for path in sorted(CORE.rglob("*.py")):
        digest.update(path.read_bytes())
    return directory / f"tests-{digest.hexdigest()}"


def known(directory: Path) -> set[tuple[str, Any]]:
    """The kernels in a cache, of whatever sources, and the types of their arguments."""
    found = set()
    for path in directory.glob(f"*{policy.SUFFIX}"):
        module, _, name = path.name.rpartition("-")[0].rpartition(".")
        with contextlib.suppress(Exception):  # damaged, or of types that there are no more
            found.add((f"{module}:{name}", _types_in(path)))
    return found


def _types_in(path: Path) -> Any:
    """The second of the three parts of a file; see `policy`."""
    with path.open("rb") as file:
        file.seek(len(policy._MAGIC) + policy._DIGEST_SIZE)
        for _ in range(2):
            part = file.read(int.from_bytes(file.read(8), "little"))
    return pickle.loads(part)  # noqa: S301 - ours


def missing(kernels: set[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Those of these kernels that are not in the cache as the sources are now."""
    for kernel, types in sorted(kernels, key=str):
        module, _, name = kernel.partition(":")
        with contextlib.suppress(Exception):  # there is no such kernel any more
            dispatcher = getattr(import_module(module), name)
            key = dispatcher._cache._key(types, dispatcher.targetctx.codegen())
            if not any((one / dispatcher._cache._file_name(key)).exists() for one in policy.directories()):
                yield kernel, types


def compile_all(kernels: list[tuple[str, Any]], progress: Bars) -> None:
    lister, n_compilers = compilation._Lister(), compilation._affordable()
    threads = [threading.Thread(target=lister.feed) for _ in range(n_compilers)]
    with contextlib.redirect_stdout(io.StringIO()):
        for kernel, types in kernels:
            lister.note(kernel, types)
        lister.complete(n_compilers)
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(1)
                progress("compiling the kernels that have changed", lister._n_done, len(kernels))


def main() -> None:
    directory = use_kernel_cache()
    stamp = stamp_in(directory)
    if stamp.exists():
        return
    before = known(directory)
    with Bars() as progress:
        if before:
            changed = list(missing(before))
            if changed:
                compile_all(changed, progress)
        else:
            usages = [Usage(what, kind, Task(task).value, "float32") for kind, task in KINDS for what in WHAT]
            with compilation_of(*usages) as going_on:
                going_on.wait(report=lambda *told: progress("compiling the kernels that tests use", *told))
    for old in directory.glob("tests-*"):
        old.unlink(missing_ok=True)
    stamp.touch()


if __name__ == "__main__":
    main()
