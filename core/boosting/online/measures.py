"""What can be said of the trees: what their splits gain, and how far their leaves are behind."""

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.online.derivatives import add_values
from oubli.core.boosting.online.split import score_unsplit
from oubli.core.boosting.online.state import Forest, Labels, Rules, unpack, value_of
from oubli.core.boosting.online.update import derive_all
from oubli.core.boosting.state import LEAF
from oubli.core.jit.policy import kernel


@kernel
def add_gains(forest, rules, gains):
    """Add the gain of every split, from the sums as they are, to float64[d] by feature."""
    for row in range(forest.nodes.shape[0]):
        feature = forest.nodes[row]["feature"]
        if feature == LEAF:
            continue
        left = np.int64(forest.nodes[row]["left"])
        gain = score_unsplit(forest.states[left]["sums"], rules) + score_unsplit(forest.states[left + 1]["sums"], rules)
        gain -= score_unsplit(forest.states[row]["sums"], rules)
        if gain > 0.0:
            gains[feature] += gain


def importances(forest: Forest, rules: Rules, n_features: int) -> npt.NDArray[np.float64]:
    """Sum of the gains of all splits by feature, float64[d]; a split that has lost its gain counts as 0."""
    gains = np.zeros(n_features)
    add_gains(forest, rules, gains)
    return gains


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


def leaf_score_error(forest: Forest, rules: Rules, labels: Labels, slots: npt.NDArray[np.int64]) -> float:
    """How far leaf values are from those of derivatives that are up to date (Appendix N, Table 13).

    The sum over all leaves of |value - value of up-to-date derivatives|, as a share of the sum of the latter's sizes.
    The structure is the same; derivatives are up to date when every tree's are made from the values, thus recomputed,
    of the trees before.
    """
    n_groups = len(labels.base)
    if n_groups == 0:
        return 0.0
    derived = np.zeros((n_groups, forest.gh.shape[1]), forest.gh.dtype)
    sums, probabilities = np.zeros((n_groups, len(slots))), np.zeros(n_groups)
    leaf_sums, errors = np.zeros(forest.values.shape[1], np.int64), np.zeros(2)
    values = np.zeros(forest.values.shape[1])
    for iteration in range(forest.n_trees // n_groups):
        derive_all(labels, sums, slots, len(slots), iteration, 0, derived, 0, n_groups, probabilities)
        for k in range(n_groups):
            tree = iteration * n_groups + k
            value_anew(forest, rules, derived[k], tree, slots, leaf_sums, values, errors)
            add_values(values, forest.leaf_of[tree], slots, len(slots), sums[k])
    return float(errors[0] / errors[1]) if errors[1] > 0 else 0.0
