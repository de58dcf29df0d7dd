"""A join that cannot be finished removes nothing of what the node has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg")

from oubli.app.ledger.file import APPLICATION_ID, FORMAT
from oubli.app.replication.peers import SNAPSHOT_PATH, PeerError
from oubli.app.replication.start import join
from oubli.app.storage.directory import DataDirectory
from oubli.app.storage.segment_keys import SegmentKeys
from oubli.core import persistence
from tests.closing import closed_at_the_end
from tests.unit.app.support import forest


class Leader:
    """Gives a snapshot and a ledger."""

    def __init__(self, snapshot: bytes, ledger: bytes) -> None:
        self._snapshot = snapshot
        self._ledger = ledger

    def download(self, url: str, what: str, file: Any) -> None:
        del url
        file.write(self._snapshot if what == SNAPSHOT_PATH else self._ledger)
        file.flush()


def ledger_of(version: int) -> bytes:
    return bytes(60) + version.to_bytes(4) + bytes(4) + APPLICATION_ID.to_bytes(4) + bytes(28)


@pytest.mark.parametrize("newer", ["snapshot", "ledger"])
def test_files_of_a_newer_version_remove_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newer: str) -> None:
    path = tmp_path / "data"
    forest().save(tmp_path / "model")
    directory = DataDirectory(path)
    closed_at_the_end(directory)
    own = path / "snapshot-00000007.safetensors"
    own.write_bytes(b"what the node has")
    (path / "ledger.sqlite").write_bytes(b"its ledger")
    if newer == "snapshot":  # to a version that reads less
        monkeypatch.setattr(persistence, "VERSION", 0)
    leader = Leader((tmp_path / "model").read_bytes(), ledger_of(FORMAT + (newer == "ledger")))
    keys = SegmentKeys(path / "keys" / "segments")
    with pytest.raises(PeerError, match="upgrade"):
        join(directory, path / "keys", keys, leader, "")  # type: ignore[arg-type]
    assert own.read_bytes() == b"what the node has"
    assert (path / "ledger.sqlite").read_bytes() == b"its ledger"
    assert not list(path.glob("*.tmp"))
