"""Each request is observed once, with the template of its route and an id, whichever path it takes; errors, too."""

import asyncio
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from oubli.app.errors import JournalError
from oubli.app.http.app import create_app
from oubli.app.http.monitoring.observer import ALONE, NOT_ANSWERED, OTHER_METHOD, UNKNOWN_ROUTE, correlation_of
from oubli.app.logs import request_id
from oubli.app.service.changes.additions import AddSamples
from oubli.app.service.changes.command import Transaction
from oubli.app.storage.journal import SqliteJournal
from tests.unit.app.http.connections import DELETE, PREDICT, Host, asgi_scope, both_ways, hosting, request
from tests.unit.app.service.support import raising
from tests.unit.app.support import make_service, make_settings, samples

pytestmark = pytest.mark.anyio

ONE_ROW = json.dumps({"instances": [[1, "a", True]]}).encode()
ONE_SAMPLE = json.dumps(samples(1)).encode()
REF = "6f75626c-692d-4a6f-8273-2d6279206b65"


class Noting:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int]] = []

    def __call__(self, method: str, route: str, status: int, seconds: float, name: bytes, correlation: object) -> None:
        assert 0 <= seconds < 600
        assert name
        self.seen.append((method, route, status))


def asked_for(method: str, path: str, status: int, body: bytes = b"", route: str = "") -> tuple[bytes, Any]:
    """A request, and what an observer is told of it."""
    return request(method, path, body), (method, route or path, status)


SAMPLE_ROUTE = "/samples/{id}"
FAST = [
    asked_for("POST", "/predict", 200, ONE_ROW), *(asked_for("POST", "/samples", n, ONE_SAMPLE) for n in (201, 200)),
    *(asked_for("DELETE", f"/samples/{name}", 200, route=SAMPLE_ROUTE) for name in ("n0", "nobody")),
]  # fmt: skip
ORDINARY = [
    asked_for("POST", "/predict", 400, b"{"), asked_for("DELETE", f"/samples/c1?ref={REF}", 200, route=SAMPLE_ROUTE),
    asked_for("GET", "/samples/c2", 200, route=SAMPLE_ROUTE),
    asked_for("GET", f"/erasures/{REF}", 404, route="/erasures/{id}"), asked_for("PATCH", "/samples", 405),
    asked_for("GET", "/v2/models/mine", 404, route="/v2/models/{model_name}"),
    asked_for("GET", "/nowhere", 404, route=UNKNOWN_ROUTE), (b"SECRET\r\n\r\n", (OTHER_METHOD, UNKNOWN_ROUTE, 400)),
]  # fmt: skip


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(("asked", "is_fast"), [(FAST, True), (ORDINARY, False)])
async def test_each_request_is_observed_once(tmp_path: Path, asked: Any, is_fast: bool, durable: bool) -> None:
    noting = Noting()
    async with hosting(make_service(directory=tmp_path / "data" if durable else None), observer=noting) as host:
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
    return re.findall(rb"\r\nx-request-id: ([^\r]*)\r\n", (await host.ask(*sent)).transport.written)


@both_ways
@pytest.mark.parametrize("durable", [True])
async def test_an_id_that_is_accepted_comes_back(host: Host) -> None:
    asked = [
        *(("POST", "/predict", ONE_ROW, name) for name in ("a", "a", "B.c_d-9")),  # one head twice
        ("POST", "/samples", ONE_SAMPLE, "x" * 64), ("DELETE", "/samples/n0", b"", "7"),
        ("POST", "/predict", b"{", "broken"), ("GET", "/nowhere", b"", "nowhere"), ("PATCH", "/model", b"", "method"),
    ]  # fmt: skip
    assert await ids_of(host, *(named(*one) for one in asked)) == [one[3].encode() for one in asked]
    for name in ("elsewhere", "a b"):  # they are refused before there is a route
        sent = request("GET", "/healthz", headers=(("Host", name), ("X-Request-ID", "mine")))
        assert await ids_of(host, sent) == [b"mine"]


@both_ways
@pytest.mark.parametrize("given", [None, "", "a b", "é", "x" * 65, "<script>", "a,b"])
async def test_any_other_is_replaced_by_one_of_our_own(host: Host, given: str | None) -> None:
    found = await ids_of(host, *[named("POST", "/predict", ONE_ROW, given)] * 3)
    assert len(set(found)) == 3
    assert all(MADE.fullmatch(one) for one in found)


async def test_what_is_no_request_is_answered_with_an_id_too(host: Host) -> None:
    for sent in (b"what?\r\n\r\n", request("GET", "/model", headers=(("Host", "elsewhere"),))):
        (made,) = await ids_of(host, sent)
        assert MADE.fullmatch(made)
    long = named("GET", "/model", b"", "mine")[:-2] + b"Long: " + b"x" * 70_000
    assert await ids_of(host, long) == [b"mine"]
    # The id of the request before is not that of what follows it.
    first, second = await ids_of(host, named("POST", "/predict", ONE_ROW, "first"), b"\x00\r\n\r\n")
    assert first == b"first"
    assert MADE.fullmatch(second)


def test_the_first_of_several_headers_counts() -> None:
    found = correlation_of([(b"x-request-id", b"a"), (b"x-request-id", b"b"), (b"traceparent", b"c"), (b"other", b"d")])
    assert found == (b"a", b"c")
    assert correlation_of([(b"other", b"d")]) is ALONE
    assert correlation_of([(b"x-request-id", b"a b")]).request_id is None


FAILURES = {
    "journal": (SqliteJournal, "append", "the journal could not be written", JournalError("SECRET")),
    "model": (Transaction, "apply", "a mutation failed inside the model", RuntimeError("SECRET")),
    "answer": (AddSamples, "result", "a change was made, and its answer could not be", RuntimeError("SECRET")),
}


@both_ways
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_of_a_change_is_logged_with_its_request(tmp_path, monkeypatch, caplog, hot, failure):
    """It is a task of the service that writes the line, for several requests at once."""

    owner, method, text, error = FAILURES[failure]
    logged: list[Any] = []  # the text and the request of each record

    def note(record: logging.LogRecord) -> bool:
        logged.append((record.getMessage(), request_id.get()))
        return True

    async def work() -> None:
        async with hosting(make_service(directory=tmp_path / "data"), hot=hot) as host:
            monkeypatch.setattr(owner, method, raising(error))
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

    monkeypatch.setattr(caplog.handler, "filters", [note])
    asyncio.run(work())
    assert [name for told, name in logged if text in told] == ["id-0", "id-1", "id-2"]
    assert "SECRET" not in caplog.text
    assert failure != "model" or "an internal error at support.py" in caplog.text
