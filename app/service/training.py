"""From settings to a trained estimator: what `oubli fit` and the first start of a server have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from oubli.app.errors import StartError
from oubli.app.progress import Progress, silent, within
from oubli.app.service.compiling import compile_kernels
from oubli.app.settings import Settings
from oubli.app.storage.models import ServedModel
from oubli.core.data.schema import Task
from oubli.core.errors import InputError
from oubli.core.registry import KINDS
from oubli.core.samples.store import SampleStore

if TYPE_CHECKING:
    from oubli.app.datasets.loading import Table

TRAINING = "training the model"  # a stage of progress


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
        raise StartError(f"--model {settings.model} {error.rule}; --task says what the labels are") from None


def train(settings: Settings, progress: Progress = silent) -> tuple[Any, Table]:
    """Load the data file and fit a model on it.

    Returns
    -------
    estimator, table
        The fitted estimator, which holds the samples with their ids and subjects, and what was loaded.

    Raises
    ------
    StartError
        When the file or a parameter cannot be used.
    """
    from oubli.app.datasets.loading import (
        load_table,  # pyarrow takes long to import, and a server that recovers reads no data file
    )

    table = load_table(settings, progress)
    estimator = new_estimator(settings, table.schema.task)
    compile_kernels(settings.model, table.schema, progress, estimator.get_params())
    try:
        estimator.fit(table.X, table.y, ids=table.ids, schema=table.schema, progress=within(progress, TRAINING))
    except ValueError as error:
        raise StartError(f"the model cannot be trained: {error}") from None
    if table.subjects is not None:
        samples = estimator.samples_
        names = table.ids or list(map(str, range(len(table))))
        for sample_id, subject in zip(names, table.subjects, strict=True):
            # A sliding window holds the last ones only.
            if subject is not None and samples.contains(sample_id):
                samples.set_subject(sample_id, subject)
    return estimator, table


def another_estimator(kind: str, parameters: Mapping[str, Any], model: ServedModel) -> Any:
    """Make an unfitted estimator for the samples of a model; what is not given stays as it is.

    Raises
    ------
    InputError
        When a parameter is not known, or has a value that it cannot have.
    """
    kept = {**model.get_params(), "random_state": model.seed_} if kind == model.kind else {"random_state": model.seed_}
    unknown = [name for name in parameters if kind == model.kind and name not in kept]
    if unknown:
        raise InputError(f"known parameters are {', '.join(sorted(kept))}", field="parameters")
    estimator = estimator_of(kind, model.task, {**kept, **parameters})
    estimator.start(model.schema_)  # checks the parameters
    # A seed that is drawn is drawn once: the journal has to know it.
    return estimator_of(kind, model.task, {**estimator.get_params(), "random_state": estimator.seed_})


def refit(estimator: Any, samples: SampleStore) -> ServedModel:
    """Fit an estimator on samples, which belong to it from now on."""
    fitted: ServedModel = estimator.fit_held(samples)
    return fitted
