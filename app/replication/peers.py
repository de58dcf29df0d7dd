"""Requests between nodes: keys, snapshots and ledgers, for nodes that know the secret of the cluster.

    GET /cluster/node/keys            keys of the ledger and of segments, sealed
    PUT /cluster/node/segment-keys    the key of a new segment, sealed
    GET /cluster/node/snapshot        the newest snapshot
    GET /cluster/node/ledger          a copy of the ledger's file, made after that snapshot

Each carries `Authorization: Oubli-Node` and an HMAC under the secret, so the secret is never sent. Keys are sealed with
a key made from the secret as well, because they open everything else. Where samples may not be read on the way, nodes
need URLs with https.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import os
import re
import shutil
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from oubli.app.errors import JournalRefusedError
from oubli.app.storage.directory import flush_directory, flush_file
from oubli.app.storage.segment_keys import SegmentKey, SegmentKeys

KEYS_PATH = "/cluster/node/keys"
SEGMENT_KEYS_PATH = "/cluster/node/segment-keys"
SNAPSHOT_PATH = "/cluster/node/snapshot"
LEDGER_PATH = "/cluster/node/ledger"
SCHEME = "Oubli-Node"
_NONCE_BYTES = 12
_SHORT, _LONG = 2.0, 60.0  # seconds that one step of a request may take
_MOST_BYTES = 2**24  # of keys
_MOST_AT_ONCE = 8
_OK = 200
_DONE = 204


MARKER = "rejoin"
"""A node whose data directory has a file of this name ignores everything else in it."""
KEY_FILE = re.compile(r"(?:signing|hashing|positions)-[0-9a-f]{1,64}\.(?:pem|key|gone)")


def mark(path: Path) -> None:
    """Have the next start of a data directory rejoin, whatever is in it."""
    (path / MARKER).touch(0o600)
    flush_file(path / MARKER)
    flush_directory(path)


def is_marked(path: Path) -> bool:
    """Whether a data directory has to rejoin."""
    return (path / MARKER).exists()


def ledger_key_files(key_dir: Path) -> Iterable[tuple[str, bytes]]:
    """Return the files of the ledger's keys, with their names."""
    for path in sorted(key_dir.iterdir()):
        if KEY_FILE.fullmatch(path.name):
            yield path.name, path.read_bytes()


class PeerError(Exception):
    """Another node has not answered, or not what it should."""


@dataclass(frozen=True)
class Secret:
    """The secret that all nodes of a cluster share.

    Parameters
    ----------
    text
        At least 32 characters.
    """

    text: bytes = field(repr=False)

    def authorization(self) -> str:
        """Return what requests of nodes carry."""
        return f"{SCHEME} {self._derived(b'oubli node').hex()}"

    def admits(self, authorization: str) -> bool:
        """Whether a request is one of a node."""
        return hmac.compare_digest(authorization.encode("utf-8", "replace"), self.authorization().encode())

    def seal(self, content: bytes) -> bytes:
        """Return content that only nodes can read."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self._derived(b"oubli node keys")).encrypt(nonce, content, None)

    def open(self, sealed: bytes) -> bytes:
        """Return what another node has sealed; raises `PeerError`."""
        try:
            key = AESGCM(self._derived(b"oubli node keys"))
            return key.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None)
        except (InvalidTag, ValueError):
            raise PeerError("the content was not sealed with the secret of this cluster") from None

    def _derived(self, purpose: bytes) -> bytes:
        return hmac.new(self.text, purpose, hashlib.sha256).digest()


@dataclass(frozen=True, slots=True)
class NodeKeys:
    """The keys that one node gives another.

    Attributes
    ----------
    files
        Those of the ledger, by the names of their files.
    segments
        Those of segments, by their ids.
    """

    files: Mapping[str, bytes] = field(repr=False)
    segments: Mapping[str, bytes] = field(repr=False)

    def to_json(self) -> bytes:
        """Return everything as JSON."""
        kinds = {"files": self.files, "segments": self.segments}
        return orjson.dumps({kind: {name: raw.hex() for name, raw in keys.items()} for kind, keys in kinds.items()})

    @classmethod
    def from_json(cls, content: bytes) -> NodeKeys:
        """Read what another node has written; raises `PeerError`."""
        try:
            found = orjson.loads(content)
            files = {str(name): bytes.fromhex(text) for name, text in found["files"].items()}
            segments = {str(name): bytes.fromhex(text) for name, text in found["segments"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise PeerError("another node has sent what are no keys") from None
        return cls(files, segments)


class Peers:
    """Asks other nodes. It may be used from any thread.

    Parameters
    ----------
    secret
        Of the cluster.
    urls
        Returns where the other nodes are that live, the one that leads first.
    """

    def __init__(self, secret: Secret, urls: Callable[[], Sequence[str]]) -> None:
        self._secret = secret
        self._urls = urls

    def keys(self, url: str) -> NodeKeys:
        """Return the keys of a node.

        Raises
        ------
        PeerError
            When it does not give them.
        """
        with _asked(self._secret, url, KEYS_PATH, _SHORT) as answer:
            return NodeKeys.from_json(self._secret.open(answer.read(_MOST_BYTES)))

    def download(self, url: str, path: str, file: IO[bytes]) -> None:
        """Write what a node answers into a file.

        Raises
        ------
        PeerError
            When it does not answer, or the answer is cut short.
        """
        with _asked(self._secret, url, path, _LONG) as answer:
            length = answer.getheader("Content-Length")
            try:
                shutil.copyfileobj(answer, file, 2**20)
            except (OSError, http.client.HTTPException):
                raise PeerError("another node has stopped answering") from None
            if length is None or file.tell() != int(length):
                raise PeerError("the answer of another node was cut short")

    def fetch_key(self, key_id: str) -> bytes | None:
        """Return the key of a segment from the first node that has it."""
        for url in self._urls():
            try:
                secret = self.keys(url).segments.get(key_id)
            except PeerError:
                continue
            if secret is not None:
                return secret
        return None

    def hand_over(self, key: SegmentKey) -> None:
        """Give the key of a new segment to all nodes that live; at least one has flushed it when this returns.

        Raises
        ------
        JournalRefusedError
            When there are others and none has taken it.
        """
        urls = self._urls()
        if not urls:
            return
        sealed = self._secret.seal(NodeKeys({}, {key.id: key.secret}).to_json())
        with ThreadPoolExecutor(min(len(urls), _MOST_AT_ONCE)) as pool:
            taken = list(pool.map(lambda url: self._put_key(url, sealed), urls))
        if not any(taken):
            raise JournalRefusedError("no other node has stored the key of a new segment")

    def _put_key(self, url: str, sealed: bytes) -> bool:
        try:
            with _asked(self._secret, url, SEGMENT_KEYS_PATH, _SHORT, sealed):
                return True
        except PeerError:
            return False


@contextlib.contextmanager
def _asked(
    secret: Secret, url: str, path: str, seconds: float, body: bytes | None = None
) -> Iterator[http.client.HTTPResponse]:
    """Send a request, PUT with a body and else GET, over a connection of its own; give the answer."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    connection = http.client.HTTPConnection(parts.hostname or "", port, timeout=seconds)
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(parts.hostname or "", port, timeout=seconds, context=context)
    headers = {"Authorization": secret.authorization()}
    if body is not None:
        headers["Content-Type"] = "application/json"
    with contextlib.closing(connection):
        try:
            connection.request("GET" if body is None else "PUT", parts.path.rstrip("/") + path, body, headers)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException):
            raise PeerError("another node does not answer") from None
        if answer.status != (_OK if body is None else _DONE):
            raise PeerError(f"another node has answered with status {answer.status}")
        yield answer


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
