"""Bins of the features (Appendix A, Algorithm 4), made once for all trees and kept until all trees are grown again.

Bins of equal width, each beginning at a value held; the width is doubled until there are few enough. An empty
stretch gets no bin. A value is named by its code, the number of its bin within the feature:

    numeric       [ beyond | bins of Algorithm 4 ... | beyond | missing ]      edges[code]: the largest x of the bin
    categorical   [ missing | categories by hash ... | spare ... | all others ]

Differs from the paper:

    a) the thresholds lie halfway between the neighbouring values of two bins, not at the first value of a bin;
    b) beyond the smallest and the largest value there are bins that are empty at first, one on each side, or
       N_OUTER where the feature has many (none where it has two bins); each is twice as wide as the one before. So
       bins extend to new values without a change of any tree;
    c) categorical features and missing values, with room for some categories to come; categories that find no room are
       held with all others, which no split can single out before the trees are grown again.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.rows import n_blocks
from oubli.core.concurrency import threads
from oubli.core.jit.policy import inner, kernel
from oubli.core.rng import MISSING_CATEGORY
from oubli.core.samples.arrays import Data
from oubli.core.samples.hashing import hashes_of

SMALLEST_WIDTH = 1e-10  # of a bin, as a share of the range
N_OUTER = 3  # bins beyond each end of a feature that has MANY_EDGES or more; the others have one
MANY_EDGES = 24
MOST_CATEGORIES = 2**15  # of a feature that are distinguished; those with the smallest hashes
MOST_SPARE = 2**10
MOST_CODES = 2**16  # of a feature

_CELLS_TO_SORT = 50  # what sorting a value of a feature is worth, in cells that are summed
_BLOCK = 256  # samples that a feature is looked up for together, while its edges are in cache


class Bins(NamedTuple):
    """The bins of all features; `codes` of feature f begin at first[f]."""

    first: npt.NDArray[np.uint32]  # uint32[d + 1]
    edges: npt.NDArray[np.float64]  # float64[n_codes]: numeric: largest x of the bin, +inf for the last one
    hashes: npt.NDArray[np.uint64]  # uint64[n_codes]: categorical: hash of the category, 0 where there is none yet
    n_inner: npt.NDArray[np.int64]  # int64[d]: numeric: edges of Algorithm 4; categorical: categories of the start
    n_outer: npt.NDArray[np.int64]  # int64[d]: numeric: edges beyond each end; categorical: spare codes
    n_taken: npt.NDArray[np.int64]  # int64[d]: spare codes in use; the only part that updates change
    categorical: npt.NDArray[np.bool_]  # bool[d]

    @property
    def n_codes(self) -> int:
        """Codes of all features."""
        return int(self.first[-1])


@kernel
def cut_at_width(values, width, most, edges):
    """Cut sorted distinct float64 values into bins of a width; returns the edges, or -1 when they are more than `most`.

    edges  float64[most], written: halfway between the last value of a bin and the first of the next one
    """
    start = values[0]
    n_edges = 0
    for i in range(1, values.shape[0]):
        if values[i] - start <= width:
            continue
        if n_edges == most:
            return -1
        start = values[i]
        middle = values[i - 1] + (start - values[i - 1]) / 2
        # Neighbours in float64 have nothing between them.
        edges[n_edges] = middle if middle < start else values[i - 1]
        n_edges += 1
    return n_edges


def inner_edges(values: npt.NDArray[np.float64], max_bins: int) -> npt.NDArray[np.float64]:
    """Edges between the bins of sorted distinct values: Algorithm 4."""
    edges = np.empty(max_bins - 1, np.float64)
    # Halved: the difference of two float64 may be no float64.
    width = 2 * SMALLEST_WIDTH * (values[-1] / 2 - values[0] / 2)
    while (n_edges := cut_at_width(values, width, max_bins - 1, edges)) < 0:
        width *= 2
    return edges[:n_edges]


def numeric_edges(column: npt.NDArray[Any], max_bins: int) -> tuple[npt.NDArray[np.float64], int]:
    """All edges of a numeric column (NaN: missing), +inf last, and how many lie beyond each end of its values."""
    values = np.unique(column).astype(np.float64)
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return np.array([np.inf]), 0
    inside = inner_edges(values, max_bins)
    n_outer = N_OUTER if len(inside) >= MANY_EDGES else int(len(inside) != 1)
    low, high = values[0], values[-1]
    step = (high / 8 - low / 8) if high > low else max(abs(high), 1.0)
    steps = step * (2.0 ** np.arange(n_outer) - 1.0)
    with np.errstate(over="ignore"):
        above = np.minimum(high + steps, np.finfo(np.float64).max)
        below = np.maximum(np.nextafter(low, -np.inf) - steps, -np.finfo(np.float64).max)
    return np.concatenate([below[::-1], inside, above, [np.inf]]), n_outer


def category_codes(hashes: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], int, int]:
    """Hashes by code of a categorical column with some categories, how many these are, and the spare codes."""
    known = np.unique(hashes[hashes != MISSING_CATEGORY])[:MOST_CATEGORIES]
    n_spare = min(2 + len(known) // 8, MOST_SPARE)
    blank = np.zeros(n_spare + 1, np.uint64)
    return np.concatenate([[MISSING_CATEGORY], known, blank]).astype(np.uint64), len(known), n_spare


def _make_feature(
    data: Data, slots: npt.NDArray[np.int64], max_bins: int, feature: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.uint64], int, int]:
    """Edges and hashes of a feature by code, and its `n_inner` and `n_outer`."""
    column = data.cells[slots, feature]
    if data.categorical[feature]:
        table, n_known, n_beyond = category_codes(hashes_of(column, data.category_hashes))
        return np.zeros(len(table)), table, n_known, n_beyond
    upper, n_beyond = numeric_edges(column, max_bins)
    return np.append(upper, np.nan), np.zeros(len(upper) + 1, np.uint64), len(upper) - 1 - 2 * n_beyond, n_beyond


def make_bins(data: Data, slots: npt.NDArray[np.int64], max_bins: int, n_threads: int = 1) -> Bins:
    """Make the bins for the samples of some slots, at least one: a function of the set of their values."""
    d = len(data.categorical)
    n = n_blocks(d, _CELLS_TO_SORT * len(slots), n_threads)
    made = threads.run([partial(_make_feature, data, slots, max_bins, feature) for feature in range(d)], n)
    edges, hashes, n_inner, n_outer = zip(*made, strict=True)
    first = np.concatenate([[0], np.cumsum([len(part) for part in edges])]).astype(np.uint32)
    return Bins(
        first,
        np.concatenate(edges),
        np.concatenate(hashes),
        np.array(n_inner, np.int64),
        np.array(n_outer, np.int64),
        np.zeros(d, np.int64),
        data.categorical.copy(),
    )


def no_bins(categorical: npt.NDArray[np.bool_]) -> Bins:
    """Bins of a model without samples."""
    d = len(categorical)
    zeros = np.zeros(d, np.int64)
    return Bins(
        np.zeros(d + 1, np.uint32), np.zeros(0), np.zeros(0, np.uint64), zeros, zeros, zeros.copy(), categorical.copy()
    )


@inner
def _numeric_code(edges, first, n_edges, x):
    """Code of x: the number of edges below it. The last edge is +inf; `first` and `n_edges` are uint64."""
    one = np.uint64(1)
    start, left = first, n_edges
    while left > one:
        half = left >> one
        # One of two, without a branch to guess.
        start += half * np.uint64(edges[start + half - one] < x)
        left -= half
    return start - first


@inner
def _category_code(bins, feature, value):
    """Code of a category by its hash; one never seen takes a spare code, or is held with all others."""
    first = np.int64(bins.first[feature])
    if value == bins.hashes[first]:
        return np.int64(0)
    low, high = first + 1, first + 1 + bins.n_inner[feature]
    spare = high
    while low < high:
        middle = (low + high) // 2
        if bins.hashes[middle] < value:
            low = middle + 1
        else:
            high = middle
    if low < spare and bins.hashes[low] == value:
        return low - first
    for i in range(bins.n_taken[feature]):
        if bins.hashes[spare + i] == value:
            return spare + i - first
    n_taken = bins.n_taken[feature]
    if n_taken == bins.n_outer[feature]:
        return spare + n_taken - first
    bins.hashes[spare + n_taken] = value
    bins.n_taken[feature] = n_taken + 1
    return spare + n_taken - first


@kernel
def encode(bins, cells, category_hashes, missing_category, slots, codes):
    """Write the codes of the samples in some slots to uint16[n_slots, d]; takes spare codes for new categories."""
    for start in range(0, slots.shape[0], _BLOCK):
        end = min(start + _BLOCK, slots.shape[0])
        for feature in range(cells.shape[1]):
            first = np.uint64(bins.first[feature])
            missing = np.uint64(bins.first[feature + 1]) - first - np.uint64(1)
            for i in range(start, end):
                slot = slots[i]
                x = np.float64(cells[slot, feature])
                if bins.categorical[feature]:
                    value = missing_category if np.isnan(x) else category_hashes[np.int64(x)]
                    codes[slot, feature] = _category_code(bins, feature, value)
                elif np.isnan(x):
                    codes[slot, feature] = missing
                else:
                    codes[slot, feature] = _numeric_code(bins.edges, first, missing, x)
