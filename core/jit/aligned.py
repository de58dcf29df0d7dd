"""Arrays that begin with a cache line.

NumPy's own begin wherever the allocator puts them, for large ones 16 bytes into a page: records that are laid out so
that they, or pairs of them, fill a line would then lie across two.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

_LINE = 64  # bytes


def zeros(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return what `np.zeros` does, its first byte at the beginning of a cache line."""
    dtype = np.dtype(dtype)
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    room = np.zeros(n_bytes + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    return room[start : start + n_bytes].view(dtype).reshape(shape)


def shred(arrays: Iterable[npt.NDArray[Any]]) -> None:
    """Overwrite arrays that are about to be let go of, so that freed memory does not hold what they held."""
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
