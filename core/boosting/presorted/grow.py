"""Growing a tree on presorted columns: best splits down to a depth, without sorting.

A tree is a pure function of the words and the table: nodes are made in path order, and sums are integers. Every tree
of an update is grown by the same steps; what the update changes is seen by comparing each node with the one that was
in its place (`updateTree`, Algorithm 4), whose column is searched first.

Differs from the paper, all of it without a change of the result but for (d):

    a) narrow columns are searched by sums over their values (see `state.py`), of which the sibling's follow
       by subtraction;
    b) a changed root does not end the checks: later trees are still compared with the old ones node by node, which
       costs nothing, since any check of a node is the search that a rebuild would make;
    c) a node stops before the depth is reached when no split can have enough weight on both sides;
    d) categories, missing values, log-loss.
"""

import numpy as np

from oubli.core.boosting.histogram import clear, fill, subtract, unsplit_score
from oubli.core.boosting.presorted import split
from oubli.core.boosting.presorted.derivatives import leaf_value
from oubli.core.boosting.presorted.workspace import (
    CHANGED,
    DEPTH,
    END,
    HIGH,
    HISTOGRAM,
    KEPT,
    LOW,
    NIL,
    NODE,
    OLD,
    START,
    WORD,
)
from oubli.core.boosting.state import LEAF, make_leaf, make_split
from oubli.core.jit.policy import inner, pasted

_NO_BOUND = np.int64(2**62)

# -- the search -----------------------------------------------------------------------------------


@inner
def _search_narrow(table, room, histogram, j, word, loss, best, ties, direction):
    """Find the best split of a narrow column; the place is the last bin of the left side, or the category's."""
    start, end = np.int64(table.offsets[j]), np.int64(table.offsets[j + 1])
    column, lefts = table.narrow[j], room.lefts
    if table.categorical[column]:
        limit = end - start if ties else np.int64(0)
        best, found = split.best_of(loss, histogram[start:end], end - start, np.int64(0), word, best, limit, 0)
        return best, found, start + found, np.int64(split.ONE_VS_REST), histogram[start + max(found, 0)]
    missing = np.int64(0)
    if table.has_missing[column]:
        end -= 1
        missing = histogram[end]
    n = split.add_up_bins(histogram, start, end, lefts)
    best, found, kind = split.best_threshold(loss, lefts, n, missing, word, best, ties, direction)
    left = lefts[max(found, 0)] + (missing if kind == split.MISSING_LEFT else 0)
    return best, found, start + found, kind, left


@inner
def _search_wide(table, room, j, start, end, words, word, loss, best, ties, direction):
    """Find the best split of a wide column; the place is where the right side, or the category, begins in the list."""
    column, entries, lefts, places = table.wide[j], room.lists[j], room.lefts, room.places
    if table.categorical[column]:
        n = split.add_up_runs(entries, start, end, words, lefts, places)
        limit = n if ties else np.int64(0)
        best, found = split.best_of(loss, lefts, n, np.int64(0), word, best, limit, 0)
        return best, found, np.int64(places[max(found, 0)]), np.int64(split.ONE_VS_REST), lefts[max(found, 0)]
    missing = np.int64(0)
    if table.has_missing[column]:
        present_end = split.first_missing(table, column, entries, start, end)
        missing = split.sum_list(entries, present_end, end, words)
        end = present_end
    n = split.add_up_list(entries, start, end, words, lefts, places)
    best, found, kind = split.best_threshold(loss, lefts, n, missing, word, best, ties, direction)
    left = lefts[max(found, 0)] + (missing if kind == split.MISSING_LEFT else 0)
    return best, found, np.int64(places[max(found, 0)]), kind, left


@inner
def _search(boosting, words, start, end, histogram, word, hint):
    """Find the best split of a node.

    hint  the column to begin with, NIL for none

    Returns its column (NIL when no split is worth it), its number among the narrow ones (or -1 less that among the wide
    ones), its place and kind, the word of the left side, and its worth less that of no split.
    """
    table, room, loss = boosting.table, boosting.room, boosting.loss
    none = unsplit_score(word, loss.shift, loss.l2)
    best = none * split.MORE
    best_column, best_j, best_place, best_kind, best_word = np.int64(NIL), np.int64(0), np.int64(0), np.int64(0), word
    n_narrow = table.narrow.shape[0]
    for turn in range(2):
        for j in range(n_narrow + table.wide.shape[0]):
            is_narrow, k = j < n_narrow, j - n_narrow
            column = np.int64(table.narrow[j]) if is_narrow else np.int64(table.wide[k])
            if (column == hint) != (turn == 0):
                continue
            ties, direction = column < best_column, boosting.directions[column]
            if is_narrow:
                bins = room.histograms[histogram]
                worth, found, place, kind, left = _search_narrow(
                    table, room, bins, j, word, loss, best, ties, direction
                )
            else:
                worth, found, place, kind, left = _search_wide(
                    table, room, k, start, end, words, word, loss, best, ties, direction
                )
            if found != split.NONE:
                best, best_column, best_place, best_kind, best_word = worth, column, place, kind, left
                best_j = j if is_narrow else -1 - k
    return best_column, best_j, best_place, best_kind, best_word, best - none


# -- histograms -----------------------------------------------------------------------------------


@pasted
def _take_histogram(room):
    room.free[0] -= 1
    return room.free[room.free[0] + 1]


@pasted
def _give_histogram(room, histogram):
    room.free[room.free[0] + 1] = histogram
    room.free[0] += 1


@inner
def _count(table, room, words, start, end, histogram):
    """Make a histogram of a node's samples."""
    bins = room.histograms[histogram]
    clear(bins)
    fill(bins, table.codes, table.offsets, room.members, start, end, words)


@inner
def _hand_down(table, room, words, start, middle, end, histogram, left_splits, right_splits):
    """Turn the histogram of a node into those of its children that may split; returns theirs, NIL for none.

    The child with fewer samples is counted, the other one has the rest.
    """
    if histogram == NIL or not (left_splits or right_splits):
        if histogram != NIL:
            _give_histogram(room, histogram)
        return np.int64(NIL), np.int64(NIL)
    left_is_small = middle - start <= end - middle
    small_start, small_end = (start, middle) if left_is_small else (middle, end)
    small_splits, large_splits = (left_splits, right_splits) if left_is_small else (right_splits, left_splits)
    small, large = np.int64(NIL), np.int64(NIL)
    if not large_splits:
        _count(table, room, words, small_start, small_end, histogram)
        small = histogram
    else:
        other = _take_histogram(room)
        _count(table, room, words, small_start, small_end, other)
        subtract(room.histograms[histogram], room.histograms[other], room.histograms[histogram])
        large = histogram
        if small_splits:
            small = other
        else:
            _give_histogram(room, other)
    if left_is_small:
        return small, large
    return large, small


# -- a tree ---------------------------------------------------------------------------------------


@pasted
def _may_split(word, n_samples, depth, loss, max_depth):
    h = word & ((np.int64(1) << loss.shift) - 1)
    return depth < max_depth and n_samples >= 2 and h >= 2 * loss.least


@pasted
def _push(room, size, node, start, end, depth, histogram, word, old):
    top = room.stack[size]
    top[NODE], top[START], top[END], top[DEPTH] = node, start, end, depth
    top[HISTOGRAM], top[WORD], top[OLD] = histogram, word, old


@inner
def _compare(old_nodes, old, column, counts):
    """Count whether a node's column is what it was; returns whether the nodes below can be compared as well."""
    if old == NIL:
        return False
    before = np.int64(old_nodes[old]["feature"])
    if before == LEAF and column == NIL:
        return False
    if before == column:
        counts[KEPT] += 1
        return True
    counts[CHANGED] += 1
    return False


@inner
def grow_tree(boosting, group, factor, gain_unit, old_nodes, old_root, nodes, gains, size, counts):
    """Grow a tree on the words of all samples, and take its values to their scores.

    factor     of a leaf's value, see `leaf_value`
    gain_unit  of a gain
    old_root   row in `old_nodes` of the tree that is updated; NIL when there is none
    size       rows of `nodes` in use; the tree's root is the next one

    Returns the rows of `nodes` in use then.
    """
    table, room, loss, max_depth = boosting.table, boosting.room, boosting.loss, boosting.max_depth
    words, scores = boosting.derivatives.words[group], boosting.derivatives.scores[group]
    members, sides, spare = room.members, room.sides, room.spare
    n, n_wide = members.shape[0], table.wide.shape[0]
    word = np.int64(0)
    for row in range(n):
        members[row] = row
        word += words[row]
    for j in range(n_wide):
        source, target = table.lists[j], room.lists[j]
        for i in range(n):
            target[i] = source[i]
    room.free[0] = room.histograms.shape[0]
    for i in range(room.histograms.shape[0]):
        room.free[i + 1] = i
    histogram = np.int64(NIL)
    if table.narrow.shape[0] > 0 and _may_split(word, n, 0, loss, max_depth):
        histogram = _take_histogram(room)
        _count(table, room, words, 0, n, histogram)
    _push(room, 0, size, 0, n, 0, histogram, word, old_root)
    room.stack[0, LOW], room.stack[0, HIGH] = -_NO_BOUND, _NO_BOUND
    size += 1
    n_waiting = 1
    while n_waiting > 0:
        n_waiting -= 1
        top = room.stack[n_waiting]
        node, start, end, depth = top[NODE], top[START], top[END], top[DEPTH]
        histogram, word, old = top[HISTOGRAM], top[WORD], top[OLD]
        column, j, place, kind = np.int64(NIL), np.int64(0), np.int64(0), np.int64(0)
        left_word, gain = np.int64(0), 0.0
        if _may_split(word, end - start, depth, loss, max_depth):
            hint = np.int64(NIL) if old == NIL else np.int64(old_nodes[old]["feature"])
            column, j, place, kind, left_word, gain = _search(boosting, words, start, end, histogram, word, hint)
        is_kept = _compare(old_nodes, old, column, counts)
        gains[node] = gain * gain_unit if column != NIL else 0.0
        if column == NIL:
            if histogram != NIL:
                _give_histogram(room, histogram)
            value = min(max(leaf_value(loss, word, factor), top[LOW]), top[HIGH])
            make_leaf(nodes, node, value)
            if value != 0:
                for i in range(start, end):
                    scores[np.uint64(members[np.uint64(i)])] += value
            continue
        if j >= 0:
            split.side_narrow(table, members, sides, start, end, j, place, kind, nodes, node)
        else:
            split.side_wide(table, room.lists[-1 - j], sides, start, end, -1 - j, place, kind, nodes, node)
        make_split(nodes, node, column, size, kind == split.MISSING_LEFT, kind == split.ONE_VS_REST)
        middle = split.divide_members(members, spare, sides, start, end)
        right_word = word - left_word
        left_splits = _may_split(left_word, middle - start, depth + 1, loss, max_depth)
        right_splits = _may_split(right_word, end - middle, depth + 1, loss, max_depth)
        left_histogram, right_histogram = _hand_down(
            table, room, words, start, middle, end, histogram, left_splits, right_splits
        )
        if left_splits or right_splits:
            for i in range(n_wide):
                split.divide_list(room.lists[i], spare, sides, start, end)
        left_old, right_old = np.int64(NIL), np.int64(NIL)
        if is_kept:
            left_old = np.int64(old_nodes[old]["left"])
            right_old = left_old + 1
        low, high, direction = top[LOW], top[HIGH], boosting.directions[column]
        between = (leaf_value(loss, left_word, factor) + leaf_value(loss, right_word, factor)) >> 1
        between = min(max(between, low), high)
        least, most = (between, between) if direction != 0 else (low, high)  # of the upper side, of the lower one
        ends = (low, most, least, high) if direction >= 0 else (least, high, low, most)
        _push(room, n_waiting, size + 1, middle, end, depth + 1, right_histogram, right_word, right_old)
        _push(room, n_waiting + 1, size, start, middle, depth + 1, left_histogram, left_word, left_old)
        room.stack[n_waiting, LOW], room.stack[n_waiting, HIGH] = ends[2], ends[3]
        room.stack[n_waiting + 1, LOW], room.stack[n_waiting + 1, HIGH] = ends[0], ends[1]
        n_waiting += 2
        size += 2
    return size
