"""A word that one thread sets and a kernel in another one looks at."""

from typing import Any

import numba
from numba.core import cgutils, types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

_BYTES = 8


def _is_set(_context: Any, signal: Any) -> tuple[Signature, Any]:
    """Whether the only number of int64[1] `signal` is not 0 by now.

    An atomic load: of an ordinary one the compiler may think that it gives the same each time.
    """

    def generate(context: Any, builder: Any, signature: Signature, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        number = builder.load_atomic(array.data, "monotonic", _BYTES)
        return cgutils.is_not_null(builder, number)

    return types.boolean(signal), generate


def _is_set_interpreted(signal: Any) -> bool:
    return bool(signal[0])


is_set = _is_set_interpreted if numba.config.DISABLE_JIT else intrinsic(_is_set)
