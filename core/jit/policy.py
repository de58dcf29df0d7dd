"""The decorators for compiled code, and the policy they stand for.

Every compiled function of `core` is decorated with one of these and with nothing else, so that
these choices are made once:

    kernel   called from Python
    inner    called from kernels only: without the wrappers for Python, which take long to compile
    pasted   the same, compiled into its caller by LLVM whatever its size: for what runs in every node. A
             call hands over every field of every array of `Trees`, `Scratch` and so on, some three
             hundred words
    spliced  the same, with its text put into its caller's: for the middle layers. LLVM optimises a
             compiled function again inside each of its callers; a chain of six takes it six times.

Of all three:

* `fastmath` stays off: with it NaN tests vanish and sums change their order (bit-exactness).
* `parallel` stays off: a `prange` on the default threading layer aborts the process when two
  threads meet in it.
* `nogil`: health checks and predictions go on while a long kernel runs in another thread.
* `error_model="numpy"`: a division by zero gives inf or NaN instead of raising in compiled code;
  kernels report by status codes and never raise.
* `_nrt=False`: no reference counting. Kernels allocate nothing and return numbers only; the arrays
  that they and their views read belong to the caller. Counting references to some forty arrays, with
  an atomic operation each, took a third of a fit and half of the compile time.
* a cache on the disk: the second process does not compile (see `oubli.core.jit.cache`).
"""

from collections.abc import Callable
from typing import Any

from numba import config, njit

from oubli.core.jit.cache import KernelCache

_POLICY = {"nogil": True, "error_model": "numpy", "_nrt": False}
_NO_WRAPPERS = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def _cached(**options: Any) -> Callable[[Any], Any]:
    decorate = njit(**options)

    def decorated(function: Any) -> Any:
        compiled: Any = decorate(function)
        if not config.DISABLE_JIT:
            compiled._cache = KernelCache(compiled)
        return compiled

    return decorated


kernel = _cached(**_POLICY)
inner = _cached(**_POLICY, **_NO_WRAPPERS)
pasted = _cached(**_POLICY, **_NO_WRAPPERS, forceinline=True)
spliced = _cached(**_POLICY, **_NO_WRAPPERS, inline="always")
