"""Training a subtree anew, on the samples that reach its node (Section 3.3, 3.2).

The derivatives of these samples are brought up to date first ("adaptive lazy update"): only here, only theirs, and
only those of this tree. What changes by that in the sums of the nodes above is put right bin by bin, from the node's
histograms before and after: so every sum stays what `gh` and `leaf_of` of its samples say.

The subtree may have as many leaves as before, and whatever the tree has to spare.

A raw score needs the leaves of all trees before. Either they are looked up, sample by sample; or the sums of all
samples, once begun, are carried on from tree to tree for the rest of the update. Both are the same sums in the same
order, so which is cheaper is all there is to decide.
"""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.online.grow import grow_subtree
from oubli.core.boosting.online.state import NIL, Forest, children_of, clear_split, clear_state, clear_stats, unpack
from oubli.core.boosting.online.update import derive
from oubli.core.boosting.online.workspace import place_rows
from oubli.core.jit.policy import inner, kernel

# Looking up one leaf of a sample here and there takes as long as some in a row.
_SCATTERED = 6


@inner
def _mark_leaves(forest, tree, place, stack, is_inside):
    """Mark the leaf numbers of a subtree; returns how many leaves it has."""
    n_places = 2 * forest.stats.shape[1] + 1
    for i in range(is_inside.shape[0]):
        is_inside[i] = 0
    stack[0] = place
    n_waiting = 1
    n_leaves = 0
    while n_waiting > 0:
        n_waiting -= 1
        here = stack[n_waiting]
        left = children_of(forest, tree, here)
        if left == NIL:
            is_inside[forest.states[tree * n_places + here]["leaf"]] = 1
            n_leaves += 1
            continue
        stack[n_waiting] = left
        stack[n_waiting + 1] = left + 1
        n_waiting += 2
    return n_leaves


@kernel
def list_members(forest, tree, place, held, stack, is_inside, members):
    """Write the samples that reach a node, of those in the slots `held`, in their order.

    stack      int64[P], working space
    is_inside  uint8[J], working space
    members    int64[len(held)]

    Returns their number and that of the subtree's leaves.
    """
    n_leaves = _mark_leaves(forest, tree, place, stack, is_inside)
    n = 0
    leaf_of = forest.leaf_of[tree]
    for i in range(held.shape[0]):
        slot = held[i]
        # Written always, kept only if it is one: no branch to guess.
        members[n] = slot
        n += np.int64(is_inside[leaf_of[slot]])
    return n, n_leaves


@kernel
def count_leaves(forest, tree):
    """Leaves of a tree."""
    n_places = 2 * forest.stats.shape[1] + 1
    n_in_use = 0
    for row in range(tree * n_places, (tree + 1) * n_places):
        n_in_use += np.int64(forest.states[row]["in_use"])
    return (n_in_use + 1) // 2


@kernel
def carry_on(forest, held, sums, start, end):
    """Add the iterations from `start` to `end` - 1 to the sums of all samples held, float64[K, S]."""
    n_groups = sums.shape[0]
    for tree in range(start * n_groups, end * n_groups):
        row = sums[tree % n_groups]
        values, leaf_of = forest.values[tree], forest.leaf_of[tree]
        for i in range(held.shape[0]):
            row[held[i]] += values[leaf_of[held[i]]]


@kernel
def look_up_sums(forest, members, iteration, sums):
    """Sum up the leaf values of some samples before an iteration, to float64[K, n]."""
    n_groups = sums.shape[0]
    for k in range(n_groups):
        for i in range(members.shape[0]):
            sums[k, i] = 0.0
    for tree in range(iteration * n_groups):
        row = sums[tree % n_groups]
        values, leaf_of = forest.values[tree], forest.leaf_of[tree]
        for i in range(members.shape[0]):
            row[i] += values[leaf_of[members[i]]]


class Retraining:
    """What the retrainings of one update have in common.

    Attributes
    ----------
    slots : of all samples held.
    n_nodes, n_samples : subtrees trained anew, and the samples in them.
    """

    def __init__(self, forest: Forest, held: npt.NDArray[np.bool_]) -> None:
        self.stack = np.zeros(forest.n_places, np.int64)
        self.n_nodes = 0
        self.n_samples = 0
        self._held = held
        self._is_inside = np.zeros(forest.values.shape[1], np.uint8)
        self._sums: npt.NDArray[np.float64] | None = None
        self._carried = 0

    @cached_property
    def slots(self) -> npt.NDArray[np.int64]:
        """Slots of all samples held."""
        return np.flatnonzero(self._held)

    def list_members(self, forest: Forest, tree: int, place: int) -> tuple[npt.NDArray[np.int64], int]:
        """Slots of the samples that reach a node, and the number of leaves below it."""
        members = np.empty(len(self.slots), np.int64)
        n, n_leaves = list_members(forest, tree, place, self.slots, self.stack, self._is_inside, members)
        return members[:n], n_leaves

    def sums_of(
        self, forest: Forest, members: npt.NDArray[np.int64], iteration: int, n_groups: int
    ) -> npt.NDArray[np.float64]:
        """Sums of the leaf values of some samples before an iteration, float64[K, n]."""
        if _SCATTERED * len(members) * iteration < len(self.slots) * (iteration - self._carried):
            sums = np.empty((n_groups, len(members)))
            look_up_sums(forest, members, iteration, sums)
            return sums
        if self._sums is None:
            self._sums = np.zeros((n_groups, len(self._held)))
        carry_on(forest, self.slots, self._sums, self._carried, iteration)
        self._carried = iteration
        return self._sums[:, members]


@inner
def _free(forest, tree, place, stack):
    """Take the descendants of a node out of the tree: it is a leaf then."""
    n_places = 2 * forest.stats.shape[1] + 1
    stack[0] = place
    n_waiting = 1
    while n_waiting > 0:
        n_waiting -= 1
        here = stack[n_waiting]
        left = children_of(forest, tree, here)
        forest.values[tree, forest.states[tree * n_places + here]["leaf"]] = 0.0
        if left != NIL:
            clear_stats(forest, tree, (left - 1) // 2)
            stack[n_waiting] = left
            stack[n_waiting + 1] = left + 1
            n_waiting += 2
        clear_split(forest, tree * n_places + here)
        if here != place:
            clear_state(forest, tree * n_places + here)


@inner
def _refresh_ancestors(forest, tree, place, space, total):
    """Put right what the nodes above say of the samples at hand, whose packed derivatives now add up to `total`."""
    n_places = 2 * forest.stats.shape[1] + 1
    left = children_of(forest, tree, place)
    row = tree * n_places + place
    change = total - forest.states[row]["sums"]
    forest.states[row]["sums"] = total
    place = np.int64(forest.states[row]["parent"])
    if place == NIL:
        return
    # An inner node that is not the root: only those are asked whether they are stale.
    before, after = forest.stats[tree, (left - 1) // 2], space.histograms[0]
    while place != NIL:
        row = tree * n_places + place
        forest.states[row]["sums"] += change
        kept = forest.stats[tree, (children_of(forest, tree, place) - 1) // 2]
        for i in range(kept.shape[0]):
            kept[i] += after[i] - before[i]
        place = np.int64(forest.states[row]["parent"])


@kernel
def retrain(
    forest, bins, candidates, layout, rules, labels, rows, codes, slots, space, iteration, tree, place, budget, sums,
    stack, probabilities,
):  # fmt: skip
    """Train the subtree of a node anew.

    rows           the samples that reach it, at hand; their slots
    budget         leaves that it may have
    sums           float64[K, n]: their sums of leaf values before the iteration
    stack          int64[P], working space
    probabilities  float64[K], working space
    """
    n_groups = labels.base.shape[0]
    k = tree - iteration * n_groups
    total = np.int64(0)
    for i in range(slots.shape[0]):
        slot = slots[i]
        derive(labels, sums, i, slot, iteration, forest.gh, iteration * n_groups, k, k + 1, probabilities)
        rows.packed[i] = unpack(forest.gh[tree, slot], rules.shift)
        total += rows.packed[i]
    places = candidates.places[iteration]
    place_rows(rows, codes, bins.first, candidates.first, places, layout, slots, 0, slots.shape[0], space.histograms[0])
    _refresh_ancestors(forest, tree, place, space, total)
    _free(forest, tree, place, stack)
    grow_subtree(forest, bins, candidates, layout, rules, rows, codes, slots, space, iteration, tree, place, budget)
