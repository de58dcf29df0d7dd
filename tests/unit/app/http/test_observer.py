"""Each request is observed once, with the template of its route and an id, whichever path it takes; errors, too."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from oubli.app.errors import JournalError
from oubli.app.http.app import create_app
from oubli.app.http.monitoring.observer import (
    ALONE,
    NOT_ANSWERED,
    OTHER_METHOD,
    UNKNOWN_ROUTE,
    Correlation,
    correlation_of,
)
from oubli.app.logs import request_id
from oubli.app.service.changes.additions import AddSamples
from oubli.app.service.changes.command import Transaction
from oubli.app.storage.journal import SqliteJournal
from tests.unit.app.http.connections import DELETE, PREDICT, Host, asgi_scope, both_ways, hosting, request
from tests.unit.app.support import make_service, make_settings, samples

pytestmark = pytest.mark.anyio

ONE_ROW = json.dumps({"instances": [[1, "a", True]]}).encode()
ONE_SAMPLE = json.dumps(samples(1)).encode()
REF = "6f75626c-692d-4a6f-8273-2d6279206b65"


class Noting:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int]] = []

    def __call__(
        self, method: str, route: str, status: int, seconds: float, request_id: bytes, correlation: Correlation
    ) -> None:
        assert 0 <= seconds < 600
        assert request_id
        self.seen.append((method, route, status))


FAST: list[tuple[bytes, tuple[str, str, int]]] = [
    (request("POST", "/predict", ONE_ROW), ("POST", "/predict", 200)),
    (request("POST", "/samples", ONE_SAMPLE), ("POST", "/samples", 201)),
    (request("POST", "/samples", ONE_SAMPLE), ("POST", "/samples", 200)),
    (request("DELETE", "/samples/n0"), ("DELETE", "/samples/{id}", 200)),
    (request("DELETE", "/samples/nobody"), ("DELETE", "/samples/{id}", 200)),
]
ORDINARY: list[tuple[bytes, tuple[str, str, int]]] = [
    (request("POST", "/predict", b"{"), ("POST", "/predict", 400)),
    (request("DELETE", f"/samples/c1?ref={REF}"), ("DELETE", "/samples/{id}", 200)),
    (request("GET", "/samples/c2"), ("GET", "/samples/{id}", 200)),
    (request("GET", f"/erasures/{REF}"), ("GET", "/erasures/{id}", 404)),
    (request("GET", "/v2/models/mine"), ("GET", "/v2/models/{model_name}", 404)),
    (request("GET", "/nowhere"), ("GET", UNKNOWN_ROUTE, 404)),
    (request("PATCH", "/samples"), ("PATCH", "/samples", 405)),
    (b"SECRET\r\n\r\n", (OTHER_METHOD, UNKNOWN_ROUTE, 400)),
]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(("asked", "is_fast"), [(FAST, True), (ORDINARY, False)])
async def test_each_request_is_observed_once(tmp_path: Path, asked: Any, is_fast: bool, durable: bool) -> None:
    noting = Noting()
    service = make_service(directory=tmp_path / "data" if durable else None)
    async with hosting(service, observer=noting) as host:
        ready, noted = len(noting.seen), host.count_hot()
        await host.ask(*(sent for sent, _ in asked))
        assert noting.seen[ready:] == [expected for _, expected in asked]
        assert sum(noted) == (len(asked) if is_fast else 0)


async def test_a_client_that_goes_away_is_observed_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    noting = Noting()
    app = create_app(make_settings(), make_service(), noting)

    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def nowhere(message: object) -> None:
        raise AssertionError(message)

    await app(asgi_scope("POST", "/predict", content_type="application/json", content_length="9"), gone, nowhere)
    assert noting.seen == [("POST", "/predict", NOT_ANSWERED)]
    assert "failed" not in caplog.text


MADE = re.compile(rb"[0-9a-f]{16}-[0-9a-f]{3,}")


def named(method: str, target: str, body: bytes, request_id: str | None) -> bytes:
    return request(method, target, body, more=None if request_id is None else {"X-Request-ID": request_id})


async def ids_of(host: Host, *sent: bytes) -> list[bytes]:
    """The ids that some requests of one connection are answered with."""
    written = (await host.ask(*sent)).transport.written
    return re.findall(rb"\r\nx-request-id: ([^\r]*)\r\n", written)


@both_ways
@pytest.mark.parametrize("durable", [True])
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


FAILURES = {
    "journal": (SqliteJournal, "append", "the journal could not be written"),
    "model": (Transaction, "apply", "a mutation failed inside the model"),
    "answer": (AddSamples, "result", "a change was made, and its answer could not be"),
}


@both_ways
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_of_a_change_is_logged_with_its_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture, hot: bool, failure: str
) -> None:
    """It is a task of the service that writes the line, for several requests at once."""

    def fail(*_: object, **__: object) -> None:
        raise JournalError("SECRET") if failure == "journal" else RuntimeError("SECRET")

    owner, method, text = FAILURES[failure]

    async def work() -> None:
        async with hosting(make_service(directory=tmp_path / "data"), hot=hot) as host:
            monkeypatch.setattr(owner, method, fail)
            connections = [host.connect() for _ in range(3)]
            for i, connection in enumerate(connections):
                body = json.dumps(samples(1, prefix=f"p{i}-")).encode()
                connection.send(named("POST", "/samples", body, f"id-{i}"))
            await host.settle()
            monkeypatch.undo()
            for connection in connections:
                (answer,) = connection.answers
                assert connection.statuses == [503 if failure == "journal" else 500]
                assert b"content-type: application/problem+json" in answer.headers
                assert failure == "journal" or b"urn:oubli:problem:internal-error" in answer.body
                assert b"SECRET" not in answer.body
            if failure == "model":
                later = await host.ask(DELETE + PREDICT)
                assert later.statuses == [503, 200]
                assert b"changes-stopped" in later.answers[0].body

    asyncio.run(work())
    found = [record.request_id for record in logged.records if text in record.getMessage()]
    assert found == ["id-0", "id-1", "id-2"]
    assert "SECRET" not in logged.text
    assert failure != "model" or "an internal error at test_observer.py" in logged.text
