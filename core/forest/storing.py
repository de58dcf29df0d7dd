"""A forest as a description and plain arrays, and back; for model files and pickles."""

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from core import persistence
from core.forest.checking import digest
from core.forest.ensemble import ForestSettings
from core.samples import SampleStore
from core.schema import Schema

if TYPE_CHECKING:
    from core.forest.dynamic_forest import DynamicForest

Arrays = dict[str, npt.NDArray[Any]]
Forest = TypeVar("Forest", bound="DynamicForest")

_PREFIX = "forest."


def take_apart(model: "DynamicForest") -> tuple[dict[str, Any], Arrays]:
    """Describe a fitted forest by JSON-able values and arrays; resolves all tags."""
    model.resolve()
    arrays = {_PREFIX + name: array for name, array in model.ensemble_.state().items()}
    arrays.update(model.samples_.state())
    parameters = {**model.get_params(), "random_state": model.seed_}
    document = {
        "kind": model.kind,
        "task": model.task.value,
        "guarantee": model.guarantee,
        # A search over np.arange(...) sets NumPy's numbers, which JSON does not know.
        "parameters": {name: v.item() if isinstance(v, np.generic) else v for name, v in parameters.items()},
        "settings": vars(model.ensemble_.settings),
        "schema": model.schema_.to_dict(),
        "n_samples": model.n_samples_,
        "n_classes": model.ensemble_.width,
    }
    return document, arrays


def put_together(
    model: Forest,
    document: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    *,
    with_trees: bool = True,
) -> Forest:
    """Give an estimator the fitted state that `take_apart` described; or its samples, and grow the trees anew.

    Raises
    ------
    FileError
        When the parts do not fit together.
    """
    schema = Schema.from_dict(document["schema"])
    store = SampleStore.from_state(schema, arrays, owner=type(model).__name__)
    settings = ForestSettings(**document["settings"])
    model.begin(schema, settings, store)
    if not with_trees:
        model.grow_all()
        return model
    model.ensemble_.widen(int(document["n_classes"]))
    forest = {name[len(_PREFIX) :]: array for name, array in arrays.items() if name.startswith(_PREFIX)}
    model.ensemble_.restore(forest, n_slots=store.capacity)
    model.refresh_targets()
    return model


def save(model: "DynamicForest", path: str | PathLike[str], extra: Mapping[str, str] | None) -> None:
    """Write a forest to a file, with its digest and the caller's texts."""
    model_digest = digest(model)
    document, arrays = take_apart(model)
    persistence.write(path, arrays, {**document, "digest": model_digest, "extra": dict(extra or {})})
