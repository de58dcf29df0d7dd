"""The start of a node: it follows from its files, joins from the leader, or begins a new cluster.

    files here that fit           follow, and lead when the lease is over
    no files, or unusable ones    join from the leader; without one, wait
    no node has files             take the lease, train, lead

A node that joins gets its files from the leader before anything is served:

    marker written         killed from here on, the next start begins again
    snapshot, then keys and ledger, downloaded beside their places
    older files removed    nothing of an earlier life of the node stays
    files take their names, the marker goes

The ledger is at least as new as the snapshot; what comes after both is in the journal.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from oubli.app.errors import JournalDamagedError, JournalError, JournalUnreachableError, StartError, StorageError
from oubli.app.ledger.database import LEDGER_NAME, LedgerDatabase, LedgerGapError
from oubli.app.ledger.downloads import read_lines
from oubli.app.ledger.entries import read_notes
from oubli.app.ledger.file import is_newer
from oubli.app.ledger.keys import KEYS_NAME, LedgerKeys
from oubli.app.ledger.ledger import Ledger
from oubli.app.progress import Progress as ProgressBar
from oubli.app.progress import silent
from oubli.app.replication.follower import RejoinError
from oubli.app.replication.lease import Lease, Node, Progress, View
from oubli.app.replication.peers import (
    KEY_FILE,
    LEDGER_PATH,
    MARKER,
    SNAPSHOT_PATH,
    KeyDoor,
    NodeKeys,
    PeerError,
    Peers,
    Secret,
    is_marked,
    mark,
)
from oubli.app.replication.replica import Replica
from oubli.app.service.build import RECOVERING, Means, OpenDirectory, Start, begin_directory, compose_from
from oubli.app.service.evidence.receipts import inherited
from oubli.app.service.recovery.start import LedgerChoice, state_of
from oubli.app.service.roles import segment_keys_of
from oubli.app.service.service import Service
from oubli.app.settings import Settings
from oubli.app.storage.directory import (
    TEMPORARY,
    DataDirectory,
    flush_directory,
    flush_file,
    make_directory,
    write_private,
)
from oubli.app.storage.journal import segments_in
from oubli.app.storage.postgres.database import Cluster
from oubli.app.storage.postgres.journal import PostgresJournal, set_back
from oubli.app.storage.segment_keys import SegmentKey, SegmentKeys
from oubli.app.storage.snapshots import SnapshotStore, Storage, describe
from oubli.app.storage.sqlite import SIDE_FILES
from oubli.app.times import Clock
from oubli.core.errors import FileError

T = TypeVar("T")

_FIRST = "snapshot-00000001.safetensors"


def join(directory: DataDirectory, key_dir: Path, segment_keys: SegmentKeys, peers: Peers, url: str) -> None:
    """Replace all files of a node by those of the leader.

    Parameters
    ----------
    directory
        Whose files are replaced.
    key_dir
        Of the ledger's keys.
    segment_keys
        Those of segments; the keys that are here are destroyed.
    peers
        Ask other nodes.
    url
        Of the node that leads.

    Raises
    ------
    PeerError
        When it does not give everything: nothing was removed.
    StartError
        When the files cannot be written.
    """
    path = directory.path
    try:
        mark(path)
        with directory.temporary() as snapshot, directory.temporary() as ledger:
            _download(peers, url, SNAPSHOT_PATH, snapshot)
            try:
                describe(snapshot)
            except FileError as error:
                raise PeerError(f"the snapshot of another node cannot be read here: {error.rule}") from None
            _download(peers, url, LEDGER_PATH, ledger)
            if is_newer(ledger):
                raise PeerError("the ledger of another node was written by a newer version: upgrade this node")
            keys = peers.keys(url)
            _remove_all(path, key_dir, segment_keys)
            _write_keys(key_dir, segment_keys, keys)
            directory.publish(ledger, LEDGER_NAME)
            directory.publish(snapshot, _FIRST)
        (path / MARKER).unlink()
        flush_directory(path)
    except OSError as error:
        raise StartError(
            f"the files of the cluster cannot be written to {path} ({error.strerror}): free disk space there, and "
            "check its permissions"
        ) from None


def _download(peers: Peers, url: str, what: str, path: Path) -> None:
    with path.open("xb") as file:
        path.chmod(0o600)
        peers.download(url, what, file)
    flush_file(path)


def _remove_all(path: Path, key_dir: Path, segment_keys: SegmentKeys) -> None:
    """Remove the old files of the node: they may hold samples that were erased since."""
    gone = [*path.glob("snapshot-*.safetensors"), *(path / f"{LEDGER_NAME}{side}" for side in ("", *SIDE_FILES))]
    for one in gone:
        one.unlink(missing_ok=True)
    flush_directory(path)
    segment_keys.destroy(segment_keys.ids())
    if key_dir.is_dir():
        for one in key_dir.iterdir():
            if KEY_FILE.fullmatch(one.name) or one.match(TEMPORARY.format("*")):
                one.unlink()
        flush_directory(key_dir)


def _write_keys(key_dir: Path, segment_keys: SegmentKeys, keys: NodeKeys) -> None:
    make_directory(key_dir)
    for name, content in keys.files.items():
        if not KEY_FILE.fullmatch(name):
            raise PeerError("another node has sent what are no keys")
        write_private(key_dir / name, content)
    for key_id, secret in keys.segments.items():
        with contextlib.suppress(ValueError):
            segment_keys.add(SegmentKey(key_id, secret))


log = logging.getLogger("oubli.cluster")

_RETRY = 0.3  # seconds
_SEEN = 5.0  # seconds in which another node of the same name would have reported
LEAST_SECRET = 32  # characters

Say = Callable[[str], object]


def _say_nothing(text: str) -> None:
    """Say nothing."""


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
) -> Service:
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
        raise StartError(f"cluster_secret_file {path} cannot be read ({error.strerror}): see to its owner") from None
    if mode & 0o077:
        raise StartError(f"cluster_secret_file {path} can be read by others (mode {mode:o}): run `chmod 600 {path}`")
    if len(text) < LEAST_SECRET:
        raise StartError(
            f"cluster_secret_file {path} holds less than {LEAST_SECRET} characters: make it with "
            "`openssl rand -hex 32`, and give all nodes the same"
        )
    return Secret(text)


def _opened(settings: Settings, opened: contextlib.ExitStack, warn: Say) -> _Parts:
    """Lock the directory, connect to PostgreSQL, and start the thread of the lease."""
    if settings.cluster_secret_file is None or settings.node_url is None:
        raise StartError("node_url and cluster_secret_file are missing: follow needs both")
    secret = read_secret(settings.cluster_secret_file)
    directory = DataDirectory(settings.data_dir)
    opened.callback(directory.close)
    if segments_in(settings.data_dir):
        raise StartError(
            f"the data directory {settings.data_dir} has a journal in files: start once without --follow and with the "
            "same --journal, which moves it to the database, and then with --follow"
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
                warn("PostgreSQL cannot be reached, or accepts no writes: waiting for it")
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
                warn(f"the node cannot continue from the files in {path} ({error}): it joins again")
                _mark(path)
                continue
        if has_files and not is_warned:
            is_warned = True
            warn(
                f"{lease.node.name} is not a member of this cluster: it was removed, or had another name before. "
                f"{path} may hold samples that were erased since, so the node joins again"
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
    """Have the node join again, whatever happens to this start."""
    try:
        mark(path)
    except OSError as error:
        raise StartError(
            f"the data directory {path} cannot be written ({error.strerror}): free disk space there"
        ) from None


def _seen(lease: Lease) -> View:
    """Return what the database says now."""
    asked = time.monotonic()
    while lease.view is None or lease.view.at < asked:
        time.sleep(_RETRY / 10)
    return lease.view


def _joined(parts: _Parts, url: str) -> bool:
    """Take over the files of the node that leads; whether it has given them."""
    lease = parts.lease
    _mark(parts.directory.path)  # before it is a member again: its old files must not be used any more
    lease.ask(lambda tables: tables.readmit(lease.node.name, lease.node.url)).result()
    lease.is_expelled = False
    try:
        join(parts.directory, parts.key_dir, parts.segment_keys, parts.peers, url)
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
    snapshots = SnapshotStore(parts.directory)
    choice = LedgerChoice(settings.ledger, settings.accept_missing_erasures, settings.accept_missing_keys)
    with _ledger_of(settings, parts) as (keys, database):
        opened = OpenDirectory(Storage(parts.directory, snapshots, parts.journal), keys, database, snapshots)
        return begin_directory(settings, opened, choice, progress, warn)


@contextlib.contextmanager
def _ledger_of(settings: Settings, parts: _Parts) -> Iterator[tuple[LedgerKeys, LedgerDatabase]]:
    """Open the ledger, which is closed when the block fails."""
    keys = LedgerKeys(parts.key_dir, complete=False)
    database = LedgerDatabase(parts.directory.path / LEDGER_NAME, keys, log_name=settings.log_name)
    try:
        yield keys, database
    except BaseException:
        database.close()
        raise


def _from_files(
    settings: Settings, parts: _Parts, snapshots: SnapshotStore, view: View, warn: Say
) -> tuple[Start, int]:
    """Return the model of the newest snapshot; the records after it are applied when the service runs.

    Raises
    ------
    RejoinError
        When the cluster has not continued from it.
    """
    _drop_unmade(snapshots, parts.journal)
    if not snapshots.holds_model():
        raise RejoinError("its only snapshots are of a restore that was not completed")
    recovered = snapshots.recover()
    for note in recovered.notes:
        warn(note)
    facts = recovered.snapshot.facts
    if facts.seq > view.last_seq:
        raise set_back(f"ends with record {view.last_seq}, and the newest snapshot has record {facts.seq}")
    with _ledger_of(settings, parts) as (keys, database):
        keys.require(database.named_keys())
        keys.complete()
        _fold(database, parts.journal, facts.seq)
        if settings.ledger is not None:
            _require_known(settings.ledger, database, parts.journal, facts.seq)
        if database.applied_seq() > view.last_seq:
            raise set_back(f"ends with record {view.last_seq}, and the ledger has record {database.applied_seq()}")
        if facts.ledger_hash and database.relation_to(facts.ledger_index, facts.ledger_hash) != "same or newer":
            raise RejoinError("its ledger and its snapshot have different histories")
        parts.journal.follow()
        erased_seq = max(0, snapshots.oldest_seq())
        named = {row.key_id for row in view.segments} - set(view.keys_before(erased_seq))
        parts.segment_keys.destroy(one for one in parts.segment_keys.ids() if one not in named)
    clock = Clock(database.highest_ms())
    storage = Storage(parts.directory, snapshots, parts.journal)
    storage.lineage = facts.lineage or storage.lineage
    state = state_of(recovered)
    state.following, state.leader_url = True, view.leader_url
    state.pending = inherited(database.pending(), clock)
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
        raise RejoinError("its snapshot is of a restore that the journal no longer has") from None
    if found is None or found[3].notes != newest.restore_notes.encode():
        with contextlib.suppress(StorageError):
            snapshots.forget_after(newest.seq - 1)


def _require_known(path: Path, database: LedgerDatabase, journal: PostgresJournal, seq: int) -> None:
    """Refuse a ledger that knows more than the cluster: a node applies what the journal has, and nothing else."""
    last: Any = next(iter(deque(read_lines(path), maxlen=1)), None)
    index, known = (last.get("index"), last.get("hash")) if isinstance(last, dict) else (0, None)
    if type(index) is int and known == (database.hash_at(index) or ""):
        return
    later = journal.positioned_records(max(database.applied_seq(), seq))
    try:
        entries = [entry for *_, record in later if record.notes for entry in read_notes(record.notes).entries]
    except JournalDamagedError:
        raise RejoinError("the journal does not continue from its ledger") from None
    if all(entry["hash"] != known for entry in entries):
        raise StartError(
            f"the ledger {path} has entries that the cluster does not have: erasures are missing from its journal. "
            "Begin a new cluster with an empty database, empty data directories, a copy of the keys and --ledger, and "
            "restore the newest snapshot with PUT /snapshot/file"
        )


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
        raise StartError("the journal cannot be read: check PostgreSQL, and start again") from None
