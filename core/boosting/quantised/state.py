"""What the quantised engine keeps: bins of the samples, candidates of the iterations, nodes of the trees.

A tree is a complete heap, the children of node v being 2v + 1 and 2v + 2. Every leaf has a *label*, the place in the
lowest level of its leftmost descendant there, so the samples below a node are those whose labels lie in one range,
and one byte a sample and tree says where the sample is:

    depth 0                 0
    depth 1         1               2           node 1: labels 0 to 3
    depth 2      3     4         5     6        node 4: labels 2 and 3
    depth 3     7 8   9 10    11 12  13 14
    label       0 1   2 3      4 5    6 7

Nodes above the greatest depth that are heavy enough to be split keep a *histogram*: sums of packed derivatives of
their samples over the *places* of the iteration, that is the bins that its candidates tell apart.

    bin         number of a code of a feature, over all features: first_bin[feature] + code
    place       where an iteration counts a bin: places[iteration, bin]; a feature's places are neighbours, in the
                order of its values, missing values last (of a category: by rank, see `bins.py`)
    row         the bins of a sample. A feature's commonest bin may be left out of all rows; the sum of a feature's
                places is then short of the node's total by what belongs there
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Hashes, Ints, Reals

NO_BLOCK = -1
LEAF = -1
ABSENT = -2

NODE = np.dtype(
    {
        "names": ["total", "first_total", "feature", "cut", "value", "block", "count", "missing_left"],
        "formats": ["i8", "i8", "i4", "i4", "i4", "i4", "i4", "u1"],
        # total:         packed sum of the derivatives of the samples below
        # first_total:   the same of the derivatives at F_0; of nodes up to depth `top`
        # feature:       column that the split reads; LEAF, or ABSENT where the tree does not reach
        # cut:           code: numeric splits send codes up to it left, categorical ones itself
        # value:         of a leaf, in units
        # block:         row of `pool` with the histogram, NO_BLOCK: none
        # count:         samples below, those that validate included
        # missing_left:  numeric splits: whether missing values go left
        "offsets": [0, 8, 16, 20, 24, 28, 32, 36],
        "itemsize": 40,
    }
)

N_FREE, META_SIZE = range(2)  # slots of `meta`: the length of the list of free blocks


class Bins(NamedTuple):
    """The samples as codes."""

    codes: Array  # uint8/16[d, slots]
    rows: Array  # uint16/32[slots, width], padded by the bin behind the last
    first_bin: npt.NDArray[np.int32]  # int32[d + 1]
    missing_code: npt.NDArray[np.int32]  # int32[d]: the code of missing values; -1 in a categorical column
    common_bin: npt.NDArray[np.int32]  # int32[d]: the bin that rows leave out, -1 if none


class Plans(NamedTuple):
    """The candidates of each iteration."""

    places: Array  # uint16/32[iterations, bins + 1]
    first_place: npt.NDArray[np.int32]  # int32[iterations, d + 1]
    cuts: npt.NDArray[np.int32]  # int32[iterations, places]: the code that the candidate at a place cuts at; -1: none
    draws: npt.NDArray[np.uint8]  # uint8[iterations, places]: see `split.py`
    common_place: npt.NDArray[np.int32]  # int32[iterations, d]: where a feature's common bin is counted, -1 if none


class Forest(NamedTuple):
    """The trees, iteration-major."""

    nodes: Any  # NODE[trees, 2 ** (depth + 1) - 1]
    leaf_of: Array  # uint16[trees, slots]: labels; 2 ** depth where there is no sample
    pool: Ints  # int64[blocks, places]: histograms
    free: npt.NDArray[np.int32]  # int32[blocks]: free blocks, the first meta[N_FREE] of it
    meta: Ints


class Rules(NamedTuple):
    """The numbers that decide splits and leaves; derivatives are integers, see `derivatives.py`."""

    depth: int  # greatest depth of a leaf, levels of regions included
    levels: int  # of regions: nodes above this depth have the splits of `cuts`, see `regions.py`
    top: int  # nodes from there on above this depth are split by the derivatives at F_0
    least_weight: float  # hessian that a side has to have, in its integer unit
    regularisation: float  # what is added to a hessian, in its integer unit
    leaf_scale: float  # from -G / H in integers to units
    leaf_limit: float  # greatest size of a leaf's value, in units
    least_gain: float  # what a split has to gain, as a share of the parent's score
    cuts: Ints  # int64[2**levels - 1, 3]: feature, cut and missing_left of the uppermost nodes
    directions: Ints  # int64[d]: 1 or -1 of a column with a monotone constraint; empty when there is none
    weights: Reals  # float64[depth + 1, 256]: what gains are multiplied by, see `split.py`


class Samples(NamedTuple):
    """What derivatives depend on, by slot."""

    roles: npt.NDArray[np.uint8]  # uint8[slots]: ABSENT_SAMPLE, TRAINS or VALIDATES
    labels: npt.NDArray[np.int32]  # int32[slots]: ranks of the classes
    y: Reals  # float64[slots]: targets of a regression; or empty
    rounding: npt.NDArray[np.uint32]  # uint32[slots]: hash of (seed, id)
    first: Ints  # int64[groups, slots]: packed derivatives at F_0
    units: npt.NDArray[np.int32]  # int32[slots]: weights; empty when all are 1


class Scores(NamedTuple):
    """Sums of leaf values, in units, F_0 included."""

    new: npt.NDArray[np.int32]  # int32[groups, slots]: by the trees so far
    old: npt.NDArray[np.int32]  # int32[groups, slots]: the same before an update
    kept: npt.NDArray[np.int32]  # int32[n, groups, slots]: before every EVERY-th iteration
    losses: Ints  # int64[iterations]: loss of the samples that validate, after each iteration


class Space(NamedTuple):
    """Working space."""

    members: npt.NDArray[np.int32]  # int32[slots]
    spare: npt.NDArray[np.int32]  # int32[slots]
    packed: Ints  # int64[groups, slots]
    first: Ints  # int64[heap + 1]
    last: Ints  # int64[heap + 1]
    sums: Ints  # int64[places]: a histogram that no node keeps
    bounds: Ints  # int64[regions + 1]: where each region's samples begin in a list of all
    grows: npt.NDArray[np.uint8]  # uint8[regions]: whether trees are to be grown there
    root: Ints  # int64[groups * regions, bins + 1]: derivatives at F_0 of all samples
    found: Ints  # int64[4]: the split found, see `split.py`
    lefts: Ints  # int64[places]: what candidates send left
    gains: Reals  # float64[places]: their weighted gains


class Loss(NamedTuple):
    """What derivatives are computed by; a function of the parameters, and of the spread in a regression."""

    kind: int
    steps: int  # N
    table: npt.NDArray[np.int64]  # N p in steps of 2**-32 by score + zero; of several classes, e^-(score / unit)
    zero: int
    weights: npt.NDArray[np.int64]  # int64[N + 1]: H[q]
    base: float  # regression: F_0
    unit: float  # what scores are multiples of
    inverse_grid: float  # regression: 1 / (grid * spread)
    inverse_spread: float  # regression: 1 / spread
    level: float  # of a loss of `core/boosting/loss.py`
    band: float  # of the same
    curvature: float  # what its second derivative is multiplied by


class Model(NamedTuple):
    """All that kernels read and write, but for the samples of an update."""

    forest: Forest
    bins: Bins
    plans: Plans
    rules: Rules
    samples: Samples
    scores: Scores
    space: Space
    loss: Loss
    seed_key: np.uint64


ABSENT_SAMPLE = 0
TRAINS = 1
VALIDATES = 2
MOVING = 4  # added to either while an update is under way

EVERY = 8  # iterations between scores that are kept


class Change(NamedTuple):
    """The samples that come and go in an update, and working space for it."""

    slots: npt.NDArray[np.int32]  # int32[m]
    joins: npt.NDArray[np.uint8]  # uint8[m]: 1 a sample that comes, 0 one that goes
    steps: npt.NDArray[np.int32]  # int32[2 * groups, m]: the leaf's value in the iteration at hand; spare
    drifting: npt.NDArray[np.int32]  # int32[slots]: samples held whose scores differ from before, while they are few
    is_listed: npt.NDArray[np.uint8]  # uint8[slots]: whether a slot is in `drifting`
    touched: npt.NDArray[np.int32]  # int32[slots]: samples held whose derivatives change
    marks: npt.NDArray[np.uint8]  # uint8[8 * words], for at least as many slots as there are
    mark_words: Hashes  # uint64[words]: the same, eight at once
    derived: npt.NDArray[np.int32]  # int32[slots]: the iteration that a sample was derived in last; -1: none
    before: Ints  # int64[groups, slots]: packed derivatives before the update
    labels: Array  # uint16[groups, slots]: leaves before, of trees that are rebuilt
    is_rebuilt: npt.NDArray[np.uint8]  # uint8[groups]: whether `labels` holds those of a group's tree
    values: npt.NDArray[np.int32]  # int32[groups + 1, labels]: values before by label; the last row is spare
    past: npt.NDArray[np.int32]  # int32[EVERY * groups, labels]: values by label since scores were kept last
    deltas: Ints  # int64[inner nodes, places]: what is to be added to the histograms; zero between
    totals: Ints  # int64[heap]: what is to be added to the totals; zero between
    first_totals: Ints  # int64[heap]: the same of the derivatives at F_0
    counts: npt.NDArray[np.int32]  # int32[heap]: what is to be added to the counts; zero between
    states: npt.NDArray[np.uint8]  # uint8[heap]: of the nodes of the tree at hand
    report: Ints  # int64[REPORT_SIZE]


# Slots of `report`:
#     DRIFTS          whether `scores` holds for all samples, as it does when many drift; or only for those listed
#     FIRST_TREE      the first tree of which a split or a leaf's value changed; -1: none yet
#     N_TOUCHED       samples whose derivatives changed, over all trees
#     N_TREES         trees of which a split or a leaf's value changed
#     N_NODES         nodes whose subtrees were rebuilt
#     N_MEMBERS       samples in these, over all trees
#     N_BUSY          iterations in a row that were as much work as growing them from nothing
#     BEST_ITERATION  with the lowest validation loss so far
#     N_WORK          what rebuilding and searching has taken, in cells added to histograms
#     CHECKS_ALL      whether all nodes are to be searched, because candidates have come or gone
#     N_LISTED        samples listed in `drifting`
DRIFTS, FIRST_TREE, N_TOUCHED, N_TREES, N_NODES, N_MEMBERS, N_BUSY, BEST_ITERATION = range(8)
N_WORK, CHECKS_ALL, N_LISTED, REPORT_SIZE = range(8, 12)
