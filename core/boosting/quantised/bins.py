"""The samples as codes.

    numeric       number of edges below the value: the candidate `x <= edges[c]` sends codes up to c left
    missing       one code behind those, len(edges) + 1
    categorical   rank of the category among the column's: missing values first, then by hash

Rows of bins leave the commonest bin of every feature out when that makes them much shorter, as it does for columns that
are mostly zero. That is a matter of layout: nothing that is decided depends on it.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core import threads
from oubli.core.array_types import Bools
from oubli.core.boosting.quantised.state import Bins
from oubli.core.boosting.rows import cut, n_blocks
from oubli.core.jit.policy import inner, kernel
from oubli.core.rng import MISSING_CATEGORY
from oubli.core.samples.arrays import Data

_BLOCK = 512
_CELLS_TO_ENCODE = 10  # that looking up the bin of a value is worth, in cells that are summed
_DENSE_SHARE = 0.8  # rows nearly as long as there are features leave nothing out


class Features(NamedTuple):
    """The bins of all features, as numbers; a function of the samples held."""

    edges: npt.NDArray[np.float64]  # of all numeric columns
    first_edge: npt.NDArray[np.int64]  # int64[d + 1]
    categories: npt.NDArray[np.uint64]  # hashes, of all categorical columns, by rank
    first_category: npt.NDArray[np.int64]  # int64[d + 1]
    categorical: npt.NDArray[np.bool_]  # bool[d]

    @property
    def n_codes(self) -> npt.NDArray[np.int64]:
        """Codes of each feature."""
        return np.where(self.categorical, np.diff(self.first_category), np.diff(self.first_edge) + 2)


@inner
def _rank_of(hashes, first, last, key):
    """Place of a category's hash among a column's, missing values being first if there are any; -1: not there."""
    if first < last and hashes[first] == MISSING_CATEGORY:
        if key == MISSING_CATEGORY:
            return np.int64(0)
        low = first + 1
    else:
        low = first
    high = last
    while low < high:
        middle = (low + high) >> 1
        if hashes[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low - first if low < last and hashes[low] == key else np.int64(-1)


@inner
def _count_below(edges, first, last, x):
    """Number of edges below a value; no branches."""
    base = np.uint64(first)
    length = np.uint64(last - first)
    one = np.uint64(1)
    while length > np.uint64(0):
        half = (length + one) >> one
        base += half * np.uint64(edges[base + half - one] < x)
        length -= half
    return np.int64(base) - first


@kernel
def encode(features, data, slots, codes):
    """Write the codes of some samples; returns False at a category that has no rank."""
    d = codes.shape[0]
    n = slots.shape[0]
    for start in range(0, n, _BLOCK):
        end = min(start + _BLOCK, n)
        for column in range(d):
            first, last = features.first_edge[column], features.first_edge[column + 1]
            if features.categorical[column]:
                first, last = features.first_category[column], features.first_category[column + 1]
            for i in range(start, end):
                slot = np.uint64(slots[i])
                x = np.float64(data.cells[slot, column])
                if features.categorical[column]:
                    key = MISSING_CATEGORY if np.isnan(x) else data.category_hashes[np.int64(x)]
                    code = _rank_of(features.categories, first, last, key)
                    if code < 0:
                        return False
                elif np.isnan(x):
                    code = last - first + 1
                else:
                    code = _count_below(features.edges, first, last, x)
                codes[column, slot] = code
    return True


@kernel
def longest_row(codes, common_code, slots, lengths):
    """The most bins that a sample's row names; lengths: int64[block], working space."""
    longest = np.int64(0)
    for start in range(0, slots.shape[0], lengths.shape[0]):
        end = min(start + lengths.shape[0], slots.shape[0])
        for i in range(end - start):
            lengths[i] = 0
        for column in range(codes.shape[0]):
            common = common_code[column]
            for i in range(start, end):
                lengths[i - start] += np.int64(codes[column, np.uint64(slots[i])]) != common
        for i in range(end - start):
            longest = max(longest, lengths[i])
    return longest


@kernel
def write_rows(codes, first_bin, common_bin, slots, rows, lengths):
    """Write the rows of some samples, none of which is too long; lengths: int64[block], working space."""
    d = codes.shape[0]
    width = rows.shape[1]
    for start in range(0, slots.shape[0], lengths.shape[0]):
        end = min(start + lengths.shape[0], slots.shape[0])
        for i in range(end - start):
            lengths[i] = 0
        for column in range(d):
            for i in range(start, end):
                slot = np.uint64(slots[i])
                place = np.int64(codes[column, slot]) + first_bin[column]
                if place != common_bin[column]:
                    rows[slot, lengths[i - start]] = place
                    lengths[i - start] += 1
        for i in range(start, end):
            slot = np.uint64(slots[i])
            for column in range(lengths[i - start], width):
                rows[slot, column] = first_bin[d]


@kernel
def count_codes(codes, slots, counts):
    """Count the codes of some samples in one column."""
    for i in range(slots.shape[0]):
        counts[np.int64(codes[np.uint64(slots[i])])] += 1


def find_categories(data: Data, slots: npt.NDArray[np.int64]) -> list[npt.NDArray[np.uint64]]:
    """The hashes of the categories held, by column and rank; empty for numeric columns."""
    result = []
    for column in range(data.cells.shape[1]):
        hashes = np.zeros(0, np.uint64)
        if data.categorical[column]:
            cells = data.cells[slots, column]
            is_missing = np.isnan(cells)
            present = np.zeros(len(data.category_hashes), np.bool_)
            present[cells[~is_missing].astype(np.int64)] = True
            hashes = np.unique(data.category_hashes[present])
            if is_missing.any():
                hashes = np.concatenate([np.array([MISSING_CATEGORY]), hashes])
        result.append(hashes)
    return result


def _starts(parts: list[npt.NDArray[np.generic]]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum([len(part) for part in parts], dtype=np.int64)])


def make_features(
    edges: list[npt.NDArray[np.float64]], categories: list[npt.NDArray[np.uint64]], categorical: npt.NDArray[np.bool_]
) -> Features:
    """Put the edges and categories of all columns one behind the other."""
    return Features(
        edges=np.concatenate([np.zeros(0), *edges]),
        first_edge=_starts(list(edges)),
        categories=np.concatenate([np.zeros(0, np.uint64), *categories]),
        first_category=_starts(list(categories)),
        categorical=categorical,
    )


def make_bins(features: Features, data: Data, slots: npt.NDArray[np.int64], n_threads: int = 1) -> Bins:
    """Encode all samples."""
    n_codes = features.n_codes
    d, capacity = len(n_codes), len(data.cells)
    first_bin = np.concatenate([np.zeros(1, np.int64), np.cumsum(n_codes)]).astype(np.int32)
    codes = np.zeros((d, capacity), np.min_scalar_type(int(n_codes.max(initial=1)) - 1))
    n = n_blocks(len(slots), _CELLS_TO_ENCODE * d, n_threads)
    blocks = [slots[begin:end] for begin, end in pairwise(cut(len(slots), n))]
    if not all(threads.run([partial(encode, features, data, some, codes) for some in blocks], n)):
        raise ValueError("a category has no rank")
    common_code = np.full(d, -1, np.int32)
    for column in range(d):
        counts = np.zeros(n_codes[column], np.int64)
        count_codes(codes[column], slots, counts)
        common_code[column] = counts.argmax()
    lengths = np.zeros((n, _BLOCK), np.int64)
    width = max(
        threads.run([partial(longest_row, codes, common_code, some, lengths[i]) for i, some in enumerate(blocks)], n)
    )
    if width > _DENSE_SHARE * d:
        width, common_code[:] = d, -1
    common_bin = np.where(common_code < 0, -1, first_bin[:-1] + common_code).astype(np.int32)
    rows = np.full((capacity, max(width, 1)), first_bin[-1], np.uint16 if first_bin[-1] < 2**16 else np.uint32)
    threads.run(
        [partial(write_rows, codes, first_bin, common_bin, some, rows, lengths[i]) for i, some in enumerate(blocks)],
        n,
    )
    return Bins(codes, rows, first_bin, np.where(features.categorical, -1, n_codes - 1).astype(np.int32), common_bin)


def live_bins(features: Features, live_edges: Bools, live_categories: Bools, *, others: bool) -> Bools:
    """Which bins are live, over all features; `others`: whether those above the last edge and of no value are."""
    parts = [np.zeros(0, np.bool_)]
    for column, is_categorical in enumerate(features.categorical.tolist()):
        if is_categorical:
            first, last = features.first_category[column : column + 2].tolist()
            parts.append(live_categories[first:last])
        else:
            first, last = features.first_edge[column : column + 2].tolist()
            parts += [live_edges[first:last], np.full(2, others)]
    return np.concatenate(parts)


def count_categories(
    features: Features, bins: Bins, categorical: npt.NDArray[np.bool_], slots: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Count the samples of some slots by category."""
    counts = np.zeros(len(features.categories), np.int64)
    for column in np.flatnonzero(categorical).tolist():
        first, last = features.first_category[column : column + 2].tolist()
        counts[first:last] = np.bincount(bins.codes[column, slots], minlength=last - first)
    return counts
