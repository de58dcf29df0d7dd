"""Splits: which side a row takes, what a split is worth, where a threshold lies.

The Gini gain of a split of S into L and R (Definition 2.1, and its usual extension g(S) = 1 - sum of
squared class shares to several classes) is (sum_c L_c^2 / |L| + sum_c R_c^2 / |R|) / |S| plus a
term of S alone. So splits of one node are compared by that bracket: one float64 expression of integers, the sums
of squares being exact in float64 up to 2^26 samples.
"""

import numpy as np

from oubli.core.jit.policy import kernel, pasted
from oubli.core.rng import MISSING_CATEGORY
from oubli.core.tree.state import MISSING_LEFT, MISSING_RIGHT


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
def is_nearly_pure(n_samples, squares, half_alpha):
    """Whether g(S) <= alpha / 2, times |S|^2 on both sides."""
    square = n_samples * n_samples
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


@pasted
def category_hash(category_hashes, cell):
    """Hash of the category in a cell of a categorical column."""
    if cell != cell:
        return MISSING_CATEGORY
    return category_hashes[np.uint64(cell)]


@pasted
def goes_right(nodes, node, cells, row, category_hashes):
    """Side of a row at an inner node: 0 left, 1 right."""
    kind = nodes[node]["kind"]
    x = cells[np.uint64(row), np.uint64(nodes[node]["attribute"])]
    if kind <= MISSING_LEFT:
        missing_goes_right = (x != x) & (kind == MISSING_RIGHT)
        return np.int64((x > nodes[node]["threshold"]) | missing_goes_right)
    return np.int64(category_hash(category_hashes, x) != nodes[node]["category"])


@kernel
def side_of(nodes, node, cells, row, category_hashes):
    """`goes_right`, to be called from Python."""
    return goes_right(nodes, node, cells, row, category_hashes)
