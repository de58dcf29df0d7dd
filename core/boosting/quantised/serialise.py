"""The trees as predictions read them, from the engine's heaps; and as arrays for a file.

The arrays of a file are never read back. The trees are grown from the samples again, and compared with the file.
"""

import numpy as np

from oubli.core.array_types import Arrays
from oubli.core.boosting.histogram import gradient_of, hessian_of
from oubli.core.boosting.incremental.parameters import IncrementalSettings
from oubli.core.boosting.quantised import state as s
from oubli.core.boosting.quantised.bins import Features
from oubli.core.boosting.quantised.split import most_levels
from oubli.core.boosting.quantised.state import LEAF, Forest
from oubli.core.boosting.state import NODE, Trees, make_leaf, make_split
from oubli.core.engine import Shape
from oubli.core.errors import expect
from oubli.core.jit.policy import kernel

_PLAN_BYTES = 12  # of a bin in an iteration
_FIELDS = ("threshold", "category", "value", "feature", "left", "missing_left", "is_categorical")


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
            row = np.int64(rows[node])
            if feature == LEAF:
                make_leaf(result, row, nodes[tree, node]["value"])
                continue
            is_categorical = features.categorical[feature]
            left, missing_left = rows[2 * node + 1], nodes[tree, node]["missing_left"]
            make_split(result, row, feature, left, missing_left, is_categorical)
            cut = np.int64(nodes[tree, node]["cut"])
            if is_categorical:
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


def pack(trees: Trees) -> Arrays:
    """Return trees as arrays by name."""
    fields = {name: np.ascontiguousarray(trees.nodes[name]) for name in _FIELDS}
    return {**fields, "roots": trees.roots.copy(), "base": trees.base.copy(), "unit": np.array([trees.unit])}


def bytes_asked(settings: IncrementalSettings, shape: Shape, arrays: Arrays) -> int:
    """Bytes of the engine that a file is read into, roughly: it is grown from the samples."""
    levels = most_levels(2 * shape.n_samples, shape.groups, settings.seed, is_classification=shape.is_classification)
    n_nodes, m = 1 << (settings.max_depth + levels + 1), settings.n_estimators
    n_trees, n_codes = m * shape.groups, min(settings.max_bins, shape.n_samples) + 2
    n_bins = len(shape.categorical) * n_codes
    of_a_slot = n_trees * 2 + shape.groups * (4 * (m // s.EVERY + 4) + 16) + len(shape.categorical) * 6
    return n_trees * n_nodes * int(s.NODE.itemsize) + m * n_bins * _PLAN_BYTES + shape.n_slots * of_a_slot


def check_number_of_trees(arrays: Arrays, settings: IncrementalSettings, groups: int) -> None:
    """Refuse arrays of more or fewer trees than there can be; ValueError."""
    n_trees, most = len(arrays["roots"]), settings.n_estimators * groups
    expect(n_trees == most or (n_trees < most and settings.patience), "the number of trees (roots) is wrong")


def check_same(arrays: Arrays, expected: Arrays) -> None:
    """Refuse arrays that are not those expected, bit for bit; ValueError."""
    expect(set(arrays) == set(expected), "arrays are missing, or there are too many")
    for name, array in expected.items():
        given = arrays[name]
        if given.dtype != array.dtype or given.shape != array.shape or given.tobytes() != array.tobytes():
            raise ValueError(f"{name} is not that of the samples held")
