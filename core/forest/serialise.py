"""A forest as a description and plain arrays, and back; for model files and pickles."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from oubli.core.forest.blocks import layout_of
from oubli.core.forest.engine import ForestSettings
from oubli.core.samples.store import SampleStore

if TYPE_CHECKING:
    from oubli.core.forest.model import DynamicForest

Arrays = dict[str, npt.NDArray[Any]]

_PREFIX = "forest."
_NODE_BYTES = 32
_ROOM = 64  # nodes and leaves that empty trees have room for, beside the roots


def take_apart(model: "DynamicForest") -> tuple[dict[str, Any], Arrays]:
    """Describe the trees, which have no tags, by JSON-able values and arrays."""
    ensemble = model.ensemble_
    arrays = {_PREFIX + name: array for name, array in ensemble.state().items()}
    return {"settings": dict(vars(ensemble.settings)), "n_classes": ensemble.width}, arrays


def tree_bytes(document: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    """Bytes of the trees that `put_together` makes, roughly, the arrays left out that are as large in the file."""
    settings, columns = document["settings"], document["schema"]["columns"]
    width, n_trees = int(document["n_classes"]), int(settings["n_trees"])
    has_categories = any(column["type"] == "categorical" for column in columns)
    layout = layout_of(
        settings["max_features"],
        settings["n_thresholds"],
        len(columns),
        width,
        is_regression=settings["is_regression"],
        has_categories=has_categories,
    )
    n_codes = int(arrays["categories.codes"].max(initial=-1)) + 1
    leaf_bytes = 8 * width + _NODE_BYTES
    n_members = len(arrays["samples.slots"]) * int(settings["occurrences"])
    return (
        2 * (n_trees + _ROOM) * (leaf_bytes + _NODE_BYTES)
        + 16 * n_members
        + 8 * (4 * layout.size + n_codes * (width + 2))
        + layout.n_counters * 16
    )


def put_together(
    model: "DynamicForest",
    document: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    store: SampleStore,
    *,
    with_trees: bool,
) -> None:
    """Give an estimator the samples of a store and the trees that `take_apart` described, or grow these anew.

    Raises
    ------
    ValueError
        When the parts do not fit together.
    """
    model.begin(store.schema, ForestSettings(**document["settings"]), store)
    if not with_trees:
        model.grow_all()
        return
    model.ensemble_.widen(int(document["n_classes"]))
    forest = {name[len(_PREFIX) :]: array for name, array in arrays.items() if name.startswith(_PREFIX)}
    model.ensemble_.restore(forest, n_slots=store.capacity)
    model.refresh_targets()
