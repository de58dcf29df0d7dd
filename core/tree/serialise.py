"""A tree as a description and plain arrays, and back; for model files and pickles.

    settings          the parameters as numbers
    n_mutations       added and deleted since the last fit or scrub
    tree.*            the tree, see `packing.py`
    tree.held         bool[slots]: which slots hold samples
    tree.class_counts int64[classes]: samples by class code

The last two are known from the samples. They say how much room a tree takes, and make a file that asks for more
room than it has samples for as large as that.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from oubli.core.samples.store import SampleStore
from oubli.core.tree.engine import Tree, TreeSettings
from oubli.core.tree.parameters import TreeParameters

if TYPE_CHECKING:
    from oubli.core.tree.estimator import DynamicTreeClassifier

Arrays = dict[str, npt.NDArray[Any]]

PREFIX = "tree."


def take_apart(model: "DynamicTreeClassifier") -> tuple[dict[str, Any], Arrays]:
    """Describe the tree, which has no tags, by JSON-able values and arrays."""
    store = model.samples_
    arrays = {PREFIX + name: array for name, array in model.tree_.arrays().items()}
    slots = store.slots()
    held = np.zeros(int(slots[-1]) + 1 if len(slots) else 0, np.bool_)
    held[slots] = True
    arrays[PREFIX + "held"] = held
    arrays[PREFIX + "class_counts"] = np.bincount(store.class_codes[slots], minlength=model.tree_.width)
    return {"settings": asdict(model.parameters_), "n_mutations": model.n_mutations_since_scrub_}, arrays


def tree_bytes(arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    """Bytes of the tree that `put_together` makes, roughly: each node counts all classes that there is room for."""
    n_nodes, width = len(arrays[PREFIX + "child"]), len(arrays[PREFIX + "class_counts"])
    n_codes = int(arrays["categories.codes"].max(initial=-1)) + 1
    return 2 * n_nodes * (4 * width + 64) + 32 * width + 32 * n_codes


def read_settings(settings: Mapping[str, Any]) -> TreeParameters:
    """Undo `asdict`."""
    return TreeParameters(**{**settings, "tree": TreeSettings(**settings["tree"])})


def put_together(
    model: "DynamicTreeClassifier",
    document: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    store: SampleStore,
    *,
    with_trees: bool,
) -> None:
    """Give an estimator the samples of a store and the tree that `take_apart` described, or build that anew.

    Raises
    ------
    ValueError
        When the parts do not fit together.
    """
    model.begin(store.schema, read_settings(document["settings"]), store)
    if not with_trees:
        model.grow_all()
        return
    parts = {name[len(PREFIX) :]: array for name, array in arrays.items() if name.startswith(PREFIX)}
    width = len(parts["class_counts"])
    model.tree_ = Tree.from_arrays(model.parameters_.tree, width, parts, model.data(), store.slots())
    model.tree_.changes = store.changes
    model.n_mutations_since_scrub_ = document["n_mutations"]
