"""Boosting: tree after tree on what the trees before leave over (Algorithms 2 and 3).

In threads the trees of several classes grow side by side.
"""

from functools import partial
from typing import Any

import numpy as np

from oubli.core import threads
from oubli.core.array_types import Hashes, Ints
from oubli.core.boosting.presorted.grow import grow_tree
from oubli.core.boosting.presorted.table import Table
from oubli.core.boosting.presorted.watch import Watch, follow, total_loss
from oubli.core.boosting.presorted.words import (
    BINARY,
    SCORE_BITS,
    SQUARED,
    Loss,
    write_binary,
    write_multi_class,
    write_residuals,
)
from oubli.core.boosting.presorted.workspace import CHANGED, FIRST_CHANGED, KEPT, NIL, Derivatives, Room, make_room
from oubli.core.boosting.rows import n_blocks
from oubli.core.boosting.state import LEAF, NODE
from oubli.core.forest.quantisation import BITS
from oubli.core.jit.policy import inner, kernel


@inner
def write_words(loss, derivatives):
    """Write the words of all groups; returns what `leaf_value` multiplies by, and the unit of a gain.

    Gains of a regression are in squares of 2**e (see `presorted_words.py`): finite whatever the targets.
    """
    scores, words = derivatives.scores, derivatives.words
    if loss.kind == SQUARED:
        n_off = write_residuals(loss, scores[0], words[0])
        power = np.float64(np.int64(1) << n_off)
        gain_root = power / np.float64(np.int64(1) << BITS)
        return loss.rate * power, gain_root * gain_root
    if loss.kind == BINARY:
        write_binary(loss, scores[0], words[0])
    else:
        write_multi_class(loss, scores, words, derivatives.powers, derivatives.largest, derivatives.totals)
    weight_bits = loss.h_bits + 2
    g_scale = np.float64(np.int64(1) << loss.g_bits)
    factor = loss.rate * np.float64(np.int64(1) << (SCORE_BITS + weight_bits - loss.g_bits))
    return factor, np.float64(np.int64(1) << weight_bits) / (g_scale * g_scale)


@inner
def _note_root(old_nodes, old_root, nodes, root, tree, counts):
    if old_root != NIL and counts[FIRST_CHANGED] == NIL and old_nodes[old_root]["feature"] != nodes[root]["feature"]:
        counts[FIRST_CHANGED] = tree


@kernel
def boost(
    table, cells, category_hashes, room, derivatives, loss, watch, max_depth, old_nodes, old_roots, nodes, gains,
    roots, size, best, first, last, counts,
):  # fmt: skip
    """Grow the trees of the iterations from `first` to before `last`.

    old_nodes, old_roots   the trees that are updated; none or as many as there will be
    nodes, gains           room for all trees to be grown, of which `size` rows are in use
    roots                  int32[trees], written
    counts                 int64[COUNTS_SIZE], what the update did

    Returns the rows of `nodes` in use then, the iterations there are, and the one with the lowest validation loss;
    `best` is the one among those before `first`. Training ends `watch.patience` iterations after it. The trees of one
    iteration all see the scores before it.
    """
    n_groups = derivatives.scores.shape[0]
    for iteration in range(first, last):
        factor, gain_unit = write_words(loss, derivatives)
        for k in range(n_groups):
            tree = iteration * n_groups + k
            old_root = np.int64(old_roots[tree]) if tree < old_roots.shape[0] else np.int64(NIL)
            roots[tree] = size
            size = grow_tree(
                table, cells, category_hashes, room, derivatives.words[k], derivatives.scores[k], loss, factor,
                gain_unit, max_depth, old_nodes, old_root, nodes, gains, size, counts,
            )  # fmt: skip
            root = np.int64(roots[tree])
            _note_root(old_nodes, old_root, nodes, root, tree, counts)
            follow(watch, nodes, root, cells, category_hashes, watch.scores[k])
        if watch.patience > 0:
            watch.losses[iteration] = total_loss(watch, loss.kind)
            if watch.losses[iteration] < watch.losses[best]:
                best = iteration
            if iteration - best >= watch.patience:
                return size, iteration + 1, best
    return size, last, best


# -- in threads -------------------------------------------------------------------------------------


@kernel
def begin_iteration(loss, derivatives):
    """Write the words of all groups; returns the factor of leaf values and the unit of gains."""
    return write_words(loss, derivatives)


@kernel
def grow_group(
    table, cells, category_hashes, room, derivatives, loss, watch, max_depth, factor, gain_unit, old_nodes, old_root,
    nodes, gains, group, counts,
):  # fmt: skip
    """Grow a group's tree at the beginning of `nodes`, which is its own; returns how many nodes it has."""
    size = grow_tree(
        table, cells, category_hashes, room, derivatives.words[group], derivatives.scores[group], loss, factor,
        gain_unit, max_depth, old_nodes, old_root, nodes, gains, 0, counts,
    )  # fmt: skip
    follow(watch, nodes, 0, cells, category_hashes, watch.scores[group])
    return size


@kernel
def loss_of_all(watch, kind):
    """Validation loss."""
    return total_loss(watch, kind)


class ThreadedBoosting:
    """Iterations grown in threads; `pays` says whether that is worth it."""

    def __init__(
        self,
        table: Table,
        cells: Any,
        category_hashes: Hashes,
        derivatives: Derivatives,
        loss: Loss,
        watch: Watch,
        max_depth: int,
        a_tree: int,
        n_threads: int,
    ) -> None:
        groups, n = derivatives.words.shape
        self._n_threads = min(n_threads, groups)
        self.pays = groups > 1 and n_blocks(n * groups, len(table.categorical), self._n_threads) > 1
        if not self.pays:
            return
        self._read = table, cells, category_hashes
        self._derivatives, self._loss, self._watch, self._max_depth = derivatives, loss, watch, max_depth
        self._rooms: list[Room] = [make_room(table, max_depth) for _ in range(self._n_threads)]
        self._nodes = np.zeros((groups, a_tree), NODE)
        self._gains = np.zeros((groups, a_tree))

    def erase(self) -> None:
        """Overwrite what samples have left."""
        for array in (self._nodes, self._gains, *(array for room in self._rooms for array in room)):
            array.fill(0)

    def boost(
        self, old_nodes: Any, old_roots: Any, nodes: Any, gains: Any, roots: Any, size: int, best: int, first: int,
        last: int, counts: Ints,
    ) -> tuple[int, int, int]:  # fmt: skip
        """Grow the trees of the iterations from `first` to before `last`; see `boost.boost`."""
        watch, groups = self._watch, len(self._nodes)
        for iteration in range(first, last):
            factor, gain_unit = begin_iteration(self._loss, self._derivatives)
            trees = range(iteration * groups, (iteration + 1) * groups)
            old = [int(old_roots[tree]) if tree < len(old_roots) else NIL for tree in trees]
            some_counts = np.zeros((groups, len(counts)), np.int64)
            sizes = threads.run(
                [partial(self._grow, k, factor, gain_unit, old_nodes, old[k], some_counts[k]) for k in range(groups)],
                self._n_threads,
            )
            for k, (tree, n) in enumerate(zip(trees, sizes, strict=True)):
                roots[tree] = size
                mine = nodes[size : size + n]
                mine[:] = self._nodes[k, :n]
                mine["left"][mine["feature"] != LEAF] += size
                gains[size : size + n] = self._gains[k, :n]
                size += n
                is_other = old[k] != NIL and old_nodes[old[k]]["feature"] != mine[0]["feature"]
                if is_other and counts[FIRST_CHANGED] == NIL:
                    counts[FIRST_CHANGED] = tree
            for counted in (KEPT, CHANGED):
                counts[counted] += some_counts[:, counted].sum()
            if watch.patience > 0:
                watch.losses[iteration] = loss_of_all(watch, self._loss.kind)
                if watch.losses[iteration] < watch.losses[best]:
                    best = iteration
                if iteration - best >= watch.patience:
                    return size, iteration + 1, best
        return size, last, best

    def _grow(self, k: int, factor: float, gain_unit: float, old_nodes: Any, old_root: int, counts: Ints) -> int:
        room = self._rooms.pop()
        nodes, gains = self._nodes[k], self._gains[k]
        nodes.fill(0)
        size: int = grow_group(
            *self._read, room, self._derivatives, self._loss, self._watch, self._max_depth, factor, gain_unit,
            old_nodes, old_root, nodes, gains, k, counts,
        )  # fmt: skip
        self._rooms.append(room)
        return size
