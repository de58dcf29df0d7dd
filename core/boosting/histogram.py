"""Histograms of packed derivatives over the bins of all features.

A sample's gradient and hessian, integers both, travel as one int64, `G * 2**HESSIAN_BITS + H`, so that one
addition adds both. Sums stay packed too: the packing is linear, and a difference of packed sums is the packed
difference. With 0 <= H < 2**28 and |G| < 2**35 for the sums of a whole model nothing ever runs over: h is at most 16
and |g| at most 2**11, times the size of all samples (`weights.py`), below 2**24.

    histogram   int64[n_bins]        packed sums by bin; the bins of feature f begin at offsets[f]
    codes       uint8/16[n_slots, d] the bin of each sample in each feature, counted from the feature's first bin
    slots       int32/64[]           the samples of a node, in any order
    packed      int64[n_slots]       packed derivatives by slot

The sibling of a node whose histogram is known is its parent's less its own ("subtraction trick"), hence only the
smaller child of every split is filled from samples.
"""

import numpy as np

from oubli.core.jit.policy import inner, kernel, pasted

HESSIAN_BITS = 28
_SHIFT = np.int64(HESSIAN_BITS)
_MASK = np.int64((1 << HESSIAN_BITS) - 1)


@inner
def pack(gradient, hessian):
    """One int64 of two integers, hessian >= 0."""
    return (np.int64(gradient) << _SHIFT) + np.int64(hessian)


@inner
def gradient_of(packed):
    """The gradient's part of a packed sum."""
    return packed >> _SHIFT


@inner
def hessian_of(packed):
    """The hessian's part of a packed sum."""
    return packed & _MASK


@inner
def clear(histogram):
    """Set all bins to zero."""
    for i in range(histogram.shape[0]):
        histogram[i] = 0


@kernel
def fill(histogram, codes, offsets, slots, first, last, packed):
    """Add the samples slots[first:last] to a histogram; indices are unsigned, which spares a test of the sign.

    offsets  uint32[d] or longer
    """
    n_features = np.uint64(codes.shape[1])
    n_even = n_features & ~np.uint64(1)
    one = np.uint64(1)
    for i in range(first, last):
        slot = np.uint64(slots[i])
        value = packed[slot]
        column = np.uint64(0)
        while column < n_even:
            # Two columns at once: their bins differ, so neither waits for the other.
            a = np.uint64(offsets[column]) + np.uint64(codes[slot, column])
            b = np.uint64(offsets[column + one]) + np.uint64(codes[slot, column + one])
            histogram[a] += value
            histogram[b] += value
            column += np.uint64(2)
        if column < n_features:
            histogram[np.uint64(offsets[column]) + np.uint64(codes[slot, column])] += value


@inner
def subtract(parent, child, sibling):
    """Put parent - child into `sibling`, which may be either of them."""
    for i in range(parent.shape[0]):
        sibling[i] = parent[i] - child[i]


@inner
def reduce_bins(histogram, places, reduced):
    """Add the bins up to fewer: bin i is counted at places[i] of `reduced`, which is overwritten."""
    clear(reduced)
    for i in range(histogram.shape[0]):
        reduced[np.uint64(places[i])] += histogram[i]


@pasted
def is_against(left, total, shift, l2, direction):
    """Whether the values -G / (H + l2) of the sides of a split are against a monotone constraint, by packed sums."""
    mask, right = (np.int64(1) << shift) - np.int64(1), total - left
    a, b = np.float64(left >> shift), np.float64(right >> shift)
    return ((np.float64(right & mask) + l2) * a - (np.float64(left & mask) + l2) * b) * direction < 0.0


@pasted
def unsplit_score(total, shift, l2):
    """G^2 / (H + l2) of a node that is not split, from its packed sums; a packed hessian has `shift` bits."""
    gradient = np.float64(total >> shift)
    hessian = np.float64(total & ((np.int64(1) << shift) - np.int64(1))) + l2
    return gradient * gradient / hessian if hessian > 0.0 else 0.0
