"""A forest as plain arrays for a file, and back."""

from typing import Any

import numpy as np

from oubli.core.array_types import Arrays, Ints
from oubli.core.engine import Shape
from oubli.core.forest import state as nodes
from oubli.core.forest.blocks import (
    ATTRIBUTE,
    ATTRIBUTE_SIZE,
    N_ATTRIBUTES,
    N_CELLS,
    NEXT_FREE,
    Blocks,
    Layout,
    layout_of,
)
from oubli.core.forest.parameters import ForestSettings
from oubli.core.forest.state import NIL, Trees
from oubli.core.jit import aligned

PREFIX = "forest."
FIELDS = ("category", "child", "attribute", "n_samples", "block", "kind")
_NODE_BYTES = 32
_ROOM = 64  # nodes and leaves that empty trees have room for, beside the roots


def bytes_asked(settings: ForestSettings, shape: Shape, arrays: Arrays) -> int:
    """Bytes of the trees that are made of a file, roughly, the arrays left out that are as large in the file."""
    width = arrays["leaves.statistics"].shape[1] if arrays else shape.n_class_codes
    has_categories = bool(shape.categorical.any())
    layout = layout_of(settings, len(shape.categorical), width, has_categories=has_categories)
    leaf_bytes = 8 * width + _NODE_BYTES
    return (
        2 * (settings.n_trees + _ROOM) * (leaf_bytes + _NODE_BYTES)
        + 16 * shape.n_samples * settings.occurrences
        + 8 * shape.n_slots * -(-len(shape.categorical) // 64)
        + 8 * (4 * layout.size + shape.n_codes * (width + 2))
        + layout.n_counters * 16
    )


def pack(trees: Trees, longs: Ints) -> Arrays:
    """Return the arrays in use, by name, of trees without tags and of their counters."""
    meta = trees.meta
    records = trees.nodes[: meta[nodes.N_NODES]]
    arrays: Arrays = {f"nodes.{field}": np.ascontiguousarray(records[field]) for field in FIELDS}
    for name in ("statistics", "starts", "rooms"):
        arrays[f"leaves.{name}"] = getattr(trees, name)[: meta[nodes.N_LEAVES]]
    arrays["members"] = trees.members[: meta[nodes.N_MEMBERS]]
    arrays["places"] = trees.places
    arrays["meta"] = meta
    arrays["blocks"] = longs[: meta[nodes.N_BLOCKS]]
    return arrays


def unpack(arrays: Arrays, empty: Trees) -> tuple[Trees, Ints]:
    """Return trees and counters of what `pack` gave, unchecked, and empty it; `empty`: trees without samples."""
    records = aligned.zeros(len(arrays["nodes.child"]), nodes.NODE_DTYPE)
    for field in FIELDS:
        records[field] = arrays.pop(f"nodes.{field}")
    trees = empty._replace(
        nodes=records,
        statistics=np.array(arrays.pop("leaves.statistics"), empty.statistics.dtype),
        starts=np.array(arrays.pop("leaves.starts"), np.int32),
        rooms=np.array(arrays.pop("leaves.rooms"), np.uint8),
        members=np.array(arrays.pop("members"), np.int32),
        places=np.array(arrays.pop("places"), np.int32),
        meta=np.array(arrays.pop("meta"), np.int64),
    )
    return trees, aligned.copy(arrays.pop("blocks"), np.int64)


def check_bounds(
    trees: Trees, blocks: Blocks, settings: ForestSettings, layout: Layout, n_features: int, width: int, n_slots: int
) -> None:
    """Check every index that a kernel would follow blindly; ValueError when one points out of bounds."""
    records, meta = trees.nodes, trees.meta
    n_nodes, n_leaves, n_blocks = len(records), len(trees.starts), len(blocks.longs)
    n_entries, n_members = len(trees.places), len(trees.members)
    child = records["child"].astype(np.int64)
    sound = (
        n_nodes >= settings.n_trees
        and n_entries >= n_slots * settings.occurrences
        and trees.statistics.shape == (n_leaves, width)
        and (child < n_nodes - 1).all()
        and (~child < n_leaves).all()
        and _within(records["attribute"], 0, n_features)
        and _within(records["block"], NIL, n_blocks)
        and _within(trees.starts, NIL, max(n_leaves, n_members))
        and _within(trees.rooms, 0, nodes.MAX_ROOM + 1)
        and _within(trees.members, 0, max(n_entries, n_members + 1))
        and _within(trees.places, 0, max(n_members, 1))
        and meta[nodes.N_NODES] == n_nodes
        and meta[nodes.N_LEAVES] == n_leaves
        and meta[nodes.N_MEMBERS] == n_members
        and meta[nodes.N_BLOCKS] == n_blocks
        and meta[nodes.N_TAGS] == 0
        and _within(meta[nodes.FREE_PAIR], NIL, n_nodes)
        and _within(meta[nodes.FREE_LEAF], NIL, n_leaves)
        and _within(meta[nodes.FREE_BLOCK], NIL, n_blocks)
        and _within(meta[nodes.FREE_ROOMS :], NIL, n_members)
        and _has_sound_blocks(blocks, settings.max_features, layout, n_features)
    )
    if not sound:
        raise ValueError("an index points out of bounds")


def _has_sound_blocks(blocks: Blocks, n_attributes: int, layout: Layout, n_features: int) -> bool:
    """Whether the numbers that kernels use as indices are within the blocks."""
    longs, halves = blocks.longs, blocks.halves
    if longs.shape[1] != layout.size:
        return False
    at = 2 * (layout.attributes_at + ATTRIBUTE_SIZE * np.arange(n_attributes))
    return (
        _within(longs[:, N_ATTRIBUTES], 0, n_attributes + 1)
        and _within(longs[:, NEXT_FREE], NIL, len(longs))
        and _within(halves[:, at + ATTRIBUTE], 0, n_features)
        and _within(halves[:, at + N_CELLS], 0, layout.n_counters)
    )


def _within(values: Any, low: int, end: int) -> bool:
    """Whether all values are in [low, end)."""
    values = np.asarray(values)
    return bool(((values >= low) & (values < end)).all())
