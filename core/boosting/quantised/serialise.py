"""The trees as arrays for a file; they are not read back, but compared with those that the samples give."""

import numpy as np

from oubli.core.array_types import Arrays
from oubli.core.boosting.incremental.parameters import IncrementalSettings
from oubli.core.boosting.quantised import state as s
from oubli.core.boosting.quantised.steadiness import most_levels
from oubli.core.boosting.state import Trees
from oubli.core.engine import Shape
from oubli.core.errors import expect

_PLAN_BYTES = 12  # of a bin in an iteration
_FIELDS = ("threshold", "category", "value", "feature", "left", "missing_left", "is_categorical")


def pack(trees: Trees) -> Arrays:
    """Return trees as arrays by name."""
    fields = {name: np.ascontiguousarray(trees.nodes[name]) for name in _FIELDS}
    return {**fields, "roots": trees.roots.copy(), "base": trees.base.copy(), "unit": np.array([trees.unit])}


def bytes_asked(settings: IncrementalSettings, shape: Shape) -> int:
    """Bytes of the engine that is made of a file, roughly: it is grown anew from the samples."""
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
