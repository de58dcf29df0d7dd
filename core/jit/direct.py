"""Calling a kernel time and again with arguments of the same types.

At each call Numba looks at every array of every named tuple to find out what was compiled for such. For the kernels
that take all of a forest that is some 7 us, which is as long as walking down a tree. Who knows that the types stay the
same need not ask again.
"""

from collections.abc import Callable
from typing import Any

from numba import typeof


class Direct:
    """A kernel as it was compiled for the types of the first call.

    Every later call must have arguments of these types: dtypes, dimensions and C order included. They are not looked
    at, so others would be read as what they are not.

    Parameters
    ----------
    kernel
        A compiled function; interpreted ones are called as they are.
    """

    __slots__ = ("_kernel", "call")

    call: Callable[..., Any]

    def __init__(self, kernel: Callable[..., Any]) -> None:
        self._kernel = kernel
        self.call = self._first_call

    def _first_call(self, *arguments: Any) -> Any:
        kernel: Any = self._kernel
        result = kernel(*arguments)
        compiled = getattr(kernel, "overloads", {}).get(tuple(map(typeof, arguments)))
        self.call = kernel if compiled is None else compiled.entry_point
        return result
