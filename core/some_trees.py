"""Some trees of a fit, grown without the others: for whoever compares a few trees with those of another model."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from oubli.core.engine import Progress
from oubli.core.errors import InputError
from oubli.core.model import Model


class SomeTrees(NamedTuple):
    """What is known of a fit of which some trees were grown.

    Attributes
    ----------
    header
        What its digest is made of besides the digests of its trees, see `model_digest`.
    digests
        Of the trees that were grown, by their numbers.
    """

    header: str
    digests: dict[int, str]


def separate_trees_of(model: Model) -> int:
    """Return how many trees a model has each of which can be grown without the others; 0 where they are not separate.

    Parameters
    ----------
    model
        Fitted, or begun (`start`).
    """
    engine = model.engine_
    return engine.n_drawn_trees if engine.has_separate_trees else 0


def grow_some(
    model: Model, trees: Sequence[int], X: Any, y: Any, *, ids: Sequence[Any], progress: Progress | None = None
) -> SomeTrees:
    """Grow some trees of the fit on samples, bit for bit as the whole fit does, in the time and memory of so many.

    Parameters
    ----------
    model
        Begun with the schema of the samples (`start`), without any. It cannot be used afterwards.
    trees
        Numbers of trees, each once.
    X, y, ids, progress
        As for `fit`; there may be no samples.

    Raises
    ------
    InputError
        When a sample is refused, when there is no such tree, or when the trees of this kind depend on each other.
    CapacityError
        When the whole fit could not hold so many samples.
    """
    store, engine = model.samples_, model.engine_
    n_trees = separate_trees_of(model)
    if not n_trees:
        raise InputError(f"the trees of a {type(model).__name__} depend on each other: use `fit`")
    if len({*trees}) < len(trees) or not all(0 <= tree < n_trees for tree in trees):
        raise InputError(f"trees must be different numbers from 0 to {n_trees - 1}")
    try:
        model.require_room(len(ids))
        if ids:
            store.commit(store.prepare(X, y, ids))
        digests = engine.fit_some(store.problem(), store.slots(), trees, model.class_order(), progress)
        return SomeTrees(model.header_text(), dict(zip(trees, digests, strict=True)))
    finally:
        model.shred()
