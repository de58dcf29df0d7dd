"""Boosting: tree after tree on what the trees before leave over (Algorithms 2 and 3)."""

import numpy as np

from oubli.core.boosting.presorted.grow import grow_tree
from oubli.core.boosting.presorted.watch import follow, total_loss
from oubli.core.boosting.presorted.words import (
    BINARY,
    SCORE_BITS,
    SQUARED,
    write_binary,
    write_multi_class,
    write_residuals,
)
from oubli.core.boosting.presorted.workspace import FIRST_CHANGED, NIL
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
