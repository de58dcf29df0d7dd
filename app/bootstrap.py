"""From settings to a service: recover what the data directory holds, or train, or start empty."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from app.console import tell, warn
from app.errors import StartError, StorageError
from app.loading import load_schema
from app.model import ServedModel
from app.progress import Progress, silent
from app.service import Limits, ModelService, new_epoch
from app.settings import Settings
from app.store.directory import DataDirectory
from app.store.keeper import Keeper
from app.store.reservations import Marks
from app.store.snapshots import Recovered
from app.training import new_estimator, train
from core.schema import ColumnType
from core.warmup import warm_up

EPHEMERAL_NOTE = (
    "--ephemeral: nothing is kept on disk. A restart reads the data again and brings deleted rows back; what was "
    "learned is gone"
)


@dataclass(frozen=True, slots=True)
class _Origin:
    """A model with the place it has in its history."""

    model: ServedModel
    model_version: int
    epoch: int


def build_service(settings: Settings, progress: Progress = silent) -> ModelService:
    """Return a service that only needs to be started.

    A data directory that holds a model is recovered, and the data file is not read again. Otherwise the model is
    trained on the data file, or started empty from the schema file, and a first snapshot is written.

    Raises
    ------
    StartError, SettingsError
        When that is not possible, with the remedy.
    """
    settings.require_servable()
    directory = None if settings.ephemeral else DataDirectory(settings.data_dir)
    try:
        keeper = Keeper(directory)
        if keeper.snapshots is not None and keeper.snapshots.holds_model():
            progress(f"reading the model in {settings.data_dir}", 0, 0)
            origin = _recover(settings, keeper, keeper.snapshots.recover())
        else:
            origin = _begin(settings, keeper, progress)
        if settings.ephemeral:
            warn(EPHEMERAL_NOTE)
        return ModelService(
            origin.model,
            keeper,
            model_version=origin.model_version,
            epoch=origin.epoch,
            limits=Limits(settings.max_queue, settings.page_size_max),
            idle_resolve=settings.idle_resolve,
            warm_up=partial(_warm_up, origin.model),
        )
    except BaseException:
        if directory is not None:
            directory.close()
        raise


def _warm_up(model: ServedModel) -> None:
    """Compile what requests will need: the kernels of the trees, and those that encode rows as JSON has them."""
    warm_up(model.task, model.schema_.cell_dtype)
    for cell in (1, 0.5, None):
        row = [cell if column.type is ColumnType.NUMERIC else None for column in model.schema_.columns]
        for n_rows in (1, 2, 64):
            model.samples_.encode_queries([row] * n_rows)


def _recover(settings: Settings, keeper: Keeper, recovered: Recovered) -> _Origin:
    """Go on with a snapshot; after a crash the version goes on above all that may have been answered."""
    snapshot, model = recovered.snapshot, recovered.model
    for note in recovered.notes:
        warn(note)
    marks = keeper.reservations.marks
    crashed = marks.model_version > snapshot.model_version
    model_version = marks.model_version + 1 if crashed else snapshot.model_version
    keeper.adopt(snapshot)
    tell(
        f"Recovered the model in {settings.data_dir}: {model.n_samples_:,} samples, version {model_version}, written "
        f"{snapshot.created_at:%Y-%m-%d %H:%M} UTC."
        + (f" {settings.data} is not read again." if settings.data is not None else "")
    )
    other = [name for name, value in settings.model_parameters().items() if model.get_params().get(name) != value]
    if other:
        warn(f"the recovered model keeps its own {', '.join(other)}; another --data-dir trains with what is given now")
    if crashed and not recovered.notes:
        warn("the server did not stop in order: changes after that snapshot, if there were any, are lost")
    return _Origin(model, model_version, new_epoch() if snapshot.epoch is None else snapshot.epoch)


def _begin(settings: Settings, keeper: Keeper, progress: Progress) -> _Origin:
    """Train on the data file or start empty, and write the first snapshot."""
    model: ServedModel
    if settings.data is not None:
        model, table = train(settings, progress)
        for note in table.notes:
            warn(note)
    elif settings.schema_file is not None:
        schema = load_schema(settings.schema_file)
        model = new_estimator(settings, schema.task).start(schema)
    else:
        where = "" if settings.ephemeral else f", and {settings.data_dir} holds no model yet"
        raise StartError(
            f"there is nothing to serve: give --data FILE.csv --target COLUMN to train on, or --schema FILE to start "
            f"empty{where}"
        )
    marks = keeper.reservations.marks
    model_version = marks.model_version + 1
    epoch = new_epoch()
    if not keeper.is_ephemeral:
        progress("writing the first snapshot", 0, 0)
        model.resolve()
        try:
            keeper.reserve(Marks(model.samples_.next_id, model_version))
            keeper.write(model, model_version, epoch)
        except StorageError:
            raise StartError(
                f"the first snapshot cannot be written to {settings.data_dir}: make room there, or give --data-dir "
                "another directory, or --ephemeral to keep nothing"
            ) from None
    return _Origin(model, model_version, epoch)
