from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from oubli.client.load.plan import LoadTestError
from oubli.client.load.target import Target, ask, explain
from tests.unit.client.load.fake_server import answering


def test_a_request_has_path_key_and_length() -> None:
    target = Target("http://[::1]:8000/models/a/", "secret")
    assert (target.host, target.port, target.tls) == ("::1", 8000, None)
    head, _, body = target.request("POST", "/predict", b"{}").partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /models/a/predict HTTP/1.1"
    assert {"Host: [::1]:8000", "Authorization: Bearer secret", "Content-Length: 2"} < set(lines)
    assert body == b"{}"
    assert b"Content" not in Target("https://example.org").request("GET", "/model")
    assert Target("https://example.org").port == 443


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000", "ftp://x", "http://", "http://x:port", "http://[::1", "http://u:secret@x"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(LoadTestError, match="the server's address") as raised:
        Target(url)
    assert "secret" not in str(raised.value)


def test_certificates_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_text("none")
    for name in ("a.pem", "b.pem"):
        with pytest.raises(LoadTestError, match=f"{name} cannot be read"):
            Target("https://x", None, tmp_path / name)


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (None, "closed the connection without an answer"),
        ((200, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"), "no JSON"),
        ((200, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi"), "nothing within 0.2 s"),
    ],
)
def test_an_answer_that_is_none(answer: Any, part: str) -> None:
    async def make(method: str, path: str, content: Any) -> Any:
        return answer

    async def test() -> None:
        async with answering(make) as url:
            await asyncio.to_thread(ask, Target(url), "GET", "/model", seconds=0.2)

    with pytest.raises(LoadTestError, match=part):
        asyncio.run(test())


def test_a_refusal_is_told_with_the_words_of_the_server() -> None:
    assert (
        explain("GET /model", 401, {"title": "a key", "detail": "Send a key."})
        == "GET /model answered 401: Send a key."
    )
    assert explain("GET /model", 401, {"title": "a key"}) == "GET /model answered 401: a key"
    assert explain("GET /model", 502, None) == "GET /model answered 502"
