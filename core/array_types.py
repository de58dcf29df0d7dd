"""The arrays that functions take and return, by the type of their numbers."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
Bools = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Slots = Ints
Reals = npt.NDArray[np.float64]
