"""Each request is observed once, with the template of its route, whichever path it takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oubli.app.http.app import create_app
from oubli.app.http.monitoring.observer import NOT_ANSWERED, UNKNOWN_ROUTE, Correlation
from tests.unit.app.http.connections import asgi_scope, hosting, request
from tests.unit.app.support import make_service, make_settings, samples

pytestmark = pytest.mark.anyio

ONE_ROW = json.dumps({"instances": [[1, "a", True]]}).encode()
ONE_SAMPLE = json.dumps(samples(1)).encode()
REF = "6f75626c-692d-4a6f-8273-2d6279206b65"

Seen = list[tuple[str, str, int]]


class Noting:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: Seen = []

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
]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(("asked", "is_fast"), [(FAST, True), (ORDINARY, False)])
async def test_each_request_is_observed_once(tmp_path: Path, asked: Any, is_fast: bool, durable: bool) -> None:
    noting = Noting()
    service = make_service(directory=tmp_path / "data" if durable else None)
    async with hosting(service, observer=noting) as host:
        ready, noted, connection = len(noting.seen), host.count_hot(), host.connect()
        for sent, _ in asked:
            connection.send(sent)
            await host.settle()
        assert noting.seen[ready:] == [expected for _, expected in asked]
        assert sum(noted) == (len(asked) if is_fast else 0)


async def test_a_client_that_goes_away_is_observed() -> None:
    noting = Noting()
    app = create_app(make_settings(), make_service(), noting)

    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def nowhere(message: object) -> None:
        raise AssertionError(message)

    await app(asgi_scope("POST", "/predict", content_type="application/json", content_length="9"), gone, nowhere)
    assert noting.seen == [("POST", "/predict", NOT_ANSWERED)]
