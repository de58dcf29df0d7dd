"""Estimators by kind and parameters, and fits on samples that are held already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from oubli.core.errors import InputError
from oubli.core.parameters import N_JOBS
from oubli.core.registry import KINDS

if TYPE_CHECKING:
    from oubli.core.data.schema import Task
    from oubli.core.model import Model
    from oubli.core.samples.store import SampleStore


def estimator_of(kind: str, task: Task, parameters: Mapping[str, Any]) -> Any:
    """Make an unfitted estimator.

    Raises
    ------
    InputError
        When there is none of this kind for the task.
    """
    if (kind, task) not in KINDS:
        tasks = " and ".join(known.value for other, known in KINDS if other == kind)
        raise InputError(f"is for {tasks}, and this is {task.value}: choose another kind", field="kind")
    return KINDS[kind, task](**parameters)


def another_estimator(kind: str, parameters: Mapping[str, Any], model: Model) -> Any:
    """Make an unfitted estimator for the samples of a model; what is not given stays as it is.

    Raises
    ------
    InputError
        When a parameter is not known, or has a value that it cannot have.
    """
    same = model.parameters_of_model() if kind == model.kind else {}
    kept = {**same, "random_state": model.seed_}
    unknown = [name for name in parameters if name == N_JOBS or (kind == model.kind and name not in kept)]
    if unknown:
        raise InputError(f"known parameters are {', '.join(sorted(kept))}", field="parameters")
    estimator = estimator_of(kind, model.task, {**kept, **parameters})
    estimator.start(model.schema_)  # checks the parameters
    # A seed that is drawn is drawn once: the journal has to know it.
    return estimator_of(kind, model.task, {**estimator.parameters_of_model(), "random_state": estimator.seed_})


def refit(estimator: Any, samples: SampleStore, progress: Callable[[int, int], None] | None = None) -> Model:
    """Fit an estimator on samples, which belong to it from now on; `progress` is told of each tree."""
    fitted: Model = estimator.fit_held(samples, progress)
    return fitted
