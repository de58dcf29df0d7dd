"""A walk over everything the forest keeps, in plain Python: for tests, slow on purpose.

Checks the structure by itself. Whether the counters are right is for `compare.py`, whether the
splits are, for the digest.
"""

from typing import TYPE_CHECKING

import numpy as np

from oubli.core.array_types import Ints
from oubli.core.errors import ensure
from oubli.core.forest import state as n
from oubli.core.forest.bits import ForestData
from oubli.core.forest.blocks import ATTRIBUTE, ATTRIBUTE_SIZE, IS_COUNTED, N_ATTRIBUTES, NEXT_FREE
from oubli.core.forest.split import side_of
from oubli.core.rng import draw_trees

if TYPE_CHECKING:
    from oubli.core.forest.kept import KeptForest


def check_invariants(forest: "KeptForest", data: ForestData, slots: Ints) -> None:
    """Check that the trees hold the samples of `slots` and nothing else, and are sound.

    Raises
    ------
    AssertionError
        Naming the node, leaf or entry and the rule that is broken. O(model), interpreted.
    """
    expected = _expected_members(forest, data, slots)
    reached: set[int] = set()
    leaves: set[int] = set()
    blocks: set[int] = {0}
    n_tags = 0
    for tree in range(forest.settings.n_trees):
        members, tags = _check_tree(forest, data, tree, reached, leaves, blocks)
        ensure(members == expected[tree], f"tree {tree} must hold the samples that drew it")
        ensure(
            tags == forest.trees.tree_tags[tree],
            f"tree {tree} has {tags} tags, {forest.trees.tree_tags[tree]} are counted",
        )
        n_tags += tags
    ensure(n_tags == forest.n_tags, "the number of tags must be the sum over the trees")
    _check_free_nodes(forest, reached)
    _check_free_leaves(forest, leaves)
    _check_free_blocks(forest, blocks)
    _check_bit_rows(data, slots)


def _expected_members(forest: "KeptForest", data: ForestData, slots: Ints) -> list[set[int]]:
    """For each tree, the entries of the samples that drew it."""
    settings = forest.settings
    expected: list[set[int]] = [set() for _ in range(settings.n_trees)]
    for slot in slots.tolist():
        order = np.arange(settings.n_trees, dtype=np.int32)
        seed_key = forest.parameters.seed_key[0]
        draw_trees(seed_key, data.id_hashes[slot], settings.n_trees, settings.occurrences, order)
        for draw in range(settings.occurrences):
            expected[int(order[draw])].add(slot * settings.occurrences + draw)
    return expected


def _check_tree(
    forest: "KeptForest", data: ForestData, tree: int, reached: set[int], leaves: set[int], blocks: set[int]
) -> tuple[set[int], int]:
    """Check one tree; returns its entries and the number of its tags."""
    records = forest.trees.nodes
    n_tags = 0
    # (node, the splits above it, whether all nodes above are marked dirty)
    waiting: list[tuple[int, list[tuple[int, int]], bool]] = [(tree, [], True)]
    members: set[int] = set()
    while waiting:
        node, path, is_marked = waiting.pop()
        ensure(node not in reached, f"node {node} must have one parent")
        reached.add(node)
        record = records[node]
        if record["flags"] & n.TAGGED:
            n_tags += 1
            ensure(is_marked, f"node {node} has a tag that no dirty path leads to")
        if record["block"] != n.NIL:
            block = int(record["block"])
            ensure(block not in blocks, f"block {block} must have one owner")
            ensure(record["child"] >= 0, f"leaf node {node} must not keep a block")
            blocks.add(block)
            if forest.blocks.longs[block, IS_COUNTED]:
                _check_block(forest, node, block)
            else:
                ensure(record["flags"] & n.TAGGED, f"node {node} without a tag must have counters that count")
        if record["child"] < 0:
            split = record["category"], record["attribute"], record["kind"]
            ensure(not any(split), f"leaf node {node} must not keep a split")
            entries = _check_leaf(forest, data, node, path, leaves)
            ensure(not members & entries, f"an entry of node {node} is in two leaves")
            members |= entries
            continue
        left = int(record["child"])
        total = int(records["n_samples"][left] + records["n_samples"][left + 1])
        ensure(record["n_samples"] == total, f"node {node} must count its children's samples")
        is_marked = is_marked and bool(record["flags"] & n.DIRTY)
        waiting.append((left, [*path, (node, 0)], is_marked))
        waiting.append((left + 1, [*path, (node, 1)], is_marked))
    return members, n_tags


def _check_block(forest: "KeptForest", node: int, block: int) -> None:
    kept, layout = forest.blocks, forest.layout
    n_samples = int(forest.trees.nodes["n_samples"][node])
    totals = kept.counters[block, layout.totals_at : layout.totals_at + forest.width]
    counted = totals[0] if forest.settings.is_regression else totals.sum()
    ensure(counted == n_samples, f"block {block} must count the samples of node {node}")
    used = int(kept.longs[block, N_ATTRIBUTES])
    attribute = int(forest.trees.nodes["attribute"][node])
    places = 2 * (layout.attributes_at + ATTRIBUTE_SIZE * np.arange(used)) + ATTRIBUTE
    ensure(attribute in kept.halves[block, places], f"block {block} must have node {node}'s attribute")


def _check_leaf(
    forest: "KeptForest", data: ForestData, node: int, path: list[tuple[int, int]], leaves: set[int]
) -> set[int]:
    """Check a leaf's list and statistics; returns its entries."""
    trees, settings = forest.trees, forest.settings
    leaf = ~int(trees.nodes["child"][node])
    ensure(leaf not in leaves, f"leaf {leaf} must have one node")
    leaves.add(leaf)
    statistics = np.zeros(trees.statistics.shape[1], np.int64)
    entries: set[int] = set()
    start, size = int(trees.starts[leaf]), int(trees.nodes["n_samples"][node])
    room = 1 << int(trees.rooms[leaf])
    ensure(size <= room, f"leaf {leaf} must have room for its samples")
    ensure(not trees.members[start + size : start + room].any(), f"unused places of leaf {leaf} must be zeroed")
    for place in range(start, start + size):
        entry = int(trees.members[place])
        ensure(entry not in entries, f"leaf {leaf} must list entry {entry} once")
        ensure(trees.places[entry] == place, f"entry {entry} must know its place")
        entries.add(entry)
        slot = entry // settings.occurrences
        for above, side in path:
            taken = side_of(trees.nodes, above, data.cells, slot, data.category_hashes)
            ensure(taken == side, f"entry {entry} is not where the split of node {above} leads")
        if settings.is_regression:
            statistics += [1, data.targets[slot]]
        else:
            statistics[data.targets[slot]] += 1
    ensure(np.array_equal(statistics, trees.statistics[leaf]), f"leaf {leaf} must count its samples' targets")
    return entries


def _check_free_nodes(forest: "KeptForest", reached: set[int]) -> None:
    """Every node is in a tree or on the free list, and a free one is zeroed."""
    trees = forest.trees
    free: set[int] = set()
    pair = int(trees.meta[n.FREE_PAIR])
    while pair != n.NIL:
        ensure(pair not in free and pair not in reached, f"free node {pair} is in use or listed twice")
        free |= {pair, pair + 1}
        pair = int(trees.nodes["child"][pair])
    ensure(len(free) == 2 * trees.meta[n.N_FREE_PAIRS], "the free pairs must be counted")
    for node in free:
        record = trees.nodes[node]
        split = record["category"], record["n_samples"], record["attribute"], record["kind"]
        ensure(not any(split), f"free node {node} must be zeroed")
    n_roots = forest.settings.n_trees + forest.settings.n_trees % 2
    known = len(reached | free | set(range(n_roots)))
    ensure(known == trees.meta[n.N_NODES], "every node must be in a tree or free")
    for field in ("category", "n_samples", "attribute", "kind"):
        ensure(not trees.nodes[field][trees.meta[n.N_NODES] :].any(), "nodes never used must be zero")


def _check_free_leaves(forest: "KeptForest", leaves: set[int]) -> None:
    trees = forest.trees
    free: set[int] = set()
    leaf = int(trees.meta[n.FREE_LEAF])
    while leaf != n.NIL:
        ensure(leaf not in free and leaf not in leaves, f"free leaf {leaf} is in use or listed twice")
        ensure(not trees.statistics[leaf].any(), f"free leaf {leaf} must be zeroed")
        free.add(leaf)
        leaf = int(trees.starts[leaf])
    ensure(len(free) == trees.meta[n.N_FREE_LEAVES], "the free leaves must be counted")
    ensure(len(free | leaves) == trees.meta[n.N_LEAVES], "every leaf must be in a tree or free")
    ensure(not trees.statistics[trees.meta[n.N_LEAVES] :].any(), "leaves never used must be zero")
    _check_rooms(forest, leaves)


def _check_rooms(forest: "KeptForest", leaves: set[int]) -> None:
    """Every place is in the room of one leaf or in one free room, and a free one is zeroed."""
    trees = forest.trees
    rooms = [(int(trees.starts[leaf]), 1 << int(trees.rooms[leaf])) for leaf in leaves]
    for size in range(n.MAX_ROOM + 1):
        start = int(trees.meta[n.FREE_ROOMS + size])
        while start != n.NIL:
            rooms.append((start, 1 << size))
            ensure(not trees.members[start + 1 : start + (1 << size)].any(), f"free room {start} must be zeroed")
            start = int(trees.members[start]) - 1
    end = 0
    for start, size in sorted(rooms):
        ensure(start == end, f"the rooms must be side by side at place {end}")
        end += size
    ensure(end == trees.meta[n.N_MEMBERS], "the places in use must be counted")
    ensure(not trees.members[end:].any(), "places never used must be zero")


def _check_free_blocks(forest: "KeptForest", blocks: set[int]) -> None:
    meta, longs = forest.trees.meta, forest.blocks.longs
    free: set[int] = set()
    block = int(meta[n.FREE_BLOCK])
    while block != n.NIL:
        ensure(block not in free and block not in blocks, f"free block {block} is in use or listed twice")
        free.add(block)
        record = longs[block].copy()
        record[NEXT_FREE] = 0
        ensure(not record.any(), f"free block {block} must be zeroed")
        block = int(longs[block, NEXT_FREE])
    ensure(len(free) == meta[n.N_FREE_BLOCKS], "the free blocks must be counted")
    ensure(len(free | blocks) == meta[n.N_BLOCKS], "every block must have an owner or be free")
    ensure(not longs[meta[n.N_BLOCKS] :].any(), "blocks never used must be zero")


def _check_bit_rows(data: ForestData, slots: Ints) -> None:
    """The words say which cells are 1, and hold nothing of samples that have left."""
    if data.words.shape[1] == 0:
        ensure(not data.bit_columns.any() and not data.n_others.any(), "without words there must be no bit columns")
        return
    ensure(data.words.shape[1] == -(-data.cells.shape[1] // 64), "there must be a bit for each column")
    n_others = [0] * data.cells.shape[1]
    expected = [0] * len(data.words)
    for slot in slots.tolist():
        for column, cell in enumerate(data.cells[slot].tolist()):
            expected[slot] += (cell == 1) << column
            n_others[column] += cell not in {0, 1}
    words = [sum(word << (64 * i) for i, word in enumerate(row)) for row in data.words.tolist()]
    ensure(words == expected, "the words must be those of the samples held, and zero where there is none")
    ensure(n_others == data.n_others.tolist(), "what is neither 0 nor 1 must be counted")
    columns = sum((not n and not data.categorical[column]) << column for column, n in enumerate(n_others))
    found = sum(word << (64 * i) for i, word in enumerate(data.bit_columns.tolist()))
    ensure(columns == found, "the bit columns must be those with nothing but 0 and 1")
