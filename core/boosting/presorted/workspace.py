"""The working space of a growing tree."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Ints, Reals
from oubli.core.boosting.presorted.derivatives import Loss, Watch
from oubli.core.boosting.presorted.state import MOST_BINS, Table

# Columns of `stack`, of a node that is to be split, or made a leaf:
#     NODE        its row
#     START, END  where its samples are in `members`, and in every list
#     HISTOGRAM   row of `histograms`; NIL when it has none
#     WORD        sum of its samples' words
#     OLD         row of the node that was in its place before the update; NIL when there was none
#     LOW, HIGH   bounds of the values below, by monotone constraints
NODE, START, END, DEPTH, HISTOGRAM, WORD, OLD, LOW, HIGH, STACK_WIDTH = range(10)

NIL = -1

# Columns of `counts`, what an update did:
#     KEPT           inner nodes whose column is still the best one
#     CHANGED        nodes where it is not, below nodes that were kept
#     FIRST_CHANGED  first tree whose root changed; NIL when none did
KEPT, CHANGED, FIRST_CHANGED, COUNTS_SIZE = range(4)


class Derivatives(NamedTuple):
    """Scores and the words of derivatives."""

    words: Ints  # int64[groups, n]: derivatives
    scores: Ints  # int64[groups, n]: F
    powers: Reals  # float64[groups, n] for three and more classes: of e, see `write_multi_class`
    largest: Ints  # int64[n]: of a row's scores
    totals: Reals  # float64[n]: of a row's powers


class Room(NamedTuple):
    """Arrays that growing writes to and that are of no use afterwards."""

    members: npt.NDArray[np.int32]  # int32[n]: the rows, node by node
    spare: npt.NDArray[np.int32]  # int32[n]
    sides: npt.NDArray[np.uint8]  # uint8[n]: of each row, 1 for right
    lists: npt.NDArray[np.int32]  # int32[wide, n]: the table's, divided among the nodes
    lefts: Ints  # int64[max(n, MOST_BINS) + 1]: words of the left sides of candidates
    places: npt.NDArray[np.int32]  # int32[n + 1]: where these are in a list
    histograms: Ints  # int64[max_depth + 2, bins]
    free: Ints  # int64[max_depth + 3]: the histograms in no use; their number comes first
    stack: Ints  # int64[2 * max_depth + 4, STACK_WIDTH]


class Boosting(NamedTuple):
    """What the trees of an update are grown on and with."""

    table: Table
    room: Room
    derivatives: Derivatives
    loss: Loss
    watch: Watch
    max_depth: int
    directions: Ints  # int64[d]: 1 or -1 of a column with a monotone constraint, else 0


def make_derivatives(n: int, first: Ints) -> Derivatives:
    """Room for n samples, whose scores are `first`, F_0 of each group."""
    return Derivatives(
        words=np.empty((len(first), n), np.int64),
        scores=np.repeat(first[:, np.newaxis], n, axis=1),
        powers=np.empty((len(first) if len(first) > 1 else 0, n)),
        largest=np.empty(n, np.int64),
        totals=np.empty(n),
    )


def make_room(table: Table, max_depth: int) -> Room:
    """Working space for trees on a table."""
    n = len(table.slots)
    return Room(
        members=np.empty(n, np.int32),
        spare=np.empty(n, np.int32),
        sides=np.empty(n, np.uint8),
        lists=np.empty_like(table.lists),
        lefts=np.empty(max(n, MOST_BINS) + 1, np.int64),
        places=np.empty(n + 1, np.int32),
        histograms=np.empty((max_depth + 2, table.n_bins), np.int64),
        free=np.zeros(max_depth + 3, np.int64),
        stack=np.empty((2 * max_depth + 4, STACK_WIDTH), np.int64),
    )
