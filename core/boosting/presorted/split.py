"""The best split of a node, over all thresholds of a column (section 3.3).

A split is worth GL^2 / (HL + l2) + GR^2 / (HR + l2) (Formula 3 without the sum of squares, which all splits of a
node share): one float64 expression of integers. Candidates: between any two neighbouring distinct values of the
node's samples, missing values to the right or to the left; one category against the rest. Both sides must have the
least H. Of equal worth the first one wins, in the order column, threshold, missing right before missing left;
categories: missing ones first, then by hash.

A column is searched in two steps: the words of the left sides of all its candidates are listed, then the best is found.

    narrow column      sums of the bins up to each one            of a category: the bins themselves
    wide column        sums of the list up to each new value      of a category: sums of the runs of one value

An empty bin, like one whose samples have zero words, leaves the sum as it is: its candidate is worth what the
one before is, and the first one wins. Hence bins need not be known to be empty, and find the same split as the sorted
list does. With missing values to the left, the values present there must have an H above 0.

Worths are computed only where a comparison without divisions, which errs by some 2^-50, says that one of a block may
win. That comparison has no branches and goes through vector registers.
"""

import numpy as np

from oubli.core.jit.policy import inner, pasted

NONE = -1

# How the samples of a split go.
MISSING_RIGHT = 0
MISSING_LEFT = 1
ONE_VS_REST = 2

ALMOST = 1.0 - 2.0**-40
# A split must be worth more than no split by this factor: what differs by less differs by rounding.
MORE = 1.0 + 2.0**-40

_BLOCK = 16


@pasted
def worth_of_none(word, shift, l2):
    """Worth of leaving a node as it is."""
    g = np.float64(word >> shift)
    h = np.float64(word & ((np.int64(1) << shift) - 1)) + l2
    return g * g / h if h > 0.0 else 0.0


@pasted
def _worth(left, total, shift, least, l2):
    """Worth of a candidate by the words of its left side and of the node; -1 when a side has too little weight."""
    mask = (np.int64(1) << shift) - 1
    h_left = left & mask
    h_right = (total & mask) - h_left
    if h_left < least or h_right < least:
        return -1.0
    g_left = left >> shift
    a, b = np.float64(g_left), np.float64((total >> shift) - g_left)
    return a * a / (np.float64(h_left) + l2) + b * b / (np.float64(h_right) + l2)


@pasted
def _may_win(lefts, start, end, more, total, shift, l2, floor):
    """Whether one of a block of candidates may be worth more than `floor`.

    No sum of g or h passes 2**53, so that differences of them are exact as float64, too.
    """
    mask = (np.int64(1) << shift) - 1
    g, h = np.float64(total >> shift), np.float64(total & mask)
    n_winning = np.int64(0)
    for i in range(start, end):
        left = lefts[np.uint64(i)] + more
        a, h_left = np.float64(left >> shift), np.float64(left & mask)
        b, m, n = g - a, h_left + l2, (h - h_left) + l2
        n_winning += np.int64(a * a * n + b * b * m > floor * (m * n))
    return n_winning > 0


@inner
def best_of(lefts, n, more, total, shift, least, l2, best, limit):
    """Find the first best of candidates.

    lefts  int64[n or longer]: words of their left sides, without missing values
    more   word of the missing values, when these go left; else 0
    best   worth that must be exceeded, or reached by a candidate before number `limit`

    Returns the worth and the candidate; NONE when there is no better one.
    """
    mask = (np.int64(1) << shift) - 1
    found = np.int64(NONE)
    for start in range(0, n, _BLOCK):
        end = min(start + _BLOCK, n)
        # Whole blocks have a length known to the compiler.
        may_win = (
            _may_win(lefts, start, start + _BLOCK, more, total, shift, l2, best * ALMOST)
            if end == start + _BLOCK
            else _may_win(lefts, start, end, more, total, shift, l2, best * ALMOST)
        )
        if not may_win:
            continue
        for i in range(start, end):
            if more != 0 and lefts[i] & mask == 0:
                continue
            worth = _worth(lefts[i] + more, total, shift, least, l2)
            if worth > best or (worth == best and i < limit):
                best, found, limit = worth, np.int64(i), np.int64(i)
    return best, found


@inner
def best_threshold(lefts, n, missing, total, shift, least, l2, best, ties):
    """Find the first best threshold; `ties` when one worth `best` is better, too. Returns worth, candidate, kind."""
    limit = np.int64(n) if ties else np.int64(0)
    best, found = best_of(lefts, n, np.int64(0), total, shift, least, l2, best, limit)
    if missing == 0:
        return best, found, np.int64(MISSING_RIGHT)
    if found != NONE:
        limit = found
    best, other = best_of(lefts, n, missing, total, shift, least, l2, best, limit)
    if other != NONE:
        return best, other, np.int64(MISSING_LEFT)
    return best, found, np.int64(MISSING_RIGHT)


@inner
def add_up_bins(histogram, start, end, lefts):
    """List the sums of bins up to each one; returns their number."""
    left = np.int64(0)
    for i in range(start, end):
        left += histogram[np.uint64(i)]
        lefts[np.uint64(i - start)] = left
    return end - start


@inner
def add_up_list(entries, start, end, words, lefts, places):
    """List the sums of a sorted list up to each new value, and all of it; returns their number.

    places  written: where in the list the right side begins
    """
    left = np.int64(0)
    count = np.int64(0)
    for i in range(start, end):
        entry = np.int64(entries[np.uint64(i)])
        # Written in any case; kept only at a new value. No branch, for these come as they like.
        lefts[np.uint64(count)] = left
        places[np.uint64(count)] = i
        count += entry & 1
        left += words[np.uint64(entry >> 1)]
    lefts[np.uint64(count)] = left
    places[np.uint64(count)] = end
    return count + 1


@inner
def add_up_runs(entries, start, end, words, lefts, places):
    """List the sum of each run of one value in a sorted list, and where it begins; returns their number."""
    count = np.int64(-1)
    for i in range(start, end):
        entry = np.int64(entries[np.uint64(i)])
        if entry & 1:
            count += 1
            lefts[count] = 0
            places[count] = i
        lefts[count] += words[np.uint64(entry >> 1)]
    return count + 1


@inner
def sum_list(entries, start, end, words):
    """Sum of the words of a part of a list."""
    total = np.int64(0)
    for i in range(start, end):
        total += words[np.uint64(entries[np.uint64(i)] >> 1)]
    return total
