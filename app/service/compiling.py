"""Compiling kernels by another process.

Numba holds the interpreter while it compiles, for most of a second at a time: a server that compiles in a thread stops
answering for as long. A process that has compiled also keeps the memory for the rest of its life. So what is not in the
kernel cache is compiled by other processes, which fill the cache, and then loaded by this one. When the cache cannot
be written, this process compiles after all.

Nothing compiles on the event loop: whatever is about to be served is prepared before it is. A start loads what a fit
runs while the data file is read, what predictions run while the model is trained, and the rest when predictions are
served; or all while a snapshot is read. Threads that do that ahead compile nothing. What a fit and predictions run is
compiled first: a server trains and predicts while the other processes compile the rest, for which changes wait.

Where compiled kernels are kept, so that only the first start compiles.

The files say themselves what they were compiled from (see `oubli.core.jit.policy`): one directory serves every version,
and holds nothing but compiled code. Deleting it costs the time to compile again.
"""

import json
import logging
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from oubli.app.logs import cause_of
from oubli.app.progress import Progress, silent, within
from oubli.core.data.schema import Schema, Task
from oubli.core.errors import FileError
from oubli.core.jit.compilation import Compilation, Report
from oubli.core.jit.policy import VARIABLE, NotKeptError, directories, is_writable, only_kept
from oubli.core.model import Model
from oubli.core.persistence import read_metadata
from oubli.core.registry import variant_of
from oubli.core.warmup import FIT_STEPS, PREDICTION_STEPS, STEPS, Usage, What, compilation_of, do, running


def use_kernel_cache() -> Path:
    """Say where compiled kernels are kept, for this process and those that it starts.

    A directory that ``NUMBA_CACHE_DIR`` already names is left as it is.
    """
    directory = next(directories())
    if os.environ.get(VARIABLE):
        return directory
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError
    except OSError:
        # Compiled code is loaded and run: a predictable path that others may write would be a way in.
        directory = Path(tempfile.mkdtemp(prefix="oubli-kernels-"))
    os.environ[VARIABLE] = str(directory)
    return directory


log = logging.getLogger("oubli.compiling")

COMPILING = "compiling the kernels"  # a stage of progress
Part = Literal["fit", "predictions", "model", "influence"]
"""What of the work with a model: the steps of a fit, those of predictions as well, all; and questions of influence."""

_STEPS = {"fit": FIT_STEPS, "predictions": PREDICTION_STEPS, "model": STEPS, "influence": ()}
_NICENESS = 10  # of processes that compile for a server that answers: requests come first


class _Needs(NamedTuple):
    """What is needed of the work with models of some types."""

    part: Part
    usage: Usage

    def with_all(self) -> Iterator["_Needs"]:
        """Return this and all that it is a part of."""
        parts: list[Part] = ["fit", "predictions", "model"]
        for part in parts[parts.index(self.part) :] if self.part in parts else [self.part]:
            yield _Needs(part, self.usage)

    def do(self) -> None:
        """Call the kernels."""
        do(self.usage, steps=_STEPS[self.part])


_prepared: set[_Needs] = set()  # in this process
_one_at_a_time = threading.Lock()


def prepare_kernels(
    kind: str,
    schema: Schema,
    parameters: Mapping[str, Any] | None = None,
    progress: Progress = silent,
    *,
    answers: bool = True,
    part: Part = "model",
) -> None:
    """Have what a model of this schema runs ready in this process; call it in a thread of a server.

    Parameters
    ----------
    kind, schema, parameters
        Of the model.
    progress
        Called while others compile.
    answers
        Whether this process answers requests at the same time, which come first then.
    part
        What is enough for now. If it has to be compiled, the other processes compile the rest after it.
    """
    needs = _needs(part, kind, schema.task, schema.cell_dtype, parameters)
    _prepare(needs, within(progress, COMPILING), _NICENESS if answers else 0)


def load_beside(
    kind: str, task: Task, cell_dtype: Any, parameters: Mapping[str, Any] | None = None, *, part: Part = "model"
) -> threading.Thread:
    """Load in a thread what `prepare_kernels` would, as far as it is kept; whatever is left, that has to do.

    Parameters are those of the model to come, as far as they can be guessed: what is loaded in vain costs its time.

    Returns
    -------
    The thread, which has begun.
    """
    return _begin_to_load(_needs(part, kind, task, cell_dtype, parameters))


def load_beside_file(path: Path) -> threading.Thread | None:
    """Load in a thread what the model in a file runs, as far as it is kept; None when the file does not tell."""
    try:
        needs = _needs_of_file(path)
    except (FileError, OSError):  # reading it says what is wrong
        return None
    return None if needs is None else _begin_to_load(needs)


def _begin_to_load(needs: _Needs) -> threading.Thread:
    thread = threading.Thread(target=_load, args=(needs,), name="oubli-loader", daemon=True)
    thread.start()
    return thread


def _load(needs: _Needs) -> None:
    with _one_at_a_time:
        if not _prepared.isdisjoint(needs.with_all()):
            return
        try:
            with only_kept():
                needs.do()
        except Exception as error:  # who needs it will see, if it was no wrong guess
            log.debug("kernels were not loaded ahead: %s", cause_of(error))
        else:
            _prepared.add(needs)


def prepare_model_file(path: Path) -> None:
    """Have ready what the model in a file runs; the rest of the file is not read.

    Raises
    ------
    FileError
        When it is not a model file.
    """
    needs = _needs_of_file(path)
    if needs is not None:  # otherwise loading says what is wrong with it
        _prepare(needs)


def _needs_of_file(path: Path) -> _Needs | None:
    document = read_metadata(path)
    try:
        schema = Schema.from_dict(document["schema"])
        return _needs("model", document["kind"], schema.task, schema.cell_dtype, document["parameters"])
    except Exception:
        return None


def prepare_influence(model: Model) -> None:
    """Have ready what questions about the influence of samples run; call it in a thread of a server."""
    _prepare(_needs_of(model, "influence"))


def is_influence_prepared(model: Model) -> bool:
    """Whether questions about influence can be answered without compiling or loading anything."""
    return _needs_of(model, "influence") in _prepared


def _needs(part: Part, kind: str, task: Task, cell_dtype: Any, parameters: Mapping[str, Any] | None) -> _Needs:
    what: What = "influence" if part == "influence" else "model"
    variant = json.dumps(variant_of(kind, parameters))
    return _Needs(part, Usage(what, kind, task.value, np.dtype(cell_dtype).name, variant))


def _prepare(needs: _Needs, report: Report | None = None, niceness: int = _NICENESS) -> None:
    with _one_at_a_time:
        if not _prepared.isdisjoint(needs.with_all()):
            return
        try:
            with only_kept():
                needs.do()
        except NotKeptError:
            _compile_elsewhere(needs, report, niceness)
            needs.do()
        _prepared.add(needs)


def _compile_elsewhere(needs: _Needs, report: Report | None, niceness: int) -> None:
    """Fill the kernel cache by other processes; it does not matter whether that works out."""
    if not is_writable():
        return
    log.info("compiling the kernels of %s (%s, %s) in other processes", *needs.usage[1:4])
    try:
        compilation = compilation_of(needs.usage, niceness=niceness)
        is_all = needs.part in ("model", "influence")
        exit_code = compilation.wait(None if is_all else len(_STEPS[needs.part]), report)
    except OSError as error:
        log.warning("kernels are compiled in this process, and answers are slow meanwhile: %s", cause_of(error))
        return
    if exit_code:
        log.warning("kernels are compiled in this process, and answers are slow meanwhile: exit code %d", exit_code)


def compilation_of_model(model: Model) -> Compilation | None:
    """Return the processes that compile what a model does, None when there are none."""
    return running(_needs_of(model).usage)


def _needs_of(model: Model, part: Part = "model") -> _Needs:
    return _needs(part, model.kind, model.task, model.schema_.cell_dtype, model.get_params())
