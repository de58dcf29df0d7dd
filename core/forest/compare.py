"""Comparing all that a live forest keeps with what a fresh fit has just counted.

The digest covers what prediction reads. Counters, ranges, candidate blocks and membership lists are
read by later mutations only; this walks both forests in step and compares those too. The two
forests hold the same samples in different slots and may number the classes differently.
"""

import numpy as np
import numpy.typing as npt

from core._jit import kernel
from core.forest.blocks import N_ATTRIBUTES, N_SKIPPED
from core.forest.ensemble import Ensemble
from core.forest.nodes import NIL, leaf_of

IntArray = npt.NDArray[np.int64]
# Trees, slots in a common order, class codes in canonical order, which columns are categorical.
Part = tuple[Ensemble, IntArray, IntArray, npt.NDArray[np.bool_]]


@kernel
def nodes_of_entries(trees, node_list, owners):
    """Write to each entry the node whose leaf's list it is in.

    node_list  int64[m] the leaf nodes
    owners     int64[entries], NIL on entry, written
    """
    for i in range(node_list.shape[0]):
        node = node_list[i]
        entry = np.int64(trees.heads[leaf_of(trees.nodes, node)])
        while entry != NIL:
            owners[entry] = node
            entry = np.int64(trees.links[entry, 0])


def compare_forests(live: Part, fresh: Part) -> list[str]:
    """List what differs; both forests have equal trees and no tags.

    O(model), level by level in array operations.
    """
    findings: list[str] = []
    live_nodes = np.arange(live[0].settings.n_trees)
    fresh_nodes = live_nodes.copy()
    pairs = []
    while len(live_nodes):
        pairs.append((live_nodes, fresh_nodes))
        records = live[0].trees.nodes[live_nodes], fresh[0].trees.nodes[fresh_nodes]
        n_wrong = int((records[0]["n_samples"] != records[1]["n_samples"]).sum())
        if n_wrong:
            findings.append(f"the number of samples of {n_wrong} nodes")
        is_inner = records[0]["child"] >= 0
        if (is_inner != (records[1]["child"] >= 0)).any():
            return [*findings, "the shape of the trees"]
        live_left = records[0]["child"][is_inner].astype(np.int64)
        fresh_left = records[1]["child"][is_inner].astype(np.int64)
        live_nodes = np.concatenate([live_left, live_left + 1])
        fresh_nodes = np.concatenate([fresh_left, fresh_left + 1])
    all_live = np.concatenate([pair[0] for pair in pairs])
    all_fresh = np.concatenate([pair[1] for pair in pairs])
    findings += _compare_leaves(live, fresh, all_live, all_fresh)
    findings += _compare_blocks(live, fresh, all_live, all_fresh)
    findings += _compare_members(live, fresh, all_live, all_fresh)
    return findings


def _compare_leaves(live: Part, fresh: Part, all_live: IntArray, all_fresh: IntArray) -> list[str]:
    statistics = []
    for (ensemble, _, order, _), listed in ((live, all_live), (fresh, all_fresh)):
        child = ensemble.trees.nodes["child"][listed].astype(np.int64)
        leaves = ~child[child < 0]
        values = ensemble.trees.statistics[leaves]
        statistics.append(values if ensemble.settings.is_regression else values[:, order])
    if not np.array_equal(statistics[0], statistics[1]):
        return ["the statistics of a leaf"]
    return []


def _compare_blocks(live: Part, fresh: Part, all_live: IntArray, all_fresh: IntArray) -> list[str]:
    """Compare the blocks of the nodes that keep one in the live forest."""
    live_blocks = live[0].trees.nodes["block"][all_live].astype(np.int64)
    fresh_blocks = fresh[0].trees.nodes["block"][all_fresh].astype(np.int64)
    kept = live_blocks != NIL
    rows = live_blocks[kept], fresh_blocks[kept]
    if (rows[1] == NIL).any():
        return ["a candidate block of a node that has nothing to choose from"]
    findings = []
    ours, theirs = live[0].blocks, fresh[0].blocks
    for name in ("sizes", "attributes", "ranges", "copies", "target_range"):
        left, right = getattr(ours, name)[rows[0]], getattr(theirs, name)[rows[1]]
        if name == "target_range" and not live[0].settings.is_regression:
            continue  # class codes, whose order is the store's own affair
        if not np.array_equal(left, right):
            findings.append(f"the {name} of a candidate block")
    if findings:
        return findings
    used = np.arange(ours.attributes.shape[1]) < ours.sizes[rows[0]][:, N_ATTRIBUTES, None]
    if not np.array_equal(ours.categories[rows[0]][used], theirs.categories[rows[1]][used]):
        findings.append("the thresholds of a candidate block")
    for name in ("bins", "totals"):
        left, right = getattr(ours, name)[rows[0]], getattr(theirs, name)[rows[1]]
        if not live[0].settings.is_regression:
            left, right = left[..., live[2]], right[..., fresh[2]]
        if not np.array_equal(left, right):
            findings.append(f"the {name} of a candidate block")
    skipped = np.arange(ours.skipped.shape[1]) < ours.sizes[rows[0]][:, N_SKIPPED, None]
    if not np.array_equal(ours.skipped[rows[0]][skipped], theirs.skipped[rows[1]][skipped]):
        findings.append("the skipped attributes of a candidate block")
    numeric = skipped & ~live[3][ours.skipped[rows[0]]]  # a constant category is a code, the store's own affair
    constants = ours.constants[rows[0]][numeric], theirs.constants[rows[1]][numeric]
    if not np.array_equal(*constants, equal_nan=True):
        findings.append("the constants of a candidate block")
    return findings


def _compare_members(live: Part, fresh: Part, all_live: IntArray, all_fresh: IntArray) -> list[str]:
    """Compare which leaf each sample is in, tree by tree."""
    occurrences = live[0].settings.occurrences
    to_fresh = np.full(len(live[0].trees.nodes), NIL, np.int64)
    to_fresh[all_live] = all_fresh
    places = []
    for (ensemble, slots, _, _), listed in ((live, all_live), (fresh, all_fresh)):
        child = ensemble.trees.nodes["child"][listed]
        owners = np.full(len(ensemble.trees.links), NIL, np.int64)
        nodes_of_entries(ensemble.trees, listed[child < 0], owners)
        n_linked = int((owners != NIL).sum())
        if n_linked != len(slots) * occurrences:
            return ["the number of samples in the leaves' lists"]
        entries = slots[:, None] * occurrences + np.arange(occurrences)
        places.append(owners[entries])
    if (places[0] == NIL).any() or not np.array_equal(to_fresh[places[0]], places[1]):
        return ["the leaf that a sample is in"]
    return []
