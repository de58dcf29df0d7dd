"""Compiling kernels by another process.

Numba holds the interpreter while it compiles, for most of a second at a time: a server that compiles in a thread stops
answering for as long. A process that has compiled also keeps a gigabyte for the rest of its life. So what is not in the
kernel cache is compiled by another process, which fills the cache, and then loaded by this one. When the cache cannot
be written, this process compiles after all.

Nothing compiles on the event loop: whatever is about to be served is prepared before it is. A start loads what a fit
runs while the data file is read, and the rest while the model is trained, or all while a snapshot is read; threads that
do that compile nothing.

Where compiled kernels are kept, so that only the first start compiles.

The files say themselves what they were compiled from (see `oubli.core.jit.policy`): one directory serves every version,
and holds nothing but compiled code. Deleting it costs the time to compile again.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from oubli.app.logs import cause_of
from oubli.app.progress import Progress, silent, within
from oubli.core.data.schema import Schema, Task
from oubli.core.errors import FileError
from oubli.core.jit.policy import NotKeptError, only_kept
from oubli.core.model import Model
from oubli.core.persistence import read_metadata
from oubli.core.warmup import FIT_STEPS, STEPS, variant_of, warm_up, warm_up_influence

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


log = logging.getLogger("oubli.compiling")

COMPILING = "compiling the kernels"  # a stage of progress
What = Literal["fit", "model", "influence"]
_Report = Callable[[int, int], None]
_Key = tuple[What, str, Task, np.dtype[Any], str]
_NICENESS = 10  # of the process that compiles for a server that answers: requests come first
_LONGEST = 1800  # seconds

_prepared: set[_Key] = set()  # in this process
_one_at_a_time = threading.Lock()


def prepare_kernels(
    kind: str,
    schema: Schema,
    parameters: Mapping[str, Any] | None = None,
    progress: Progress = silent,
    *,
    answers: bool = True,
    only_fit: bool = False,
) -> None:
    """Have what a model of this schema runs ready in this process; call it in a thread of a server.

    Parameters
    ----------
    kind, schema, parameters
        Of the model.
    progress
        Called after the steps of compiling.
    answers
        Whether this process answers requests at the same time, which come first then.
    only_fit
        Whether what training runs is enough for now.
    """
    key = _key("fit" if only_fit else "model", kind, schema.task, schema.cell_dtype, parameters)
    _prepare(key, within(progress, COMPILING), _NICENESS if answers else 0)


def load_beside(
    kind: str, task: Task, cell_dtype: Any, parameters: Mapping[str, Any] | None = None, *, only_fit: bool = False
) -> threading.Thread:
    """Load in a thread what `prepare_kernels` would, as far as it is kept; whatever is left, that has to do.

    Parameters are those of the model to come, as far as they can be guessed: what is loaded in vain costs its time.

    Returns
    -------
    The thread, which has begun.
    """
    return _begin_to_load(_key("fit" if only_fit else "model", kind, task, cell_dtype, parameters))


def load_beside_file(path: Path) -> threading.Thread | None:
    """Load in a thread what the model in a file runs, as far as it is kept; None when the file does not tell."""
    try:
        key = _key_of_file(path)
    except (FileError, OSError):  # reading it says what is wrong
        return None
    return None if key is None else _begin_to_load(key)


def _begin_to_load(key: _Key) -> threading.Thread:
    thread = threading.Thread(target=_load, args=(key,), name="oubli-loader", daemon=True)
    thread.start()
    return thread


def _load(key: _Key) -> None:
    with _one_at_a_time:
        if not _prepared.isdisjoint((key, _all_of(key))):
            return
        try:
            with only_kept():
                _work(key)()
        except Exception as error:  # who needs it will see, if it was no wrong guess
            log.debug("kernels were not loaded ahead: %s", cause_of(error))
        else:
            _prepared.add(key)


def prepare_model_file(path: Path) -> None:
    """Have ready what the model in a file runs; the rest of the file is not read.

    Raises
    ------
    FileError
        When it is not a model file.
    """
    key = _key_of_file(path)
    if key is not None:  # otherwise loading says what is wrong with it
        _prepare(key)


def _key_of_file(path: Path) -> _Key | None:
    document = read_metadata(path)
    try:
        schema = Schema.from_dict(document["schema"])
        return _key("model", document["kind"], schema.task, schema.cell_dtype, document["parameters"])
    except Exception:
        return None


def prepare_influence(model: Model) -> None:
    """Have ready what questions about the influence of samples run; call it in a thread of a server."""
    _prepare(_influence_key(model))


def is_influence_prepared(model: Model) -> bool:
    """Whether questions about influence can be answered without compiling or loading anything."""
    return _influence_key(model) in _prepared


def _influence_key(model: Model) -> _Key:
    return _key("influence", model.kind, model.task, model.schema_.cell_dtype, model.get_params())


def _key(what: What, kind: str, task: Task, cell_dtype: Any, parameters: Mapping[str, Any] | None) -> _Key:
    return what, kind, task, np.dtype(cell_dtype), json.dumps(variant_of(kind, parameters))


def _prepare(key: _Key, report: _Report | None = None, niceness: int = _NICENESS) -> None:
    with _one_at_a_time:
        if not _prepared.isdisjoint((key, _all_of(key))):
            return
        work = _work(key)
        try:
            with only_kept():
                work()
        except NotKeptError:
            _compile_elsewhere(_all_of(key), report, niceness)
            work()
        _prepared.add(key)


def _all_of(key: _Key) -> _Key:
    """What has to be ready in the end: who trains a model uses it."""
    what, *rest = key
    return "model" if what == "fit" else what, *rest  # type: ignore[return-value]


def _work(key: _Key) -> partial[None]:
    what, kind, task, cell_dtype, variant = key
    if what == "influence":
        return partial(warm_up_influence, task, cell_dtype, kind=kind, parameters=json.loads(variant))
    steps = FIT_STEPS if what == "fit" else STEPS
    return partial(warm_up, task, cell_dtype, kind=kind, parameters=json.loads(variant), steps=steps)


def _compile_elsewhere(key: _Key, report: _Report | None, niceness: int) -> None:
    """Fill the kernel cache by another process; it does not matter whether that works out."""
    if not is_writable():
        return
    what, kind, task, cell_dtype, variant = key
    command = [sys.executable, "-m", __name__, str(niceness), what, kind, task.value, cell_dtype.name, variant]
    root = str(Path(__file__).resolve().parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    log.info("compiling the kernels of %s (%s, %s) in a process of its own", kind, task.value, cell_dtype.name)
    try:
        exit_code = _follow(command, environment, report)
    except OSError as error:
        log.warning("kernels are compiled in this process, and answers are slow meanwhile: %s", cause_of(error))
        return
    if exit_code:
        log.warning("kernels are compiled in this process, and answers are slow meanwhile: exit code %d", exit_code)


def _follow(command: list[str], environment: dict[str, str], report: _Report | None) -> int:
    """Run a process that writes a line for each step it has done; return its exit code."""
    process = subprocess.Popen(  # noqa: S603 - ourselves
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    too_long = threading.Timer(_LONGEST, process.kill)
    too_long.daemon = True
    too_long.start()
    try:
        with process:
            for line in process.stdout or ():
                done, _, total = line.strip().partition("/")
                if report is not None and done.isdecimal() and total.isdecimal():
                    report(int(done), int(total))
    finally:
        too_long.cancel()
        process.kill()
    return process.returncode


def main(arguments: list[str]) -> None:
    """Compile what the arguments name, as nicely as the first says, into the cache that the environment names."""
    niceness, what, kind, task, cell_dtype, variant = arguments
    if hasattr(os, "nice"):
        os.nice(int(niceness))
    if what == "model":
        _work(("model", kind, Task(task), np.dtype(cell_dtype), variant))(progress=_tell)
    elif what == "influence":
        _work(("influence", kind, Task(task), np.dtype(cell_dtype), variant))()
    else:
        raise SystemExit(2)


def _tell(done: int, total: int) -> None:
    """Tell the process that waits how far it is."""
    with suppress(OSError):  # it is gone: what is compiled is kept all the same
        sys.stdout.write(f"{done}/{total}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
