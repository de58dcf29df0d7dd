"""Asking for memory before it is needed.

A walk down a tree waits for memory at each step, and a block's cache lines one after the other, unless
they are asked for early. The processor may ignore a prefetch; it never changes a result.
"""

from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

_READ, _WRITE = 0, 1
_KEEP_IN_ALL_CACHES = 3
_DATA = 1


def _no_prefetch(array: Any, indices: Any) -> None:
    """What interpreted kernels do."""


def _make(purpose: int) -> Any:
    """Make the function that asks for the cache line of array[indices], a tuple of int64.

    Indices out of range do no harm.
    """

    def prefetch(_context: Any, array: Any, indices: Any) -> tuple[Signature, Any]:
        signature = types.void(array, indices)

        def generate(context: Any, builder: Any, signature: Signature, arguments: Any) -> Any:
            kind = signature.args[0]
            value = context.make_array(kind)(context, builder, arguments[0])
            places = cgutils.unpack_tuple(builder, arguments[1])
            address = cgutils.get_item_pointer(context, builder, kind, value, places, wraparound=False)
            pointer, integer = ir.IntType(8).as_pointer(), ir.IntType(32)
            function_type = ir.FunctionType(ir.VoidType(), [pointer, integer, integer, integer])
            function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
            hints = [integer(purpose), integer(_KEEP_IN_ALL_CACHES), integer(_DATA)]
            builder.call(function, [builder.bitcast(address, pointer), *hints])
            return context.get_dummy_value()

        return signature, generate

    return _no_prefetch if numba.config.DISABLE_JIT else intrinsic(prefetch)


prefetch_to_read = _make(_READ)
prefetch_to_write = _make(_WRITE)
