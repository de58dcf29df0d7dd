"""The trees as predictions read them, made of the engine's heaps."""

import numpy as np

from oubli.core.boosting.histogram import gradient_of, hessian_of
from oubli.core.boosting.quantised.bins import Features
from oubli.core.boosting.quantised.state import LEAF, Forest, Rules
from oubli.core.boosting.state import NODE, Trees
from oubli.core.jit.policy import kernel


@kernel
def count_nodes(nodes, n_trees):
    """Number of nodes that the first trees reach."""
    n_found = 0
    for tree in range(n_trees):
        for node in range(nodes.shape[1]):
            n_found += nodes[tree, node]["feature"] >= LEAF
    return n_found


@kernel
def write_nodes(nodes, n_trees, features, result, roots, rows):
    """Write the first trees; a node's row follows those of the nodes before it in its heap. rows: int32[heap]."""
    size = 0
    for tree in range(n_trees):
        roots[tree] = size
        for node in range(nodes.shape[1]):
            if nodes[tree, node]["feature"] >= LEAF:
                rows[node] = size
                size += 1
        for node in range(nodes.shape[1]):
            feature = np.int64(nodes[tree, node]["feature"])
            if feature < LEAF:
                continue
            row = rows[node]
            result[row]["feature"] = np.int32(feature)
            result[row]["category"] = np.uint64(0)
            result[row]["missing_left"] = nodes[tree, node]["missing_left"]
            result[row]["is_categorical"] = np.uint8(0)
            if feature == LEAF:
                result[row]["left"] = np.int32(0)
                result[row]["value"] = np.float64(nodes[tree, node]["value"])
                continue
            result[row]["left"] = np.int32(rows[2 * node + 1])
            result[row]["value"] = 0.0
            cut = np.int64(nodes[tree, node]["cut"])
            if features.categorical[feature]:
                result[row]["is_categorical"] = np.uint8(1)
                result[row]["category"] = features.categories[features.first_category[feature] + cut]
            elif features.first_edge[feature] + cut < features.first_edge[feature + 1]:
                result[row]["threshold"] = features.edges[features.first_edge[feature] + cut]
            else:
                result[row]["threshold"] = np.inf


@kernel
def add_gains(nodes, n_trees, regularisation, gains):
    """Add the gains of all splits to float64[d], in the order of trees and nodes."""
    for tree in range(n_trees):
        for node in range(nodes.shape[1]):
            feature = np.int64(nodes[tree, node]["feature"])
            if feature < 0:
                continue
            gain = 0.0
            for place, sign in ((2 * node + 1, 1.0), (2 * node + 2, 1.0), (node, -1.0)):
                g = np.float64(gradient_of(nodes[tree, place]["total"]))
                weight = np.float64(hessian_of(nodes[tree, place]["total"])) + regularisation
                if weight > 0.0:
                    gain += sign * g * g / weight
            gains[feature] += gain


def make_trees(forest: Forest, n_trees: int, features: Features, base: list[float], unit: float) -> Trees:
    """Make what predictions read of the first `n_trees` trees."""
    nodes = np.zeros(count_nodes(forest.nodes, n_trees), NODE)
    roots = np.zeros(n_trees, np.int32)
    write_nodes(forest.nodes, n_trees, features, nodes, roots, np.zeros(forest.nodes.shape[1], np.int32))
    return Trees(nodes, roots, np.array(base), unit)


def importances(forest: Forest, n_trees: int, rules: Rules, n_features: int) -> np.ndarray:
    """Sum of the gains of all splits by feature, float64[d]."""
    gains = np.zeros(n_features)
    add_gains(forest.nodes, n_trees, rules.regularisation, gains)
    return gains
