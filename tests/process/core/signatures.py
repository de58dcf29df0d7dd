"""Which kernels a program calls with which types, found out without compiling: kernels are interpreted and noted.

Run with NUMBA_DISABLE_JIT=1, before anything else imports `core`. A kernel that another one calls is not noted: it is
compiled with its caller.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

from numba import typeof

import oubli.core.jit.policy

Signature = tuple[str, str]
called: set[Signature] = set()
_here = threading.local()


def _noted(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if named:
            arguments = signature.bind(*arguments, **named).args
        if getattr(_here, "inside", False):
            return function(*arguments)
        called.add((f"{function.__module__}.{function.__name__}", str(tuple(map(typeof, arguments)))))
        _here.inside = True
        try:
            return function(*arguments)
        finally:
            _here.inside = False

    return call


oubli.core.jit.policy.kernel = _noted  # type: ignore[assignment]
