"""Trees of `core` as the oracle's nodes, and back."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from oubli.core.boosting.state import LEAF, NODE, Trees
from tests.histories.worlds import World
from tests.oracles.boosting.quantised_parts import Parameters
from tests.oracles.boosting.trees import Ensemble, Node, difference, sample_of
from tests.oracles.splits import Split


def read(trees: Trees) -> Ensemble:
    """What predictions read, as nested nodes."""
    n_groups = max(1, trees.n_groups)
    roots = [read_node(trees.nodes, int(root)) for root in trees.roots]
    assert len(roots) % n_groups == 0
    iterations = [roots[i : i + n_groups] for i in range(0, len(roots), n_groups)]
    return Ensemble(iterations, trees.base.tolist(), trees.unit)


def read_node(nodes: Any, row: int) -> Node:
    """The subtree of a row."""
    fields = nodes[row]
    feature = int(fields["feature"])
    if feature == LEAF:
        return Node(float(fields["value"]))
    if fields["is_categorical"]:
        split = Split(feature, category=int(fields["category"]))
    else:
        missing_left = fields["missing_left"].item()  # the number, as it is in digests
        split = Split(feature, float(fields["threshold"]), missing_left)
    left = int(fields["left"])
    return Node(0.0, split, read_node(nodes, left), read_node(nodes, left + 1))


def assert_same(trees: Trees, expected: Ensemble) -> None:
    """The trees are the oracle's, bit for bit, and so is what goes with them."""
    found = read(trees)
    assert [value.hex() for value in found.base] == [value.hex() for value in expected.base]
    assert (found.unit, len(found.trees())) == (expected.unit, len(expected.trees()))
    for number, (one, other) in enumerate(zip(found.trees(), expected.trees(), strict=True)):
        where = difference(one, other)
        assert where is None, f"tree {number}, {where}"


def expected(oracle: Any, world: World, held: dict[str, Any], model: Any) -> Ensemble:
    """The trees of what is held, of an oracle of incremental boosting (a module)."""
    p, columns = world.parameters, world.columns
    samples = {
        name: sample_of(name, row, label, columns, world.task, world.weight((row, label)))
        for name, (row, label) in held.items()
    }
    gradient_grid, leaf_grid = model.settings_.to_dict()["quantization"] or (0.0, 0.0)
    same = {name: p[name] for name in Parameters.__annotations__ if name in p}
    parameters = Parameters(**same, gradient_grid=gradient_grid, leaf_grid=leaf_grid)
    result: Ensemble = oracle.fit(samples, parameters, columns, world.task)
    return result


def write(ensemble: Ensemble, *, numbering: int = 0) -> Trees:
    """The same trees as `core` holds them; another numbering puts the nodes into another order."""
    rng = random.Random(numbering)
    trees = ensemble.trees()
    n_nodes = sum(1 for tree in trees for _ in tree.walk())
    # Places: one a root, two neighbouring ones for a pair of children, in any order.
    n_pairs = (n_nodes - len(trees)) // 2
    sizes = [1] * len(trees) + [2] * n_pairs
    order = list(range(len(sizes)))
    rng.shuffle(order)
    starts, free = [0] * len(sizes), 0
    for number in order:
        starts[number] = free
        free += sizes[number]
    pairs = iter(starts[len(trees) :])
    nodes = np.zeros(n_nodes, NODE)
    for tree, row in zip(trees, starts, strict=False):
        _write_node(nodes, row, tree, pairs)
    roots = np.array(starts[: len(trees)], np.int32)
    return Trees(nodes, roots, np.array(ensemble.base, np.float64), ensemble.unit)


def _write_node(nodes: Any, row: int, node: Node, pairs: Any) -> None:
    split = node.split
    if split is None:
        nodes[row]["feature"] = LEAF
        nodes[row]["value"] = node.value
        return
    nodes[row]["feature"] = split.feature
    if split.category is not None:
        nodes[row]["is_categorical"] = 1
        nodes[row]["category"] = split.category
    else:
        nodes[row]["threshold"] = split.threshold
        nodes[row]["missing_left"] = split.missing_left
    left = next(pairs)
    nodes[row]["left"] = left
    assert node.left is not None
    assert node.right is not None
    _write_node(nodes, left, node.left, pairs)
    _write_node(nodes, left + 1, node.right, pairs)


def random_tree(rng: random.Random, columns: Sequence[Sequence[Any]], depth: int) -> Node:
    """Any tree; of a column, thresholds (floats) or hashes of categories to split at (ints)."""
    if depth == 0 or rng.random() < 0.2:
        return Node(rng.choice([rng.gauss(0, 1), float(rng.randrange(-9, 9))]))
    feature = rng.randrange(len(columns))
    at = rng.choice(columns[feature])
    if isinstance(at, int):
        split = Split(feature, category=at)
    else:
        split = Split(feature, at, missing_left=rng.random() < 0.5)
    return Node(0.0, split, random_tree(rng, columns, depth - 1), random_tree(rng, columns, depth - 1))
