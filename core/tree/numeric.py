"""The best split of a numeric column at a node: one pass over its sorted list."""

import numpy as np

from oubli.core.jit.policy import inner, pasted
from oubli.core.tree.split import split_score
from oubli.core.tree.state import MISSING_LEFT, MISSING_RIGHT, NIL
from oubli.core.tree.workspace import LEFT, MISSING, TOTALS

# A score is only computed where a comparison without divisions, which errs by some 2^-51, says that it
# may be better than the best.
_ALMOST = 1.0 - 2.0**-40


@inner
def first_missing(cells, column, slots, lists, base, start, end, class_bits):
    """Place in a list from which on the values are missing; they come last."""
    while start < end:
        middle = (start + end) >> 1
        x = cells[slots[np.int64(lists[base + middle]) >> (class_bits + 1)], column]
        if x != x:
            end = middle
        else:
            start = middle + 1
    return start


@pasted
def _may_beat(left_squares, n_left, right_squares, n_right, floor):
    """Whether a split's score may be above `floor`, without dividing."""
    a, b = np.float64(left_squares), np.float64(right_squares)
    m, n = np.float64(n_left), np.float64(n_right)
    return a * n + b * m > floor * (m * n)


@inner
def scan_two_classes(lists, base, start, end, n_ones, best):
    """Find the first best split of a list without missing values that scores above `best`.

    n_ones  samples of class 1

    Returns the score, `best` when there is none; the place where the right side begins, NIL when no two
    neighbours differ, else `start` when none scores above `best`.
    """
    n = end - start
    ones = np.float64(n_ones)
    zeros = np.float64(n) - ones
    left_ones = np.float64((np.int64(lists[base + start]) >> 1) & 1)
    place = np.int64(NIL)
    floor = best * _ALMOST
    for i in range(start + 1, end):
        entry = np.int64(lists[np.uint64(base + i)])
        if entry & 1:
            n_left = np.float64(i - start)
            n_right = np.float64(end - i)
            left_zeros = n_left - left_ones
            right_ones = ones - left_ones
            right_zeros = zeros - left_zeros
            left_squares = left_zeros * left_zeros + left_ones * left_ones
            right_squares = right_zeros * right_zeros + right_ones * right_ones
            if _may_beat(left_squares, n_left, right_squares, n_right, floor):
                score = split_score(left_squares, n_left, right_squares, n_right)
                if score > best:
                    best = score
                    floor = best * _ALMOST
                    place = i
            if place == NIL:
                place = start
        left_ones += np.float64((entry >> 1) & 1)
    return best, place


@pasted
def _count_missing(lists, base, start, end, class_bits, tallies):
    mask = (1 << class_bits) - 1
    for c in range(tallies.shape[1]):
        tallies[LEFT, c] = 0
        tallies[MISSING, c] = 0
    for i in range(start, end):
        tallies[MISSING, (np.int64(lists[base + i]) >> 1) & mask] += 1


@inner
def scan(lists, base, start, present_end, end, class_bits, tallies, best):
    """Find the first best split of a list with any classes, with or without missing values.

    tallies  row TOTALS is the node's class counts

    Returns the score, the place where the right side of the present values begins, as `scan_two_classes`
    does, and the kind of the split. The place is `present_end` for all present values against the missing
    ones.

    Moving a sample of class c changes a sum of squares by 2 n_c + 1, so that a place costs the same for
    any number of classes.
    """
    mask = (1 << class_bits) - 1
    _count_missing(lists, base, present_end, end, class_bits, tallies)
    n_missing = end - present_end
    left_squares = np.int64(0)
    right_squares = np.int64(0)
    missing_squares = np.int64(0)
    left_by_missing = np.int64(0)  # sum over the classes of left times missing
    all_by_missing = np.int64(0)
    for c in range(tallies.shape[1]):
        count, missing = tallies[TOTALS, c], tallies[MISSING, c]
        right_squares += count * count
        missing_squares += missing * missing
        all_by_missing += count * missing
    place = np.int64(NIL)
    kind = MISSING_RIGHT
    totals, lefts, missings = tallies[TOTALS], tallies[LEFT], tallies[MISSING]
    floor = best * _ALMOST
    for i in range(start, present_end):
        entry = np.int64(lists[np.uint64(base + i)])
        if entry & 1 and i > start:
            if place == NIL:
                place = start
            n_left = i - start
            n_right = end - i
            if _may_beat(left_squares, n_left, right_squares, n_right, floor):
                score = split_score(left_squares, n_left, right_squares, n_right)
                if score > best:
                    best, place, kind = score, i, MISSING_RIGHT
                    floor = best * _ALMOST
            if n_missing > 0:
                score = split_score(
                    left_squares + 2 * left_by_missing + missing_squares,
                    n_left + n_missing,
                    right_squares - 2 * (all_by_missing - left_by_missing) + missing_squares,
                    n_right - n_missing,
                )
                if score > best:
                    best, place, kind = score, i, MISSING_LEFT
                    floor = best * _ALMOST
        c = np.uint64((entry >> 1) & mask)
        left = lefts[c]
        left_squares += 2 * left + 1
        right_squares -= 2 * (totals[c] - left) - 1
        left_by_missing += missings[c]
        lefts[c] = left + 1
    if n_missing > 0 and present_end > start:
        if place == NIL:
            place = start
        score = split_score(left_squares, present_end - start, missing_squares, n_missing)
        if score > best:
            best, place, kind = score, present_end, MISSING_RIGHT
    return best, place, kind
