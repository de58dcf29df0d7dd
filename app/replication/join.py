"""A node without files that it could go on from gets them from the node that leads, before anything is served.

    marker written         killed from here on, the next start begins again
    snapshot, then keys and ledger, downloaded beside their places
    older files removed    nothing of an earlier life of the node stays
    files take their names, the marker goes

What the ledger tells is at least as new as the snapshot; what comes after both is in the journal.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from oubli.app.errors import StartError
from oubli.app.ledger.file import is_newer
from oubli.app.replication.files import KEY_FILE, MARKER, mark
from oubli.app.replication.peers import LEDGER_PATH, SNAPSHOT_PATH, PeerError
from oubli.app.storage.directory import (
    TEMPORARY,
    DataDirectory,
    FlushError,
    flush_descriptor,
    flush_directory,
    flush_file,
    make_directory,
)
from oubli.app.storage.segment_keys import SegmentKey
from oubli.app.storage.snapshots import describe
from oubli.core.errors import FileError

if TYPE_CHECKING:
    from pathlib import Path

    from oubli.app.replication.peers import NodeKeys, Peers
    from oubli.app.storage.segment_keys import SegmentKeys

_FIRST = "snapshot-00000001.safetensors"
_SIDE_FILES = ("", "-wal", "-shm", "-journal")


def join(
    directory: DataDirectory, ledger_name: str, key_dir: Path, segment_keys: SegmentKeys, peers: Peers, url: str
) -> int:
    """Take the place of all files of a node from the one that leads; return the last record in its snapshot.

    Parameters
    ----------
    directory
        Whose files are replaced.
    ledger_name
        Of the ledger's file in it.
    key_dir
        Of the ledger's keys.
    segment_keys
        Those of segments; what is here goes.
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
                seq = describe(snapshot).facts.seq
            except FileError as error:
                raise PeerError(f"the snapshot of another node cannot be read here: {error.rule}") from None
            _download(peers, url, LEDGER_PATH, ledger)
            if is_newer(ledger):
                raise PeerError("the ledger of another node was written by a newer version: upgrade this node")
            keys = peers.keys(url)
            _remove_all(path, ledger_name, key_dir, segment_keys)
            _write_keys(key_dir, segment_keys, keys)
            directory.publish(ledger, ledger_name)
            directory.publish(snapshot, _FIRST)
        (path / MARKER).unlink()
        flush_directory(path)
    except (OSError, FlushError) as error:
        raise StartError(
            f"the files of the cluster cannot be written to {path} ({error.strerror}): make room there, or check that "
            "this user may write it"
        ) from None
    return seq


def _download(peers: Peers, url: str, what: str, path: Path) -> None:
    with path.open("xb") as file:
        path.chmod(0o600)
        peers.download(url, what, file)
    flush_file(path)


def _remove_all(path: Path, ledger_name: str, key_dir: Path, segment_keys: SegmentKeys) -> None:
    """Remove what an earlier life of the node has left: it may hold what was erased since."""
    gone = [*path.glob("snapshot-*.safetensors"), *(path / f"{ledger_name}{side}" for side in _SIDE_FILES)]
    for one in gone:
        one.unlink(missing_ok=True)
    flush_directory(path)
    segment_keys.destroy(segment_keys.ids())
    if key_dir.is_dir():
        for one in key_dir.iterdir():
            if KEY_FILE.fullmatch(one.name):
                one.unlink()
        flush_directory(key_dir)


def _write_keys(key_dir: Path, segment_keys: SegmentKeys, keys: NodeKeys) -> None:
    make_directory(key_dir)
    for name, content in keys.files.items():
        if not KEY_FILE.fullmatch(name):
            raise PeerError("another node has sent what are no keys")
        temporary = key_dir / TEMPORARY.format(name)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            flush_descriptor(file.fileno())
        temporary.replace(key_dir / name)
    flush_directory(key_dir)
    for key_id, secret in keys.segments.items():
        with contextlib.suppress(ValueError):
            segment_keys.add(SegmentKey(key_id, secret))
