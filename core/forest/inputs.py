"""What the kernels read: the samples, the parameters, and their working space."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from core.forest.nodes import NIL, NODE_DTYPE

# Slots of the parameter array, int64.
N_TREES = 0
OCCURRENCES = 1  # k, trees a sample
MAX_DEPTH = 2  # root has depth 0
MIN_SAMPLES_SPLIT = 3
MAX_FEATURES = 4  # p, attributes a node
CRITERION = 5
IS_REGRESSION = 6
BLOCK_MINIMUM = 7  # samples from which on a node keeps candidate counters
PARAMETERS_SIZE = 8

UNLIMITED_DEPTH = 2**31 - 1

# Every walk over a subtree puts off the child with more samples and takes the other first, which has
# at most half of the node's. So at most log2(n) children are put off, and n < 2**31.
STACK_SIZE = 64


class Data(NamedTuple):
    """The samples held, by slot; the kernels only read them."""

    cells: npt.NDArray[Any]  # float32/64[n_slots, d]; categorical columns hold codes; NaN: missing
    targets: npt.NDArray[np.int64]  # int64[n_slots] class codes or quantised targets
    id_hashes: npt.NDArray[np.uint64]  # uint64[n_slots]
    category_hashes: npt.NDArray[np.uint64]  # uint64[n_codes]
    categorical: npt.NDArray[np.bool_]  # bool[d]


class Parameters(NamedTuple):
    """Constants of a model."""

    values: npt.NDArray[np.int64]  # int64[PARAMETERS_SIZE]
    seed_key: npt.NDArray[np.uint64]  # uint64[1]


class Scratch(NamedTuple):
    """Working space of the kernels, one per thread; holds nothing between calls."""

    rows: npt.NDArray[np.int32]  # int32[m] slots of the samples at hand, m: samples in a tree
    entries: npt.NDArray[np.int32]  # int32[m] their entries, in step with `rows`
    right_rows: npt.NDArray[np.int32]  # int32[m] for partitioning
    right_entries: npt.NDArray[np.int32]  # int32[m]
    values: npt.NDArray[Any]  # cells' type [p, m] gathered columns
    category_places: npt.NDArray[np.int32]  # int32[n_codes + 1] NIL between calls
    category_codes: npt.NDArray[np.int32]  # int32[n_codes + 1] codes of the categories at hand
    category_keys: npt.NDArray[np.uint64]  # uint64[n_codes + 1] their hashes
    category_statistics: npt.NDArray[np.int64]  # int64[n_codes + 1, width]
    permutation: npt.NDArray[np.int32]  # int32[max(d, T)] identity between calls
    swaps: npt.NDArray[np.int32]  # int32[d] to undo the shuffle of `permutation`
    left: npt.NDArray[np.int64]  # int64[width] left side of a candidate
    lefts: npt.NDArray[np.int64]  # int64[2, s] first class and all samples left of each candidate
    scores: npt.NDArray[np.float64]  # float64[s]
    leaf: npt.NDArray[np.int64]  # int64[1, width] statistics of a leaf that is in no tree
    choice: Any  # SPLIT_DTYPE[1] the split found last
    node: Any  # NODE_DTYPE[1] a node that is in no tree
    stack: npt.NDArray[np.int64]  # int64[STACK_SIZE, 4] node, start, end, depth
    keys: npt.NDArray[np.uint64]  # uint64[STACK_SIZE] their keys
    pending: npt.NDArray[np.int64]  # int64[STACK_SIZE, 2] node, depth; for walks around `stack`'s
    pending_keys: npt.NDArray[np.uint64]  # uint64[STACK_SIZE] their keys


SPLIT_DTYPE = np.dtype(
    {
        "names": ["threshold", "category", "score", "attribute", "candidate", "kind"],
        "formats": ["f8", "u8", "f8", "i4", "i4", "u1"],
        "offsets": [0, 0, 8, 16, 20, 24],  # threshold and category share bytes, as in NODE_DTYPE
        "itemsize": 32,
    }
)


def empty_scratch(
    n_rows: int,
    n_codes: int,
    n_attributes: int,
    n_thresholds: int,
    n_features: int,
    n_trees: int,
    width: int,
    cell_dtype: npt.DTypeLike,
) -> Scratch:
    """Make working space for up to `n_rows` samples a tree and `n_codes` codes of categories."""
    return Scratch(
        rows=np.zeros(n_rows, np.int32),
        entries=np.zeros(n_rows, np.int32),
        right_rows=np.zeros(n_rows, np.int32),
        right_entries=np.zeros(n_rows, np.int32),
        values=np.zeros((n_attributes, n_rows), cell_dtype),
        category_places=np.full(n_codes + 1, NIL, np.int32),
        category_codes=np.zeros(n_codes + 1, np.int32),
        category_keys=np.zeros(n_codes + 1, np.uint64),
        category_statistics=np.zeros((n_codes + 1, width), np.int64),
        permutation=np.arange(max(n_features, n_trees), dtype=np.int32),
        swaps=np.zeros(n_features, np.int32),
        left=np.zeros(width, np.int64),
        lefts=np.zeros((2, n_thresholds), np.int64),
        scores=np.zeros(n_thresholds),
        leaf=np.zeros((1, width), np.int64),
        choice=np.zeros(1, SPLIT_DTYPE),
        node=np.zeros(1, NODE_DTYPE),
        stack=np.zeros((STACK_SIZE, 4), np.int64),
        keys=np.zeros(STACK_SIZE, np.uint64),
        pending=np.zeros((STACK_SIZE, 2), np.int64),
        pending_keys=np.zeros(STACK_SIZE, np.uint64),
    )
