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

from oubli.core.array_types import Bools, Ints
from oubli.core.jit.policy import pasted
from oubli.core.samples.arrays import Data
from oubli.core.samples.hashing import hashes_of

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


def no_trees() -> Trees:
    """What a model without samples, or with one class, predicts from."""
    return Trees(np.zeros(0, NODE), np.zeros(0, np.int32), np.zeros(0, np.float64), 1.0)


def are_right(record: Any, data: Data, slots: Ints) -> Bools:
    """Sides of samples at an inner node, in array operations; True goes right."""
    values = data.cells[slots, int(record["feature"])]
    if record["is_categorical"]:
        return np.asarray(hashes_of(values, data.category_hashes) != record["category"])
    return np.where(np.isnan(values), not record["missing_left"], values > record["threshold"])


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


@pasted
def make_leaf(nodes, row, value):
    """Make a node a leaf with a value."""
    nodes[row]["category"] = np.uint64(0)
    nodes[row]["value"] = np.float64(value)
    nodes[row]["feature"] = np.int32(LEAF)
    nodes[row]["left"] = np.int32(0)
    nodes[row]["missing_left"] = np.uint8(0)
    nodes[row]["is_categorical"] = np.uint8(0)


@pasted
def make_split(nodes, row, feature, left, missing_left, is_categorical):
    """Make a node an inner node; its threshold or category is for the caller to write."""
    nodes[row]["value"] = 0.0
    nodes[row]["feature"] = np.int32(feature)
    nodes[row]["left"] = np.int32(left)
    nodes[row]["missing_left"] = np.uint8(missing_left)
    nodes[row]["is_categorical"] = np.uint8(is_categorical)
