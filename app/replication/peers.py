"""Requests between nodes: keys, snapshots and ledgers, for whoever knows the secret of the cluster.

    GET /cluster/node/keys            keys of the ledger and of segments, sealed
    PUT /cluster/node/segment-keys    the key of a new segment, sealed
    GET /cluster/node/snapshot        the newest snapshot
    GET /cluster/node/ledger          a copy of the ledger's file, made after that snapshot

Each carries `Authorization: Oubli-Node` and an HMAC under the secret, which so is never sent. Keys are sealed with a
key made from the secret as well, because they open everything else. Where samples may not be read on the way, nodes
need URLs with https.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import shutil
import ssl
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from oubli.app.errors import JournalRefusedError
from oubli.app.storage.segment_keys import SegmentKey

if TYPE_CHECKING:
    from collections.abc import Callable

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


class PeerError(Exception):
    """Another node has not answered, or not what it should."""


@dataclass(frozen=True)
class Secret:
    """What all nodes of a cluster know, and nobody else.

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
            raise PeerError("what came was not sealed with the secret of this cluster") from None

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
        return orjson.dumps(
            {
                "files": {name: content.hex() for name, content in self.files.items()},
                "segments": {name: secret.hex() for name, secret in self.segments.items()},
            }
        )

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
        with _Request(self._secret, url, "GET", KEYS_PATH, seconds=_SHORT) as answer:
            return NodeKeys.from_json(self._secret.open(answer.read(_MOST_BYTES)))

    def download(self, url: str, path: str, file: IO[bytes]) -> None:
        """Write what a node answers into a file.

        Raises
        ------
        PeerError
            When it does not answer, or the answer is cut short.
        """
        with _Request(self._secret, url, "GET", path, seconds=_LONG) as answer:
            length = answer.getheader("Content-Length")
            try:
                shutil.copyfileobj(answer, file, 2**20)
            except (OSError, http.client.HTTPException):
                raise PeerError("another node has stopped answering") from None
            if length is None or file.tell() != int(length):
                raise PeerError("the answer of another node was cut short")

    def fetch_key(self, key_id: str) -> bytes | None:
        """Return the key of a segment from whoever has it."""
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
            raise JournalRefusedError("no other node has taken the key of a new segment")

    def _put_key(self, url: str, sealed: bytes) -> bool:
        try:
            with _Request(self._secret, url, "PUT", SEGMENT_KEYS_PATH, sealed, expects=_DONE, seconds=_SHORT):
                return True
        except PeerError:
            return False


class _Request:
    """One request, over a connection of its own; as a context it gives the answer."""

    def __init__(
        self,
        secret: Secret,
        url: str,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        seconds: float,
        expects: int = _OK,
    ) -> None:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = parts.hostname or ""
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            self._connection = http.client.HTTPSConnection(host, port, timeout=seconds, context=context)
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=seconds)
        self._asked = method, parts.path.rstrip("/") + path, body
        self._headers = {"Authorization": secret.authorization()}
        if body is not None:
            self._headers["Content-Type"] = "application/json"
        self._expects = expects

    def __enter__(self) -> http.client.HTTPResponse:
        method, path, body = self._asked
        try:
            self._connection.request(method, path, body, self._headers)
            answer = self._connection.getresponse()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise PeerError("another node does not answer") from None
        if answer.status != self._expects:
            self._connection.close()
            raise PeerError(f"another node has answered with status {answer.status}")
        return answer

    def __exit__(self, *_: object) -> None:
        self._connection.close()
