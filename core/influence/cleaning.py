"""The cleaning of a training set: unlearn the samples that harm most on a validation set, as long as its loss falls.

    rank      by average influence on the validation rows, the most harmful first
    propose   those whose score is negative, in batches
    unlearn   batch by batch; the first one that does not lower the validation loss is learned again, and ends it

The model is changed in place; a dry run stops before that.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oubli.core.data.values import Task
from oubli.core.errors import InputError
from oubli.core.influence.losses import class_losses
from oubli.core.influence.methods import influence
from oubli.core.influence.readers.rows import held_labels
from oubli.core.model import Model
from oubli.core.parameters import check_number
from oubli.core.samples.records import HeldSample


@dataclass(frozen=True)
class Step:
    """One batch.

    Attributes
    ----------
    ids : what was unlearned.
    loss : mean validation loss afterwards.
    kept : whether it stayed so; otherwise the batch has been learned again.
    """

    ids: list[str]
    loss: float
    kept: bool


@dataclass(frozen=True)
class Cleaning:
    """What was done.

    Attributes
    ----------
    proposed : samples with a negative average influence, the most harmful first, as many as were allowed.
    loss_before, loss_after : mean validation loss.
    steps : list of Step
    method, note : what ranked the samples, and what there is to know about that.

    Examples
    --------
    >>> tried = [Step(ids=["20"], loss=0.4, kept=True)]
    >>> Cleaning(proposed=[("20", -0.1)], loss_before=0.5, loss_after=0.4, steps=tried).removed
    ['20']
    """

    proposed: list[tuple[str, float]]
    loss_before: float
    loss_after: float
    steps: list[Step] = field(default_factory=list)
    method: str = ""
    note: str = ""

    @property
    def removed(self) -> list[str]:
        """The ids of the samples that have been unlearned for good."""
        return [sample for step in self.steps if step.kept for sample in step.ids]


def clean(
    model: "Model",
    X_validation: Any,
    y_validation: Any,
    *,
    method: str | None = None,
    update_set: Any = "all",
    batch_size: int = 50,
    max_removed: float | int = 0.1,
    reranks: bool = False,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Cleaning:
    """Unlearn harmful samples in batches while the loss on a validation set falls.

    Parameters
    ----------
    model
        A fitted model of ours, of any kind but `tree`; changed in place.
    X_validation, y_validation
        Rows that the model has not been trained on.
    method : str, optional
        As in `influence`.
    update_set
        As in `influence`.
    batch_size
        Samples a batch.
    max_removed : int, or float in (0, 1)
        At most so many samples, or such a share of them.
    reranks
        Whether influence is computed again after every batch; otherwise the first ranking holds.
    dry_run
        Only propose.
    progress : callable(done, total), optional
        Called while samples are ranked, and after every batch with the samples that have been tried.

    Raises
    ------
    InputError
        When something does not fit; nothing has changed.

    Examples
    --------
    >>> from oubli import DynamicForestClassifier
    >>> X = [[float(i)] for i in range(100)]
    >>> y = ["high" if row[0] > 50 else "low" for row in X]
    >>> y[20] = "high"  # a mistake
    >>> model = DynamicForestClassifier(random_state=0).fit(X, y)
    >>> found = clean(model, [[19.5], [20.0], [70.0]], ["low", "low", "high"], batch_size=1)
    >>> "20" in found.removed, model.n_samples_ == 100 - len(found.removed)
    (True, True)
    """
    check_number("batch_size", batch_size, low=1)
    limit = _limit(max_removed, model)

    def rank(top: int) -> Any:
        found = influence(model, X_validation, y_validation, method=method, update_set=update_set, progress=progress)
        return found.harmful(top), found

    proposed, first = rank(limit)
    loss = before = _validation_loss(model, X_validation, y_validation)
    steps: list[Step] = []
    waiting = [name for name, _ in proposed]
    done = 0
    while waiting and not dry_run and done < limit:
        batch, waiting = waiting[:batch_size], waiting[batch_size:]
        held, origins = list(map(model.samples_.get, batch)), list(map(model.samples_.origin, batch))
        model.delete(batch)
        new_loss = _validation_loss(model, X_validation, y_validation)
        kept = new_loss < loss
        steps.append(Step(batch, new_loss, kept))
        if not kept:
            _learn_again(model, held, origins)
            break
        loss = new_loss
        done += len(batch)
        if progress is not None:
            progress(done, len(proposed))
        if reranks and done < limit:
            waiting = [name for name, _ in rank(min(batch_size, limit - done))[0]]
    return Cleaning(proposed, before, loss, steps, first.method, first.note)


def _limit(max_removed: float | int, model: "Model") -> int:
    n = model.n_samples_
    if isinstance(max_removed, float):
        check_number("max_removed", max_removed, low=0, high=1, integral=False, is_open=True)
        return min(max(1, int(max_removed * n)), n - 1)
    check_number("max_removed", max_removed, low=1)
    return min(int(max_removed), n - 1)


def _learn_again(model: Model, samples: list[HeldSample], origins: list[int]) -> None:
    """Learn samples as they were, with all that was kept about them."""
    store = model.samples_
    ids, weights = [one.id for one in samples], [one.weight for one in samples]
    model.add([one.features for one in samples], [one.label for one in samples], ids=ids, sample_weight=weights)
    for sample, origin in zip(samples, origins, strict=True):
        store.set_subject(sample.id, sample.subject)
        store.set_expiry(sample.id, sample.expires_ms)
        store.set_origins([sample.id], origin)


def _validation_loss(model: Any, X: Any, y: Any) -> float:
    """Mean loss of rows."""
    answers = model.query(X)
    n = len(answers.labels)
    if n == 0:
        raise InputError("the validation set has no rows")
    is_regression = model.task is Task.REGRESSION
    targets = held_labels(model.schema_, None if is_regression else model.samples_.classes, unknown=-1)(y, n)
    if is_regression:
        return float(np.mean((np.asarray(answers.labels, np.float64) - targets) ** 2))
    return float(class_losses(answers.probabilities, targets.astype(np.int64)).mean())
