"""Everything that an object keeps alive: for tests that nothing of a removed sample is left."""

import gc
import re
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

# Code, not data; its globals lead to the whole program, and a kernel's to all that compiling takes.
_CODE = (types.ModuleType, type, types.BuiltinFunctionType, types.CodeType, types.GetSetDescriptorType, Dispatcher)


def reachable(root: object) -> Iterator[Any]:
    """Yield every object reachable from `root`, the bases of NumPy views included, each once."""
    seen: set[int] = set()
    stack: list[Any] = [root]
    while stack:
        value = stack.pop()
        if id(value) in seen or isinstance(value, _CODE):
            continue
        seen.add(id(value))
        yield value
        if isinstance(value, types.FunctionType):
            stack.extend(cell.cell_contents for cell in value.__closure__ or ())
            stack.extend(value.__defaults__ or ())
        elif isinstance(value, np.ndarray):
            stack.append(value.base)
            if value.dtype.hasobject:
                stack.extend(value.ravel().tolist())
        else:
            stack.extend(gc.get_referents(value))


def texts(root: object) -> set[str]:
    """Return every text reachable from `root`."""
    return {value for value in reachable(root) if isinstance(value, str)}


def array_bytes(root: object) -> bytes:
    """Return the memory of every array and byte string reachable from `root`, unused capacity included.

    Long runs of zeros are cut to 64 bytes, which no text or number to look for is as long as: most memory is unused.
    """
    parts = []
    for value in reachable(root):
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            parts.append(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, (bytes, bytearray)):
            parts.append(bytes(value))
    return re.sub(rb"\0{64,}", bytes(64), b"\0".join(parts))
