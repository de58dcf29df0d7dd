"""The boosting loop: each tree is grown on the residuals of the trees before it (Algorithms 2 and 3).

With threads, the trees of several classes grow side by side.
"""

from functools import partial
from typing import Any

import numpy as np

from oubli.core.array_types import Ints
from oubli.core.boosting.presorted.derivatives import follow, total_loss, write_words
from oubli.core.boosting.presorted.grow import grow_tree
from oubli.core.boosting.presorted.workspace import CHANGED, FIRST_CHANGED, KEPT, NIL, Boosting, Room, make_room
from oubli.core.boosting.rows import n_blocks
from oubli.core.boosting.state import LEAF, NODE
from oubli.core.concurrency import threads
from oubli.core.jit.policy import kernel


@kernel
def grow_group(boosting, group, factor, gain_unit, old_nodes, old_root, nodes, gains, size, counts):
    """Grow a group's tree behind the first `size` nodes; returns how many nodes there are then."""
    end = grow_tree(boosting, group, factor, gain_unit, old_nodes, old_root, nodes, gains, size, counts)
    follow(boosting.watch, boosting.table, nodes, size, boosting.watch.scores[group])
    return end


@kernel
def boost(boosting, old_nodes, old_roots, nodes, gains, roots, size, best, first, last, counts):
    """Grow the trees of the iterations from `first` to before `last`.

    old_nodes, old_roots   the trees that are updated; none or as many as there will be
    nodes, gains           room for all trees to be grown, of which `size` rows are in use
    roots                  int32[trees], written
    counts                 int64[COUNTS_SIZE], what the update did

    Returns the rows of `nodes` in use then, the iterations there are, and the one with the lowest validation loss;
    `best` is the one among those before `first`. Training ends `watch.patience` iterations after it. The trees of one
    iteration all see the scores before it.
    """
    watch, n_groups = boosting.watch, boosting.derivatives.scores.shape[0]
    for iteration in range(first, last):
        factor, gain_unit = write_words(boosting.loss, boosting.derivatives)
        for k in range(n_groups):
            tree = iteration * n_groups + k
            old = np.int64(old_roots[tree]) if tree < old_roots.shape[0] else np.int64(NIL)
            root = np.int64(size)
            roots[tree] = size
            size = grow_group(boosting, k, factor, gain_unit, old_nodes, old, nodes, gains, root, counts)
            is_other = old != NIL and old_nodes[old]["feature"] != nodes[root]["feature"]
            if is_other and counts[FIRST_CHANGED] == NIL:
                counts[FIRST_CHANGED] = tree
        if watch.patience > 0:
            watch.losses[iteration] = total_loss(watch, boosting.loss)
            if watch.losses[iteration] < watch.losses[best]:
                best = iteration
            if iteration - best >= watch.patience:
                return size, iteration + 1, best
    return size, last, best


class ThreadedBoosting:
    """Iterations grown in threads; `pays` says whether that is worth it."""

    def __init__(self, boosting: Boosting, a_tree: int, n_threads: int) -> None:
        groups, n = boosting.derivatives.words.shape
        self._n_threads = min(n_threads, groups)
        self.pays = groups > 1 and n_blocks(n * groups, len(boosting.table.categorical), self._n_threads) > 1
        if not self.pays:
            return
        self._boosting = boosting
        self._rooms: list[Room] = [make_room(boosting.table, boosting.max_depth) for _ in range(self._n_threads)]
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
        loss, watch, groups = self._boosting.loss, self._boosting.watch, len(self._nodes)
        for iteration in range(first, last):
            units = write_words(loss, self._boosting.derivatives)
            trees = range(iteration * groups, (iteration + 1) * groups)
            old = [int(old_roots[tree]) if tree < len(old_roots) else NIL for tree in trees]
            some_counts = np.zeros((groups, len(counts)), np.int64)
            sizes = threads.run(
                [partial(self._grow, k, units, old_nodes, old[k], some_counts[k]) for k in range(groups)],
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
            counts[[KEPT, CHANGED]] += some_counts[:, [KEPT, CHANGED]].sum(axis=0)
            if watch.patience > 0:
                watch.losses[iteration] = total_loss(watch, loss)
                if watch.losses[iteration] < watch.losses[best]:
                    best = iteration
                if iteration - best >= watch.patience:
                    return size, iteration + 1, best
        return size, last, best

    def _grow(self, k: int, units: tuple[float, float], old_nodes: Any, old_root: int, counts: Ints) -> int:
        room = self._rooms.pop()
        nodes, boosting = self._nodes[k], self._boosting._replace(room=room)
        nodes.fill(0)
        size: int = grow_group(boosting, k, *units, old_nodes, old_root, nodes, self._gains[k], 0, counts)
        self._rooms.append(room)
        return size
