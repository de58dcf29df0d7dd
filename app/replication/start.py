"""The start of a node: it follows from its files, joins from the node that leads, or begins a cluster that is new.

files here that fit              follow, and lead when the lease is over
none, or not to be gone on from  join from the node that leads; without one, wait
none, and no other node has any  take the lease, train, lead
"""

from __future__ import annotations

import contextlib
import logging
import socket
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from oubli.app.errors import JournalDamagedError, JournalError, JournalUnreachableError, StartError, StorageError
from oubli.app.ledger.database import LEDGER_NAME, LedgerDatabase, LedgerGapError
from oubli.app.ledger.keys import KEYS_NAME, LedgerKeys
from oubli.app.ledger.ledger import Ledger
from oubli.app.progress import Progress as ProgressBar
from oubli.app.progress import silent
from oubli.app.replication.door import KeyDoor
from oubli.app.replication.files import is_marked, mark
from oubli.app.replication.follower import RejoinError
from oubli.app.replication.join import join
from oubli.app.replication.lease import Lease, Progress
from oubli.app.replication.nodes import Node, View
from oubli.app.replication.peers import PeerError, Peers, Secret
from oubli.app.replication.replica import Replica
from oubli.app.service.build import (
    RECOVERING,
    Means,
    OpenDirectory,
    Start,
    begin_directory,
    compose_from,
)
from oubli.app.service.journals import segment_keys_of
from oubli.app.service.recovery import LedgerChoice, state_of
from oubli.app.service.state import inherited
from oubli.app.storage.directory import DataDirectory
from oubli.app.storage.postgres.cluster import Cluster
from oubli.app.storage.postgres.journal import PostgresJournal
from oubli.app.storage.postgres.mark import set_back
from oubli.app.storage.segment import segments_in
from oubli.app.storage.snapshots import SnapshotStore
from oubli.app.storage.storage import Storage
from oubli.app.times import Clock

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TypeVar

    from oubli.app.service.model_service import ModelService
    from oubli.app.settings import Settings
    from oubli.app.storage.segment_keys import SegmentKeys

    T = TypeVar("T")

log = logging.getLogger("oubli.cluster")

_RETRY = 0.3  # seconds
_SEEN = 5.0  # seconds in which another node of the same name would have reported
LEAST_SECRET = 32  # characters

Say = Callable[[str], object]


def _say_nothing(text: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a node consists of before it has a model."""

    directory: DataDirectory
    key_dir: Path
    segment_keys: SegmentKeys
    lease: Lease
    journal: PostgresJournal
    peers: Peers
    secret: Secret


def build_node(
    settings: Settings, progress: ProgressBar = silent, *, tell: Say = _say_nothing, warn: Say = _say_nothing
) -> ModelService:
    """Return the service of a node, which only needs to be started; see `build.build_service`.

    Raises
    ------
    StartError, SettingsError
        When that is not possible, with the remedy.
    """
    settings.require_servable()
    with contextlib.ExitStack() as opened:
        means = Means.of(settings)
        parts = _opened(settings, opened, warn)
        start, erased_seq = _start(settings, parts, progress, tell, warn)
        opened.callback(start.opened.close)
        door = KeyDoor(parts.secret, parts.key_dir, parts.segment_keys)
        role = Replica(
            parts.lease, parts.journal, parts.segment_keys, door, parts.directory.path, erased_seq=erased_seq
        )
        service = compose_from(settings, start, means, role)
        opened.pop_all()
    return service


def read_secret(path: Path) -> Secret:
    """Read the secret of a cluster.

    Raises
    ------
    StartError
        When the file cannot be read, others may read it, or it is too short.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_bytes().strip()
    except OSError as error:
        raise StartError(f"cluster_secret_file {path} cannot be read ({error.strerror})") from None
    if mode & 0o077:
        raise StartError(f"cluster_secret_file {path} can be read by others (mode {mode:o}): run `chmod 600 {path}`")
    if len(text) < LEAST_SECRET:
        raise StartError(
            f"cluster_secret_file {path} holds less than {LEAST_SECRET} characters: make it with "
            "`openssl rand -hex 32`, and give all nodes the same"
        )
    return Secret(text)


def _opened(settings: Settings, opened: contextlib.ExitStack, warn: Say) -> _Parts:
    """Lock the directory, connect to PostgreSQL, and begin to look after the lease."""
    if settings.cluster_secret_file is None or settings.node_url is None:
        raise StartError("node_url and cluster_secret_file are missing: follow needs both")
    secret = read_secret(settings.cluster_secret_file)
    directory = DataDirectory(settings.data_dir)
    opened.callback(directory.close)
    if segments_in(settings.data_dir):
        raise StartError(
            f"the data directory {settings.data_dir} has a journal in files: start once without --follow and with the "
            "same --journal, so that it goes on in the database, and then with --follow"
        )
    segment_keys = segment_keys_of(settings)
    node = Node(settings.node_name or socket.gethostname(), settings.node_url.rstrip("/"))
    tables = _patiently(lambda: Cluster(settings.journal), warn)
    lease = Lease(tables, node, settings.lease, settings.member_timeout)
    peers = Peers(secret, lambda: _urls(lease))
    journal = _patiently(
        lambda: PostgresJournal(
            settings.journal,
            segment_keys,
            lease=settings.lease,
            hand_over=peers.hand_over,
            fetch_key=peers.fetch_key,
            directory=settings.data_dir,
        ),
        warn,
    )
    opened.callback(journal.close)
    twin = next((one for one in tables.members() if one.name == node.name), None)
    if twin is not None and twin.url not in (None, node.url) and twin.seen_seconds_ago < _SEEN:
        raise StartError(
            "another node of this cluster has the same name: give each a node_name of its own (--node-name)"
        )
    if not is_marked(settings.data_dir):
        lease.progress = lambda: Progress(applied_seq=journal.mark.seq)
    lease.start()
    opened.callback(lease.close)
    key_dir = settings.key_dir or settings.data_dir / KEYS_NAME
    return _Parts(directory, key_dir, segment_keys, lease, journal, peers, secret)


def _patiently(make: Callable[[], T], warn: Say) -> T:
    """Connect to PostgreSQL, which may start later than this node, or change its primary just now."""
    is_told = False
    while True:
        try:
            return make()
        except JournalUnreachableError:
            if not is_told:
                warn("PostgreSQL cannot be reached, or takes no writes: waiting for it")
            is_told = True
            time.sleep(_RETRY)


def _urls(lease: Lease) -> list[str]:
    """Return where other nodes are that have joined and live, the one that leads first."""
    view = lease.view
    if view is None:
        return []
    silent_after = 2 * lease.seconds
    found = [
        one.url
        for one in view.others(lease.node.name)
        if one.url is not None and one.applied_seq and view.seen_ago(one) < silent_after
    ]
    return sorted(found, key=lambda url: url != view.leader_url)


def _start(settings: Settings, parts: _Parts, progress: ProgressBar, tell: Say, warn: Say) -> tuple[Start, int]:
    """Return a model to be served, and up to which record its files hold nothing that was erased."""
    lease, path = parts.lease, parts.directory.path
    told, is_warned = "", False
    while True:
        if not is_marked(path):
            _patiently(parts.journal.require_marked, warn)
        view = _seen(lease)
        if lease.is_expelled:
            _mark(path)
        snapshots = SnapshotStore(parts.directory)
        has_files = snapshots.holds_model() and not is_marked(path)
        if has_files and _is_member(lease, view):
            progress(RECOVERING, 0, 0)
            try:
                return _from_files(settings, parts, snapshots, view, warn)
            except RejoinError as error:
                warn(f"the files in {path} cannot be gone on from ({error}): the node joins anew")
                _mark(path)
                continue
        if has_files and not is_warned:
            is_warned = True
            warn(
                f"{lease.node.name} is no member of this cluster: it was removed, or had another name before. What was "
                f"erased since may be in {path}, so the node joins anew"
            )
        leader = view.leader
        if view.leader_url is not None and leader is not None and leader.holder != lease.node.name:
            if _joined(parts, view.leader_url):
                tell(f"Joined the cluster from {leader.holder}.")
                told = ""
                continue
            waiting = f"waiting for {leader.holder}, which leads, to give its snapshot"
        elif not has_files and not is_marked(path) and view.is_new(lease.node.name):
            start = _begun(settings, parts, progress, warn)
            if start is not None:
                return start, start.state.seq
            waiting = "waiting for a node that leads"
        else:
            waiting = "waiting for a node that leads, to join from it"
        if waiting != told:
            warn(waiting)
            told = waiting
        time.sleep(_RETRY)


def _is_member(lease: Lease, view: View) -> bool:
    """Whether the cluster counts with the files here; where it has no member yet, this node is the first."""
    name = lease.node.name
    if view.member(name) is not None:
        return True
    return not view.members and lease.ask(lambda tables: tables.enrol(name, lease.node.url)).result()


def _mark(path: Path) -> None:
    """Have the node join anew, whatever becomes of this start."""
    try:
        mark(path)
    except OSError as error:
        raise StartError(f"the data directory {path} cannot be written ({error.strerror}): make room there") from None


def _seen(lease: Lease) -> View:
    """Return what the database says by now."""
    asked = time.monotonic()
    while lease.view is None or lease.view.at < asked:
        time.sleep(_RETRY / 10)
    return lease.view


def _joined(parts: _Parts, url: str) -> bool:
    """Take over the files of the node that leads; whether it has given them."""
    lease = parts.lease
    _mark(parts.directory.path)  # before it is a member again: what is here is not to be gone on from any more
    lease.ask(lambda tables: tables.readmit(lease.node.name, lease.node.url)).result()
    lease.is_expelled = False
    try:
        join(parts.directory, LEDGER_NAME, parts.key_dir, parts.segment_keys, parts.peers, url)
        parts.journal.mark.forget()
    except PeerError as error:
        log.warning("the node cannot join yet: %s", error)
        return False
    return True


def _begun(settings: Settings, parts: _Parts, progress: ProgressBar, warn: Say) -> Start | None:
    """Begin a cluster; None when another node does."""
    epoch = parts.lease.try_now()
    if epoch is None:
        return None
    name, url = parts.lease.node.name, parts.lease.node.url
    parts.lease.ask(lambda tables: tables.enrol(name, url)).result()
    parts.journal.lead(epoch)
    keys = LedgerKeys(parts.key_dir, complete=False)
    database = LedgerDatabase(parts.directory.path / LEDGER_NAME, keys, log_name=settings.log_name)
    snapshots = SnapshotStore(parts.directory)
    opened = OpenDirectory(Storage(parts.directory, snapshots, parts.journal), keys, database, snapshots)
    choice = LedgerChoice(settings.ledger, settings.accept_missing_erasures, settings.accept_missing_keys)
    try:
        return begin_directory(settings, opened, choice, progress, warn)
    except BaseException:
        database.close()
        raise


def _from_files(
    settings: Settings, parts: _Parts, snapshots: SnapshotStore, view: View, warn: Say
) -> tuple[Start, int]:
    """Return the model of the newest snapshot; the records after it are taken in when the service runs.

    Raises
    ------
    RejoinError
        When the cluster has not gone on from it.
    """
    _drop_unmade(snapshots, parts.journal)
    if not snapshots.holds_model():
        raise RejoinError("its only snapshots are of a restore that was not made")
    recovered = snapshots.recover()
    for note in recovered.notes:
        warn(note)
    facts = recovered.snapshot.facts
    if facts.seq > view.last_seq:
        raise set_back(f"ends with record {view.last_seq}, and the newest snapshot has taken in {facts.seq}")
    keys = LedgerKeys(parts.key_dir, complete=False)
    database = LedgerDatabase(parts.directory.path / LEDGER_NAME, keys, log_name=settings.log_name)
    try:
        keys.require(database.named_keys())
        keys.complete()
        _fold(database, parts.journal, facts.seq)
        if database.applied_seq() > view.last_seq:
            raise set_back(f"ends with record {view.last_seq}, and the ledger has taken in {database.applied_seq()}")
        if facts.ledger_hash and database.relation_to(facts.ledger_index, facts.ledger_hash) != "same or newer":
            raise RejoinError("its ledger and its snapshot are of different histories")
        parts.journal.follow()
        erased_seq = max(0, snapshots.oldest_seq())
        named = {row.key_id for row in view.segments} - set(view.keys_before(erased_seq))
        parts.segment_keys.destroy(one for one in parts.segment_keys.ids() if one not in named)
    except BaseException:
        database.close()
        raise
    clock = Clock(database.highest_ms())
    storage = Storage(parts.directory, snapshots, parts.journal)
    storage.lineage = facts.lineage or storage.lineage
    state = state_of(recovered)
    state.following, state.leader_url = True, view.leader_url
    state.pending = {one.receipt_id: inherited(one, clock) for one in database.pending()}
    ledger = Ledger(database, keys, clock.now_ms)
    opened = OpenDirectory(storage, keys, database, snapshots)
    return Start(opened, state, ledger, clock), erased_seq


def _drop_unmade(snapshots: SnapshotStore, journal: PostgresJournal) -> None:
    """Remove snapshots of a restore that the journal has no record of: the node was killed before it was made."""
    newest = snapshots.newest_facts()
    if newest is None or not newest.restore_notes:
        return
    try:
        found = next(iter(journal.positioned_records(newest.seq - 1)), None)
    except JournalDamagedError:
        raise RejoinError("its snapshot is of a restore that the journal does not tell of any more") from None
    if found is None or found[3].notes != newest.restore_notes.encode():
        with contextlib.suppress(StorageError):
            snapshots.forget_after(newest.seq - 1)


def _fold(database: LedgerDatabase, journal: PostgresJournal, seq: int) -> None:
    """Bring the ledger up to the snapshot, where it lags behind it."""
    if database.applied_seq() >= seq:
        return
    try:
        found = journal.positioned_records(database.applied_seq())
        due = [(record.seq, record.notes) for *_, record in takewhile(lambda one: one[3].seq <= seq, found)]
        database.fold_many([one for one in due if one[1]])
    except (JournalDamagedError, LedgerGapError):
        raise RejoinError("its ledger is older than its snapshot, and the journal than both") from None
    except JournalError:
        raise StartError("the journal cannot be read: see to PostgreSQL, and start again") from None
