"""Asking a running server: what its refusals become, and that half a download is no file."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from oubli.app.cli.remote import asking
from oubli.app.errors import StartError

SEEN: list[dict[str, str]] = []
SNAPSHOT = b'{"id": "1", "model_version": 2, "digest": "d", "bytes": 3, "created_at": "2030-01-31T12:00:00Z"}'


class Handler(BaseHTTPRequestHandler):
    """Refuses with a problem, refuses with none, sends a file whole or cut short."""

    def do_POST(self) -> None:
        SEEN.append(dict(self.headers))
        if self.path == "/snapshot":
            self.answer(201, SNAPSHOT)
        elif self.path == "/follower/snapshot":
            leader = b'{"type": "urn:oubli:problem:not-leader", "leader": "http://leader.example:8000"}'
            self.answer(307, leader)
        elif self.path == "/problem/snapshot":
            self.answer(409, b'{"title": "Nothing is kept", "detail": "Start it with --data-dir."}')
        else:
            self.answer(502, b"<html>")

    def do_GET(self) -> None:
        self.answer(200, b"0123456789", announced=20 if self.path.startswith("/short") else 10)

    def answer(self, status: int, body: bytes, announced: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(announced or len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_a_follower_names_the_node_to_ask(url: str) -> None:
    leader = r"name it with --url http://leader\.example:8000"
    with pytest.raises(StartError, match=leader), asking(f"{url}follower/", retries=0) as client:
        client.snapshot()


def test_an_answer_is_read_and_the_key_is_sent(url: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef\n")
    with asking(url, key) as client:
        assert client.snapshot().digest == "d"
    sent = {name.lower(): value for name, value in SEEN[-1].items()}
    assert sent["authorization"] == "Bearer 0123456789abcdef"
    assert sent["content-type"] == "application/json"


@pytest.mark.parametrize(("path", "part"), [("problem", "409: Start it with --data-dir."), ("other", "502")])
def test_a_refusal_is_told_in_the_servers_words(url: str, path: str, part: str) -> None:
    with pytest.raises(StartError, match=part), asking(url + path) as client:
        client.snapshot()


def test_a_download_is_there_as_a_whole_or_not_at_all(url: str, tmp_path: Path) -> None:
    with asking(url) as client:
        assert client.download_snapshot(tmp_path / "file") == 10
    assert (tmp_path / "file").read_bytes() == b"0123456789"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    with pytest.raises(StartError, match=r"no whole answer.*try again"), asking(url + "short") as client:
        client.download_snapshot(tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_key_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="absent cannot be read"), asking("http://127.0.0.1:1", tmp_path / "absent"):
        pass


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("oubli.client")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(StartError, match=r"pip install 'oubli-server\[client\]'"), asking("http://127.0.0.1:1"):
        pass
