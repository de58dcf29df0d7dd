"""Kernels hold the code of all that they call, optimised once; what Numba's internals have to be for that."""

import inspect
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import config
from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary
from numba.core.compiler import CompilerBase

from oubli.core.jit.linking import InnerLibrary
from oubli.core.jit.policy import inner, kernel, pasted
from tests.serving import output_of

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")


@inner
def _square(x: Any) -> Any:
    return x * x


@pasted
def _above(values: Any, i: Any) -> Any:
    return _square(values[i]) + 1


@kernel
def _total(values: Any) -> Any:
    total = 0.0
    for i in range(len(values)):
        total += _above(values, i)
    return total


def library_of(compiled: Any) -> Any:
    (found,) = [one.library for one in compiled.overloads.values()]
    return found


def test_a_kernel_holds_all_that_it_calls_and_shows_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert _total(np.array([1.0, 2.0, 3.0])) == 17
    for called in (_square, _above):
        library = library_of(called)
        assert isinstance(library, InnerLibrary)
        assert "fmul" in str(library._final_module) or called is _above
        assert library.get_pointer_to_function(library.name) == 0
    shown = [one.name for one in library_of(_total).get_defined_functions() if one.linkage.name != "internal"]
    assert shown
    assert all("_total" in name for name in shown)
    assert [path.name.partition("-")[0].rpartition(".")[2] for path in tmp_path.glob("*.kernel")] == ["_total"]


def test_an_index_beyond_an_array_is_told_through_functions_that_have_no_environment(tmp_path: Path) -> None:
    """The first process compiles the kernel, the second one loads it."""
    script = (
        "import numpy as np; from tests.unit.core.jit.test_linking import beyond\n"
        "try: beyond(np.zeros(3))\nexcept IndexError as error: print(error)"
    )
    for _ in range(2):
        told = output_of(sys.executable, "-c", script, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))
        assert told == "index is out of bounds\n"


@kernel
def beyond(values: Any) -> Any:
    return _above(values, len(values) + 5)


def test_what_is_relied_on_of_numba() -> None:
    """Another version may differ: see `core/jit/linking.py`."""
    assert numba.__version__.startswith("0.68.")
    assert [*inspect.signature(CompilerBase.__init__).parameters][1:4] == ["typingctx", "targetctx", "library"]
    for name in ("_get_module_for_linking", "_finalize_final_module", "add_llvm_module", "get_pointer_to_function"):
        assert hasattr(JITCodeLibrary, name)
    source = inspect.getsource(CPUCodeLibrary)
    for name in ("_linking_libraries", "_final_module", "_reload_init", "_codegen._module_pass_manager()"):
        assert name in source


@numba.njit
def _of_a_test(values: Any) -> Any:
    return _above(values, 1)


def test_code_that_is_no_kernel_calls_the_same_functions() -> None:
    assert _of_a_test(np.array([1.0, 3.0])) == 10
