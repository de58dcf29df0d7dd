"""A forest as plain arrays for a file, and back; and the checks of their types, shapes and indices before that.

Kernels check no bounds. They would follow a wrong index anywhere, and a circular list for ever. A checksum finds
accidental damage; these checks, and those of `invariants.py` that follow, find what was written wrong, or on purpose.
Whether the splits are the best ones is not checked here: `verify` does that.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from oubli.core.array_types import Arrays, Ints
from oubli.core.bounds import require_sound
from oubli.core.engine import Shape
from oubli.core.forest.layout.blocks import (
    ATTRIBUTE,
    ATTRIBUTE_SIZE,
    N_ATTRIBUTES,
    N_CELLS,
    NEXT_FREE,
    REPRESENTATIVE,
    Forest,
    layout_of,
)
from oubli.core.forest.parameters import MAX_ENTRIES, ForestSettings
from oubli.core.forest.state import (
    BLOCKS,
    FREE_ROOMS,
    LEAVES,
    MAX_ROOM,
    META_SIZE,
    N_MEMBERS,
    N_TAGS,
    NODE_DTYPE,
    PAIRS,
    POOLS,
    Trees,
)
from oubli.core.jit import aligned
from oubli.core.jit.nodes import FREE, NIL

PREFIX = "forest."
FIELDS = ("category", "child", "attribute", "n_samples", "block", "kind")
_NODE_BYTES = 32
_ROOM = 64  # nodes and leaves that empty trees have room for, beside the roots


def bytes_asked(settings: ForestSettings, shape: Shape, arrays: Arrays) -> int:
    """Bytes of the trees that a file gives, roughly, without the arrays that are as large in the file."""
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
    records = trees.nodes[: meta[PAIRS]]
    arrays: Arrays = {f"nodes.{field}": np.ascontiguousarray(records[field]) for field in FIELDS}
    for name in ("statistics", "starts", "rooms"):
        arrays[f"leaves.{name}"] = getattr(trees, name)[: meta[LEAVES]]
    arrays["members"] = trees.members[: meta[N_MEMBERS]]
    if len(trees.tallies):
        arrays["tallies"] = trees.tallies[: meta[N_MEMBERS]]
    arrays["places"] = trees.places
    arrays["meta"] = meta
    arrays["blocks"] = longs[: meta[BLOCKS]]
    return arrays


def unpack(arrays: Arrays, empty: Trees) -> tuple[Trees, Ints]:
    """Return trees and counters of what `pack` gave, unchecked, and empty it; `empty`: trees without samples."""
    records = aligned.zeros(len(arrays["nodes.child"]), NODE_DTYPE)
    for field in FIELDS:
        records[field] = arrays.pop(f"nodes.{field}")
    trees = empty._replace(
        nodes=records,
        statistics=np.array(arrays.pop("leaves.statistics"), empty.statistics.dtype),
        starts=np.array(arrays.pop("leaves.starts"), np.int32),
        rooms=np.array(arrays.pop("leaves.rooms"), np.uint8),
        members=np.array(arrays.pop("members"), np.int32),
        tallies=np.array(arrays.pop("tallies", empty.tallies[:0]), np.int32),
        places=np.array(arrays.pop("places"), np.int32),
        meta=np.array(arrays.pop("meta"), np.int64),
    )
    return trees, aligned.copy(arrays.pop("blocks"), np.int64)


# -- the checks of a file ---------------------------------------------------------------------------


def check_description(document: Mapping[str, Any], arrays: Arrays, *, n_slots: int | None = None) -> None:
    """Check the numbers of the description and of the samples; the settings are those of the parameters.

    n_slots  room for samples that the file's trees have; None: they are grown again

    Raises
    ------
    FileError
        When they do not fit together.
    """
    settings, task, width = document["settings"], document["task"], document["n_classes"]
    slots, codes = arrays["samples.slots"], arrays["class_table.codes"]
    require_sound(settings["is_regression"] is (task == "regression"), "the settings are for another task")
    require_sound(settings["occurrences"] <= settings["n_trees"], "the settings contradict each other")
    require_sound(type(width) is int and 2 <= width < 2**31, "the number of classes is out of range")
    require_sound(len(slots) * settings["occurrences"] <= MAX_ENTRIES, "there are too many samples")
    if n_slots is not None:
        require_sound((slots < n_slots).all(), "there are slots that the trees have no room for")
        require_sound((codes < width).all(), "there are classes that the trees have no room for")


def check_parts(document: Mapping[str, Any], arrays: Arrays, *, has_tallies: bool) -> None:
    """Check numbers and shapes of everything, the trees included.

    Raises
    ------
    FileError
        When they do not fit together.
    """
    settings, width = document["settings"], document["n_classes"]
    check_description(document, arrays, n_slots=len(arrays[PREFIX + "places"]) // settings["occurrences"])
    for name, (dtype, shape) in _expected_types(document, settings, width, has_tallies=has_tallies).items():
        array = arrays[PREFIX + name]
        fits = array.dtype == np.dtype(dtype) and array.ndim == len(shape)
        fits = fits and all(size in {None, given} for size, given in zip(shape, array.shape, strict=True))
        require_sound(fits, f"{name} has another type or shape than the settings say")
    for group in ("nodes.", "leaves."):
        lengths = {
            len(array)
            for name, array in arrays.items()
            if name.startswith(PREFIX + group) and not (has_tallies and name == PREFIX + "leaves.statistics")
        }
        require_sound(len(lengths) == 1, f"the arrays of {group[:-1]} differ in length")
    # Every tree has a root and a leaf, and the split search has a block: what is as wide as the settings say is there.
    n_trees = settings["n_trees"]
    require_sound(len(arrays[PREFIX + "nodes.child"]) >= n_trees, "there are fewer nodes than trees")
    require_sound(len(arrays[PREFIX + "leaves.starts"]) >= n_trees, "there are fewer leaves than trees")
    require_sound(len(arrays[PREFIX + "blocks"]) >= 1, "there is no room for the split search")


def _expected_types(
    document: Mapping[str, Any], settings: Mapping[str, Any], width: int, *, has_tallies: bool
) -> dict[str, tuple[str, tuple[int | None, ...]]]:
    """Types and shapes of the trees' arrays; None stands for any length."""
    columns = document["schema"]["columns"]
    has_categories = any(column["type"] == "categorical" for column in columns)
    layout = layout_of(ForestSettings(**settings), len(columns), width, has_categories=has_categories)
    return {
        **{f"nodes.{field}": (NODE_DTYPE[field].str, (None,)) for field in FIELDS},
        "leaves.statistics": ("i8" if settings["is_regression"] else "i4", (0 if has_tallies else None, width)),
        "leaves.starts": ("i4", (None,)),
        "leaves.rooms": ("u1", (None,)),
        "members": ("i4", (None,)),
        "places": ("i4", (None,)),
        **({"tallies": ("i4", (None, 2))} if has_tallies else {}),
        "meta": ("i8", (META_SIZE,)),
        "blocks": ("i8", (None, layout.size)),
    }


def check_bounds(forest: Forest, n_slots: int) -> None:
    """Check every index that a kernel would follow blindly; ValueError when one points out of bounds."""
    trees, blocks, settings = forest.trees, forest.blocks, forest.settings
    records, meta = trees.nodes, trees.meta
    n_nodes, n_leaves, n_blocks = len(records), len(trees.starts), len(blocks.longs)
    n_entries, n_members = len(trees.places), len(trees.members)
    child = records["child"].astype(np.int64)
    sound = (
        n_nodes >= settings.n_trees
        and n_entries >= n_slots * settings.occurrences
        and trees.statistics.shape == (0 if len(trees.tallies) else n_leaves, forest.width)
        and len(trees.tallies) in {0, n_members}
        and _within(trees.tallies[:, 0], 0, forest.width)
        and (trees.tallies[:, 1] >= 0).all()
        and (child < n_nodes - 1).all()
        and (~child < n_leaves).all()
        and _within(records["attribute"], 0, forest.n_features)
        and _within(records["block"], NIL, n_blocks)
        and _within(trees.starts, NIL, max(n_leaves, n_members))
        and _within(trees.rooms, 0, MAX_ROOM + 1)
        and _within(trees.members, 0, max(n_entries, n_members + 1))
        and _within(trees.places, 0, max(n_members, 1))
        and meta[N_MEMBERS] == n_members
        and meta[N_TAGS] == 0
        and (meta[POOLS] == [n_nodes, n_leaves, n_blocks]).all()
        and _within(meta[np.add(POOLS, FREE)], NIL, meta[POOLS])
        and _within(meta[FREE_ROOMS:], NIL, n_members)
        and _has_sound_blocks(forest)
    )
    if not sound:
        raise ValueError("an index points out of bounds")


def _has_sound_blocks(forest: Forest) -> bool:
    """Whether the numbers that kernels use as indices are within the blocks."""
    longs, halves = forest.blocks.longs, forest.blocks.halves
    layout, n_attributes = forest.layout, forest.settings.max_features
    if longs.shape[1] != layout.size:
        return False
    at = 2 * (layout.attributes_at + ATTRIBUTE_SIZE * np.arange(n_attributes))
    return (
        _within(longs[:, N_ATTRIBUTES], 0, n_attributes + 1)
        and _within(longs[:, NEXT_FREE], NIL, len(longs))
        and _within(longs[1:, REPRESENTATIVE], 0, max(len(forest.trees.places) // forest.settings.occurrences, 1))
        and _within(halves[:, at + ATTRIBUTE], 0, forest.n_features)
        and _within(halves[:, at + N_CELLS], 0, layout.n_counters)
    )


def _within(values: Any, low: int, end: Any) -> bool:
    """Whether all values are in [low, end)."""
    values = np.asarray(values)
    return bool(((values >= low) & (values < end)).all())
