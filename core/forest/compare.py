"""Comparing all that a live forest keeps with what a fresh fit has just counted.

The digest covers what prediction reads. Counters, ranges, candidate blocks and membership lists are
read by later mutations only; this walks both forests in step and compares those too. The two
forests hold the same samples in different slots and may number the classes differently.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.forest.blocks import ATTRIBUTE_SIZE, NEXT_FREE, counters_of
from oubli.core.forest.state import NIL, leaf_of
from oubli.core.jit.policy import kernel
from oubli.core.threads import run

if TYPE_CHECKING:
    from oubli.core.forest.kept import KeptForest

IntArray = npt.NDArray[np.int64]
# Trees, slots in a common order, class codes in canonical order.
Part = tuple["KeptForest", IntArray, IntArray]


@kernel
def nodes_of_entries(trees, node_list, owners):
    """Write to each entry the node whose leaf's list it is in.

    node_list  int64[m] the leaf nodes
    owners     int32[entries], NIL on entry, written
    """
    for i in range(node_list.shape[0]):
        node = node_list[i]
        start = np.int64(trees.starts[leaf_of(trees.nodes, node)])
        for place in range(start, start + np.int64(trees.nodes[node]["n_samples"])):
            owners[trees.members[place]] = np.int32(node)


def compare_forests(live: Part, fresh: Part, n_threads: int = 1) -> list[str]:
    """List what differs; both forests have equal trees and no tags.

    O(model), level by level in array operations, so many threads at trees of their own.
    """
    numbers = np.array_split(np.arange(live[0].settings.n_trees), n_threads)
    walks = run([partial(_walk, live, fresh, some) for some in numbers], n_threads)
    n_wrong = sum(walk.n_wrong for walk in walks)
    findings = [f"the number of samples of {n_wrong} nodes"] if n_wrong else []
    if any(walk.differs for walk in walks):
        return [*findings, "the shape of the trees"]
    for compare in (_compare_leaves, _compare_blocks):
        found = run([partial(compare, live, fresh, walk.live, walk.fresh) for walk in walks], n_threads)
        findings += dict.fromkeys(name for names in found for name in names)
    return findings + _compare_members(live, fresh, walks, n_threads)


class _Walk(NamedTuple):
    """The nodes of some trees of both forests, in the same order."""

    live: IntArray
    fresh: IntArray
    n_wrong: int  # nodes whose numbers of samples differ
    differs: bool  # whether the trees have other shapes; then the nodes are those above


def _walk(live: Part, fresh: Part, trees: IntArray) -> _Walk:
    live_nodes = fresh_nodes = trees
    pairs, n_wrong = [(trees[:0], trees[:0])], 0
    while len(live_nodes):
        pairs.append((live_nodes, fresh_nodes))
        ours, theirs = live[0].trees.nodes[live_nodes], fresh[0].trees.nodes[fresh_nodes]
        n_wrong += int((ours["n_samples"] != theirs["n_samples"]).sum())
        is_inner = ours["child"] >= 0
        if (is_inner != (theirs["child"] >= 0)).any():
            return _Walk(live_nodes, fresh_nodes, n_wrong, differs=True)
        live_left = ours["child"][is_inner].astype(np.int64)
        fresh_left = theirs["child"][is_inner].astype(np.int64)
        live_nodes = np.concatenate([live_left, live_left + 1])
        fresh_nodes = np.concatenate([fresh_left, fresh_left + 1])
    all_live, all_fresh = (np.concatenate(some) for some in zip(*pairs, strict=True))
    return _Walk(all_live, all_fresh, n_wrong, differs=False)


def _compare_leaves(live: Part, fresh: Part, all_live: IntArray, all_fresh: IntArray) -> list[str]:
    statistics = []
    for (forest, _, order), listed in ((live, all_live), (fresh, all_fresh)):
        child = forest.trees.nodes["child"][listed].astype(np.int64)
        values = forest.trees.statistics[~child[child < 0]]
        statistics.append(values if forest.settings.is_regression else values[:, order])
    return [] if np.array_equal(statistics[0], statistics[1]) else ["the statistics of a leaf"]


def _compare_blocks(live: Part, fresh: Part, all_live: IntArray, all_fresh: IntArray) -> list[str]:
    """Compare the blocks of the nodes that keep one in the live forest."""
    live_blocks = live[0].trees.nodes["block"][all_live].astype(np.int64)
    fresh_blocks = fresh[0].trees.nodes["block"][all_fresh].astype(np.int64)
    kept = live_blocks != NIL
    rows = live_blocks[kept], fresh_blocks[kept]
    if (rows[1] == NIL).any():
        return ["a candidate block of a node that has nothing to choose from"]
    ours, theirs = _comparable(live, rows[0]), _comparable(fresh, rows[1])
    return [f"the {name} of a candidate block" for name in ours if not np.array_equal(ours[name], theirs[name])]


def _comparable(part: Part, rows: IntArray) -> dict[str, npt.NDArray[Any]]:
    """Read blocks into arrays that are equal when the blocks mean the same."""
    forest, _, order = part
    layout, settings = forest.layout, forest.settings
    longs = forest.blocks.longs[rows]
    n_words = -(-forest.n_features // 64)
    p = settings.max_features
    totals, tables = counters_of(longs, settings, layout, forest.width)
    if not settings.is_regression:
        totals, tables = totals[:, order], tables[..., order]
    return {
        "head": longs[:, :NEXT_FREE],
        "totals": totals,
        "skipped attributes": longs[:, layout.skipped_at : layout.skipped_at + n_words],
        "attributes": longs[:, layout.attributes_at : layout.attributes_at + p * ATTRIBUTE_SIZE],
        "counters": tables,
        "categories": longs[:, layout.categories_at : layout.categories_at + p * layout.categories_stride],
    }


def _compare_members(live: Part, fresh: Part, walks: Sequence[_Walk], n_threads: int) -> list[str]:
    """Compare which leaf each sample is in."""
    occurrences = live[0].settings.occurrences
    to_fresh = np.full(len(live[0].trees.nodes), NIL, np.int32)
    found = []
    for (forest, slots, _), side in ((live, "live"), (fresh, "fresh")):
        child, pieces = forest.trees.nodes["child"], []
        owners = np.full(len(forest.trees.places), NIL, np.int32)
        for walk in walks:
            listed = getattr(walk, side)
            pieces.append(partial(nodes_of_entries, forest.trees, listed[child[listed] < 0], owners))
        run(pieces, n_threads)
        if int((owners != NIL).sum()) != len(slots) * occurrences:
            return ["the number of samples in the leaves' lists"]
        found.append(owners)
    for walk in walks:
        to_fresh[walk.live] = walk.fresh

    def are_the_same(part: slice) -> bool:
        ours, theirs = (
            owners[slots[part, np.newaxis] * occurrences + np.arange(occurrences)]
            for owners, (_, slots, _) in zip(found, (live, fresh), strict=True)
        )
        return not (ours == NIL).any() and np.array_equal(to_fresh[ours], theirs)

    step = max(1, -(-len(live[1]) // n_threads))
    same = run([partial(are_the_same, slice(i, i + step)) for i in range(0, len(live[1]), step)], n_threads)
    return [] if all(same) else ["the leaf that a sample is in"]
