"""What nodes send each other, and how a node begins again."""

import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg")

from oubli.app.errors import JournalRefusedError, StartError
from oubli.app.ledger.file import APPLICATION_ID, FORMAT
from oubli.app.replication.peers import KEYS_PATH, SNAPSHOT_PATH, KeyDoor, NodeKeys, PeerError, Peers, Secret
from oubli.app.replication.start import join, read_secret
from oubli.app.storage.directory import DataDirectory
from oubli.app.storage.segment_keys import SegmentKey, SegmentKeys
from oubli.core import persistence
from tests.closing import closed_at_the_end
from tests.unit.app.support import JSON, forest, make_service, problem_of, served

SECRET = Secret(b"0123456789abcdef0123456789abcdef")
OTHER = Secret(b"another-secret-of-another-cluster")
KEY = SegmentKey("0123456789abcdef", bytes(range(32)))
Start = Callable[[str], tuple[str, SegmentKeys]]
"""Starts a node of a name; its URL and keys."""


class _Answering(http.server.BaseHTTPRequestHandler):
    door: KeyDoor

    def do_GET(self) -> None:
        self._answer(200, self.door.keys() if self.path == KEYS_PATH else b"whole")

    def do_PUT(self) -> None:
        sealed = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(204 if self.door.take_key(sealed) else 400, b"")

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _answer(self, status: int, content: bytes) -> None:
        if not self.door.admits(self.headers.get("Authorization", "")):
            status, content = 401, b""
        self.send_response(status)
        cut = self.path.endswith("snapshot")
        self.send_header("Content-Length", str(len(content) + cut))
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = True


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Start]:
    servers = []

    def start(name: str) -> tuple[str, SegmentKeys]:
        keys = SegmentKeys(tmp_path / name / "segments")
        (tmp_path / name / "signing-ab.pem").write_text("a key")
        (tmp_path / name / "unrelated").write_text("no key")
        handler = type("Answering", (_Answering,), {"door": KeyDoor(SECRET, tmp_path / name, keys)})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", keys

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_the_secret_is_not_sent_and_another_does_not_open(tmp_path: Path) -> None:
    assert "0123456789abcdef0123456789abcdef" not in SECRET.authorization()
    assert SECRET.admits(SECRET.authorization())
    assert not SECRET.admits(OTHER.authorization())
    assert SECRET.open(SECRET.seal(b"keys")) == b"keys"
    for secret, sealed in ((OTHER, SECRET.seal(b"keys")), (SECRET, b"short")):
        with pytest.raises(PeerError):
            secret.open(sealed)
    assert "0123456789abcdef" not in repr(SECRET)


def test_keys_are_handed_over_and_fetched(answering: Start) -> None:
    (first, its_keys), (second, others) = answering("first"), answering("second")
    peers = Peers(SECRET, lambda: ["http://127.0.0.1:1", first, second])
    peers.hand_over(KEY)
    assert its_keys.get(KEY.id) == others.get(KEY.id) == KEY
    assert [peers.fetch_key(name) for name in (KEY.id, "f" * 16)] == [KEY.secret, None]
    assert dict(peers.keys(first).files) == {"signing-ab.pem": b"a key"}
    # One that was not taken is not used.
    with pytest.raises(JournalRefusedError):
        Peers(SECRET, lambda: ["http://127.0.0.1:1"]).hand_over(KEY)
    Peers(SECRET, list).hand_over(KEY)  # there is no other node


def test_another_cluster_gets_nothing_and_no_node_half_a_download(answering: Start, tmp_path: Path) -> None:
    url, keys = answering("first")
    peers = Peers(OTHER, lambda: [url])
    with pytest.raises(PeerError):
        peers.keys(url)
    with pytest.raises(JournalRefusedError):
        peers.hand_over(KEY)
    assert keys.ids() == []
    assert not KeyDoor(SECRET, tmp_path, keys).take_key(b"not sealed")
    peers_of_it = Peers(SECRET, lambda: [url])
    with (tmp_path / "whole").open("wb") as file:
        peers_of_it.download(url, "/cluster/node/ledger", file)
    assert (tmp_path / "whole").read_bytes() == b"whole"
    for asking, what in ((peers, "ledger"), (peers_of_it, "snapshot")):
        with (tmp_path / "none").open("wb") as file, pytest.raises(PeerError):
            asking.download(url, f"/cluster/node/{what}", file)


def test_a_server_gives_nodes_its_snapshot_and_takes_keys_up_to_a_length(tmp_path: Path) -> None:
    service, keys = make_service(directory=tmp_path / "data"), SegmentKeys(tmp_path / "segments")
    service.lifecycle.role.door = KeyDoor(SECRET, tmp_path, keys)
    node, content = {**JSON, "Authorization": SECRET.authorization()}, NodeKeys({}, {KEY.id: KEY.secret}).to_json()
    most = 2**16 - len(SECRET.seal(b""))
    with served(service) as client:
        assert problem_of(client.get(SNAPSHOT_PATH)) == (401, "key-needed")
        snapshot = service.disk.storage.snapshots.newest.path.read_bytes()
        assert client.get(SNAPSHOT_PATH, headers=node).content == snapshot
        for n, status, kept in ((most + 1, 400, []), (most, 204, [KEY.id])):
            answer = client.put("/cluster/node/segment-keys", content=SECRET.seal(content.ljust(n)), headers=node)
            assert (answer.status_code, keys.ids()) == (status, kept)


def test_what_is_no_list_of_keys_is_refused() -> None:
    assert NodeKeys.from_json(NodeKeys({"a": b"1"}, {"b": b"2"}).to_json()) == NodeKeys({"a": b"1"}, {"b": b"2"})
    for content in (b"", b"[]", b'{"files": {}}', b'{"files": {"a": "x"}, "segments": {}}'):
        with pytest.raises(PeerError):
            NodeKeys.from_json(content)


def test_a_secret_is_for_its_owner_and_long(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with pytest.raises(StartError, match="cannot be read"):
        read_secret(path)
    for n, mode, why in ((31, 0o600, "less than 32"), (32, 0o640, "chmod 600")):
        path.write_text("0" * n + "\n")
        path.chmod(mode)
        with pytest.raises(StartError, match=why):
            read_secret(path)
    path.chmod(0o600)
    assert read_secret(path) == Secret(b"0" * 32)


@pytest.mark.parametrize("newer", ["nothing", "snapshot", "ledger"])
def test_a_join_replaces_all_files_or_with_newer_ones_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newer: str
) -> None:
    path = tmp_path / "data"
    forest().save(tmp_path / "model")
    directory = closed_at_the_end(DataDirectory(path))
    own = path / "snapshot-00000007.safetensors"
    own.write_bytes(b"what the node has")
    (path / "ledger.sqlite").write_bytes(b"its ledger")
    if newer == "snapshot":  # to a version that reads less
        monkeypatch.setattr(persistence, "VERSION", 0)
    version = FORMAT + (newer == "ledger")
    ledger = bytes(60) + version.to_bytes(4) + bytes(4) + APPLICATION_ID.to_bytes(4) + bytes(28)

    class Leader:
        def download(self, url: str, what: str, file: Any) -> None:
            file.write((tmp_path / "model").read_bytes() if what == SNAPSHOT_PATH else ledger)
            file.flush()

        def keys(self, url: str) -> NodeKeys:
            return NodeKeys({}, {KEY.id: KEY.secret})

    keys = SegmentKeys(path / "keys" / "segments")
    if newer == "nothing":
        join(directory, path / "keys", keys, Leader(), "")  # type: ignore[arg-type]
        assert [one.read_bytes() for one in path.glob("snapshot-*")] == [(tmp_path / "model").read_bytes()]
        assert ((path / "ledger.sqlite").read_bytes(), keys.ids(), own.exists()) == (ledger, [KEY.id], False)
        return
    with pytest.raises(PeerError, match="upgrade"):
        join(directory, path / "keys", keys, Leader(), "")  # type: ignore[arg-type]
    assert own.read_bytes() == b"what the node has"
    assert (path / "ledger.sqlite").read_bytes() == b"its ledger"
    assert not list(path.glob("*.tmp"))
