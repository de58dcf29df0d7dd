"""Categorical columns: histograms instead of sorted lists (Theorem 3.3).

At the start of a build the categories of each column are numbered in the order of their hashes, missing
ones first: the *local categories*. All that is known of a node's samples is in its histogram, the number of
samples by local category and class, and one pass over it finds the best category.

When a node is split, its histogram becomes that of the child with more samples: those of the other child are taken
out one by one, and counted in a histogram of their own. As a sample is only counted when it is in the smaller
child, that is at most log2(n) times. A node with fewer samples than there are categories counts its samples
column by column when it is its turn, and keeps no histogram.

Differs from the paper, which walks along pointers from sample to sample of one value: each level looks at
every sample once, in one list for all columns, to divide it. So n samples with d columns take O(n (h + d log n)).
"""

import numpy as np

from oubli.core.jit.policy import inner, pasted
from oubli.core.rng import MISSING_CATEGORY
from oubli.core.tree.split import split_score
from oubli.core.tree.state import NIL
from oubli.core.tree.workspace import CLASS_BITS, FIRST_CATEGORY, N_CATEGORIES, ORDER, STRIDE, TOTALS

NONE_BETTER = -2  # instead of a local category: the column may split, but not better than another


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
    first = np.int64(scratch.columns[FIRST_CATEGORY, column])
    n_local = 0
    for i in range(n_found):
        # Two values with one hash are one category, as they are to a prediction.
        if i == 0 or _is_before(hashes, codes[i - 1], codes[i]):
            scratch.category_keys[first + n_local] = _hash_at(hashes, codes[i])
            n_local += 1
        places[codes[i]] = n_local - 1
    scratch.columns[FIRST_CATEGORY, column + 1] = first + n_local
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
    size = scratch.state[N_CATEGORIES] * scratch.tallies.shape[1]
    return scratch.histograms.shape[0] // size - 1 if size > 0 else 0


@inner
def clear_histogram(scratch, row):
    """Zero a whole histogram."""
    size = scratch.state[N_CATEGORIES] * scratch.tallies.shape[1]
    for place in range(row * size, (row + 1) * size):
        scratch.histograms[place] = 0


@inner
def _count_column(scratch, column, order, start, end, row, sign):
    """Add the samples of a range to a column's part of a histogram, or take them out (sign -1)."""
    lists, histograms = scratch.lists, scratch.histograms
    width = scratch.tallies.shape[1]
    class_bits = scratch.state[CLASS_BITS]
    mask = (1 << class_bits) - 1
    base = column * scratch.state[STRIDE]
    first = (row * scratch.state[N_CATEGORIES] + np.int64(scratch.columns[FIRST_CATEGORY, column])) * width
    for i in range(order + start, order + end):
        entry = np.int64(lists[i])
        category = np.int64(lists[base + (entry >> (class_bits + 1))])
        histograms[first + category * width + ((entry >> 1) & mask)] += sign


@inner
def count_range(scratch, active, start, end, row, sign):
    """Add the samples of a range to the columns of a histogram that may split, or take them out (sign -1)."""
    order = (scratch.columns.shape[1] - 1 + ORDER) * scratch.state[STRIDE]
    for i in range(1, active[0] + 1):
        if scratch.categorical[active[i]]:
            _count_column(scratch, np.int64(active[i]), order, start, end, row, sign)


@pasted
def _score_category(scratch, place, n, width):
    """Score one category against the rest; -1 when one side is empty."""
    tallies, histograms = scratch.tallies, scratch.histograms
    n_left = np.int64(0)
    left_squares = np.int64(0)
    right_squares = np.int64(0)
    for c in range(width):
        left = np.int64(histograms[place + c])
        right = tallies[TOTALS, c] - left
        n_left += left
        left_squares += left * left
        right_squares += right * right
    if n_left == 0 or n_left == n:
        return -1.0
    return split_score(left_squares, n_left, right_squares, n - n_left)


@inner
def scan_categories(scratch, column, n, row, best):
    """Find the first best category of a column in a histogram, as `scan` finds the best place.

    Returns the score and the local category; with NIL when all samples are of one, -2 when none scores above
    `best`.
    """
    width = scratch.tallies.shape[1]
    start, end = (
        np.int64(scratch.columns[FIRST_CATEGORY, column]),
        np.int64(scratch.columns[FIRST_CATEGORY, column + 1]),
    )
    first = row * scratch.state[N_CATEGORIES]
    found = np.int64(NIL)
    for category in range(start, end):
        score = _score_category(scratch, (first + category) * width, n, width)
        if score > best:
            best, found = score, category - start
        elif score >= 0.0 and found == NIL:
            found = np.int64(NONE_BETTER)
    return best, found


@inner
def scan_samples(scratch, column, order, start, end, best):
    """The same for a node without a histogram: O(its samples)."""
    width = scratch.tallies.shape[1]
    class_bits = scratch.state[CLASS_BITS]
    lists, histograms = scratch.lists, scratch.histograms
    row = n_histograms(scratch)
    _count_column(scratch, column, order, start, end, row, 1)
    first = (row * scratch.state[N_CATEGORIES] + np.int64(scratch.columns[FIRST_CATEGORY, column])) * width
    base = column * scratch.state[STRIDE]
    found = np.int64(NIL)
    for i in range(order + start, order + end):
        category = np.int64(lists[base + (np.int64(lists[i]) >> (class_bits + 1))])
        place = first + category * width
        score = _score_category(scratch, place, end - start, width)
        if score > best or (score == best and found >= 0 and category < found):
            best, found = score, category
        elif score >= 0.0 and found == NIL:
            found = np.int64(NONE_BETTER)
        # So that the other samples of the category score nothing.
        for c in range(width):
            histograms[place + c] = 0
    return best, found
