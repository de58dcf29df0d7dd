"""Whether a model file's description is a tree's, and whether what a tree keeps is what its samples say.

The first is asked before anything is made of a file. Whether the tree is one over these samples is asked by
`serialise.unpack` as it makes it, and whether it keeps what it promises by `feasibility.py`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from oubli.core.bounds import require_sound
from oubli.core.tree.state import NIL, ROOT, TreeArrays

PREFIX = "tree."

Arrays = Mapping[str, npt.NDArray[Any]]


def check_description(document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> None:
    """Check the numbers of the description and of the samples; the settings are those of the parameters.

    Raises
    ------
    FileError
        When they do not fit together.
    """
    slots, n_samples = arrays["samples.slots"], document["n_samples"]
    window = document["settings"]["window"]
    require_sound(window is None or window >= n_samples, "there are more samples than the window holds")
    if not with_trees:
        return
    _check_counters(arrays, document["settings"]["tree"]["epsilon"])
    held, counts = arrays[PREFIX + "held"], arrays[PREFIX + "class_counts"]
    require_sound(held.dtype == np.bool_ and held.ndim == 1, "held has another type or shape")
    require_sound(
        counts.dtype == np.int64 and counts.ndim == 1 and len(counts) >= 2, "class_counts has another type or shape"
    )
    require_sound(np.array_equal(np.flatnonzero(held), np.sort(slots)), "the samples are in other slots")
    require_sound(len(held) == 0 or held[-1], "there are slots for no samples")
    codes, targets = arrays["class_table.codes"], arrays["samples.targets"]
    require_sound(((codes >= 0) & (codes < len(counts))).all(), "there are classes that the tree has no room for")
    require_sound(((targets >= 0) & (targets < len(counts))).all(), "there are labels of no class")
    require_sound(np.array_equal(np.bincount(targets, minlength=len(counts)), counts), "the classes are counted wrong")


def _check_counters(arrays: Arrays, epsilon: float) -> None:
    """Check that no node has seen more updates than one may before it is built anew; shapes are checked later."""
    touched, built, flags = (arrays[PREFIX + name] for name in ("touched", "built", "flags"))
    require_sound(touched.shape == built.shape == flags.shape, "the arrays of the nodes differ in length")
    require_sound(not flags.any(), "there are tags")
    require_sound((touched <= epsilon * built.astype(np.float64)).all(), "a node should have been built anew")


# -- of a tree that is there -------------------------------------------------------------------------


def compare(ours: TreeArrays, theirs: TreeArrays) -> list[str]:
    """List what differs between a tree and the one whose counts were made anew; both have the same links."""
    differing: dict[str, int] = {}
    level = np.array([ROOT]), np.array([ROOT])
    while len(level[0]):
        records = ours.nodes[level[0]], theirs.nodes[level[1]]
        for field, what in (("n_samples", "samples"), ("depth", "depth")):
            differing[what] = differing.get(what, 0) + int((records[0][field] != records[1][field]).sum())
        counts = (ours.counts[level[0]] != theirs.counts[level[1]]).any(axis=1)
        differing["class counts"] = differing.get("class counts", 0) + int(counts.sum())
        left = [record["child"][record["child"] != NIL].astype(np.int64) for record in records]
        level = np.concatenate([left[0], left[0] + 1]), np.concatenate([left[1], left[1] + 1])
    return [f"the {what} of {n} nodes" for what, n in differing.items() if n]


def check_updates(tree: TreeArrays, epsilon: float) -> list[str]:
    """Check the counters of Algorithm 1, which only an update reads: Lemma 3.4, and that nothing has to be rebuilt."""
    nodes = tree.nodes
    used = _used(tree)
    built, touched = nodes["built"][used].astype(np.int64), nodes["touched"][used]
    n_overdue = int((touched > epsilon * built).sum())
    n_impossible = int((abs(nodes["n_samples"][used] - built) > touched).sum())
    found = []
    if n_overdue:
        found.append(f"the updates of {n_overdue} nodes that should have been built anew")
    if n_impossible:
        found.append(f"the updates of {n_impossible} nodes that have seen more samples come and go")
    return found


def _used(tree: TreeArrays) -> npt.NDArray[np.int64]:
    """The rows of all nodes of a tree."""
    child = tree.nodes["child"]
    levels = [np.array([ROOT], np.int64)]
    while len(levels[-1]):
        left = child[levels[-1]]
        left = left[left != NIL].astype(np.int64)
        levels.append(np.concatenate([left, left + 1]))
    return np.concatenate(levels)
