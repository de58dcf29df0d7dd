"""What the kernels read beside the tree: the samples, the parameters, and their working space.

Handing an array over from Python takes a good part of the time of an update. So most of the working space lies in
one array, the *arena*, and a kernel begins by making its views: `scratch_of`.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Bools, Hashes, Ints, Reals
from oubli.core.jit.policy import spliced
from oubli.core.tree.state import MAX_DEPTH, NIL

# Slots of `Scratch.rule`, the parameters.
DEPTH_LIMIT = 0  # h
PRUNING_SIZE = 1  # k
HALF_ALPHA = 2
EPSILON = 3
RULE_SIZE = 4

# Slots of `Scratch.state`: of the build at hand, which may stop for more room and go on.
N_WAITING = 0  # nodes on the stack
STRIDE = 1  # from one list to the next in `lists`
CLASS_BITS = 2
N_CATEGORIES = 3  # local categories of all columns together
STATE_SIZE = 4

# Columns of `Scratch.stack`: a node to be split.
NODE = 0
START = 1  # of its entries in the lists of the numeric columns
ORDER_START = 2  # of its entries in list ORDER
HISTOGRAM = 3  # row of the histograms that counts its samples, NIL when none does
STACK_WIDTH = 4
STACK_SIZE = MAX_DEPTH + 4

# Rows of `Scratch.tallies`, class counts.
TOTALS = 0
LEFT = 1
MISSING = 2
N_TALLIES = 3

# Rows of `Scratch.walk`.
PATH = 0
PENDING = 1
N_WALKS = 2

# Rows of `Scratch.columns`.
FIRST_CATEGORY = 0  # local categories before the column's
HAS_MISSING = 1  # whether any value of a numeric column is missing
N_COLUMN_ROWS = 2

# Lists behind those of the columns.
ORDER = 0
OTHER = 1  # room for the right side of a partition, and for sorting
SPARE = 2  # room for sorting
N_MORE_LISTS = 3

DIGIT_BITS = 11  # of the radix sort at most
N_DIGITS = 2  # rows of `Scratch.digits`: of one digit at a time, or two arrays of working space

_LINE = 16  # entries of a list that share a cache line, or half of them


class Samples(NamedTuple):
    """The samples held, by slot; the kernels only read them."""

    cells: Array  # float32/64[n_slots, d]; categorical columns hold codes; NaN: missing
    targets: Ints  # int64[n_slots] class codes
    category_hashes: Hashes  # uint64[n_codes]


class Scratch(NamedTuple):
    """Working space of the kernels; holds nothing between calls but the parameters.

    The samples at hand have positions 0 .. n - 1. List j, from j * stride on, holds

        numeric column j        entries in the order of its values, node by node, missing ones last
        categorical column j    the local category of each position
        d + ORDER               entries, node by node

    where an entry is (position, class, whether its value differs from the one before it) in one integer,
    so that a scan reads nothing else. The last bit says so of a node's list, not of the sample: partitioning
    hands it on.
    """

    lists: Any  # uint32/64[any]
    values: Any  # cells' type [2, m] a column's values
    keys: Any  # int32/64[2, m] the same memory
    # The arena, in this order.
    rule: Any  # float64[RULE_SIZE]
    state: Any  # int64[STATE_SIZE]
    stack: Any  # int64[STACK_SIZE, STACK_WIDTH]
    walk: Any  # int64[N_WALKS, STACK_SIZE]
    active: Any  # int32[STACK_SIZE, d + 1] number of columns that may split, and which
    tallies: Any  # int64[N_TALLIES, width]
    columns: Any  # int32[N_COLUMN_ROWS, d + 1]
    categorical: Any  # bool[d]
    category_keys: Any  # uint64[local categories] their hashes
    places: Any  # int32[n_codes + 1] local category of each code, NIL between calls
    codes: Any  # int32[n_codes + 1] the codes of a column, by local category
    histograms: Any  # int32[any] samples by local category and class
    digits: Any  # int32[N_DIGITS, 2 ** DIGIT_BITS]
    slots: Any  # int32[m] by position
    sides: Any  # uint8[m] by position: 0 left, 1 right


_N_SECTIONS = len(Scratch._fields) - 3
_WORD = 8


class WorkingSpace(NamedTuple):
    """The arrays of a `Scratch`, as they are handed to kernels, and what they have room for."""

    lists: Array
    keys: Array
    arena: Ints  # begins with the ends of its sections
    n_rows: int
    n_codes: int

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.lists.nbytes + self.keys.nbytes + self.arena.nbytes


@spliced
def scratch_of(cells, lists, keys, arena):
    """The views that a kernel works with."""
    return Scratch(
        lists,
        keys.view(cells.dtype),
        keys,
        arena[_N_SECTIONS : arena[0]].view(np.float64),
        arena[arena[0] : arena[1]],
        arena[arena[1] : arena[2]].reshape((STACK_SIZE, STACK_WIDTH)),
        arena[arena[2] : arena[3]].reshape((N_WALKS, STACK_SIZE)),
        arena[arena[3] : arena[4]].view(np.int32).reshape((STACK_SIZE, -1)),
        arena[arena[4] : arena[5]].reshape((N_TALLIES, -1)),
        arena[arena[5] : arena[6]].view(np.int32).reshape((N_COLUMN_ROWS, -1)),
        arena[arena[6] : arena[7]].view(np.bool_),
        arena[arena[7] : arena[8]].view(np.uint64),
        arena[arena[8] : arena[9]].view(np.int32),
        arena[arena[9] : arena[10]].view(np.int32),
        arena[arena[10] : arena[11]].view(np.int32),
        arena[arena[11] : arena[12]].view(np.int32).reshape((N_DIGITS, 1 << DIGIT_BITS)),
        arena[arena[12] : arena[13]].view(np.int32),
        arena[arena[13] : arena[14]].view(np.uint8),
    )


def bits_of(n_values: int) -> int:
    """Bits that tell `n_values` values apart."""
    return max(n_values - 1, 0).bit_length()


def make_room(
    n_rows: int, n_codes: int, width: int, cell_dtype: npt.DTypeLike, categorical: Bools, rule: Reals
) -> WorkingSpace:
    """Make working space to build on up to `n_rows` samples with `n_codes` codes of categories.

    Parameters
    ----------
    n_rows, n_codes : what there is to be room for.
    width : room for class codes.
    cell_dtype : float32 or float64.
    categorical : bool[d], the columns that hold codes.
    rule : float64[RULE_SIZE]
    """
    n_features = len(categorical)
    n_rows = stride_of(n_rows)
    itemsize = np.dtype(cell_dtype).itemsize
    fits = bits_of(n_rows) + bits_of(width) + 1 <= 32
    n_categories = min(n_codes + n_features, n_rows * int(categorical.sum()))
    # Halved with every histogram that is kept at a time, the samples soon are fewer than the categories.
    n_histograms = 3 + bits_of(n_rows // max(n_categories, 1))
    sizes = [  # bytes, in the order of the fields of Scratch
        8 * RULE_SIZE,
        8 * STATE_SIZE,
        8 * STACK_SIZE * STACK_WIDTH,
        8 * N_WALKS * STACK_SIZE,
        4 * STACK_SIZE * (n_features + 1),
        8 * N_TALLIES * width,
        4 * N_COLUMN_ROWS * (n_features + 1),
        n_features,
        8 * n_categories,
        4 * (n_codes + 1),
        4 * (n_codes + 1),
        4 * n_histograms * n_categories * width,
        4 * N_DIGITS << DIGIT_BITS,
        4 * n_rows,
        n_rows,
    ]
    ends = _N_SECTIONS + np.cumsum([-(-size // _WORD) for size in sizes])
    arena = np.zeros(int(ends[-1]), np.int64)
    arena[:_N_SECTIONS] = ends
    fields = Scratch._fields[3:]
    section = {name: arena[end - -(-size // _WORD) : end] for name, size, end in zip(fields, sizes, ends, strict=True)}
    section["rule"].view(np.float64)[:] = rule
    section["state"][CLASS_BITS] = bits_of(width)
    section["categorical"].view(np.bool_)[:n_features] = categorical
    section["places"][:] = NIL
    lists = np.zeros((n_features + N_MORE_LISTS) * n_rows, np.uint32 if fits else np.uint64)
    return WorkingSpace(lists, np.zeros((2, n_rows), f"i{itemsize}"), arena, n_rows, n_codes)


def stride_of(n_rows: int) -> int:
    """Distance of two lists: an odd number of cache lines, so that they do not evict each other."""
    return (-(-n_rows // _LINE) | 1) * _LINE
