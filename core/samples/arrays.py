"""The samples held, as every kind's kernels read them."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Data(NamedTuple):
    """The samples held, by slot; the kernels only read them."""

    cells: npt.NDArray[Any]  # float32/64[n_slots, d]; categorical columns hold codes; NaN: missing
    targets: npt.NDArray[np.int64]  # int64[n_slots] class codes or quantised targets
    id_hashes: npt.NDArray[np.uint64]  # uint64[n_slots]
    category_hashes: npt.NDArray[np.uint64]  # uint64[n_codes]
    categorical: npt.NDArray[np.bool_]  # bool[d]
