"""`Min-Version`: no one who has seen a version is answered from an older one, on either way through the server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.unit.app.http.connections import hosting, request
from tests.unit.app.support import make_service, samples

ROW = {"instances": [[1, "a", True]]}


def test_a_version_that_is_served_is_answered_and_a_later_one_is_not(client: TestClient) -> None:
    seen = client.post("/samples", json=samples(1)).json()["model_version"]
    for method, path, body in (("POST", "/predict", ROW), ("GET", "/model", None), ("GET", "/samples/n0", None)):
        answer = client.request(method, path, json=body, headers={"Min-Version": str(seen)})
        assert answer.status_code == 200
        assert answer.json()["model_version"] == seen
        refused = client.request(method, path, json=body, headers={"Min-Version": str(seen + 1)})
        assert refused.status_code == 503
        assert refused.json()["type"].endswith(":behind")
        assert int(refused.headers["Retry-After"]) > 0


def test_a_change_that_asks_for_a_later_version_is_not_made(client: TestClient) -> None:
    before = client.get("/model").json()
    assert client.post("/samples", json=samples(1), headers={"Min-Version": "99"}).status_code == 503
    assert client.get("/model").json() == before


def test_health_is_told_whatever_the_version(client: TestClient) -> None:
    assert all(client.get(path, headers={"Min-Version": "99"}).is_success for path in ("/healthz", "/readyz"))


@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "9" * 16, "+1"])
def test_what_is_no_version_is_refused_without_being_repeated(client: TestClient, text: str) -> None:
    answer = client.post("/predict", json=ROW, headers={"Min-Version": text})
    assert answer.status_code == 400
    assert "'Min-Version' must be a model version" in answer.json()["detail"]
    assert len(text) < 2 or text not in answer.text


@pytest.mark.parametrize(("asked", "hot"), [("1", True), ("2", False)])
def test_the_fast_path_takes_what_it_may_answer(asked: str, hot: bool) -> None:
    async def run() -> tuple[bool, bool]:
        async with hosting(make_service()) as host:
            connection = host.connect()
            body = b'{"instances": [[1, "a", true]]}'
            lines = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(body))}
            connection.send(request(body=body, headers=(*lines.items(), ("Min-Version", asked))))
            fast = connection.protocol.cycle is None
            await host.settle()
            answers: list[Any] = connection.answers
            return b" 200 " in answers[0].status, fast

    assert asyncio.run(run()) == (hot, hot)
