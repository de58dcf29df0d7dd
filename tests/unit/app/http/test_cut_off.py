"""A node that may have missed an erasure answers nothing that depends on samples, whichever way a request takes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from oubli.app.http.app import create_app
from oubli.app.http.auth import depends_on_samples, is_change
from oubli.app.service.roles import Role
from oubli.app.service.service import Service
from tests.unit.app.http.connections import Connection, Host, hosting, request
from tests.unit.app.http.test_protocol import ADD, DELETE, MODEL, PREDICT
from tests.unit.app.support import make_service, make_settings, samples, served

WHY = "This node has not reached PostgreSQL"
# Besides health, documentation and console: what is proved, what is counted, and who there is.
GOES_ON = {
    "/", "/access", "/certificate", "/cluster", "/cluster/nodes/{name}", "/console/{file}", "/discovery", "/docs",
    "/docs/page.css", "/docs/page.js", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css", "/erasures",
    "/erasures/{id}", "/erasures/{id}/opening", "/erasures/{id}/proof", "/healthz", "/keys", "/ledger",
    "/ledger/consistency", "/ledger/keys", "/ledger/{index}/proof", "/log/checkpoint", "/log/tile/entries/{number}",
    "/log/tile/{level}/{number}", "/metrics", "/model/kinds", "/opendsr/v2/certificate",
    "/opendsr/v2/discovery", "/readyz", "/v2/health/live", "/v2/health/ready",
}  # fmt: skip


class Cut(Role):
    """A role that can be cut off."""

    def unready(self) -> str | None:
        return None if self.answers_until == math.inf else WHY


def cut_service() -> tuple[Service, Cut]:
    service, role = make_service(), Cut()
    service.lifecycle.role = role
    return service, role


def test_all_routes_are_refused_but_those_that_tell_nothing_of_samples() -> None:
    service, role = cut_service()
    table = create_app(make_settings(), service).state.routes
    routes = {(method, path) for path, _, methods in table._routes for method in methods}
    assert len(routes) > 80
    with served(service) as client:
        role.answers_until = -math.inf
        for method, path in sorted(routes):
            target = path.replace("{file}", "app.js")
            answer = client.request(method, target, content=b"{}", headers={"Content-Type": "application/json"})
            is_refused = answer.status_code == 503 and (method == "HEAD" or WHY in answer.text)
            assert is_refused == (path not in GOES_ON or path in ("/readyz", "/v2/health/ready")), (method, path)


def test_it_is_measured_as_not_ready_and_counts_no_samples() -> None:
    service, role = cut_service()
    assert service.measure().n_samples == 60
    role.answers_until = -math.inf
    measured = service.measure()
    assert (measured.n_samples, measured.lazy_tags, measured.is_ready) == (0, 0, False)


def asked_of(work: Callable[[Host, Cut], Any]) -> None:
    async def run() -> None:
        service, role = cut_service()
        async with hosting(service) as host:
            await work(host, role)

    asyncio.run(run())


def statuses(connection: Connection) -> list[bytes]:
    return [one.status.split()[1] for one in connection.answers]


@pytest.mark.parametrize("data", [PREDICT, ADD, DELETE, MODEL])
def test_a_request_that_waited_is_refused_on_both_paths(data: bytes) -> None:
    async def work(host: Host, role: Cut) -> None:
        connection = host.connect()
        connection.send(PREDICT)  # its head is known then
        n_samples = host.service.model.state.model.n_samples_
        role.answers_until = -math.inf
        connection.send(data)
        await host.settle()
        assert statuses(connection) == [b"200", b"503"]
        assert WHY.encode() in connection.answers[1].body
        assert host.service.model.state.model.n_samples_ == n_samples
        role.answers_until = math.inf
        connection.send(PREDICT)
        await host.settle()
        assert statuses(connection) == [b"200", b"503", b"200"]

    asked_of(work)


def test_an_answer_that_was_made_before_a_freeze_is_not_written_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(host: Host, role: Cut) -> None:
        predict_now = host.service.questions.predict_now

        def late(rows: Any) -> Any:
            role.answers_until = -math.inf  # frozen here
            return predict_now(rows)

        monkeypatch.setattr(host.service.questions, "predict_now", late)
        connection = host.connect()
        connection.send(PREDICT)
        assert connection.answers == []
        await host.settle()
        assert statuses(connection) == [b"503"]

    asked_of(work)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/samples/c1", None, 503),
        ("POST", "/samples/search", {"ids": ["c1"]}, 503),
        ("POST", "/predict", {"instances": [[1, "a", True]]}, 503),
        ("POST", "/samples", samples(1), 201),  # it is in the journal, which says that no one else leads
    ],
)
def test_an_answer_is_looked_at_when_it_is_given(
    method: str, path: str, body: Any, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, role = cut_service()
    now = [0.0]
    with served(service) as client:
        monkeypatch.setattr("oubli.app.http.middleware.elapsed", lambda: now[0])
        role.answers_until = 10.0
        questions, changes = service.questions, service.changes
        answering = [(questions, name) for name in ("get", "page", "find", "predict_now")]
        for owner, name in (*answering, (changes, "add")):
            work = getattr(owner, name)

            def late(*arguments: Any, work: Any = work, **more: Any) -> Any:
                now[0] = 10.0  # frozen here
                return work(*arguments, **more)

            monkeypatch.setattr(owner, name, late)
        answer = client.request(method, path, json=body)
        assert answer.status_code == status
        assert now == [10.0]
        assert status != 503 or WHY in answer.text


def test_a_stream_of_events_ends() -> None:
    async def work(host: Host, role: Cut) -> None:
        connections = {path: host.connect() for path in ("/events", "/events?topic=metrics")}
        for path, connection in connections.items():
            connection.send(request("GET", path, headers=(("Host", "127.0.0.1"),)))
        while not all(one.transport.written for one in connections.values()):  # noqa: ASYNC110 - bytes, and no event
            await asyncio.sleep(0.01)
        role.answers_until = -math.inf
        host.service.model.state.version += 1
        await asyncio.sleep(1.5)
        assert connections["/events"].transport.is_closing()
        assert b'n_samples":60' not in connections["/events"].transport.written.partition(b"event: model")[2]
        assert not connections["/events?topic=metrics"].transport.is_closing()
        host.service.lifecycle.drain()  # which ends it

    asked_of(work)


def test_what_is_a_change() -> None:
    assert is_change("POST", "/samples")
    assert is_change("DELETE", "/samples/c1")
    assert not is_change("POST", "/samples/search")
    assert not is_change("POST", "/predict")
    assert not is_change("GET", "/model")
    assert depends_on_samples("/nothing")  # what is not listed
