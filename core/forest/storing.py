"""A forest as a description and plain arrays, and back; for model files and pickles."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from core.forest.ensemble import ForestSettings
from core.samples import SampleStore

if TYPE_CHECKING:
    from core.forest.dynamic_forest import DynamicForest

Arrays = dict[str, npt.NDArray[Any]]

_PREFIX = "forest."


def take_apart(model: "DynamicForest") -> tuple[dict[str, Any], Arrays]:
    """Describe the trees, which have no tags, by JSON-able values and arrays."""
    ensemble = model.ensemble_
    arrays = {_PREFIX + name: array for name, array in ensemble.state().items()}
    return {"settings": vars(ensemble.settings), "n_classes": ensemble.width}, arrays


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
