"""The data that the kernels read beside the trees: samples, parameters, and their working space."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Hashes, Ints, Reals

# The constants of a model as the kernels read them; kernels that do not say otherwise read the first record.
PARAMETERS = np.dtype(
    [
        ("seed_key", "u8"),
        *(
            (name, "i8")
            for name in (
                # See `ForestSettings`; k and p of the paper are `occurrences` and `max_features`.
                "n_trees", "occurrences", "max_depth", "min_samples_split", "max_features", "n_thresholds", "criterion",
                "is_regression",
                "has_weights",  # whether targets may have them
                "has_low_disclosure",
                "block_minimum",  # samples from which on a node keeps candidate counters
                "n_chosen",  # samples of a node that its candidates depend on, at most
                "width",  # columns of statistics
                # See `Layout` in `blocks.py`.
                "n_counters", "totals_at", "skipped_at", "attributes_at", "counters_at", "counters_stride",
                "categories_at", "categories_stride", "size",
            )
        ),
    ]
)  # fmt: skip

# Every walk over a subtree puts off the child with more samples and takes the other first, which has
# at most half of the node's. So at most log2(n) children are put off, and n < 2**31.
STACK_SIZE = 64
# Walks that go down in step while a query is answered, and the rows of their working space: where the walks
# that have not arrived are, whose they are, and where each walk has come to.
N_LANES = 256
NODES = 0
OWNERS = 1
ENDS = 2

# Candidates are scored as soon as so many are listed; the rows of `Scratch.listed` and of `Scratch.lefts`.
N_LISTED = 256
USED, CANDIDATE = 0, 1
AMOUNT, SIZE = 0, 1

# Cells are copied of so many samples at least, and for so many cells at the most: what is copied has to stay in the
# caches. Above, the cells of a subtree are copied when growing comes to one that is small enough.
LEAST_COPIED = 32
MAX_COPIED_CELLS = 2**21

# Loops over a gathered column run over a multiple of this many values, so that the small nodes, of which
# there are most, run through vector registers too.
PADDING = 32

# Candidates of a categorical attribute that the others are compared with; see `blocks.py`.
N_COMPARED = 64

# Slots of `Scratch.work`.
WORKED = 0  # samples looked at, counted again at each level
WORKING_BLOCK = 1  # where candidates of a node without a block of its own are counted
GATHERED = 2  # position of the first sample of the node examined last, if all of them are still gathered, else NIL
N_GATHERS = 3  # how often samples have been gathered
COPIED = 4  # position of the first sample of the node examined last whose cells have been copied, or NIL

AT_HAND = STACK_SIZE  # row of `Scratch.constants` for the node at hand; the others belong to the stack


class Scratch(NamedTuple):
    """Working space of the kernels, one per thread; holds nothing between calls."""

    # The samples at hand have positions 0 .. n-1; m: samples in a tree.
    entries: npt.NDArray[np.int32]  # int32[m] by position
    slots: npt.NDArray[np.int32]  # int32[m] by position
    targets: Ints  # int64[m] by position
    id_hashes: Hashes  # uint64[m] by position
    words: npt.NDArray[np.uint64]  # uint64[m, ceil(d / 64) or 0] by position: the bit rows
    columns: Array  # cells' type [d, any]: a copy of the cells by position, see `copy_columns`
    order: npt.NDArray[np.int32]  # int32[m] positions, node by node
    right: npt.NDArray[np.int32]  # int32[m] for partitioning
    node_targets: Ints  # int64[m] targets of the node at hand, perhaps with other numbers for the classes
    class_places: npt.NDArray[np.int32]  # int32[width] these numbers by class, NIL between calls
    class_codes: npt.NDArray[np.int32]  # int32[width] the classes that have one
    node_hashes: Hashes  # uint64[m] its hashes of ids
    node_words: npt.NDArray[np.uint64]  # uint64[ceil(d / 64) or 0, m] its bit rows, word by word
    values: Array  # cells' type [m] a gathered column
    value_bits: Array  # int32/64[m] the same memory
    bit_constants: tuple[Any, Any]  # of the bits' type: all but the sign, infinity
    end: Array  # cells' type [1] an end of a range
    end_bits: Array  # int32/64[1] the same memory
    number: Reals  # float64[1] whose bits are looked at
    number_bits: Ints  # int64[1] the same memory
    places: npt.NDArray[np.int32]  # int32[m] counter of each gathered value
    category_places: npt.NDArray[np.int32]  # int32[n_codes + 1] NIL between calls
    category_codes: npt.NDArray[np.int32]  # int32[n_codes + 1] codes of the categories at hand
    category_keys: Hashes  # uint64[n_codes + 1] their hashes
    category_statistics: Ints  # int64[n_codes + 1, width]
    category_chosen: npt.NDArray[np.int32]  # int32[n_codes + 1] how many of the chosen samples they have
    isolated: Hashes  # uint64[N_COMPARED] the categories that candidates isolate
    isolated_places: npt.NDArray[np.int32]  # int32[s] where in `category_keys` that of a candidate is
    divisions: Hashes  # uint64[N_COMPARED] how candidates divide them
    chosen: npt.NDArray[np.int32]  # int32[m] the chosen samples of the node at hand, counted from its first
    chosen_bits: Hashes  # uint64[2, ceil(d / 64) or 0] bit columns in which they have a zero, and a one
    permutation: npt.NDArray[np.int32]  # int32[max(d, T)] identity between calls
    swaps: npt.NDArray[np.int32]  # int32[d] to undo the shuffle of `permutation`
    found: npt.NDArray[np.int32]  # int32[d] attributes drawn that may be of use
    path_nodes: npt.NDArray[np.int32]  # int32[T] where a sample is in each of its trees
    path_blocks: npt.NDArray[np.int32]  # int32[T] the blocks there
    constants: Hashes  # uint64[STACK_SIZE + 1, ceil(d / 64)] columns known to be constant, a bit each
    differing: Hashes  # uint64[d / 64] columns in which two samples differ, a bit each
    totals: Ints  # int64[width] the node's statistics
    left: Ints  # int64[width] left side of a candidate
    listed: npt.NDArray[np.int32]  # int32[2, N_LISTED + cells] candidates: the attribute's place, the number
    lefts: Reals  # float64[2, N_LISTED + cells] their left sides: samples of the first class or sum of targets; samples
    scores: Reals  # float64[N_LISTED + cells] and their scores
    score_bits: Ints  # int64[N_LISTED + cells] the same memory
    leaf: Ints  # int64[1, width] statistics of a leaf that is in no tree
    choice: Any  # SPLIT_DTYPE[1] the split found last
    node: Any  # NODE_DTYPE[1] a node that is in no tree
    work: Ints  # int64[4] see above
    stack: Ints  # int64[STACK_SIZE, 4] node, start, end, depth
    keys: Hashes  # uint64[STACK_SIZE] their keys
    pending: Ints  # int64[STACK_SIZE, 4] node, depth, position of its first sample, gather; for walks around `stack`'s
    pending_keys: Hashes  # uint64[STACK_SIZE] their keys


class Scoring(NamedTuple):
    """The part of the working space that scoring candidates uses; the names are those of `Scratch`.

    A call of a compiled function hands over every field of every array, which for all of `Scratch` takes as long as
    scoring a few columns does.
    """

    totals: Ints
    left: Ints
    listed: npt.NDArray[np.int32]
    lefts: Reals
    scores: Reals
    score_bits: Ints
    choice: Any
    number: Reals
    number_bits: Ints
    end: Array


class UpdateScratch(NamedTuple):
    """The part of the working space that a mutation uses.

    Handing an array over from Python takes longer than passing a node, so it gets only what it needs.
    """

    permutation: npt.NDArray[np.int32]
    path_nodes: npt.NDArray[np.int32]
    path_blocks: npt.NDArray[np.int32]
    differing: Hashes

    @classmethod
    def part_of(cls, scratch: Scratch) -> "UpdateScratch":
        """Take the part of a whole working space; the arrays are shared."""
        return cls(*(getattr(scratch, name) for name in cls._fields))


SPLIT_DTYPE = np.dtype(
    {
        "names": ["threshold", "category", "score", "attribute", "candidate", "used", "kind"],
        # candidate: number within the attribute's candidates; used: place of the attribute in the block
        "formats": ["f8", "u8", "f8", "i4", "i4", "i4", "u1"],
        "offsets": [0, 0, 8, 16, 20, 24, 28],  # threshold and category share bytes, as in NODE_DTYPE
        "itemsize": 32,
    }
)


def empty_scratch(
    n_rows: int,
    n_codes: int,
    n_cells: int,
    n_features: int,
    n_words: int,
    n_trees: int,
    width: int,
    cell_dtype: npt.DTypeLike,
    node_dtype: npt.DTypeLike,
) -> Scratch:
    """Make working space for up to `n_rows` samples a tree and `n_codes` codes of categories."""
    n_copied = min(n_rows, MAX_COPIED_CELLS // n_features)
    # No power of two lies between two columns: they would evict each other from the cache.
    n_places = (n_copied | 63) + 18 if n_copied >= LEAST_COPIED else 0
    # Where not all samples are copied at once, those of a subtree that are get positions of their own.
    n_positions = n_rows + (n_places if n_copied < n_rows else 0)
    n_padded = n_rows + PADDING
    n_listed = N_LISTED + n_cells
    scores = np.zeros(n_listed)
    number = np.zeros(1)
    values = np.zeros(n_padded, cell_dtype)
    end = np.zeros(1, cell_dtype)
    integer = np.dtype(f"i{values.itemsize}").type
    infinity = np.array([np.inf], cell_dtype)
    bit_constants = integer(np.iinfo(integer).max), infinity.view(integer)[0]
    return Scratch(
        entries=np.zeros(n_positions, np.int32),
        slots=np.zeros(n_positions, np.int32),
        targets=np.zeros(n_positions, np.int64),
        id_hashes=np.zeros(n_positions, np.uint64),
        words=np.zeros((n_positions, n_words), np.uint64),
        columns=np.zeros((n_features, n_places), cell_dtype),
        order=np.zeros(n_rows, np.int32),
        right=np.zeros(n_rows, np.int32),
        node_targets=np.zeros(n_rows, np.int64),
        class_places=np.full(width, -1, np.int32),
        class_codes=np.zeros(width, np.int32),
        node_hashes=np.zeros(n_rows, np.uint64),
        node_words=np.zeros((n_words, (n_rows | 63) + 18), np.uint64),
        values=values,
        value_bits=values.view(integer),
        bit_constants=bit_constants,
        end=end,
        end_bits=end.view(integer),
        number=number,
        number_bits=number.view(np.int64),
        places=np.zeros(n_padded, np.int32),
        category_places=np.full(n_codes + 1, -1, np.int32),
        category_codes=np.zeros(n_codes + 1, np.int32),
        category_keys=np.zeros(n_codes + 1, np.uint64),
        category_statistics=np.zeros((n_codes + 1, width), np.int64),
        category_chosen=np.zeros(n_codes + 1, np.int32),
        isolated=np.zeros(N_COMPARED, np.uint64),
        isolated_places=np.zeros(n_cells, np.int32),
        divisions=np.zeros(N_COMPARED, np.uint64),
        chosen=np.zeros(n_rows, np.int32),
        chosen_bits=np.zeros((2, n_words), np.uint64),
        permutation=np.arange(max(n_features, n_trees), dtype=np.int32),
        swaps=np.zeros(n_features, np.int32),
        found=np.zeros(n_features, np.int32),
        path_nodes=np.zeros(n_trees, np.int32),
        path_blocks=np.zeros(n_trees, np.int32),
        constants=np.zeros((STACK_SIZE + 1, -(-n_features // 64)), np.uint64),
        differing=np.zeros(-(-n_features // 64), np.uint64),
        totals=np.zeros(width, np.int64),
        left=np.zeros(width, np.int64),
        listed=np.zeros((2, n_listed), np.int32),
        lefts=np.zeros((2, n_listed)),
        scores=scores,
        score_bits=scores.view(np.int64),
        leaf=np.zeros((1, width), np.int64),
        choice=np.zeros(1, SPLIT_DTYPE),
        node=np.zeros(1, node_dtype),
        work=np.zeros(5, np.int64),
        stack=np.zeros((STACK_SIZE, 4), np.int64),
        keys=np.zeros(STACK_SIZE, np.uint64),
        pending=np.zeros((STACK_SIZE, 4), np.int64),
        pending_keys=np.zeros(STACK_SIZE, np.uint64),
    )
