"""What a node gives other nodes, and takes from them: keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oubli.app.replication.files import ledger_key_files
from oubli.app.replication.peers import NodeKeys, PeerError
from oubli.app.storage.segment_keys import SegmentKey

if TYPE_CHECKING:
    from pathlib import Path

    from oubli.app.replication.peers import Secret
    from oubli.app.storage.segment_keys import SegmentKeys


class KeyDoor:
    """Gives other nodes the keys, and takes those of new segments.

    Parameters
    ----------
    secret
        Of the cluster.
    key_dir
        Of the ledger's keys.
    segment_keys
        Those of segments.
    """

    def __init__(self, secret: Secret, key_dir: Path, segment_keys: SegmentKeys) -> None:
        self._secret = secret
        self._key_dir = key_dir
        self._segment_keys = segment_keys

    def admits(self, authorization: str) -> bool:
        """Whether a request comes from a node of this cluster."""
        return self._secret.admits(authorization)

    def keys(self) -> bytes:
        """Return all keys, sealed."""
        segments = {}
        for key_id in self._segment_keys.ids():
            key = self._segment_keys.get(key_id)
            if key is not None:
                segments[key_id] = key.secret
        return self._secret.seal(NodeKeys(dict(ledger_key_files(self._key_dir)), segments).to_json())

    def take_key(self, sealed: bytes) -> bool:
        """Keep the key of a new segment; false when it is not one of this cluster."""
        try:
            found = NodeKeys.from_json(self._secret.open(sealed))
            keys = [SegmentKey(name, secret) for name, secret in found.segments.items()]
        except (PeerError, ValueError):
            return False
        for key in keys:
            self._segment_keys.add(key)
        return True
