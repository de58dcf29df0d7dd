"""The trees as plain arrays for a file, and back: the check that the engine could have grown them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.state import LEAF, NODE
from oubli.core.errors import expect
from oubli.core.jit.policy import kernel

_LARGEST_VALUE = 2.0**53

FIELDS = ("category", "value", "feature", "left", "missing_left", "is_categorical")


@kernel
def _are_in_path_order(feature, left, roots, max_depth, walk, depths):
    """Whether nodes are where growing puts them: trees one after the other, pairs as their parents come in path order.

    walk, depths  int64[max_depth + 2], working space
    """
    size = 0
    for tree in range(roots.shape[0]):
        if roots[tree] != size or size >= feature.shape[0]:
            return False
        walk[0], depths[0] = size, 0
        size += 1
        n_waiting = 1
        while n_waiting > 0:
            n_waiting -= 1
            node, depth = walk[n_waiting], depths[n_waiting]
            if feature[node] == LEAF:
                continue
            if left[node] != size or size + 2 > feature.shape[0] or depth >= max_depth:
                return False
            walk[n_waiting], depths[n_waiting] = size + 1, depth + 1
            walk[n_waiting + 1], depths[n_waiting + 1] = size, depth + 1
            n_waiting += 2
            size += 2
    return size == feature.shape[0]


def take_apart(nodes: Any, roots: npt.NDArray[np.int32], gains: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Trees as plain arrays."""
    return {**{field: nodes[field].copy() for field in FIELDS}, "roots": roots.copy(), "gains": gains.copy()}


def check_trees(nodes: Any, roots: npt.NDArray[np.int32], max_depth: int, categorical: npt.NDArray[np.bool_]) -> None:
    """Check that links form trees in path order, and that splits and values are possible ones.

    Raises
    ------
    ValueError
        Saying what is wrong.
    """
    feature = nodes["feature"]
    walk = np.empty(max_depth + 2, np.int64)
    expect(
        _are_in_path_order(np.ascontiguousarray(feature), np.ascontiguousarray(nodes["left"]), roots, max_depth, walk,
                           walk.copy()),
        "the nodes do not form trees",
    )  # fmt: skip
    is_leaf = feature == LEAF
    expect((is_leaf | ((feature >= 0) & (feature < len(categorical)))).all(), "a split reads a column not there")
    splits, leaves = nodes[~is_leaf], nodes[is_leaf]
    expect((splits["is_categorical"] == categorical[splits["feature"]]).all(), "a split does not fit its column")
    expect((splits["missing_left"] <= 1).all() and not splits["value"].any(), "a split has a value or no direction")
    numeric = splits[splits["is_categorical"] == 0]
    expect(not np.isnan(numeric["threshold"]).any(), "a threshold is no number")
    expect((numeric["threshold"] > -np.inf).all(), "a threshold is below all numbers")
    values = leaves["value"]
    expect(np.isfinite(values).all() and (np.abs(values) <= _LARGEST_VALUE).all(), "a value is out of range")
    expect((values == np.floor(values)).all(), "a value is not a whole number of units")
    rest = leaves["category"].any() or leaves["left"].any() or leaves["missing_left"].any()
    expect(not rest and not leaves["is_categorical"].any(), "a leaf has a split")


def put_together(
    arrays: Mapping[str, npt.NDArray[Any]], max_depth: int, categorical: npt.NDArray[np.bool_]
) -> tuple[Any, npt.NDArray[np.int32], npt.NDArray[np.float64]]:
    """Undo `take_apart`: nodes, roots and gains.

    Raises
    ------
    ValueError
        When the arrays are no trees, saying what is wrong.
    """
    dtypes = {**{field: NODE.fields[field][0] for field in FIELDS}, "roots": np.int32, "gains": np.float64}  # type: ignore[index]
    for name, dtype in dtypes.items():
        expect(name in arrays, f"{name} is missing")
        expect(arrays[name].dtype == dtype and arrays[name].ndim == 1, f"{name} has another type or shape")
    size = len(arrays["feature"])
    expect(all(len(arrays[name]) == size for name in (*FIELDS, "gains")), "the arrays differ in length")
    nodes = np.zeros(size, NODE)
    for field in FIELDS:
        nodes[field] = arrays[field]
    roots, gains = np.array(arrays["roots"]), np.array(arrays["gains"])
    check_trees(nodes, roots, max_depth, categorical)
    expect(np.isfinite(gains).all() and (gains >= 0.0).all(), "a gain is out of range")
    expect(not gains[nodes["feature"] == LEAF].any(), "a leaf has a gain")
    return nodes, roots, gains
