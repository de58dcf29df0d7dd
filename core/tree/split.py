"""Splits: the score of a split, the place of a threshold, and the best split of each column.

The Gini gain of a split of S into L and R (Definition 2.1, and its usual extension g(S) = 1 - sum of
squared class shares to several classes) is (sum_c L_c^2 / |L| + sum_c R_c^2 / |R|) / |S| plus a
term of S alone. So splits of one node are compared by that bracket: one float64 expression of integers, the sums
of squares being exact in float64 up to 2^26 samples.

Sizes are sums of what the samples count for, see `core/jit/targets.py`; they are below 2^31, and the squares below
2^62. Counted in units, all scores are GRID times as large, with the same bits, as that is a power of two.

The best split of a numeric column is found by one pass over its sorted list. Categorical columns have histograms
instead of sorted lists (Theorem 3.3). At the start of a build the categories of each column are numbered in the order
of their hashes, missing ones first: the *local categories*. The histogram of a node holds the number of its samples by
local category and class, and one pass over it finds the best category.

When a node is split, its histogram becomes that of the child with more samples: those of the other child are taken
out one by one, and counted in a histogram of their own. As a sample is only counted when it is in the smaller
child, that is at most log2(n) times. A node with fewer samples than there are categories keeps no histogram: its
samples are counted column by column when it is split.

Differs from the paper, which walks along pointers from sample to sample of one value: each level looks at
every sample once, in one list for all columns, to divide it. So n samples with d columns take O(n (h + d log n)).
"""

import numpy as np

from oubli.core.jit.nodes import MISSING_LEFT, MISSING_RIGHT, NIL
from oubli.core.jit.policy import inner, pasted
from oubli.core.rng import MISSING_CATEGORY
from oubli.core.tree.workspace import CLASS_BITS, IS_WEIGHED, N_CATEGORIES, ORDER, STRIDE

# A score is only computed where a comparison without divisions, which errs by some 2^-51, says that it
# may be better than the best.
_ALMOST = 1.0 - 2.0**-40

NONE_BETTER = -2  # instead of a local category: the column may split, but not better than another


@pasted
def split_score(left_squares, n_left, right_squares, n_right):
    """What splits of one node are compared by; the more the better."""
    return np.float64(left_squares) / np.float64(n_left) + np.float64(right_squares) / np.float64(n_right)


@pasted
def squares_of(counts, node):
    """Sum of the squared class counts of a node, int64."""
    total = np.int64(0)
    for c in range(counts.shape[1]):
        count = np.int64(counts[node, c])
        total += count * count
    return total


@pasted
def is_nearly_pure(total, squares, half_alpha):
    """Whether g(S) <= alpha / 2, times |S|^2 on both sides."""
    square = total * total
    return np.float64(square - squares) <= half_alpha * np.float64(square)


@pasted
def midpoint(low, high, cells):
    """Threshold between two neighbouring values low < high: low <= threshold < high.

    Half of each is added in float64 and rounded to the cells' type; `low` itself where that comes to `high`.
    """
    middle = np.float64(low) * 0.5 + np.float64(high) * 0.5
    if cells.itemsize == 4:
        middle = np.float64(np.float32(middle))
    if middle < high and middle >= low:
        return middle + 0.0  # rounding gives a negative zero
    return np.float64(low)


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
def _count_missing(lists, base, start, end, class_bits, scratch, is_weighed):
    mask = (1 << class_bits) - 1
    for c in range(scratch.totals.shape[0]):
        scratch.left[c] = 0
        scratch.missing[c] = 0
    for i in range(start, end):
        entry = np.int64(lists[base + i])
        scratch.missing[(entry >> 1) & mask] += scratch.amounts[entry >> (class_bits + 1)] if is_weighed else 1


@pasted
def _scan(lists, base, start, present_end, end, class_bits, scratch, best, is_weighed):
    """Find the first best split of a list with any classes, with or without missing values.

    scratch.totals  the node's class counts

    Returns the score, the place where the right side of the present values begins, as `scan_two_classes`
    does, and the kind of the split. The place is `present_end` for all present values against the missing
    ones.

    Moving a sample of class c that counts for a changes a sum of squares by a (2 n_c + a), so that a place costs the
    same for any number of classes.
    """
    mask = (1 << class_bits) - 1
    _count_missing(lists, base, present_end, end, class_bits, scratch, is_weighed)
    n_left = np.int64(0)
    n_right = np.int64(0)
    n_missing = np.int64(0)
    left_squares = np.int64(0)
    right_squares = np.int64(0)
    missing_squares = np.int64(0)
    left_by_missing = np.int64(0)  # sum over the classes of left times missing
    all_by_missing = np.int64(0)
    totals, lefts, missings = scratch.totals, scratch.left, scratch.missing
    for c in range(totals.shape[0]):
        count, missing = totals[c], missings[c]
        n_right += count
        n_missing += missing
        right_squares += count * count
        missing_squares += missing * missing
        all_by_missing += count * missing
    place = np.int64(NIL)
    kind = MISSING_RIGHT
    floor = best * _ALMOST
    for i in range(start, present_end):
        entry = np.int64(lists[np.uint64(base + i)])
        if entry & 1 and i > start:
            if place == NIL:
                place = start
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
        amount = np.int64(scratch.amounts[entry >> (class_bits + 1)]) if is_weighed else np.int64(1)
        left = lefts[c]
        n_left += amount
        n_right -= amount
        left_squares += amount * (2 * left + amount)
        right_squares -= amount * (2 * (totals[c] - left) - amount)
        left_by_missing += amount * missings[c]
        lefts[c] = left + amount
    if n_missing > 0 and present_end > start:
        if place == NIL:
            place = start
        score = split_score(left_squares, n_left, missing_squares, n_missing)
        if score > best:
            best, place, kind = score, present_end, MISSING_RIGHT
    return best, place, kind


@inner
def scan(lists, base, start, present_end, end, class_bits, scratch, best):
    """`_scan`, compiled for samples of weight 1 and for others."""
    if scratch.state[IS_WEIGHED]:
        return _scan(lists, base, start, present_end, end, class_bits, scratch, best, True)
    return _scan(lists, base, start, present_end, end, class_bits, scratch, best, False)


@pasted
def _hash_at(category_hashes, code):
    """Hash of a code; the one behind the last stands for missing values."""
    return MISSING_CATEGORY if code == category_hashes.shape[0] else category_hashes[code]


@pasted
def _is_before(category_hashes, code, other):
    """Whether a code comes before another: missing values first, then by hash."""
    n_codes = category_hashes.shape[0]
    if code == n_codes or other == n_codes:
        return code == n_codes and other != n_codes
    return category_hashes[code] < category_hashes[other]


@inner
def _collect_codes(samples, column, scratch, n):
    """List the codes of a column's cells once each; returns their number. Marks them in `places`."""
    places, codes = scratch.places, scratch.codes
    n_codes = samples.category_hashes.shape[0]
    n_found = 0
    for position in range(n):
        x = samples.cells[scratch.slots[position], column]
        code = np.int64(n_codes) if x != x else np.int64(x)
        if places[code] == NIL:
            places[code] = 0
            codes[n_found] = code
            n_found += 1
    return n_found


@inner
def _sift_down(category_hashes, codes, root, n):
    """Restore a heap whose root may be too small."""
    code = codes[root]
    while 2 * root + 1 < n:
        child = 2 * root + 1
        if child + 1 < n and _is_before(category_hashes, codes[child], codes[child + 1]):
            child += 1
        if not _is_before(category_hashes, code, codes[child]):
            break
        codes[root] = codes[child]
        root = child
    codes[root] = code


@inner
def _sort_codes(category_hashes, codes, n):
    """Sort codes by their hashes, in place."""
    for root in range(n // 2 - 1, -1, -1):
        _sift_down(category_hashes, codes, root, n)
    for last in range(n - 1, 0, -1):
        codes[0], codes[last] = codes[last], codes[0]
        _sift_down(category_hashes, codes, 0, last)


@inner
def number_categories(samples, column, scratch, n):
    """Number the categories of a column and write each position's to list `column`."""
    hashes, places, codes = samples.category_hashes, scratch.places, scratch.codes
    n_codes = hashes.shape[0]
    n_found = _collect_codes(samples, column, scratch, n)
    _sort_codes(hashes, codes, n_found)
    first = np.int64(scratch.first_category[column])
    n_local = 0
    for i in range(n_found):
        # Two values with one hash are one category, as they are to a prediction.
        if i == 0 or _is_before(hashes, codes[i - 1], codes[i]):
            scratch.category_keys[first + n_local] = _hash_at(hashes, codes[i])
            n_local += 1
        places[codes[i]] = n_local - 1
    scratch.first_category[column + 1] = first + n_local
    base = column * scratch.state[STRIDE]
    for position in range(n):
        x = samples.cells[scratch.slots[position], column]
        code = np.int64(n_codes) if x != x else np.int64(x)
        scratch.lists[base + position] = places[code]
    for i in range(n_found):
        places[codes[i]] = NIL
    scratch.state[N_CATEGORIES] = first + n_local


# -- histograms -----------------------------------------------------------------------------------


@pasted
def n_histograms(scratch):
    """Histograms that there is room for, the last one being working space."""
    size = scratch.state[N_CATEGORIES] * scratch.totals.shape[0]
    return scratch.histograms.shape[0] // size - 1 if size > 0 else 0


@inner
def clear_histogram(scratch, row):
    """Zero a whole histogram."""
    size = scratch.state[N_CATEGORIES] * scratch.totals.shape[0]
    for place in range(row * size, (row + 1) * size):
        scratch.histograms[place] = 0


@inner
def _count_column(scratch, column, order, start, end, row, sign):
    """Add the samples of a range to a column's part of a histogram, or take them out (sign -1)."""
    lists, histograms = scratch.lists, scratch.histograms
    width = scratch.totals.shape[0]
    class_bits = scratch.state[CLASS_BITS]
    is_weighed = scratch.state[IS_WEIGHED] != 0
    mask = (1 << class_bits) - 1
    base = column * scratch.state[STRIDE]
    first = (row * scratch.state[N_CATEGORIES] + np.int64(scratch.first_category[column])) * width
    for i in range(order + start, order + end):
        entry = np.int64(lists[i])
        position = entry >> (class_bits + 1)
        category = np.int64(lists[base + position])
        amount = np.int64(scratch.amounts[position]) if is_weighed else np.int64(1)
        histograms[first + category * width + ((entry >> 1) & mask)] += sign * amount


@inner
def count_range(scratch, active, start, end, row, sign):
    """Add the samples of a range to the columns of a histogram that may split, or take them out (sign -1)."""
    order = (scratch.categorical.shape[0] + ORDER) * scratch.state[STRIDE]
    for i in range(1, active[0] + 1):
        if scratch.categorical[active[i]]:
            _count_column(scratch, np.int64(active[i]), order, start, end, row, sign)


@pasted
def _score_category(scratch, place, total, width):
    """Score one category against the rest; -1 when one side is empty."""
    totals, histograms = scratch.totals, scratch.histograms
    n_left = np.int64(0)
    left_squares = np.int64(0)
    right_squares = np.int64(0)
    for c in range(width):
        left = np.int64(histograms[place + c])
        right = totals[c] - left
        n_left += left
        left_squares += left * left
        right_squares += right * right
    if n_left == 0 or n_left == total:
        return -1.0
    return split_score(left_squares, n_left, right_squares, total - n_left)


@inner
def scan_categories(scratch, column, total, row, best):
    """Find the first best category of a column in a histogram, as `scan` finds the best place.

    Returns the score and the local category; with NIL when all samples are of one, -2 when none scores above
    `best`.
    """
    width = scratch.totals.shape[0]
    start, end = (
        np.int64(scratch.first_category[column]),
        np.int64(scratch.first_category[column + 1]),
    )
    first = row * scratch.state[N_CATEGORIES]
    found = np.int64(NIL)
    for category in range(start, end):
        score = _score_category(scratch, (first + category) * width, total, width)
        if score > best:
            best, found = score, category - start
        elif score >= 0.0 and found == NIL:
            found = np.int64(NONE_BETTER)
    return best, found


@inner
def scan_samples(scratch, column, order, start, end, total, best):
    """The same for a node without a histogram: O(its samples)."""
    width = scratch.totals.shape[0]
    class_bits = scratch.state[CLASS_BITS]
    lists, histograms = scratch.lists, scratch.histograms
    row = n_histograms(scratch)
    _count_column(scratch, column, order, start, end, row, 1)
    first = (row * scratch.state[N_CATEGORIES] + np.int64(scratch.first_category[column])) * width
    base = column * scratch.state[STRIDE]
    found = np.int64(NIL)
    for i in range(order + start, order + end):
        category = np.int64(lists[base + (np.int64(lists[i]) >> (class_bits + 1))])
        place = first + category * width
        score = _score_category(scratch, place, total, width)
        if score > best or (score == best and found >= 0 and category < found):
            best, found = score, category
        elif score >= 0.0 and found == NIL:
            found = np.int64(NONE_BETTER)
        # So that the other samples of the category score nothing.
        for c in range(width):
            histograms[place + c] = 0
    return best, found
