"""`X-Request-ID` on every answer, on both paths, of errors too."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from oubli.app.errors import JournalError
from oubli.app.http.monitoring.observer import ALONE, correlation_of
from oubli.app.logs import request_id
from oubli.app.service.changes.additions import AddSamples
from oubli.app.service.changes.command import Transaction
from oubli.app.storage.journal import SqliteJournal
from tests.unit.app.http.connections import Host, both_ways, hosting, request
from tests.unit.app.support import make_service, samples

pytestmark = pytest.mark.anyio

ONE_ROW = json.dumps({"instances": [[1, "a", True]]}).encode()
MADE = re.compile(rb"[0-9a-f]{16}-[0-9a-f]{3,}")


def named(method: str, target: str, body: bytes, request_id: str | None) -> bytes:
    headers = [("Host", "127.0.0.1"), ("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    if request_id is not None:
        headers.append(("X-Request-ID", request_id))
    return request(method, target, body, headers=tuple(headers))


async def ids_of(host: Host, *sent: bytes) -> list[bytes]:
    """The ids that some requests of one connection are answered with."""
    connection = host.connect()
    for one in sent:
        connection.send(one)
        await host.settle()
    return re.findall(rb"\r\nx-request-id: ([^\r]*)\r\n", connection.transport.written)


@both_ways
@pytest.mark.parametrize("durable", [True, False])
async def test_an_id_that_is_accepted_comes_back(host: Host) -> None:
    sample = json.dumps(samples(1)).encode()
    asked = [
        ("POST", "/predict", ONE_ROW, "a"),
        ("POST", "/predict", ONE_ROW, "a"),  # the same head once more
        ("POST", "/predict", ONE_ROW, "B.c_d-9"),
        ("POST", "/samples", sample, "x" * 64),
        ("DELETE", "/samples/n0", b"", "7"),
        ("POST", "/predict", b"{", "broken"),
        ("GET", "/nowhere", b"", "nowhere"),
    ]
    assert await ids_of(host, *(named(*one) for one in asked)) == [one[3].encode() for one in asked]


@both_ways
@pytest.mark.parametrize("given", [None, "", "a b", "é", "x" * 65, "<script>", "a,b"])
async def test_any_other_is_replaced_by_one_of_our_own(host: Host, given: str | None) -> None:
    found = await ids_of(host, *[named("POST", "/predict", ONE_ROW, given)] * 3)
    assert len(set(found)) == 3
    assert all(MADE.fullmatch(one) for one in found)


async def test_what_is_no_request_is_answered_with_an_id_too(host: Host) -> None:
    (made,) = await ids_of(host, b"what?\r\n\r\n")
    assert MADE.fullmatch(made)
    long = named("GET", "/model", b"", "mine")[:-2] + b"Long: " + b"x" * 70_000
    assert await ids_of(host, long) == [b"mine"]
    # The id of the request before is not that of what follows it.
    first, second = await ids_of(host, named("POST", "/predict", ONE_ROW, "first"), b"\x00\r\n\r\n")
    assert first == b"first"
    assert MADE.fullmatch(second)


def test_what_is_refused_before_there_is_a_route_has_one(client: TestClient) -> None:
    for status, method, path, host in (
        (405, "PATCH", "/model", "localhost"), (421, "GET", "/model", "elsewhere"), (400, "GET", "/healthz", "a b"),
    ):  # fmt: skip
        answer = client.request(method, path, headers={"Host": host})
        assert answer.status_code == status
        assert MADE.fullmatch(answer.headers["x-request-id"].encode())
        answer = client.request(method, path, headers={"Host": host, "X-Request-ID": "mine"})
        assert answer.headers["x-request-id"] == "mine"


def test_the_first_of_several_headers_counts() -> None:
    found = correlation_of([(b"x-request-id", b"a"), (b"x-request-id", b"b"), (b"traceparent", b"c"), (b"other", b"d")])
    assert found == (b"a", b"c")
    assert correlation_of([(b"other", b"d")]) is ALONE
    assert correlation_of([(b"x-request-id", b"a b")]).request_id is None


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Records, each with the request in whose context it was written."""

    def note(record: logging.LogRecord) -> bool:
        record.request_id = request_id.get()
        return True

    caplog.handler.addFilter(note)
    yield caplog
    caplog.handler.removeFilter(note)


@pytest.mark.parametrize("hot", [True, False])
@pytest.mark.parametrize("failure", ["journal", "model", "answer"])
def test_a_failure_of_a_change_is_logged_with_its_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture, hot: bool, failure: str
) -> None:
    """It is a task of the service that writes the line, for several requests at once."""

    def fail(*_: object, **__: object) -> None:
        raise JournalError("SECRET") if failure == "journal" else RuntimeError("SECRET")

    owner, method, text = {
        "journal": (SqliteJournal, "append", "the journal could not be written"),
        "model": (Transaction, "apply", "a mutation failed inside the model"),
        "answer": (AddSamples, "result", "a change was made, and its answer could not be"),
    }[failure]

    async def work() -> None:
        async with hosting(make_service(directory=tmp_path / "data"), hot=hot) as host:
            monkeypatch.setattr(owner, method, fail)
            connections = [host.connect() for _ in range(3)]
            for i, connection in enumerate(connections):
                body = json.dumps(samples(1, prefix=f"p{i}-")).encode()
                connection.send(named("POST", "/samples", body, f"id-{i}"))
            await host.settle()
            monkeypatch.undo()
            status = b"HTTP/1.1 503" if failure == "journal" else b"HTTP/1.1 500"
            assert all(connection.transport.written.startswith(status) for connection in connections)

    asyncio.run(work())
    found = [record.request_id for record in logged.records if text in record.getMessage()]
    assert found == ["id-0", "id-1", "id-2"]
    assert "SECRET" not in logged.text
