"""What kernels ask of the processor's memory: arrays that begin with a cache line, and lines before they are needed.

NumPy's arrays begin wherever the allocator puts them, for large ones 16 bytes into a page: records that are laid out so
that they, or pairs of them, fill a line would then lie across two.

A walk down a tree waits for memory at each step, and a block's cache lines one after the other, unless they are asked
for early. The processor may ignore a prefetch; it never changes a result. Other instructions count the bits of a word.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

_LINE = 64  # bytes


def zeros(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return what `np.zeros` does, its first byte at the beginning of a cache line."""
    dtype = np.dtype(dtype)
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    room = np.zeros(n_bytes + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    return room[start : start + n_bytes].view(dtype).reshape(shape)


def shred(arrays: Iterable[npt.NDArray[Any]]) -> None:
    """Overwrite arrays that are no longer needed, so that freed memory does not hold their content."""
    for array in arrays:
        array[...] = np.zeros((), array.dtype)


def copy(array: npt.NDArray[Any], dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """Return a C-contiguous copy that begins with a cache line, in another dtype if one is given."""
    result = zeros(array.shape, array.dtype if dtype is None else dtype)
    result[...] = array
    return result


def enlarged(array: npt.NDArray[Any], capacity: int, n_used: int | None = None) -> npt.NDArray[Any]:
    """Copy an array into one with more rows; those after the first `n_used`, all when omitted, are zero.

    Memory that nothing is written to takes no time, so that it is worth knowing what was used.
    """
    larger, used = zeros((capacity, *array.shape[1:]), array.dtype), array[:n_used]
    larger[: len(used)] = used
    return larger


# -- instructions -------------------------------------------------------------------------------------


def _ones(word: Any) -> int:
    """What interpreted kernels do."""
    return int(word).bit_count()


def _trailing_zeros(word: Any) -> int:
    return (int(word) & -int(word)).bit_length() - 1 if word else 64


def _bit_instruction(generate_one: Callable[[Any, Any], Any], interpreted: Callable[[Any], int]) -> Any:
    """Make a function of a uint64 that returns int64."""

    def instruction(_context: Any, word: Any) -> tuple[Signature, Any]:
        def generate(_context: Any, builder: Any, _signature: Signature, arguments: Any) -> Any:
            return generate_one(builder, arguments[0])

        return types.int64(types.uint64), generate

    return interpreted if numba.config.DISABLE_JIT else intrinsic(instruction)


# The number of ones; and the number of zeros below the lowest one, 64 where there is none.
count_ones = _bit_instruction(lambda builder, word: builder.ctpop(word), _ones)
trailing_zeros = _bit_instruction(lambda builder, word: builder.cttz(word, ir.IntType(1)(0)), _trailing_zeros)


_READ, _WRITE = 0, 1
_KEEP_IN_ALL_CACHES = 3
_DATA = 1


def _no_prefetch(array: Any, indices: Any) -> None:
    """What interpreted kernels do."""


def _prefetch(purpose: int) -> Any:
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


prefetch_to_read = _prefetch(_READ)
prefetch_to_write = _prefetch(_WRITE)
