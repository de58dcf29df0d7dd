"""Asking a running server: what its refusals become, and that half a download is no file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from oubli.app.cli.remote import Server
from oubli.app.errors import StartError

SEEN: list[dict[str, str]] = []


class Handler(BaseHTTPRequestHandler):
    """Refuses with a problem, refuses with none, sends a file whole or cut short."""

    def do_POST(self) -> None:
        SEEN.append(dict(self.headers))
        if self.path == "/snapshot":
            self.answer(201, b'{"id": "1"}')
        elif self.path == "/problem":
            self.answer(409, b'{"title": "Nothing is kept", "detail": "Start it with --data-dir."}')
        else:
            self.answer(502, b"<html>")

    def do_GET(self) -> None:
        self.answer(200, b"0123456789", announced=20 if self.path == "/short" else 10)

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


def test_an_answer_is_read_and_the_key_is_sent(url: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef\n")
    assert Server(url, key).post("/snapshot") == {"id": "1"}
    assert SEEN[-1]["Authorization"] == "Bearer 0123456789abcdef"
    assert SEEN[-1]["Content-Type"] == "application/json"


@pytest.mark.parametrize(("path", "part"), [("/problem", "409: Start it with --data-dir."), ("/other", "502")])
def test_a_refusal_is_told_in_the_servers_words(url: str, path: str, part: str) -> None:
    with pytest.raises(StartError, match=part):
        Server(url).post(path)


def test_a_download_is_there_as_a_whole_or_not_at_all(url: str, tmp_path: Path) -> None:
    assert Server(url).download("/whole", tmp_path / "file") == 10
    assert (tmp_path / "file").read_bytes() == b"0123456789"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    with pytest.raises(StartError, match="cut short"):
        Server(url).download("/short", tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_key_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="absent cannot be read"):
        Server("http://127.0.0.1:1", tmp_path / "absent")
