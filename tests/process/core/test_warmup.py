"""After the warm-up nothing that can be done with a model needs a kernel for types that it was not compiled for.

Kernels are interpreted and the types of their arguments noted: whether something would be compiled shows without
compiling anything.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from oubli.core.data.schema import Task
from oubli.core.estimators import KINDS
from tests.process.core.operations import VARIANTS
from tests.process.core.test_kernels import run_python
from tests.tiers import ordinary

SCRIPT = """
import json, sys, warnings

warnings.simplefilter("ignore")  # interpreted integers overflow aloud
from oubli.core.jit.compilation import note_calls

called = set()
note_calls(lambda kernel, types: called.add((kernel, str(types))))  # before anything else is imported

from oubli.core.warmup import call_kernels
from tests.process.core.operations import cases, operations

kind, extent = sys.argv[1:]
new, n_steps = [], 0
for case in cases():
    is_first = case.dtype == "float32" and not case.parameters and case.label in ("integer", "number")
    whole = extent == "whole"
    if case.kind != kind or not (whole or is_first and case.task == extent):
        continue
    called.clear()
    call_kernels(case.task, case.dtype, kind=kind, parameters=case.parameters)
    known = set(called)
    assert known
    n_classes = 3 if case.task == "classification" else 2
    for name, step in operations(case) if whole else operations(case, "mixed", n_classes):
        step()
        n_steps += 1
        new += [(str(case), name, kernel, types) for kernel, types in sorted(called - known)]
        known |= called
print(json.dumps({"new": new, "steps": n_steps}))
"""


def played(kind: str, extent: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run_python("-c", SCRIPT, kind, extent, NUMBA_DISABLE_JIT="1").splitlines()[-1])
    return found


@pytest.mark.parametrize("key", ordinary(KINDS, ("forest", Task.CLASSIFICATION)), ids="-".join)
def test_nothing_is_left_to_be_compiled_after_the_warm_up(key: tuple[str, Task]) -> None:
    found = played(*key)
    assert found["new"] == []
    assert found["steps"] >= 10


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", VARIANTS)
def test_nothing_is_left_to_be_compiled_with_any_parameters_types_and_columns(kind: str) -> None:
    assert played(kind, "whole")["new"] == []


EMPTY = """
import sys
from numba.core.event import Listener, register
import oubli
from oubli.core.jit.policy import KernelCache
from tests.process.core.operations import cases, operations

kind, what = sys.argv[1:]
compiled = []


class Notes(Listener):
    def on_start(self, event):
        if isinstance(event.data["dispatcher"]._cache, KernelCache):
            compiled.append(event.data["dispatcher"].py_func.__qualname__)

    def on_end(self, event):
        pass


register("numba:compile", Notes())
if what == "warm-up":
    oubli.warm_up(kind)
chosen = [case for case in cases() if case.kind == kind]
if what != "warm-up":
    chosen = [case for case in chosen if case.dtype == what and case.label in ("integer", "number")][:1]
for case in chosen:
    has_begun = what == "warm-up"
    for name, step in operations(case):
        has_begun = has_begun or name.startswith("fit (")
        if has_begun:
            step()
assert has_begun
assert compiled == [], compiled
"""


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("what", ["warm-up", "float32", "float64"])
@pytest.mark.parametrize("kind", VARIANTS)
def test_nothing_compiles_after_the_warm_up_or_the_first_fit(kind: str, what: str, tmp_path: Path) -> None:
    """With an empty cache; nor in the process that fits: others compile for it."""
    run_python("-c", EMPTY, kind, what, NUMBA_CACHE_DIR=str(tmp_path))
