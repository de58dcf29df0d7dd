"""Predictions of rows by the trees that have not learned them.

For samples held these are out-of-bag predictions. With low disclosure (see `layout/draws.py`) all rows are answered so,
and class probabilities are rounded to bands of a quarter: a single sample near a row moves its probability by little,
and only a move across the end of a band shows.
"""

from functools import lru_cache

import numpy as np

from oubli.core.array_types import Reals
from oubli.core.forest.layout.draws import draw_hash
from oubli.core.forest.predict import add_end, enter, look_up_hashes, walk_by_all, walk_by_numbers
from oubli.core.forest.state import leaf_of
from oubli.core.forest.workspace import ENDS, N_LANES
from oubli.core.jit.aligned import prefetch_to_read
from oubli.core.jit.policy import kernel
from oubli.core.rng import draw_trees, restore_order

BANDS = 4  # from 0 to 1


@kernel
def sum_unseen_leaves(nodes, leaves, parameters, data, rows, order, hashes, lanes, sums, n_summed):
    """Sum for each row the leaves of the trees that it does not draw; there are no tags on the rows' paths.

    nodes, leaves  of `Trees`, read only
    data      the samples, `rows` being slots; or the same with the cells of queries and their categories' hashes
    rows      int64[n]
    order     int32[n_trees], the identity permutation, and so again at the end
    hashes    uint64[1, d] working space; no rows where there are no categories
    lanes     int32[3, N_LANES] working space
    sums      float64[n, width or 1], zero, written
    n_summed  int64[n], zero, written: non-empty trees that answer

    Walks go down different trees in step. A row's sum is in the order in which its hash leaves the trees. O(n T depth).
    """
    n_trees, n_draws = parameters[0]["n_trees"], parameters[0]["occurrences"]
    is_regression, seed_key = parameters[0]["is_regression"] != 0, parameters[0]["seed_key"]
    for i in range(rows.shape[0]):
        row = rows[i]
        hashed = draw_hash(data, parameters, row)
        draw_trees(seed_key, hashed, n_trees, n_draws, order)
        if hashes.shape[0] > 0:
            look_up_hashes(data.cells, data.category_hashes, row, hashes)
        for first in range(n_draws, n_trees, N_LANES):
            n_lanes = min(N_LANES, n_trees - first)
            for lane in range(n_lanes):
                enter(order[first + lane], lane, lanes)
                n_summed[i] += np.int64(nodes[order[first + lane]]["n_samples"] > 0)
            if hashes.shape[0] > 0:
                walk_by_all(nodes, data.cells, row, hashes, lanes, n_lanes)
            else:
                walk_by_numbers(nodes, data.cells, row, lanes, n_lanes)
            for lane in range(n_lanes):
                leaf = leaf_of(nodes, lanes[ENDS, lane])
                if leaves.tallies.shape[0] > 0:
                    prefetch_to_read(leaves.starts, (leaf,))
                else:
                    prefetch_to_read(leaves.statistics, (leaf, np.int64(0)))
            for lane in range(n_lanes):
                add_end(nodes, leaves, lanes[ENDS, lane], is_regression, sums, i)
        restore_order(seed_key, hashed, n_trees, n_draws, order)


def banded(probabilities: Reals) -> Reals:
    """Round the probability of each row's most probable class to the middle of its band; the others share the rest.

    The band ends at 1 / n_classes, below which no most probable class can be. A row that no tree answers has all
    classes alike.
    """
    n_rows, n_classes = probabilities.shape
    if n_classes < 2:
        return np.ones_like(probabilities)
    places = np.arange(n_rows), probabilities.argmax(axis=1)
    found = probabilities[places]
    bands = (BANDS * found).astype(np.intp) + (found > 0)
    winners, others = _told(n_classes)
    answers = np.empty_like(probabilities)
    answers[:] = others[bands][:, np.newaxis]
    answers[places] = winners[bands]
    return answers


@lru_cache(maxsize=16)
def _told(n_classes: int) -> tuple[Reals, Reals]:
    """Return what the winner and each other class get, by band; first: no tree answers, last: all trees agree."""
    middles = [(max(band / BANDS, 1 / n_classes) + (band + 1) / BANDS) / 2 for band in range(BANDS)]
    winners = np.array([1 / n_classes, *middles, middles[-1]])
    return winners, (1 - winners) / (n_classes - 1)
