"""Digest and verification of boosted trees: can they be told from a fresh fit, and is what they keep true."""

from typing import TYPE_CHECKING, Any

import numpy as np

from oubli.core.boosting.digest import base_texts, tree_digests
from oubli.core.data.schema import Task
from oubli.core.digests import model_digest, named_classes
from oubli.core.verification import TreeComparison, Verification

if TYPE_CHECKING:
    from oubli.core.boosting.model import BoostedModel

_MOST_COMPARED = 10_000  # samples that a distance is measured on


def header(model: "BoostedModel") -> dict[str, Any]:
    """All but the trees that decides a prediction; part of the digest."""
    trees = model.engine_.trees
    return {
        "format": 1,  # one more whenever the same samples would give other trees
        "kind": model.kind,
        "task": model.task.value,
        **model._settings.parameters(),
        "types": [f"{column.type.value}:{column.dtype}" for column in model.schema_.columns],
        "classes": named_classes(model.samples_.classes.values(model.class_order())),
        "base": base_texts(trees.base),
        "unit": trees.unit.hex(),
    }


def digest(model: "BoostedModel") -> str:
    """Digest of the model."""
    return model_digest(header(model), tree_digests(model.engine_.trees))


def fresh_fit(model: "BoostedModel") -> "BoostedModel":
    """Fit anew on the samples held, read one by one and in another order, with the same types."""
    fresh = type(model)(**{**model.get_params(), "random_state": model.seed_})
    fresh.begin(model.schema_, model._settings)
    names = sorted(model.samples_.ids())
    if names:
        held = [model.samples_.get(name) for name in names]
        rows = [sample.features for sample in held]
        labels = [sample.label for sample in held]
        fresh.samples_.commit(fresh.samples_.prepare(rows, labels, names))
    fresh.grow_all()
    return fresh


def verify(model: "BoostedModel") -> Verification:
    """Compare a model with a fresh fit, and count what it keeps anew.

    Trees of an approximate kind depend on their history: they must be the fresh ones only when there is none. Then,
    instead, it is said how far the predictions are from those of the fresh fit.
    """
    wrong: list[str] = []
    try:
        model.samples_.check_invariants()
    except AssertionError as error:
        wrong.append(str(error))
    wrong += model.engine_.recount(model.problem(), model.samples_.slots())
    read = model.engine_.trees
    if not all(np.isfinite(values).all() for values in (read.base, read.unit, read.nodes["value"])):
        wrong.append("a leaf, or where boosting starts, is not a finite number")
    fresh = fresh_fit(model)
    live_trees, fresh_trees = tree_digests(model.engine_.trees), tree_digests(fresh.engine_.trees)
    distance = None
    if model.guarantee != "exact" and model.n_mutations_since_scrub_ > 0:
        distance = _distance(model, fresh)
        live_digest = fresh_digest = model_digest(header(model), live_trees)
        fresh_trees = live_trees
    else:
        live_digest = model_digest(header(model), live_trees)
        fresh_digest = model_digest(header(fresh), fresh_trees)
        n_more = abs(len(live_trees) - len(fresh_trees))
        (live_trees if len(live_trees) < len(fresh_trees) else fresh_trees).extend([""] * n_more)
    trees = [TreeComparison(tree, a, b) for tree, (a, b) in enumerate(zip(live_trees, fresh_trees, strict=True))]
    return Verification(live_digest, fresh_digest, trees, wrong, distance_to_fresh=distance)


def _distance(model: "BoostedModel", fresh: "BoostedModel") -> float:
    """Share of held samples that a fresh fit puts into another class; of numbers, the root mean squared difference.

    The latter as a share of the targets' standard deviation. Of many samples, some are looked at.
    """
    names = sorted(model.samples_.ids())
    names = names[:: max(1, len(names) // _MOST_COMPARED)]
    if not names:
        return 0.0
    rows = [model.samples_.get(name).features for name in names]
    ours, theirs = model.query(rows, frozen=True).labels, fresh.query(rows, frozen=True).labels
    if model.task is Task.CLASSIFICATION:
        return float(np.mean(ours != theirs))
    spread = float(np.std(model.samples_.y[model.samples_.slots()]))
    difference = float(np.sqrt(np.mean((ours - theirs) ** 2)))
    return difference / spread if spread > 0 else difference
