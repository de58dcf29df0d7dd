"""How compiled functions become machine code: each kernel is linked with all that it calls, and optimised once.

Numba optimises every function when it is compiled, emits machine code for it, and optimises it again inside of each of
its callers. Functions that only kernels call never run by themselves. They are kept as lowered, after LLVM's passes
over single functions and without machine code. A kernel takes in the functions that it reaches, as private ones, and
LLVM optimises the whole once.

This rests on the internals of Numba's code generation: `tests/unit/core/jit/test_linking.py` names what is relied on.
"""

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_lock import require_global_compiler_lock
from numba.core.runtime import rtsys

FORM = 2
"""Changes with the machine code that this module makes of the same functions: the cache keeps codes of each apart."""


class _WithoutEnvironments:
    """The code generation of a library whose functions have no environment: they never raise, so none reads it."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def set_env(self, name: str, environment: Any) -> None:
        """Keep nothing: there is no machine code that could read it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)


class InnerLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The code of a function that only kernels call, as it was lowered."""

    @property
    def codegen(self) -> Any:
        """What generates the code."""
        return _WithoutEnvironments(self._codegen)

    def finalize(self) -> None:
        """Note that nothing more is added."""
        self._raise_if_finalized()
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        """Return the code with all that it calls, for a caller that is no kernel, such as a test's own."""
        module = _module_of(self).clone()
        for library in _reached(self):
            module.link_in(_module_of(library), preserve=True)
        return module

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: there is no machine code."""
        del name
        return 0


class KernelLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The code of a kernel and of all that it calls."""

    def finalize(self) -> None:
        """Link, optimise and emit the code."""
        require_global_compiler_lock()
        self._codegen._check_llvm_bugs()
        self._raise_if_finalized()
        own = {function.name for function in self._final_module.functions if not function.is_declaration}
        for library in _reached(self):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(_module_of(library), preserve=True)
        for function in self._final_module.functions:
            if not function.is_declaration and function.name not in own:
                function.linkage = "internal"
        passes, builder = self._codegen._module_pass_manager()
        with self._recorded_timings.record("Module passes", builder):
            passes.run(self._final_module, builder)
        self._final_module.verify()
        self._finalize_final_module()


def _module_of(library: Any) -> Any:
    """Return the code of a library alone, with symbols that may be defined more than once."""
    return JITCodeLibrary._get_module_for_linking(library)


def _reached(library: Any) -> list[Any]:
    """Return the libraries of all functions that are called, directly or by others that only kernels call."""
    found, waiting = {}, list(library._linking_libraries)
    while waiting:
        other = waiting.pop()
        if id(other) not in found and other is not rtsys.library:
            found[id(other)] = other
            if isinstance(other, InnerLibrary):
                waiting += other._linking_libraries
    return list(found.values())


class InnerCompiler(Compiler):  # type: ignore[misc]
    """Compiles functions that only kernels call."""

    def __init__(self, typing: Any, target: Any, library: Any, *others: Any) -> None:
        del library  # Numba would make one of its own
        super().__init__(typing, target, InnerLibrary(target.codegen(), "inner"), *others)


class KernelCompiler(Compiler):  # type: ignore[misc]
    """Compiles kernels."""

    def __init__(self, typing: Any, target: Any, library: Any, *others: Any) -> None:
        del library  # Numba would make one of its own
        kernel = KernelLibrary(target.codegen(), "kernel")
        kernel.enable_object_caching()
        super().__init__(typing, target, kernel, *others)
