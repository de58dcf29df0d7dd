"""The trees as predictions read them: the same for every engine.

    roots   [ 0 | 39 | 78 | ... ]          iteration-major: tree m * groups + k
    nodes   [ root  l r l r ... | root  l r ... ]
              left ---^             children in pairs: right = left + 1

A raw score is base[k] + unit * (sum of the values of the leaves that the trees of group k lead to), the sum first
and in the order of the iterations. An engine whose values are integers (and unit what they are multiples of) thus sums
without rounding.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.jit.policy import pasted

LEAF = -1

NODE = np.dtype(
    {
        "names": ["threshold", "category", "value", "feature", "left", "missing_left", "is_categorical"],
        "formats": ["f8", "u8", "f8", "i4", "i4", "u1", "u1"],
        # threshold:       numeric splits: `x <= threshold` goes left
        # category:        categorical splits (same 8 bytes): hash of the value that goes left, all others go right
        # value:           of a leaf, in units; 0 at inner nodes
        # feature:         column that the split reads; LEAF at a leaf
        # left:            row of the left child, the right one follows; 0 at a leaf
        # missing_left:    numeric splits: whether a missing value goes left
        # is_categorical:  whether the split is on a category
        "offsets": [0, 0, 8, 16, 20, 24, 25],
        "itemsize": 32,
    }
)


class Trees(NamedTuple):
    """What predictions read."""

    nodes: Any  # NODE[n_nodes]
    roots: npt.NDArray[np.int32]  # int32[n_trees]
    base: npt.NDArray[np.float64]  # float64[groups]: F_0
    unit: float

    @property
    def n_groups(self) -> int:
        """Trees an iteration; 0 when there is nothing to choose."""
        return len(self.base)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return int(self.nodes.nbytes + self.roots.nbytes + self.base.nbytes)


def no_trees() -> Trees:
    """What a model without samples, or with one class, predicts from."""
    return Trees(np.zeros(0, NODE), np.zeros(0, np.int32), np.zeros(0, np.float64), 1.0)


@pasted
def goes_right(nodes, node, cells, row, category_hashes, missing_category):
    """Side of a row at an inner node: 0 left, 1 right."""
    x = cells[row, nodes[node]["feature"]]
    if nodes[node]["is_categorical"]:
        value = missing_category if np.isnan(x) else category_hashes[np.int64(x)]
        return np.int64(value != nodes[node]["category"])
    if np.isnan(x):
        return np.int64(nodes[node]["missing_left"] == 0)
    return np.int64(x > nodes[node]["threshold"])
