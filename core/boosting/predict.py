"""Reading the trees: raw scores of rows. Nothing here writes to the trees."""

from collections.abc import Iterator

import numpy as np

from oubli.core.array_types import Array, Hashes, Reals
from oubli.core.boosting.loss import sigmoid, softmax
from oubli.core.boosting.state import LEAF, Trees, goes_right
from oubli.core.jit.policy import inner, kernel
from oubli.core.rng import MISSING_CATEGORY

_BLOCK = 64  # rows that go through a tree together, so that it stays in cache


@inner
def _leaf_value(nodes, root, cells, row, category_hashes):
    node = np.int64(root)
    while nodes[node]["feature"] != LEAF:
        side = goes_right(nodes, node, cells, row, category_hashes, MISSING_CATEGORY)
        node = np.int64(nodes[node]["left"]) + side
    return nodes[node]["value"]


@kernel
def raw_scores(nodes, roots, base, unit, cells, category_hashes, scores):
    """Write raw scores to float64[n, groups].

    Every sum is taken in the order of the iterations, so that a row has the same score alone and among others.
    """
    n_groups = base.shape[0]
    n_rows = cells.shape[0]
    for start in range(0, n_rows, _BLOCK):
        end = min(start + _BLOCK, n_rows)
        for row in range(start, end):
            for k in range(n_groups):
                scores[row, k] = 0.0
        for tree in range(roots.shape[0]):
            k = tree % n_groups
            for row in range(start, end):
                scores[row, k] += _leaf_value(nodes, roots[tree], cells, row, category_hashes)
        for row in range(start, end):
            for k in range(n_groups):
                scores[row, k] = base[k] + unit * scores[row, k]


@kernel
def answer_one(nodes, roots, base, unit, cells, category_hashes, is_regression, answer):
    """Write what one row is answered to float64[outputs]: its value, or the probabilities of the classes.

    The same bits as `raw_scores` and the functions of `loss.py` give.
    """
    n_groups = base.shape[0]
    if n_groups == 1:
        total = 0.0
        for tree in range(roots.shape[0]):
            total += _leaf_value(nodes, roots[tree], cells, 0, category_hashes)
        score = base[0] + unit * total
        if is_regression:
            answer[0] = score
        else:
            p = sigmoid(score)
            answer[0] = 1.0 - p
            answer[1] = p
        return
    for k in range(n_groups):
        answer[k] = 0.0
    for tree in range(roots.shape[0]):
        answer[tree % n_groups] += _leaf_value(nodes, roots[tree], cells, 0, category_hashes)
    for k in range(n_groups):
        answer[k] = base[k] + unit * answer[k]
    softmax(answer, answer)


def staged_scores(trees: Trees, cells: Array, category_hashes: Hashes) -> Iterator[Reals]:
    """Yield the raw scores of rows after each iteration, float64[n, groups]; the last are those of all, bit for bit."""
    groups, nothing = trees.n_groups, np.zeros(trees.n_groups)
    totals, own = np.zeros((len(cells), groups)), np.empty((len(cells), groups))
    for first in range(0, len(trees.roots), max(groups, 1)):
        raw_scores(trees.nodes, trees.roots[first : first + groups], nothing, 1.0, cells, category_hashes, own)
        totals += own
        yield trees.base + trees.unit * totals
