"""From settings to a service: recover what the data directory holds, or train, or start empty."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from oubli.app.cli.console import tell, warn
from oubli.app.errors import StartError, StorageError
from oubli.app.progress import Progress, silent
from oubli.app.service.checkpoint import UpkeepPolicy
from oubli.app.service.compiling import prepare_kernels
from oubli.app.service.model_service import Limits, ModelService, Records
from oubli.app.service.opening import Opened, open_directory, open_nothing
from oubli.app.service.recovery import LedgerChoice
from oubli.app.service.state import Live
from oubli.app.service.training import new_estimator, train
from oubli.app.service.uploads import UploadPolicy
from oubli.app.settings import Settings
from oubli.app.storage.journal import JournalError
from oubli.app.storage.keeper import Keeper
from oubli.app.storage.models import ServedModel
from oubli.app.storage.snapshots import Recovered
from oubli.core.data.schema import ColumnType

RECOVERING = "reading the model in the data directory"  # a stage of progress
EPHEMERAL_NOTE = (
    "--ephemeral: nothing is kept on disk. A restart reads the data again and brings deleted rows back; what was "
    "learned is gone"
)


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
    if settings.ephemeral:
        warn(EPHEMERAL_NOTE)
    opened = open_nothing() if settings.ephemeral else open_directory(settings.data_dir, settings.key_dir)
    choice = LedgerChoice(settings.ledger, settings.accept_missing_erasures, settings.accept_missing_keys)
    try:
        if opened.snapshots is not None and opened.holds_model:
            progress(RECOVERING, 0, 0)
            recovered = opened.snapshots.recover()
            live, records, n_records = opened.recover(recovered, choice)
            _tell_recovered(settings, [*recovered.notes, *opened.notes], recovered, live, n_records)
        else:
            live, records = _begin(settings, opened, choice, progress)
        return _service(settings, live, opened.keeper, records)
    except BaseException:
        opened.close()
        raise


def _service(settings: Settings, live: Live, keeper: Keeper, records: Records) -> ModelService:
    return ModelService(
        live,
        keeper,
        records,
        limits=Limits(
            settings.max_queue,
            settings.page_size_max,
            settings.readd_grace,
            settings.retention,
            settings.max_expiry_share,
        ),
        policy=UpkeepPolicy(
            settings.erasure_deadline,
            settings.snapshot_mutations,
            settings.snapshot_bytes,
            settings.snapshot_age,
            settings.scrub_mutations,
            settings.scrub_age,
        ),
        uploads=UploadPolicy(settings.upload_pause, settings.upload_deadline),
        idle_resolve=settings.idle_resolve,
        warm_up=partial(_warm_up, live.model),
    )


def _warm_up(model: ServedModel) -> None:
    """Compile what requests will need, and encode rows as JSON has them once."""
    prepare_kernels(model.kind, model.schema_, model.get_params())
    for cell in (1, 0.5, None):
        row = [cell if column.type is ColumnType.NUMERIC else None for column in model.schema_.columns]
        for n_rows in (1, 2, 64):
            model.samples_.encode_queries([row] * n_rows)


def _tell_recovered(settings: Settings, notes: Sequence[str], recovered: Recovered, live: Live, n_records: int) -> None:
    """Say what was found."""
    for note in notes:
        warn(note)
    model = live.model
    tell(
        f"Recovered the model in {settings.data_dir}: {model.n_samples_:,} samples, version {live.version}, from the "
        f"snapshot of {recovered.snapshot.created_at:%Y-%m-%d %H:%M} UTC and {n_records:,} records of the journal."
        + (f" {settings.data} is not read again." if settings.data is not None else "")
    )
    kept = {"model": model.kind, **model.get_params()}
    given = settings.model_parameters()
    if "model" in settings.model_fields_set:
        given["model"] = settings.model
    other = [name for name, value in given.items() if kept.get(name) != value]
    if other:
        warn(f"the recovered model keeps its own {', '.join(other)}; another --data-dir trains with what is given now")


def _new_model(settings: Settings, progress: Progress) -> ServedModel:
    """Train on the data file or start empty."""
    model: ServedModel
    if settings.data is not None:
        model, table = train(settings, progress)
        for note in table.notes:
            warn(note)
        return model
    if settings.schema_file is not None:
        from oubli.app.datasets.loading import load_schema

        schema = load_schema(settings.schema_file)
        model = new_estimator(settings, schema.task).start(schema)
        return model
    where = "" if settings.ephemeral else f", and {settings.data_dir} holds no model yet"
    raise StartError(
        f"there is nothing to serve: give --data FILE.csv --target COLUMN to train on, or --schema FILE to start "
        f"empty{where}"
    )


def _begin(settings: Settings, opened: Opened, choice: LedgerChoice, progress: Progress) -> tuple[Live, Records]:
    """Make the model of an empty data directory, and write its first snapshot."""
    model = _new_model(settings, progress)
    if not settings.ephemeral:
        progress("writing the first snapshot", 0, 0)
    try:
        return opened.begin(model, choice)
    except (StorageError, JournalError):
        raise StartError(
            f"the first snapshot cannot be written to {settings.data_dir}: make room there, or give --data-dir "
            "another directory, or --ephemeral to keep nothing"
        ) from None
