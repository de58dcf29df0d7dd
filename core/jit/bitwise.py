"""Instructions of the processor for the bits of a word."""

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba.core import types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic


def _ones(word: Any) -> int:
    """What interpreted kernels do."""
    return int(word).bit_count()


def _trailing_zeros(word: Any) -> int:
    return (int(word) & -int(word)).bit_length() - 1 if word else 64


def _make(generate_one: Callable[[Any, Any], Any], interpreted: Callable[[Any], int]) -> Any:
    """Make a function of a uint64 that returns int64."""

    def instruction(_context: Any, word: Any) -> tuple[Signature, Any]:
        def generate(_context: Any, builder: Any, _signature: Signature, arguments: Any) -> Any:
            return generate_one(builder, arguments[0])

        return types.int64(types.uint64), generate

    return interpreted if numba.config.DISABLE_JIT else intrinsic(instruction)


# The number of ones; and the number of zeros below the lowest one, 64 where there is none.
count_ones = _make(lambda builder, word: builder.ctpop(word), _ones)
trailing_zeros = _make(lambda builder, word: builder.cttz(word, ir.IntType(1)(0)), _trailing_zeros)
