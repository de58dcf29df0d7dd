"""The training of a subtree on the samples that reach its node (Sections 3.2 and 3.3).

The derivatives of these samples are brought up to date first ("adaptive lazy update"): only here, only theirs, and
only those of this tree. The sums of the nodes above are corrected bin by bin, from the node's histograms before and
after, so that every sum stays what `gh` and `leaf_of` of its samples say.

The subtree may have as many leaves as before, and those that the rest of the tree does not use.

A raw score needs the leaves of all trees before. They are either looked up, sample by sample, or the sums of all
samples are carried on from tree to tree for the rest of the update. Both give the same sums in the same order, so the
cheaper one is chosen.
"""

from functools import cached_property

import numpy as np

from oubli.core.array_types import Bools, Ints, Reals, Slots
from oubli.core.boosting.histogram import clear
from oubli.core.boosting.online import state as s
from oubli.core.boosting.online.grow import grow_subtree
from oubli.core.boosting.online.update import add_values, derive_all
from oubli.core.boosting.online.workspace import place_rows
from oubli.core.boosting.state import make_leaf
from oubli.core.jit.policy import inner, kernel

# Looking up one leaf of a sample here and there takes as long as some in a row.
_SCATTERED = 6


@kernel
def list_members(forest, tree, place, held, found, is_inside, members):
    """Write the samples that reach a node, of those in the slots `held`, in their order.

    found      int64[P], working space
    is_inside  uint8[J], working space
    members    int64[len(held)]

    Returns their number, that of the subtree's leaves, and that of the tree's leaves.
    """
    n_leaves = (s.list_below(forest, tree, 0, found) + 1) // 2
    n_below = s.list_below(forest, tree, place, found)
    for i in range(is_inside.shape[0]):
        is_inside[i] = 0
    for i in range(n_below):
        if s.children_of(forest, tree, found[i]) == s.NIL:
            is_inside[forest.states[s.row_of(forest, tree, found[i])]["leaf"]] = 1
    n = 0
    leaf_of = forest.leaf_of[tree]
    for i in range(held.shape[0]):
        slot = held[i]
        # Written always, kept only if it is one: no branch to guess.
        members[n] = slot
        n += np.int64(is_inside[leaf_of[slot]])
    return n, (n_below + 1) // 2, n_leaves


class Retraining:
    """What the retrainings of one update have in common.

    Attributes
    ----------
    slots : of all samples held.
    n_nodes, n_samples : subtrees retrained, and the samples in them.
    """

    def __init__(self, forest: s.Forest, held: Bools, n_groups: int) -> None:
        self.found = np.zeros(forest.n_places, np.int64)
        self.probabilities = np.zeros(n_groups)
        self.n_nodes = 0
        self.n_samples = 0
        self._held = held
        self._is_inside = np.zeros(forest.values.shape[1], np.uint8)
        self._sums: Reals | None = None
        self._carried = 0

    @cached_property
    def slots(self) -> Slots:
        """Slots of all samples held."""
        return np.flatnonzero(self._held)

    def list_members(self, forest: s.Forest, tree: int, place: int) -> tuple[Slots, int]:
        """Slots of the samples that reach a node, and the number of leaves that its subtree may have."""
        members = np.empty(len(self.slots), np.int64)
        n, n_below, n_leaves = list_members(forest, tree, place, self.slots, self.found, self._is_inside, members)
        self.n_nodes += 1
        self.n_samples += n
        return members[:n], forest.values.shape[1] - n_leaves + n_below

    def sums_of(self, forest: s.Forest, members: Ints, iteration: int) -> Reals:
        """Sums of the leaf values of some samples before an iteration, float64[K, n]."""
        n_groups = len(self.probabilities)
        if _SCATTERED * len(members) * iteration < len(self.slots) * (iteration - self._carried):
            sums = np.zeros((n_groups, len(members)))
            add_values(forest, members, 0, len(members), 0, iteration, sums)
            return sums
        if self._sums is None:
            self._sums = np.zeros((n_groups, len(self.slots)))
        add_values(forest, self.slots, 0, len(self.slots), self._carried, iteration, self._sums)
        self._carried = iteration
        return self._sums[:, np.searchsorted(self.slots, members)]


@inner
def _free(forest, tree, place, found):
    """Take the descendants of a node out of the tree: it is a leaf then."""
    for i in range(s.list_below(forest, tree, place, found)):
        here = found[i]
        row, left = s.row_of(forest, tree, here), s.children_of(forest, tree, here)
        forest.values[tree, forest.states[row]["leaf"]] = 0.0
        if left != s.NIL:
            clear(forest.stats[tree, left // 2])
        make_leaf(forest.nodes, row, 0.0)
        forest.states[row]["bin"] = np.int32(0)
        if here != place:
            s.clear_state(forest, row)


@inner
def _refresh_ancestors(forest, tree, place, space, total):
    """Correct what the nodes above say of the samples at hand, whose packed derivatives now add up to `total`."""
    left = s.children_of(forest, tree, place)
    row = s.row_of(forest, tree, place)
    change = total - forest.states[row]["sums"]
    forest.states[row]["sums"] = total
    place = np.int64(forest.states[row]["parent"])
    if place == s.NIL:
        return
    # An inner node that is not the root: only those are checked for being stale.
    before, after = forest.stats[tree, left // 2], space.histograms[0]
    while place != s.NIL:
        row = s.row_of(forest, tree, place)
        forest.states[row]["sums"] += change
        kept = forest.stats[tree, s.children_of(forest, tree, place) // 2]
        for i in range(kept.shape[0]):
            kept[i] += after[i] - before[i]
        place = np.int64(forest.states[row]["parent"])


@kernel
def retrain(model, labels, rows, space, iteration, tree, place, budget, sums, found, probabilities):
    """Retrain the subtree of a node.

    rows           the samples that reach it, at hand
    budget         leaves that it may have
    sums           float64[K, n]: their sums of leaf values before the iteration
    found          int64[P], working space
    probabilities  float64[K], working space
    """
    forest, n = model.forest, rows.slots.shape[0]
    first_tree = iteration * labels.base.shape[0]
    k = tree - first_tree
    derive_all(labels, sums, rows.slots, 0, n, iteration, first_tree, forest.gh, k, k + 1, probabilities)
    total = np.int64(0)
    for i in range(n):
        rows.packed[i] = s.contribution_of(model, tree, rows.slots[i])
        total += rows.packed[i]
    place_rows(space.histograms[0], rows, model, iteration, 0, n)
    _refresh_ancestors(forest, tree, place, space, total)
    _free(forest, tree, place, found)
    grow_subtree(model, rows, space, iteration, tree, place, budget)
