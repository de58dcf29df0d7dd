"""The working space of the kernels, and the parameters that they read."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Bools, Ints, Reals
from oubli.core.jit.nodes import NIL
from oubli.core.tree.state import MAX_DEPTH

# Slots of `Scratch.rule`, the parameters.
DEPTH_LIMIT = 0  # h
PRUNING_SIZE = 1  # k
HALF_ALPHA = 2
EPSILON = 3

# Slots of `Scratch.state`: of the build at hand, which may stop for more room and be continued.
N_WAITING = 0  # nodes on the stack
STRIDE = 1  # from one list to the next in `lists`
CLASS_BITS = 2
N_CATEGORIES = 3  # local categories of all columns together
IS_WEIGHED = 4  # whether a sample counts for more or less than 1
STATE_SIZE = 5

# Columns of `Scratch.stack`: a node to be split.
NODE = 0
START = 1  # of its entries in the lists of the numeric columns
ORDER_START = 2  # of its entries in list ORDER
HISTOGRAM = 3  # row of the histograms that counts its samples, NIL when none does
STACK_WIDTH = 4
STACK_SIZE = MAX_DEPTH + 4

# Lists behind those of the columns.
ORDER = 0
OTHER = 1  # room for the right side of a partition, and for sorting
SPARE = 2  # room for sorting
N_MORE_LISTS = 3

DIGIT_BITS = 11  # of the radix sort at most

_LINE = 16  # entries of a list that share a cache line, or half of them


class Scratch(NamedTuple):
    """Working space of the kernels; holds nothing between calls but the parameters.

    The samples at hand have positions 0 .. n - 1. List j, from j * stride on, holds

        numeric column j        entries in the order of its values, node by node, missing ones last
        categorical column j    the local category of each position
        d + ORDER               entries, node by node

    where an entry is (position, class, whether its value differs from the one before it) in one integer,
    so that a scan reads nothing else. The last bit belongs to a node's list, not to the sample: partitioning
    passes it on.
    """

    lists: Array  # uint32/64[any]
    values: Array  # cells' type [2, m] a column's values
    keys: Array  # int32/64[2, m] the same memory
    rule: Reals  # float64[4], see above
    state: Ints  # int64[STATE_SIZE]
    stack: Ints  # int64[STACK_SIZE, STACK_WIDTH]
    path: Ints  # int64[STACK_SIZE] nodes from the root on
    pending: Ints  # int64[STACK_SIZE]
    active: Array  # int32[STACK_SIZE, d + 1] number of columns that may split, and which
    totals: Ints  # int64[width] class counts of the node, by weight, ...
    left: Ints  # int64[width] ... those of a left side, ...
    missing: Ints  # int64[width] ... and of the samples without a value
    first_category: Array  # int32[d + 1] local categories before the column's
    has_missing: Bools  # bool[d] whether any value of a numeric column is missing
    categorical: Bools  # bool[d]
    category_keys: Any  # uint64[local categories] their hashes
    places: Array  # int32[n_codes + 1] local category of each code, NIL between calls
    codes: Array  # int32[n_codes + 1] the codes of a column, by local category
    histograms: Array  # int32[any] samples, by weight, by local category and class
    digits: Array  # int32[2, 2 ** DIGIT_BITS] counts of a digit, or two arrays of working space
    slots: Array  # int32[m] by position
    amounts: Array  # int32[m] by position: what a sample counts for, see `core/jit/targets.py`
    sides: Array  # uint8[m] by position: 0 left, 1 right

    @property
    def n_rows(self) -> int:
        """Samples that there is room for."""
        return len(self.slots)

    @property
    def n_codes(self) -> int:
        """Codes of categories that there is room for."""
        return len(self.places) - 1


def bits_of(n_values: int) -> int:
    """Bits that tell `n_values` values apart."""
    return max(n_values - 1, 0).bit_length()


def make_room(
    n_rows: int, n_codes: int, width: int, cell_dtype: npt.DTypeLike, categorical: Bools, rule: Reals
) -> Scratch:
    """Make working space to build on up to `n_rows` samples with `n_codes` codes of categories.

    Parameters
    ----------
    n_rows, n_codes : what there is to be room for.
    width : room for class codes.
    cell_dtype : float32 or float64.
    categorical : bool[d], the columns that hold codes.
    rule : float64[4], see above.
    """
    n_features = len(categorical)
    n_rows = stride_of(n_rows)
    fits = bits_of(n_rows) + bits_of(width) + 1 <= 32
    n_categories = min(n_codes + n_features, n_rows * int(categorical.sum()))
    # Halved with every histogram that is kept at a time, the samples soon are fewer than the categories.
    n_histograms = 3 + bits_of(n_rows // max(n_categories, 1))
    values = np.zeros((2, n_rows), cell_dtype)
    return Scratch(
        lists=np.zeros((n_features + N_MORE_LISTS) * n_rows, np.uint32 if fits else np.uint64),
        values=values,
        keys=values.view(f"i{values.itemsize}"),
        rule=rule.copy(),
        state=np.array([0, 0, bits_of(width), 0, 0], np.int64),
        stack=np.zeros((STACK_SIZE, STACK_WIDTH), np.int64),
        path=np.zeros(STACK_SIZE, np.int64),
        pending=np.zeros(STACK_SIZE, np.int64),
        active=np.zeros((STACK_SIZE, n_features + 1), np.int32),
        totals=np.zeros(width, np.int64),
        left=np.zeros(width, np.int64),
        missing=np.zeros(width, np.int64),
        first_category=np.zeros(n_features + 1, np.int32),
        has_missing=np.zeros(n_features, np.bool_),
        categorical=categorical.copy(),
        category_keys=np.zeros(n_categories, np.uint64),
        places=np.full(n_codes + 1, NIL, np.int32),
        codes=np.zeros(n_codes + 1, np.int32),
        histograms=np.zeros(n_histograms * n_categories * width, np.int32),
        digits=np.zeros((2, 1 << DIGIT_BITS), np.int32),
        slots=np.zeros(n_rows, np.int32),
        amounts=np.zeros(n_rows, np.int32),
        sides=np.zeros(n_rows, np.uint8),
    )


def stride_of(n_rows: int) -> int:
    """Distance of two lists: an odd number of cache lines, so that they do not evict each other."""
    return (-(-n_rows // _LINE) | 1) * _LINE
