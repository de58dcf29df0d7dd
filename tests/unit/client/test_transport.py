"""Both transports against a server that breaks off: what is half an answer is none, and whether it may have counted."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from oubli.client import AsyncClient, Client, ClientError, NoAnswerError, Request, Retries, errors
from oubli.client.messages import Close, NextChunk, NextEvent, Send, Work
from oubli.client.session import Servers, Session

# Says that it closes the connection: else a client may send the next request on it, and waits for an answer for long.
HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
WHOLE = HEAD + b'Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{"model_version": 3'
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n\ndata: one\n\ndata: two\n\n"
FAST = Retries(3, first_wait=0.001)


def received(connection: socket.socket) -> bytes:
    """Return a whole message with a length; an empty one when the other side has closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(body) < int(lines.get(b"content-length", 0)):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that sends one of these to each connection, in order, and closes it; empty: it waits for the end."""
    seen: list[bytes] = []
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for content in answers:
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(10)
                    seen.append(received(connection))
                    if content:
                        connection.sendall(content)
                    else:
                        ended.wait(10)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", seen
        finally:
            ended.set()
            thread.join(20)
            assert not thread.is_alive()


def ask(kind: str, url: str | list[str], flow: Any, **options: Any) -> Any:
    """Run a flow with one of the clients."""
    if kind == "waiting":
        with Client(url, **options) as client:
            return client.transport.run(flow(client.session))

    async def run() -> Any:
        async with AsyncClient(url, **options) as client:
            return await client.transport.run(flow(client.session))

    return asyncio.run(run())


@pytest.fixture(params=["waiting", "awaiting"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


ADD = Request("POST", "/samples", body=b"{}", takes_key=True)
SNAPSHOT = Request("POST", "/snapshot", body=b"{}")
BROKEN = {
    "closed at once": b"HTTP/1.1", "half a head": WHOLE[:40], "half a body": WHOLE[:-4],
    "half a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{", "no HTTP": b"SSH-2.0-x\r\n\r\n",
    "not what its encoding says": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
}  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_half_an_answer_is_none_and_the_request_comes_again_with_its_key(kind: str, broken: bytes) -> None:
    with answering(broken, broken, WHOLE + b"}") as (url, seen):
        found = ask(kind, url, lambda session: session.ask(ADD), retries=FAST)
    assert found == {"model_version": 3}
    keys = {line for one in seen for line in one.split(b"\r\n") if line.lower().startswith(b"idempotency-key: ")}
    assert (len(seen), len(keys)) == (3, 1)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (BROKEN["half a body"], NoAnswerError),
        (b"", errors.TimedOutError),  # a server that is silent is not waited for for ever
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", errors.UnexpectedAnswerError),  # a page of a proxy
    ],
)
def test_half_an_answer_to_what_has_no_key_is_an_error(kind: str, answer: bytes, error: type[ClientError]) -> None:
    with answering(answer) as (url, seen), pytest.raises(error) as caught:
        ask(kind, url, lambda session: session.ask(SNAPSHOT), retries=FAST, timeout=0.5)
    assert getattr(caught.value, "may_have_been_applied", True)
    assert len(seen) == 1


def test_a_redirection_is_not_followed_with_the_key(kind: str) -> None:
    with answering(b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n") as (url, _):
        assert ask(kind, url, lambda _: (yield Send(SNAPSHOT))).status == 307


def following(leader: str) -> bytes:
    """What a follower answers to a change."""
    body = json.dumps({"type": "urn:oubli:problem:not-leader", "status": 307, "leader": leader}).encode()
    head = f"HTTP/1.1 307 X\r\nLocation: {leader}/samples\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def test_the_leader_is_followed_with_key_and_body_to_an_address_that_was_given(kind: str) -> None:
    with answering(WHOLE + b"}", WHOLE + b"}") as (leader, at_leader), answering(following(leader)) as (url, at_first):

        def flow(session: Session) -> Any:
            session.servers = Servers([url, leader])  # the first one is drawn otherwise
            yield from session.ask(ADD)
            return (yield from session.ask(ADD))

        found = ask(kind, [url, leader], flow, api_key="secret", retries=FAST)
    assert (found, len(at_first), len(at_leader)) == ({"model_version": 3}, 1, 2)
    first, second = ({*one[0].lower().split(b"\r\n")} for one in (at_first, at_leader))
    assert {line.partition(b":")[0] for line in first ^ second} == {b"host"}
    assert b"authorization: bearer secret" in second


def test_an_error_names_the_server_that_it_is_of_and_is_raised_inside_the_flow(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        gone = f"http://127.0.0.1:{taken.getsockname()[1]}"
    cut_off = EVENTS.replace(b"\r\n\r\n", b"\r\nContent-Length: 999\r\n\r\n")
    for content, read in ((cut_off, NextEvent), (WHOLE[:-4], NextChunk)):
        with answering(content) as (url, _):

            def flow(_: Any, url: str = url, read: Any = read) -> Any:
                answer = yield Send(Request("GET", "/file", is_streamed=True), url)
                try:
                    while (yield read(answer.stream)) is not None:
                        pass
                except NoAnswerError as error:
                    return url in str(error), error.may_have_been_applied

            assert ask(kind, gone, flow) == (True, True)
    with pytest.raises(NoAnswerError, match=f"no server answers.*{gone}|{gone}.*no server answers") as caught:
        ask(kind, "http://127.0.0.1:1", lambda _: (yield Send(SNAPSHOT, gone)))
    assert not caught.value.may_have_been_applied


def test_key_path_query_and_a_file_arrive(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 3_000_000)
    request = Request("PUT", "/snapshot/file", (("id", "a/b&c é"),), body=tmp_path / "file")
    with answering(WHOLE + b"}") as (url, seen):
        ask(kind, url + "/behind/a/proxy/", lambda session: session.ask(request), api_key="secret")
    head, _, body = seen[0].partition(b"\r\n\r\n")
    line, *lines = head.lower().split(b"\r\n")
    assert (line, body) == (b"put /behind/a/proxy/snapshot/file?id=a%2fb%26c+%c3%a9 http/1.1", b"x" * 3_000_000)
    expected = {b"authorization: bearer secret", b"content-length: 3000000", b"content-type: application/octet-stream"}
    assert expected <= {*lines}


def test_events_come_one_by_one_and_the_stream_may_end(kind: str) -> None:
    def flow(_: Any) -> Any:
        answer = yield Send(Request("GET", "/events", is_streamed=True))
        found = []
        while (data := (yield NextEvent(answer.stream))) is not None:
            found.append(data)
        yield Close(answer.stream)
        return found

    with answering(EVENTS) as (url, _):
        assert ask(kind, url, flow) == ["one", "two"]


def test_what_a_step_raises_is_raised_in_the_flow(kind: str, tmp_path: Path) -> None:
    def flow(_: Any) -> Any:
        try:
            yield Work((tmp_path / "absent").read_bytes)
        except FileNotFoundError:
            return "caught"

    assert ask(kind, "http://127.0.0.1:1", flow) == "caught"


URLS = ["", "ftp://x", "127.0.0.1:8000", "http://[::1", "http://a:SECRET@b", "http://b/?SECRET", [], ["http://a", "b"]]
KEYS = ["SECRET\nX-Other: 1", "SECR\u00c9T", "SECRET\0"]


def test_what_is_no_address_or_key_is_refused_and_not_repeated() -> None:
    cases: list[tuple[Any, str]] = [((url,), "the server's address") for url in URLS]
    cases += [(("http://a", key), "characters that no header may hold") for key in KEYS]
    for given, part in cases:
        with pytest.raises(ValueError, match=part) as caught:
            Client(*given)
        assert "SECR" not in str(caught.value)


def test_a_client_of_ones_own_is_used_and_left_open() -> None:
    def handle(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json={"key": request.headers["x-own"]})

    with httpx2.Client(transport=httpx2.MockTransport(handle), headers={"x-own": "1"}) as http:
        with Client("http://a", http_client=http, headers={"x-other": "2"}) as client:
            assert client.transport.send(Request("GET", "/")).json() == {"key": "1"}
        assert not http.is_closed
