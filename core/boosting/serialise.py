"""Boosted trees as a description and plain arrays, and back; for model files and pickles.

What there is:

    settings      the parameters in force, as the constructor takes them
    n_mutations   samples added and deleted since the last fit or scrub
    boosting.*    the arrays of the engine
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from oubli.core.errors import FileError
from oubli.core.samples.store import SampleStore

if TYPE_CHECKING:
    from oubli.core.boosting.model import BoostedModel

Arrays = dict[str, npt.NDArray[Any]]

PREFIX = "boosting."


def take_apart(model: "BoostedModel") -> tuple[dict[str, Any], Arrays]:
    """Describe the trees by JSON-able values and arrays."""
    arrays = {PREFIX + name: array for name, array in model.engine_.arrays().items()}
    document = {"settings": model._describe_settings(model._settings), "n_mutations": model.n_mutations_since_scrub_}
    return document, arrays


def engine_parts(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """Return the arrays of the engine among those of a file."""
    return {name[len(PREFIX) :]: array for name, array in arrays.items() if name.startswith(PREFIX)}


def _require(condition: Any, what: str) -> None:
    if not condition:
        raise FileError(f"the file is not sound ({what}): restore another file")


def check_description(
    cls: type["BoostedModel"], document: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], *, with_trees: bool
) -> None:
    """Check what a file says before anything is made of it; the settings are those of the parameters.

    Raises
    ------
    FileError
        When the parts do not fit together.
    """
    _require(document["task"] == document["schema"]["task"] == cls.task.value, "it is for another task")
    n_samples, slots = document["n_samples"], arrays["samples.slots"]
    _require(type(n_samples) is int and n_samples == len(slots), "the number of samples is wrong")
    cls._check_capacity(cls.read_parameters(document["settings"]), n_samples)
    _require(type(document["n_mutations"]) is int and document["n_mutations"] >= 0, "the mutations are counted wrong")
    codes, targets = arrays["class_table.codes"], arrays["samples.targets"]
    if cls.task.value == "classification":
        _require(np.isin(targets, codes).all() and np.isin(codes, targets).all(), "there are labels of no class")


def put_together(
    model: "BoostedModel",
    document: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    store: SampleStore,
    *,
    with_trees: bool,
) -> None:
    """Give an estimator the samples of a store and the trees that `take_apart` described, or grow them anew.

    Raises
    ------
    ValueError
        When the parts do not fit together.
    """
    settings = model.read_parameters(document["settings"])
    model.begin(store.schema, settings, store)
    if not with_trees:
        model.grow_all()
        return
    model.take_over(engine_parts(arrays))
    model.n_mutations_since_scrub_ = document["n_mutations"]
