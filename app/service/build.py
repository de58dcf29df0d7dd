"""The composition root: from settings to a service, which only needs to be started.

settings --> data directory opened --> recovered, or trained, or empty --> compose: all parts of the service
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from oubli.app.datasets.understanding import FROM_SAMPLES, Show, show_nobody
from oubli.app.errors import FlushFailedError, JournalError, StartError, StopReason, StorageError
from oubli.app.ledger.database import LEDGER_NAME, LOG_NAME, LedgerDatabase
from oubli.app.ledger.entries import ACCEPTED, BEGIN, EXPORT, STATE, tells_only
from oubli.app.ledger.keys import KEYS_NAME, KeyNames, LedgerKeys
from oubli.app.ledger.ledger import Field, Ledger, LedgerWorker, Tombstones
from oubli.app.outgoing.addresses import AddressRules, parse_endpoint
from oubli.app.outgoing.sender import Sender, read_processor, read_secrets
from oubli.app.progress import Activities, Ask, Progress, no_answer, silent
from oubli.app.service.changes.changes import Changes, IdempotencyKeys
from oubli.app.service.changes.command import Transaction, give_nonces
from oubli.app.service.changes.writer import Writer
from oubli.app.service.compiling import compilation_of_model, load_beside_file, prepare_kernels
from oubli.app.service.erasure.checkpoint import Checkpointer, CheckpointPolicy, Erasing
from oubli.app.service.erasure.erasures import Erasures, Retention
from oubli.app.service.erasure.holders import Fingerprints, Holders
from oubli.app.service.evidence.publisher import LogPublisher, Witness, parse_witness
from oubli.app.service.evidence.receipts import Deadline, EmptyErasures, Receipts, inherited
from oubli.app.service.evidence.sample_set import SampleSet
from oubli.app.service.evidence.states import Evidence, PredictionSigner, StateEntries
from oubli.app.service.jobs.exports import Exporter
from oubli.app.service.jobs.fits import new_estimator, take_cores, train
from oubli.app.service.jobs.jobs import JobBoard
from oubli.app.service.jobs.model_jobs import Jobs, Scorer
from oubli.app.service.lifecycle import Lifecycle, StartOptions, no_compilation
from oubli.app.service.model.influence import Comparer, InfluenceRanker
from oubli.app.service.model.live import Disk, IdleResolver, LiveModel, facts_of
from oubli.app.service.model.questions import Inspector, Questions
from oubli.app.service.model.state import ModelLock, ModelState, new_epoch
from oubli.app.service.outbox.deliveries import Channel, Courier, Deliveries, Push, WebhookChannel
from oubli.app.service.outbox.subject_requests import CallbackChannel, Outbox, Processor, SubjectRequests
from oubli.app.service.recovery.rebuild import Rebuilder
from oubli.app.service.recovery.start import (
    BEGINNING,
    LedgerChoice,
    accepted_keys,
    drop_known,
    dropped_fields,
    dropped_note,
    fold_journal,
    free_id,
    recover,
    require_unserved,
    take_in,
)
from oubli.app.service.recovery.uploads import UploadPolicy, Uploads
from oubli.app.service.roles import Role, segment_keys_of, server_name
from oubli.app.service.service import Service
from oubli.app.settings import SQLITE, Settings
from oubli.app.storage.directory import DataDirectory
from oubli.app.storage.journal import Journal, Record, SqliteJournal, move_journal
from oubli.app.storage.snapshots import Recovered, SnapshotStore, Storage
from oubli.app.threads import Threads
from oubli.app.times import Clock
from oubli.core.concurrency.threads import set_default
from oubli.core.data.values import ColumnType
from oubli.core.jit.compilation import Compilation
from oubli.core.model import Model

WITNESS_TIMEOUT = 5.0  # seconds for one attempt
# Stages of progress.
RECOVERING = "reading the model in the data directory"
WRITING = "writing the first snapshot"
EPHEMERAL_NOTE = (
    "--ephemeral: nothing is kept on disk. A restart reads the data again and brings deleted rows back; what was "
    "learned is gone"
)
Say = Callable[[str], object]
"""Tells a person at the terminal something."""


def _say_nothing(text: str) -> None:
    """Print nothing."""


# --- the data directory


@dataclass(slots=True)
class OpenDirectory:
    """A data directory with all that is in it, or what stands in for it where nothing is kept.

    Attributes
    ----------
    storage
        Snapshots and journal.
    keys
        Of the ledger.
    database
        The ledger's.
    snapshots
        None where nothing is kept.
    new_clock
        Makes the clock of the service from the highest time that was written down.
    notes
        Notes on the recovery for a person.
    """

    storage: Storage
    keys: LedgerKeys
    database: LedgerDatabase
    snapshots: SnapshotStore | None
    new_clock: Callable[[int | None], Clock] = Clock
    notes: list[str] = field(default_factory=list)

    @property
    def holds_model(self) -> bool:
        """Whether there is something to recover."""
        return self.snapshots is not None and self.snapshots.holds_model()

    def prepare(self, choice: LedgerChoice | None = None) -> KeyNames:
        """Have the ledger of a directory without snapshots know all that it can, before a model is made for it.

        A start that was cut short before its first snapshot has left records without changes: this one adds to them.

        Returns
        -------
        KeyNames
            Keys that an admin continues without.

        Raises
        ------
        StartError
            When a model was served from there, or the ledger that is given cannot be used.
        """
        journal, path = self.storage.journal, self.storage.path
        knew_keys = path is not None and bool(self.keys.hashing)
        if path is not None:
            require_unserved(self.database, journal, path)
        lost = take_in(self.database, journal, self.keys, choice or LedgerChoice())
        fold_journal(self.database, journal)
        if knew_keys and not self.database.head().index:
            self.notes.append(
                "the key directory has keys of a ledger that is not here, so that what was erased under them is not "
                "known: give it with --ledger FILE, unless it never had an erasure"
            )
        return lost

    def begin(self, model: Model, lost: KeyNames | None = None) -> "Start":
        """Begin a history with a model, less what the ledger knows is gone, and write its first snapshot.

        Parameters
        ----------
        model
            No other code uses it.
        lost
            What `prepare` has returned; None calls it.

        Raises
        ------
        StorageError, JournalError
            When it cannot be written.
        StartError
            See `prepare`; or it cannot be told what is gone.
        """
        journal, database = self.storage.journal, self.database
        lost = self.prepare() if lost is None else lost
        clock = self.new_clock(database.highest_ms())
        is_begun = database.head().index > sum(map(database.count_of_type, BEGINNING))
        told = database.last_model_version() if is_begun else 0
        state = ModelState(model, told + 1, new_epoch(), seq=journal.last_seq + 1)
        state.pending = inherited(database.pending(), clock)
        state.exports = database.count_of_type(EXPORT)
        ledger = Ledger(database, self.keys, clock.now_ms)
        dropped: dict[str, int] = {}
        if told:
            counts = drop_known(model, -1, database, clock)
            state.next_id = free_id(database, model.samples_.next_id, -1)
            dropped = dropped_fields(counts)
            self.notes += [dropped_note(counts)] if any(counts.values()) else []
        model.resolve()
        give_nonces(model.samples_)
        fields: dict[str, Field] = {
            "model_version": state.version,
            "kind": model.kind,
            "hashing_key_id": self.keys.hashing[0].id,
            **dropped,
            **({} if database.log.origin else database.log.new_fields()),
        }
        notes = [*accepted_keys(ledger, lost), ledger.event(BEGIN, fields)]
        records = [Record(journal.last_seq + i, state.version, b"", one) for i, one in enumerate(notes, 1)]
        journal.append(records)
        state.seq = journal.last_seq
        database.fold_many([(record.seq, record.notes) for record in records])
        if not self.storage.is_ephemeral:
            database.flush()
            # Reading it back takes a second: the service does it, while it predicts.
            self.storage.write(model, facts_of(state, self.storage, ledger), check_later=True)
        return Start(self, state, ledger, clock)

    def recover(self, recovered: Recovered, choice: LedgerChoice | None = None) -> "Start":
        """Continue where the directory ends; see `recovery.recover`."""
        clock = self.new_clock(self.database.highest_ms())
        choice = choice or LedgerChoice()
        state, ledger, n_records, notes = recover(recovered, self.storage, self.database, self.keys, clock, choice)
        clock.witness(self.database.highest_ms() or 0)  # the journal may have held later entries
        self.notes += notes
        snapshot = self.storage.snapshots.newest  # perhaps one that was written just now
        after = list(islice(self.storage.journal.records(snapshot.facts.seq), 2))
        if len(after) == 1 and not after[0].body and tells_only(after[0].notes, (STATE,)):
            self.storage.follow(state.seq)
        if give_nonces(state.model.samples_) or recovered.regrown:
            # The next start is to find the same nonces. It need not grow trees again, nor rely on files whose trees are
            # not sound.
            self.database.flush()
            try:
                self.storage.write(state.model, facts_of(state, self.storage, ledger))
            except StorageError as error:
                if recovered.regrown or isinstance(error, FlushFailedError):
                    raise
                self.notes.append("the samples have nonces that are not on the disk yet: a restart draws others")
        return Start(self, state, ledger, clock, n_records)

    def close(self) -> None:
        """Let the next server have the directory."""
        self.database.close()
        self.storage.close()


@dataclass(frozen=True, slots=True)
class Start:
    """A model that is ready to be served, and where it is kept.

    Attributes
    ----------
    opened
        The data directory.
    state
        The model with its place in its history.
    ledger
        Continues where the ledger's database ends.
    clock
        Tells the time.
    n_records
        How many records of the journal were applied again.
    understood
        What was understood of the data file, if this start has read one; see `oubli.api.model.Understood`.
    """

    opened: OpenDirectory
    state: ModelState
    ledger: Ledger
    clock: Clock
    n_records: int = 0
    understood: dict[str, Any] | None = None


def open_directory(
    path: Path,
    key_dir: Path | None = None,
    *,
    log_name: str = LOG_NAME,
    new_clock: Callable[[int | None], Clock] = Clock,
    now: Callable[[], float] = time.time,
    new_journal: Callable[[], Journal] | None = None,
) -> OpenDirectory:
    """Open a data directory.

    Parameters
    ----------
    path
        Of the directory.
    key_dir
        Where the keys of the ledger are; by default in the directory.
    log_name
        Of a log that begins.
    new_clock, now
        Make the clock of the service, and tell the machine's time in seconds since 1970.
    new_journal
        Opens a journal that is elsewhere; None: it is in files of the directory.

    Raises
    ------
    StartError
        When it cannot be used, or another server uses it.
    """
    with contextlib.ExitStack() as opened:
        directory = DataDirectory(path)
        opened.callback(directory.close)
        snapshots = SnapshotStore(directory)
        keys = LedgerKeys(key_dir or path / KEYS_NAME, complete=False)
        journal = SqliteJournal(path, now=now) if new_journal is None else new_journal()
        opened.callback(journal.close)
        database = LedgerDatabase(path / LEDGER_NAME, keys, log_name=log_name)
        opened.pop_all()
    return OpenDirectory(Storage(directory, snapshots, journal), keys, database, snapshots, new_clock)


def open_nothing(log_name: str = LOG_NAME) -> OpenDirectory:
    """Return what stands in for a data directory where nothing is kept."""
    keys = LedgerKeys(None)
    return OpenDirectory(Storage(None, None, Journal()), keys, LedgerDatabase(None, keys, log_name=log_name), None)


# --- the service


@dataclass(frozen=True, slots=True)
class Limits:
    """What the service refuses to exceed, and what it does by itself.

    Attributes
    ----------
    max_queue
        Most requests that wait; erasures wait all the same.
    readd_grace
        Seconds for which an erased id may not come back unless it is meant.
    retention
        Seconds after which samples expire that say nothing else; None for never.
    max_expiry_share
        Largest share of the samples that may expire at once without being confirmed.
    max_empty_erasures
        Most requests an hour and caller that change nothing and get a receipt, or an entry of the ledger.
    """

    max_queue: int = 1024
    readd_grace: float = 86_400.0
    retention: float | None = None
    max_expiry_share: float = 0.1
    max_empty_erasures: int = 1000


@dataclass(frozen=True, slots=True)
class Means:
    """What a service works with besides its files.

    Attributes
    ----------
    n_threads
        For long work.
    push
        Where states of receipts are sent; None: nowhere.
    processor
        What the settings say of OpenDSR; None: there is none.
    witnesses
        Who cosigns the log.
    """

    n_threads: int = 1
    push: Push | None = None
    processor: Processor | None = None
    witnesses: Sequence[Witness] = ()

    @classmethod
    def of(cls, settings: Settings) -> "Means":
        """Return what the settings ask for; raises `StartError` when a file or a key cannot be used."""
        n_threads = take_cores(settings)
        return cls(n_threads, push_of(settings), processor_of(settings), witnesses_of(settings))


def compose(
    start: Start,
    *,
    limits: Limits | None = None,
    policy: CheckpointPolicy | None = None,
    uploads: UploadPolicy | None = None,
    idle_resolve: bool = True,
    warm_up: Callable[[], object] | None = None,
    complete: Callable[[], object] | None = None,
    compiling: Callable[[], Compilation | None] = no_compilation,
    means: Means | None = None,
    accept_missing: bool = False,
    role: Role | None = None,
) -> Service:
    """Put the parts of a service together.

    Parameters
    ----------
    start
        The model, and where it is kept.
    limits, policy, uploads
        What is refused, when things are done by themselves, and how long an upload may take.
    idle_resolve, warm_up, complete, compiling
        See `StartOptions`.
    means
        What the service works with besides its files.
    accept_missing
        Whether another log is begun when witnesses have seen entries that are missing.
    role
        Knows other nodes; None: there are none.
    """
    role, means = role or Role(), means or Means()
    limits, policy = limits or Limits(), policy or CheckpointPolicy()
    opened, state, ledger, clock = start.opened, start.state, start.ledger, start.clock
    storage, key = opened.storage, opened.keys.positions
    push, processor = means.push, means.processor
    grace_ms = round(limits.readd_grace * 1000)
    lately = opened.database.recently_erased(clock.now_ms() - grace_ms) if grace_ms else []
    erased = [(known, clock.steady_since(at_ms)) for known, at_ms in lately]
    tombstones = Tombstones(grace_ms, ledger.hashes_of, clock.steady_ms, erased)
    threads, lock, holders, jobs = Threads(), ModelLock(limits.max_queue), Holders(state), JobBoard()
    idle = IdleResolver(state, lock, has_core=means.n_threads > 1)
    live = LiveModel(state, lock, threads, idle, holders, clock)
    activities, fingerprints = Activities(), Fingerprints(holders)
    if start.understood is not None:
        fingerprints.keep(holders.period, start.understood, FROM_SAMPLES)
    targets = () if push is None else push.targets
    database = LedgerWorker(opened.database, threads, idle.is_idle, partial(state.halt, StopReason.LEDGER_FAILED))
    retention_ms = None if limits.retention is None else round(limits.retention * 1000)
    deadline = Deadline(state, clock.steady_ms, policy.erasure_deadline)
    empty = EmptyErasures(limits.max_empty_erasures, clock.steady_ms)
    transaction = partial(
        Transaction, state, ledger, tombstones, clock, retention_ms, targets, deadline.ms, empty.admits
    )
    disk = Disk(storage, ledger, database, storage.journal.is_durable)
    writer = Writer(live, disk, transaction)

    sample_set = SampleSet(state, key, threads, holders, idle.is_idle)
    states = StateEntries(live, disk, writer, sample_set, key.secret)
    erasures = Erasures(live, disk, writer, deadline, targets, states.forget, role)
    receiving = Uploads(storage.path, holders, uploads or UploadPolicy())
    rebuilder = Rebuilder(live, disk, writer, erasures, activities, states, fingerprints, receiving)
    checkpointer = Checkpointer(live, disk, writer, erasures, rebuilder.rebuild, states, policy, activities, role)
    retention = Retention(live, disk, writer, limits.max_expiry_share)
    receipts, influence = Receipts(ledger, database, deadline), InfluenceRanker(live, jobs)
    exporter = Exporter(live, jobs, receipts, influence)

    async def begin_log(size: int) -> None:
        fields = await database.read(lambda kept: kept.log.new_fields())
        await threads.finish(writer.note(partial(ledger.event, ACCEPTED, {"snapshot_index": size, **fields})))

    halt_log = partial(state.halt, StopReason.LOG_ROLLED_BACK)
    publisher = LogPublisher(
        database, means.witnesses, halt_log, begin_log if accept_missing else None, state.require_leading
    )
    requests = SubjectRequests(processor, exporter, live, disk, writer, receipts, deadline, jobs)
    couriers: list[Courier] = []
    if push is not None:
        channels: list[Channel] = [] if push.webhook is None else [WebhookChannel(*push.webhook, clock)]
        if processor is not None:
            channels += [CallbackChannel(*one, processor, requests) for one in processor.callbacks.items()]
        carrying = push.sender, database, writer.note, clock, push.give_up_after, idle.is_idle
        couriers = [Courier(one, *carrying, push.pause) for one in channels]
    deliveries = Deliveries(couriers, state, deadline, database, writer.note, threads, clock, push)

    erasing, outbox = Erasing(checkpointer, erasures, retention), Outbox(deliveries, requests)
    evidence = Evidence(live, receipts, states, sample_set, publisher, PredictionSigner(live, sample_set, ledger))
    options = StartOptions(idle_resolve, warm_up, complete, compiling, means.n_threads, grace_ms)
    return Service(
        model=live,
        disk=disk,
        questions=Questions(live, key.secret, Inspector(live, start.understood), influence, Comparer(live, jobs)),
        changes=Changes(state, writer, IdempotencyKeys(ledger, database, clock.steady_ms), receipts, retention),
        erasure=erasing,
        recovery=rebuilder,
        jobs=Jobs(live, jobs, exporter, activities, rebuilder, checkpointer, Scorer(live, fingerprints)),
        evidence=evidence,
        outbox=outbox,
        lifecycle=Lifecycle(live, disk, role, writer, erasing, evidence, outbox, jobs, tombstones, options),
    )


def push_of(settings: Settings) -> Push | None:
    """Return where states of receipts are sent; None: nowhere.

    Raises
    ------
    StartError
        When a file of secrets or keys cannot be used.
    """
    if settings.webhook_url is None and not settings.opendsr_callbacks:
        return None
    rules = AddressRules(settings.push_networks)
    webhook = None
    if settings.webhook_url is not None and settings.webhook_secret_file is not None:
        endpoint = parse_endpoint(settings.webhook_url, plain_http=settings.push_plain_http)
        webhook = endpoint, read_secrets(settings.webhook_secret_file)
    return Push(Sender(rules, settings.push_timeout), webhook, give_up_after=settings.push_give_up_after)


def witnesses_of(settings: Settings) -> list[Witness]:
    """Return who cosigns the log.

    Raises
    ------
    StartError
        When the key of a witness is none.
    """
    # A checkpoint waits for all witnesses.
    sender = Sender(AddressRules(settings.push_networks), min(settings.push_timeout, WITNESS_TIMEOUT))
    found = []
    for text in settings.log_witnesses:
        try:
            key, endpoint = parse_witness(text, plain_http=settings.push_plain_http)
        except ValueError as error:
            raise StartError(f"log_witnesses {error}") from None
        found.append(Witness(key, endpoint, sender))
    return found


def processor_of(settings: Settings) -> Processor | None:
    """Return what the settings say of OpenDSR; None: nothing.

    Raises
    ------
    StartError
        When the certificate or its key cannot be used.
    """
    domain, certificate, key = settings.opendsr_domain, settings.opendsr_cert_file, settings.opendsr_key_file
    if domain is None or certificate is None or key is None:
        return None
    return Processor(
        read_processor(domain, certificate, key),
        settings.opendsr_controller,
        settings.opendsr_identities,
        {url: parse_endpoint(url, plain_http=settings.push_plain_http) for url in settings.opendsr_callbacks},
    )


def build_service(
    settings: Settings,
    progress: Progress = silent,
    *,
    tell: Say = _say_nothing,
    warn: Say = _say_nothing,
    show: Show = show_nobody,
    ask: Ask = no_answer,
) -> Service:
    """Return a service that only needs to be started.

    A data directory that holds a model is recovered, and the data file is not read again. Otherwise the model is
    trained on the data file, or started empty from the schema file, and a first snapshot is written.

    Parameters
    ----------
    settings
        What to serve, and how.
    progress
        Called at the stages of the start.
    tell, warn
        Print what was found, and what should be noticed.
    show, ask
        Shown what was understood of the data file; see `load_table`.

    Raises
    ------
    StartError, SettingsError
        When that is not possible, with the remedy.
    """
    settings.require_servable()
    means = Means.of(settings)
    if settings.ephemeral:
        warn(EPHEMERAL_NOTE)
        opened = open_nothing(settings.log_name)
    else:
        opened = directory_of(settings)
    choice = LedgerChoice(settings.ledger, settings.accept_missing_erasures, settings.accept_missing_keys)
    try:
        if opened.snapshots is not None and opened.holds_model:
            progress(RECOVERING, 0, 0)
            newest = opened.snapshots.newest_file()
            if newest is not None:
                load_beside_file(newest)
            recovered = opened.snapshots.recover()
            start = opened.recover(recovered, choice)
            for note in (*recovered.notes, *opened.notes):
                warn(note)
            _tell_recovered(settings, recovered, start, tell, warn)
        else:
            start = begin_directory(settings, opened, choice, progress, warn, show, ask)
        return compose_from(settings, start, means)
    except JournalError:
        opened.close()
        set_default(1)
        raise StartError(
            "the journal could not be read or written while the server started: see to what keeps it, and start again"
        ) from None
    except BaseException:
        opened.close()
        set_default(1)
        raise


def compose_from(settings: Settings, start: Start, means: Means, role: Role | None = None) -> Service:
    """Put a service together as the settings ask for it; see `compose`."""
    model = start.state.model
    return compose(
        start,
        limits=_set_by(settings, Limits),
        policy=_set_by(settings, CheckpointPolicy),
        uploads=UploadPolicy(settings.upload_pause, settings.upload_deadline),
        idle_resolve=settings.idle_resolve,
        warm_up=partial(_warm_up, model),
        complete=partial(prepare_kernels, model.kind, model.schema_, model.get_params()),
        compiling=partial(compilation_of_model, model),
        means=means,
        accept_missing=settings.accept_missing_erasures,
        role=role or Role(settings.node_name),
    )


def directory_of(settings: Settings) -> OpenDirectory:
    """Open the data directory, and the journal where the settings say it is; see `open_directory`."""
    return open_directory(
        settings.data_dir, settings.key_dir, log_name=settings.log_name, new_journal=_journal_of(settings)
    )


def _journal_of(settings: Settings) -> Callable[[], Journal] | None:
    """Return what opens the journal once the data directory is locked; None for the one in its files."""
    if settings.journal == SQLITE:
        return None

    def opened() -> Journal:
        # Only who asks for it needs psycopg.
        from oubli.app.storage.postgres.journal import SoleJournal

        journal = SoleJournal(
            settings.journal,
            segment_keys_of(settings),
            name=server_name(settings.data_dir),
            directory=settings.data_dir,
        )
        try:
            move_journal(settings.data_dir, journal)
        except BaseException:
            journal.close()
            raise
        return journal

    return opened


T = TypeVar("T", Limits, CheckpointPolicy)


def _set_by(settings: Settings, part: type[T]) -> T:
    """Make a dataclass whose fields have the names of settings."""
    return part(**{name: getattr(settings, name) for name in part.__dataclass_fields__})


def _warm_up(model: Model) -> None:
    """Compile what predictions will need, and encode rows as JSON has them once."""
    prepare_kernels(model.kind, model.schema_, model.get_params(), part="predictions")
    for cell in (1, 0.5, None):
        row = [cell if column.type is ColumnType.NUMERIC else None for column in model.schema_.columns]
        for n_rows in (1, 2, 64):
            model.samples_.encode_queries([row] * n_rows)


def _tell_recovered(settings: Settings, recovered: Recovered, start: Start, tell: Say, warn: Say) -> None:
    """Say what was found."""
    model = start.state.model
    tell(
        f"Recovered the model in {settings.data_dir}: {model.n_samples_:,} samples, version {start.state.version}, "
        f"from the snapshot of {recovered.snapshot.created_at:%Y-%m-%d %H:%M} UTC and {start.n_records:,} records of "
        "the journal." + (f" {settings.data} is not read again." if settings.data is not None else "")
    )
    kept = {"model": model.kind, **model.parameters_of_model()}
    given = settings.model_parameters()
    if "model" in settings.model_fields_set:
        given["model"] = settings.model
    other = [name for name, value in given.items() if kept.get(name) != value]
    if other:
        warn(f"the recovered model keeps its own {', '.join(other)}; another --data-dir trains with what is given now")


def _new_model(
    settings: Settings, progress: Progress, warn: Say, show: Show, ask: Ask
) -> tuple[Model, dict[str, Any] | None]:
    """Train on the data file or start empty."""
    model: Model
    if settings.data is not None:
        model, table = train(settings, progress, serves=True, ask=ask)
        show(table.about)
        for note in table.notes:
            warn(note)
        return model, table.about.content()
    if settings.schema_file is not None:
        from oubli.app.datasets.loading import load_schema

        schema, _ = load_schema(settings.schema_file)
        if settings.classes == "closed" and schema.classes is None:
            raise StartError(
                "--classes closed needs to know the classes, and there are no samples yet: list them in the schema "
                'file, as "classes" of the label, or give --data'
            )
        schema = schema.with_classes(settings.classes, None, ())
        model = new_estimator(settings, schema.task).start(schema)
        return model, None
    where = "" if settings.ephemeral else f", and {settings.data_dir} holds no snapshot of a model"
    raise StartError(
        f"there is nothing to serve: give --data FILE.csv --target COLUMN to train on, or --schema FILE to start "
        f"empty{where}"
    )


def begin_directory(
    settings: Settings,
    opened: OpenDirectory,
    choice: LedgerChoice,
    progress: Progress,
    warn: Say,
    show: Show = show_nobody,
    ask: Ask = no_answer,
) -> Start:
    """Make the model of an empty data directory, and write its first snapshot."""
    lost = opened.prepare(choice)
    model, understood = _new_model(settings, progress, warn, show, ask)
    if not settings.ephemeral:
        progress(WRITING, 0, 0)
    try:
        start = opened.begin(model, lost)
    except (StorageError, JournalError):
        raise StartError(
            f"the first snapshot cannot be written to {settings.data_dir}: make room there, or give --data-dir "
            "another directory, or --ephemeral to keep nothing"
        ) from None
    for note in opened.notes:
        warn(note)
    return replace(start, understood=understood)
