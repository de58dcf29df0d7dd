"""How far the leaves of online boosting are behind: a measure of the paper, for tests and benchmarks."""

import numpy as np

from oubli.core.boosting.online.derivatives import make_labels, make_rules
from oubli.core.boosting.online.engine import OnlineTrees
from oubli.core.boosting.online.state import unpack, value_of
from oubli.core.boosting.online.update import derive_all
from oubli.core.boosting.state import LEAF
from oubli.core.jit.policy import kernel
from oubli.core.samples.arrays import Problem


@kernel
def value_anew(forest, rules, derived, tree, slots, sums, values, errors):
    """Write the leaf values, by leaf number, that other derivatives of a tree's samples give, and compare.

    derived  int16/32[S]: as `gh` of the tree
    sums     int64[J], working space
    values   float64[J], written
    errors   float64[2]: sums of |value - other value| and |other value|, added to
    """
    for i in range(sums.shape[0]):
        sums[i] = 0
        values[i] = 0.0
    for i in range(slots.shape[0]):
        sums[forest.leaf_of[tree, slots[i]]] += unpack(derived[slots[i]], rules.shift)
    n_places = 2 * forest.stats.shape[1] + 1
    for row in range(tree * n_places, (tree + 1) * n_places):
        if forest.states[row]["in_use"] == 0 or forest.nodes[row]["feature"] != LEAF:
            continue
        leaf = forest.states[row]["leaf"]
        other = value_of(sums[leaf], rules)
        values[leaf] = other
        errors[0] += abs(forest.nodes[row]["value"] - other)
        errors[1] += abs(other)


def leaf_score_error(engine: OnlineTrees, problem: Problem) -> float:
    """How far leaf values are from those of derivatives that are up to date (Appendix N, Table 13).

    The sum over all leaves of |value - value of up-to-date derivatives|, as a share of the sum of the latter's sizes.
    The structure is the same; derivatives are up to date when every tree's are made from the values, thus recomputed,
    of the trees before.
    """
    forest, slots = engine.forest, np.flatnonzero(engine.held)
    rules = make_rules(engine.settings, engine.groups, engine.scale)
    labels = make_labels(problem, engine.settings, engine.ranks, engine.groups, engine.scale)
    n_groups = len(labels.base)
    if n_groups == 0:
        return 0.0
    derived = np.zeros((n_groups, forest.gh.shape[1]), forest.gh.dtype)
    sums, probabilities = np.zeros((n_groups, len(slots))), np.zeros(n_groups)
    leaf_sums, errors = np.zeros(forest.values.shape[1], np.int64), np.zeros(2)
    values = np.zeros(forest.values.shape[1])
    for iteration in range(forest.n_trees // n_groups):
        derive_all(labels, sums, slots, 0, len(slots), iteration, 0, derived, 0, n_groups, probabilities)
        for k in range(n_groups):
            tree = iteration * n_groups + k
            value_anew(forest, rules, derived[k], tree, slots, leaf_sums, values, errors)
            sums[k] += values[forest.leaf_of[tree, slots]]
    return float(errors[0] / errors[1]) if errors[1] > 0 else 0.0
