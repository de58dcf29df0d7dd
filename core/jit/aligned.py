"""What kernels ask of the processor's memory: arrays that begin with a cache line, and lines before they are needed.

NumPy's arrays begin wherever the allocator puts them, for large ones 16 bytes into a page: records that are laid out so
that they, or pairs of them, fill a line would then lie across two.

A walk down a tree waits for memory at each step, and a block's cache lines one after the other, unless they are asked
for early. The processor may ignore a prefetch; it never changes a result. Other instructions count the bits of a word,
or work on eight numbers at once, each of which is what it would be alone.
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


LANES = 8  # numbers that an instruction works on at once


def _multiply_add(to: Any, at: Any, a: Any, i: Any, b: Any, j: Any, c: Any, k: Any) -> None:
    """What interpreted kernels do."""
    to[at : at + LANES] = a[i : i + LANES] * b[j : j + LANES] + c[k : k + LANES]


def _dot(a: Any, i: Any, b: Any, j: Any) -> Any:
    products = a[i : i + LANES] * b[j : j + LANES]
    while len(products) > 1:
        products = products[: len(products) // 2] + products[len(products) // 2 :]
    return products[0]


def _lanes_at(context: Any, builder: Any, kind: Any, array: Any, place: Any) -> Any:
    """Return the address of eight numbers of an array."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [place]), ir.VectorType(ir.DoubleType(), LANES).as_pointer())


def _load(context: Any, builder: Any, kinds: Any, arguments: Any) -> list[Any]:
    """Return the eight numbers of each array, which its place follows."""
    pairs = zip(kinds[::2], arguments[::2], arguments[1::2], strict=True)
    places = [_lanes_at(context, builder, kind, array, place) for kind, array, place in pairs]
    return [builder.load(place, align=8) for place in places]


def _multiply_add_lanes(
    _context: Any, to: Any, at: Any, a: Any, i: Any, b: Any, j: Any, c: Any, k: Any
) -> tuple[Signature, Any]:
    signature = types.void(*(one for array in (to, a, b, c) for one in (array, types.int64)))

    def generate(context: Any, builder: Any, signature: Signature, arguments: Any) -> Any:
        x, y, z = _load(context, builder, signature.args[2:], arguments[2:])
        place = _lanes_at(context, builder, signature.args[0], *arguments[:2])
        builder.store(builder.fadd(builder.fmul(x, y), z), place, align=8)
        return context.get_dummy_value()

    return signature, generate


def _dot_lanes(_context: Any, a: Any, i: Any, b: Any, j: Any) -> tuple[Signature, Any]:
    signature = types.float64(a, types.int64, b, types.int64)

    def generate(context: Any, builder: Any, signature: Signature, arguments: Any) -> Any:
        x, y = _load(context, builder, signature.args, arguments)
        total, n, integer = builder.fmul(x, y), LANES, ir.IntType(32)
        while n > 1:
            n //= 2
            halves = [
                builder.shuffle_vector(total, total, ir.Constant(ir.VectorType(integer, n), list(range(start, start + n))))
                for start in (0, n)
            ]
            total = builder.fadd(*halves)
        return builder.extract_element(total, integer(0))

    return signature, generate


# to[at:] = a[i:] * b[j:] + c[k:], and the sum of a[i:] * b[j:], of eight numbers of contiguous float64 arrays.
multiply_add = _multiply_add if numba.config.DISABLE_JIT else intrinsic(_multiply_add_lanes)
dot = _dot if numba.config.DISABLE_JIT else intrinsic(_dot_lanes)
