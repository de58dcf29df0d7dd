"""A walk over everything the tree keeps, in plain Python: for tests, slow on purpose.

Checks the structure by itself; whether the splits are good ones is for the proofs in the tests.
"""

import numpy as np

from oubli.core.array_types import Ints
from oubli.core.errors import ensure
from oubli.core.samples.arrays import Data
from oubli.core.tree import state as n
from oubli.core.tree.parameters import TreeSettings
from oubli.core.tree.split import side_of
from oubli.core.tree.state import NIL, TreeArrays


def check_invariants(tree: TreeArrays, settings: "TreeSettings", data: Data, slots: Ints) -> None:
    """Check that the tree holds the samples of `slots` and nothing else, and is sound.

    Raises
    ------
    AssertionError
        Naming the node or slot and the rule that is broken. O(model), interpreted.
    """
    reached: set[int] = set()
    members: dict[int, int] = {}
    n_tags = 0
    waiting: list[tuple[int, int]] = [(n.ROOT, 0)]
    while waiting:
        node, depth = waiting.pop()
        ensure(node not in reached, f"node {node} must have one parent")
        reached.add(node)
        record = tree.nodes[node]
        ensure(record["depth"] == depth, f"node {node} must know its depth")
        ensure(depth <= min(settings.max_depth, n.MAX_DEPTH), f"node {node} is too deep")
        is_tagged = bool(record["flags"] & n.TAGGED)
        n_tags += is_tagged
        if not is_tagged:
            limit = settings.epsilon * record["built"]
            ensure(record["touched"] <= limit, f"node {node} must have been rebuilt")
        ensure(record["n_samples"] == tree.counts[node].sum(), f"node {node} must count its samples by class")
        if record["child"] == NIL:
            split = record["category"], record["attribute"], record["kind"]
            ensure(not any(split), f"leaf {node} must not keep a split")
            _check_leaf(tree, data, node, members)
            continue
        ensure(not is_tagged, f"inner node {node} must have no tag")
        ensure(record["head"] == NIL and record["tail"] == NIL, f"inner node {node} must list no samples")
        left = int(record["child"])
        total = tree.counts[left] + tree.counts[left + 1]
        ensure(np.array_equal(total, tree.counts[node]), f"node {node} must count its children's samples")
        waiting += [(left, depth + 1), (left + 1, depth + 1)]
    ensure(sorted(members) == sorted(slots.tolist()), "the leaves must list the samples held")
    ensure(n_tags == tree.meta[n.N_TAGS], "the tags must be counted")
    _check_places(tree, data, members)
    _check_unused(tree, reached, members)


def _check_leaf(tree: TreeArrays, data: Data, node: int, members: dict[int, int]) -> None:
    """Check a leaf's list and class counts, and note its samples."""
    counted = np.zeros(tree.counts.shape[1], np.int64)
    previous, slot = NIL, int(tree.nodes["head"][node])
    while slot != NIL:
        ensure(slot not in members, f"slot {slot} must be listed once")
        members[slot] = node
        counted[data.targets[slot]] += 1
        ensure(tree.links[slot, n.PREVIOUS] == previous, f"slot {slot} must know the one before it")
        previous, slot = slot, int(tree.links[slot, n.NEXT])
    ensure(tree.nodes["tail"][node] == previous, f"leaf {node} must know its last sample")
    ensure(np.array_equal(counted, tree.counts[node]), f"leaf {node} must count its samples' classes")


def _check_places(tree: TreeArrays, data: Data, members: dict[int, int]) -> None:
    """Every sample is in the leaf that the splits lead to."""
    for slot, leaf in members.items():
        node = n.ROOT
        while tree.nodes["child"][node] != NIL:
            side = side_of(tree.nodes, node, data.cells, slot, data.category_hashes)
            node = int(tree.nodes["child"][node]) + int(side)
        ensure(node == leaf, f"slot {slot} is not where the splits lead")


def _check_unused(tree: TreeArrays, reached: set[int], members: dict[int, int]) -> None:
    """Every node is in the tree or on the free list, and whatever is unused is zeroed."""
    free: set[int] = set()
    pair = int(tree.meta[n.FREE_PAIR])
    while pair != NIL:
        ensure(not {pair, pair + 1} & (free | reached), f"free node {pair} is in use or listed twice")
        free |= {pair, pair + 1}
        pair = int(tree.nodes["child"][pair])
    ensure(len(free) == 2 * tree.meta[n.N_FREE_PAIRS], "the free pairs must be counted")
    ensure(reached | free | {n.ROOT + 1} == set(range(int(tree.meta[n.N_NODES]))), "every node is in use or free")
    blank = n.zeroed_nodes(1)[0]
    for node in [*free, n.ROOT + 1, *range(int(tree.meta[n.N_NODES]), len(tree.nodes))]:
        record = tree.nodes[node].copy()
        record["child"] = NIL
        ensure(record == blank and not tree.counts[node].any(), f"unused node {node} must be blank")
    unused = np.ones(len(tree.links), np.bool_)
    unused[list(members)] = False
    ensure((tree.links[unused] == NIL).all(), "slots that hold no sample must have no neighbours")
