"""Compiling kernels beside a server that answers.

Numba holds the interpreter while it compiles, for most of a second at a time: a server that compiles in a thread stops
answering for as long. So what is not in the kernel cache is compiled by another process, which fills the cache, and
then loaded by a thread. When the cache cannot be written, the thread compiles after all.

Nothing compiles on the event loop: whatever is about to be served is prepared before it is.
"""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from oubli.app.progress import Progress, silent, within
from oubli.core.data.schema import Schema, Task
from oubli.core.jit.policy import NotKeptError, only_kept
from oubli.core.model import Model
from oubli.core.persistence import read_metadata
from oubli.core.warmup import variant_of, warm_up, warm_up_influence

log = logging.getLogger("oubli.compiling")

What = Literal["model", "influence"]
_Key = tuple[What, str, Task, np.dtype[Any], str]
_NICENESS = 10  # of the process that compiles: requests come first
_LONGEST = 1800  # seconds

_prepared: set[_Key] = set()  # in this process
_one_at_a_time = threading.Lock()


def compile_kernels(
    kind: str, schema: Schema, progress: Progress = silent, parameters: Mapping[str, Any] | None = None
) -> None:
    """Compile what a model of this schema runs, or load it from the kernel cache; nothing when it was done before.

    In this process: for programs that do not answer yet.
    """
    key = _key("model", kind, schema.task, schema.cell_dtype, parameters)
    if key not in _prepared:
        reported = within(progress, "compiling the kernels")
        warm_up(schema.task, schema.cell_dtype, reported, kind=kind, parameters=parameters)
        _prepared.add(key)


def prepare_kernels(kind: str, schema: Schema, parameters: Mapping[str, Any] | None = None) -> None:
    """Have what a model of this schema runs ready in this process; call it in a thread of a server."""
    _prepare(_key("model", kind, schema.task, schema.cell_dtype, parameters))


def prepare_model_file(path: Path) -> None:
    """Have ready what the model in a file runs, without a look at the rest of the file.

    Raises
    ------
    FileError
        When it is not a model file.
    """
    document = read_metadata(path)
    try:
        schema = Schema.from_dict(document["schema"])
        key = _key("model", document["kind"], schema.task, schema.cell_dtype, document["parameters"])
    except Exception:  # loading says what is wrong with it
        return
    _prepare(key)


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


def _prepare(key: _Key) -> None:
    with _one_at_a_time:
        if key in _prepared:
            return
        work = _work(key)
        try:
            with only_kept():
                work()
        except NotKeptError:
            _compile_elsewhere(key)
            work()
        _prepared.add(key)


def _work(key: _Key) -> partial[None]:
    what, kind, task, cell_dtype, variant = key
    compile_ = warm_up if what == "model" else warm_up_influence
    return partial(compile_, task, cell_dtype, kind=kind, parameters=json.loads(variant))


def _compile_elsewhere(key: _Key) -> None:
    """Fill the kernel cache by another process; it does not matter whether that works out."""
    what, kind, task, cell_dtype, variant = key
    command = [sys.executable, "-m", __name__, what, kind, task.value, cell_dtype.name, variant]
    root = str(Path(__file__).resolve().parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    log.info("compiling the kernels of %s (%s, %s) in a process of its own", kind, task.value, cell_dtype.name)
    try:
        done = subprocess.run(  # noqa: S603 - ourselves
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_LONGEST,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("kernels are compiled in this process (%s): answers are slow meanwhile", type(error).__name__)
        return
    if done.returncode:
        log.warning("kernels are compiled in this process (exit code %d): answers are slow meanwhile", done.returncode)


def main(arguments: list[str]) -> None:
    """Compile what the arguments name, at low priority, into the cache that the environment names."""
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    what, kind, task, cell_dtype, variant = arguments
    if what not in ("model", "influence"):
        raise SystemExit(2)
    _work(("model" if what == "model" else "influence", kind, Task(task), np.dtype(cell_dtype), variant))()


if __name__ == "__main__":
    main(sys.argv[1:])
