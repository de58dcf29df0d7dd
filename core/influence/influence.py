"""Which training samples made these predictions, and what if they were gone.

    method             kinds                          what a score is
    leaf-influence     online- and incremental-       minus the derivative of the loss by the sample's weight, in the
                       boosting, views                structures of the trees (`reverse.py`, `leaf_influence.py`)
    leaf-refit         the same                       change of the loss when all leaves are refitted without the sample
    leave-one-out      forest, incremental-boosting   change of the loss when the model unlearns the sample

"Finding Influential Training Samples for Gradient Boosted Decision Trees" (Sharchilev, Ustinovsky, Serdyukov, de Rijke
2018), whose influence has the other sign: theirs is the loss with the sample minus that without it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oubli.core.errors import InputError, UnknownIdError
from oubli.core.influence.forward import Change
from oubli.core.influence.leaf_influence import FastLeafInfluence
from oubli.core.influence.leaf_refit import FastLeafRefit
from oubli.core.influence.leave_one_out import losses_without
from oubli.core.influence.losses import row_losses, row_slopes
from oubli.core.influence.readers import view as make_view
from oubli.core.influence.result import Influence
from oubli.core.influence.reverse import weight_adjoints, weight_adjoints_by_row
from oubli.core.influence.update_sets import SinglePoint, TopKLeaves, UpdateSet, read_update_set
from oubli.core.influence.view import View
from oubli.core.model import Model

Reals = npt.NDArray[np.float64]
Progress = Callable[[int, int], None]

METHODS = ("leaf-influence", "leaf-refit", "leave-one-out")
_LEAF_KINDS = "online-boosting, incremental-boosting"
_EVERY = 64  # samples between two calls of `progress`


def influence(
    model: Any,
    X: Any,
    y: Any,
    *,
    method: str = "leaf-influence",
    update_set: Any = "all",
    reduce: str | None = "mean",
    ids: Iterable[Any] | None = None,
    progress: Progress | None = None,
) -> Influence:
    """Score every training sample by how much it helps on some rows.

    Parameters
    ----------
    model
        A fitted model of ours, of any kind but `tree`; or a `view` of one, or of another library's boosted model.
    X, y
        The rows, and their labels.
    method : "leaf-influence", "leaf-refit" or "leave-one-out"
        See above. The first takes O(T n) for all samples, but with an update set of some leaves; the second that for
        each sample; the third an unlearning each.
    update_set : "all", "single" or int k
        Whose changes the leaf methods follow: all samples', none but the sample itself, or those in the k leaves of
        each tree that have changed most.
    reduce : "mean" or None
        Mean over the rows, or a score for each.
    ids
        Training samples to score; all when left out.
    progress : callable(done, total), optional
        Called from time to time.

    Returns
    -------
    Influence
        A positive score: the sample helps, removing it raises the loss. The loss of a classifier is log-loss, with
        probabilities clipped to [1e-15, 1]; of a regressor squared error.

    Raises
    ------
    InputError
        When something does not fit, the method and the kind included; the text says what to use instead.
    UnknownIdError
        When an id is not among the training samples.
    EmptyModelError
        When the model holds no samples.
    """
    if method not in METHODS:
        raise InputError(f"method={method!r} must be one of {', '.join(METHODS)}")
    if reduce not in ("mean", None):
        raise InputError(f"reduce={reduce!r} must be 'mean' or None")
    _check_kind(model, method)
    if method == "leave-one-out":
        if not (isinstance(update_set, str) and update_set == "all"):
            raise InputError("update_set is for leaf-influence and leaf-refit: leave it out")
        return _leave_one_out(model, X, y, reduce, ids, progress)
    chosen = read_update_set(update_set)
    seen = model if isinstance(model, View) else make_view(model)
    leaves = seen.route(X)
    n_rows = leaves.shape[1]
    if n_rows == 0:
        raise InputError("X has no rows: ask about one at least")
    targets = seen.read_labels(y, n_rows)
    samples = _places(seen.ids, ids)
    if method == "leaf-refit":
        scores = _refit_scores(seen, leaves, targets, samples, chosen, reduce, progress)
    else:
        scores = _derivatives(seen, leaves, targets, samples, chosen, reduce, progress)
    return Influence(_picked(seen.ids, samples, ids), scores, method, seen.note)


def _check_kind(model: Any, method: str) -> None:
    """Refuse what does not go together, and say what does."""
    if isinstance(model, View):
        if method == "leave-one-out":
            raise InputError("leave-one-out needs a model that unlearns: a view is for leaf-influence and leaf-refit")
        return
    if not isinstance(model, Model):
        raise InputError(
            f"{type(model).__name__} is not a model of ours: make a view of it and the samples it was fitted on"
        )
    model.check_is_fitted()
    answered = model.influence_methods
    if not answered:
        raise InputError(f"there is no influence for the kind {model.kind}: use forest, or a boosted kind")
    if method == "leave-one-out" and method not in answered:
        raise InputError(f"{method} is for exact kinds, {model.kind} is {model.guarantee}: use method={answered[0]!r}")
    if method not in answered:
        raise InputError(f"{method} is for {_LEAF_KINDS}, not for {model.kind}: use method={answered[0]!r}")


def _places(names: Sequence[str], ids: Iterable[Any] | None) -> npt.NDArray[np.int64]:
    """Places of ids among the training samples; of all when left out."""
    if ids is None:
        return np.arange(len(names))
    from oubli.core.samples.store import normalise_id

    place_of = {name: place for place, name in enumerate(names)}
    wanted = [normalise_id(value) for value in ids]
    unknown = [name for name in wanted if name not in place_of]
    if unknown:
        raise UnknownIdError(unknown)
    return np.array([place_of[name] for name in wanted], np.int64)


def _picked(names: Sequence[str], places: npt.NDArray[np.int64], ids: Iterable[Any] | None) -> Sequence[str]:
    return names if ids is None else [names[place] for place in places.tolist()]


# -- leaf-influence ---------------------------------------------------------------------------------


def _derivatives(
    seen: View,
    leaves: npt.NDArray[Any],
    targets: Reals,
    samples: npt.NDArray[np.int64],
    update_set: UpdateSet,
    reduce: str | None,
    progress: Progress | None,
) -> Reals:
    slopes = row_slopes(seen.loss, seen.scores_in(leaves), targets)
    if reduce == "mean":
        slopes = slopes / len(slopes)
    if isinstance(update_set, TopKLeaves) or (isinstance(update_set, SinglePoint) and reduce is None):
        forms = FastLeafInfluence(seen, update_set)
        return _score_each(
            forms.change, seen, leaves, samples, progress, lambda moved: -(moved * slopes).sum(axis=1), reduce, np.sum
        )
    if reduce == "mean":
        propagates = not isinstance(update_set, SinglePoint)
        return -weight_adjoints(seen, leaves, slopes, propagates=propagates, progress=progress)[samples]
    return -weight_adjoints_by_row(seen, leaves, slopes, progress)[samples]


# -- leaf-refit -------------------------------------------------------------------------------------


def _refit_scores(
    seen: View,
    leaves: npt.NDArray[Any],
    targets: Reals,
    samples: npt.NDArray[np.int64],
    update_set: UpdateSet,
    reduce: str | None,
    progress: Progress | None,
) -> Reals:
    scores = seen.scores_in(leaves)
    losses = row_losses(seen.loss, scores, targets)

    def rises(moved: Reals) -> Reals:
        return row_losses(seen.loss, scores + moved, targets) - losses

    forms = FastLeafRefit(seen, update_set)
    return _score_each(forms.change, seen, leaves, samples, progress, rises, reduce, np.mean)


def _score_each(
    change: Callable[[int], Change],
    seen: View,
    leaves: npt.NDArray[Any],
    samples: npt.NDArray[np.int64],
    progress: Progress | None,
    score: Callable[[Reals], Reals],
    reduce: str | None,
    reduction: Callable[[Reals], Any],
) -> Reals:
    """Score sample by sample by what its change does to the raw scores of the rows."""
    result = np.empty(len(samples) if reduce else (len(samples), leaves.shape[1]))
    for i, sample in enumerate(samples.tolist()):
        found = score(change(sample).of_rows(seen, leaves))
        result[i] = reduction(found) if reduce else found
        if progress is not None and ((i + 1) % _EVERY == 0 or i + 1 == len(samples)):
            progress(i + 1, len(samples))
    return result


# -- leave-one-out ----------------------------------------------------------------------------------


def _leave_one_out(
    model: Model, X: Any, y: Any, reduce: str | None, ids: Iterable[Any] | None, progress: Progress | None
) -> Influence:
    store = model.samples_
    slots = store.slots() if ids is None else store.find(ids)
    with_all, parts = losses_without(model, X, y, slots, progress)
    if len(with_all) == 0:
        raise InputError("X has no rows: ask about one at least")
    scores = np.empty(len(slots) if reduce else (len(slots), len(with_all)))
    done = 0
    for part in parts:
        rises = part - with_all
        scores[done : done + len(part)] = rises.mean(axis=1) if reduce else rises
        done += len(part)
    return Influence(list(store.names(slots)), scores, "leave-one-out")
