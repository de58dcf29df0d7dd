"""Estimators by kind and parameters, and fits on samples that are held already.

From settings to a trained estimator: what `oubli fit` and the first start of a server have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oubli.app.datasets.loading import Table
from oubli.app.errors import StartError
from oubli.app.progress import Ask, Progress, no_answer, silent, within
from oubli.app.service.compiling import load_beside, prepare_kernels
from oubli.app.settings import Settings
from oubli.core.concurrency.threads import set_default, threads_of
from oubli.core.data.schema import Task
from oubli.core.errors import InputError
from oubli.core.estimators import KINDS
from oubli.core.model import Model
from oubli.core.parameters import N_JOBS
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
    """Fit an estimator on samples, which it owns afterwards; `progress` is called after each tree."""
    fitted: Model = estimator.fit_held(samples, progress)
    return fitted


@dataclass(frozen=True, slots=True)
class FitBody:
    """A fit of another kind or with other parameters on the samples held.

    Attributes
    ----------
    kind, parameters
        Of the new model.
    classes, max_classes
        See `Model.set_classes`; None: as before.
    """

    do: str = field(default="fit", init=False)
    kind: str
    parameters: Mapping[str, Any]
    classes: str | Sequence[Any] | None = None
    max_classes: int | None = None

    def redo(self, model: Model, exports: int) -> Model:
        """Fit another model on the samples of a model from a snapshot, and return it."""
        del exports
        fitted = refit(another_estimator(self.kind, self.parameters, model), model.samples_)
        fitted.set_classes(self.classes, self.max_classes)
        return fitted


TRAINING = "training the model"  # a stage of progress


def take_cores(settings: Settings) -> int:
    """Have the models of this process use as many threads for long work as the settings say; return how many."""
    n_threads = threads_of(-1 if settings.threads is None else settings.threads)
    set_default(n_threads)
    return n_threads


def new_estimator(settings: Settings, task: Task) -> Any:
    """Make the unfitted estimator that the settings ask for.

    Raises
    ------
    StartError
        When there is none of this kind for the task, or a parameter is not one of this kind.
    """
    try:
        return estimator_of(settings.model, task, settings.model_parameters())
    except InputError as error:
        raise StartError(f"--model {settings.model} {error.rule}: --task says what the labels are") from None


def train(
    settings: Settings, progress: Progress = silent, *, serves: bool = False, ask: Ask = no_answer
) -> tuple[Any, Table]:
    """Load the data file and fit a model on it.

    Parameters
    ----------
    settings
        The data file, the kind of model and its parameters.
    progress
        Called at each stage.
    serves
        Whether the model is going to be served: then the kernels of predictions are loaded during the training.
    ask
        See `load_table`.

    Returns
    -------
    estimator, table
        The fitted estimator, which holds the samples with their ids, subjects and expiries, and what was loaded.

    Raises
    ------
    StartError
        When the file or a parameter cannot be used.
    """
    take_cores(settings)
    # What is learned from most files; if it is not from this one, other kernels are loaded when that is known.
    task = Task(settings.task or Task.CLASSIFICATION)
    loading = load_beside(settings.model, task, np.float32, settings.model_parameters(), part="fit")
    # pyarrow takes long to import, and a server that recovers reads no data file.
    from oubli.app.datasets.loading import load_table

    table = load_table(settings, progress, ask=ask)
    loading.join()
    schema, estimator = table.schema, new_estimator(settings, table.schema.task)
    prepare_kernels(settings.model, schema, estimator.get_params(), progress, answers=False, part="fit")
    if serves:  # changes wait until the rest is loaded, so that the first prediction need not
        load_beside(settings.model, schema.task, schema.cell_dtype, estimator.get_params(), part="predictions")
    try:
        estimator.fit(
            table.X,
            table.y,
            ids=table.ids,
            sample_weight=table.weights,
            schema=table.schema,
            classes=settings.classes,
            progress=within(progress, TRAINING),
        )
    except ValueError as error:
        raise StartError(f"the model cannot be trained: {error}") from None
    samples, names = estimator.samples_, table.ids or list(map(str, range(len(table))))
    # A sliding window holds the last ones only.
    for sample_id, subject in zip(names, table.subjects or (), strict=False):
        if subject is not None and samples.contains(sample_id):
            samples.set_subject(sample_id, subject)
    for sample_id, expires_ms in zip(names, table.expires or (), strict=False):
        if expires_ms is not None and samples.contains(sample_id):
            samples.set_expiry(sample_id, expires_ms)
    return estimator, table
