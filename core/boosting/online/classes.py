"""Trees that come and go with their class (Appendix M)."""

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.online.state import Forest, blank_nodes, blank_states, value_of
from oubli.core.boosting.state import LEAF
from oubli.core.jit.policy import kernel


def choose_classes(forest: Forest, n_groups: int, places: npt.NDArray[np.int64]) -> Forest:
    """Rearrange the trees of every iteration: tree k becomes the one that was number places[k].

    places  int64[K]; -1: a new tree, a leaf to which samples contribute nothing so far
    """
    n_iterations = forest.n_trees // n_groups
    n_places = forest.n_places
    rows = np.arange(n_iterations)[:, None] * n_groups + np.maximum(places, 0)
    is_new = np.tile(places < 0, n_iterations)
    rows = rows.ravel()
    n_trees = len(rows)
    nodes = forest.nodes.reshape(-1, n_places)[rows]
    states = forest.states.reshape(-1, n_places)[rows]
    # Children move with their tree.
    moves = ((np.arange(n_trees) - rows) * n_places).astype(np.int32)
    nodes["left"] += np.where(nodes["feature"] != LEAF, moves[:, None], 0).astype(np.int32)
    nodes[is_new] = blank_nodes(1, n_places)
    states[is_new] = blank_states(1, n_places)
    stats, values, gh, leaf_of = forest.stats[rows], forest.values[rows], forest.gh[rows], forest.leaf_of[rows]
    stats[is_new], values[is_new], gh[is_new], leaf_of[is_new] = 0, 0.0, 0, 0
    return Forest(nodes.ravel(), states.ravel(), stats, values, gh, leaf_of)


@kernel
def write_values(forest, rules):
    """Write the values of all leaves from their sums."""
    n_places = 2 * forest.stats.shape[1] + 1
    for row in range(forest.nodes.shape[0]):
        if forest.states[row]["in_use"] == 0 or forest.nodes[row]["feature"] != LEAF:
            continue
        value = value_of(forest.states[row]["sums"], rules)
        forest.nodes[row]["value"] = value
        forest.values[row // n_places, forest.states[row]["leaf"]] = value
