"""The samples at hand while a subtree grows, by position 0 ... n - 1, in the form that is fastest to count.

A feature is dense or sparse. A dense one has its bin for every sample in a matrix, row by row. A sparse one has the
same code in most samples, as a column of a one-hot encoding: samples list only their other codes ("entries"), and
what is missing from the sums belongs to the bin of the common code.

    dense      [ b b b | b b b | b b b ... ]            bins, counted from the feature's first
    entries    [ e | e e |  | e ... ]                   bins over all features, of the samples one after the other

Which features are sparse decides only how long it takes.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Ints
from oubli.core.jit.aligned import prefetch_to_write
from oubli.core.jit.policy import inner, kernel

# Share of the samples that have the common code, from which on a feature is sparse.
_SPARSE_FROM = 0.7
_MOST_LOOKED_AT = 4_000

_AHEAD = 16  # samples that the memory is asked for before their turn


class Layout(NamedTuple):
    """Which features are dense and which are sparse."""

    dense: npt.NDArray[np.uint32]  # uint32[d_dense]: features
    dense_codes: npt.NDArray[np.uint32]  # uint32[d_dense]: their first codes
    dense_bins: npt.NDArray[np.uint32]  # uint32[d_dense]: their first bins
    sparse: npt.NDArray[np.uint32]  # uint32[d_sparse]
    common: npt.NDArray[np.uint16]  # uint16[d_sparse]: the code that most samples have
    bin_starts: npt.NDArray[np.uint32]  # uint32[n_codes]: the first bin of a code's feature


class Rows(NamedTuple):
    """n samples at hand."""

    slots: Ints  # int64[n]
    codes: npt.NDArray[np.uint16]  # uint16[S, d]: of all samples, by slot
    layout: Layout
    dense: Any  # uint8/16[n, d_dense]
    packed: Ints  # int64[n]: packed derivatives
    starts: Ints  # int64[n + 1]: where the entries of each sample begin
    entry_codes: npt.NDArray[np.uint32]  # uint32[n_entries]: codes, over all features
    entries: npt.NDArray[np.uint32]  # uint32[n_entries]: bins of an iteration, over all features
    columns: npt.NDArray[np.uint16]  # uint16[d, n]: codes, column by column; or [0, 0]: look them up


def choose_layout(
    codes: npt.NDArray[np.uint16], slots: Ints, first_codes: npt.NDArray[np.uint32], first: npt.NDArray[np.uint32]
) -> Layout:
    """Choose what is sparse by the codes in some slots."""
    some = codes[slots[:_MOST_LOOKED_AT]]
    dense: list[int] = []
    sparse: list[int] = []
    common: list[int] = []
    for feature in range(codes.shape[1]):
        counts = np.bincount(some[:, feature])
        code = int(counts.argmax())
        if counts[code] < _SPARSE_FROM * len(some):
            dense.append(feature)
        else:
            sparse.append(feature)
            common.append(code)
    return Layout(
        np.array(dense, np.uint32),
        first_codes[dense],
        first[dense],
        np.array(sparse, np.uint32),
        np.array(common, np.uint16),
        np.repeat(first[:-1], np.diff(first_codes)),
    )


def no_layout() -> Layout:
    """Layout of a model without samples."""
    nothing = np.zeros(0, np.uint32)
    return Layout(nothing, nothing, nothing, nothing, np.zeros(0, np.uint16), nothing)


@kernel
def _count_entries(codes, layout, slots):
    """Codes of sparse features, the common ones left out, that the samples in some slots have."""
    n_entries = 0
    for i in range(slots.shape[0]):
        for j in range(layout.sparse.shape[0]):
            n_entries += codes[slots[i], layout.sparse[j]] != layout.common[j]
    return n_entries


@kernel
def _list_entries(codes, first_codes, layout, slots, starts, entry_codes):
    """Write the entries of the samples in some slots."""
    n_entries = 0
    for i in range(slots.shape[0]):
        starts[i] = n_entries
        for j in range(layout.sparse.shape[0]):
            feature = np.int64(layout.sparse[j])
            code = codes[slots[i], feature]
            if code != layout.common[j]:
                entry_codes[n_entries] = first_codes[feature] + np.uint32(code)
                n_entries += 1
    starts[slots.shape[0]] = n_entries


def gather_rows(
    codes: npt.NDArray[np.uint16], first_codes: npt.NDArray[np.uint32], layout: Layout, slots: Ints,
    bin_type: npt.DTypeLike, *, with_columns: bool,
) -> Rows:  # fmt: skip
    """Take the samples in some slots to hand; bins and derivatives are yet to be written.

    with_columns : copy the codes column by column: worth it when many trees are grown on these samples.
    """
    n_entries = _count_entries(codes, layout, slots)
    rows = Rows(
        slots,
        codes,
        layout,
        np.empty((len(slots), len(layout.dense)), bin_type),
        np.empty(len(slots), np.int64),
        np.zeros(len(slots) + 1, np.int64),
        np.empty(n_entries, np.uint32),
        np.empty(n_entries, np.uint32),
        np.ascontiguousarray(codes[slots].T) if with_columns else np.empty((0, 0), codes.dtype),
    )
    if n_entries:
        _list_entries(codes, first_codes, layout, slots, rows.starts, rows.entry_codes)
    return rows


@inner
def place_rows(histogram, rows, model, iteration, start, end):
    """Write the bins of the samples at hand in positions start to end - 1, and count them in a histogram on the way.

    histogram  int64[n_bins], overwritten
    """
    layout, codes, places = rows.layout, rows.codes, model.candidates.places[iteration]
    for i in range(histogram.shape[0]):
        histogram[i] = 0
    n_dense = np.uint64(layout.dense.shape[0])
    one = np.uint64(1)
    total = np.int64(0)
    for i in range(start, end):
        slot, position = np.uint64(rows.slots[i]), np.uint64(i)
        value = rows.packed[position]
        total += value
        j = np.uint64(0)
        while j < n_dense:
            feature = np.uint64(layout.dense[j])
            place = places[np.uint64(layout.dense_codes[j]) + np.uint64(codes[slot, feature])]
            rows.dense[position, j] = place
            histogram[np.uint64(layout.dense_bins[j]) + np.uint64(place)] += value
            j += one
    for e in range(rows.starts[start], rows.starts[end]):
        code = rows.entry_codes[e]
        rows.entries[e] = layout.bin_starts[code] + np.uint32(places[code])
    if layout.sparse.shape[0] == 0:
        return
    for i in range(start, end):
        value = rows.packed[i]
        for e in range(rows.starts[i], rows.starts[i + 1]):
            histogram[np.uint64(rows.entries[e])] += value
    _count_common(histogram, layout, model, iteration, total)


@inner
def _count_common(histogram, layout, model, iteration, total):
    """Count the common codes of sparse features: whatever of the total is missing from their bins."""
    first, places = model.candidates.first, model.candidates.places[iteration]
    for j in range(layout.sparse.shape[0]):
        feature = np.int64(layout.sparse[j])
        start = np.int64(first[feature])
        rest = total
        for i in range(start, np.int64(first[feature + 1])):
            rest -= histogram[i]
        code = np.int64(model.bins.first[feature]) + np.int64(layout.common[j])
        histogram[start + np.int64(places[code])] += rest


@inner
def count_rows(histogram, rows, model, iteration, order, start, end):
    """Count the samples in positions order[start:end]; indices are unsigned, which spares a test of the sign."""
    layout = rows.layout
    for i in range(histogram.shape[0]):
        histogram[i] = 0
    n_dense = np.uint64(layout.dense.shape[0])
    one = np.uint64(1)
    is_all_dense = layout.sparse.shape[0] == 0
    total = np.int64(0)
    for i in range(start, end):
        position = np.uint64(order[np.uint64(i)])
        if i + _AHEAD < end:
            ahead = np.int64(order[np.uint64(i + _AHEAD)])
            prefetch_to_write(rows.dense, (ahead, 0))
            prefetch_to_write(rows.packed, (ahead,))
        value = rows.packed[position]
        total += value
        j = np.uint64(0)
        while j < n_dense:
            histogram[np.uint64(layout.dense_bins[j]) + np.uint64(rows.dense[position, j])] += value
            j += one
        if not is_all_dense:
            for e in range(rows.starts[position], rows.starts[position + one]):
                histogram[np.uint64(rows.entries[e])] += value
    if not is_all_dense:
        _count_common(histogram, layout, model, iteration, total)


@inner
def divide(rows, bins, order, other, start, end, feature, cut, missing_left):
    """Put the samples of order[start:end] that go left first, both sides in order; returns where the right ones begin.

    cut  the last code that goes left, or the code of the category that does

    Both sides are written every time and one of them kept: there is no branch to guess.
    """
    is_categorical = bins.categorical[feature]
    missing = np.int64(bins.first[feature + 1]) - np.int64(bins.first[feature]) - 1
    one = np.uint64(1)
    n_left, n_right = np.uint64(start), np.uint64(0)
    has_columns = rows.columns.shape[0] != 0
    column = np.uint64(feature)
    for i in range(start, end):
        position = np.uint64(order[np.uint64(i)])
        if has_columns:
            code = np.int64(rows.columns[column, position])
        else:
            code = np.int64(rows.codes[np.uint64(rows.slots[position]), column])
        if is_categorical:
            is_left = np.uint64(code == cut)
        else:
            is_left = np.uint64((code <= cut) | ((code == missing) & (missing_left != 0)))
        order[n_left] = np.int32(position)
        other[n_right] = np.int32(position)
        n_left += is_left
        n_right += one - is_left
    for i in range(np.int64(n_right)):
        order[n_left + np.uint64(i)] = other[np.uint64(i)]
    return np.int64(n_left)
