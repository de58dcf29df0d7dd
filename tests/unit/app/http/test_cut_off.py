"""A node that may have missed an erasure answers nothing that depends on samples, whichever way a request takes."""

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from oubli.app.service.roles import Role
from oubli.app.service.service import Service
from tests.unit.app.http.connections import ADD, DELETE, MODEL, PLAIN, PREDICT, Host, hosting, request
from tests.unit.app.support import JSON, make_service, samples, served

pytestmark = pytest.mark.anyio

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


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    async with hosting(cut_service()[0]) as one:
        yield one


def test_all_routes_are_refused_and_nothing_counted_but_what_tells_nothing_of_samples() -> None:
    service, role = cut_service()
    with served(service) as client:
        table = client.app.state.routes._routes  # type: ignore[attr-defined]
        routes = {(method, path) for path, _, methods in table for method in methods}
        assert len(routes) > 80
        assert service.measure().n_samples == 60
        role.answers_until = -math.inf
        measured = service.measure()
        assert (measured.n_samples, measured.lazy_tags, measured.is_ready) == (0, 0, False)
        for method, path in sorted(routes):
            answer = client.request(method, path.replace("{file}", "app.js"), content=b"{}", headers=JSON)
            is_refused = answer.status_code == 503 and (method == "HEAD" or WHY in answer.text)
            assert is_refused == (path not in GOES_ON or path in ("/readyz", "/v2/health/ready")), (method, path)


@pytest.mark.parametrize("data", [PREDICT, ADD, DELETE, MODEL])
async def test_a_request_that_waited_is_refused_on_both_paths(host: Host, data: bytes) -> None:
    connection, role = host.connect(), host.service.lifecycle.role
    for sent, until in ((PREDICT, math.inf), (data, -math.inf), (PREDICT, math.inf)):  # its head is known then
        role.answers_until = until
        connection.send(sent)
        await host.settle()
    assert connection.statuses == [200, 503, 200]
    assert WHY.encode() in connection.answers[1].body
    assert host.service.model.state.model.n_samples_ == 60


async def test_an_answer_made_before_a_freeze_is_not_written(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    predict_now = host.service.questions.predict_now

    def late(rows: Any) -> Any:
        host.service.lifecycle.role.answers_until = -math.inf  # frozen here
        return predict_now(rows)

    monkeypatch.setattr(host.service.questions, "predict_now", late)
    connection = host.connect()
    connection.send(PREDICT)
    assert connection.answers == []
    await host.settle()
    assert connection.statuses == [503]


@pytest.mark.parametrize(("owner", "names", "method", "path", "body", "status"), [
    ("questions", ["get"], "GET", "/samples/c1", None, 503),
    ("questions", ["find", "page"], "POST", "/samples/search", {"ids": ["c1"]}, 503),
    ("questions", ["predict_now"], "POST", "/predict", {"instances": [[1, "a", True]]}, 503),
    ("changes", ["add"], "POST", "/samples", samples(1), 201),  # the journal says that no one else leads
])  # fmt: skip
def test_an_answer_is_looked_at_when_it_is_given(owner, names, method, path, body, status, monkeypatch):
    service, role = cut_service()
    now = [0.0]
    with served(service) as client:
        monkeypatch.setattr("oubli.app.http.middleware.elapsed", lambda: now[0])
        role.answers_until = 10.0
        for name in names:
            work = getattr(getattr(service, owner), name)

            def late(*arguments: Any, work: Any = work, **more: Any) -> Any:
                now[0] = 10.0  # frozen here
                return work(*arguments, **more)

            monkeypatch.setattr(getattr(service, owner), name, late)
        answer = client.request(method, path, json=body)
        assert (answer.status_code, now) == (status, [10.0])
        assert status != 503 or WHY in answer.text


async def test_a_stream_of_events_ends(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oubli.app.http.monitoring.events.TICK", 0.01)
    state, metrics = host.connect(), host.connect()
    for connection, path in ((state, "/events"), (metrics, "/events?topic=metrics")):
        connection.send(request("GET", path, headers=PLAIN))
        while not connection.transport.written:  # noqa: ASYNC110 - bytes, and no event
            await asyncio.sleep(0.01)
    host.service.lifecycle.role.answers_until = -math.inf
    host.service.model.state.version += 1
    while not state.transport.is_closing():  # noqa: ASYNC110 - as a client would see it
        await asyncio.sleep(0.01)
    assert b'n_samples":60' not in state.transport.written.partition(b"event: model")[2]
    assert not metrics.transport.is_closing()
    host.service.lifecycle.drain()  # which ends it
