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

The division of a node's samples among its children is stable, so that sorted lists stay sorted.
"""

import numpy as np

from oubli.core.boosting.histogram import is_against
from oubli.core.jit.policy import inner, pasted
from oubli.core.rng import MISSING_CATEGORY
from oubli.core.tree.split import midpoint

NONE = -1

MISSING_RIGHT, MISSING_LEFT, ONE_VS_REST = range(3)  # how the samples of a split go

ALMOST = 1.0 - 2.0**-40
# A split must be worth more than no split by this factor: what differs by less differs by rounding.
MORE = 1.0 + 2.0**-40

_BLOCK = 16


@pasted
def _worth(loss, left, total):
    """Worth of a candidate by the words of its left side and of the node; -1 when a side has too little weight."""
    mask = (np.int64(1) << loss.shift) - 1
    h_left = left & mask
    h_right = (total & mask) - h_left
    if h_left < loss.least or h_right < loss.least:
        return -1.0
    g_left = left >> loss.shift
    a, b = np.float64(g_left), np.float64((total >> loss.shift) - g_left)
    return a * a / (np.float64(h_left) + loss.l2) + b * b / (np.float64(h_right) + loss.l2)


@pasted
def _may_win(loss, lefts, start, end, more, total, floor):
    """Whether one of a block of candidates may be worth more than `floor`.

    No sum of g or h passes 2**53, so that differences of them are exact as float64, too.
    """
    shift, l2 = loss.shift, loss.l2
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
def best_of(loss, lefts, n, more, total, best, limit, direction):
    """Find the first best of candidates.

    lefts  int64[n or longer]: words of their left sides, without missing values
    more   word of the missing values, when these go left; else 0
    best   worth that must be exceeded, or reached by a candidate before number `limit`
    direction  of a monotone constraint; 0: there is none

    Returns the worth and the candidate; NONE when there is no better one.
    """
    mask = (np.int64(1) << loss.shift) - 1
    found = np.int64(NONE)
    for start in range(0, n, _BLOCK):
        end = min(start + _BLOCK, n)
        # Whole blocks have a length known to the compiler.
        may_win = (
            _may_win(loss, lefts, start, start + _BLOCK, more, total, best * ALMOST)
            if end == start + _BLOCK
            else _may_win(loss, lefts, start, end, more, total, best * ALMOST)
        )
        if not may_win:
            continue
        for i in range(start, end):
            if more != 0 and lefts[i] & mask == 0:
                continue
            worth = _worth(loss, lefts[i] + more, total)
            is_better = worth > best or (worth == best and i < limit)
            if is_better and (direction == 0 or not is_against(lefts[i] + more, total, loss.shift, loss.l2, direction)):
                best, found, limit = worth, np.int64(i), np.int64(i)
    return best, found


@inner
def best_threshold(loss, lefts, n, missing, total, best, ties, direction):
    """Find the first best threshold; `ties` when one worth `best` is better, too. Returns worth, candidate, kind."""
    limit = np.int64(n) if ties else np.int64(0)
    best, found = best_of(loss, lefts, n, np.int64(0), total, best, limit, direction)
    if missing == 0:
        return best, found, np.int64(MISSING_RIGHT)
    if found != NONE:
        limit = found
    best, other = best_of(loss, lefts, n, missing, total, best, limit, direction)
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
        # Written in any case; kept only at a new value. No branch, because new values are unpredictable.
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


@inner
def first_missing(table, column, entries, start, end):
    """Place in a node's part of a list from which on values are missing."""
    while start < end:
        middle = (start + end) >> 1
        x = table.cells[table.slots[entries[middle] >> 1], column]
        if x != x:
            end = middle
        else:
            start = middle + 1
    return start


# -- the division -----------------------------------------------------------------------------------


@inner
def side_narrow(table, members, sides, start, end, j, place, kind, nodes, node):
    """Say where the samples of a node go, and write the threshold of its split or the category."""
    first = np.int64(table.offsets[j])
    code = place - first
    if kind == ONE_VS_REST:
        for i in range(start, end):
            row = np.uint64(members[np.uint64(i)])
            sides[row] = np.uint8(np.int64(table.codes[row, np.uint64(j)]) != code)
        nodes[node]["category"] = table.hashes[place]
        return
    n_bins = np.int64(table.offsets[j + 1]) - first
    missing = n_bins - 1 if table.has_missing[table.narrow[j]] else n_bins
    following = missing
    for i in range(start, end):
        row = np.uint64(members[np.uint64(i)])
        here = np.int64(table.codes[row, np.uint64(j)])
        goes_right = here > code
        if goes_right and here < following:
            following = here
        sides[row] = np.uint8(goes_right)
    if kind == MISSING_LEFT:
        for i in range(start, end):
            row = np.uint64(members[np.uint64(i)])
            if np.int64(table.codes[row, np.uint64(j)]) == missing:
                sides[row] = np.uint8(0)
    if following == missing:
        nodes[node]["threshold"] = np.inf
    else:
        nodes[node]["threshold"] = midpoint(table.values[place], table.values[first + following], table.cells)


@inner
def _send(entries, start, end, sides, side):
    for i in range(start, end):
        sides[np.uint64(entries[np.uint64(i)] >> 1)] = np.uint8(side)


@inner
def side_wide(table, entries, sides, start, end, j, place, kind, nodes, node):
    """The same for a wide column."""
    column, cells = np.int64(table.wide[j]), table.cells
    if kind == ONE_VS_REST:
        _send(entries, start, end, sides, 1)
        stop = place + 1
        while stop < end and entries[stop] & 1 == 0:
            stop += 1
        _send(entries, place, stop, sides, 0)
        x = cells[table.slots[entries[place] >> 1], column]
        nodes[node]["category"] = MISSING_CATEGORY if x != x else table.category_hashes[np.int64(x)]
        return
    present_end = end
    if table.has_missing[column]:
        present_end = first_missing(table, column, entries, start, end)
    _send(entries, start, place, sides, 0)
    _send(entries, place, present_end, sides, 1)
    _send(entries, present_end, end, sides, 0 if kind == MISSING_LEFT else 1)
    if place == present_end:
        nodes[node]["threshold"] = np.inf
    else:
        low = cells[table.slots[entries[place - 1] >> 1], column]
        high = cells[table.slots[entries[place] >> 1], column]
        nodes[node]["threshold"] = midpoint(low, high, cells)


@inner
def divide_members(members, spare, sides, start, end):
    """Put the samples that go left first; returns where the others begin."""
    left, right = start, 0
    for i in range(start, end):
        row = members[np.uint64(i)]
        side = np.int64(sides[np.uint64(row)])
        # Both sides are written; only one moves on. No branch, for the sides are as good as random.
        members[np.uint64(left)] = row
        spare[np.uint64(right)] = row
        left += 1 - side
        right += side
    for i in range(right):
        members[np.uint64(left + i)] = spare[np.uint64(i)]
    return left


@inner
def divide_list(entries, spare, sides, start, end):
    """The same for a sorted list, which stays sorted.

    An entry's last bit, whether its value differs from the one before, becomes the OR of the bits since the last entry
    of the same side.
    """
    left, right = start, 0
    left_bit, right_bit = np.int64(0), np.int64(0)
    for i in range(start, end):
        entry = np.int64(entries[np.uint64(i)])
        side = np.int64(sides[np.uint64(entry >> 1)])
        left_bit |= entry & 1
        right_bit |= entry & 1
        entries[np.uint64(left)] = entry | left_bit
        spare[np.uint64(right)] = entry | right_bit
        left += 1 - side
        right += side
        left_bit &= -side
        right_bit &= side - 1
    for i in range(right):
        entries[np.uint64(left + i)] = spare[np.uint64(i)]
