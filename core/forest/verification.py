"""Digest and verification of a forest: can it be told from a fresh fit."""

from typing import TYPE_CHECKING, Any

import numpy as np

from oubli.core.digests import model_digest, named_classes
from oubli.core.forest.compare import Part, compare_forests
from oubli.core.forest.digest import tree_digest
from oubli.core.verification import TreeComparison, Verification

if TYPE_CHECKING:
    from oubli.core.forest.model import DynamicForest


def header(model: "DynamicForest") -> dict[str, Any]:
    """All but the trees that decides a prediction; part of the digest."""
    settings = model.ensemble_.settings
    classes = model.samples_.classes.values(model.class_order())
    return {
        "format": 2,  # one more whenever the same samples would give other trees
        "kind": model.kind,
        "task": model.task.value,
        "seed": settings.seed,
        "n_estimators": settings.n_trees,
        "occurrences": settings.occurrences,
        "max_depth": settings.max_depth,
        "min_samples_split": settings.min_samples_split,
        "n_thresholds": settings.n_thresholds,
        "max_features": settings.max_features,
        "criterion": settings.criterion,
        "types": [f"{column.type.value}:{column.dtype}" for column in model.schema_.columns],
        "classes": named_classes(classes),
        "exponent": model.exponent(),
    }


def tree_digests(model: "DynamicForest") -> list[str]:
    """Digest of each tree, in order; resolves all tags."""
    model.resolve()
    ensemble = model.ensemble_
    order = model.class_order()
    return [
        tree_digest(ensemble.trees, tree, ensemble.settings.is_regression, order)
        for tree in range(ensemble.settings.n_trees)
    ]


def digest(model: "DynamicForest") -> str:
    """Digest of the whole forest; resolves all tags."""
    return model_digest(header(model), tree_digests(model))


def fresh_fit(model: "DynamicForest") -> "DynamicForest":
    """Fit anew on the samples held, read one by one and in another order, with the same types.

    It keeps candidate counters for every node for which the model keeps some.
    """
    parameters = {**model.get_params(), "random_state": model.seed_}
    fresh = type(model)(**parameters)
    fresh.begin(model.schema_, model.ensemble_.settings)
    names = sorted(model.samples_.ids())
    if names:
        held = [model.samples_.get(name) for name in names]
        rows = [sample.features for sample in held]
        labels = [sample.label for sample in held]
        fresh.samples_.commit(fresh.samples_.prepare(rows, labels, names))
    fresh.ensemble_.keep_blocks_like(model.ensemble_)
    fresh.grow_all()
    return fresh


def verify(model: "DynamicForest") -> Verification:
    """Compare a model with a fresh fit on the samples it holds; resolves all tags."""
    live = tree_digests(model)
    fresh_model = fresh_fit(model)
    fresh = tree_digests(fresh_model)
    live_digest = model_digest(header(model), live)
    fresh_digest = model_digest(header(fresh_model), fresh)
    wrong_counters: list[str] = []
    if live_digest == fresh_digest:
        wrong_counters = compare_forests(_part(model), _part(fresh_model))
    trees = [TreeComparison(tree, a, b) for tree, (a, b) in enumerate(zip(live, fresh, strict=True))]
    return Verification(live_digest, fresh_digest, trees, wrong_counters)


def _part(model: "DynamicForest") -> Part:
    """The trees, with slots and class codes in an order that does not depend on the history."""
    names = sorted(model.samples_.ids())
    slots = model.samples_.find(names) if names else np.zeros(0, np.int64)
    return model.ensemble_, slots, model.class_order()
