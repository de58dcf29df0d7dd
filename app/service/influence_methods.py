"""The methods that questions about influence are answered by: which go with a model, and how long they take.

method                         seconds, about
leaf-influence                 one pass over all samples in all trees
leaf-influence, some leaves    one for each sample
leaf-refit                     one for each sample; with `single`, its own leaves only
leave-one-out                  an unlearning for each sample, and the rows predicted anew
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from oubli.app.errors import ServiceError

if TYPE_CHECKING:
    from oubli.core.influence import Influence

# Seconds, measured on one core of 2.6 GHz with Adult. Of a cell, a sample in a tree:
_ROUTING = 3e-8  # finding its leaf, once for each question
_DERIVATIVE = 6e-9  # a sample's derivative, all its changes followed
_REFIT = 1e-8  # the same of a refit
# Of a sample that is asked about, whatever the trees hold:
_A_CHANGE = 1e-5
_A_ROW = 1e-8  # and of each row in each tree
# Of a sample left out, in each tree that it is in:
_READ = 7e-6  # a forest that is only read, for few rows
_UNLEARNED = 2e-4  # a forest that unlearns it and learns it again
_WITH_GRIDS = 3e-4  # boosting with grids
_REBUILT = 1.2e-7  # boosting without, for each sample held
_FEW_ROWS = 16


class UnfitError(ServiceError):
    """The method does not go with the kind of model; the text says what does."""


def method_for(model: Any, method: str | None, update_set: Any) -> str:
    """Return the method that a question to a model is answered by; None stands for the one that fits its kind.

    Raises
    ------
    UnfitError
        When it does not go with the kind of the model.
    """
    fits = model.influence_methods
    if not fits:
        raise UnfitError(f"there is no influence for a model of kind {model.kind}: fit another kind first")
    method = method or fits[0]
    if method not in fits:
        raise UnfitError(f"{method} is not for a model of kind {model.kind}: use {' or '.join(fits)}")
    if method == "leave-one-out" and update_set != "all":
        raise UnfitError("leave-one-out takes no update_set: leave that out, or use another method")
    return method


def seconds_for(model: Any, method: str, update_set: Any, n_rows: int) -> float:
    """Estimate how long a question about some rows takes, by its method and the size of the model."""
    n = int(model.n_samples_)
    if method == "leave-one-out":
        return n * _seconds_without_one(model, n_rows)
    n_trees = int(model.n_trees_)
    n_cells = n * n_trees
    routing = _ROUTING * (n_cells + n_rows * n_trees)
    by_row = _A_ROW * n_rows * n_trees
    if method == "leaf-influence":
        is_one_pass = update_set in ("all", "single")
        return routing + (0.0 if is_one_pass else n * (_DERIVATIVE * n_cells + by_row))
    followed = 0 if update_set == "single" else n_cells
    return routing + n * (_A_CHANGE + _REFIT * followed + by_row)


def _seconds_without_one(model: Any, n_rows: int) -> float:
    if model.kind == "forest":
        settings = model.settings_
        by_tree = _READ * n_rows if n_rows <= _FEW_ROWS else _UNLEARNED
        return by_tree * int(settings.occurrences) + _A_ROW * n_rows * int(settings.n_trees)
    by_tree = _WITH_GRIDS if model.settings_.is_quantised else _REBUILT * int(model.n_samples_)
    return (by_tree + _A_ROW * n_rows) * int(model.n_trees_)


def ranking_content(found: Influence, top: int, n_samples: int) -> dict[str, Any]:
    """Return the samples that help most and harm most as an object: what `POST /influence` answers, but the version."""
    return {
        "helpful": [{"id": name, "score": score} for name, score in found.helpful(top)],
        "harmful": [{"id": name, "score": score} for name, score in found.harmful(top)],
        "method": found.method,
        "note": found.note or None,
        "n_samples": n_samples,
    }


def scores_content(found: Influence, names: Collection[str], n_samples: int) -> dict[str, Any]:
    """Return the scores of some samples as an object, in the order of the model's samples."""
    scores = zip(found.ids, found.scores.tolist(), strict=True)
    return {
        "scores": [{"id": name, "score": score} for name, score in scores if name in names],
        "method": found.method,
        "note": found.note or None,
        "n_samples": n_samples,
    }
