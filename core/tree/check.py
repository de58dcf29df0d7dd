"""Whether a model file's description is a tree's, asked before anything is made of it.

Whether the tree is one over these samples is asked by `packing.unpack` as it makes it. Whether it promises
what it keeps is not asked here: that is what `verify` is for.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from oubli.core.errors import FileError
from oubli.core.tree.engine import MAX_SAMPLES
from oubli.core.tree.serialise import PREFIX

Arrays = Mapping[str, npt.NDArray[Any]]


def _require(condition: Any, what: str) -> None:
    if not condition:
        raise FileError(f"the file is not sound ({what}): restore another file")


def check_description(document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> None:
    """Check the numbers of the description and of the samples; the settings are those of the parameters.

    Raises
    ------
    FileError
        When they do not fit together.
    """
    _require(document["task"] == document["schema"]["task"] == "classification", "it is for another task")
    slots, n_samples = arrays["samples.slots"], document["n_samples"]
    _require(type(n_samples) is int and n_samples == len(slots), "the number of samples is wrong")
    _require(n_samples <= MAX_SAMPLES, "there are too many samples")
    window = document["settings"]["window"]
    _require(window is None or window >= n_samples, "there are more samples than the window holds")
    if not with_trees:
        return
    _require(type(document["n_mutations"]) is int and document["n_mutations"] >= 0, "the mutations are counted wrong")
    _check_counters(arrays, document["settings"]["tree"]["epsilon"])
    held, counts = arrays[PREFIX + "held"], arrays[PREFIX + "class_counts"]
    _require(held.dtype == np.bool_ and held.ndim == 1, "held has another type or shape")
    _require(
        counts.dtype == np.int64 and counts.ndim == 1 and len(counts) >= 2, "class_counts has another type or shape"
    )
    _require(np.array_equal(np.flatnonzero(held), np.sort(slots)), "the samples are in other slots")
    _require(len(held) == 0 or held[-1], "there are slots for no samples")
    codes, targets = arrays["class_table.codes"], arrays["samples.targets"]
    _require(((codes >= 0) & (codes < len(counts))).all(), "there are classes that the tree has no room for")
    _require(((targets >= 0) & (targets < len(counts))).all(), "there are labels of no class")
    _require(np.array_equal(np.bincount(targets, minlength=len(counts)), counts), "the classes are counted wrong")


def _check_counters(arrays: Arrays, epsilon: float) -> None:
    """Check that no node has seen more updates than one may before it is built anew; shapes are checked later."""
    touched, built, flags = (arrays[PREFIX + name] for name in ("touched", "built", "flags"))
    _require(touched.shape == built.shape == flags.shape, "the arrays of the nodes differ in length")
    _require(not flags.any(), "there are tags")
    _require((touched <= epsilon * built.astype(np.float64)).all(), "a node should have been built anew")
