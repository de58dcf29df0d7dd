"""Asking a running server: what its refusals become, and that half a download is no file."""

import sys
from pathlib import Path

import pytest

import oubli
from oubli.app.cli.remote import asking
from oubli.app.errors import StartError
from oubli.client import NoAnswerError, NotLeaderError, ProblemError, UnexpectedAnswerError
from tests.unit.client.test_transport import answering

URL = "http://h:1"


def test_errors_of_the_client_become_those_of_the_command_line() -> None:
    for error, said in (
        (NotLeaderError(307, leader="http://a:8000"), r"http://h:1 is not the node .* it with --url http://a:8000"),
        (NotLeaderError(503), "try again"),
        (ProblemError(409, title="Nothing is kept", detail="Start it with --x."), "409: Start it with --x."),
        (ProblemError(502, title="Bad gateway"), "502: Bad gateway"),
        (NoAnswerError("no server answers", may_have_been_applied=False), "start it, or name it with --url"),
        (UnexpectedAnswerError("not JSON", 200), "not JSON"),
    ):
        with pytest.raises(StartError, match=said), asking(URL):
            raise error


def test_half_a_download_is_no_file_and_the_key_is_sent(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0123456789abcdef\n")
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n0123456789"
    with (
        answering(half) as (url, seen),
        pytest.raises(StartError, match=r"no whole answer.*try again"),
        asking(url, tmp_path / "key", retries=0) as client,
    ):
        client.download_snapshot(tmp_path / "file")
    assert b"authorization: bearer 0123456789abcdef" in seen[0].lower()
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_key_file_or_an_address_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    for url, key, said in ((URL, tmp_path / "key", "key cannot be read"), ("ftp://h", None, "the server's address")):
        with pytest.raises(StartError, match=said), asking(url, key):
            pass


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oubli, "client", oubli.client)  # the import below replaces the package's attribute
    for module in [name for name in sys.modules if name.startswith("oubli.client")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(StartError, match=r"pip install 'oubli-server\[client\]'"), asking(URL):
        pass
