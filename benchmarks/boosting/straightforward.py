"""The paper's straightforward GBDT: from scratch whenever samples come or go, every column sorted at every node.

"On Incremental Learning for Gradient Boosting Decision Trees", sections 3.3 and 4. Compiled by Numba as ours is, with
our derivatives, our score of a split and our order of candidates, so that it grows the same trees, bit for bit. What
differs is the search: nothing is presorted, nothing is kept from one node, tree or fit to the next.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from oubli.core.boosting.histogram import unsplit_score
from oubli.core.boosting.incremental.parameters import IncrementalSettings
from oubli.core.boosting.parameters import n_groups
from oubli.core.boosting.presorted.derivatives import begin, leaf_value, write_words
from oubli.core.boosting.presorted.engine import PresortedTrees
from oubli.core.boosting.presorted.split import (
    MISSING_LEFT,
    MORE,
    NONE,
    ONE_VS_REST,
    add_up_list,
    add_up_runs,
    best_of,
    best_threshold,
    sum_list,
)
from oubli.core.boosting.presorted.workspace import make_derivatives
from oubli.core.boosting.state import LEAF, NODE, Trees, no_trees
from oubli.core.rng import MISSING_CATEGORY
from oubli.core.samples.arrays import Problem
from oubli.core.tree.split import midpoint

compiled = numba.njit(cache=True, nogil=True, error_model="numpy")


@compiled
def _sort_numbers(column, rows, entries):
    """Sort the rows of a node by a numeric column; returns how many have a value."""
    n = rows.shape[0]
    values = np.empty(n, column.dtype)
    for i in range(n):
        values[i] = column[rows[i]]
    order = np.argsort(values)
    n_present = n
    while n_present > 0 and np.isnan(values[order[n_present - 1]]):
        n_present -= 1
    for i in range(n):
        is_new = i == 0 or i == n_present or (i < n_present and values[order[i]] != values[order[i - 1]])
        entries[i] = np.int64(rows[order[i]]) << 1 | np.int64(is_new)
    return n_present


@compiled
def _sort_categories(column, category_hashes, rows, entries):
    """Sort the rows of a node by a categorical column: missing values first, then by hash."""
    n = rows.shape[0]
    n_missing = 0
    for i in range(n):
        if np.isnan(column[rows[i]]):
            entries[n_missing] = np.int64(rows[i]) << 1 | np.int64(n_missing == 0)
            n_missing += 1
    present = np.empty(n - n_missing, np.int64)
    hashes = np.empty(n - n_missing, np.uint64)
    at = 0
    for i in range(n):
        x = column[rows[i]]
        if not np.isnan(x):
            present[at] = rows[i]
            hashes[at] = category_hashes[np.int64(x)]
            at += 1
    order = np.argsort(hashes)
    for i in range(at):
        is_new = i == 0 or hashes[order[i]] != hashes[order[i - 1]]
        entries[n_missing + i] = present[order[i]] << 1 | np.int64(is_new)


@compiled
def _search(columns, categorical, category_hashes, rows, words, word, loss, entries):
    """Sort every column, and find the best split of a node: column (-1: none), kind, low, high, category, word."""
    n = rows.shape[0]
    none = unsplit_score(word, loss.shift, loss.l2)
    best = none * MORE
    best_column, best_kind, best_word = np.int64(-1), np.int64(0), np.int64(0)
    low, high, category = 0.0, 0.0, np.uint64(0)
    lefts, places = np.empty(n + 1, np.int64), np.empty(n + 1, np.int32)
    for f in range(columns.shape[0]):
        column = columns[f]
        if categorical[f]:
            _sort_categories(column, category_hashes, rows, entries)
            count = add_up_runs(entries, 0, n, words, lefts, places)
            worth, found = best_of(loss, lefts, count, np.int64(0), word, best, np.int64(0), 0)
            kind, left = np.int64(ONE_VS_REST), lefts[max(found, 0)]
            if found != NONE:
                x = column[entries[places[found]] >> 1]
                category = MISSING_CATEGORY if np.isnan(x) else category_hashes[np.int64(x)]
        else:
            n_present = _sort_numbers(column, rows, entries)
            missing = sum_list(entries, n_present, n, words)
            count = add_up_list(entries, 0, n_present, words, lefts, places)
            worth, found, kind = best_threshold(loss, lefts, count, missing, word, best, False, 0)
            left = lefts[max(found, 0)] + (missing if kind == MISSING_LEFT else 0)
            place = places[max(found, 0)]
            if found != NONE:
                low = column[entries[place - 1] >> 1]
                high = column[entries[place] >> 1] if place < n_present else np.inf
        if found != NONE:
            best, best_column, best_kind, best_word = worth, np.int64(f), kind, left
    return best_column, best_kind, low, high, category, best_word


@compiled
def _divide(column, category_hashes, rows, nodes, node):
    """Put the rows that go left first, and return their number."""
    right = np.empty_like(rows)
    n_left, n_right = 0, 0
    for i in range(rows.shape[0]):
        x = column[rows[i]]
        if nodes[node]["is_categorical"]:
            value = MISSING_CATEGORY if np.isnan(x) else category_hashes[np.int64(x)]
            goes_left = value == nodes[node]["category"]
        elif np.isnan(x):
            goes_left = nodes[node]["missing_left"] == 1
        else:
            goes_left = x <= nodes[node]["threshold"]
        if goes_left:
            rows[n_left] = rows[i]
            n_left += 1
        else:
            right[n_right] = rows[i]
            n_right += 1
    rows[n_left:] = right[:n_right]
    return n_left


@compiled
def _grow_tree(columns, categorical, category_hashes, words, scores, loss, factor, max_depth, nodes, size):
    """Grow a tree from `nodes[size]` on; returns the rows in use then."""
    n = columns.shape[1]
    members = np.arange(n).astype(np.int32)
    entries = np.empty(n, np.int32)
    mask = (np.int64(1) << loss.shift) - 1
    stack = [(np.int64(size), np.int64(0), np.int64(n), np.int64(0), words.sum())]
    size += 1
    while len(stack) > 0:
        node, start, end, depth, word = stack.pop()
        rows = members[start:end]
        column, kind, low, high = np.int64(-1), np.int64(0), 0.0, 0.0
        category, left_word = np.uint64(0), np.int64(0)
        if depth < max_depth and end - start >= 2 and word & mask >= 2 * loss.least:
            column, kind, low, high, category, left_word = _search(
                columns, categorical, category_hashes, rows, words, word, loss, entries[: end - start]
            )
        nodes[node]["feature"] = column
        if column == LEAF:
            value = leaf_value(loss, word, factor)
            nodes[node]["value"] = value
            for row in rows:
                scores[row] += value
            continue
        nodes[node]["left"] = size
        nodes[node]["missing_left"] = kind == MISSING_LEFT
        nodes[node]["is_categorical"] = kind == ONE_VS_REST
        if kind == ONE_VS_REST:
            nodes[node]["category"] = category
        else:
            nodes[node]["threshold"] = np.inf if high == np.inf else midpoint(low, high, columns)
        middle = start + _divide(columns[column], category_hashes, rows, nodes, node)
        stack.append((np.int64(size + 1), middle, end, depth + 1, word - left_word))
        stack.append((np.int64(size), start, middle, depth + 1, left_word))
        size += 2
    return size


@compiled
def _boost(columns, categorical, category_hashes, loss, max_depth, derivatives, nodes, roots):
    """Grow all trees; returns the nodes there are."""
    words, scores = derivatives.words, derivatives.scores
    groups = scores.shape[0]
    size = 0
    for iteration in range(roots.shape[0] // groups):
        factor, _ = write_words(loss, derivatives)
        for k in range(groups):
            roots[iteration * groups + k] = size
            size = _grow_tree(
                columns, categorical, category_hashes, words[k], scores[k], loss, factor, max_depth, nodes, size
            )
    return size


class StraightforwardTrees(PresortedTrees):
    """An engine of which only `fit` is needed: `trees` are those of `PresortedTrees` (without early stopping)."""

    def __init__(self, settings: IncrementalSettings, *_: Any) -> None:
        self.settings = settings
        self.trees = no_trees()

    def fit(self, problem: Problem, slots: npt.NDArray[np.int64], progress: Any = None) -> None:
        """Train on the samples of some slots."""
        settings, data = self.settings, problem.data
        groups = n_groups(problem, len(slots))
        if groups == 0:
            self.trees = no_trees()
            return
        start = begin(problem, slots, settings.learning_rate, settings.l2_regularization, settings.min_child_weight)
        roots = np.zeros(settings.n_estimators * groups, np.int32)
        a_tree = 2 * min(2**settings.max_depth, len(slots)) - 1
        nodes = np.zeros(len(roots) * a_tree, NODE)
        columns = np.ascontiguousarray(data.cells[slots].T)
        size = _boost(
            columns, data.categorical, data.category_hashes, start.loss, settings.max_depth,
            make_derivatives(len(slots), start.first), nodes, roots,
        )  # fmt: skip
        self.trees = Trees(nodes[:size].copy(), roots, start.base, start.unit)
