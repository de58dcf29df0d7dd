"""From settings to a trained estimator: what `oubli fit` and the first start of a server have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from oubli.app.errors import StartError
from oubli.app.progress import Progress, silent, within
from oubli.app.service.compiling import load_beside, prepare_kernels
from oubli.app.service.fitting import estimator_of
from oubli.app.settings import Settings
from oubli.core.data.schema import Task
from oubli.core.errors import InputError
from oubli.core.threads import set_default, threads_of

if TYPE_CHECKING:
    from oubli.app.datasets.loading import Table

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
        raise StartError(f"--model {settings.model} {error.rule}; --task says what the labels are") from None


def train(settings: Settings, progress: Progress = silent, *, serves: bool = False) -> tuple[Any, Table]:
    """Load the data file and fit a model on it.

    Parameters
    ----------
    settings
        The data file, the kind of model and its parameters.
    progress
        Told of each stage.
    serves
        Whether the model is going to be served: then other kernels than those of training are loaded meanwhile.

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
    loading = load_beside(settings.model, task, np.float32, settings.model_parameters(), only_fit=True)
    # pyarrow takes long to import, and a server that recovers reads no data file.
    from oubli.app.datasets.loading import load_table

    table = load_table(settings, progress)
    loading.join()
    schema, estimator = table.schema, new_estimator(settings, table.schema.task)
    prepare_kernels(settings.model, schema, estimator.get_params(), progress, answers=False, only_fit=True)
    if serves:
        load_beside(settings.model, schema.task, schema.cell_dtype, estimator.get_params())
    try:
        estimator.fit(table.X, table.y, ids=table.ids, schema=table.schema, progress=within(progress, TRAINING))
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
